"""Which SHIFTs bring a tree nearer to another, all of them looked at together?

The search of the planner works on numbered brokers. What a tree lacks is the sum, over all links of the goal,
of how far their ends are apart, beyond the one hop that they will be (`Slides.lack`); it is 0 at the goal
alone. SHIFT(i, j, k) takes the part of the tree behind i one hop nearer to all that is behind k, and one hop
further from the rest. How much the lack changes by each SHIFT of a tree therefore follows from how many
links of the goal cross between its parts, and those are one product of matrices.
"""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from braid.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from braid.reconfiguration.trees import OverlayTree

__all__ = ["Beside", "NumberedShift", "Slides", "shifted"]

Beside: TypeAlias = "tuple[tuple[int, ...], ...]"
"""The neighbours of each broker, by number."""
NumberedShift: TypeAlias = "tuple[int, int, int]"
"""The broker that moves, its old and its new neighbour."""


class Slides:
    """The trees of some brokers, as seen on the way to a goal, within limits that hold for every one of them.

    Args:
        goal: the tree to reach.
        degrees_max: how many links each broker may have; none if there is no such limit.
        paths_max: how far pairs of brokers may be apart.
        given_up: asked before each tree is looked at.
    """

    def __init__(
        self,
        goal: OverlayTree,
        degrees_max: Mapping[str, int] | None = None,
        paths_max: Mapping[tuple[str, str], int] | None = None,
        given_up: Callable[[], bool] | None = None,
    ) -> None:
        self._given_up = given_up
        self.names = goal.brokers
        self._numbers = {name: number for number, name in enumerate(self.names)}
        count = len(self.names)
        self._wanted = np.zeros((count, count), np.float32)
        for left, right in goal.links:
            one, other = self._numbers[left], self._numbers[right]
            self._wanted[one, other] = self._wanted[other, one] = 1
        self._links = sorted((self._numbers[left], self._numbers[right]) for left, right in goal.links)
        self._degrees_max = [degrees_max[name] for name in self.names] if degrees_max is not None else None
        self._paths_max = [
            (self._numbers[left], self._numbers[right], hops)
            for (left, right), hops in (paths_max or {}).items()
        ]
        # Trees are told apart by the sum of one number per link; the same numbers in every run.
        chance = Random("the keys of links")
        self._keys = [[0] * count for _ in range(count)]
        for one in range(count):
            for other in range(one):
                self._keys[one][other] = self._keys[other][one] = chance.getrandbits(62)

    def numbered(self, tree: OverlayTree) -> Beside:
        """A tree of the same brokers, by number."""
        return tuple(tuple(self._numbers[other] for other in tree.neighbours(name)) for name in self.names)

    def key(self, beside: Beside) -> int:
        """What tells a tree from others."""
        found = 0
        for one, others in enumerate(beside):
            for other in others:
                if one < other:
                    found ^= self._keys[one][other]
        return found

    def key_after(self, key: int, shift: NumberedShift) -> int:
        """The key of the tree after a SHIFT."""
        moving, old, new = shift
        keys = self._keys[moving]
        return key ^ keys[old] ^ keys[new]

    def lack(self, beside: Beside) -> int:
        """How far the ends of the goal's links are apart, beyond one hop each."""
        ways: dict[int, list[int]] = {}
        total = 0
        for left, right in self._links:
            if left not in ways:
                ways[left] = _distances(beside, left)
            total += ways[left][right] - 1
        return total

    def shifts(self, beside: Beside) -> Iterator[tuple[int, NumberedShift]]:
        """Every SHIFT that the limits on links allow, with how much the lack changes by it.

        Raises:
            ConfigurationError: the search was given up.
        """
        if self._given_up is not None and self._given_up():
            raise ConfigurationError("the search for a plan was given up before it had found one")
        parents, order = _rooted(beside)
        under = np.eye(len(beside), dtype=np.float32)
        for broker in reversed(order[1:]):
            under[parents[broker]] += under[broker]
        # How many links of the goal, counted at both ends, cross between what is under two brokers.
        between = ((under @ self._wanted) @ under.T).tolist()
        anywhere = between[order[0]]
        leaving = [anywhere[broker] - between[broker][broker] for broker in range(len(beside))]
        limits = self._degrees_max
        for old, others in enumerate(beside):
            parent = parents[old]
            for new in others:
                if limits is not None and len(beside[new]) >= limits[new]:
                    continue
                for moving in others:
                    if moving == new:
                        continue
                    if moving == parent:
                        apart, near = leaving[old], anywhere[new] - between[new][old]
                    elif new == parent:
                        apart, near = leaving[moving], anywhere[moving] - between[moving][old]
                    else:
                        apart, near = leaving[moving], between[moving][new]
                    yield int(apart - 2 * near), (moving, old, new)

    def allows(self, beside: Beside) -> bool:
        """Whether a tree keeps to the limits on paths."""
        return all(_distances(beside, left)[right] <= hops for left, right, hops in self._paths_max)


def shifted(beside: Beside, shift: NumberedShift) -> Beside:
    """The tree after a SHIFT."""
    moving, old, new = shift
    changed = list(beside)
    changed[moving] = (*(other for other in beside[moving] if other != old), new)
    changed[old] = tuple(other for other in beside[old] if other != moving)
    changed[new] = (*beside[new], moving)
    return tuple(changed)


def _rooted(beside: Beside) -> tuple[list[int], list[int]]:
    """Each broker's neighbour toward the first one (-1: none), and an order in which those come before it."""
    parents = [-1] * len(beside)
    order = [0]
    for broker in order:
        for other in beside[broker]:
            if other != parents[broker]:
                parents[other] = broker
                order.append(other)
    return parents, order


def _distances(beside: Beside, source: int) -> list[int]:
    hops = [-1] * len(beside)
    hops[source] = 0
    line = [source]
    for broker in line:
        for other in beside[broker]:
            if hops[other] < 0:
                hops[other] = hops[broker] + 1
                line.append(other)
    return hops
