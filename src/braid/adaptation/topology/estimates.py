"""What would a broker save by a direct link, and which link of a cycle is the one to go?

The arithmetic of the self-organising paper, Eq. 3 to 10, from what one broker knows. Readings (errata): the
neighbourhood of Eq. 6 includes the broker itself, so that phi is the mean interest shared with the others;
where two brokers share nothing, the fraction of Eq. 5 and 7 is 1; and in Eq. 8 such pairs add nothing.

A path from B_i is given by what lies on it, the nearest first: `interests[q]` is I_{i,x} with the broker x
that is q + 1 links away, `processing[q]` its p_x, and `links[q]` the cost of the link before it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

__all__ = ["cycle_costs", "indirect_costs", "mean_interest", "without"]


def mean_interest(interests: Iterable[float]) -> float:
    """Eq. 6, phi: what B_i shares with another broker of its neighbourhood, on average."""
    known = list(interests)
    return sum(known) / len(known) if known else 0.0


def indirect_costs(
    interests: Sequence[float], processing: Sequence[float], links: Sequence[float], phi: float
) -> list[float]:
    """Eq. 7: C_{i,x} for each broker x along a path from B_i.

        C_{i,x} = c_{i,x} for a neighbour, and otherwise, where k is the broker before x,
        C_{i,x} = (I_{i,x} - I_{i,k,x}) / I_{i,x} * (C_{i,k} + p_k) + c_{k,x}

    with the estimate I_{i,k,x} = min(phi, I_{i,x}, I_{i,k}).
    """
    costs: list[float] = []
    for place, (interest, link) in enumerate(zip(interests, links, strict=True)):
        if not place:
            costs.append(link)
            continue
        shared_by_three = min(phi, interest, interests[place - 1])
        fraction = (interest - shared_by_three) / interest if interest > 0 else 1.0
        costs.append(fraction * (costs[-1] + processing[place - 1]) + link)
    return costs


def cycle_costs(
    place: int, interests: Sequence[float], processing: Sequence[float], links: Sequence[float], phi: float
) -> list[float]:
    """Eq. 8: cost_R(e, B_i) for each link e of the reconfiguration cycle.

    Args:
        place: which broker of the cycle B_i is.
        interests: I_{i,j} by place; its own is not looked at.
        processing: p_j by place.
        links: `links[q]` lies between the places q and q + 1, the last one between the last place and 0.
        phi: of B_i.
    """
    found = []
    for removed in range(len(links)):
        total = 0.0
        line, between = without(removed, links)
        here = line.index(place)
        behind = line[here + 1 :], between[here:]
        before = line[:here][::-1], between[:here][::-1]
        for brokers, on_way in (behind, before):
            shared = [interests[each] for each in brokers]
            costs = indirect_costs(shared, [processing[each] for each in brokers], on_way, phi)
            total += sum(interest * cost for interest, cost in zip(shared, costs, strict=True))
        found.append(total)
    return found


def without(removed: int, links: Sequence[float]) -> tuple[list[int], list[float]]:
    """The places of a cycle in a line, and the costs between them, once one link is gone."""
    count = len(links)
    line = [(removed + 1 + step) % count for step in range(count)]
    return line, [links[place] for place in line[:-1]]
