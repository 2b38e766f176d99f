"""Does a simulated network carry what it should, over the links it should?"""

from __future__ import annotations

import os
import random
import subprocess
import sys
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from braid.errors import ConfigurationError
from braid.scenario.faults import Fault
from braid.scenario.running import SimulationSettings, SimulationSummary, simulate
from braid.scenario.workload import (
    MemoryWorkload,
    PublicationFeed,
    PublicationRow,
    SubscriptionRow,
    publication_plan,
)
from braid.sim import LinkModel, NodeModel
from braid.sim.topologies import Topology, line, random_tree, star
from braid.trace import read_table


def zipf_classes(
    network: Topology, *, publications: int, matching: float, seed: int, gap_us: int = 20_000
) -> MemoryWorkload:
    """Half of the brokers subscribe, half publish; popularity of classes follows Zipf with exponent 1.2."""
    chance = random.Random(f"{seed}/zipf")
    brokers = list(network.brokers)
    chance.shuffle(brokers)
    half = len(brokers) // 2
    publishers, subscribers = sorted(brokers[:half]), sorted(brokers[half:])
    weights = [rank**-1.2 for rank in range(1, half + 1)]
    scale = matching * half / sum(weights)
    subscriptions = []
    for number, weight in enumerate(weights):
        size = min(len(subscribers), scale * weight)
        subscriptions += [
            SubscriptionRow(broker, f"s-{broker}", f"c{number}", f"class = {number}")
            for broker in sorted(chance.sample(subscribers, int(size) + (chance.random() < size % 1)))
        ]
    rows = []
    for number in range(publications):
        broker = chance.choice(publishers)
        rows.append(PublicationRow(number * gap_us, broker, f"p-{broker}", {"class": chance.randrange(half)}))
    return MemoryWorkload(subscriptions, rows, "zipf")


def smallest_subtree(network: Topology, source: str, targets: set[str]) -> set[tuple[str, str]]:
    """The links that every way from the source to a target is made of, found path by path."""
    links = set()
    for target in targets:
        path = network.path(source, target)
        links.update(pairwise(path))
    return links


def wanted_by(work: MemoryWorkload, row: PublicationRow) -> set[str]:
    return {each.broker for each in work.subscriptions if each.filter == f"class = {row.attributes['class']}"}


def run(
    network: Topology, work: MemoryWorkload, out: Path | None = None, **settings: Any
) -> SimulationSummary:
    return simulate(SimulationSettings(topology=network, workload=work, **settings), out)


@pytest.mark.parametrize("network", [random_tree(24, 3, 1), line(7), star(9)], ids=lambda each: each.name)
def test_publications_cross_the_smallest_subtree_and_no_other_link(network: Topology, tmp_path: Path) -> None:
    work = zipf_classes(network, publications=120, matching=len(network.brokers) / 8, seed=1)
    summary = run(network, work, tmp_path, seed=3)
    assert summary.violations == ()
    assert summary.warnings == ()
    sequence: dict[str, int] = {}
    hops, deliveries, expected = set(), set(), []
    for row in work.publications:
        number = sequence[row.client] = sequence.get(row.client, 0) + 1
        targets = wanted_by(work, row)
        hops |= {(row.client, number, *link) for link in smallest_subtree(network, row.broker, targets)}
        deliveries |= {(row.client, number, target) for target in targets}
        expected.append(len(targets))
    seen = read_table(tmp_path, "hop").select(["publisher", "sequence", "source", "target"])
    assert sorted(zip(*seen.to_pydict().values(), strict=True)) == sorted(hops)
    seen = read_table(tmp_path, "delivery").select(["publisher", "sequence", "broker"])
    assert sorted(zip(*seen.to_pydict().values(), strict=True)) == sorted(deliveries)
    published = read_table(tmp_path, "publication").sort_by("at_us")
    assert published.column("expected").to_pylist() == expected
    assert summary.hops == len(hops)
    assert summary.deliveries == len(deliveries)
    assert summary.publications == len(work.publications)
    reached_by_link = {
        (publisher, number, target)
        for publisher, number, _, target in hops
        if (publisher, number, target) in deliveries
    }
    assert summary.matched_hops == len(reached_by_link)
    assert summary.pure_forwards == len(hops) - len(reached_by_link)
    assert summary.system_yield == pytest.approx(len(reached_by_link) / len(hops))


