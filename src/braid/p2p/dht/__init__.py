"""Which peer is responsible for a key, and how does a message get there? See `interface`."""
