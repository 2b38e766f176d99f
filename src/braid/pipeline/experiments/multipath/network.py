"""How does one run of the multipath paper's networks go?

Settings of a point, all in JSON:

    configuration   the network: C1 (120 brokers), C2 (250), C3 (500) or CPL (21)
    dataset         who asks for what: DT1 to DT5, DT-C or DT-FB
    strategy        how publications are forwarded: S0 (the tree alone), S1, S2, SH or SB
    fanout          primary and soft links of a broker, at most; S0 has no soft links, whatever it says
    workload        parameters of the dataset that are not its defaults, such as {"duration_s": 100}
    brokers         settings of all brokers, such as {"soft_links": {"review_us": 8_000_000}}
    node            what brokers run on, such as {"cost_us": {"publication": 600}}
    watched         true: a short run that checks every delivery, and fails if one is missing or doubled

Only the first three must be there. The seed of a point makes the network, the dataset and everything that
chance decides in the run. Runs with the same settings are the same run, also for different experiments.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from braid.errors import BraidError
from braid.pipeline.experiments.sweep import Point

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from pyspark.sql import SparkSession

    from braid.pipeline.experiments.registry import Plan
    from braid.pipeline.experiments.sweep import RunTask
    from braid.pipeline.experiments.sweep_folder import FinishedRun

__all__ = [
    "BROKER",
    "FUNCTION",
    "ONE_TABLE",
    "PUBLICATIONS",
    "QUIET",
    "PromiseBrokenError",
    "labels_of",
    "prepare_workloads",
    "simulate_point",
    "watched_point",
    "workload_folder",
]

FUNCTION = "braid.pipeline.experiments.multipath.network:simulate_point"

PUBLICATIONS = 36_000
"""What the paper's counts are about: ten minutes at 3,600 publications per minute."""

ONE_TABLE: Mapping[str, Any] = {"classes_of": "network", "classes_per_subscription": 60}
"""Parameters of DT1 to DT5 that give the same matching with one subscription per subscriber broker."""

QUIET: Mapping[str, Any] = {"heartbeat_us": 20_000_000}
"""Settings of brokers for these runs. A soft link without traffic is asked every two seconds whether it is
there, which makes as many messages as the publications of a whole run; nothing fails here, so once in 20 s
does."""

BROKER: Mapping[str, Any] = {"cost_us": {"publication": 650}}
"""The machine under a broker. The paper gives delays, not processing times: with 1 ms per link and 0.65 ms
per publication and broker, S0 on C1 and DT2 comes to the 14 ms of the paper. No broker is busy for more than
a tenth of the time then, so yields and path lengths are what they are without."""

# Links and brokers are looked at so often; more often costs time and says nothing more.
SAMPLE_US = 5_000_000

# Runs that are watched last only so long, because checking every delivery costs time and memory.
WATCHED_S = 24.0
WATCHED_REVIEW_US = 2_000_000


class PromiseBrokenError(BraidError):
    """A broker of a watched run lost, doubled or invented something; the message says what."""


def simulate_point(task: RunTask) -> dict[str, Any]:
    """One run, in a Spark task: the stored workload on the network, its trace into the task's folder."""
    from braid.scenario.running import SimulationSettings, simulate
    from braid.sim import NodeModel
    from braid.workloads import load

    settings = task.settings
    watched = settings.get("watched", False)
    brokers = dict(settings.get("brokers", {}))
    if "fanout" in settings:
        brokers["soft_links"] = {**brokers.get("soft_links", {}), "fanout": settings["fanout"]}
    summary = simulate(
        SimulationSettings(
            topology=settings["configuration"],
            workload=load(workload_folder(task.shared, settings, task.seed)),
            strategy=settings["strategy"],
            seed=task.seed,
            checkers=watched,
            brokers=brokers,
            node=NodeModel(**settings.get("node", {})),
            sample_us=SAMPLE_US,
            drain_us=settings.get("drain_us", 10_000_000),
        ),
        task.folder,
    )
    if summary.violations:
        some = "; ".join(summary.violations[:3])
        raise PromiseBrokenError(f"{len(summary.violations):,} promises were broken, such as: {some}")
    return asdict(summary)


def workload_folder(out: Path, settings: Mapping[str, Any], seed: int) -> Path:
    """Where the workload of a point is kept; points with the same workload share it."""
    said = json.dumps([settings["dataset"], settings["workload"], seed], sort_keys=True)
    digest = hashlib.sha256(said.encode()).hexdigest()[:8]
    return out / "workloads" / f"multipath.{settings['dataset']}-seed{seed}-{digest}"


def prepare_workloads(spark: SparkSession, plan: Plan, points: Sequence[Point]) -> None:
    """Let Spark make the workloads of all points; those that are there already stay."""
    from braid.workloads import workload, write

    made = set()
    for point in points:
        folder = workload_folder(plan.out, point.settings, point.seed)
        if folder not in made:
            made.add(folder)
            name = f"multipath.{point.settings['dataset']}"
            write(spark, workload(name, seed=point.seed, **point.settings["workload"]), folder)


def watched_point(settings: Mapping[str, Any]) -> Point:
    """A short run of the same kind that is checked delivery by delivery, while soft links come and go.

    It counts for no figure. A violation makes the experiment fail. Its machines are without limits, because
    what still waits at the end of a run counts as lost.
    """
    workload = {**settings["workload"], "duration_s": WATCHED_S}
    workload["rate_per_minute"] = min(3_600.0, workload.get("rate_per_minute", 3_600.0))
    brokers = dict(settings.get("brokers", {}))
    brokers["soft_links"] = {**brokers.get("soft_links", {}), "review_us": WATCHED_REVIEW_US}
    kept = {name: value for name, value in settings.items() if name not in ("node", "drain_us")}
    return Point({**kept, "workload": workload, "brokers": brokers, "watched": True}, seed=1, weight=0.1)


def labels_of(run: FinishedRun, window: str = "converged") -> dict[str, str | int | float | bool]:
    """What every row of this paper says about its run."""
    names = ("strategy", "dataset", "configuration", "fanout")
    chosen = {name: run.settings[name] for name in names if name in run.settings}
    return {**chosen, "window": window}
