"""To which links does a publication go?

The path computations of the multipath paper (section 5). Each takes the links that stand for the matching
anchors, as a bit vector, and returns those that get a copy. Upstream anchors have been taken out before.
What one of them returns is always such that no chosen link lies beyond another and every anchor lies beyond
a chosen one; so each matching broker gets exactly one copy, whatever the others on the way choose.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Callable

    from braid.routing.working_map import WorkingMap

__all__ = ["PATHS", "Paths", "along_the_intersection", "straight_to_anchors"]

Paths: TypeAlias = "Callable[[WorkingMap, int], int]"


def along_the_intersection(working: WorkingMap, anchors: int) -> int:
    """S1 (Figure 5): the farthest links that the primary paths to the anchors have in common."""
    intersection = 0
    rest = anchors
    while rest:
        lowest = rest & -rest
        rest ^= lowest
        number = lowest.bit_length() - 1
        between = working.between[number]
        if intersection & between:
            intersection &= between | working.behind[number]
        else:
            intersection |= between
    chosen = 0
    rest = intersection
    while rest and anchors:
        number = rest.bit_length() - 1
        rest ^= 1 << number
        if anchors & working.beyond[number]:
            chosen |= 1 << number
            anchors &= ~working.beyond[number]
    return chosen


def straight_to_anchors(working: WorkingMap, anchors: int) -> int:
    """S2 (Figure 6): every anchor without a closer one on its path."""
    chosen = 0
    while anchors:
        lowest = anchors & -anchors
        chosen |= lowest
        anchors &= ~working.beyond[lowest.bit_length() - 1]
    return chosen


PATHS: dict[str, Paths] = {"S1": along_the_intersection, "S2": straight_to_anchors}
