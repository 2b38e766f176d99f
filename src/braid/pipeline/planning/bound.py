"""How cheap could distribution be at all?

No tree is cheaper than giving every notification the cheapest tree of its own: the smallest price of a
connected piece of the whole graph that holds its publisher and subscribers, brokers included (a Steiner tree
with costs at nodes). It is found exactly by the programme of Dreyfus and Wagner (1971), which takes time
exponential in the members of a group; larger groups are bounded by any ten of them, which costs no more.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from braid.pipeline.planning.solver import Instance

__all__ = ["MEMBERS_MAX", "cheapest_tree", "lower_bound"]

MEMBERS_MAX = 10


def cheapest_tree(
    members: Sequence[int], links: NDArray[np.float64], processing: NDArray[np.float64]
) -> float:
    """The least cost of a tree that connects some brokers, over any others."""
    terminals = list(members)
    if len(terminals) == 1:
        return float(processing[terminals[0]])
    count = len(processing)
    steps = links + processing[np.newaxis, :]
    # From u to v, both ends paid: the cheapest way, found from all brokers at once.
    ways = np.where(np.eye(count, dtype=bool), 0.0, steps)
    for over in range(count):
        np.minimum(ways, ways[:, over : over + 1] + ways[over : over + 1, :], out=ways)
    root, others = terminals[0], terminals[1:]
    best = np.full((1 << len(others), count), np.inf)
    for number, terminal in enumerate(others):
        best[1 << number] = processing[terminal] + ways[terminal]
    for chosen in range(1, 1 << len(others)):
        if chosen & (chosen - 1) == 0:
            continue
        merged = np.full(count, np.inf)
        part = (chosen - 1) & chosen
        while part > chosen ^ part:
            # Two trees that meet at a broker pay for it once.
            np.minimum(merged, best[part] + best[chosen ^ part] - processing, out=merged)
            part = (part - 1) & chosen
        best[chosen] = (merged[:, np.newaxis] + ways).min(axis=0)
    return float(best[-1][root])


def lower_bound(instance: Instance) -> float:
    """What no tree can be cheaper than."""
    total = 0.0
    known: dict[tuple[int, ...], float] = {}
    for row, count in zip(instance.members, instance.counts, strict=True):
        members = tuple(np.flatnonzero(row).tolist())[:MEMBERS_MAX]
        if members and members not in known:
            known[members] = cheapest_tree(members, instance.links, instance.processing)
        total += float(count) * known.get(members, 0.0)
    return total
