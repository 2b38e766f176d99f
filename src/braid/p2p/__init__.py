"""And without brokers? Peers that route, match and deliver among themselves."""
