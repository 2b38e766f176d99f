"""Does the name of an experiment lead to the right rows, and to nothing done twice?"""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from braid.errors import ConfigurationError
from braid.pipeline.experiments.multipath.baseline import EXPERIMENT
from braid.pipeline.experiments.registry import Findings, Plan, experiments_named, papers, registered
from braid.pipeline.experiments.reproduce import output_folder, reproduce, store
from braid.pipeline.experiments.sweep import Point

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

# The paper's smallest network and dataset, for ten seconds: the whole way in some seconds.
SMALL = {"configuration": "CPL", "dataset": "DT4", "strategy": "S0", "workload": {"duration_s": 10.0}}
SMALL_EXPERIMENT = replace(EXPERIMENT, points=lambda plan: [Point(SMALL, n + 1) for n in range(plan.seeds)])


def test_every_experiment_is_complete_at_every_scale(tmp_path: Path) -> None:
    assert "multipath.baseline" in registered()
    for name, experiment in registered().items():
        assert experiment.full_name == name
        assert experiment.paper in papers()
        for scale in ("quick", "paper"):
            points = experiment.points(Plan(scale, experiment.seeds[scale], tmp_path))
            assert len({point.key(experiment.function) for point in points}) == len(points) > 0
            assert {point.seed for point in points} == set(range(1, experiment.seeds[scale] + 1))


def test_the_baseline_is_the_papers_table() -> None:
    values = {(each.metric, each.labels["dataset"]): each.value for each in EXPERIMENT.paper_values}
    assert values[("pure_forwarders", "DT1")] == 559_000
    assert values[("pure_forwarders", "DT2")] == 1_010_000
    assert (values[("yield", "DT1")], values[("yield", "DT2")]) == (0.38, 0.5)
    assert (values[("deliveries", "DT1")], values[("deliveries", "DT2")]) == (348_000, 1_034_000)


def test_a_name_means_an_experiment_or_all_of_a_paper() -> None:
    assert [each.name for each in experiments_named("multipath.baseline")] == ["baseline"]
    assert EXPERIMENT in experiments_named("multipath")


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("multipath.basline", "did you mean multipath.baseline"),
        ("baseline", "did you mean multipath.baseline"),
        ("multpath", "did you mean multipath"),
        ("xyzzy", "`braid reproduce list` shows them all"),
    ],
)
def test_a_name_that_is_not_there_gets_a_suggestion(name: str, hint: str) -> None:
    with pytest.raises(ConfigurationError, match=hint):
        experiments_named(name)


@pytest.mark.slow
def test_a_small_baseline_agrees_with_what_the_simulator_counted(spark: SparkSession, tmp_path: Path) -> None:
    stages: list[str] = []
    result = reproduce(spark, SMALL_EXPERIMENT, seeds=2, out=tmp_path, say=stages.append)
    assert stages == ["making workloads", "computing metrics"]
    assert (result.runs, result.executed) == (2, 2)
    documents = [json.loads(path.read_text()) for path in tmp_path.glob("traces/run=*/run.json")]
    summaries = [each["summary"] for each in documents]
    assert all(each["publications"] > 100 for each in summaries)
    found = {row.metric: row for row in result.rows}
    counted = [each["hops"] - each["matched_hops"] for each in summaries]
    scaled = [36_000 * n / each["publications"] for n, each in zip(counted, summaries, strict=True)]
    assert found["pure_forwarders"].measured == pytest.approx(sum(scaled) / 2, rel=1e-5)
    yields = [each["matched_hops"] / each["hops"] for each in summaries]
    assert found["yield"].measured == pytest.approx(sum(yields) / 2, rel=1e-5)
    assert found["pure_forwarders"].labels["scaled_to_publications"] == 36_000
    assert found["yield"].labels == {
        "strategy": "S0",
        "dataset": "DT4",
        "configuration": "CPL",
        "window": "converged",
    }
    assert found["mean_hops"].seeds == 2
    assert [chart.name for chart in result.charts] == ["hops", "pure_forwarders", "yield"]
    curve = result.charts[0].series[0]
    assert list(curve.y) == sorted(curve.y)
    assert curve.y[-1] == pytest.approx(1.0)

    again = reproduce(spark, SMALL_EXPERIMENT, seeds=2, out=tmp_path)
    assert (again.executed, again.rows) == (0, result.rows)
    one = reproduce(spark, SMALL_EXPERIMENT, seeds=1, out=tmp_path)
    assert one.executed == 0
    assert {row.seeds for row in one.rows} == {1}, "runs of other experiments in the folder do not count"
    page = store([result], tmp_path).read_text()
    assert "multipath.baseline" in page
    assert page.count("<svg") == 3


def test_no_seeds_are_refused(spark: SparkSession, tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="0 seeds"):
        reproduce(spark, EXPERIMENT, seeds=0, out=tmp_path)


def test_findings_need_no_charts() -> None:
    assert list(Findings([]).charts([])) == []


def test_a_folder_is_kept_or_temporary(tmp_path: Path) -> None:
    with output_folder(tmp_path / "a" / "b") as kept:
        assert kept.is_dir()
    assert kept.is_dir()
    with output_folder(None) as temporary:
        assert temporary.is_dir()
    assert not temporary.exists()
    (tmp_path / "file").touch()
    with pytest.raises(ConfigurationError, match="is a file"), output_folder(tmp_path / "file"):
        pass
