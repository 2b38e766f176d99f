"""Which destinations get which rows of a batch?

The strategies of the multipath paper (section 5) differ only here. S0 is the tree: a publication goes to
every neighbour behind which it is wanted, so the matching destinations are the next hops. The others read
overlay maps as well, and keep to the tree for publications that must stay in order.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Collection, Hashable

    from braid.matching.columns import IntArray
    from braid.matching.index import GroupMatrix

__all__ = ["Forwarding", "TreeForwarding"]


class Forwarding(Protocol):
    """Chooses next hops for a batch."""

    def next_hops(
        self, matrix: GroupMatrix, came_from: Hashable | None, ordered: bool
    ) -> list[tuple[Hashable, IntArray | None]]:
        """The destinations with their rows (None: all rows), in an order that is always the same.

        Args:
            matrix: which destinations want which publications.
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

    def next_hops(
        self, matrix: GroupMatrix, came_from: Hashable | None, ordered: bool
    ) -> list[tuple[Hashable, IntArray | None]]:
        """Every destination with a matching row: links by name, then local ones as they are listed."""
        wanted = matrix.matrix
        if len(wanted) == 1:  # the usual case when traffic is light, where every microsecond counts
            some = np.flatnonzero(wanted[0]).tolist()
            whole = wanted[0]
        else:
            some = np.flatnonzero(wanted.any(axis=0)).tolist()
            whole = np.logical_and.reduce(wanted, axis=0)
        columns: dict[Hashable, int] = {matrix.groups[column]: column for column in some}
        columns.pop(came_from, None)
        links = sorted(group for group in columns if isinstance(group, str) and group in self._links)
        local = [group for group in columns if group not in self._links]
        return [
            (group, None if whole[columns[group]] else np.flatnonzero(wanted[:, columns[group]]))
            for group in (*links, *local)
        ]
