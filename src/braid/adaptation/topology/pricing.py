"""What does a tree cost, for a given interest?

Eq. 1 and 2 of the self-organising paper, for whoever knows everything: tests, planners and the faster driver
of experiments. Brokers are numbers here. A *group* is a set of brokers that the same publications concern
(publisher and subscribers); all groups are priced at once.

Seen from a root, the link above a broker belongs to a group's delivery tree exactly when some of the group
hang below it and some do not.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from braid.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from numpy.typing import NDArray

__all__ = ["GroupCosts", "NumberedTree"]


class GroupCosts(NamedTuple):
    """What one publication of each group costs."""

    communication: NDArray[np.float64]
    processing: NDArray[np.float64]

    @property
    def total(self) -> NDArray[np.float64]:
        """Both together."""
        return self.communication + self.processing


@dataclass(frozen=True, eq=False)
class NumberedTree:
    """A spanning tree of the brokers 0, 1, ..., rooted at 0."""

    parents: NDArray[np.int64]
    """The broker above each; the root is its own."""
    order: NDArray[np.int64]
    """All brokers, each behind the one above it."""

    @classmethod
    def of_links(cls, count: int, links: Iterable[tuple[int, int]]) -> NumberedTree:
        """The tree with these links.

        Raises:
            ConfigurationError: they form no tree.
        """
        beside: list[list[int]] = [[] for _ in range(count)]
        links = list(links)
        for left, right in links:
            beside[left].append(right)
            beside[right].append(left)
        parents = np.full(count, -1, np.int64)
        parents[0] = 0
        order = [0]
        for broker in order:
            for other in beside[broker]:
                if parents[other] < 0:
                    parents[other] = broker
                    order.append(other)
        if len(order) != count or len(links) != count - 1:
            raise ConfigurationError(f"{len(links)} links between {count} brokers form no tree")
        return cls(parents, np.array(order, np.int64))

    @property
    def links(self) -> list[tuple[int, int]]:
        """All links, the upper end second."""
        return [(int(each), int(self.parents[each])) for each in self.order[1:]]

    @cached_property
    def depths(self) -> NDArray[np.int64]:
        """Links between each broker and the root."""
        depths = np.zeros(len(self.parents), np.int64)
        for broker in self.order[1:]:
            depths[broker] = depths[self.parents[broker]] + 1
        return depths

    @cached_property
    def below(self) -> NDArray[np.float32]:
        """`below[u, v]` is 1 where u is v or hangs below it."""
        count = len(self.parents)
        above = np.zeros((count, count), np.float32)
        for broker in self.order:
            above[broker] = above[self.parents[broker]]
            above[broker, broker] = 1
        return above

    def crossed(self, members: NDArray[np.float32]) -> tuple[NDArray[np.bool_], NDArray[np.int64]]:
        """Of each group the links it uses, by their lower ends, and the uppermost broker of its tree."""
        counts = members @ self.below
        sizes = members.sum(axis=1, keepdims=True)
        whole = counts >= sizes
        tops = np.where(whole, self.depths + 1, 0).argmax(axis=1)
        return (counts > 0) & ~whole, tops

    def costs(
        self, members: NDArray[np.float32], links: NDArray[np.float64], processing: NDArray[np.float64]
    ) -> GroupCosts:
        """Eq. 1: what a publication of each group costs.

        Args:
            members: (groups, brokers), 1 where a broker belongs to a group.
            links: what a message costs between any two brokers.
            processing: what one costs at each broker.
        """
        used, tops = self.crossed(members)
        above = links[np.arange(len(self.parents)), self.parents]
        return GroupCosts(used @ above, used @ processing + processing[tops])

    def exchanged(self, added: tuple[int, int], removed: tuple[int, int]) -> NumberedTree:
        """The tree with one link instead of another.

        Raises:
            ConfigurationError: that is no tree, or the removed link was not there.
        """
        links = {frozenset(link) for link in self.links}
        if frozenset(removed) not in links:
            raise ConfigurationError(f"there is no link between {removed[0]} and {removed[1]}")
        links -= {frozenset(removed)}
        links.add(frozenset(added))
        return NumberedTree.of_links(len(self.parents), [tuple(sorted(link)) for link in links])  # type: ignore[misc]

    def path(self, source: int, target: int) -> list[int]:
        """The brokers from one to another."""
        up, down = [source], [target]
        depths, parents = self.depths, self.parents
        while up[-1] != down[-1]:
            if depths[up[-1]] >= depths[down[-1]]:
                up.append(int(parents[up[-1]]))
            else:
                down.append(int(parents[down[-1]]))
        return up + down[-2::-1]
