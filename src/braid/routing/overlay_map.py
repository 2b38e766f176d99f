"""What does the primary network around this broker look like?

The *master overlay map* of the multipath paper (section 3): the brokers within distance delta of its centre
and the primary links between them. It is a value: a change makes another map, so that a map for later can be
made beside the present one and swapped in.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from braid.errors import LocalProtocolError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

__all__ = ["OverlayMap"]


class OverlayMap:
    """A tree around one broker.

    >>> around_a = OverlayMap("A", {"B": "A", "C": "B", "D": "B", "E": "A"})
    >>> around_a.distance("C"), around_a.path("C"), around_a.toward("D")
    (2, ('B', 'C'), 'B')
    >>> around_a.anchor_for_neighbour("D", delta=2)
    'B'

    Args:
        centre: the broker whose map it is.
        parents: for every other broker the next one on the way to the centre. Brokers without a way to the
            centre are left out.
    """

    __slots__ = ("_children", "_distances", "_parents", "brokers", "centre")

    def __init__(self, centre: str, parents: Mapping[str, str]) -> None:
        self.centre = centre
        children: dict[str, list[str]] = {}
        for broker in sorted(parents):
            if broker != centre:
                children.setdefault(parents[broker], []).append(broker)
        distances = {centre: 0}
        kept: dict[str, str] = {}
        line = deque([centre])
        while line:
            broker = line.popleft()
            for child in children.get(broker, ()):
                distances[child] = distances[broker] + 1
                kept[child] = broker
                line.append(child)
        self._parents = kept
        self._distances = distances
        self._children = children
        self.brokers = tuple(sorted(kept, key=lambda broker: (distances[broker], broker)))
        """All but the centre, the nearest first."""

    @classmethod
    def of_links(cls, centre: str, links: Iterable[tuple[str, str]], delta: int | None = None) -> OverlayMap:
        """The map of a broker in a network that is known as a whole; `delta` None: all of it."""
        beside: dict[str, set[str]] = {}
        for left, right in links:
            beside.setdefault(left, set()).add(right)
            beside.setdefault(right, set()).add(left)
        parents: dict[str, str] = {}
        distances = {centre: 0}
        line = deque([centre])
        while line:
            broker = line.popleft()
            if delta is not None and distances[broker] >= delta:
                continue
            for other in sorted(beside.get(broker, ())):
                if other not in distances:
                    distances[other] = distances[broker] + 1
                    parents[other] = broker
                    line.append(other)
        return cls(centre, parents)

    def __contains__(self, broker: str) -> bool:
        return broker in self._distances

    def __len__(self) -> int:
        return len(self._parents)

    def __iter__(self) -> Iterator[str]:
        return iter(self.brokers)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, OverlayMap):
            return NotImplemented
        return self.centre == other.centre and self._parents == other._parents

    def __hash__(self) -> int:
        return hash((self.centre, self.brokers))

    def __repr__(self) -> str:
        return f"<map of {self.centre}: {len(self)} brokers>"

    @property
    def neighbours(self) -> tuple[str, ...]:
        """The brokers at distance 1."""
        return tuple(self._children.get(self.centre, ()))

    def distance(self, broker: str) -> int:
        """Links on the primary path to a broker of the map."""
        return self._distances[self._require(broker)]

    def parent(self, broker: str) -> str:
        """The broker before it on the path from the centre."""
        return self._parents[self._require(broker)]

    def path(self, broker: str) -> tuple[str, ...]:
        """The primary path from the centre, without the centre; the broker comes last."""
        self._require(broker)
        steps: list[str] = []
        while broker != self.centre:
            steps.append(broker)
            broker = self._parents[broker]
        return tuple(reversed(steps))

    def toward(self, broker: str) -> str:
        """The neighbour through which the primary path to a broker leads."""
        self._require(broker)
        while True:
            before = self._parents[broker]
            if before == self.centre:
                return broker
            broker = before

    def beside(self, broker: str) -> tuple[str, ...]:
        """The brokers of the map that have a primary link to this one."""
        before = () if broker == self.centre else (self._parents[self._require(broker)],)
        return before + tuple(self._children.get(broker, ()))

    def anchor_for_neighbour(self, anchor: str, delta: int) -> str:
        """The anchor under which a neighbour, on the other side, should know what is anchored here.

        It stays the same while it lies within delta of the neighbour; further away it moves one hop closer
        to the neighbour (section 4; errata: not closer to the subscriber).
        """
        if anchor not in self._distances or self._distances[anchor] < delta:
            return anchor
        while self._distances[anchor] >= delta and anchor != self.centre:
            anchor = self._parents[anchor]
        return anchor

    def within(self, delta: int) -> OverlayMap:
        """The part of it within a distance."""
        return OverlayMap(
            self.centre,
            {broker: before for broker, before in self._parents.items() if self._distances[broker] <= delta},
        )

    def parents(self) -> dict[str, str]:
        """For every broker but the centre the next one towards it."""
        return dict(self._parents)

    def _require(self, broker: str) -> str:
        if broker not in self._distances:
            raise LocalProtocolError(f"{broker!r} is not on the map of {self.centre!r}")
        return broker
