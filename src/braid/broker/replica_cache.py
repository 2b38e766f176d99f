"""What subscriptions may be for that a replica has not heard of yet, when it resumes incrementally.

Publications that were routed by tables that may lack subscriptions are kept here, with who has had them.
When a neighbour repeats subscriptions, those alone are held against what is kept, some of it a turn: whatever
older ones meet was sent when it came, or when they did.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from typing import TYPE_CHECKING

import numpy as np

from braid.matching.matcher import OwnMatching

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from braid.broker.parties import Link
    from braid.broker.turn import Turn
    from braid.language import Filter
    from braid.matching.columns import IntArray
    from braid.protocol import PublicationBatch
    from braid.routing import RoutingTables

__all__ = ["ReplicaCache", "wanted_by"]

# Rows that one turn holds against new subscriptions, but for those of the last batch: a few milliseconds.
ROWS_PER_TURN = 1_000


class _Cached:
    """Publications that were routed by tables that may lack subscriptions."""

    __slots__ = ("batch", "sent", "source")

    def __init__(self, batch: PublicationBatch, source: str) -> None:
        self.batch = batch
        self.source = source
        """The neighbour that they came from."""
        self.sent: dict[str, IntArray] = {}
        """By neighbour: the rows that it has had."""


class _Comparison:
    """Subscriptions of one neighbour that are held against what was kept before they came."""

    __slots__ = ("end", "link", "next", "subscriptions")

    def __init__(self, link: Link, subscriptions: OwnMatching, first: int, end: int) -> None:
        self.link = link
        self.subscriptions = subscriptions
        self.next = first
        """The number of the batch that is next."""
        self.end = end


class ReplicaCache:
    """Keeps publications for subscriptions that have not come.

    Args:
        turn: where publications go.
        neighbours: the links by their names.
        tables: know who wants what.
    """

    def __init__(self, turn: Turn, neighbours: Mapping[str, Link], tables: RoutingTables) -> None:
        self._turn = turn
        self._neighbours = neighbours
        self._tables = tables
        self._cached: OrderedDict[int, _Cached] = OrderedDict()
        """By rising numbers, the oldest first."""
        self._number_next = 0
        self._bytes = 0
        self._comparisons: deque[_Comparison] = deque()

    def __len__(self) -> int:
        return len(self._cached)

    @property
    def unfinished(self) -> bool:
        """Whether there is something left for `step`."""
        return bool(self._comparisons)

    def keep(self, batch: PublicationBatch, source: str) -> None:
        """Keep publications for subscriptions that have not come; who has had them by now is noted."""
        cached = _Cached(batch, source)
        for link in self._neighbours.values():
            if link.name != source:
                cached.sent[link.name] = self._tables.wanted_behind(link.name, batch)
        self._cached[self._number_next] = cached
        self._number_next += 1
        self._bytes += batch.size
        while self._bytes > self._turn.settings.link_queue_bytes_max:
            _, oldest = self._cached.popitem(last=False)
            self._bytes -= oldest.batch.size
            self._turn.counters.dropped += oldest.batch.count

    def repeated(self, link: Link, filters: Sequence[Filter]) -> None:
        """A neighbour has subscribed: what it wants of what is kept is sent in the next turns."""
        if self._cached and filters:
            subscriptions = OwnMatching()
            subscriptions.add_many([(str(place), filter, "") for place, filter in enumerate(filters)])
            first = next(iter(self._cached))
            self._comparisons.append(_Comparison(link, subscriptions, first, self._number_next))

    def step(self) -> None:
        """Go on with the first comparison, some rows of it."""
        if not self._comparisons:
            return
        current = self._comparisons[0]
        some: list[_Cached] = []
        rows = 0
        first = next(iter(self._cached), self._number_next)
        current.next = max(current.next, first)
        while current.next < current.end and rows < ROWS_PER_TURN:
            cached = self._cached[current.next]
            current.next += 1
            if cached.source != current.link.name:
                some.append(cached)
                rows += cached.batch.count
        if some:
            wanted = wanted_by(current.subscriptions)([cached.batch for cached in some])
            for cached, rows_wanted in zip(some, wanted, strict=True):
                self._send(cached, current.link, rows_wanted)
        if current.next >= current.end:
            self._comparisons.popleft()

    def _send(self, cached: _Cached, link: Link, wanted: IntArray) -> None:
        """Send a neighbour the rows that it wants and has not had."""
        sent = cached.sent.get(link.name)
        rows = wanted if sent is None else np.setdiff1d(wanted, sent)
        if len(rows):
            cached.sent[link.name] = wanted if sent is None else np.union1d(wanted, sent)
            batch = cached.batch if len(rows) == cached.batch.count else cached.batch.select(rows)
            self._turn.pass_on((link,), [(batch, None)], None)

    def forget_link(self, link: Link) -> None:
        """A neighbour is none any more."""
        self._comparisons = deque(each for each in self._comparisons if each.link is not link)

    def clear(self) -> None:
        """All subscriptions have come."""
        self._cached.clear()
        self._comparisons.clear()
        self._bytes = 0

    def violations(self) -> list[str]:
        """What is wrong with it; nothing if all is well."""
        found = sum(cached.batch.size for cached in self._cached.values())
        if found != self._bytes:
            return [f"{found} bytes are kept for late subscriptions, {self._bytes} are counted"]
        return []


def wanted_by(
    matching: OwnMatching,
) -> Callable[[Sequence[PublicationBatch]], Sequence[IntArray]]:
    """Which rows of batches meet any of some filters."""

    def wanted(batches: Sequence[PublicationBatch]) -> Sequence[IntArray]:
        found = np.zeros(sum(batch.count for batch in batches), bool)
        for _, rows in matching.reached(batches) if len(matching) else ():
            found[slice(None) if rows is None else rows] = True
        ends = np.cumsum([batch.count for batch in batches])
        return [np.flatnonzero(each) for each in np.split(found, ends[:-1])]

    return wanted
