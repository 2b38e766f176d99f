"""How much is delivered in a fixed time by brokers that have more to do than they can?

What `throughput`, `uplink`, `planetlab` and `social` share. The number of deliveries within the interval is
the paper's measure of throughput: what waits at its end does not count.

A broker that is too busy lets its neighbours wait: each has some dozens of publications under way to it, and
keeps the rest itself. Publishers wait in the end. Nothing is lost; it only comes later.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from braid.pipeline.experiments.multipath.measures import FROM_COLD, start_us_of
from braid.pipeline.experiments.multipath.network import ONE_TABLE, labels_of, workload_folder
from braid.pipeline.experiments.rows import Sample

if TYPE_CHECKING:
    from collections.abc import Mapping

    from braid.pipeline.experiments.registry import Evidence
    from braid.pipeline.experiments.sweep_folder import FinishedRun

__all__ = ["PATIENT", "congested", "delivered_samples", "of_expected"]

PATIENT: Mapping[str, Any] = {
    # A message may wait long at a busy broker; nobody is to be taken for dead because of it.
    "heartbeat_us": 600_000_000,
    # Little is under way to one broker, so that what waits does so where the strategies can still choose.
    "link": {"window_bytes": 8_192},
}
"""Settings of brokers that are overloaded."""

ExtraLabels = Callable[["FinishedRun"], "dict[str, str | int | float | bool]"]


def congested(
    configuration: str,
    dataset: str,
    strategy: str,
    *,
    fanout: int,
    duration_s: float,
    reviews: int,
    messages_per_s: float,
    node: Mapping[str, Any],
    workload: Mapping[str, Any],
) -> dict[str, Any]:
    """Settings of a run whose brokers can do only so much.

    Args:
        configuration: the network.
        dataset: the workload.
        strategy: how publications are forwarded.
        fanout: links and soft links of a broker.
        duration_s: how long publishers publish.
        reviews: how often soft links are looked at meanwhile.
        messages_per_s: what a broker believes that it can send.
        node: what it really can.
        workload: what else is chosen about the workload.
    """
    return {
        "configuration": configuration,
        "dataset": dataset,
        "strategy": strategy,
        "fanout": fanout,
        "workload": {**ONE_TABLE, "duration_s": duration_s, **workload},
        "brokers": {
            **PATIENT,
            "uplink_messages_per_s": messages_per_s,
            "soft_links": {"review_us": round(duration_s * 1e6) // reviews},
        },
        "node": dict(node),
        "drain_us": 1_000_000,
    }


def delivered_samples(
    evidence: Evidence,
    duration_s: float,
    *,
    same: tuple[str, ...] = ("dataset",),
    extra: ExtraLabels = lambda run: {},
) -> list[Sample]:
    """Deliveries in the interval, of those that S0 makes and of all that are due, and links per delivery.

    Args:
        evidence: the finished runs.
        duration_s: how long the interval is, from the first publication.
        same: settings that a run with S0 must share to be compared with.
        extra: labels beside the usual ones.
    """
    from braid.pipeline.metrics.forwarding import mean_hops, throughput

    traces, start_us = evidence.traces, start_us_of(evidence)
    to_us = start_us + round(duration_s * 1e6)
    counts = {
        run.key: row["deliveries"]
        for run, row in evidence.by_run(throughput(traces.delivery, from_us=start_us, to_us=to_us))
    }
    hops = {
        run.key: row["mean_hops"]
        for run, row in evidence.by_run(mean_hops(traces.delivery, from_us=start_us, to_us=to_us))
    }
    due = of_expected(evidence)

    def kind(run: FinishedRun) -> tuple[object, ...]:
        return (run.seed, *(str(run.settings.get(name)) for name in same))

    along_the_tree = {
        kind(run): counts.get(key, 0)
        for key, run in evidence.runs.items()
        if run.settings["strategy"] == "S0"
    }
    samples: dict[str, list[Sample]] = {}
    for key, run in evidence.runs.items():
        labels = {**labels_of(run, FROM_COLD), **extra(run)}
        found = {
            "deliveries": counts.get(key, 0),
            "delivered_share": counts.get(key, 0) / due[key],
            "mean_hops": hops.get(key, 0.0),
        }
        before = along_the_tree.get(kind(run))
        if before:
            found["deliveries_relative_to_S0"] = counts.get(key, 0) / before
        for metric, value in found.items():
            samples.setdefault(metric, []).append(Sample(metric, labels, run.seed, value))
    return [each for group in samples.values() for each in group]


def of_expected(evidence: Evidence) -> dict[str, int]:
    """For every run how many deliveries its publications call for, whether or not they happened.

    Publications that wait for a busy broker to the end are in no trace. They call for as many as the others.
    """
    from pyspark.sql import functions as F

    from braid.workloads import load

    table = evidence.traces.publication.groupBy("run").agg(F.avg("expected").alias("expected"))
    due = {}
    for run, row in evidence.by_run(table):
        planned = load(workload_folder(evidence.plan.out, run.settings, run.seed)).rows["publications"]
        due[run.key] = max(1, round((row["expected"] or 0.0) * planned))
    return due
