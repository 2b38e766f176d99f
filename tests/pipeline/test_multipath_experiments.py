"""Do the experiments of the multipath paper go all the way, on networks small enough for a test?"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from braid.errors import ConfigurationError
from braid.language import Filter
from braid.pipeline.experiments.multipath import (
    covering,
    delay,
    hops,
    network,
    overhead,
    paths,
    planetlab,
    social,
    table2,
    throughput,
    traffic,
    uplink,
)
from braid.pipeline.experiments.multipath.measures import Period, curve, summed
from braid.pipeline.experiments.multipath.network import PromiseBrokenError, simulate_point, watched_point
from braid.pipeline.experiments.reproduce import reproduce
from braid.pipeline.experiments.sweep import Point, RunTask
from braid.routing.covering_set import CoveringSet
from braid.workloads.datasets import MESSAGES, dataset

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from pyspark.sql import SparkSession

    from braid.pipeline.experiments.registry import Experiment, Plan
    from braid.pipeline.experiments.reproduce import Result

DURATION_S = 9.0
SHRUNK = {"brokers": 21, "publishers": 6, "subscribers": 12}
CLASSES = {"classes": 12, "matching_mean": 3.0, "rate_per_minute": 600.0}


def small(settings: Mapping[str, Any]) -> dict[str, Any]:
    """The same on the paper's smallest network, with few publications."""
    workload = dict(settings["workload"])
    if settings["dataset"] == "DT-FB":
        workload |= {"brokers": 21, "rate_per_minute": 600.0}
    elif settings["dataset"] == "DT-C":
        workload |= {**SHRUNK, "subscriptions": 60, "duration_s": 3.0}
    else:
        workload |= SHRUNK | CLASSES
    workload["duration_s"] = min(workload["duration_s"], DURATION_S)
    return {**settings, "configuration": "CPL", "workload": workload}


def reproduced(
    spark: SparkSession, experiment: Experiment, out: Path, monkeypatch: pytest.MonkeyPatch, module: Any
) -> Result:
    for name in ("DURATIONS_S", "_DURATIONS_S"):
        if hasattr(module, name):
            monkeypatch.setitem(getattr(module, name), "quick", DURATION_S)
    monkeypatch.setattr(network, "WATCHED_S", 4.0)

    def points(plan: Plan) -> list[Point]:
        chosen = [(point, small(point.settings)) for point in experiment.points(plan)]
        return [Point(settings, point.seed) for point, settings in chosen]

    return reproduce(spark, replace(experiment, points=points), seeds=1, out=out)


