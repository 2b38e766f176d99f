"""Do networks become cheaper, and again after everything has changed? (Figure 4)"""

from __future__ import annotations

from statistics import fmean
from typing import TYPE_CHECKING, Any

from braid.pipeline.experiments.figures import LineChart, Series
from braid.pipeline.experiments.registry import Experiment, Findings
from braid.pipeline.experiments.rows import Sample
from braid.pipeline.experiments.selforganising.network import (
    FUNCTION,
    PERIOD_TICKS,
    POLICIES,
    byte_samples,
    costs_by_period,
    settings_of,
    total,
    vs_static,
)
from braid.pipeline.experiments.sweep import Point

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from braid.pipeline.experiments.figures import Chart
    from braid.pipeline.experiments.registry import Evidence, Plan
    from braid.pipeline.experiments.rows import Row
    from braid.pipeline.experiments.selforganising.network import Cost
    from braid.pipeline.experiments.sweep_folder import FinishedRun

__all__ = ["EXPERIMENT"]

# A quick run is a fifth as long, with its changes at a third and two thirds, too.
_DURATION = {"quick": 15_000, "paper": 75_000}
_WEIGHT = {"static": 0.2, "exact": 3.0}


def _points(plan: Plan) -> list[Point]:
    duration = _DURATION[plan.scale]
    changes = {"link_changes": [duration // 3], "processing_changes": [2 * duration // 3]}
    workloads = {
        "paper": {"loads_change_ticks": 2 * duration // 3},
        "local": {"name": "selforganising.local", "loads_change_ticks": 0, "move_ticks": duration // 3},
    }
    points = []
    for name, workload in workloads.items():
        policies = POLICIES if name == "paper" or plan.scale == "paper" else ("static", "ci", "exact")
        starts = ("uniform", "recursive") if name == "paper" and plan.scale == "paper" else ("uniform",)
        for start in starts:
            for policy in policies:
                settings = settings_of(policy, duration, costs=changes, workload=workload, start=start)
                settings["interest"] = name
                points += [
                    Point(settings, seed, _WEIGHT.get(policy, 1.0)) for seed in range(1, plan.seeds + 1)
                ]
    return points


def _measure(evidence: Evidence) -> Findings:
    costs = costs_by_period(evidence)
    duration = _DURATION[evidence.plan.scale] // PERIOD_TICKS
    thirds = [0, duration // 3, 2 * duration // 3, duration]
    windows = {
        "whole": (0, duration),
        "settled": (thirds[1] - max(1, duration // 15), thirds[1]),
        "after_links": (thirds[1], thirds[2]),
        "after_brokers": (thirds[2], thirds[3]),
    }
    runs, named = evidence.runs, ("interest", "start")
    samples: list[Sample] = []
    for window, (first, last) in windows.items():
        samples += vs_static(runs, costs, {"costs": "paths", "window": window}, first, last, named)
    for metric, component in (
        ("broadcast_share", "broadcasts"),
        ("request_share", "requests"),
        ("reconfiguration_share", "reconfiguration"),
    ):
        for key, run in runs.items():
            if run.settings["policy"] != "static":
                labels = {"policy": run.settings["policy"], "costs": "paths", "window": "whole"}
                labels |= {name: run.settings[name] for name in named}
                samples.append(
                    Sample(metric, labels, run.seed, total(costs[key], component) / total(costs[key]))
                )
    for run in runs.values():
        labels = {"policy": run.settings["policy"], "costs": "paths", "window": "whole"}
        labels |= {name: run.settings[name] for name in named}
        samples.append(Sample("exchanges", labels, run.seed, run.summary["exchanges"]))
    samples += byte_samples(evidence, lambda run: _labels(run, named))
    charts = [_chart(evidence, costs, interest) for interest in ("paper", "local")]
    return Findings(samples, lambda rows: _charts(rows, charts))


def _labels(run: FinishedRun, named: Sequence[str]) -> dict[str, Any]:
    labels: dict[str, Any] = {"policy": run.settings["policy"], "costs": "paths", "window": "whole"}
    return labels | {name: run.settings[name] for name in named}


def _charts(rows: Sequence[Row], charts: Sequence[Chart]) -> Sequence[Chart]:
    return charts


def _chart(evidence: Evidence, costs: Mapping[str, Sequence[Cost]], interest: str) -> LineChart:
    """Cost by periods, each policy a line."""
    lines: dict[str, list[list[float]]] = {}
    for key, run in evidence.runs.items():
        if run.settings["interest"] == interest and run.settings["start"] == "uniform":
            spent = [cost["cost"] / 1e6 for cost in costs[key]]
            lines.setdefault(run.settings["policy"], []).append(spent)
    series = []
    for policy, found in lines.items():
        length = min(map(len, found))
        ticks = [PERIOD_TICKS * (period + 1) for period in range(length)]
        series.append(Series(policy, ticks, [fmean(run[each] for run in found) for each in range(length)]))
    what = "the paper's workload" if interest == "paper" else "interest with a home that moves"
    return LineChart(
        name=f"adaptivity_{interest}",
        title=f"Cost in 1,000 ticks ({what})",
        x_label="ticks",
        y_label="cost, in millions",
        series=series,
        markers=False,
        y_limits=(0.0, 1.1 * max(max(line.y) for line in series)),
        caption="Notifications, broadcasts, requests and reconfigurations. Link costs change after a third "
        "of the run; processing costs and loads after two thirds.",
    )


EXPERIMENT = Experiment(
    paper="self-organising",
    name="adaptivity",
    title="Cost while the network organises itself, with two changes of everything",
    shows=(
        "The paper starts from a random tree of 100 brokers and lets three heuristics improve it; link costs "
        "change at 25,000 ticks, processing costs and loads at 50,000. All are quickly below the static, "
        "cost and interest (CI) lowest. Beside them is exact cycle consensus, which is not in the paper. "
        "`cost_vs_static` counts everything: notifications, broadcasts, requests and reconfigurations."
    ),
    function=FUNCTION,
    points=_points,
    measure=_measure,
    seeds={"quick": 2, "paper": 5},
    notes=(
        "Messages take no time in these runs; the proposals are those that brokers ship.",
        "A control message costs its link and its receiver, like a notification, whatever its size: a filter "
        "of interest has up to 12.5 kB, a notification some hundred bytes. `control_bytes` are the bytes, "
        "`false_positive_rate` how often such a filter says yes to a publication that is not in it; the "
        "estimates are corrected for that.",
        "The window `settled` is the last fifteenth before the first change; `whole` is everything.",
        "`interest` says which workload: `paper`, or `local`, in which types have a home region that moves.",
    ),
)
