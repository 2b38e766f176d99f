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
    """Remembers which publications a trace would have at each broker, and how many crossed each link."""

    __slots__ = ("crossed", "taken")

    def __init__(self) -> None:
        super().__init__()
        self.taken: dict[str, set[int]] = defaultdict(set)
        self.crossed: dict[tuple[str, str], int] = defaultdict(int)

    def _row(self, kind: str, at_us: int, *values: Any) -> None:
        super()._row(kind, at_us, *values)
        if kind == "link_sample" and values[4] == "publication":
            self.crossed[values[1], values[2]] += values[5]

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
        organising = core(played, name)._topology.organising
        assert organising is not None
        found = organising.organiser.cache.entries.tolist()
        assert len(found) == len(set(found))
        assert set(found) == trace.taken[name]


@pytest.mark.parametrize("policy", ["lmst", "lmit", "ci", "exact"])
def test_news_and_requests_travel_and_lead_to_proposals(policy: str) -> None:
    played, _ = run(policy)
    proposals = []
    for name in played.network.brokers:
        organising = core(played, name)._topology.organising
        assert organising is not None
        assert organising.organiser.knows
        report = core(played, name)._topology.choose({})
        assert report["policy"] == policy
        for proposal in report["proposals"]:
            proposals.append(proposal)
            path = proposal["path"]
            assert set(proposal["remove"]) <= set(path)
            assert proposal["add"] == [path[0], path[-1]]
    assert proposals


def test_without_a_policy_there_is_nothing_of_it() -> None:
    played, _ = run("static")
    assert core(played, "B000")._topology.organising is None
    assert not {"topology_news", "link_request"} & set(played.trace.messages)


def test_brokers_that_crash_amid_consensus_and_exchanges_lose_nothing() -> None:
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
    assert summary.messages["exchange_end"] > 0


@pytest.mark.parametrize("policy", ["lmst", "lmit", "ci", "exact"])
def test_brokers_and_the_faster_driver_propose_the_same(policy: str) -> None:
    """One run, both drivers: the same exchanges, in the same order, at the same time, and the same tree."""
    from braid.pipeline.experiments.selforganising.demand import Demand
    from braid.pipeline.experiments.selforganising.organised import OrganisedNetwork
    from braid.workloads.selforganising_costs import CostSchedule

    # So long that an exchange is over before the next broker has its turn, as it is at once in the model.
    seed, interval_us, ticks = 5, 10_000_000, 2_000
    # So few publications are worth an exchange only in the long run.
    chosen = {
        "policy": policy,
        "interval_us": interval_us,
        "horizon_intervals": 100.0,
        "pause_intervals_max": 1,
    }
    own, links, processing = costs(seed)
    # Every pair has its own latency, a few microseconds, so that no two requests come at the same time.
    network = random_tree(BROKERS, None, seed, shape="uniform")
    order = np.random.default_rng(seed).permutation(BROKERS * BROKERS).reshape(BROKERS, BROKERS)

    class Few:
        def latency_us(self, source: str, target: str) -> int:
            return 2 + 3 * int(order[tuple(sorted((int(source[1:]), int(target[1:]))))])

    topology = replace(network, latencies=Few())
    played = workload("selforganising", seed=seed, **{**PARAMETERS, "duration_ticks": ticks})
    settings = SimulationSettings(
        topology=topology,
        workload=played,
        seed=seed,
        # A SHIFT waits for acknowledgements.
        brokers={"topology": chosen, "link": {"acknowledge_delay_us": 1_000}},
        own_brokers=own,
    )
    trace = Watching()
    simulated = _Run(settings, trace, "")
    simulated.go(None)
    start_us, duration_us = simulated.start_us, ticks * 10_000
    found, turns_us = [], []
    for name in network.brokers:
        organising = core(simulated, name)._topology.organising
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
        apply=True,
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
    # Brokers carried out what they agreed on, as the model does, also what they did after its end.
    tree = {frozenset(link) for link in network.links}
    for _, *path, removed in sorted(found):
        tree ^= {frozenset((path[removed], path[removed + 1])), frozenset((path[0], path[-1]))}
    linked = {
        frozenset((name, other)) for name in network.brokers for other in core(simulated, name)._links.links
    }
    assert linked == tree
    # And so it cost the same; what is published amid an exchange may go either way.
    priced = {
        (source, target): links[source, target] + processing[target]
        for source in range(BROKERS)
        for target in range(BROKERS)
    }
    by_model: dict[tuple[int, int], int] = defaultdict(int)
    for (source, target, kind), count in modelled._counts.messages.items():
        if kind == "publication":
            by_model[source, target] += count
    by_brokers = {(int(one[1:]), int(other[1:])): count for (one, other), count in trace.crossed.items()}
    total = sum(count * priced[link] for link, count in by_model.items())
    assert total > 0
    different = sum(
        abs(by_model.get(link, 0) - by_brokers.get(link, 0)) * priced[link]
        for link in by_model.keys() | by_brokers.keys()
    )
    assert different <= 0.005 * total
