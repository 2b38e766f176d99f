"""Is any peer far busier than the others with publications? (section IV-A: no root hotspot)"""

from __future__ import annotations

from typing import TYPE_CHECKING

from braid.pipeline.experiments.infrastructurefree.network import (
    ASSUMPTIONS,
    FUNCTION,
    labels_of,
    settings_of,
)
from braid.pipeline.experiments.registry import Experiment, Findings
from braid.pipeline.experiments.rows import PaperValue, Sample
from braid.pipeline.experiments.sweep import Point

if TYPE_CHECKING:
    from braid.pipeline.experiments.registry import Evidence, Plan

__all__ = ["EXPERIMENT"]


def _points(plan: Plan) -> list[Point]:
    # A low threshold, so that there is a tree; narrow filters, so that it can be halved.
    common = {"algorithm": "DMM", "tree_cache": False, "split_threshold": 100}
    chosen = [settings_of(**common, lookup=lookup) for lookup in ("root", "search", "climb")]
    return [Point(each, seed) for each in chosen for seed in range(1, plan.seeds + 1)]


def _measure(evidence: Evidence) -> Findings:
    from pyspark.sql import functions as F

    samples: list[Sample] = []
    sent = (
        evidence.traces.link_sample.where(F.col("kind") == "publication")
        .groupBy("run", "source")
        .agg(F.sum("messages").alias("messages"))
    )
    table = sent.groupBy("run").agg(F.max("messages").alias("most"), F.sum("messages").alias("all"))
    from_root: dict[int, float] = {}
    for run, row in evidence.by_run(table):
        share = row["most"] * run.settings["peers"] / row["all"]
        samples.append(Sample("root_share", labels_of(run), run.seed, share))
        if run.settings["lookup"] == "root":
            from_root[run.seed] = share
    for each in list(samples):
        if each.labels["lookup"] != "root" and each.seed in from_root:
            value = each.value / from_root[each.seed]
            samples.append(Sample("root_share_over_from_the_root", each.labels, each.seed, value))
    return Findings(samples)


EXPERIMENT = Experiment(
    paper="infrastructure-free",
    name="roots",
    title="The busiest peer, over the mean of all",
    shows=(
        "Section IV-A: publications do not begin at the root, so that it is no hotspot. `root_share` is how "
        "many messages with publications the busiest peer sends, over the mean of all peers; "
        "`root_share_over_from_the_root` compares with a run in which every publication begins at the root."
    ),
    function=FUNCTION,
    points=_points,
    measure=_measure,
    paper_values=(PaperValue("root_share_over_from_the_root", {"peers": 5_000}, 0.2),),
    seeds={"quick": 1, "paper": 1},
    notes=(*ASSUMPTIONS, "0.2 is the bound that was set for this comparison, not a value of the paper."),
)
