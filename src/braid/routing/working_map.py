"""Which of my links lies on the way to whom?

The *working overlay map* of the multipath paper (section 3): the master map with every broker that has no
direct link contracted into the closest one before it that has. Links are numbered by distance, and sets of
them are integers used as bit vectors, so that the paths of a publication are a few operations (section 5).

It is made anew whenever a link comes or goes, from the master map and the links alone.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from braid.errors import LocalProtocolError

if TYPE_CHECKING:
    from collections.abc import Collection

    from braid.routing.overlay_map import OverlayMap

__all__ = ["WorkingMap"]


class WorkingMap:
    """The links of one broker, and where they lie to each other.

    Args:
        overlay: the master map.
        links: brokers with a direct link: all neighbours, and soft or candidate links to brokers of the map.
        candidates: those of them that are not real connections; what is meant for one goes to the closest
            real link before it.
    """

    __slots__ = (
        "_branches",
        "_numbers",
        "_substitutes",
        "behind",
        "between",
        "beyond",
        "candidates",
        "distances",
        "links",
        "overlay",
        "real",
    )

    def __init__(
        self, overlay: OverlayMap, links: Collection[str], candidates: Collection[str] = frozenset()
    ) -> None:
        missing = [neighbour for neighbour in overlay.neighbours if neighbour not in links]
        if missing:
            raise LocalProtocolError(f"{overlay.centre!r} has no link to its neighbours {missing}")
        self.overlay = overlay
        self.links = tuple(broker for broker in overlay.brokers if broker in links)
        """In ascending distance: a broker's place is its bit in all vectors. (`BrokerArr` in the paper.)"""
        numbers = self._numbers = {broker: number for number, broker in enumerate(self.links)}
        substitutes: dict[str, int] = {}
        for broker in overlay.brokers:  # the nearer ones come first
            own = numbers.get(broker)
            substitutes[broker] = substitutes[overlay.parent(broker)] if own is None else own
        self._substitutes = substitutes
        count = len(self.links)
        before: list[int] = []
        """The link before each on the contracted path; -1: the broker itself."""
        for broker in self.links:
            parent = overlay.parent(broker)
            before.append(-1 if parent == overlay.centre else substitutes[parent])
        self.distances = [overlay.distance(broker) for broker in self.links]
        self.between: list[int] = []
        """The links on the path to each, itself included."""
        self.beyond = [1 << number for number in range(count)]
        """The links downstream of each, itself included."""
        first: list[int] = []
        for number, previous in enumerate(before):
            self.between.append((self.between[previous] if previous >= 0 else 0) | 1 << number)
            first.append(first[previous] if previous >= 0 else number)
        for number in reversed(range(count)):
            if before[number] >= 0:
                self.beyond[before[number]] |= self.beyond[number]
        everything = (1 << count) - 1
        self.behind = [everything & ~self.beyond[first[number]] for number in range(count)]
        """The links on the other side of this broker, as seen from each."""
        self._branches = {
            self.links[number]: self.beyond[number] for number in range(count) if before[number] < 0
        }
        self.candidates = sum(1 << numbers[broker] for broker in set(candidates) & numbers.keys())
        """The bits of those that are no real connections."""
        self.real = list(range(count))
        """For each the link to use instead: itself, or the closest real one before a candidate."""
        for number in range(count):
            if self.candidates >> number & 1:
                if before[number] < 0:
                    raise LocalProtocolError(f"{self.links[number]!r} is a neighbour, not a candidate")
                self.real[number] = self.real[before[number]]

    def number(self, broker: str) -> int | None:
        """The bit of a direct link."""
        return self._numbers.get(broker)

    def substitute(self, broker: str) -> int | None:
        """The bit of the direct link that stands for a broker of the map; None for one that is not on it."""
        return self._substitutes.get(broker)

    def branch(self, neighbour: str) -> int:
        """The links that lie in the direction of a neighbour."""
        return self._branches.get(neighbour, 0)

    def toward(self, broker: str) -> int:
        """The links that lie in the direction of a broker of the map."""
        if broker == self.overlay.centre or broker not in self.overlay:
            return 0
        return self.branch(self.overlay.toward(broker))

    def names(self, bits: int) -> list[str]:
        """The brokers of a set, nearest first."""
        found: list[str] = []
        while bits:
            lowest = bits & -bits
            found.append(self.links[lowest.bit_length() - 1])
            bits ^= lowest
        return found

    def funnelled(self, hops: int) -> int:
        """Next hops with candidates replaced by real links, and none behind another (errata, section 6)."""
        if not hops & self.candidates:
            return hops
        chosen = 0
        rest = hops
        while rest:
            lowest = rest & -rest
            chosen |= 1 << self.real[lowest.bit_length() - 1]
            rest ^= lowest
        reduced = 0
        while chosen:
            lowest = chosen & -chosen
            reduced |= lowest
            chosen &= ~self.beyond[lowest.bit_length() - 1]
        return reduced
