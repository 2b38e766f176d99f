"""How does a failover take longer with more subscriptions? (Figure 8)"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from braid.pipeline.experiments.availability.replacing import (
    DIFFERENCES,
    FUNCTION,
    NOTES,
    prepare,
    samples_of,
    settings_of,
)
from braid.pipeline.experiments.figures import LineChart, Series
from braid.pipeline.experiments.registry import Experiment, Findings
from braid.pipeline.experiments.rows import PaperValue
from braid.pipeline.experiments.sweep import Point

if TYPE_CHECKING:
    from collections.abc import Sequence

    from braid.pipeline.experiments.registry import Evidence, Plan
    from braid.pipeline.experiments.rows import Row

__all__ = ["EXPERIMENT"]

SIZES: Final = {"quick": (200, 2_000), "paper": (1_000, 2_500, 5_000, 10_000)}
PENDING: Final = {"quick": 200, "paper": 500}
PROTOCOLS: Final = ("basic", "synchronous", "incremental", "immediate")


def _points(plan: Plan) -> list[Point]:
    sizes, pending = SIZES[plan.scale], PENDING[plan.scale]
    wanted = [("distinct", size, protocol) for size in sizes for protocol in PROTOCOLS]
    wanted += [("paper", sizes[-1], protocol) for protocol in PROTOCOLS]
    return [
        Point(settings_of(protocol, workload=workload, subscriptions=size, pending=pending), seed)
        for workload, size, protocol in wanted
        for seed in range(1, plan.seeds + 1)
    ]


def _measure(evidence: Evidence) -> Findings:
    return Findings(samples_of(evidence, "subscriptions"), _charts)


def _charts(rows: Sequence[Row]) -> list[LineChart]:
    series = []
    for protocol in PROTOCOLS:
        own = sorted(
            (float(row.labels["subscriptions"]), row.measured)
            for row in rows
            if row.metric == "pdrd_ms"
            and row.labels["protocol"] == protocol
            and row.labels["workload"] == "distinct"
        )
        series.append(Series(protocol, [x for x, _ in own], [y for _, y in own]))
    title = "Resumption delay by subscriptions (Figure 8(a))"
    return [LineChart("subscriptions", title, "subscriptions", "PDRD [ms]", series)]


EXPERIMENT = Experiment(
    paper="availability",
    name="subscriptions",
    title="Failover by subscriptions",
    shows=(
        "Real broker processes: one where everything is published, two with the subscriptions, and one "
        "between them, which is killed while publications flow. A standby takes its place by each failover "
        "protocol."
    ),
    function=FUNCTION,
    points=_points,
    measure=_measure,
    prepare=prepare,
    paper_values=(
        PaperValue("pdrd_ms", {"protocol": "incremental", "subscriptions": 10_000}, 7_300.0),
        PaperValue(
            "share_of_synchronous",
            {"protocol": "incremental", "subscriptions": 10_000, "of": "pdrd_ms"},
            0.53,
        ),
        PaperValue(
            "share_of_synchronous",
            {"protocol": "incremental", "subscriptions": 10_000, "of": "replication_time_ms"},
            1 / 0.69,
        ),
        PaperValue("dropped_share", {"protocol": "basic"}, 0.02),
        PaperValue("ordering_degree", {"protocol": "synchronous"}, 1.0),
        PaperValue("ordering_degree", {"protocol": "incremental"}, 0.8),
    ),
    seeds={"quick": 1, "paper": 3},
    shown=("pdrd_ms", "replication_time_ms", "pause_ms", "share_of_synchronous", "slope_vs_subscriptions"),
    notes=NOTES,
    differences=DIFFERENCES,
)
