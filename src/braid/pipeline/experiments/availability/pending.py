"""Does a failover depend on how many publications wait for it? (Figure 10)"""

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
from braid.pipeline.experiments.registry import Experiment, Findings
from braid.pipeline.experiments.rows import PaperValue
from braid.pipeline.experiments.sweep import Point

if TYPE_CHECKING:
    from braid.pipeline.experiments.registry import Evidence, Plan

__all__ = ["EXPERIMENT"]

PENDING: Final = {"quick": (100, 400, 1_600), "paper": (100, 200, 400, 800, 1_600)}
PROTOCOLS: Final = ("synchronous", "incremental")
SUBSCRIPTIONS: Final = 1_000


def _points(plan: Plan) -> list[Point]:
    pending = PENDING[plan.scale]
    wanted = [("distinct", waiting, protocol) for waiting in pending for protocol in PROTOCOLS]
    wanted += [("paper", waiting, protocol) for waiting in pending[:1] for protocol in PROTOCOLS]
    return [
        Point(settings_of(protocol, workload=workload, subscriptions=SUBSCRIPTIONS, pending=waiting), seed)
        for workload, waiting, protocol in wanted
        for seed in range(1, plan.seeds + 1)
    ]


def _measure(evidence: Evidence) -> Findings:
    return Findings(samples_of(evidence, "pending"))


EXPERIMENT = Experiment(
    paper="availability",
    name="pending",
    title="Failover by pending publications",
    shows=(
        "As availability.subscriptions, with 1,000 subscriptions; what varies is how much is published at "
        "once after the broker has died, and waits for its replica."
    ),
    function=FUNCTION,
    points=_points,
    measure=_measure,
    prepare=prepare,
    paper_values=(
        PaperValue("ordering_degree", {"protocol": "synchronous"}, 1.0),
        PaperValue("ordering_degree", {"protocol": "incremental"}, 0.8),
    ),
    seeds={"quick": 1, "paper": 3},
    shown=("pdrd_ms", "replication_time_ms", "ordering_degree", "slope_vs_pending"),
    notes=(
        "In the paper PDRD does not depend on what is pending, and only the replication time of incremental "
        "resumption grows with it: its slope is above 0, that of synchronous resumption about 0.",
        *NOTES,
    ),
    differences=DIFFERENCES,
)
