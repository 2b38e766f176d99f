"""How far should news travel? (Figure 5)"""

from __future__ import annotations

from typing import TYPE_CHECKING

from braid.pipeline.experiments.figures import LineChart, Series
from braid.pipeline.experiments.registry import Experiment, Findings
from braid.pipeline.experiments.rows import Sample
from braid.pipeline.experiments.selforganising.network import (
    FUNCTION,
    costs_by_period,
    settings_of,
    total,
    vs_static,
)
from braid.pipeline.experiments.sweep import Point

if TYPE_CHECKING:
    from collections.abc import Sequence

    from braid.pipeline.experiments.figures import Chart
    from braid.pipeline.experiments.registry import Evidence, Plan
    from braid.pipeline.experiments.rows import Row

__all__ = ["EXPERIMENT"]

_ETAS = {"quick": (2, 3, 4, 6), "paper": (2, 3, 4, 5, 6, 7, 8)}
_DURATION = {"quick": 10_000, "paper": 25_000}
_STILL: dict[str, list[int]] = {"link_changes": [], "processing_changes": []}


def _points(plan: Plan) -> list[Point]:
    duration = _DURATION[plan.scale]
    seeds = range(1, plan.seeds + 1)
    points = [Point(settings_of("static", duration, costs=_STILL), seed, 0.1) for seed in seeds]
    for policy in ("ci", "exact") if plan.scale == "paper" else ("ci",):
        for eta in _ETAS[plan.scale]:
            settings = settings_of(policy, duration, costs=_STILL, topology={"eta": eta})
            points += [Point(settings, seed, eta / 4) for seed in seeds]
    return points


def _measure(evidence: Evidence) -> Findings:
    costs = costs_by_period(evidence)
    samples = vs_static(evidence.runs, costs, {"costs": "paths"}, named=("topology.eta",))
    samples = [sample for sample in samples if sample.labels["policy"] != "static"]
    for key, run in evidence.runs.items():
        if run.settings["policy"] == "static":
            continue
        labels = {"policy": run.settings["policy"], "costs": "paths", "eta": run.settings["topology"]["eta"]}
        spent = total(costs[key], "notifications")
        for metric, component in (
            ("broadcasts_vs_notifications", "broadcasts"),
            ("reconfiguration_vs_notifications", "reconfiguration"),
        ):
            samples.append(Sample(metric, labels, run.seed, total(costs[key], component) / spent))
        samples.append(Sample("exchanges", labels, run.seed, run.summary["exchanges"]))
    return Findings(sorted(samples, key=lambda sample: sample.metric), _charts)


def _charts(rows: Sequence[Row]) -> list[Chart]:
    series = []
    for policy in dict.fromkeys(row.labels["policy"] for row in rows):
        chosen = sorted(
            (row for row in rows if row.metric == "cost_vs_static" and row.labels["policy"] == policy),
            key=lambda row: row.labels["eta"],
        )
        etas = [float(row.labels["eta"]) for row in chosen]
        low = [row.interval[0] if row.interval else row.measured for row in chosen]
        high = [row.interval[1] if row.interval else row.measured for row in chosen]
        series.append(Series(str(policy), etas, [row.measured for row in chosen], low, high))
    return [
        LineChart(
            name="neighbourhood",
            title="Cost over that of the static tree, by the size of the neighbourhood",
            x_label="eta, links that news travel",
            y_label="cost / cost of the static tree",
            series=series,
            caption="Everything counts: notifications, broadcasts, requests and reconfigurations.",
        )
    ]


EXPERIMENT = Experiment(
    paper="self-organising",
    name="neighbourhood",
    title="The size of the neighbourhood, and what the heuristic costs",
    shows=(
        "The paper varies how many links far news travel and accumulates costs over 25,000 ticks: the "
        "advantage is largest at 4, broadcasts cost more the further they go, and reconfigurations cost less "
        "than 3 % of what the adapted network does."
    ),
    function=FUNCTION,
    points=_points,
    measure=_measure,
    seeds={"quick": 2, "paper": 5},
    notes=(
        "The paper says that larger neighbourhoods lead to fewer reconfigurations. Here there are more of "
        "them; their cost stays small.",
    ),
)
