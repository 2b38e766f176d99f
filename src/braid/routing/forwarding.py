"""Which destinations get which rows of a batch?

The strategies of the multipath paper (section 5) differ only here. S0 is the tree: a publication goes to
every neighbour behind which it is wanted, so the matching destinations are the next hops. The others read
overlay maps as well, and keep to the tree for publications that must stay in order.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Collection, Hashable

    from braid.matching.matcher import Reached

__all__ = ["Forwarding", "TreeForwarding"]


class Forwarding(Protocol):
    """Chooses next hops for a batch."""

    version: int
    """Rises with every change of what it goes by, other than what matching says and which links there are."""

    def next_hops(self, reached: Reached, came_from: Hashable | None, ordered: bool, rows: int) -> Reached:
        """The destinations with their rows, in an order that is always the same.

        Args:
            reached: which destinations want which rows.
            came_from: the neighbour in whose direction the batch came from; it does not go back there.
            ordered: whether publications must not overtake each other.
            rows: how many there are.
        """
        ...


class TreeForwarding:
    """S0: along the tree, where nothing overtakes.

    Args:
        links: the neighbours, as a view that stays current (`RoutingTables.links`); other destinations
            are local.
    """

    version = 0

    def __init__(self, links: Collection[str]) -> None:
        self._links = links

    def next_hops(self, reached: Reached, came_from: Hashable | None, ordered: bool, rows: int) -> Reached:
        """Every destination with a matching row: links by name, then local ones as they are listed."""
        if came_from is not None:
            reached = [hop for hop in reached if hop[0] != came_from]
        if len(reached) < 2 or not self._links:
            return reached
        links = [hop for hop in reached if hop[0] in self._links]
        links.sort(key=lambda hop: str(hop[0]))
        return links + [hop for hop in reached if hop[0] not in self._links]