def test_how_it_is_computed_changes_nothing_that_is_seen(tmp_path: Path) -> None:
    network = random_tree(10, 3, 2)
    work = zipf_classes(network, publications=40, matching=2, seed=2)
    traces = []
    for number, settings in enumerate(({}, {"shared_matching": False}, {"codec": True}, {"checkers": False})):
        run(network, work, tmp_path / str(number), **settings)
        traces.append(
            {kind: read_table(tmp_path / str(number), kind).to_pylist() for kind in ("hop", "delivery")}
        )
    assert all(trace == traces[0] for trace in traces)
    untraced = run(network, work)
    assert untraced.hops == len(traces[0]["hop"])
    assert untraced.deliveries == len(traces[0]["delivery"])


def test_several_clients_of_a_broker_are_one_arrival(tmp_path: Path) -> None:
    work = MemoryWorkload(
        [
            SubscriptionRow("B001", "ann", "k", "x > 0"),
            SubscriptionRow("B001", "bob", "k", "x > 1"),
            SubscriptionRow("B000", "near", "k", "x > 0"),
        ],
        [PublicationRow(1_000 * number, "B000", "pub", {"x": number}) for number in range(4)],
    )
    summary = run(line(2), work, tmp_path)
    assert summary.deliveries == 3 + 2 + 3
    assert summary.hops == 3
    assert summary.matched_hops == 3
    assert summary.system_yield == 1.0
    assert summary.clients == 4


def test_subscriptions_come_and_go() -> None:
    work = MemoryWorkload(
        [
            SubscriptionRow("B002", "late", "k", "TRUE", at_us=5_000_000),
            SubscriptionRow("B002", "early", "k", "TRUE", until_us=5_000_000),
        ],
        [PublicationRow(1_000_000 * number + 500_000, "B000", "pub", {"x": 1}) for number in range(10)],
    )
    summary = run(line(3), work)
    assert summary.violations == ()
    assert summary.deliveries == 5 + 5


def test_clients_of_the_same_name_are_told_apart(tmp_path: Path) -> None:
    work = MemoryWorkload(
        [SubscriptionRow("B001", "c", "k", "TRUE")],
        [
            PublicationRow(0, "B000", "c", {"x": 1}),
            PublicationRow(0, "B002", "c", {"x": 2}),
            PublicationRow(0, "B002", "B000", {"x": 3}),
        ],
    )
    summary = run(line(3), work, tmp_path)
    assert summary.deliveries == 3
    publishers = read_table(tmp_path, "publication").column("publisher").to_pylist()
    assert sorted(publishers) == ["B000@B002", "c@B000", "c@B002"]


def test_only_as_long_as_asked() -> None:
    work = MemoryWorkload(
        [SubscriptionRow("B001", "sub", "k", "TRUE")],
        [PublicationRow(1_000_000 * number, "B000", "pub", {"x": number}) for number in range(100)],
    )
    summary = run(line(2), work, publish_us=10_000_000, drain_us=1_000_000)
    assert summary.publications == 10
    assert summary.virtual_s == pytest.approx(summary.start_us / 1e6 + 10 + 1)


def test_latencies_come_from_the_topology_or_the_settings(tmp_path: Path) -> None:
    work = MemoryWorkload(
        [SubscriptionRow("B002", "sub", "k", "TRUE")], [PublicationRow(0, "B000", "pub", {"x": 1})]
    )
    for number, (network, latency_us, expected) in enumerate(
        [(line(3, latency_us=7_000), None, 14_000), (line(3), 20_000, 40_000)]
    ):
        run(network, work, tmp_path / str(number), latency_us=latency_us)
        sent = read_table(tmp_path / str(number), "publication").column("at_us")[0].as_py()
        came = read_table(tmp_path / str(number), "delivery").column("at_us")[0].as_py()
        assert came - sent == expected


def test_costs_and_uplinks_take_time(tmp_path: Path) -> None:
    work = MemoryWorkload(
        [SubscriptionRow("B001", "sub", "k", "TRUE")],
        [PublicationRow(0, "B000", "pub", {"x": number}) for number in range(20)],
    )

    def last_us(folder: str, **settings: Any) -> int:
        run(line(2), work, tmp_path / folder, **settings)
        return max(read_table(tmp_path / folder, "delivery").column("at_us").to_pylist())

    quick = last_us("quick")
    assert last_us("busy", node=NodeModel(cost_us={"publication": 10_000})) >= quick + 200_000
    own = {"B000": NodeModel(uplink_messages_per_s=10)}
    assert last_us("narrow", own_nodes=own) >= quick + 1_500_000
    assert last_us("thin", link=LinkModel(bandwidth_bytes_per_s=1_000)) > quick + 500_000


