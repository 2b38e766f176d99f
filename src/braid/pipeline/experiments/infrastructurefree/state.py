"""How many subscriptions do peers hold? (Figure 20)"""

from __future__ import annotations

from typing import TYPE_CHECKING

from braid.pipeline.experiments.infrastructurefree.network import (
    ASSUMPTIONS,
    FUNCTION,
    labels_of,
    settings_of,
)
from braid.pipeline.experiments.registry import Experiment, Findings
from braid.pipeline.experiments.rows import Sample
from braid.pipeline.experiments.sweep import Point

if TYPE_CHECKING:
    from braid.pipeline.experiments.registry import Evidence, Plan

__all__ = ["EXPERIMENT"]


def _points(plan: Plan) -> list[Point]:
    count = {"quick": 1_000, "paper": 10_000}[plan.scale]
    chosen = [settings_of(algorithm=each, subscriptions=count) for each in ("DMM-AR", "DMM")]
    return [Point(each, seed) for each in chosen for seed in range(1, plan.seeds + 1)]


def _measure(evidence: Evidence) -> Findings:
    from pyspark.sql import functions as F

    table = evidence.traces.peer_state.withColumn("total", F.col("leaf") + F.col("tree"))
    samples: list[Sample] = []
    for state in ("total", "leaf", "tree"):
        found = table.groupBy("run").agg(
            F.avg(state).alias("mean"),
            F.max(state).alias("most"),
            F.percentile(state, F.lit(0.5)).alias("median"),
            F.percentile(state, F.lit(0.99)).alias("rare"),
            F.avg((F.col(state) == 0).cast("double")).alias("empty"),
        )
        for run, row in evidence.by_run(found):
            labels = {**labels_of(run), "state": state}
            for metric, column in (
                ("state_mean", "mean"),
                ("state_median", "median"),
                ("state_99th", "rare"),
                ("state_max", "most"),
                ("peers_without_state", "empty"),
            ):
                samples.append(Sample(metric, labels, run.seed, float(row[column])))
    return Findings(samples)


EXPERIMENT = Experiment(
    paper="infrastructure-free",
    name="state",
    title="Subscriptions that peers hold, as leaves and for the multicast tree",
    shows=(
        "Figure 20: most peers hold very little and a few hold much, more so for what they pass on (tree) "
        "than for what they match (leaf), because nobody hands subscriptions over before it has too many."
    ),
    function=FUNCTION,
    points=_points,
    measure=_measure,
    seeds={"quick": 1, "paper": 1},
    notes=ASSUMPTIONS,
)
