"""Do subscriptions of many predicates cost more than those of few? (Figures 24 and 25)"""

from __future__ import annotations

from typing import TYPE_CHECKING

from braid.pipeline.experiments.infrastructurefree.network import (
    ASSUMPTIONS,
    FUNCTION,
    delivery_samples,
    latency_samples,
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
    counts = range(1, 11) if plan.scale == "paper" else (1, 5, 10)
    chosen = []
    for algorithm, cache in (("DMM-AR", True), ("DMM-AR", False), ("DMM", False)):
        for count in counts if algorithm == "DMM-AR" else (counts[0], counts[-1]):
            workload = {"predicates": count, "narrow": 1, "published": 10}
            chosen.append(
                settings_of(algorithm=algorithm, tree_cache=cache, predicates=count, workload=workload)
            )
    return [Point(each, seed) for each in chosen for seed in range(1, plan.seeds + 1)]


def _measure(evidence: Evidence) -> Findings:
    samples = [
        *delivery_samples(evidence, "predicates"),
        *latency_samples(evidence, "predicates"),
        *message_samples(evidence, "predicates"),
        *_at_the_end(evidence),
    ]
    return Findings(samples)


def _at_the_end(evidence: Evidence) -> list[Sample]:
    """What had arrived when the last publication was made, as a run has it that ends there."""
    from pyspark.sql import functions as F

    from braid.pipeline.experiments.infrastructurefree.network import labels_of
    from braid.pipeline.metrics.delay import delivery_ratio

    traces = evidence.traces
    ends = {key: run.summary["end_us"] for key, run in evidence.runs.items()}
    whens = [(F.col("run") == key) & (F.col("at_us") <= end_us) for key, end_us in ends.items()]
    condition = whens[0]
    for each in whens[1:]:
        condition = condition | each
    table = delivery_ratio(traces.publication, traces.delivery.where(condition))
    return [
        Sample("delivery_ratio_at_the_end", labels_of(run, "predicates"), run.seed, row["delivery_ratio"])
        for run, row in evidence.by_run(table)
    ]


EXPERIMENT = Experiment(
    paper="infrastructure-free",
    name="dimensions",
    title="Subscriptions of 1 to 10 predicates with equally many matches",
    shows=(
        "Figures 24 and 25: of the predicates of a subscription the first is a random range and the others "
        "take every value; publications have all 10 attributes. The number of predicates changes neither "
        "delivery nor messages much. The paper has DMM below 20 % delivery; `delivery_ratio_at_the_end` "
        "counts only what had arrived at the last publication, `delivery_ratio` all that arrives."
    ),
    function=FUNCTION,
    points=_points,
    measure=_measure,
    seeds={"quick": 1, "paper": 1},
    notes=ASSUMPTIONS,
)
