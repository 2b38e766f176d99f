"""How does one run of the infrastructure-free paper's network go, and what is measured of it?

Settings of a point, all in JSON:

    algorithm        DMM, DMM-AR or Hermes (with one event type)
    tree_cache       whether active regions are remembered, at `cache_place`
    lookup           climb (the paper's) or search
    acknowledged     whether messages are confirmed, hop by hop and from end to end
    peers, publishers, subscriptions, publish_s, zipf
                     the workload; `workload` has further parameters of it
    primary, attribute_root, split_threshold, loss
                     choices of the algorithm, and the share of datagrams that are lost
    crash, crash_at_s
                     how many peers crash, and when after the start
    probes_per_beat  how many peers of its routing table each one looks after at every beat (1)
    joins            whether peers join one by one instead of beginning with their tables
    dht              pastry (if not told), or ring: then peers join
    schema           whether the network has one (true if not told)

The seed of a point makes the physical network, the peers' tables, the workload and what is lost.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from braid.pipeline.experiments.rows import Sample

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from braid.pipeline.experiments.registry import Evidence
    from braid.pipeline.experiments.sweep import RunTask
    from braid.pipeline.experiments.sweep_folder import FinishedRun

__all__ = [
    "ASSUMPTIONS",
    "BEST",
    "FUNCTION",
    "SECOND_US",
    "WARM_AFTER_S",
    "delivery_samples",
    "labels_of",
    "latency_samples",
    "message_samples",
    "ordering_samples",
    "peers_point",
    "settings_of",
]

FUNCTION: Final = "braid.pipeline.experiments.infrastructurefree.network:peers_point"
SECOND_US: Final = 1_000_000
# After the first publication: from then on caches are taken for warm.
WARM_AFTER_S: Final = 30
BEST: Final[Mapping[str, Any]] = {
    "lookup": "search",
    "primary": "most-selective",
    "attribute_root": "full",
    "acknowledged": True,
}
"""What peers do if nothing else is said, beyond the paper."""

ASSUMPTIONS: Final = (
    "Attribute roots look at the primary attribute only (`attribute_root=primary`), which gives the paper's "
    "number of messages, unless a row has lookup=search: those are Braid's own choices, which look at the "
    "whole filter and take the most selective attribute.",
    "The cache is kept by publishers; kept by the last hop before a region, as the paper has it, it hits too "
    "seldom to explain the paper's figures.",
    "0.1 % of datagrams are lost, on each hop of the overlay. Peers begin with the tables that real joins "
    "lead to, which a test compares.",
    "The split threshold is 1,000 subscriptions, below which a region is not halved: DMM needs fewer "
    "messages than DMM-AR as long as its one region is whole.",
)

_DEFAULTS: Final[Mapping[str, Any]] = {
    "algorithm": "DMM-AR",
    "tree_cache": True,
    "cache_place": "publisher",
    "lookup": "climb",
    "acknowledged": False,
    "peers": 5_000,
    "publishers": 100,
    "subscriptions": 1_000,
    "publish_s": 100.0,
    "zipf": False,
    "workload": {},
    "primary": "first",
    "attribute_root": "primary",
    "split_threshold": 1_000,
    "loss": 0.001,
    "crash": 0,
    "crash_at_s": 0.0,
    "joins": False,
}


def settings_of(**chosen: Any) -> dict[str, Any]:
    """The settings of a point, those that differ from the paper's evaluation given by name."""
    return {**_DEFAULTS, **chosen}


def peers_point(task: RunTask) -> dict[str, Any]:
    """One run, in a Spark task."""
    from braid.pipeline.experiments.infrastructurefree.simulated import SimulatedPeers
    from braid.trace.writer import TraceWriter

    with TraceWriter(task.folder, "peers") as writer:
        return SimulatedPeers(task.settings, task.seed, writer).run()


def labels_of(run: FinishedRun, *more: str) -> dict[str, Any]:
    """What a run is told by."""
    names = ("algorithm", "tree_cache", "subscriptions", "peers", "acknowledged", "lookup", *more)
    return {name: run.settings[name] for name in names}


def message_samples(evidence: Evidence, *more: str) -> list[Sample]:
    """Messages by kind, all together, and for each match."""
    from braid.pipeline.metrics.traffic import messages_by_kind

    samples: list[Sample] = []
    totals: dict[str, dict[str, int]] = {}
    for run, row in evidence.by_run(messages_by_kind(evidence.traces.link_sample)):
        totals.setdefault(run.key, {})[row["kind"]] = row["messages"]
    for key, counted in totals.items():
        run = evidence.runs[key]
        labels, matches = labels_of(run, *more), run.summary["matches"]
        for kind, messages in sorted(counted.items()):
            samples.append(Sample("messages", {**labels, "kind": kind}, run.seed, messages))
        everything = sum(counted.values())
        samples.append(Sample("messages", {**labels, "kind": "all"}, run.seed, everything))
        publications = counted.get("publication", 0)
        samples.append(Sample("messages_per_match", labels, run.seed, publications / matches))
        confirmed = publications + counted.get("acknowledgement", 0)
        if run.settings["acknowledged"]:
            samples.append(
                Sample("messages_per_match_with_acknowledgements", labels, run.seed, confirmed / matches)
            )
    return samples


def delivery_samples(evidence: Evidence, *more: str) -> list[Sample]:
    """How much of what was expected has arrived."""
    from braid.pipeline.metrics.delay import delivery_ratio

    traces = evidence.traces
    return [
        Sample("delivery_ratio", labels_of(run, *more), run.seed, row["delivery_ratio"])
        for run, row in evidence.by_run(delivery_ratio(traces.publication, traces.delivery))
    ]


def ordering_samples(evidence: Evidence, *more: str) -> list[Sample]:
    """How far what each peer got of each publisher came in order, which peers do not promise."""
    from braid.pipeline.metrics.ordering import ordering_degree

    return [
        Sample("ordering_degree", labels_of(run, *more), run.seed, row["ordering_degree"])
        for run, row in evidence.by_run(ordering_degree(evidence.traces.delivery))
    ]


def latency_samples(evidence: Evidence, *more: str) -> list[Sample]:
    """How long deliveries take on average: all of them, and those of what was published after 30 s."""
    from braid.pipeline.metrics.delay import delivery_delay

    traces, samples = evidence.traces, []
    for run, row in evidence.by_run(delivery_delay(traces.publication, traces.delivery)):
        labels = {**labels_of(run, *more), "window": "from_cold"}
        samples.append(Sample("mean_latency_s", labels, run.seed, row["mean_delay_us"] / SECOND_US))
    for run, mean_s in _warm(evidence, evidence.runs.values()):
        labels = {**labels_of(run, *more), "window": "converged"}
        samples.append(Sample("mean_latency_s", labels, run.seed, mean_s))
    return samples


def _warm(evidence: Evidence, runs: Iterable[FinishedRun]) -> list[tuple[FinishedRun, float]]:
    """The mean latency in seconds of what was published 30 s after the first publication, or later."""
    from braid.pipeline.metrics.delay import delivery_delay

    traces = evidence.traces
    by_begin: dict[int, set[str]] = {}
    for run in runs:
        by_begin.setdefault(run.summary["begin_us"] // SECOND_US, set()).add(run.key)
    found = []
    for begin_s, keys in sorted(by_begin.items()):
        table = delivery_delay(
            traces.publication, traces.delivery, from_us=(begin_s + WARM_AFTER_S) * SECOND_US
        )
        found += [
            (run, row["mean_delay_us"] / SECOND_US) for run, row in evidence.by_run(table) if run.key in keys
        ]
    return found
