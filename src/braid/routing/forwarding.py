"""Which destinations get which rows of a batch?

The strategies of the multipath paper (section 5) differ only here. S0 is the tree: a publication goes to
every neighbour behind which it is wanted, so the matching destinations are the next hops. The others read
overlay maps as well, and keep to the tree for publications that must stay in order.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, TypeAlias

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Collection, Hashable

    from braid.matching.columns import IntArray
    from braid.matching.index import GroupMatrix

__all__ = ["Forwarding", "Reached", "TreeForwarding", "reached_by"]

# Destinations with the rows they want; None: all rows.
Reached: TypeAlias = "list[tuple[Hashable, IntArray | None]]"


def reached_by(matrix: GroupMatrix) -> Reached:
    """The destinations that want anything, in the order of the groups."""
    wanted = matrix.matrix
    if len(wanted) == 1:  # the usual case when traffic is light, where every microsecond counts
        return [(matrix.groups[column], None) for column in np.flatnonzero(wanted[0]).tolist()]
    some = np.flatnonzero(wanted.any(axis=0)).tolist()
    whole = np.logical_and.reduce(wanted, axis=0)
    return [
        (matrix.groups[column], None if whole[column] else np.flatnonzero(wanted[:, column]))
        for column in some
    ]


class Forwarding(Protocol):
    """Chooses next hops for a batch."""

    def next_hops(self, reached: Reached, came_from: Hashable | None, ordered: bool) -> Reached:
        """The destinations with their rows, in an order that is always the same.

        Args:
            reached: which destinations want which rows.
            came_from: where the batch came from; it does not go back there.
            ordered: whether publications must not overtake each other.
        """
        ...


class TreeForwarding:
    """S0: along the tree, where nothing overtakes.

    Args:
        links: the neighbours, as a view that stays current (`RoutingTables.links`); other destinations
            are local.
    """

    def __init__(self, links: Collection[str]) -> None:
        self._links = links

    def next_hops(self, reached: Reached, came_from: Hashable | None, ordered: bool) -> Reached:
        """Every destination with a matching row: links by name, then local ones as they are listed."""
        if came_from is not None:
            reached = [hop for hop in reached if hop[0] != came_from]
        if len(reached) < 2 or not self._links:
            return reached
        links = [hop for hop in reached if hop[0] in self._links]
        links.sort(key=lambda hop: str(hop[0]))
        return links + [hop for hop in reached if hop[0] not in self._links]
