"""What is the shortest way, and the cheapest tree?

Small helpers on arrays of integer microseconds, deterministic to the last tie.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    import random
    from collections.abc import Callable, Iterable, Sequence

    from numpy.typing import NDArray

__all__ = ["UNREACHABLE", "Edge", "connected_edges", "minimum_tree", "shortest_paths"]

Edge = tuple[int, int, int]
"""Two nodes and the length of what joins them."""

# Two of these still fit when they are added.
UNREACHABLE = np.iinfo(np.int32).max // 2


def shortest_paths(count: int, edges: Iterable[Edge]) -> NDArray[np.int32]:
    """All distances in an undirected graph of nodes 0 to count - 1 (Floyd and Warshall).

    A pass per node over the whole matrix: 0.1 s for 500 nodes, so larger networks are cut into domains.
    """
    far = np.full((count, count), UNREACHABLE, dtype=np.int32)
    np.fill_diagonal(far, 0)
    for left, right, length in edges:
        shorter = min(int(far[left, right]), length)
        far[left, right] = far[right, left] = shorter
    for between in range(count):
        np.minimum(far, far[:, between, np.newaxis] + far[np.newaxis, between, :], out=far)
    return far


def connected_edges(
    count: int, edge_count: int, chance: random.Random, length: Callable[[], int]
) -> list[Edge]:
    """A random connected graph: a random recursive tree, and further edges between random pairs.

    There are `edge_count` edges, or as few as connect all nodes, or as many as there are pairs.
    """
    nodes = list(range(count))
    chance.shuffle(nodes)
    edges: dict[tuple[int, int], int] = {}
    for place in range(1, count):
        left, right = sorted((nodes[place], nodes[chance.randrange(place)]))
        edges[left, right] = length()
    wanted = max(count - 1, min(edge_count, count * (count - 1) // 2))
    while len(edges) < wanted:
        left, right = sorted(chance.sample(range(count), 2))
        if (left, right) not in edges:
            edges[left, right] = length()
    return [(left, right, us) for (left, right), us in edges.items()]


def minimum_tree(nodes: Sequence[str], length: Callable[[str, str], int]) -> list[tuple[str, str]]:
    """The tree over all nodes with the smallest total length (Prim); earlier nodes win ties."""
    outside = list(nodes[1:])
    nearest = {node: (length(nodes[0], node), nodes[0]) for node in outside}
    links = []
    while outside:
        joined = min(outside, key=lambda node: nearest[node][0])
        outside.remove(joined)
        links.append((nearest[joined][1], joined))
        for node in outside:
            us = length(joined, node)
            if us < nearest[node][0]:
                nearest[node] = (us, joined)
    return links
