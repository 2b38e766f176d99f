"""What the parts of one peer's application share: the DHT, the settings, and how to reach each other."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from braid.language.publication import plain_attributes
from braid.language.values import Range
from braid.p2p.dmm.repeats import Repeats

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    import msgspec

    from braid.language.values import Value
    from braid.p2p.dht.identifiers import Address
    from braid.p2p.dht.interface import Dht
    from braid.p2p.dmm.finding import Finding
    from braid.p2p.dmm.holding import Holding
    from braid.p2p.dmm.interests import Interests
    from braid.p2p.dmm.messages import Content
    from braid.p2p.dmm.multicasting import Multicasting
    from braid.p2p.dmm.replicas import Replicas
    from braid.p2p.dmm.settings import DmmSettings
    from braid.p2p.space import Box, Space
    from braid.p2p.turn import Turn

__all__ = ["Arrival", "Site"]

# A repeat comes within some seconds of the original; so many marks are remembered.
REPEATS_MAX: Final = 65_536
# Instead of the key of a message that was not routed.
DIRECTLY: Final = b""


class Arrival:
    """A publication as it is matched here."""

    __slots__ = ("_boxes", "attributes", "content", "ranged")

    def __init__(self, content: Content) -> None:
        self.content = content
        attributes: Mapping[str, Any] = content.attributes
        self.ranged = any(type(value) in (tuple, list) for value in attributes.values())
        """Whether it has ranges."""
        if self.ranged:
            attributes = {
                name: Range(*value) if type(value) in (tuple, list) else value
                for name, value in attributes.items()
            }
        self.attributes: Mapping[str, Value] = plain_attributes(attributes)[0]
        self._boxes: dict[str, Box] = {}

    def box(self, space: Space) -> Box:
        """Where it lies in a space."""
        box = self._boxes.get(space.name)
        if box is None:
            box = self._boxes[space.name] = space.box_of(self.attributes)
        return box


class Site:
    """One peer, as its parts see it."""

    __slots__ = (
        "_arrival",
        "address",
        "dht",
        "finding",
        "give",
        "holding",
        "interests",
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
    replicas: Replicas
    """What it knows for the case that a neighbour dies."""
    give: Callable[[Arrival], None]
    """Delivers a publication to this peer's own subscribers."""

    def __init__(self, turn: Turn, dht: Dht, settings: DmmSettings, interests: Interests) -> None:
        self.turn = turn
        self.dht = dht
        self.address = dht.own.address
        self.settings = settings
        self.interests = interests
        self.repeats = Repeats(REPEATS_MAX)
        self._arrival: Arrival | None = None

    def say(self, address: Address, message: msgspec.Struct, now_us: int) -> None:
        """Send a message directly, perhaps to this peer itself, which then gets it later in this turn."""
        if address == self.address:
            self.turn.deliver(DIRECTLY, message, address)
        else:
            self.dht.send(address, message, now_us)

    def arrive(self, content: Content) -> Arrival:
        """A publication, ready to be matched."""
        arrival = self._arrival
        if arrival is None or arrival.content is not content:
            arrival = self._arrival = Arrival(content)
        return arrival