def test_a_partition_that_heals_loses_nothing(tmp_path: Path) -> None:
    work = MemoryWorkload(
        [SubscriptionRow("B002", "sub", "k", "TRUE")],
        [PublicationRow(100_000 * number, "B000", "pub", {"x": number}) for number in range(100)],
    )
    fault = Fault(2_000_000, "partition", ("B000", "B001"), lasts_us=3_000_000)
    summary = run(line(3), work, tmp_path, faults=(fault,), drain_us=20_000_000)
    assert summary.violations == ()
    assert summary.deliveries == 100
    assert summary.faults == 2
    assert read_table(tmp_path, "fault").column("fault").to_pylist() == ["partition", "repair"]


def test_a_crashed_broker_comes_back() -> None:
    work = MemoryWorkload(
        [SubscriptionRow("B002", "sub", "k", "TRUE")],
        [PublicationRow(100_000 * number, "B000", "pub", {"x": number}) for number in range(200)],
    )
    fault = Fault(5_000_000, "crash", ("B001",), lasts_us=2_000_000)
    summary = run(line(3), work, faults=(fault,), stores=frozenset({"B001"}), drain_us=20_000_000)
    assert summary.violations == ()
    assert 150 < summary.deliveries <= 200


def work_at_the_end() -> MemoryWorkload:
    return MemoryWorkload([SubscriptionRow("B002", "sub", "k", "TRUE")], [])


def test_a_warm_up_that_is_too_short_is_noticed() -> None:
    work = MemoryWorkload([SubscriptionRow("B005", "sub", "k", "TRUE")], [])
    slow = run(line(6, latency_us=500_000), work, warm_up_us=100_000)
    assert "1 of 1 clients were not connected and subscribed" in slow.warnings[0]
    down = run(
        line(3), work_at_the_end(), faults=(Fault(-1_000_000, "crash", ("B001",), lasts_us=2_000_000),)
    )
    assert "2 of 3 brokers were not linked" in down.warnings[0]


def test_a_filter_that_is_refused_is_told() -> None:
    work = MemoryWorkload([SubscriptionRow("B000", "sub", "k", "price >")], [])
    assert "B000 refused something to sub" in " ".join(run(line(2), work).warnings)


SOFT = {"fanout": 8, "review_us": 1_000_000}


def test_every_strategy_delivers_the_same_with_fewer_messages() -> None:
    network = random_tree(24, 3, 1)
    work = zipf_classes(network, publications=300, matching=4, seed=1)
    found = {
        strategy: run(network, work, seed=3, strategy=strategy, brokers={"soft_links": SOFT})
        for strategy in ("S0", "S1", "S2", "SH", "SB")
    }
    for strategy, summary in found.items():
        assert summary.violations == (), strategy
        assert summary.warnings == ()
        assert summary.deliveries == found["S0"].deliveries
        assert summary.strategy == strategy
        assert summary.duplicates == 0
    hops = {strategy: summary.hops for strategy, summary in found.items()}
    assert hops["SB"] < hops["S2"] == hops["SH"] < hops["S1"] < hops["S0"]
    assert not found["S0"].soft_links
    for name, links in found["S2"].soft_links.items():
        assert links == tuple(sorted(links))
        assert not set(links) & {name, *network.neighbours[name]}
        assert len(links) + len(network.neighbours[name]) <= 8


