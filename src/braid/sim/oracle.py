"""Whom does a publication concern, over the whole network?

The oracle knows every subscription of every station, so it can say at once what a network of brokers has to
find out. Publications are looked up many at a time: a whole chunk as long as no subscription changes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from braid.language import Filter
from braid.matching import FilterIndex

if TYPE_CHECKING:
    from braid.protocol import PublicationBatch
    from braid.sim.checkers import Checkers, Watched
    from braid.trace.writer import TraceWriter

__all__ = ["Oracle"]

# Publications that are looked up together.
CHUNK = 256


class Oracle:
    """Knows which subscriptions stand, and whom each publication concerns."""

    def __init__(self, trace: TraceWriter | None, checkers: Checkers | None, *, lookups: bool = True) -> None:
        """
        Args:
            trace: where publications are written down.
            checkers: told whom publications concern.
            lookups: find out whom publications concern; without it they are only written down.
        """
        self._trace = trace
        self._checkers = checkers
        self._lookups = lookups
        self._index: FilterIndex[tuple[str, str]] = FilterIndex()
        self._waiting: list[tuple[int, Watched, PublicationBatch]] = []
        self._filters: dict[str, Filter] = {}

    # Subscriptions.

    def standing(self, station: Watched, key: str, text: str) -> None:
        """A subscription was answered: from now on nothing may be missed."""
        if not self._lookups:
            return
        self.look_up()
        self._remove(station, key)
        filter = self._filters.get(text)
        if filter is None:
            filter = self._filters[text] = Filter(text)
        self._index.add((station.name, key), filter, group=station.broker)
        if self._checkers is not None:
            self._checkers.standing(station, key, filter)

    def ended(self, station: Watched, key: str, text: str) -> None:
        """A subscription was taken back."""
        self.look_up()
        self._remove(station, key)
        if self._checkers is not None:
            self._checkers.ended(station, key, text)

    def disconnected(self, station: Watched) -> None:
        """All subscriptions of a station have ended with its session."""
        self.look_up()
        for key in station.subscriptions:
            self._remove(station, key)
        if self._checkers is not None:
            self._checkers.disconnected(station)

    def _remove(self, station: Watched, key: str) -> None:
        place = (station.name, key)
        if place in self._index:
            self._index.remove(place)

    # Publications.

    def published(self, station: Watched, batch: PublicationBatch) -> None:
        """A station publishes one publication."""
        if not self._lookups:
            if self._trace is not None:
                self._trace.publication(station.loop.now_us, station.broker, batch)
            return
        self._waiting.append((station.loop.now_us, station, batch))
        if len(self._waiting) >= CHUNK:
            self.look_up()

    def look_up(self) -> None:
        """Find out whom the last publications concern."""
        if not self._waiting:
            return
        waiting, self._waiting = self._waiting, []
        attributes = [batch.attributes()[0] for _, _, batch in waiting]
        checkers = self._checkers
        if checkers is None:
            matrix = self._index.group_matrix(attributes).matrix
            expected = matrix.sum(axis=1).tolist() if matrix.shape[1] else [0] * len(waiting)
        else:
            found = self._index.match_batch(attributes)
            expected = checkers.concern(waiting, found)
        if self._trace is not None:
            for (at_us, station, batch), brokers in zip(waiting, expected, strict=True):
                self._trace.publication(at_us, station.broker, batch, brokers)
