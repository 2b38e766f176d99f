"""Which peer is responsible for a key, and how does a message get there? See `interface`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from braid.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Callable

    from braid.p2p.dht.identifiers import Address
    from braid.p2p.dht.interface import Dht
    from braid.p2p.turn import Turn

__all__ = ["DHTS", "OTHER_DHTS", "add_dht"]

DHTS = ("pastry", "ring")
"""Those that are here."""

OTHER_DHTS: dict[str, Callable[[Turn, Address], Dht]] = {}
"""Those that other distributions bring, by name."""


def add_dht(name: str, made: Callable[[Turn, Address], Dht]) -> None:
    """Let peers of this process find each other in one more way.

    Raises:
        ConfigurationError: there is one of that name.
    """
    if name in DHTS or name in OTHER_DHTS:
        raise ConfigurationError(f"there is a DHT {name} already")
    OTHER_DHTS[name] = made
