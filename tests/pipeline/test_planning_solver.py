"""The offline search against all trees there are, and the bound below it."""

from __future__ import annotations

import numpy as np
import pytest

from braid.adaptation.topology.pricing import NumberedTree
from braid.errors import ConfigurationError
from braid.pipeline.planning.bound import cheapest_tree, lower_bound
from braid.pipeline.planning.solver import (
    Instance,
    _all_trees,
    best_star,
    exhaustive,
    interest_tree,
    minimum_tree,
    solve,
)


def random_instance(seed: int, brokers: int, groups: int, degree_max: int = 0) -> Instance:
    chance = np.random.default_rng(seed)
    members = np.zeros((groups, brokers), np.float32)
    for row in members:
        row[chance.choice(brokers, chance.integers(1, min(5, brokers) + 1), replace=False)] = 1
    costs = chance.uniform(0, 10, (brokers, brokers))
    links = np.triu(costs, 1) + np.triu(costs, 1).T
    return Instance(
        members,
        chance.integers(1, 20, groups).astype(float),
        links,
        chance.uniform(0, 10, brokers),
        degree_max,
    )


def test_the_search_finds_the_cheapest_of_all_trees() -> None:
    for seed in range(100):
        instance = random_instance(seed, 7, 12)
        best = exhaustive(instance)
        assert best.cost == pytest.approx(instance.cost(best.tree))
        found = solve(instance, minimum_tree(instance), rounds=20, seed=seed)
        assert found.cost == pytest.approx(best.cost), f"seed {seed}"


def test_it_keeps_the_bound_on_links_and_what_is_forbidden() -> None:
    for seed in range(40):
        bounded = random_instance(seed, 7, 12, degree_max=3)
        line = NumberedTree.of_links(7, [(each, each + 1) for each in range(6)])
        best = exhaustive(bounded)
        found = solve(bounded, line, rounds=20, seed=seed)
        degrees = np.bincount(np.array(found.tree.links).ravel())
        assert degrees.max() <= 3
        assert best.cost - 1e-6 <= found.cost <= 1.02 * best.cost
        links = bounded.links.copy()
        links[0, 2:] = links[2:, 0] = np.inf
        forbidden = Instance(bounded.members, bounded.counts, links, bounded.processing)
        free = solve(forbidden, line, rounds=5, seed=seed)
        assert free.cost == pytest.approx(exhaustive(forbidden).cost)
        assert {frozenset(link) for link in free.tree.links if 0 in link} == {frozenset((0, 1))}


def test_exhaustive_prices_are_those_of_equation_2() -> None:
    instance = random_instance(5, 5, 9)
    ends, _ = _all_trees(5)
    assert len(ends) == len({frozenset(frozenset(link) for link in tree.tolist()) for tree in ends}) == 125
    cheapest = min(
        instance.cost(NumberedTree.of_links(5, [tuple(link) for link in tree.tolist()])) for tree in ends
    )
    assert exhaustive(instance).cost == pytest.approx(cheapest)
    with pytest.raises(ConfigurationError, match="too many"):
        exhaustive(random_instance(1, 9, 2))


def test_no_tree_is_cheaper_than_the_bound() -> None:
    for seed in range(30):
        instance = random_instance(seed, 6, 6)
        bound = lower_bound(instance)
        assert bound <= exhaustive(instance).cost + 1e-9
        # One notification on its own: the bound is the cheapest tree, and some tree has it.
        alone = Instance(instance.members[:1], np.ones(1), instance.links, instance.processing)
        assert lower_bound(alone) == pytest.approx(exhaustive(alone).cost)


def test_a_detour_over_a_cheap_broker_is_found() -> None:
    links = np.array([[0, 9, 9, 1], [9, 0, 9, 1], [9, 9, 0, 1], [1, 1, 1, 0]], float)
    assert cheapest_tree([0, 1, 2], links, np.array([1, 1, 1, 0.5])) == 3 + 3 + 0.5
    assert cheapest_tree([2], links, np.ones(4)) == 1


def test_well_known_trees() -> None:
    instance = random_instance(3, 7, 15)
    import networkx

    graph = networkx.Graph()
    for left in range(7):
        for right in range(left):
            graph.add_edge(
                left, right, cost=instance.links[left, right], interest=instance.interest()[left, right]
            )
    cheapest = networkx.minimum_spanning_tree(graph, weight="cost")
    assert {frozenset(link) for link in minimum_tree(instance).links} == {
        frozenset(e) for e in cheapest.edges
    }
    most = networkx.maximum_spanning_tree(graph, weight="interest")
    found = sum(instance.interest()[link] for link in interest_tree(instance).links)
    assert found == pytest.approx(sum(d["interest"] for _, _, d in most.edges(data=True)))
    star = best_star(instance)
    assert max(np.bincount(np.array(star.links).ravel())) == 6


def test_impossible_instances_are_refused() -> None:
    instance = random_instance(1, 4, 3)
    alone = np.full((4, 4), np.inf)
    cut_off = Instance(instance.members, instance.counts, alone, instance.processing)
    with pytest.raises(ConfigurationError, match="do not connect"):
        minimum_tree(cut_off)
    with pytest.raises(ConfigurationError, match="no star"):
        best_star(cut_off)
    with pytest.raises(ConfigurationError, match="different sizes"):
        Instance(instance.members, instance.counts[:1], instance.links, instance.processing)
