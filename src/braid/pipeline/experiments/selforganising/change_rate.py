"""How fast may the world change before adapting costs more than it saves? (Not in the paper.)"""

from __future__ import annotations

from typing import TYPE_CHECKING

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

_PAUSES = {"quick": (250, 2_500), "paper": (250, 1_000, 2_500, 10_000, 25_000)}
_DURATION = {"quick": 5_000, "paper": 50_000}
_REST_INTERVALS = 4


def _points(plan: Plan) -> list[Point]:
    duration = _DURATION[plan.scale]
    points = []
    for gradual in (False, True) if plan.scale == "paper" else (False,):
        for pause in _PAUSES[plan.scale]:
            times = list(range(pause, duration, pause))
            costs = {"link_changes": times, "processing_changes": times, "gradual": gradual}
            for policy in POLICIES:
                for rest in (0, _REST_INTERVALS) if policy in ("ci", "exact") else (0,):
                    settings = settings_of(
                        policy, duration, costs=costs, topology={"rest_intervals": rest} if rest else {}
                    )
                    settings |= {"change_ticks": pause, "gradual": gradual}
                    points += [
                        Point(settings, seed, {"static": 0.2, "exact": 3.0}.get(policy, 1.0))
                        for seed in range(1, plan.seeds + 1)
                    ]
    return points


def _measure(evidence: Evidence) -> Findings:
    costs = costs_by_period(evidence)
    named = ("change_ticks", "gradual", "topology.rest_intervals")
    found = vs_static(evidence.runs, costs, {"costs": "paths"}, named=named)
    return Findings([sample for sample in found if sample.labels["policy"] != "static"], _charts)


def _charts(rows: Sequence[Row]) -> list[Chart]:
    series = []
    chosen = [row for row in rows if not row.labels["gradual"]]
    for policy, rest in dict.fromkeys(
        (row.labels["policy"], row.labels.get("rest_intervals", 0)) for row in chosen
    ):
        line = [
            row
            for row in chosen
            if (row.labels["policy"], row.labels.get("rest_intervals", 0)) == (policy, rest)
        ]
        line.sort(key=lambda row: row.labels["change_ticks"])
        name = f"{policy}, rests {rest} intervals" if rest else str(policy)
        pauses = [float(row.labels["change_ticks"]) / 1_000 for row in line]
        series.append(Series(name, pauses, [row.measured for row in line]))
    return [
        LineChart(
            name="change_rate",
            title="Cost over that of the static tree, by the time between abrupt changes",
            x_label="thousand ticks between changes of all costs",
            y_label="cost / cost of the static tree",
            series=series,
            caption="Above 1 it would be better to leave the tree alone.",
        )
    ]


EXPERIMENT = Experiment(
    paper="self-organising",
    name="change_rate",
    title="How often everything changes, and where adapting stops paying",
    shows=(
        "The paper asks, as future work, for the relation between the frequency of change and the effect of "
        "the heuristic. Here all costs of links and brokers are drawn anew after a fixed time, abruptly or "
        "in ten steps, and brokers may rest after an exchange, which damps oscillation."
    ),
    function=FUNCTION,
    points=_points,
    measure=_measure,
    seeds={"quick": 1, "paper": 3},
    notes=("`rest_intervals` is how long a broker that took part in an exchange takes part in no other.",),
)
