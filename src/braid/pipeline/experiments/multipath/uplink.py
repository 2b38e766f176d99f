"""What if brokers can send only so much? (Multipath paper, section 7: Figure 14.)"""

from __future__ import annotations

from typing import TYPE_CHECKING

from braid.pipeline.experiments.multipath.measures import bar_chart
from braid.pipeline.experiments.multipath.network import FUNCTION, prepare_workloads, watched_point
from braid.pipeline.experiments.multipath.overload import congested, delivered_samples
from braid.pipeline.experiments.registry import Experiment, Findings
from braid.pipeline.experiments.sweep import Point

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from braid.pipeline.experiments.figures import Chart
    from braid.pipeline.experiments.registry import Evidence, Plan, Scale
    from braid.pipeline.experiments.rows import Row

__all__ = ["EXPERIMENT"]

_STRATEGIES = ("S0", "S1", "S2", "SH", "SB")
_FANOUT = 35
_RATE_PER_MINUTE = 7_200.0
_CAP_PER_S = 150
# Half of the paper's cap makes hotspots that are none with our mesh at the paper's.
_CAPS_PER_S: Mapping[Scale, tuple[int, ...]] = {"quick": (150, 75), "paper": (150, 100, 75, 50)}
_DURATIONS_S: Mapping[Scale, float] = {"quick": 60.0, "paper": 600.0}
_REVIEWS = 30


def _points(plan: Plan) -> list[Point]:
    duration_s = _DURATIONS_S[plan.scale]
    points = [
        Point(
            congested(
                "C1",
                "DT1",
                strategy,
                fanout=_FANOUT,
                duration_s=duration_s,
                reviews=_REVIEWS,
                messages_per_s=float(cap),
                node={"uplink_messages_per_s": cap},
                workload={"rate_per_minute": _RATE_PER_MINUTE},
            ),
            seed,
            2.0 if strategy == "S0" else 1.0,
        )
        for cap in _CAPS_PER_S[plan.scale]
        for strategy in _STRATEGIES
        for seed in range(1, plan.seeds + 1)
    ]
    return [*points, watched_point({**points[-1].settings, "strategy": "SH"})]


def _measure(evidence: Evidence) -> Findings:
    samples = delivered_samples(
        evidence,
        _DURATIONS_S[evidence.plan.scale],
        same=("dataset", "node"),
        extra=lambda run: {"uplink_messages_per_s": run.settings["node"]["uplink_messages_per_s"]},
    )
    return Findings(samples, _charts)


def _charts(rows: Sequence[Row]) -> list[Chart]:
    return [
        bar_chart(
            rows,
            metric,
            name=metric,
            title=f"{title} (C1, DT1, fanout {_FANOUT})",
            y_label=y_label,
            caption="As Figure 14 of the paper; the whisker is the 95 % interval.",
            groups="uplink_messages_per_s",
        )
        for metric, title, y_label in (
            ("delivered_share", "Delivered in time, by the limit of uplinks", "share of what is due"),
            ("mean_hops", "Path lengths, by the limit of uplinks", "links per delivery"),
        )
    ]


EXPERIMENT = Experiment(
    paper="multipath",
    name="uplink",
    title="Deliveries and path lengths with limited uplinks",
    shows=(
        "Figure 14 of the paper: on C1 with DT1 7,200 publications enter in a minute, and no broker can send "
        "more than 150 publications in a second. S2 lets single brokers send many copies; SH switches such "
        "brokers to S1 and delivers more."
    ),
    function=FUNCTION,
    points=_points,
    prepare=prepare_workloads,
    measure=_measure,
    seeds={"quick": 1, "paper": 5},
    notes=(
        "The paper prints bars without numbers; it says that SH delivers more than S2.",
        "What waits for an uplink waits at its broker; the interval ends with the last publication, and what "
        "has not been delivered by then does not count.",
        "With the mesh that is built here 150 in a second are enough for all strategies but S0: it wastes "
        "less than the paper's. At half of that hotspots form, and SH delivers more than S2.",
        "The quick scale publishes for a minute, with a review of soft links every two seconds.",
    ),
)
