"""To which links does a publication go?

The path computations of the multipath paper (section 5). Each takes the links that stand for the matching
anchors, as a bit vector, and returns those that get a copy. Upstream anchors have been taken out before.
What one of them returns is always such that no chosen link lies beyond another and every anchor lies beyond
a chosen one; so each matching broker gets exactly one copy, whatever the others on the way choose.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

from braid.errors import InvariantViolated

if TYPE_CHECKING:
    from collections.abc import Callable

    from braid.routing.working_map import WorkingMap

__all__ = ["PATHS", "ForwardingStrategy", "Paths", "along_the_intersection", "straight_to_anchors"]

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


@dataclass(frozen=True, slots=True)
class ForwardingStrategy:
    """A way to forward publications that another distribution brings.

        ForwardingStrategy(lambda working, anchors: straight_to_anchors(working, anchors))

    It says which links get a copy, and nothing else: which links there are, what stays in order along the
    tree and who has had a publication are the broker's affair.
    """

    paths: Paths
    """From the links that stand for the matching anchors, as bits, to those that get a copy."""
    delta: int = 4
    """Up to how many links away a broker knows others, unless it is told otherwise; at least 2."""

    def checked(self, name: str) -> Paths:
        """The same paths, each answer held against what brokers rely on.

        Brokers remember answers, so this costs next to nothing.
        """

        def answer(working: WorkingMap, anchors: int) -> int:
            chosen = self.paths(working, anchors)
            problem = _broken(working, anchors, chosen)
            if problem:
                wanted = ", ".join(working.names(anchors))
                raise InvariantViolated(f"the forwarding strategy {name} was asked for {wanted}: {problem}")
            return chosen

        return answer


def _broken(working: WorkingMap, anchors: int, chosen: int) -> str:
    """Why a choice of links would lose or double publications; empty if it would not."""
    if chosen >> len(working.links):
        return "it chose links that there are not"
    covered = 0
    rest = chosen
    while rest:
        lowest = rest & -rest
        rest ^= lowest
        beyond = working.beyond[lowest.bit_length() - 1]
        doubled = chosen & beyond & ~lowest
        if doubled:
            inner, outer = working.names(doubled), working.names(lowest)
            return f"{', '.join(inner)} would get it twice, because it lies beyond {', '.join(outer)}"
        covered |= beyond
    lost = anchors & ~covered
    return f"no copy goes towards {', '.join(working.names(lost))}" if lost else ""
