"""From any tree to any other by delta-moves: each broker is moved once at most, however far."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from braid.errors import ConfigurationError
from braid.reconfiguration.trees import OverlayTree

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

__all__ = ["delta_moved", "delta_moves"]


def delta_moved(tree: OverlayTree, path: Sequence[str]) -> OverlayTree:
    """The tree in which the first broker of a path hangs on the last one instead of the second.

    Raises:
        ConfigurationError: the brokers are not such a path of the tree.
    """
    if len(path) < 3 or tuple(path) != tree.path(path[0], path[-1]):
        raise ConfigurationError(f"{', '.join(path)} is no path of the tree with three brokers or more")
    links = [link for link in tree.links if set(link) != set(path[:2])]
    return OverlayTree([*links, (path[0], path[-1])], tree.brokers)


def delta_moves(start: OverlayTree, goal: OverlayTree) -> Iterator[tuple[str, ...]]:
    """The paths of moves that lead from one tree to another of the same brokers, one after the other.

    From one broker of the goal outwards each is hung where it belongs. Those that are there already stay
    together, so nobody is moved twice.

    Raises:
        ConfigurationError: the trees have different brokers.
    """
    if set(start.brokers) != set(goal.brokers):
        raise ConfigurationError("delta-moves lead to trees of the same brokers only")
    tree, first = start, max(goal.brokers, key=lambda name: (goal.degree(name), name))
    placed, line = {first}, deque([first])
    while line:
        place = line.popleft()
        for broker in goal.neighbours(place):
            if broker in placed:
                continue
            placed.add(broker)
            line.append(broker)
            if broker not in tree.neighbours(place):
                path = tree.path(broker, place)
                yield path
                tree = delta_moved(tree, path)
