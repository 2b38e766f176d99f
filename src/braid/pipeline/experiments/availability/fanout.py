"""Does a failover depend on how many subscriptions a publication meets? (Figure 9)"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

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

FANOUTS: Final = {"quick": (1, 50), "paper": (1, 10, 50, 200)}
DEGREES: Final = {"quick": (1.0,), "paper": (0.1, 1.0, 4.0)}
PROTOCOLS: Final = ("synchronous", "incremental")
# As in the paper, with so many publications.
SUBSCRIPTIONS: Final = 1_000
PENDING: Final = 500


def _points(plan: Plan) -> list[Point]:
    wanted: list[dict[str, Any]] = [{"fanout": fanout} for fanout in FANOUTS[plan.scale]]
    wanted += [
        {"workload": "paper", "degree": degree, "popular": popular}
        for degree in DEGREES[plan.scale]
        for popular in (False, True)
    ]
    return [
        Point(settings_of(protocol, subscriptions=SUBSCRIPTIONS, pending=PENDING, **each), seed)
        for each in wanted
        for protocol in PROTOCOLS
        for seed in range(1, plan.seeds + 1)
    ]


def _measure(evidence: Evidence) -> Findings:
    return Findings(samples_of(evidence, "fanout", over="mean_fanout"))


EXPERIMENT = Experiment(
    paper="availability",
    name="fanout",
    title="Failover by fanout",
    shows=(
        "As availability.subscriptions, with 1,000 subscriptions and 500 publications that wait. In the "
        "paper's workload the Zipf distributions of published and asked values favour what meets little or "
        "much; in `distinct` each publication meets a fixed number of subscriptions, none of which covers "
        "another."
    ),
    function=FUNCTION,
    points=_points,
    measure=_measure,
    prepare=prepare,
    paper_values=(
        PaperValue("share_of_synchronous", {"protocol": "incremental", "of": "pdrd_ms"}, 0.38),
        PaperValue("ordering_degree", {"protocol": "synchronous"}, 1.0),
    ),
    seeds={"quick": 1, "paper": 3},
    shown=("pdrd_ms", "replication_time_ms", "ordering_degree", "mean_fanout", "slope_vs_fanout"),
    notes=(
        "The order of incremental resumption begins at about 0.6 in the paper and rises with the fanout.",
        *NOTES,
    ),
    differences=DIFFERENCES,
)
