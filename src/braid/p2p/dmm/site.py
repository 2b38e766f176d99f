"""What the parts of one peer's application share: the DHT, the settings, and how to reach each other."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from braid.p2p.dmm.repeats import Repeats

if TYPE_CHECKING:
    from collections.abc import Callable

    import msgspec

    from braid.p2p.dht.identifiers import Address
    from braid.p2p.dht.interface import Dht
    from braid.p2p.dmm.arrivals import Arrival
    from braid.p2p.dmm.confirming import Confirming
    from braid.p2p.dmm.finding import Finding
    from braid.p2p.dmm.gathering import Gathering
    from braid.p2p.dmm.holding import Holding
    from braid.p2p.dmm.interests import Interests
    from braid.p2p.dmm.messages import Content
    from braid.p2p.dmm.multicasting import Multicasting
    from braid.p2p.dmm.replicas import Replicas
    from braid.p2p.dmm.settings import DmmSettings
    from braid.p2p.turn import Turn

__all__ = ["REPEATS_MAX", "Site"]

# On their way publications come again within some seconds; so many marks are remembered.
REPEATS_MAX: Final = 65_536
# What was delivered here is remembered as long as its publisher may send it again, some 4,000 each second.
DELIVERED_MAX: Final = 524_288
# Instead of the key of a message that was not routed.
DIRECTLY: Final = b""


class Site:
    """One peer, as its parts see it."""

    __slots__ = (
        "address",
        "confirming",
        "delivered",
        "dht",
        "finding",
        "gathering",
        "give",
        "holding",
        "interests",
        "leaving",
        "multicasting",
        "repeats",
        "replicas",
        "settings",
        "turn",
    )

    multicasting: Multicasting
    """What this peer asks others for, and others ask it for."""
    holding: Holding
    """The regions that it owns."""
    finding: Finding
    """Publications that look for regions."""
    confirming: Confirming
    """Requests of others, and its own, whether something is installed."""
    gathering: Gathering
    """What peers want, for gateways."""
    replicas: Replicas
    """What it knows for the case that a neighbour dies."""
    give: Callable[[Arrival, int], None]
    """Delivers a publication to this peer's own subscribers."""

    def __init__(self, turn: Turn, dht: Dht, settings: DmmSettings, interests: Interests) -> None:
        self.turn = turn
        self.dht = dht
        self.address = dht.own.address
        self.settings = settings
        self.interests = interests
        self.repeats = Repeats(REPEATS_MAX)
        self.delivered = Repeats(DELIVERED_MAX, settings.resends_us)
        """Publications that were given to this peer's own subscribers."""
        self.leaving = False
        """Whether this peer is about to leave: it begins nothing new."""

    def say(self, address: Address, message: msgspec.Struct, now_us: int) -> None:
        """Send a message directly, perhaps to this peer itself, which then gets it later in this turn."""
        if address == self.address:
            self.turn.deliver(DIRECTLY, message, address)
        else:
            self.dht.send(address, message, now_us)

    def arrive(self, content: Content) -> Arrival:
        """A publication, ready to be matched."""
        return self.interests.arrivals.of(content)
