"""The self-organising experiments: metrics by Spark from traces, against the same sums by a plain loop."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from braid.pipeline.experiments.registry import Findings, registered
from braid.pipeline.experiments.reproduce import reproduce
from braid.pipeline.experiments.selforganising.network import costs_by_period, settings_of, total, vs_static
from braid.pipeline.experiments.sweep import Point
from tests.pipeline.test_selforganising_network import CHANGES, SMALL

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

    from braid.pipeline.experiments.registry import Evidence


def test_costs_of_runs_come_from_their_traces(spark: SparkSession, tmp_path: Path) -> None:
    seen: dict[str, list] = {}

    def measure(evidence: Evidence) -> Findings:
        costs = costs_by_period(evidence)
        for key, run in evidence.runs.items():
            seen[run.settings["policy"]] = costs[key]
        return Findings(vs_static(evidence.runs, costs, {"costs": "paths"}))

    changes = {**CHANGES, "link_changes": [1_000]}
    points = [
        Point(settings_of(policy, 3_000, workload=SMALL, costs=changes), 1) for policy in ("static", "exact")
    ]
    small = replace(registered()["self-organising.adaptivity"], points=lambda plan: points, measure=measure)
    result = reproduce(spark, small, seeds=1, out=tmp_path)
    assert [len(costs) for costs in seen.values()] == [3, 3]
    for cost in seen["static"]:
        assert cost["cost"] == cost["notifications"] > 0
        assert cost.control == 0
    for cost in seen["exact"]:
        parts = cost["notifications"] + cost["broadcasts"] + cost["requests"] + cost["reconfiguration"]
        assert cost["cost"] == pytest.approx(parts)
        assert cost["broadcasts"] > 0
    rows = {row.labels["policy"]: row.measured for row in result.rows}
    assert rows["static"] == 1.0
    assert rows["exact"] == pytest.approx(total(seen["exact"]) / total(seen["static"]))
    assert rows["exact"] < 1


def test_every_experiment_of_the_paper_is_there() -> None:
    names = ("adaptivity", "neighbourhood", "weights", "figure2", "headroom", "change_rate")
    assert {f"self-organising.{name}" for name in names} <= set(registered())
