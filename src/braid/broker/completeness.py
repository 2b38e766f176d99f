"""Whether this broker knows of everybody behind its links, what neighbours are told of that, and readiness.

A neighbour is told that our tables are complete once all other neighbours have told us so; in a tree that
always ends (`links.py`). Publications of clients are accepted, the broker is *ready*, when all neighbours
have spoken since its start, or have been waited for long enough.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from braid.broker.events import Ready
from braid.protocol.messages import TablesComplete, TablesIncomplete

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from braid.broker.events import Event, Events
    from braid.broker.parties import Link
    from braid.broker.reachability import Reachability
    from braid.broker.turn import Turn
    from braid.routing import RoutingTables

__all__ = ["Completeness"]


class Completeness:
    """Knows how much is known.

    Args:
        turn: where messages to neighbours go.
        links: the neighbours by their names.
        tables: know whether neighbours have been told everything.
        reachability: knows who has not been met.
        events: tells others when this broker is ready.
        awaiting: whether logs may have to be fetched from their copies before anything may come for them.
    """

    def __init__(
        self,
        turn: Turn,
        links: Mapping[str, Link],
        tables: RoutingTables,
        reachability: Reachability,
        events: Events,
        awaiting: Callable[[], bool],
    ) -> None:
        self.ready = False
        """Clients' publications are accepted: the neighbours' tables are here, or waited for no more."""
        self.started_at_us: int | None = None
        self._turn = turn
        self._links = links
        self._tables = tables
        self._reachability = reachability
        self._events = events
        self._awaiting = awaiting

    def begin(self, now_us: int) -> bool:
        """Time has begun; returns whether it has just done so."""
        if self.started_at_us is not None:
            return False
        self.started_at_us = now_us
        return True

    def beyond(self, link: Link) -> bool:
        """Whether we know of everybody behind all links but one."""
        unknown = any(each.unknown for each in self._links.values() if each is not link)
        return self.ready and not unknown and not self._reachability.unmet()

    def tell(self, _: Event | None = None) -> None:
        """Tell every neighbour whether we know of everybody behind all others."""
        unknown = sum([link.unknown for link in self._links.values()])
        # Without limit, as for those whose names are known: a neighbour that hears that nobody is behind us
        # would forget those behind one that is away.
        unmet = bool(self._reachability.unmet())
        # Nobody forgets what a log wants that is not back yet; later ones cost those logs a gap and no more.
        awaiting = not self.ready and self._awaiting()
        for link in self._links.values():
            complete = not (unmet or awaiting) and unknown == link.unknown
            if complete == link.told_complete:
                continue
            if complete and (link.handing_over or self._tables.telling(link.name)):
                continue  # not everything has been said yet
            if link.agreed and link.channel.connected:
                link.told_complete = complete
                self._turn.tell(link, TablesComplete() if complete else TablesIncomplete())
        self._review_readiness()

    def _review_readiness(self) -> None:
        """Become ready once all neighbours have spoken, or have been waited for long enough."""
        if self.ready or self.started_at_us is None:
            return
        if self._awaiting():
            return
        over = self._turn.now_us >= self.started_at_us + self._turn.settings.recovery_us_max
        if over or (not self._reachability.unmet() and all(link.met for link in self._links.values())):
            self.ready = True
            self._turn.note("info", "ready", links=len(self._links), waited_for_all=not over)
            self._events.tell(Ready())
