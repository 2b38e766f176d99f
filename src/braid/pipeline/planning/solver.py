"""Which tree is the cheapest for a given interest?

The PSOOP of the self-organising paper (section 3.1), which is NP-hard: a spanning tree of least cost(N, T),
for whoever knows all costs and all notifications. The search exchanges links: for each pair of brokers that
are no neighbours, the pair's link closes a cycle, and all ways to open it again are priced at once. When no
exchange helps any more, some are made at random and the search goes on from there.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from functools import lru_cache
from itertools import product
from typing import TYPE_CHECKING

import numpy as np

from braid.adaptation.topology.pricing import NumberedTree
from braid.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

__all__ = [
    "Instance",
    "Solution",
    "best_shortest_ways",
    "best_star",
    "exhaustive",
    "interest_tree",
    "minimum_tree",
    "solve",
]

KICKS = (3, 30)
"""Random exchanges between two descents, at least and at most."""
SLACK = 0.003
"""A tree that is worse by this share is still walked on from: otherwise the walk stays where it began."""

EXHAUSTIVE_MAX = 8
"""Brokers of an instance whose trees can all be tried: there are n ** (n - 2)."""


@dataclass(frozen=True, eq=False)
class Instance:
    """What is to be distributed, and what that costs."""

    members: NDArray[np.float32]
    """(groups, brokers): 1 where a broker publishes or wants the notifications of a group."""
    counts: NDArray[np.float64]
    """Notifications of each group."""
    links: NDArray[np.float64]
    """What a message costs between two brokers; infinite where there must be no link."""
    processing: NDArray[np.float64]
    """What one costs at each broker."""
    degree_max: int = 0
    """Links of a broker, at most; 0 for no bound."""

    def __post_init__(self) -> None:
        count = len(self.processing)
        if self.members.shape != (len(self.counts), count) or self.links.shape != (count, count):
            raise ConfigurationError("an instance: groups, counts and costs are of different sizes")
        if count < 2:
            raise ConfigurationError("an instance has at least 2 brokers")

    @property
    def brokers(self) -> int:
        """How many there are."""
        return len(self.processing)

    def cost(self, tree: NumberedTree) -> float:
        """Eq. 2: cost(N, T)."""
        return float(self.counts @ tree.costs(self.members, self.links, self.processing).total)

    def interest(self) -> NDArray[np.float64]:
        """How many notifications each two brokers have in common."""
        return np.asarray((self.members * self.counts[:, np.newaxis]).T @ self.members, np.float64)


@dataclass(frozen=True, eq=False)
class Solution:
    """A tree and what it costs."""

    cost: float
    tree: NumberedTree


def minimum_tree(instance: Instance) -> NumberedTree:
    """MST: the links of least total cost."""
    return _greedy(instance.links)


def interest_tree(instance: Instance) -> NumberedTree:
    """MIT: the links whose ends have the most in common, whatever they cost."""
    # Forbidden links stay forbidden.
    return _greedy(np.where(np.isinf(instance.links), np.inf, -instance.interest()))


def best_star(instance: Instance) -> NumberedTree:
    """The cheapest tree in which all hang on one broker.

    Raises:
        ConfigurationError: no broker may be linked to all others.
    """
    count = instance.brokers
    centres = [each for each in range(count) if np.isfinite(instance.links[each]).all()]
    stars = [
        NumberedTree.of_links(count, [(centre, other) for other in range(count) if other != centre])
        for centre in centres
    ]
    if not stars:
        raise ConfigurationError("no broker may be linked to all others: there is no star")
    return min(stars, key=instance.cost)


def best_shortest_ways(instance: Instance) -> NumberedTree:
    """The cheapest tree in which all reach one broker the cheapest way, links and brokers counted."""
    count = instance.brokers
    trees = []
    for root in range(count):
        costs, via = instance.links[root] + 0.0, np.full(count, root, np.int64)
        settled = np.zeros(count, bool)
        settled[root] = True
        links = []
        for _ in range(count - 1):
            chosen = int(np.where(settled, np.inf, costs).argmin())
            if settled[chosen] or np.isinf(costs[chosen]):
                raise ConfigurationError("the links that are allowed do not connect all brokers")
            links.append((int(via[chosen]), chosen))
            settled[chosen] = True
            onward = costs[chosen] + instance.processing[chosen] + instance.links[chosen]
            closer = onward < costs
            costs, via = np.where(closer, onward, costs), np.where(closer, chosen, via)
        trees.append(NumberedTree.of_links(count, links))
    return min(trees, key=instance.cost)


def _greedy(weights: NDArray[np.float64]) -> NumberedTree:
    """The spanning tree of least weight, grown from broker 0 (Prim)."""
    count = len(weights)
    best, via = weights[0].copy(), np.zeros(count, np.int64)
    inside = np.zeros(count, bool)
    inside[0] = True
    links = []
    for _ in range(count - 1):
        chosen = int(np.where(inside, np.inf, best).argmin())
        if inside[chosen] or np.isinf(best[chosen]):
            raise ConfigurationError("the links that are allowed do not connect all brokers")
        links.append((int(via[chosen]), chosen))
        inside[chosen] = True
        closer = weights[chosen] < best
        via[closer] = chosen
        best = np.where(closer, weights[chosen], best)
    return NumberedTree.of_links(count, links)


def solve(instance: Instance, start: NumberedTree, *, rounds: int = 20, seed: int = 1) -> Solution:
    """The best tree that was met on a walk from one tree that no exchange of two links improves to the next.

    Args:
        instance: what is to be distributed.
        start: a tree to begin with; too many links of a broker are tolerated there, and never added to.
        rounds: how often the search goes on from some random exchanges.
        seed: for these.
    """
    chance = random.Random(f"{seed}/exchanges")
    here = best = _descend(instance, Solution(instance.cost(start), start), chance)
    for _ in range(rounds):
        tree = here.tree
        # A few exchanges are mostly undone, many forget what was good: how many it takes is not known.
        for _ in range(chance.randint(*KICKS)):
            tree = _kicked(instance, tree, chance)
        found = _descend(instance, Solution(instance.cost(tree), tree), chance)
        if found.cost < here.cost * (1 + SLACK):
            here = found
        if found.cost < best.cost:
            best = found
    return best


def _descend(instance: Instance, start: Solution, chance: random.Random) -> Solution:
    """Exchange links as long as that helps."""
    pairs = [(left, right) for left in range(instance.brokers) for right in range(left)]
    search = _Search(instance, start.tree)
    untried = len(pairs)
    chance.shuffle(pairs)
    place = 0
    while untried > 0:
        left, right = pairs[place]
        place = (place + 1) % len(pairs)
        if search.try_link(left, right):
            untried = len(pairs)
        else:
            untried -= 1
    # Summing up many small savings would drift; the price of the whole does not.
    return Solution(instance.cost(search.tree), search.tree)


class _Search:
    """A tree that is being improved."""

    def __init__(self, instance: Instance, tree: NumberedTree) -> None:
        self._instance = instance
        # What concerns one broker only costs the same on every tree.
        several = instance.members.sum(axis=1) > 1
        self._members = instance.members[several]
        self._counts = instance.counts[several]
        self._sizes = self._members.sum(axis=1)
        self._use(tree)

    def _use(self, tree: NumberedTree) -> None:
        self.tree = tree
        self._below = self._members @ tree.below
        self._parents: list[int] = tree.parents.tolist()
        self._depths: list[int] = tree.depths.tolist()
        self._degrees = np.bincount(
            np.concatenate([tree.order[1:], tree.parents[tree.order[1:]]]), minlength=len(tree.parents)
        )

    def try_link(self, left: int, right: int) -> bool:
        """Add a link if something dearer can go for it; returns whether."""
        instance = self._instance
        if (
            np.isinf(instance.links[left, right])
            or self._parents[left] == right
            or self._parents[right] == left
        ):
            return False
        path, touched = self._cycle(left, right)
        savings = self._savings(path, touched)
        bound = instance.degree_max
        if bound:
            if self._degrees[left] >= bound:
                savings[1:] = 0.0
            if self._degrees[right] >= bound:
                savings[:-1] = 0.0
        removed = int(savings.argmax())
        if savings[removed] <= 1e-9 * max(1.0, abs(float(self._counts.sum()))):
            return False
        self._use(self.tree.exchanged((left, right), (path[removed], path[removed + 1])))
        return True

    def _cycle(self, left: int, right: int) -> tuple[list[int], NDArray[np.bool_]]:
        """The path between two brokers, and which groups have members at or beside each broker of it."""
        up, down = [left], [right]
        parents, depths = self._parents, self._depths
        while up[-1] != down[-1]:
            if depths[up[-1]] >= depths[down[-1]]:
                up.append(parents[up[-1]])
            else:
                down.append(parents[down[-1]])
        path = up + down[-2::-1]
        below = self._below[:, path]
        top = len(up) - 1
        hanging = below.copy()
        hanging[:, 1 : top + 1] -= below[:, :top]
        hanging[:, top:-1] -= below[:, top + 1 :]
        hanging[:, top] += self._sizes - below[:, top]
        return path, hanging > 0.5

    def _savings(self, path: list[int], touched: NDArray[np.bool_]) -> NDArray[np.float64]:
        """What is saved by each link of the path that goes for the new one, all notifications together."""
        instance = self._instance
        size = len(path)
        links = np.append(instance.links[path[:-1], path[1:]], instance.links[path[0], path[-1]])
        brokers = np.zeros(2 * size + 1)
        np.cumsum(np.tile(instance.processing[path], 2), out=brokers[1:])
        ways = np.zeros(2 * size)
        np.cumsum(np.tile(links, 2)[:-1], out=ways[1:])
        # The cycle twice in a row: opened behind place e it is the stretch from e + 1 to e + size.
        twice = np.concatenate([touched, touched], axis=1)
        places = np.arange(2 * size)
        following = np.minimum.accumulate(np.where(twice, places, 4 * size)[:, ::-1], axis=1)[:, ::-1]
        before = np.maximum.accumulate(np.where(twice, places, -1), axis=1)
        # Every broker hangs on some place of the cycle, so every group is somewhere on it.
        first, last = following[:, 1 : size + 1], before[:, size : 2 * size]
        costs = brokers[last + 1] - brokers[first] + ways[last] - ways[first]
        totals = self._counts @ costs
        return np.asarray(totals[-1] - totals[:-1])


def _kicked(instance: Instance, tree: NumberedTree, chance: random.Random) -> NumberedTree:
    """The tree with one random exchange that is allowed."""
    degrees = np.bincount(np.array(tree.links).ravel(), minlength=instance.brokers)
    bound = instance.degree_max or instance.brokers
    for _ in range(100):
        left, right = chance.sample(range(instance.brokers), 2)
        path = tree.path(left, right)
        allowed = range(len(path) - 1)
        if degrees[left] >= bound:
            allowed = range(1)
        if degrees[right] >= bound:
            allowed = range(len(path) - 2, len(path) - 1) if degrees[left] < bound else range(0)
        if len(path) > 2 and np.isfinite(instance.links[left, right]) and len(allowed):
            removed = chance.choice(allowed)
            return tree.exchanged((left, right), (path[removed], path[removed + 1]))
    return tree


def exhaustive(instance: Instance) -> Solution:
    """The cheapest of all trees, each of them tried.

    Seen from a link, a notification uses it if it concerns both sides; and a broker has nothing to do with
    those that concern only what lies behind one of its links. So with the sets of brokers on the two sides
    of each link the whole price is a sum over links, and all trees are priced at once.

    Raises:
        ConfigurationError: there are too many trees.
    """
    count = instance.brokers
    if count > EXHAUSTIVE_MAX:
        raise ConfigurationError(f"{count} brokers have {count ** (count - 2):,} trees: too many to try")
    ends, sides = _all_trees(count)
    everyone = (1 << count) - 1
    bits: NDArray[np.int64] = instance.members.astype(np.int64) @ (1 << np.arange(count))
    masks = np.arange(1 << count)
    both = np.bitwise_and.outer(masks, bits)
    inside = (both == bits).astype(np.float64)
    outside = (both == 0).astype(np.float64)
    within: NDArray[np.float64] = inside @ instance.counts
    crossing: NDArray[np.float64] = instance.counts.sum() - within - outside @ instance.counts
    lower, upper = ends[:, :, 0], ends[:, :, 1]
    p, used = instance.processing, crossing[sides]
    # A link that must not be there costs nothing only where nothing crosses it.
    costs = np.where(used > 0, instance.links[lower, upper], 0.0) * used
    costs -= p[upper] * within[sides] + p[lower] * within[everyone & ~sides]
    totals = costs.sum(axis=1) + instance.counts.sum() * p.sum()
    if instance.degree_max:
        for broker in range(count):
            degrees = (ends == broker).sum(axis=(1, 2))
            totals[degrees > instance.degree_max] = np.inf
    totals[np.isinf(instance.links[lower, upper]).any(axis=1)] = np.inf
    best = int(totals.argmin())
    tree = NumberedTree.of_links(count, [(int(a), int(b)) for a, b in ends[best]])
    return Solution(float(totals[best]), tree)


@lru_cache(maxsize=1)
def _all_trees(count: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The links of every tree, lower end first, and the set of brokers below each, as bits."""
    ends, sides = [], []
    for sequence in product(range(count), repeat=count - 2):
        tree = NumberedTree.of_links(count, _of_sequence(sequence, count))
        below = [0] * count
        for broker in tree.order[::-1].tolist():
            below[broker] |= 1 << broker
            if broker:
                below[int(tree.parents[broker])] |= below[broker]
        ends.append(tree.links)
        sides.append([below[lower] for lower, _ in tree.links])
    return np.array(ends, np.int64), np.array(sides, np.int64)


def _of_sequence(sequence: Sequence[int], count: int) -> list[tuple[int, int]]:
    """The tree that a sequence of Pruefer stands for."""
    open_ends = [1 + sequence.count(broker) for broker in range(count)]
    links = []
    for broker in sequence:
        leaf = open_ends.index(1)
        links.append((leaf, broker))
        open_ends[leaf] = 0
        open_ends[broker] -= 1
    left, right = (broker for broker in range(count) if open_ends[broker] == 1)
    return [*links, (left, right)]