def test_single_brokers_may_have_a_strategy_and_settings_of_their_own() -> None:
    network = line(8)
    work = MemoryWorkload(
        [SubscriptionRow("B007", "sub", "k", "TRUE")],
        [PublicationRow(10_000 * number, "B000", "pub", {"x": number}) for number in range(600)],
    )
    only = {"B000": {"strategy": "S2", "delta": 4, "soft_links": {"fanout": 2}}}
    summary = run(network, work, brokers={"soft_links": SOFT, "delta": 4}, own_brokers=only)
    assert list(summary.soft_links) == ["B000"]
    assert len(summary.soft_links["B000"]) == 1
    assert (summary.violations, summary.deliveries) == ((), 600)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"strategy": "S9"}, "one of S0, S1, S2, SH, SB, not 'S9'"),
        ({"drain_us": -1}, "drain_us is at least 0"),
        ({"topology": "C9"}, "no topology 'C9'"),
        ({"topology": line(1)}, "client 'sub' at 'B001', which is no broker of line-1"),
        ({"brokers": {"heartbeats": 1}}, "no setting 'heartbeats'"),
        ({"brokers": {"broker_id": "X"}}, "follows from the topology"),
        ({"brokers": {"soft_links": {"fan": 1}}}, "soft_links has no setting 'fan'; it has advantage"),
        ({"strategy": "S2", "brokers": {"delta": 1}}, "S2 needs to see further"),
        ({"stores": frozenset({"B077"})}, "'B077', which is no broker"),
        ({"faults": (Fault(0, "crash", ("B077",)),)}, "B077"),
        ({"workload": "/nowhere/at/all"}, "holds no workload"),
    ],
)
def test_settings_that_do_not_fit_are_refused(settings: dict[str, Any], message: str) -> None:
    work = MemoryWorkload([SubscriptionRow("B001", "sub", "k", "TRUE")], [])
    with pytest.raises(ConfigurationError, match=message):
        simulate(SimulationSettings(**({"topology": line(2), "workload": work} | settings)))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((0, "quake", ("A",)), "no fault 'quake'"),
        ((0, "crash", ("A", "B")), "about one broker"),
        ((0, "partition", ("A", "A")), "different ones"),
        ((0, "hold", (("A", "B"), "C")), "about two brokers"),
        ((0, "lose", ("A", "B")), "needs 'count'"),
        ((0, "crash", ("A",), {"count": 1}), "takes silent, not 'count'"),
        ((0, "repair", ("A", "B"), {}, 5), "cannot last"),
    ],
)
def test_faults_that_cannot_be_are_refused(arguments: tuple[Any, ...], message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        Fault(*arguments)


def test_publications_out_of_order_are_refused() -> None:
    rows = [PublicationRow(5, "B000", "p", {}), PublicationRow(4, "B000", "p", {})]
    with pytest.raises(ConfigurationError, match="order of their times"):
        MemoryWorkload([], rows)


def test_a_workload_is_read_only_as_far_as_somebody_has_come() -> None:
    rows = [PublicationRow(number, "B000", f"c{number % 3}", {"x": number}) for number in range(30_000)]
    rows.append(PublicationRow(30_000, "B000", "rare", {"x": 0}))
    work = MemoryWorkload([], rows)
    counts, last_us = publication_plan(work, None)
    assert last_us == 30_000
    assert counts["B000", "rare"] == 1
    read = []
    feed = PublicationFeed(work, counts, 1_000, lambda records: read.append(len(records)))
    assert next(feed.of(("B000", "c1")))[0] == 1_001
    assert sum(read) < 5_000
    assert list(feed.of(("B000", "nobody"))) == []
    assert [at_us for at_us, _ in feed.of(("B000", "rare"))] == [31_000]
    assert publication_plan(work, 10)[0].total() == 10


REPEAT = """
import hashlib, sys, tempfile
from pathlib import Path
from tests.scenario.test_running import run, zipf_classes
from braid.scenario.faults import Fault
from braid.sim.topologies import random_tree

network = random_tree(12, 3, 5)
work = zipf_classes(network, publications=60, matching=3, seed=5)
with tempfile.TemporaryDirectory() as folder:
    run(network, work, Path(folder), seed=9, faults=(Fault(300_000, "crash", ("B003",), lasts_us=200_000),))
    for path in sorted(Path(folder).rglob("*.parquet")):
        print(path.relative_to(folder), hashlib.sha256(path.read_bytes()).hexdigest())
"""


def test_the_same_seed_gives_the_same_trace_to_the_byte() -> None:
    printed = {
        subprocess.run(
            [sys.executable, "-c", REPEAT],
            env=os.environ | {"PYTHONHASHSEED": hash_seed},
            cwd=Path(__file__).parents[2],
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for hash_seed in ("0", "1234")
    }
    assert len(printed) == 1
    assert "hop/" in printed.pop()


def test_progress_is_told() -> None:
    told: list[float] = []
    work = MemoryWorkload([SubscriptionRow("B001", "sub", "k", "TRUE")], [])
    simulate(SimulationSettings(topology=line(2), workload=work), None, told.append)
    assert told == sorted(told)
    assert told[-1] == 1.0
