"""How many ways lead from one broker to another? (Multipath paper, section 1: Figure 1.)"""

from __future__ import annotations

from statistics import fmean
from typing import TYPE_CHECKING

from braid.pipeline.experiments.figures import LineChart, Series
from braid.pipeline.experiments.multipath.measures import CONVERGED
from braid.pipeline.experiments.multipath.network import (
    FUNCTION,
    ONE_TABLE,
    QUIET,
    labels_of,
    prepare_workloads,
    watched_point,
)
from braid.pipeline.experiments.registry import Experiment, Findings
from braid.pipeline.experiments.rows import PaperValue, Sample
from braid.pipeline.experiments.sweep import Point

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from braid.pipeline.experiments.registry import Evidence, Plan
    from braid.pipeline.experiments.sweep_folder import FinishedRun

__all__ = ["EXPERIMENT", "links_of"]

_NETWORKS = {"C1": "DT1", "C2": "DT3"}
_FANOUTS = (10, 20, 35)
# Fifteen reviews, after which soft links hardly change.
_DURATION_S = 120.0
_REVIEW_US = 8_000_000
_LEAST = (100, 1_000)


def _points(plan: Plan) -> list[Point]:
    points = [
        Point(
            {
                "configuration": configuration,
                "dataset": dataset,
                "strategy": "S2",
                "fanout": fanout,
                "workload": {**ONE_TABLE, "duration_s": _DURATION_S, "rate_per_minute": 3_600.0},
                "brokers": {**QUIET, "soft_links": {"review_us": _REVIEW_US}},
            },
            seed,
            3.0 if configuration == "C2" else 1.0,
        )
        for configuration, dataset in _NETWORKS.items()
        for fanout in _FANOUTS
        for seed in range(1, plan.seeds + 1)
    ]
    return [*points, watched_point(points[0].settings)]


def links_of(run: FinishedRun) -> Iterator[tuple[str, str, str, str]]:
    """The overlay at the end of a run, as rows of `end_to_end_paths`: run, source, target, link."""
    from braid.sim.topologies import topology

    for source, target in topology(run.settings["configuration"], run.seed).links:
        yield run.key, source, target, "primary"
    for one, others in run.summary["soft_links"].items():
        for other in others:
            # A soft link serves both ends, whoever opened it.
            yield run.key, one, other, "soft"
            yield run.key, other, one, "soft"


def _measure(evidence: Evidence) -> Findings:
    from pyspark.sql import functions as F

    from braid.pipeline.metrics.overlay import end_to_end_paths, path_count_shares

    rows = [row for run in evidence.runs.values() for row in links_of(run)]
    links = evidence.spark.createDataFrame(rows, "run string, source string, target string, link string")
    paths = end_to_end_paths(links).cache()
    samples: dict[str, list[Sample]] = {}

    def add(metric: str, run: FinishedRun, value: float) -> None:
        labels = {**labels_of(run, CONVERGED), "brokers": run.summary["brokers"]}
        samples.setdefault(metric, []).append(Sample(metric, labels, run.seed, value))

    for run, row in evidence.by_run(path_count_shares(paths, _LEAST)):
        add(f"pairs_with_{row['paths_min']}_paths", run, row["share"])
    for run in evidence.runs.values():
        opened = sum(len(each) for each in run.summary["soft_links"].values())
        add("soft_links_per_broker", run, 2 * opened / run.summary["brokers"])
    places = [round(0.02 * number, 2) for number in range(51)]
    quantiles = paths.groupBy("run").agg(F.percentile("paths", F.lit(places)).alias("paths"))
    curves: dict[str, list[Sequence[float]]] = {}
    for run, row in evidence.by_run(quantiles):
        name = f"{run.summary['brokers']} brokers, fanout {run.settings['fanout']}"
        curves.setdefault(name, []).append(row["paths"])
    paths.unpersist()
    chart = LineChart(
        name="paths",
        title="Forwarding paths between two brokers (S2)",
        x_label="pairs of brokers, in order of their number of paths (%)",
        y_label="distinct paths",
        series=[
            Series(name, [100 * place for place in places], [fmean(each) for each in zip(*runs, strict=True)])
            for name, runs in curves.items()
        ],
        caption="As Figure 1 of the paper, on a logarithmic scale. Mean over the seeds.",
        markers=False,
        logarithmic=True,
    )
    return Findings([each for group in samples.values() for each in group], lambda rows: [chart])


EXPERIMENT = Experiment(
    paper="multipath",
    name="paths",
    title="Number of end-to-end paths in the mesh",
    shows=(
        "Figure 1 of the paper: how many forwarding paths there are between two brokers of a running system, "
        "in networks of 120 and 250 brokers. About 40 % of the pairs have a hundred or more in the first, 13 "
        "% a thousand or more in the second. A path is a sequence of links each of which leads further "
        "along the primary path to the destination."
    ),
    function=FUNCTION,
    points=_points,
    prepare=prepare_workloads,
    measure=_measure,
    paper_values=(
        PaperValue("pairs_with_100_paths", {"configuration": "C1"}, 0.40),
        PaperValue("pairs_with_1000_paths", {"configuration": "C2"}, 0.13),
    ),
    seeds={"quick": 1, "paper": 5},
    notes=(
        "The paper does not say which fanout Figure 1 is for; three are shown.",
        "The overlay is that at the end of two minutes of traffic, with a review of soft links every 8 s.",
        "Primary links serve both directions; a soft link serves the broker that opened it.",
    ),
    differences={
        "pairs_with_100_paths": "The number of paths grows steeply with the fanout, which the paper does not "
        "give: compare the rows with different fanouts.",
        "pairs_with_1000_paths": "As for the smaller network: it depends on the fanout above all.",
    },
)
