"""How does one run of the multipath paper's networks go, and what do its tables need?

Settings of a point, all in JSON:

    configuration   the network: C1 (120 brokers), C2 (250), C3 (500) or CPL (21)
    dataset         who asks for what: DT1 to DT5, DT-C or DT-FB
    strategy        how publications are forwarded: S0 is the tree alone
    workload        parameters of the dataset that are not its defaults, such as {"duration_s": 100}

The seed of a point makes the network, the dataset and everything that chance decides in the run.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from braid.pipeline.experiments.figures import LineChart, Series
from braid.pipeline.experiments.rows import Sample, estimate

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from pyspark.sql import SparkSession

    from braid.pipeline.experiments.registry import Evidence, Plan
    from braid.pipeline.experiments.sweep import Point, RunTask
    from braid.pipeline.experiments.sweep_folder import FinishedRun

__all__ = [
    "FUNCTION",
    "PUBLICATIONS",
    "forwarding_samples",
    "hop_chart",
    "labels_of",
    "prepare_workloads",
    "simulate_point",
    "workload_folder",
]

FUNCTION = "braid.pipeline.experiments.multipath.network:simulate_point"

PUBLICATIONS = 36_000
"""What the paper's counts are about: ten minutes at 3,600 publications per minute."""


def simulate_point(task: RunTask) -> dict[str, Any]:
    """One run, in a Spark task: the stored workload on the network, its trace into the task's folder."""
    from braid.pipeline.experiments.simulation import SimulationSettings, simulate
    from braid.pipeline.workloads import load

    settings = task.settings
    folder = workload_folder(task.shared, settings, task.seed)
    summary = simulate(
        SimulationSettings(
            topology=settings["configuration"],
            workload=load(folder),
            strategy=settings["strategy"],
            seed=task.seed,
            checkers=False,
        ),
        task.folder,
    )
    return asdict(summary)


def workload_folder(out: Path, settings: Mapping[str, Any], seed: int) -> Path:
    """Where the workload of a point is kept; points with the same workload share it."""
    said = json.dumps([settings["dataset"], settings["workload"], seed], sort_keys=True)
    digest = hashlib.sha256(said.encode()).hexdigest()[:8]
    return out / "workloads" / f"multipath.{settings['dataset']}-seed{seed}-{digest}"


def prepare_workloads(spark: SparkSession, plan: Plan, points: Sequence[Point]) -> None:
    """Let Spark make the workloads of all points; those that are there already stay."""
    from braid.pipeline.workloads import workload, write

    made = set()
    for point in points:
        folder = workload_folder(plan.out, point.settings, point.seed)
        if folder not in made:
            made.add(folder)
            name = f"multipath.{point.settings['dataset']}"
            write(spark, workload(name, seed=point.seed, **point.settings["workload"]), folder)


def labels_of(run: FinishedRun) -> dict[str, str | int | float | bool]:
    """What every row of this paper says about its run."""
    chosen = {name: run.settings[name] for name in ("strategy", "dataset", "configuration")}
    return {**chosen, "window": "converged"}


def forwarding_samples(evidence: Evidence) -> list[Sample]:
    """Pure forwarders, yield, deliveries (Table 2) and mean path length (Figure 9) of every run.

    Counts of a run with fewer publications are scaled to the paper's number, and labelled so: every
    publication adds to them on its own, because no broker is overloaded.
    """
    from braid.pipeline.metrics.forwarding import mean_hops, system_yield

    traces = evidence.traces
    hops = {run.key: row["mean_hops"] for run, row in evidence.by_run(mean_hops(traces.delivery))}
    samples: dict[str, list[Sample]] = {}
    for run, row in evidence.by_run(system_yield(traces.hop, traces.delivery)):
        labels = labels_of(run)
        factor = PUBLICATIONS / run.summary["publications"]
        counted = labels if factor == 1 else {**labels, "scaled_to_publications": PUBLICATIONS}
        for metric, about, value in (
            ("pure_forwarders", counted, factor * row["pure_forwarders"]),
            ("yield", labels, row["yield"]),
            ("deliveries", counted, factor * row["deliveries"]),
            ("mean_hops", labels, hops[run.key]),
        ):
            samples.setdefault(metric, []).append(Sample(metric, about, run.seed, value))
    return [sample for of_metric in samples.values() for sample in of_metric]


def hop_chart(evidence: Evidence, by: str, *, name: str, title: str, caption: str) -> LineChart:
    """The paper's Figure 9: path lengths as a cumulative distribution, one line per value of a setting.

    The line is the mean over the seeds, the band around it the 95 % interval.
    """
    from braid.pipeline.metrics.forwarding import hop_distribution

    curves: dict[str, dict[str, dict[int, float]]] = {}
    for run, row in evidence.by_run(hop_distribution(evidence.traces.delivery)):
        curve = curves.setdefault(str(run.settings[by]), {}).setdefault(run.key, {})
        curve[row["hops"]] = row["cumulative_share"]
    longest = max(hops for runs in curves.values() for curve in runs.values() for hops in curve)
    series = []
    for value, runs in curves.items():
        places = range(longest + 1)
        # Between the lengths that occur the share stays what it was.
        filled = [[_share_up_to(curve, hops) for hops in places] for curve in runs.values()]
        found = [estimate([curve[hops] for curve in filled]) for hops in places]
        low = [each.mean if each.low is None else max(0.0, each.low) for each in found]
        high = [each.mean if each.high is None else min(1.0, each.high) for each in found]
        series.append(Series(value, list(places), [each.mean for each in found], low, high))
    return LineChart(
        name,
        title,
        "links crossed (hops)",
        "share of deliveries",
        series,
        caption,
        steps=True,
        y_limits=(0.0, 1.02),
    )


def _share_up_to(curve: Mapping[int, float], hops: int) -> float:
    return max((share for length, share in curve.items() if length <= hops), default=0.0)
