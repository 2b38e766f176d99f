"""The faster driver: a tree at all times, prices that a plain loop agrees with, and policies that help."""

from __future__ import annotations

import random
from collections import defaultdict
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import pytest

from braid.adaptation.topology import TopologySettings
from braid.errors import ConfigurationError
from braid.language import Filter
from braid.pipeline.experiments.selforganising.demand import Demand
from braid.pipeline.experiments.selforganising.network import (
    TICK_US,
    organise_point,
    schedule_of,
    settings_of,
    start_links,
)
from braid.pipeline.experiments.selforganising.organised import OrganisedNetwork
from braid.pipeline.experiments.sweep import RunTask
from braid.reconfiguration import OverlayTree, Plan
from braid.reconfiguration.exchanges import exchange_steps
from braid.workloads import workload

if TYPE_CHECKING:
    from pathlib import Path

SMALL = {"brokers": 14, "types": 8, "subscribers_per_type": 4, "loads_change_ticks": 0}
CHANGES = {"link_changes": [1_010], "processing_changes": [2_000]}
DURATION = 3_000


class Rows:
    """Takes samples as a trace does."""

    def __init__(self) -> None:
        self.links: list[tuple[Any, ...]] = []
        self.loads: list[tuple[Any, ...]] = []

    def link_sample(self, *row: Any) -> None:
        self.links.append(row)

    def broker_load(self, *row: Any, links: int) -> None:
        self.loads.append(row)


def play(policy: str, seed: int = 1, **topology: Any) -> tuple[OrganisedNetwork, Rows, Any]:
    settings = settings_of(policy, DURATION, workload=SMALL, costs=CHANGES)
    costs = schedule_of(settings, seed)
    played = workload("selforganising", seed=seed, duration_ticks=DURATION, tick_us=TICK_US, **SMALL)
    chosen = TopologySettings(policy=policy, interval_us=250 * TICK_US, **topology)
    network = OrganisedNetwork(Demand(played), costs, chosen, start_links(settings, seed, costs))
    rows = Rows()
    network.run(DURATION * TICK_US, 500 * TICK_US, rows)  # type: ignore[arg-type]
    return network, rows, (settings, costs, played)


def priced(rows: Rows, costs: Any) -> dict[str, float]:
    """Eq. 1 over samples, by kind, by a plain loop."""
    total: dict[str, float] = defaultdict(float)
    for at_us, period_us, source, target, _, kind, messages, _, _ in rows.links:
        # Samples are cut at 500 ticks and link costs change at 1,010: look only at what is not mixed.
        c = [each for since, each in costs.links if since <= at_us - period_us][-1]
        p = [each for since, each in costs.processing if since <= at_us - period_us][-1]
        left, right = int(source[1:]), int(target[1:])
        total[kind] += messages * (c[left, right] + p[right])
    return total


def literal_messages(
    network: OrganisedNetwork, settings: Any, costs: Any, played: Any, seed: int
) -> dict[tuple, int]:
    """What crosses each link, publication by publication, on the tree of its time."""
    names = network.names
    number = {name: each for each, name in enumerate(names)}
    trees = [(-1, OverlayTree([(names[a], names[b]) for a, b in start_links(settings, seed, costs)]))]
    for exchange in network.exchanges:
        steps = exchange_steps(exchange.path, exchange.removed)
        trees.append((exchange.at_us, Plan(trees[-1][1], steps).goal))
    stays = [
        (row["at_us"], row["until_us"], row["broker"], Filter(row["filter"]))
        for row in played.local("subscriptions").to_pylist()
    ]
    crossed: dict[tuple, int] = defaultdict(int)
    for row in played.local("publications").to_pylist():
        # What is published in a step is over before the turn that ends it.
        tree = [each for at_us, each in trees if at_us <= row["at_us"]][-1]
        wanted = {
            broker
            for since, until, broker, wants in stays
            if since <= row["at_us"] and (until is None or row["at_us"] < until)
            if wants.matches({"type": row["attributes"]["type"]})
        }
        links = set()
        for broker in wanted:
            path = tree.path(row["broker"], broker)
            links |= set(pairwise(path))
        for source, target in links:
            crossed[number[source], number[target]] += 1
    return crossed


