"""Which trees do experiments start from?

The multipath paper (section 7, table 1) speaks of networks of "broker degree 3". A tree has a mean degree of
nearly 2 whatever its shape, so this is read as: a balanced tree in which no broker has more than 3 links.

*Balanced* fixes the lengths of paths, and with them how many brokers forward what they do not want: a level
is begun only when the one above it is full, so no tree with this bound on links is shallower. *Random* is
what the paper does not fix: which broker sits where, and which places of the last level are taken. Names say
nothing about places: `B000` is as likely to be a leaf as any other, so a workload may give roles by number.

Other shapes are there for other papers and for comparison.
"""

from __future__ import annotations

import heapq
import itertools
import random
from collections import Counter
from typing import Literal, get_args

from braid.errors import ConfigurationError
from braid.sim.topologies.topology import LATENCY_US, FlatLatency, Topology, broker_names

__all__ = ["DEGREE_MAX", "Shape", "line", "random_tree", "star", "tree_links"]

Shape = Literal["balanced", "recursive", "uniform"]
"""`balanced`: level by level. `recursive`: each broker links to a random earlier one that has room, which
makes longer paths. `uniform`: every tree on these brokers is equally likely; longest paths, no bound."""

DEGREE_MAX = 3


def random_tree(
    count: int,
    degree_max: int | None = DEGREE_MAX,
    seed: int = 1,
    *,
    shape: Shape = "balanced",
    latency_us: int = LATENCY_US,
    name: str | None = None,
) -> Topology:
    """A random tree of brokers; the same arguments give the same tree everywhere.

    Args:
        count: how many brokers.
        degree_max: links a broker has at most; None for no bound (not with `balanced`).
        seed: the same seed, the same tree.
        shape: how it grows, see the module.
        latency_us: between any two brokers.
        name: for reports; made from the shape if not given.
    """
    brokers = broker_names(_checked_count(count))
    links = tree_links(brokers, degree_max, random.Random(f"{seed}/tree/{shape}"), shape)
    return Topology.of(name or f"{shape}-tree-{count}", brokers, links, FlatLatency(latency_us))


def line(count: int, *, latency_us: int = LATENCY_US) -> Topology:
    """`B000` - `B001` - ... - the last."""
    brokers = broker_names(_checked_count(count))
    links = list(itertools.pairwise(brokers))
    return Topology.of(f"line-{count}", brokers, links, FlatLatency(latency_us))


def star(count: int, *, latency_us: int = LATENCY_US) -> Topology:
    """`B000` in the middle, all others linked to it alone."""
    brokers = broker_names(_checked_count(count))
    links = [(brokers[0], leaf) for leaf in brokers[1:]]
    return Topology.of(f"star-{count}", brokers, links, FlatLatency(latency_us))


def tree_links(
    brokers: tuple[str, ...], degree_max: int | None, chance: random.Random, shape: Shape
) -> list[tuple[str, str]]:
    """The links of a random tree over these brokers."""
    if shape not in get_args(Shape):
        raise ConfigurationError(f"a tree's shape is {', '.join(get_args(Shape))}; not {shape!r}")
    if shape == "uniform":
        if degree_max is not None:
            raise ConfigurationError("a uniform tree has no bound on links: degree_max must be None")
        return _uniform(list(brokers), chance)
    if shape == "balanced" and degree_max is None:
        raise ConfigurationError("a balanced tree needs degree_max: without a bound it would be a star")
    # Two brokers are a tree with one link each; a third needs a broker with two.
    needed = 2 if len(brokers) > 2 else 1
    if degree_max is not None and degree_max < needed:
        raise ConfigurationError(
            f"a tree of {len(brokers)} brokers needs degree_max of at least {needed}, not {degree_max}"
        )
    placed = list(brokers)
    chance.shuffle(placed)
    if shape == "balanced":
        return _balanced(placed, degree_max or DEGREE_MAX, chance)
    return _recursive(placed, degree_max, chance)


def _balanced(placed: list[str], degree_max: int, chance: random.Random) -> list[tuple[str, str]]:
    links: list[tuple[str, str]] = []
    level, next_broker = placed[:1], 1
    while next_broker < len(placed):
        # Everybody but the root has spent one link on the way up.
        room = degree_max - (1 if links else 0)
        parents = [parent for parent in level for _ in range(room)]
        chance.shuffle(parents)
        level = placed[next_broker : next_broker + len(parents)]
        links += zip(parents, level, strict=False)
        next_broker += len(level)
    return links


def _recursive(placed: list[str], degree_max: int | None, chance: random.Random) -> list[tuple[str, str]]:
    links: list[tuple[str, str]] = []
    degree: Counter[str] = Counter()
    with_room = placed[:1]
    for broker in placed[1:]:
        index = chance.randrange(len(with_room))
        parent = with_room[index]
        links.append((parent, broker))
        degree[parent] += 1
        degree[broker] = 1
        if degree_max is not None and degree[parent] >= degree_max:
            with_room[index] = with_room[-1]
            with_room.pop()
        if degree_max is None or degree_max > 1:
            with_room.append(broker)
    return links


def _uniform(brokers: list[str], chance: random.Random) -> list[tuple[str, str]]:
    """Every sequence of Pruefer stands for one tree, so a random sequence is a uniformly random tree."""
    if len(brokers) < 2:
        return []
    count = len(brokers)
    sequence = [chance.randrange(count) for _ in range(count - 2)]
    open_ends = [1] * count
    for place in sequence:
        open_ends[place] += 1
    leaves = [place for place in range(count) if open_ends[place] == 1]
    links = []
    for place in sequence:
        leaf = heapq.heappop(leaves)
        links.append((brokers[leaf], brokers[place]))
        open_ends[place] -= 1
        if open_ends[place] == 1:
            heapq.heappush(leaves, place)
    links.append((brokers[heapq.heappop(leaves)], brokers[heapq.heappop(leaves)]))
    return links


def _checked_count(count: int) -> int:
    if count < 1:
        raise ConfigurationError(f"a network has at least 1 broker, not {count}")
    return count
