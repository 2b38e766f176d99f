"""How many messages does the network carry? (Multipath paper, section 7: Figure 11.)"""

from __future__ import annotations

from statistics import fmean
from typing import TYPE_CHECKING

from braid.pipeline.experiments.figures import LineChart, Series
from braid.pipeline.experiments.multipath.measures import (
    CONVERGED,
    FROM_COLD,
    converged_from_us,
    exchange_metric,
    exchange_shares,
    start_us_of,
)
from braid.pipeline.experiments.multipath.network import FUNCTION, labels_of, prepare_workloads, watched_point
from braid.pipeline.experiments.multipath.table2 import DURATIONS_S, FANOUT, strategy_points
from braid.pipeline.experiments.registry import Experiment, Findings
from braid.pipeline.experiments.rows import PaperValue, Sample

if TYPE_CHECKING:
    from braid.pipeline.experiments.registry import Evidence, Plan
    from braid.pipeline.experiments.sweep import Point

__all__ = ["EXPERIMENT"]

_DATASET = "DT2"
_PUBLISHED_PER_S = {"S0": 3_400.0, "S1": 2_850.0, "S2": 2_200.0, "SH": 2_200.0}
# Of the whole run: periods of five seconds in ten minutes.
_PERIODS = 120


def _points(plan: Plan) -> list[Point]:
    points = strategy_points(plan, datasets=[_DATASET])
    return [*points, watched_point(points[-1].settings)]


def _measure(evidence: Evidence) -> Findings:
    from braid.pipeline.metrics.traffic import messages_by_kind, network_traffic

    traces, duration_s = evidence.traces, DURATIONS_S[evidence.plan.scale]
    start_us = start_us_of(evidence)
    end_us = start_us + round(duration_s * 1e6)
    period_us = (end_us - start_us) // _PERIODS
    windows = ((FROM_COLD, start_us), (CONVERGED, converged_from_us(evidence, duration_s)))
    series: dict[str, dict[int, float]] = {}
    table = network_traffic(traces.hop, period_us=period_us, from_us=start_us, to_us=end_us)
    for run, row in evidence.by_run(table):
        series.setdefault(run.key, {})[row["at_us"]] = row["messages_per_s"]
    samples: dict[str, list[Sample]] = {}

    def add(metric: str, key: str, window: str, value: float) -> None:
        run = evidence.runs[key]
        samples.setdefault(metric, []).append(Sample(metric, labels_of(run, window), run.seed, value))

    for window, from_us in windows:
        rates = {
            # The first and the last period are only partly within the interval.
            key: fmean(rate for at_us, rate in found.items() if from_us <= at_us <= end_us - period_us)
            for key, found in series.items()
        }
        along_the_tree = {
            run.seed: rates[key] for key, run in evidence.runs.items() if run.settings["strategy"] == "S0"
        }
        for key, rate in rates.items():
            add("messages_per_s", key, window, rate)
            add("traffic_relative_to_S0", key, window, rate / along_the_tree[evidence.runs[key].seed])
        control: dict[str, float] = {}
        for run, row in evidence.by_run(messages_by_kind(traces.link_sample, from_us=from_us, to_us=end_us)):
            if row["kind"] != "publication":
                control[run.key] = control.get(run.key, 0.0) + row["bytes_share"]
        for key, share in exchange_shares(evidence, from_us=from_us, to_us=end_us).items():
            add(exchange_metric(evidence.runs[key]), key, window, share)
        for key, share in control.items():
            add("control_bytes_share", key, window, share)
    chart = _chart(evidence, series, start_us)
    return Findings([each for group in samples.values() for each in group], lambda rows: [chart])


def _chart(evidence: Evidence, series: dict[str, dict[int, float]], start_us: int) -> LineChart:
    runs: dict[str, list[dict[int, float]]] = {}
    for key, run in evidence.runs.items():
        runs.setdefault(run.settings["strategy"], []).append(series[key])
    lines = []
    for name, found in runs.items():
        times = sorted(set.intersection(*(set(each) for each in found)))[1:-1]
        minutes = [(at_us - start_us) / 60e6 for at_us in times]
        lines.append(Series(name, minutes, [fmean(each[at_us] for each in found) for at_us in times]))
    return LineChart(
        name="traffic",
        title=f"Publications sent between brokers (C1, {_DATASET}, fanout {FANOUT})",
        x_label="minutes since the first publication",
        y_label="messages per second",
        series=lines,
        caption="As Figure 11 of the paper; mean over the seeds. Every run begins with the tree alone.",
        markers=False,
    )


EXPERIMENT = Experiment(
    paper="multipath",
    name="traffic",
    title="Messages per second with all strategies, and what choosing soft links costs",
    shows=(
        "Figure 11 of the paper: publications sent between brokers over time, on C1 with the dense dataset "
        "(DT2) and a fanout of 35, and the share of bytes that brokers exchange about their load."
    ),
    function=FUNCTION,
    points=_points,
    prepare=prepare_workloads,
    measure=_measure,
    paper_values=(
        *(
            PaperValue("messages_per_s", {"strategy": name}, value)
            for name, value in _PUBLISHED_PER_S.items()
        ),
        *(
            PaperValue("traffic_relative_to_S0", {"strategy": name}, round(value / 3_400, 3))
            for name, value in _PUBLISHED_PER_S.items()
        ),
        *(
            PaperValue("load_exchange_bytes_share", {"strategy": name}, 0.02)
            for name in _PUBLISHED_PER_S
            if name != "S0"
        ),
    ),
    seeds={"quick": 1, "paper": 5},
    notes=(
        "Figure 11 of the paper is its Table 2(b) divided by 600 s: not a second confirmation.",
        "`control_bytes_share` is everything that is not a publication, acknowledgements included.",
        "The runs are those of `multipath.table2`: in one folder they are done once.",
    ),
    differences={
        "messages_per_s": "Traffic is deliveries over yield, so what moves the yield moves it, too. See "
        "`multipath.table2`.",
        "traffic_relative_to_S0": "See messages_per_s.",
        "load_exchange_bytes_share": "The paper gives a bound, below 2 %. Only loads that changed by a tenth "
        "are told.",
    },
)
