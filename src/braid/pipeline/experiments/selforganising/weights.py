"""Does it matter whether links or brokers are what costs? (Figure 6)"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from braid.pipeline.experiments.figures import LineChart, Series
from braid.pipeline.experiments.registry import Experiment, Findings
from braid.pipeline.experiments.selforganising.network import (
    FUNCTION,
    POLICIES,
    costs_by_period,
    settings_of,
    vs_static,
)
from braid.pipeline.experiments.sweep import Point

if TYPE_CHECKING:
    from collections.abc import Sequence

    from braid.pipeline.experiments.figures import Chart
    from braid.pipeline.experiments.registry import Evidence, Plan
    from braid.pipeline.experiments.rows import Row

__all__ = ["EXPERIMENT"]

_ALPHAS = {"quick": (0.0, 0.5, 1.0), "paper": (0.0, 0.25, 0.5, 0.75, 1.0)}
_DURATION = {"quick": 6_000, "paper": 25_000}
_BUDGET = 20.0
"""Gamma: what links and brokers may cost together."""


def _points(plan: Plan) -> list[Point]:
    points = []
    for model in ("paths", "uniform"):
        for alpha in _ALPHAS[plan.scale]:
            costs: dict[str, Any] = {
                "model": model,
                "link_max": round((1 - alpha) * _BUDGET, 6),
                "processing_max": round(alpha * _BUDGET, 6),
                "link_changes": [],
                "processing_changes": [],
            }
            for policy in POLICIES:
                settings = settings_of(policy, _DURATION[plan.scale], costs=costs)
                settings["alpha"] = alpha
                points += [
                    Point(settings, seed, {"static": 0.1, "exact": 3.0}.get(policy, 1.0))
                    for seed in range(1, plan.seeds + 1)
                ]
    return points


def _measure(evidence: Evidence) -> Findings:
    costs = costs_by_period(evidence)
    named = ("alpha", "costs.model")
    samples = [
        type(sample)(
            sample.metric,
            {("costs" if name == "model" else name): value for name, value in sample.labels.items()},
            sample.seed,
            sample.value,
        )
        for sample in vs_static(evidence.runs, costs, named=named)
        if sample.labels["policy"] != "static"
    ]
    return Findings(samples, _charts)


def _charts(rows: Sequence[Row]) -> list[Chart]:
    charts: list[Chart] = []
    for model in dict.fromkeys(row.labels["costs"] for row in rows):
        series = []
        for policy in dict.fromkeys(row.labels["policy"] for row in rows):
            chosen = [row for row in rows if (row.labels["policy"], row.labels["costs"]) == (policy, model)]
            chosen.sort(key=lambda row: row.labels["alpha"])
            alphas = [float(row.labels["alpha"]) for row in chosen]
            series.append(Series(str(policy), alphas, [row.measured for row in chosen]))
        charts.append(
            LineChart(
                name=f"weights_{model}",
                title=f"Cost over that of the static tree, by the weight of processing ({model} link costs)",
                x_label="alpha: 0, links alone cost; 1, brokers alone",
                y_label="cost / cost of the static tree",
                series=series,
            )
        )
    return charts


EXPERIMENT = Experiment(
    paper="self-organising",
    name="weights",
    title="Link costs against processing costs",
    shows=(
        "The paper lets links cost up to (1 - alpha) * 20 and brokers up to alpha * 20. lMST becomes worse "
        "with alpha, lMIT stays as it is, and CI is equal or better than both for all alpha."
    ),
    function=FUNCTION,
    points=_points,
    measure=_measure,
    seeds={"quick": 1, "paper": 3},
    notes=(
        "`costs` says where link costs come from: `paths`, the shortest ways in a physical network, or "
        "`uniform`, drawn for each link. With the former CI does not keep up with lMST where links alone "
        "cost, because the cheapest tree already follows the physical network.",
    ),
)
