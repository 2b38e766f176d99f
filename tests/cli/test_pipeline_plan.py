"""`braid pipeline plan`: from the trace of a simulated network to a plan that can be applied."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from braid.cli import main
from braid.pipeline.planning.traffic import concerned, interest_groups, interest_matrix, present_tree
from braid.pipeline.traces import Traces
from braid.reconfiguration import decode_plan

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession


@pytest.fixture(scope="module")
def trace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A line of six brokers with two pairs that talk to each other."""
    from braid.scenario.running import SimulationSettings, simulate
    from braid.sim.topologies import line
    from braid.workloads import workload

    folder = tmp_path_factory.mktemp("trace")
    parameters = {"brokers": 6, "types": 2, "subscribers_per_type": 1, "duration_ticks": 200}
    played = workload("selforganising", seed=24, subscription_ticks=1e9, loads_change_ticks=0, **parameters)
    simulate(SimulationSettings(topology=line(6), workload=played, seed=1), folder)
    return folder


@pytest.fixture
def run(spark: SparkSession, capsys: pytest.CaptureFixture[str]) -> Any:
    def call(*arguments: str) -> tuple[int, str, str]:
        with pytest.raises(SystemExit) as ending:
            main(["pipeline", "plan", *arguments])
        captured = capsys.readouterr()
        assert isinstance(ending.value.code, int)
        return ending.value.code, captured.out, captured.err

    return call


def test_interest_and_tree_are_those_of_the_trace(spark: SparkSession, trace: Path) -> None:
    traces = Traces(spark, trace)
    tree = present_tree(traces.link_sample)
    assert sorted(tree.links) == [(f"B00{each}", f"B00{each + 1}") for each in range(5)]
    concerns = concerned(traces.publication, traces.delivery)
    sets: dict[tuple, set[str]] = {}
    for row in concerns.collect():
        sets.setdefault((row["publisher"], row["sequence"]), set()).add(row["broker"])
    counted: dict[tuple[str, str], int] = {}
    for brokers in sets.values():
        for one in brokers:
            for other in brokers:
                counted[one, other] = counted.get((one, other), 0) + 1
    matrix = {
        (row["source"], row["target"]): row["publications"] for row in interest_matrix(concerns).collect()
    }
    assert matrix == counted
    groups = interest_groups(concerns).collect()
    assert sum(row["publications"] for row in groups) == traces.publication.count() == len(sets)
    assert {tuple(row["brokers"]) for row in groups} == {tuple(sorted(each)) for each in sets.values()}


def test_a_plan_is_proposed_written_and_can_be_read_again(run: Any, trace: Path, tmp_path: Path) -> None:
    out = tmp_path / "plan.json"
    code, text, err = run(
        "--traces", str(trace), "--out", str(out), "--json", "--starts", "3", "--rounds", "2"
    )
    assert code == 0, err
    report = json.loads(text)
    written = decode_plan(out.read_bytes(), str(out))
    assert report["shifts"] == written.plan.shifts > 0
    assert report["bound"] <= report["planned_cost"] < report["present_cost"]
    assert report["saving"] == pytest.approx(1 - report["planned_cost"] / report["present_cost"])
    # With costs of 1 a pair that talks alone pays 3 when it is linked; here nothing stands against that.
    assert report["planned_cost"] == pytest.approx(report["bound"])
    assert "braid overlay apply" in err


def test_the_last_minutes_are_counted_back_from_the_newest_sample(
    spark: SparkSession, run: Any, trace: Path
) -> None:
    quickly = ("--starts", "1", "--rounds", "0", "--json")
    traces = Traces(spark, trace)
    newest = traces.link_sample.agg({"at_us": "max"}).first()[0]  # type: ignore[index]
    half_us = newest // 2
    wanted = traces.publication.where(f"at_us >= {newest - half_us}").distinct().count()
    code, text, err = run("--traces", str(trace), "--last", f"{half_us}us", *quickly)
    assert code == 0, err
    assert 0 < json.loads(text)["publications"] == wanted < traces.publication.count()
    code, _, err = run("--traces", str(trace), "--last", "1s", "--from", "1s")
    assert code != 0
    assert "--last is counted back from the newest sample" in err


def test_links_that_must_not_be_are_not_planned(run: Any, trace: Path, tmp_path: Path) -> None:
    out = tmp_path / "plan.json"
    names = [f"B00{each}" for each in range(6)]
    rows = [f"{a},{b},inf" for a in names for b in names if a < b and abs(int(a[1:]) - int(b[1:])) > 1]
    (tmp_path / "links.csv").write_text("source,target,cost\n" + "\n".join(rows) + "\n")
    code, text, err = run(
        "--traces", str(trace), "--out", str(out), "--link-costs", str(tmp_path / "links.csv")
    )
    assert code == 0, err
    assert "0 links exchanged by 0 SHIFTs" in text


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        ("source,target\nA,B\n", "the column 'cost' is missing"),
        ("source,target,cost\nA,B,much\n", "line 2: 'much' is no cost"),
        ("source,target,cost\nA,B,-1\n", "line 2: a cost is at least 0"),
    ],
)
def test_bad_costs_are_named(run: Any, trace: Path, tmp_path: Path, content: str, complaint: str) -> None:
    (tmp_path / "links.csv").write_text(content)
    code, _, err = run("--traces", str(trace), "--link-costs", str(tmp_path / "links.csv"))
    assert code != 0
    assert complaint in err


def test_a_folder_without_a_trace_is_named(run: Any, tmp_path: Path) -> None:
    code, _, err = run("--traces", str(tmp_path / "nothing"))
    assert code != 0
    assert "nothing" in err
