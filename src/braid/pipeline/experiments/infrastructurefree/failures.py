"""How soon is everything delivered again after a fifth of all peers crashed at once? (Figure 26)"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from braid.pipeline.experiments.figures import LineChart, Series
from braid.pipeline.experiments.infrastructurefree.network import (
    ASSUMPTIONS,
    BEST,
    FUNCTION,
    SECOND_US,
    labels_of,
    settings_of,
)
from braid.pipeline.experiments.registry import Experiment, Findings
from braid.pipeline.experiments.rows import PaperValue, Sample
from braid.pipeline.experiments.sweep import Point

if TYPE_CHECKING:
    from braid.pipeline.experiments.registry import Evidence, Plan

__all__ = ["EXPERIMENT", "recovery_s"]

PERIOD_US: Final = 5 * SECOND_US
# What was published so shortly before the crash was still under way to peers that crashed.
IN_FLIGHT_S: Final = 30.0
# Recovered is a network from when on the ratio stays within this of what it was before.
TOLERANCE: Final = 0.02
# An aggregate of 100 publications a minute.
_RATE: Final[dict[str, Any]] = {"publishers": 100, "workload": {"period_s": 60.0}}


def _points(plan: Plan) -> list[Point]:
    times = {"crash_at_s": 400.0, "publish_s": 600.0} if plan.scale == "paper" else {
        "crash_at_s": 120.0,
        "publish_s": 240.0,
    }  # fmt: skip
    common = {"crash": 1_000, **times, **_RATE}
    # Without confirmations only probes find dead entries of a routing table: so many take a minute for all.
    chosen = [settings_of(**common, probes_per_beat=4), settings_of(**common, **BEST)]
    return [Point(each, seed) for each in chosen for seed in range(1, plan.seeds + 1)]


def _measure(evidence: Evidence) -> Findings:
    from braid.pipeline.metrics.delay import delivery_ratio_over_time

    traces = evidence.traces
    table = delivery_ratio_over_time(traces.publication, traces.delivery, period_us=PERIOD_US)
    series: dict[str, list[tuple[float, float]]] = {}
    for run, row in evidence.by_run(table):
        if row["delivery_ratio"] is not None:
            second = (row["at_us"] - run.summary["crash_us"]) / SECOND_US
            series.setdefault(run.key, []).append((second, row["delivery_ratio"]))
    samples: list[Sample] = []
    lines: list[Series] = []
    for key, found in series.items():
        run = evidence.runs[key]
        labels = labels_of(run)
        before = [ratio for second, ratio in found if second < -IN_FLIGHT_S]
        after = [ratio for second, ratio in found if second >= 0]
        late = [ratio for second, ratio in found if second >= found[-1][0] / 2]
        recovered = recovery_s(found)
        if recovered is not None:
            samples.append(Sample("recovery_s", labels, run.seed, recovered))
        else:
            samples.append(Sample("recovery_s_more_than", labels, run.seed, found[-1][0]))
        for window, ratios in (("before", before), ("after_crash", after), ("recovered", late)):
            told = {**labels, "window": window}
            samples.append(Sample("delivery_ratio", told, run.seed, sum(ratios) / len(ratios)))
        samples.append(Sample("delivery_ratio_min", labels, run.seed, min(after)))
        name = "acknowledged" if labels["acknowledged"] else "as in the paper"
        lines.append(Series(name, [second for second, _ in found], [ratio for _, ratio in found]))
    chart = LineChart(
        name="failures",
        title="Delivery ratio by the time of publishing",
        x_label="seconds since the crash",
        y_label="delivered / expected",
        series=lines,
        markers=False,
    )
    return Findings(samples, lambda rows: [chart])


def recovery_s(series: list[tuple[float, float]]) -> float | None:
    """How long after the crash everything published arrives as before; the end of the last worse period.

    None if that is the last of all.
    """
    before = [ratio for second, ratio in series if second < -IN_FLIGHT_S] or [1.0]
    limit = sum(before) / len(before) - TOLERANCE
    worse = [second for second, ratio in series if second >= 0 and ratio < limit]
    if worse and worse[-1] == series[-1][0]:
        return None
    return worse[-1] + PERIOD_US / SECOND_US if worse else 0.0


EXPERIMENT = Experiment(
    paper="infrastructure-free",
    name="failures",
    title="A fifth of all peers crashes at once",
    shows=(
        "Figure 26: 1,000 subscriptions, 100 publications a minute, and 1,000 of 5,000 peers crash at once; "
        "deliveries to the others are complete again after about 100 s. `recovery_s` is the end of the last "
        "5 s in which the ratio of those published was more than 2 % below the one long before the crash."
    ),
    function=FUNCTION,
    points=_points,
    measure=_measure,
    paper_values=(PaperValue("recovery_s", {"lookup": "climb"}, 100.0),),
    seeds={"quick": 1, "paper": 1},
    notes=(
        *ASSUMPTIONS,
        "Peers of the DHT send a beat to their neighbours every 5 s and give up one that is silent for "
        "12.5 s and does not answer; the time of recovery is mostly that. Beacons are those of the paper: "
        "every 30 s.",
        "Publishers do not crash. At the quick scale the crash is at 120 s instead of 400 s.",
    ),
    differences={"recovery_s": "Failures are noticed at the routing layer, not by missing beacons."},
)
