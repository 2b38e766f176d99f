"""Who takes care of which destinations?

*Bitmap delegation* (strategy SB) goes beyond the multipath paper. The broker where a publication enters knows
all brokers with a match. It splits them among its links, and each copy carries the set its receiver has to
serve. A receiver does the same with its own links. A destination is in exactly one copy at any time, so each
gets the publication exactly once whatever way it takes.

A destination with a direct link gets its own copy. The others ride along to a destination that, as far as is
known from its *link state*, has a direct link to them. Those that no destination can reach go to a broker
between, where one serves many of them; where it would serve few, a destination is asked to find the way, at
first: it knows others than we do. Where links are few it knows no better, and after two of them a broker
between is taken. Far along, and where nothing else is known, the primary path is taken, which ends.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Set

__all__ = ["HOPS_OF_SHORTCUTS_MAX", "split_destinations"]

# A broker between that serves no more than this many is not worth a message of its own.
SERVED_FEW = 3

# So many brokers in a row may ask another one to find the way.
ASKED_TO_FIND_MAX = 2

# From here on only primary paths are taken. Shortcuts need two hops as a rule.
HOPS_OF_SHORTCUTS_MAX = 6


def split_destinations(
    destinations: Set[str],
    links: Mapping[str, Set[str]],
    toward: Callable[[str], str | None],
    hops: int,
) -> dict[str, set[str]]:
    """Next hops, each with the destinations it takes over.

    Args:
        destinations: who still has to get it, without this broker.
        links: the usable direct links, with what each of those brokers can reach directly, as far as known.
        toward: the neighbour on the primary path to a broker; None if there is none.
        hops: how many links the publication has crossed.

    Returns:
        Disjoint sets; destinations that nobody knows a way to are in none of them.
    """
    if hops >= HOPS_OF_SHORTCUTS_MAX:
        return _along_the_tree(destinations, toward, {})
    direct = [broker for broker in sorted(destinations) if broker in links]
    # Who says nothing of its links may not see far enough to find anybody.
    able = [broker for broker in direct if links[broker]]
    shares: dict[str, set[str]] = {broker: {broker} for broker in direct}
    left: list[str] = []
    for broker in sorted(destinations):
        if broker in shares:
            continue
        helpers = [helper for helper in direct if broker in links[helper]]
        if helpers:
            # One copy with many destinations leaves its receiver more ways to combine them.
            shares[max(helpers, key=lambda helper: (len(shares[helper]), helper))].add(broker)
        else:
            left.append(broker)
    while left:
        served = {between: sum(broker in reach for broker in left) for between, reach in links.items()}
        best = max(sorted(served), key=lambda between: served[between], default="")
        most = served.get(best, 0)
        asks = hops < ASKED_TO_FIND_MAX or not most
        if able and most <= SERVED_FEW and asks:
            shares[max(able, key=lambda helper: (len(shares[helper]), helper))].update(left)
            return shares
        if not most:
            return _along_the_tree(left, toward, shares)
        reach = links[best]
        shares.setdefault(best, set()).update(broker for broker in left if broker in reach)
        left = [broker for broker in left if broker not in reach]
    return shares


def _along_the_tree(
    destinations: Set[str] | list[str],
    toward: Callable[[str], str | None],
    shares: dict[str, set[str]],
) -> dict[str, set[str]]:
    for broker in sorted(destinations):
        hop = toward(broker)
        if hop is not None:
            shares.setdefault(hop, set()).add(broker)
    return shares
