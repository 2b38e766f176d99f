"""How long are the paths of publications? (Multipath paper, section 7: Figure 9.)"""

from __future__ import annotations

from typing import TYPE_CHECKING

from braid.pipeline.experiments.multipath.measures import (
    CONVERGED,
    FROM_COLD,
    converged_from_us,
    hop_chart,
    path_lengths,
    start_us_of,
)
from braid.pipeline.experiments.multipath.network import FUNCTION, labels_of, prepare_workloads, watched_point
from braid.pipeline.experiments.multipath.table2 import DATASETS, DURATIONS_S, FANOUT, strategy_points
from braid.pipeline.experiments.registry import Experiment, Findings
from braid.pipeline.experiments.rows import Sample

if TYPE_CHECKING:
    from braid.pipeline.experiments.registry import Evidence, Plan
    from braid.pipeline.experiments.sweep import Point

__all__ = ["EXPERIMENT"]

# Where the paper's distributions are well apart.
_SHORT_HOPS = 4


def _points(plan: Plan) -> list[Point]:
    points = strategy_points(plan)
    return [*points, watched_point(points[-1].settings)]


def _measure(evidence: Evidence) -> Findings:
    duration_s = DURATIONS_S[evidence.plan.scale]
    steady_us = converged_from_us(evidence, duration_s)
    samples: dict[str, list[Sample]] = {}
    charts = []
    for window, said, from_us in (
        (FROM_COLD, "from cold", start_us_of(evidence)),
        (CONVERGED, "once the mesh is built", steady_us),
    ):
        lengths = path_lengths(evidence, from_us=from_us)
        for key, shares in lengths.items():
            run = evidence.runs[key]
            for metric, value in (
                ("mean_hops", sum(hops * share for hops, share in shares.items())),
                ("median_hops", _quantile(shares, 0.5)),
                ("hops_95", _quantile(shares, 0.95)),
                ("hops_max", max(shares)),
                (
                    f"share_up_to_{_SHORT_HOPS}_hops",
                    sum(share for hops, share in shares.items() if hops <= _SHORT_HOPS),
                ),
            ):
                samples.setdefault(metric, []).append(Sample(metric, labels_of(run, window), run.seed, value))
        charts += [
            hop_chart(
                evidence,
                lengths,
                "strategy",
                name=f"hops_{dataset}_{window}",
                title=f"Path lengths, {said} (C1, {dataset}, fanout {FANOUT})",
                caption="Share of deliveries that crossed at most so many links, as in Figure 9 of the "
                "paper. Mean over the seeds; the band is the 95 % interval.",
                where={"dataset": dataset},
            )
            for dataset in DATASETS
        ]
    return Findings([each for group in samples.values() for each in group], lambda rows: charts)


def _quantile(shares: dict[int, float], wanted: float) -> int:
    """The smallest length that so many deliveries do not exceed."""
    total = 0.0
    for hops in sorted(shares):
        total += shares[hops]
        if total >= wanted - 1e-9:
            return hops
    return max(shares)


EXPERIMENT = Experiment(
    paper="multipath",
    name="hops",
    title="Path lengths with all strategies",
    shows=(
        "Figure 9 of the paper: how many links publications cross before they are delivered, as cumulative "
        "distributions, for the sparse (DT1) and the dense dataset (DT2) on C1 with a fanout of 35. All "
        "strategies deliver the same publications to the same brokers."
    ),
    function=FUNCTION,
    points=_points,
    prepare=prepare_workloads,
    measure=_measure,
    seeds={"quick": 1, "paper": 5},
    notes=(
        "The paper prints the curves without numbers; what it says of them is checked by tests: S1 and S2 "
        "lie left of S0, SH is S2 where nothing is overloaded, and S0 and S1 are closer to each other with "
        "the dense dataset.",
        "The runs are those of `multipath.table2`: in one folder they are done once.",
    ),
)
