"""The infrastructure-free experiments: simulated peers against the plain loop, and rows from their traces."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from braid.language import Filter
from braid.p2p.dht.messages import Beat, Confirmed, Numbered, Routed
from braid.p2p.dmm.messages import Beacon, Content, Multicast
from braid.pipeline.experiments.infrastructurefree.failures import recovery_s
from braid.pipeline.experiments.infrastructurefree.latency import warm_up_s
from braid.pipeline.experiments.infrastructurefree.network import BEST, peers_point, settings_of
from braid.pipeline.experiments.infrastructurefree.simulated import KINDS, message_kind
from braid.pipeline.experiments.registry import registered
from braid.pipeline.experiments.reproduce import reproduce
from braid.pipeline.experiments.sweep import Point, RunTask
from braid.trace.reader import read_table
from braid.workloads import workload

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

SMALL: dict[str, Any] = {"peers": 60, "publishers": 10, "subscriptions": 80, "publish_s": 20.0}


def delivered(folder: Path) -> set[tuple[str, int, str]]:
    rows = read_table(folder, "delivery").to_pylist()
    found = [(row["publisher"], row["sequence"], row["broker"]) for row in rows]
    assert len(found) == len(set(found)), "something was delivered twice"
    return set(found)


def wanted(zipf: bool = False) -> set[tuple[str, int, str]]:
    """Every delivery that should be, by evaluating every filter on every publication."""
    played = workload(f"infrastructurefree.{'zipf' if zipf else 'uniform'}", seed=1, body_bytes=0, **SMALL)
    filters = [(row["broker"], Filter(row["filter"])) for row in played.local("subscriptions").to_pylist()]
    found = set()
    for row in played.local("publications").to_pylist():
        attributes = {name: value["low"] for name, value in row["attributes"].items() if value is not None}
        for broker, condition in filters:
            if condition.matches(attributes):
                found.add((row["client"], row["sequence"], broker))
    return found


@pytest.mark.parametrize(
    "chosen",
    [
        {},
        {"tree_cache": False},
        {"algorithm": "DMM", "split_threshold": 20},
        {"zipf": True, **BEST},
        {"joins": True},
        {"algorithm": "Hermes"},
        {"algorithm": "DMM", "split_threshold": 20, "lookup": "root", "tree_cache": False},
    ],
)
def test_all_that_is_wanted_is_delivered_once(tmp_path: Path, chosen: dict[str, Any]) -> None:
    settings = settings_of(**SMALL, loss=0.0, **chosen)
    summary = peers_point(RunTask(settings, 1, tmp_path, tmp_path))
    expected = wanted(settings["zipf"])
    assert delivered(tmp_path) == expected
    published = read_table(tmp_path, "publication").to_pylist()
    assert sum(row["expected"] for row in published) == len(expected) <= summary["matches"]
    sent = read_table(tmp_path, "link_sample").to_pylist()
    for kind in KINDS.values():
        assert sum(row["messages"] for row in sent if row["kind"] == kind) == summary["messages"][kind]
    state = read_table(tmp_path, "peer_state").to_pylist()
    assert len(state) == SMALL["peers"]
    # What another subscription covers does not get as far as the rendezvous peer of Hermes.
    least = SMALL["subscriptions"] * (0.5 if settings["algorithm"] == "Hermes" else 1)
    assert sum(row["leaf"] for row in state) >= least


def test_ranges_are_matched_in_every_leaf_that_they_meet(tmp_path: Path) -> None:
    visited = {}
    for width in (0, 120):
        small = {**SMALL, "workload": {"publication_width": width}, "split_threshold": 10}
        settings = settings_of(**small, loss=0.0, **BEST)
        folder = tmp_path / str(width)
        summary = peers_point(RunTask(settings, 1, folder, folder))
        expected = sum(row["expected"] for row in read_table(folder, "publication").to_pylist())
        assert len(delivered(folder)) == expected > 0
        visited[width] = summary["regions_visited"]
    assert visited[120] > visited[0] > 0


def test_hops_are_counted_along_the_way(tmp_path: Path) -> None:
    peers_point(RunTask(settings_of(**SMALL, loss=0.0), 1, tmp_path, tmp_path))
    hops = {row["hops"] for row in read_table(tmp_path, "delivery").to_pylist()}
    # To the space of an attribute, to the region, and back along two trees, of one hop each at least.
    assert min(hops) >= 0
    assert 3 <= max(hops) < 200


def test_filters_of_a_given_number_of_predicates() -> None:
    played = workload(
        "infrastructurefree.uniform",
        seed=1,
        body_bytes=0,
        **SMALL,
        predicates=4,
        narrow=1,
        published=10,
    )
    for row in played.local("subscriptions").to_pylist():
        assert row["filter"].count("BETWEEN") == 4
        assert row["filter"].count("BETWEEN 1 AND 256") >= 3
    for row in played.local("publications").to_pylist():
        assert all(value is not None for value in row["attributes"].values())


def test_what_is_lost_shows(tmp_path: Path) -> None:
    peers_point(RunTask(settings_of(**SMALL, loss=0.2), 1, tmp_path, tmp_path))
    found, expected = delivered(tmp_path), wanted()
    assert found < expected
    assert len(found) < 0.9 * len(expected)


def test_crashed_peers_are_not_waited_for(tmp_path: Path) -> None:
    settings = settings_of(**{**SMALL, "publish_s": 60.0}, loss=0.0, crash=12, crash_at_s=60.0, **BEST)
    summary = peers_point(RunTask(settings, 1, tmp_path, tmp_path))
    published = read_table(tmp_path, "publication").to_pylist()
    late = {
        (row["publisher"], row["sequence"]): row["expected"]
        for row in published
        if row["at_us"] >= summary["crash_us"] + 25_000_000
    }
    got = dict.fromkeys(late, 0)
    for publisher, sequence, _ in delivered(tmp_path):
        if (publisher, sequence) in got:
            got[publisher, sequence] += 1
    assert late
    assert got == late


def test_messages_count_as_what_they_carry() -> None:
    content = Content("p", 1, {}, 0)
    carried = Multicast("space", content)
    for message, kind in (
        (carried, "publication"),
        (Routed(b"key", carried), "publication"),
        (Numbered(1, Routed(b"key", carried)), "publication"),
        (Beacon([]), "subscription"),
        (Confirmed(1), "acknowledgement"),
        (Beat(), "overlay"),
    ):
        assert KINDS[message_kind(message)] == kind


def test_times_of_warming_up_and_recovery() -> None:
    assert warm_up_s([(0, 15.0), (5, 12.0), (10, 9.0), (15, 3.2), (50, 3.0), (90, 3.0)]) == 15.0
    assert warm_up_s([(0, 3.0), (50, 3.0)]) == 0.0
    steady = [(float(second), 1.0) for second in range(-20, 40, 5)]
    assert recovery_s(steady) == 0.0
    hurt = [(second, 0.7 if 0 <= second < 20 else ratio) for second, ratio in steady]
    assert recovery_s(hurt) == 20.0
    assert recovery_s([*hurt, (100.0, 0.9), (105.0, 1.0)]) == 105.0
    assert recovery_s([*hurt, (100.0, 0.9)]) is None


def test_rows_come_from_traces(spark: SparkSession, tmp_path: Path) -> None:
    points = [Point(settings_of(**SMALL, loss=0.0, tree_cache=cache), 1) for cache in (True, False)]
    found: dict[tuple[str, bool, str], float] = {}
    for name in ("messages", "latency", "delivery", "state"):
        small = replace(registered()[f"infrastructure-free.{name}"], points=lambda plan: points)
        for row in reproduce(spark, small, seeds=1, out=tmp_path).rows:
            about = str(row.labels.get("kind") or row.labels.get("window") or row.labels.get("state") or "")
            found[row.metric, bool(row.labels["tree_cache"]), about] = row.measured
    for cache in (True, False):
        assert found["delivery_ratio", cache, ""] == 1.0
        assert 0.9 < found["ordering_degree", cache, ""] <= 1
        every = found["messages", cache, "all"]
        assert every == sum(found.get(("messages", cache, kind), 0) for kind in KINDS.values())
        assert found["messages_per_match", cache, ""] > 1
        assert found["state_mean", cache, "total"] == pytest.approx(
            found["state_mean", cache, "leaf"] + found["state_mean", cache, "tree"]
        )
    assert 0 < found["mean_latency_s", True, "from_cold"] <= found["mean_latency_s", False, "from_cold"]


def test_the_experiments_that_must_be_there() -> None:
    names = ("delivery", "messages", "latency", "failures", "state", "hermes", "hops", "skew", "dimensions")
    names += ("ranges", "roots")
    assert {f"infrastructure-free.{name}" for name in names} <= set(registered())
