"""How do overlay maps turn matching anchors into next hops?

`MultipathForwarding` plugs the path computations of the multipath paper (section 5) into a broker. Matching
names destinations: local ones, links, and *anchors*, brokers further away on the path to a subscriber. The
working map says which link stands for an anchor, and a strategy chooses among those links.

The working subscription table of the paper is not a table here. Matching answers with anchors of the master
table; which link stands for them is looked up afterwards, in a dictionary of a few dozen entries that is made
anew when a link changes. So a change of links costs nothing that grows with the number of subscriptions.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from braid.matching.columns import IntArray  # noqa: TC001 (a compiled NamedTuple looks at its annotations)
from braid.routing.path_matrices import BatchPaths

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Hashable

    from braid.matching.matcher import Reached
    from braid.routing.paths import Paths
    from braid.routing.working_map import WorkingMap

__all__ = ["Anchored", "MultipathForwarding"]

# Computed paths that are remembered; each takes some hundred bytes.
REMEMBERED_MAX = 65_536

# Fewer rows are computed one by one.
MANY_ROWS = 16


class Anchored(NamedTuple):
    """Subscriptions that came from the neighbour `origin` and are anchored further away."""

    origin: str
    anchor: str
    exact: bool = True
    """Whether the subscribers are clients of the anchor itself, not of brokers beyond it."""


class _Hops(NamedTuple):
    real: tuple[int, ...]
    """The real links that get a copy, by their bits."""
    meant: tuple[int, ...]
    """The links and candidates that the publication is meant for; the same object where that is the same."""


class _Taken(NamedTuple):
    """What becomes of the rows of a batch."""

    copies: list[int]
    """How many rows each link gets."""
    meant: list[int]
    """How many are meant for it, or for the candidate."""
    rows: IntArray
    """The rows of all links, one link after the other."""


class MultipathForwarding:
    """Chooses links by a working map; along the tree while there is none.

    Args:
        links: the neighbours, as a view that stays current.
        sent: told how many publications were meant for which link or candidate.
    """

    def __init__(self, links: Collection[str], sent: Callable[[str, int], None]) -> None:
        self._links = links
        self._sent = sent
        self._working: WorkingMap | None = None
        self._paths: Paths | None = None
        self._bits: dict[Hashable, int] = {}
        self._order: list[int] = []
        """The bits of all links, in the order of their names."""
        self._remembered: dict[int, _Hops] = {}
        self._batches: BatchPaths | None = None
        self.version = 0
        """How often it was told to compute paths otherwise."""

    def use(self, working: WorkingMap | None, paths: Paths | None) -> None:
        """From now on compute paths so; without a map or paths publications follow the tree."""
        self._working = working if paths is not None else None
        self._paths = paths
        self.version += 1
        self._bits = {}
        self._order = sorted(range(len(working.links)), key=working.links.__getitem__) if working else []
        self._remembered = {}
        self._batches = None

    def next_hops(self, reached: Reached, came_from: Hashable | None, ordered: bool, rows: int) -> Reached:
        """Links by name, then local destinations as they are listed, each with its rows.

        Args:
            reached: which destinations want which rows.
            came_from: the neighbour in whose direction the batch came from; it does not go back there.
            ordered: whether publications must not overtake each other.
            rows: how many there are.
        """
        working, paths = self._working, self._paths
        if ordered or working is None or paths is None:
            return self._along_the_tree(reached, came_from)
        local: list[tuple[Hashable, IntArray | None]] = []
        base = 0
        some: list[tuple[int, IntArray]] = []
        bits = self._bits
        for hop in reached:
            destination = hop[0]
            bit = bits.get(destination)
            if bit is None:
                bit = bits[destination] = self._bit(working, destination)
            if not bit:
                local.append(hop)
            elif hop[1] is None:
                base |= bit
            else:
                some.append((bit, hop[1]))
        upstream = working.branch(came_from) if isinstance(came_from, str) else 0
        if not some:
            anchors = base & ~upstream
            if not anchors:
                return local
            hops = self._hops(working, paths, anchors)
            for number in hops.meant:
                self._sent(working.links[number], rows)
            chosen = sorted(working.links[number] for number in hops.real)
            return [*((link, None) for link in chosen), *local]
        return [*self._by_rows(working, paths, base, some, upstream, rows), *local]

    def _by_rows(
        self,
        working: WorkingMap,
        paths: Paths,
        base: int,
        some: list[tuple[int, IntArray]],
        upstream: int,
        rows: int,
    ) -> Reached:
        """Every row takes its own way."""
        if rows >= MANY_ROWS and BatchPaths.knows(working, paths):
            taken = self._all_at_once(working, paths, base, some, upstream, rows)
        else:
            taken = self._one_by_one(working, paths, _anchors_of_rows(base, some, upstream, rows))
        found: list[tuple[Hashable, IntArray | None]] = []
        end = 0
        for number in self._order:
            if taken.meant[number]:
                self._sent(working.links[number], taken.meant[number])
            copies = taken.copies[number]
            if copies:
                begin, end = end, end + copies
                found.append((working.links[number], None if copies == rows else taken.rows[begin:end]))
        return found

    def _all_at_once(
        self,
        working: WorkingMap,
        paths: Paths,
        base: int,
        some: list[tuple[int, IntArray]],
        upstream: int,
        rows: int,
    ) -> _Taken:
        if self._batches is None:
            self._batches = BatchPaths(working, paths)
        anchors = np.zeros((rows, len(working.links)), np.float32)
        numbers = np.repeat([bit.bit_length() - 1 for bit, _ in some], [len(wanted) for _, wanted in some])
        anchors[np.concatenate([wanted for _, wanted in some]), numbers] = 1
        if base:
            anchors[:, _numbers(base)] = 1
        if upstream:
            anchors[:, _numbers(upstream)] = 0
        real, meant = self._batches.hops(anchors)
        return _Taken(
            real.sum(0).tolist(),
            meant.sum(0).tolist(),
            np.nonzero(real.T[self._order])[1],
        )

    def _one_by_one(self, working: WorkingMap, paths: Paths, anchors: list[int]) -> _Taken:
        taken: list[list[int]] = [[] for _ in working.links]
        meant = [0] * len(working.links)
        for row, wanted in enumerate(anchors):
            if wanted:
                hops = self._remembered.get(wanted) or self._hops(working, paths, wanted)
                for number in hops.real:
                    taken[number].append(row)
                for number in hops.meant:
                    meant[number] += 1
        # One array for all links: making one for each would take longer than all of the above.
        together = np.array([row for number in self._order for row in taken[number]], np.int64)
        return _Taken([len(chosen) for chosen in taken], meant, together)

    def _hops(self, working: WorkingMap, paths: Paths, anchors: int) -> _Hops:
        hops = self._remembered.get(anchors)
        if hops is None:
            bits = paths(working, anchors)
            meant = _numbers(bits)
            funnelled = working.funnelled(bits)
            hops = _Hops(meant if funnelled == bits else _numbers(funnelled), meant)
            if len(self._remembered) >= REMEMBERED_MAX:
                self._remembered.clear()
            self._remembered[anchors] = hops
        return hops

    def _bit(self, working: WorkingMap, destination: Hashable) -> int:
        """The bit of the link that stands for a destination; 0 for a local one."""
        if isinstance(destination, Anchored):
            number = working.substitute(destination.anchor)
            # An anchor that is not on the map, or seems to lie elsewhere, is reached as on the tree.
            if number is None or working.overlay.toward(destination.anchor) != destination.origin:
                number = working.number(destination.origin)
        elif destination in self._links:
            number = working.number(str(destination))
        else:
            return 0
        return 0 if number is None else 1 << number

    def _along_the_tree(self, reached: Reached, came_from: Hashable | None) -> Reached:
        """S0: every neighbour behind which something is wanted."""
        links: dict[str, list[IntArray] | None] = {}
        local: list[tuple[Hashable, IntArray | None]] = []
        for hop in reached:
            destination, wanted = hop
            if isinstance(destination, Anchored):
                link = destination.origin
            elif destination in self._links:
                link = str(destination)
            else:
                local.append(hop)
                continue
            if link == came_from:
                continue
            parts = links.setdefault(link, [])
            if wanted is None:
                links[link] = None
            elif parts is not None:
                parts.append(wanted)
        found: list[tuple[Hashable, IntArray | None]] = []
        for link in sorted(links):
            parts = links[link]
            if not parts:
                found.append((link, None))
            else:
                found.append((link, parts[0] if len(parts) == 1 else np.unique(np.concatenate(parts))))
        return found + local


def _anchors_of_rows(base: int, some: list[tuple[int, IntArray]], upstream: int, rows: int) -> list[int]:
    """For each row the links that stand for its anchors and do not lie upstream, as bits."""
    found = [base] * rows
    for bit, wanted in some:
        for row in wanted.tolist():
            found[row] |= bit
    return [anchors & ~upstream for anchors in found]


def _numbers(bits: int) -> tuple[int, ...]:
    """The numbers of the bits that are set."""
    found = []
    while bits:
        lowest = bits & -bits
        found.append(lowest.bit_length() - 1)
        bits ^= lowest
    return tuple(found)