def values(result: Result, metric: str, by: str = "strategy", **labels: object) -> dict[Any, float]:
    return {
        row.labels[by]: row.measured
        for row in result.rows
        if row.metric == metric and all(row.labels.get(name) == value for name, value in labels.items())
    }


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One folder for all of them, so that runs that several experiments share are done once."""
    return tmp_path_factory.mktemp("multipath")


@pytest.mark.slow
def test_table_2(spark: SparkSession, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    result = reproduced(spark, table2.EXPERIMENT, folder, monkeypatch, table2)
    at = {"dataset": "DT2", "fanout": 35}
    converged = values(result, "yield", window="converged", **at)
    assert list(converged) == ["S0", "S1", "S2", "SH", "SB"]
    assert converged["S0"] < converged["S1"] <= converged["S2"] == converged["SH"] < converged["SB"]
    cold = values(result, "yield", window="from_cold", **at)
    assert cold["S2"] < converged["S2"]
    # Reviews are a second apart at least, so both paces are the same here.
    slowly = values(result, "yield", window="from_cold_slowly", dataset="DT1")
    assert list(slowly) == ["S1", "S2"]
    assert slowly["S2"] <= values(result, "yield", window="from_cold", dataset="DT1", fanout=35)["S2"]
    assert set(values(result, "duplicates", window="converged", **at).values()) == {0}
    deliveries = values(result, "deliveries", window="from_cold", **at)
    assert len(set(deliveries.values())) == 1, "every strategy delivers the same"
    messages = values(result, "messages", window="from_cold", **at)
    pure = values(result, "pure_forwarders", window="from_cold", **at)
    for strategy, count in messages.items():
        assert count == pytest.approx(deliveries[strategy] + pure[strategy], rel=1e-5)
        assert cold[strategy] == pytest.approx(deliveries[strategy] / count, rel=1e-4)
    hops_means = values(result, "mean_hops", window="converged", **at)
    assert hops_means["SB"] < hops_means["S2"] < hops_means["S1"] < hops_means["S0"]
    assert 2 <= values(result, "header_bytes_per_message", **at)["SB"] <= 60
    assert 0 < values(result, "link_state_bytes_share", window="from_cold", **at)["SB"] < 0.6
    matchings = values(result, "table_matchings_per_publication", **at)
    assert matchings["SB"] == 1 < matchings["S2"] < matchings["S0"]
    for fanout in (10, 35):
        links = values(result, "links_max", dataset="DT2", fanout=fanout)
        assert 0 < max(links.values()) <= fanout
    told = values(result, "filters_told")
    assert told["S0"] <= told["S2"] <= told["SB"]
    assert [chart.name for chart in result.charts][-2:] == ["yield_over_time_DT1", "yield_over_time_DT2"]
    assert {row.paper_value for row in result.rows if row.metric == "yield"} >= {0.38, 0.61, 0.77}


@pytest.mark.slow
def test_what_else_the_same_runs_say(
    spark: SparkSession, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = reproduced(spark, hops.EXPERIMENT, folder, monkeypatch, table2)
    shares = values(found, "share_up_to_4_hops", dataset="DT1", window="converged")
    assert shares["S0"] < shares["S2"] <= shares["SB"] <= 1
    assert values(found, "hops_max", dataset="DT1", window="converged")["S0"] >= 4
    assert len(found.charts) == 4
    slow = reproduced(spark, delay.EXPERIMENT, folder, monkeypatch, table2)
    delays = values(slow, "mean_delay_ms", window="converged")
    assert delays["SB"] < delays["S2"] < delays["S1"] < delays["S0"]
    links = values(found, "mean_hops", dataset="DT2", window="converged")
    for strategy, milliseconds in delays.items():
        # A millisecond per link, and 0.65 at each broker on the way, if nobody has to wait.
        assert milliseconds == pytest.approx(1.65 * links[strategy] + 0.65, rel=0.1)
    assert values(slow, "delay_relative_to_S0", window="converged")["S0"] == 1
    sent = reproduced(spark, traffic.EXPERIMENT, folder, monkeypatch, table2)
    rates = values(sent, "messages_per_s", window="converged")
    assert rates["SB"] < rates["S2"] < rates["S0"]
    assert 0 < values(sent, "load_exchange_bytes_share", window="from_cold")["S2"] < 0.2


@pytest.mark.slow
def test_the_number_of_paths(spark: SparkSession, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(paths, "_NETWORKS", {"CPL": "DT1"})
    monkeypatch.setattr(paths, "_REVIEW_US", 500_000)
    result = reproduced(spark, paths.EXPERIMENT, folder, monkeypatch, paths)
    soft = values(result, "soft_links_per_broker", by="fanout")
    assert soft[10] <= 10
    assert soft[10] <= soft[20] <= 20
    for run in ("pairs_with_100_paths", "pairs_with_1000_paths"):
        assert all(0 <= share <= 1 for share in values(result, run, by="fanout").values())


@pytest.mark.slow
@pytest.mark.parametrize("module", [uplink, planetlab, throughput], ids=lambda each: each.__name__)
def test_overload(spark: SparkSession, folder: Path, monkeypatch: pytest.MonkeyPatch, module: Any) -> None:
    monkeypatch.setattr(module, "_STRATEGIES", ("S2",) if module is throughput else ("S0", "SH"))
    if module is throughput:
        monkeypatch.setattr(throughput, "_LOADS", {"quick": (8.0,)})
    if module is planetlab:
        monkeypatch.setattr(planetlab, "_BODIES_BYTES", (500,))
    if module is uplink:
        monkeypatch.setattr(uplink, "_CAPS_PER_S", {"quick": (4,)})
    result = reproduced(spark, module.EXPERIMENT, folder, monkeypatch, module)
    shares = [row.measured for row in result.rows if row.metric == "delivered_share"]
    assert shares
    assert all(0 < share <= 1.001 for share in shares)
    relative = [row for row in result.rows if row.metric == "deliveries_relative_to_S0"]
    assert {row.measured for row in relative if row.labels["strategy"] == "S0"} == {1.0}
    assert result.charts


@pytest.mark.slow
def test_social_traffic(spark: SparkSession, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    try:
        dataset(MESSAGES)
    except ConfigurationError as problem:
        pytest.skip(str(problem))
    monkeypatch.setattr(social, "_STRATEGIES", ("S0", "SB"))
    result = reproduced(spark, social.EXPERIMENT, folder, monkeypatch, social)
    assert 0 < values(result, "delivered_share")["S0"] <= 1.001


def test_rebuilding_maps_and_tables_takes_time_that_does_not_grow_with_subscriptions() -> None:
    settings = {"configuration": "CPL", "fanout": 8, "repeats": 10, "seed": 1}
    few = overhead.measured_overhead(subscriptions=100, **settings)
    many = overhead.measured_overhead(subscriptions=10_000, **settings)
    assert few["links"] == many["links"] == 8
    assert all(value > 0 for value in {**few, **many}.values())
    assert many["working_table_written_ms"] > few["working_table_written_ms"]


def test_a_broken_promise_fails_the_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from braid import workloads
    from braid.scenario import running as simulation

    settings = watched_point(
        small({"configuration": "C1", "dataset": "DT1", "strategy": "S2", "workload": {"duration_s": 3.0}})
    ).settings
    made = workloads.workload("multipath.DT1", seed=1, **settings["workload"] | {"duration_s": 1.0})
    monkeypatch.setattr(workloads, "load", lambda folder: made)
    real = simulation.simulate
    monkeypatch.setattr(
        simulation, "simulate", lambda *given: replace(real(*given), violations=("lost 1", "lost 2"))
    )
    task = RunTask(dict(settings), 1, tmp_path / "run", tmp_path)
    with pytest.raises(PromiseBrokenError, match="2 promises were broken, such as: lost 1"):
        simulate_point(task)


def test_periods_add_up() -> None:
    both = summed([Period(10, 4, 6, 0, 0, 8), Period(10, 8, 2, 0, 2, 10)])
    assert both == Period(20, 12, 8, 0, 2, 18)
    assert both.system_yield == pytest.approx(0.6)
    assert both.mean_hops == pytest.approx(18 / 14)
    assert Period(0, 0, 0, 0, 0, 0).system_yield == 0


def test_a_distribution_over_seeds() -> None:
    line = curve("S0", [{1: 0.5, 3: 1.0}, {1: 0.3, 2: 1.0}], range(4))
    assert list(line.y) == pytest.approx([0, 0.4, 0.75, 1.0])
    assert line.low is not None
    assert min(line.low) >= 0


FILTERS = st.integers(0, 3).flatmap(
    lambda level: st.tuples(st.integers(0, 2), st.lists(st.integers(0, 1), min_size=level, max_size=level))
)


@given(st.lists(FILTERS, max_size=25))
def test_covering_sets_are_those_of_the_routing_tables(chosen: list[tuple[int, list[int]]]) -> None:
    texts = [
        " AND ".join(
            [
                f"topic = 'T{topic}'",
                *(f"x{n + 1} BETWEEN {5 * s} AND {5 * s + 4}" for n, s in enumerate(slices)),
            ]
        )
        # What was told before stays told when something wider comes, so the widest come first.
        for topic, slices in sorted(chosen, key=lambda each: len(each[1]))
    ]
    known = CoveringSet()
    known.change([], [(f"k{number}", Filter(text)) for number, text in enumerate(texts)])
    expected = {str(filter) for _, filter in known.told()}
    found = {
        str(Filter(" AND ".join(each))) for each in covering.covering_set(map(covering.clauses_of, texts))
    }
    assert found == expected


def test_more_links_mean_more_to_match() -> None:
    workload = {"brokers": 21, "publishers": 8, "subscribers": 12, "subscriptions": 300, "topics": 5}
    sizes = {
        (strategy, fanout): covering.covering_sizes(
            configuration="CPL", strategy=strategy, fanout=fanout, workload=workload, every=1, seed=1
        )["covering_set"]
        for strategy, fanout in (("S0", 3), ("S2", 3), ("S2", 8), ("S2", 20), ("SB", 21))
    }
    assert sizes["S0", 3] <= sizes["S2", 3] < sizes["S2", 8] <= sizes["S2", 20] < sizes["SB", 21]


@pytest.mark.slow
def test_covering_and_overhead(spark: SparkSession, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def points(plan: Plan) -> list[Point]:
        workload = {"brokers": 21, "publishers": 8, "subscribers": 12, "subscriptions": 100, "topics": 5}
        given = {"configuration": "CPL", "workload": workload, "every": 1}
        return [Point({**each.settings, **given}, each.seed) for each in covering.EXPERIMENT.points(plan)]

    result = reproduce(spark, replace(covering.EXPERIMENT, points=points), seeds=1, out=folder)
    relative = values(result, "covering_set_relative_to_fanout_5", by="fanout", strategy="S2")
    assert relative[5] == 1
    assert relative[10] >= 1
    assert [chart.name for chart in result.charts] == ["covering"]
    monkeypatch.setattr(overhead, "_BROKERS_LOOKED_AT", 1)
    result = reproduce(spark, overhead.EXPERIMENT, seeds=1, out=folder)
    found = values(result, "working_map_ms", by="fanout")
    assert list(found) == [5, 10, 20, 35]
    assert [row.paper_value for row in result.rows if row.labels["fanout"] == 35] == [0.8, 17.0, 17.0]
