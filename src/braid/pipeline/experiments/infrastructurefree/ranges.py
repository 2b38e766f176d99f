"""What do publications cost that are ranges? (not in the paper)"""

from __future__ import annotations

from typing import TYPE_CHECKING

from braid.pipeline.experiments.infrastructurefree.network import (
    ASSUMPTIONS,
    BEST,
    FUNCTION,
    delivery_samples,
    labels_of,
    message_samples,
    settings_of,
)
from braid.pipeline.experiments.registry import Experiment, Findings
from braid.pipeline.experiments.rows import Sample
from braid.pipeline.experiments.sweep import Point

if TYPE_CHECKING:
    from braid.pipeline.experiments.registry import Evidence, Plan

__all__ = ["EXPERIMENT"]


def _points(plan: Plan) -> list[Point]:
    widths = (0, 8, 64, 255) if plan.scale == "paper" else (0, 64)
    # A low threshold, so that there are leaves to visit.
    chosen = [
        settings_of(**BEST, width=width, workload={"publication_width": width}, split_threshold=50)
        for width in widths
    ]
    return [Point(each, seed) for each in chosen for seed in range(1, plan.seeds + 1)]


def _measure(evidence: Evidence) -> Findings:
    samples = [*delivery_samples(evidence, "width"), *message_samples(evidence, "width")]
    for run in evidence.runs.values():
        summary = run.summary
        value = summary["regions_visited"] / summary["publications"]
        samples.append(Sample("leaves_visited", labels_of(run, "width"), run.seed, value))
    return Findings(samples)


EXPERIMENT = Experiment(
    paper="infrastructure-free",
    name="ranges",
    title="Publications that are ranges",
    shows=(
        "Not in the paper, which only says that it can: publications of one value up to nearly the whole "
        "range. `leaves_visited` are the active regions that one is matched in, in all spaces; with the "
        "width grow both these and the matches."
    ),
    function=FUNCTION,
    points=_points,
    measure=_measure,
    seeds={"quick": 1, "paper": 1},
    notes=ASSUMPTIONS,
)
