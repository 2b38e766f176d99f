"""Where publications go beside their ways while a broker moves (multipath paper, section 6).

A broker of the path has two sets of tables for a while: the old ones, and a temporary one of what is wanted
behind the broker that moves, which is reached the other way soon. What the temporary table wants goes that
way as well; the broker that moves gets it twice, and keeps the first copy.

Once it has moved, what comes from it along the path goes on to the other end whether that is known to want it
or not, until all have told what covering had hidden.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from braid.broker.ways import Way
from braid.matching.matcher import OwnMatching
from braid.routing import Anchored

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    from braid.broker.parties import Link, Party
    from braid.broker.ways import Rows
    from braid.language.filters import Filter
    from braid.matching.matcher import Reached
    from braid.protocol import PublicationBatch

__all__ = ["Detours"]


class Detours:
    """The temporary table of a broker, and where it leads.

    Args:
        gone: neighbours whose entries are still in the tables, and which get nothing any more.
        neighbours: the links by their names.
    """

    def __init__(self, gone: Collection[str], neighbours: Mapping[str, Link]) -> None:
        self._gone = gone
        self._neighbours = neighbours
        self._table = OwnMatching()
        self._entries = 0
        self._toward: Link | None = None
        """Where what is wanted behind the broker that moves goes as well."""
        self._apart = ""
        """The neighbour that the broker that moves is, or was: what comes from there has been there."""
        self._back: Link | None = None
        """Where everything goes that comes from `_toward`."""

    @property
    def active(self) -> bool:
        """Whether anything goes another way beside its own."""
        return self._toward is not None or bool(self._gone)

    @property
    def entries(self) -> int:
        """How many there are in the temporary table."""
        return self._entries

    def enter(self, filters: Iterable[Filter]) -> None:
        """Add entries to the temporary table, which is not used yet."""
        items = []
        for filter in filters:
            self._entries += 1
            items.append((str(self._entries), filter, "there"))
        self._table.add_many(items)

    def use(self, toward: Link, apart: str) -> None:
        """Send what the table wants towards a neighbour as well, but for what comes from `apart`."""
        self._toward, self._apart = toward, apart

    def pass_back(self, back: Link | None) -> None:
        """What comes from there goes on to this neighbour, wanted or not."""
        self._back = back

    def clear(self) -> None:
        """No temporary table is left."""
        self._table, self._entries = OwnMatching(), 0
        self._toward = self._back = None
        self._apart = ""

    # Ways.

    def without_gone(self, reached: Reached) -> Reached:
        """Without what is for neighbours that are none any more: it goes by the temporary table."""
        gone = self._gone
        if not gone:
            return reached
        return [hop for hop in reached if _origin(hop[0]) not in gone]

    def widened(
        self, way: Way, batches: Sequence[PublicationBatch], came_from: str | None, *, without_held: bool
    ) -> Way:
        """A way with what goes beside it.

        Args:
            way: as the tables have it.
            batches: what goes it, whose rows are counted through all of them.
            came_from: the neighbour in whose direction they came from.
            without_held: whether it is kept by itself for neighbours whose interest is not known.
        """
        toward = self._toward
        if toward is None:
            return way
        if came_from == toward.name:
            return self._with(way, self._back, None, without_held)
        if came_from == self._apart:
            return way
        for _, rows in self._table.reached(batches):
            way = self._with(way, toward, rows, without_held)
        return way

    def _with(self, way: Way, link: Link | None, rows: Rows, without_held: bool) -> Way:
        if link is None or (
            without_held and link.channel.holding and self._neighbours.get(link.name) is link
        ):
            return way
        links: list[tuple[Sequence[Party], Rows]] = []
        for parties, chosen in way.links:
            others = [party for party in parties if party is not link]
            if others:
                links.append((tuple(others), chosen))
            if len(others) < len(parties):
                rows = None if rows is None or chosen is None else np.union1d(rows, chosen)
        if rows is not None and len(rows) == way.rows:
            rows = None
        links.append(((link,), rows))
        return Way(links, way.clients, way.logs, way.sets, way.meant, way.rows)


def _origin(destination: object) -> object:
    return destination.origin if isinstance(destination, Anchored) else destination
