"""How does a machine meet real time and real sockets?"""

__all__: list[str] = []