@pytest.mark.parametrize("policy", ["ci", "exact"])
def test_what_crosses_links_is_what_a_plain_loop_says(policy: str) -> None:
    network, rows, (settings, costs, played) = play(policy, seed=2)
    assert network.exchanges
    found: dict[tuple, int] = defaultdict(int)
    for _, _, source, target, _, kind, messages, _, _ in rows.links:
        if kind == "publication":
            found[int(source[1:]), int(target[1:])] += messages
    assert found == literal_messages(network, settings, costs, played, 2)
    assert sum(row[4] for row in rows.loads) == played.tables["publications"].rows


@pytest.mark.parametrize("policy", ["lmst", "lmit", "ci", "exact"])
def test_every_exchange_leaves_a_tree_and_the_network_agrees(policy: str) -> None:
    network, _, (settings, costs, _) = play(policy)
    names = network.names
    tree = OverlayTree([(names[a], names[b]) for a, b in start_links(settings, 1, costs)])
    for exchange in network.exchanges:
        assert tree.path(exchange.path[0], exchange.path[-1]) == exchange.path
        assert 3 <= len(exchange.path) <= 5
        tree = Plan(tree, exchange_steps(exchange.path, exchange.removed)).goal
    assert tree == OverlayTree([(names[a], names[b]) for a, b in network.tree.links])


def test_policies_help_and_the_static_one_does_nothing() -> None:
    spent = {}
    for policy in ("static", "lmst", "lmit", "ci", "exact"):
        totals = [
            priced(rows, costs) for _, rows, (_, costs, _) in (play(policy, seed) for seed in (1, 2, 3))
        ]
        spent[policy] = sum(total["publication"] for total in totals)
        if policy == "static":
            assert all(set(total) == {"publication"} for total in totals)
        else:
            assert all({"topology_news", "link_request", "shift"} <= set(total) for total in totals)
    assert spent["exact"] < spent["ci"] < spent["static"]
    assert max(spent["lmst"], spent["lmit"]) < spent["static"]


def test_the_same_seed_gives_the_same_run() -> None:
    assert play("exact", 5)[0].exchanges == play("exact", 5)[0].exchanges


def test_a_bound_on_links_is_kept() -> None:
    free, _, _ = play("exact", 4)
    assert max(map(len, free.beside)) > 4
    start = max(map(len, play("static", 4)[0].beside))
    bounded, _, _ = play("exact", 4, degree_max=4)
    assert bounded.exchanges
    assert max(map(len, bounded.beside)) <= max(4, start)


def test_rests_damp() -> None:
    assert 0 < len(play("ci", 3, rest_intervals=6)[0].exchanges) < len(play("ci", 3)[0].exchanges)


def test_a_point_writes_a_trace_and_says_what_became_of_the_tree(tmp_path: Path) -> None:
    from braid.trace.reader import inspect

    settings = settings_of("ci", 600, workload=SMALL, start="minimum")
    summary = organise_point(RunTask(settings, 1, tmp_path, tmp_path))
    assert len(summary["links"]) == SMALL["brokers"] - 1
    assert all(file.ok for file in inspect(tmp_path))


def test_starts_are_trees_of_the_kind_that_was_asked_for() -> None:
    import networkx

    for start in ("uniform", "recursive", "minimum"):
        settings = settings_of("static", 100, workload=SMALL, start=start)
        costs = schedule_of(settings, 1)
        links = start_links(settings, 1, costs)
        graph = networkx.Graph(links)
        assert networkx.is_tree(graph)
        if start == "minimum":
            whole = networkx.Graph()
            c = costs.links[0][1]
            whole.add_weighted_edges_from((a, b, c[a, b]) for a in range(14) for b in range(a))
            cheapest = networkx.minimum_spanning_tree(whole)
            assert {frozenset(link) for link in links} == {frozenset(link) for link in cheapest.edges}


def test_an_unknown_policy_is_named() -> None:
    with pytest.raises(ConfigurationError, match="'best'"):
        TopologySettings(policy="best")


def test_chance_is_seeded() -> None:
    state = random.getstate()
    play("ci", 1)
    assert random.getstate() == state
