"""How busy are the brokers around, and how slow the links between them?

Every broker tells its neighbours, with each review, its own output rate, its capacity and the round trip
times of its primary links, together with what it has heard from behind, as far as they want to see. Only
what has changed noticeably is told. (Multipath paper, section 6: output, because input to local subscribers
cannot be avoided.)
"""

from __future__ import annotations

from statistics import median
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable

    from braid.routing.overlay_map import OverlayMap

__all__ = ["LoadRow", "NeighbourhoodLoad"]

# What changed by less than this share is not worth a message.
NOTICEABLE = 0.1


class LoadRow(NamedTuple):
    """What is known of one broker."""

    broker: str
    rate: int
    """Publications it sends to other brokers in a second."""
    capacity: int
    """How many it could send at most; 0 if nobody knows."""
    round_trip_us: int
    """Of the primary link before it, on the way from whoever is told; 0 if nobody knows."""


class NeighbourhoodLoad:
    """The loads around one broker."""

    def __init__(self, centre: str) -> None:
        self.centre = centre
        self._rows: dict[str, LoadRow] = {}
        self._told: dict[str, dict[str, LoadRow]] = {}

    def measured(self, rate: int, capacity: int) -> None:
        """What this broker sends itself."""
        self._rows[self.centre] = LoadRow(self.centre, rate, capacity, 0)

    def hear(self, neighbour: str, round_trip_us: int, rows: Iterable[LoadRow]) -> None:
        """A neighbour tells of itself and those behind it."""
        for row in rows:
            if row.broker == neighbour:
                row = row._replace(round_trip_us=round_trip_us)
            if row.broker != self.centre:
                # Whatever it says, nothing is less than nothing.
                self._rows[row.broker] = LoadRow(row.broker, *(max(0, number) for number in row[1:]))

    def forget(self, neighbour: str) -> None:
        """The neighbour begins anew, so it has to be told everything again."""
        self._told.pop(neighbour, None)

    def keep_only(self, overlay: OverlayMap) -> None:
        """Forget brokers that are out of sight."""
        self._rows = {
            broker: row for broker, row in self._rows.items() if broker == self.centre or broker in overlay
        }

    def news_for(self, neighbour: str, overlay: OverlayMap, delta: int) -> list[LoadRow]:
        """What a neighbour that wants to see so far has to hear now; it counts as told."""
        told = self._told.setdefault(neighbour, {})
        news: list[LoadRow] = []
        for broker, row in self._rows.items():
            # Distances grow by one on the way to the neighbour.
            if broker != self.centre and (
                overlay.distance(broker) > delta - 1 or overlay.toward(broker) == neighbour
            ):
                continue
            before = told.get(broker)
            if before is None or _differs(before, row):
                told[broker] = row
                news.append(row)
        return news

    def normalised(self, broker: str) -> float:
        """A broker's load: 1 is all that it can send or, where that is not known, the busiest around."""
        row = self._rows.get(broker)
        if row is None:
            return 0.0
        if row.capacity:
            return row.rate / row.capacity
        busiest = max(other.rate for other in self._rows.values())
        return row.rate / busiest if busiest else 0.0

    def slowness(self, overlay: OverlayMap, broker: str) -> float:
        """How many times longer than usual a round trip on the primary path takes; 1 at least."""
        times = [row.round_trip_us for row in self._rows.values() if row.round_trip_us]
        if len(times) < 2:
            return 1.0
        usual = median(times)
        path = [self._rows[step].round_trip_us for step in overlay.path(broker) if step in self._rows]
        measured = [time for time in path if time]
        return max(1.0, sum(measured) / (usual * len(measured))) if measured else 1.0


def _differs(before: LoadRow, now: LoadRow) -> bool:
    if before.capacity != now.capacity:
        return True
    return any(
        abs(later - earlier) > NOTICEABLE * max(earlier, later)
        for earlier, later in ((before.rate, now.rate), (before.round_trip_us, now.round_trip_us))
    )
