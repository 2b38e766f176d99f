"""The map that a broker has of the network around it, and what it tells its neighbours of it.

How far a broker sees is its choice (`delta`). Each tells its neighbours who lies behind it, as far as they
want to see. A map that lags behind may cost a detour, never a publication.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from braid.broker.events import MapChanged
from braid.broker.parties import Link, SoftLink
from braid.broker.settings import DELTA_MAX, checked_broker_id
from braid.errors import ConfigurationError, RemoteProtocolError
from braid.protocol.fitting import portions
from braid.protocol.limits import carried_bytes
from braid.protocol.messages import Nearby
from braid.routing import HERE, Anchor, Place, Surroundings

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from braid.broker.events import Event, Events, LinkBegun, LinkOpening, LinkRemoved, PlaceChanged
    from braid.broker.parties import Party
    from braid.broker.reachability import Reachability
    from braid.broker.turn import Turn
    from braid.routing import OverlayMap

__all__ = ["Maps", "told_bytes"]

# What a place on the map takes in a message beside its names.
PLACE_BYTES = 16
# An address is a host and a port.
ADDRESS_LENGTH_MAX = 300


class Maps:
    """Keeps the map.

    Args:
        turn: where messages to neighbours go.
        links: the neighbours by their names.
        reachability: knows a way to brokers that are out of sight, too.
        events: tells others when the map has changed.
    """

    def __init__(
        self, turn: Turn, links: Mapping[str, Link], reachability: Reachability, events: Events
    ) -> None:
        settings = turn.settings
        self.surroundings = Surroundings(settings.broker_id, settings.address, settings.delta)
        self.sees_far = settings.delta > 1
        """Whether this broker knows more than its neighbours."""
        self._broker_id = settings.broker_id
        self._turn = turn
        self._links = links
        self._reachability = reachability
        self._events = events

    @property
    def overlay(self) -> OverlayMap:
        """The map as it is now."""
        return self.surroundings.map()

    # What changes it.

    def meet(self, event: LinkBegun) -> None:
        """A session with a neighbour has begun: both say anew what lies behind them."""
        self.surroundings.meet(event.link.name, event.link.address, event.delta)

    def complete(self, event: LinkOpening) -> None:
        """A neighbour has said everything that it knows."""
        version = self.surroundings.version
        self.surroundings.complete(event.link.name)
        if self.surroundings.version != version:
            self.changed()

    def lose(self, event: LinkRemoved) -> None:
        """A neighbour is none any more."""
        self.surroundings.lose(event.link.name)
        self.changed()

    def place_changed(self, event: PlaceChanged) -> None:
        """A broker hangs on another one, as an operation has decided; neighbours hear of it from here."""
        self.surroundings.rehang(event.moving, event.old, event.new, event.address)
        self.changed()

    def hear_nearby(self, link: Link, message: Nearby) -> None:
        """A neighbour says who is behind it.

        Raises:
            RemoteProtocolError: what it says cannot be.
        """
        places = [_checked_place(*place) for place in message.added]
        self.surroundings.hear(link.name, places, message.removed)
        self.changed()

    def changed(self, _: Event | None = None) -> None:
        """The map is another one now: all who go by it hear of that."""
        self._events.tell(MapChanged())

    # What others are told.

    def tell_neighbours(self, _: MapChanged) -> None:
        """Tell every neighbour what has changed behind us, as seen from there."""
        for link in self._links.values():
            if link.agreed:
                self._tell(link)

    def _tell(self, link: Link) -> None:
        news = self.surroundings.news_for(link.name)
        if news is not None:
            # A message too large for the neighbour would be sent again for ever. The nearer ones go first.
            removed = news.removed
            costs = [sum(map(len, place)) + PLACE_BYTES for place in news.added]
            for added in portions(news.added, costs, told_bytes(link)) or [[]]:
                self._turn.tell(link, Nearby(list[tuple[str, str, str]](added), removed))
                removed = []

    def anchor_for(self, link: str, anchor: Anchor | None) -> Anchor:
        """How a neighbour is to know what has an anchor, or (None) is for a client here.

        Only those who see everything put destinations into sets, so only they are told what is exact: it
        costs some covering.
        """
        wish = self.surroundings.wish_of(link)
        everything = wish >= DELTA_MAX
        if anchor is None:
            return Anchor("", everything)
        if wish < 2:
            return HERE
        moved = self.overlay.anchor_for_neighbour(anchor.broker, wish)
        if moved == self._broker_id:
            return HERE
        return Anchor(moved, everything and anchor.exact and moved == anchor.broker)

    # What it says.

    def addressable(self) -> set[str]:
        """All other brokers that copies can be sent to, also those that are out of sight."""
        return {*self.overlay.brokers, *self._reachability.reach()} - {self._broker_id}

    def toward(self, broker: str) -> str | None:
        """The neighbour on the primary path to a broker."""
        overlay = self.overlay
        return overlay.toward(broker) if broker in overlay else self._reachability.toward(broker)

    def direction_of(self, party: Party | None) -> str | None:
        """The neighbour in whose direction a party lies; None for clients and strangers."""
        if isinstance(party, Link):
            return party.name
        if isinstance(party, SoftLink):
            overlay = self.surroundings.map()
            if party.name in overlay:
                # While a neighbour begins anew, those behind it are out of sight, but where they were.
                party.direction = overlay.toward(party.name)
            return party.direction
        return None

    def directions_of(self, parties: Iterable[Party]) -> set[str]:
        """The neighbours in whose directions some parties lie."""
        directions = {self.direction_of(party) for party in parties}
        return {direction for direction in directions if direction is not None}

    def on_the_way_to(self, broker: str) -> Link | None:
        """The neighbour on the primary path to a broker of the map."""
        return self._links.get(self.overlay.toward(broker))

    def way_back(self, soft: SoftLink) -> Link | None:
        """The neighbour on the primary path to where a soft link led."""
        direction = self.direction_of(soft)
        return self._links.get(direction) if direction is not None else None


def told_bytes(link: Link) -> int:
    """How much of a list a neighbour is told in one message."""
    return carried_bytes(link.channel.frame_bytes_max) // 2


def _checked_place(broker: str, before: str, address: str) -> Place:
    try:
        checked_broker_id(broker)
        checked_broker_id(before)
    except ConfigurationError as error:
        raise RemoteProtocolError(str(error)) from None
    if len(address) > ADDRESS_LENGTH_MAX:
        raise RemoteProtocolError(f"an address of {len(address)} characters")
    return Place(broker, before, address)
