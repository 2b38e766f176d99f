"""Does a failover depend on how many neighbours tell their subscriptions? (Figure 11)"""

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
from braid.pipeline.experiments.rows import PaperValue, Sample
from braid.pipeline.experiments.sweep import Point

if TYPE_CHECKING:
    from braid.pipeline.experiments.registry import Evidence, Plan

__all__ = ["EXPERIMENT"]

NEIGHBOURS: Final = {"quick": (1, 4), "paper": (1, 5, 10, 20)}
TOTAL: Final = 1_000
"""Subscriptions in Figure 11(a), at all neighbours together."""
EACH: Final = 500
"""In Figure 11(b), at each neighbour."""
PROTOCOLS: Final = ("synchronous", "incremental")
SHARED, OWN = "shared", "each"


def _points(plan: Plan) -> list[Point]:
    count = NEIGHBOURS[plan.scale]
    wanted = [(SHARED, "distinct", many, TOTAL, protocol) for many in count for protocol in PROTOCOLS]
    wanted += [(OWN, "distinct", many, EACH * many, "incremental") for many in count]
    wanted += [(SHARED, "paper", count[-1], TOTAL, "incremental")]
    return [
        Point(
            settings_of(protocol, workload=workload, neighbours=many, subscriptions=size)
            | {"spread": spread},
            seed,
        )
        for spread, workload, many, size, protocol in wanted
        for seed in range(1, plan.seeds + 1)
    ]


def _measure(evidence: Evidence) -> Findings:
    samples = samples_of(evidence, "neighbours")
    for seed in sorted({run.seed for run in evidence.runs.values()}):
        for spread in (SHARED, OWN):
            own = sorted(
                (run.settings["neighbours"], run.summary)
                for run in evidence.runs.values()
                if (run.seed, run.settings["spread"], run.settings["protocol"], run.settings["workload"])
                == (seed, spread, "incremental", "distinct")
            )
            if len(own) < 2:
                continue
            (few, first), (many, last) = own[0], own[-1]
            for metric in ("pdrd_ms", "replication_time_ms"):
                if first[metric] and last[metric] is not None:
                    labels = {
                        "protocol": "incremental",
                        "spread": spread,
                        "from": few,
                        "to": many,
                        "of": metric,
                    }
                    samples.append(Sample("growth", labels, seed, last[metric] / first[metric]))
    return Findings(samples)


EXPERIMENT = Experiment(
    paper="availability",
    name="neighbours",
    title="Failover by neighbours",
    shows=(
        "As availability.subscriptions, with 1,000 subscriptions over several neighbours (shared), or 500 at "
        "each of them (each)."
    ),
    function=FUNCTION,
    points=_points,
    measure=_measure,
    prepare=prepare,
    paper_values=(
        PaperValue("growth", {"spread": SHARED, "of": "pdrd_ms", "from": 1, "to": 20}, 1.44),
        PaperValue("growth", {"spread": OWN, "of": "pdrd_ms", "from": 1, "to": 20}, 2.0),
        PaperValue("growth", {"spread": OWN, "of": "replication_time_ms", "from": 1, "to": 20}, 5.0),
    ),
    seeds={"quick": 1, "paper": 3},
    shown=("pdrd_ms", "replication_time_ms", "growth", "slope_vs_neighbours"),
    notes=(
        "`growth` is the value with the most neighbours over that with the fewest. All of them are real "
        "processes here, also 20.",
        *NOTES,
    ),
    differences=DIFFERENCES,
)
