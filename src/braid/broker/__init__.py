"""What does a broker do? The rooms before this one, put together as one machine."""

__all__: list[str] = []
