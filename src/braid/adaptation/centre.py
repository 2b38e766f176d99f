"""Which tree has the brokers in its middle that match most?

Soft links take publications past brokers that do not want them (strategies S1 and S2 of the multipath
paper), but they reach only so far. So a broker amid the tree is often on the way, and if it matches often it
is seldom a pure forwarder there; one that hardly matches is in nobody's way at the edge.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from braid.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

__all__ = ["DEGREE_MIN", "centred_tree"]

DEGREE_MIN = 2
"""With fewer links a broker could have no neighbour but one."""


def centred_tree(
    brokers: Iterable[str], matches: Mapping[str, float], degree_max: int
) -> list[tuple[str, str]]:
    """The links of a tree with the brokers that match most in its middle, and the others around them.

    Args:
        brokers: all of them.
        matches: how often each matched, in the same time; those that are not named never did.
        degree_max: how many links a broker has at most.

    Raises:
        ConfigurationError: with so few links there is no tree of more than two brokers.

    >>> centred_tree("ABCDE", {"E": 9, "A": 5, "C": 2}, 3)
    [('E', 'A'), ('E', 'C'), ('E', 'B'), ('A', 'D')]
    """
    if degree_max < DEGREE_MIN:
        raise ConfigurationError(f"a tree needs brokers with {DEGREE_MIN} links, not {degree_max} at most")
    links: list[tuple[str, str]] = []
    free: deque[str] = deque()
    for broker in sorted(brokers, key=lambda name: (-matches.get(name, 0), name)):
        if free:
            links.append((free.popleft(), broker))
        free.extend([broker] * (degree_max - bool(links)))
    return links
