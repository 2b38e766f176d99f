"""How busy this broker and those around it are, as far as they say so.

Planners of soft links ask for it, and strategy SH goes by how much of its own uplink is used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from braid.adaptation import LoadRow, NeighbourhoodLoad, Uplink
from braid.broker.maps import told_bytes
from braid.broker.parties import Link
from braid.protocol.fitting import portions
from braid.protocol.messages import Loads, Ping

if TYPE_CHECKING:
    from collections.abc import Mapping

    from braid.broker.events import LinkBegun, MapChanged
    from braid.broker.parties import Party
    from braid.broker.turn import Turn
    from braid.protocol.messages import Pong
    from braid.routing import Surroundings

__all__ = ["LoadReports"]

# What a load takes in a message beside the broker's name.
LOAD_BYTES = 40


class LoadReports:
    """Hears and tells how busy brokers are.

    Args:
        turn: where messages to neighbours go.
        links: the neighbours by their names.
        surroundings: who is in sight, and how far neighbours want to see.
    """

    def __init__(self, turn: Turn, links: Mapping[str, Link], surroundings: Surroundings) -> None:
        settings = turn.settings
        self.known = NeighbourhoodLoad(settings.broker_id)
        self.uplink = Uplink(settings.uplink_messages_per_s, settings.uplink_threshold)
        self._turn = turn
        self._links = links
        self._surroundings = surroundings

    @property
    def saving(self) -> bool:
        """Whether the uplink should be saved."""
        return self.uplink.saving

    def begin_anew(self, event: LinkBegun) -> None:
        """A session with a neighbour has begun: it says anew how busy those behind it are."""
        self.known.forget(event.link.name)

    def keep_those_in_sight(self, _: MapChanged) -> None:
        """Others are in sight now."""
        self.known.keep_only(self._surroundings.map())

    def hear(self, link: Link, message: Loads) -> None:
        """A neighbour says how busy it and those behind it are."""
        overlay = self._surroundings.map()
        rows = [LoadRow(*row) for row in message.rows]
        known = [row for row in rows if row.broker in overlay and row.broker != overlay.centre]
        behind = [row for row in known if overlay.toward(row.broker) == link.name]
        self.known.hear(link.name, link.round_trip_us, behind)

    def answered(self, party: Party, message: Pong) -> None:
        """A `Pong` says when its `Ping` was sent."""
        sent_at_us = message.number
        if isinstance(party, Link) and 0 < sent_at_us <= self._turn.now_us:
            party.round_trip_us = max(1, self._turn.now_us - sent_at_us)

    def measure(self, now_us: int) -> None:
        """Look at what was passed on since the last time."""
        self.uplink.measure(self._turn.counters.forwarded, now_us)

    def sum_up(self) -> None:
        """Take down how busy this broker is at present."""
        self.known.measured(round(self.uplink.rate), round(self._turn.settings.uplink_messages_per_s))

    def tell(self) -> None:
        """Tell neighbours what has changed."""
        overlay = self._surroundings.map()
        for link in self._links.values():
            if not link.channel.connected:
                continue
            wish = self._surroundings.wish_of(link.name)
            rows = self.known.news_for(link.name, overlay, wish) if wish > 1 else []
            costs = [len(row.broker) + LOAD_BYTES for row in rows]
            for some in portions(rows, costs, told_bytes(link)):
                self._turn.tell(link, Loads(list[tuple[str, int, int, int]](some)))
            self._turn.tell_connection(link, Ping(self._turn.now_us))
