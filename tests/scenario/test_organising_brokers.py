"""Brokers that look for a better tree: what they see, what they say, and that they harm nobody."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from braid.adaptation.topology import TopologySettings, publication_hashes
from braid.broker.core import BrokerCore
from braid.scenario.running import SimulationSettings, _Run, simulate
from braid.scenario.tally import Untraced
from braid.sim.topologies import random_tree
from braid.workloads import workload

if TYPE_CHECKING:
    from braid.protocol import PublicationBatch

BROKERS = 9
PARAMETERS = {
    "brokers": BROKERS,
    "types": 6,
    "subscribers_per_type": 3,
    "duration_ticks": 400,
    "subscription_ticks": 1e9,
    "loads_change_ticks": 0,
}


class Watching(Untraced):
    """Remembers which publications a trace would have at each broker."""

    __slots__ = ("taken",)

    def __init__(self) -> None:
        super().__init__()
        self.taken: dict[str, set[int]] = defaultdict(set)

    def publication(
        self, at_us: int, broker: str, batch: PublicationBatch, expected: int | None = None
    ) -> None:
        self.taken[broker].update(publication_hashes(batch.publisher, batch.sequences).tolist())

    def delivery(self, at_us: int, broker: str, subscriber: str, batch: PublicationBatch) -> None:
        self.taken[broker].update(publication_hashes(batch.publisher, batch.sequences).tolist())


def costs(seed: int) -> tuple[dict[str, list[str]], np.ndarray, np.ndarray]:
    """Settings of each broker, and the same as arrays."""
    chance = np.random.default_rng(seed)
    upper = np.triu(chance.uniform(0, 10, (BROKERS, BROKERS)), 1)
    links, processing = upper + upper.T, chance.uniform(0, 10, BROKERS)
    names = [f"B{each:03d}" for each in range(BROKERS)]
    own = {
        name: {
            "topology": {
                "processing_cost": float(processing[here]),
                "link_costs": tuple(
                    f"{other}={links[here, there]}" for there, other in enumerate(names) if there != here
                ),
            }
        }
        for here, name in enumerate(names)
    }
    return own, links, processing


def run(policy: str, strategy: str = "S0", seed: int = 1, **more: Any) -> tuple[_Run, Watching]:
    own, _, _ = costs(seed)
    settings = SimulationSettings(
        topology=random_tree(BROKERS, None, seed, shape="uniform"),
        workload=workload("selforganising", seed=seed, **PARAMETERS),
        strategy=strategy,
        seed=seed,
        brokers={"topology": {"policy": policy, "interval_us": 1_000_000}},
        own_brokers=own,
        **more,
    )
    trace = Watching()
    played = _Run(settings, trace, "")
    summary = played.go(None)
    assert not summary.violations
    return played, trace


def core(played: _Run, name: str) -> BrokerCore:
    machine = played.world.host(name).machine
    assert isinstance(machine, BrokerCore)
    return machine


@pytest.mark.parametrize("strategy", ["S0", "S2", "SB"])
def test_the_cache_has_what_a_trace_has(strategy: str) -> None:
    """Batches and single publications; along the tree, over soft links and as copies for sets of brokers."""
    played, trace = run("ci", strategy)
    for name in played.network.brokers:
        organising = core(played, name)._organising
        assert organising is not None
        found = organising.organiser.cache.entries.tolist()
        assert len(found) == len(set(found))
        assert set(found) == trace.taken[name]


@pytest.mark.parametrize("policy", ["lmst", "lmit", "ci", "exact"])
def test_news_and_requests_travel_and_lead_to_proposals(policy: str) -> None:
    played, _ = run(policy)
    proposals = []
    for name in played.network.brokers:
        organising = core(played, name)._organising
        assert organising is not None
        assert organising.organiser.knows
        report = organising.report({})
        assert report["policy"] == policy
        for proposal in report["proposals"]:
            proposals.append(proposal)
            path = proposal["path"]
            # Nobody carries them out, so every path is one of the tree.
            assert played.network.path(path[0], path[-1]) == tuple(path)
            assert set(proposal["remove"]) <= set(path)
            assert proposal["add"] == [path[0], path[-1]]
    assert proposals


def test_without_a_policy_there_is_nothing_of_it() -> None:
    played, _ = run("static")
    assert core(played, "B000")._organising is None
    assert not {"topology_news", "link_request"} & set(played.trace.messages)


def test_brokers_that_crash_amid_consensus_lose_nothing() -> None:
    from braid.scenario.faults import Fault

    own, _, _ = costs(3)
    names = [f"B{each:03d}" for each in range(BROKERS)]
    summary = simulate(
        SimulationSettings(
            topology=random_tree(BROKERS, None, 3, shape="uniform"),
            workload=workload("selforganising", seed=3, **PARAMETERS),
            seed=3,
            # News every 50 ms: there is always some under way.
            brokers={"topology": {"policy": "exact", "interval_us": 50_000, "pause_intervals_max": 1}},
            own_brokers=own,
            stores=frozenset(names),
            faults=tuple(
                Fault(500_000 * (number + 1), "crash", (name,), lasts_us=300_000)
                for number, name in enumerate(names[:6])
            ),
            codec=True,
        )
    )
    assert not summary.violations
    assert summary.messages["topology_news"] > 100


@pytest.mark.parametrize("policy", ["lmst", "lmit", "ci", "exact"])
def test_brokers_and_the_faster_driver_propose_the_same(policy: str) -> None:
    """One run, both drivers: the same requests succeed, in the same order, at the same time."""
    from braid.pipeline.experiments.selforganising.demand import Demand
    from braid.pipeline.experiments.selforganising.organised import OrganisedNetwork
    from braid.workloads.selforganising_costs import CostSchedule

    seed, interval_us = 5, 1_000_000
    # So few publications are worth an exchange only in the long run.
    chosen = {
        "policy": policy,
        "interval_us": interval_us,
        "horizon_intervals": 100.0,
        "pause_intervals_max": 1,
    }
    own, links, processing = costs(seed)
    # Every link has its own latency, a few microseconds, so that no two requests come at the same time.
    network = random_tree(BROKERS, None, seed, shape="uniform")
    pairs = {frozenset(ends): 2 + 3 * place for place, ends in enumerate(network.links)}

    class Few:
        def latency_us(self, source: str, target: str) -> int:
            return pairs.get(frozenset((source, target)), 1)

    topology = replace(network, latencies=Few())
    played = workload("selforganising", seed=seed, **PARAMETERS)
    settings = SimulationSettings(
        topology=topology,
        workload=played,
        seed=seed,
        brokers={"topology": chosen},
        own_brokers=own,
    )
    simulated = _Run(settings, Watching(), "")
    simulated.go(None)
    start_us, duration_us = simulated.start_us, 400 * 10_000
    found, turns_us = [], []
    for name in network.brokers:
        organising = core(simulated, name)._organising
        assert organising is not None
        assert organising.due_us is not None
        turns_us.append((organising.due_us - start_us) % interval_us)
        found += [
            (at_us - start_us, *exchange.path, exchange.removed) for at_us, exchange in organising.proposals
        ]
    modelled = OrganisedNetwork(
        Demand(played),
        CostSchedule([(0, links)], [(0, processing)]),
        TopologySettings(**chosen),
        [(int(left[1:]), int(right[1:])) for left, right in network.links],
        turns_us=turns_us,
        apply=False,
        latency_us=topology.latency_us,
    )
    modelled.run(duration_us, interval_us, warm_up_us=start_us)
    expected = [(each.at_us, *each.path, each.removed) for each in modelled.exchanges]
    late_us = 1_000  # for news and request on their way
    simulated_only = [proposal[1:] for proposal in sorted(found) if 0 <= proposal[0] < duration_us - late_us]
    assert simulated_only == [
        proposal[1:] for proposal in expected if 0 <= proposal[0] < duration_us - late_us
    ]
    assert simulated_only or policy == "lmst"
