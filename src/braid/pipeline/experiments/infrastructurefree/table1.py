"""Which properties do DMM, DMM-AR and Hermes have? (Table I, those of its columns, from runs)

Each property is decided by a number that small runs give, and a bound. The runs of one algorithm differ in
one thing each, so that a property is what that thing changes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from braid.pipeline.experiments.infrastructurefree.network import FUNCTION, settings_of
from braid.pipeline.experiments.registry import Experiment, Findings
from braid.pipeline.experiments.rows import PaperValue, Sample
from braid.pipeline.experiments.sweep import Point

if TYPE_CHECKING:
    from collections.abc import Mapping

    from braid.pipeline.experiments.registry import Evidence, Plan

__all__ = ["ALGORITHMS", "EXPERIMENT", "PAPER_SAYS", "PROPERTIES", "decided"]

ALGORITHMS: Final = ("DMM", "DMM-AR", "Hermes")
# Regions of DMM are large, because ranges of few of the attributes are in both halves of most of them.
_THRESHOLDS: Final = {"DMM": 150, "DMM-AR": 20, "Hermes": 1_000}
_WHOLE: Final = 1_000_000

_SMALL: Final[Mapping[str, Any]] = {
    "peers": 200,
    "publishers": 20,
    "subscriptions": 300,
    "publish_s": 50.0,
    "tree_cache": False,
    "lookup": "search",
    "loss": 0.0,
}
_WORKLOAD: Final[Mapping[str, Any]] = {"predicates": 3, "published": 10, "width_max": 100}

# What each run of an algorithm changes.
_RUNS: Final[Mapping[str, Mapping[str, Any]]] = {
    "usual": {},
    "ring": {"dht": "ring"},
    "schemaless": {"schema": False},
    "whole": {"split_threshold": _WHOLE},
    "one predicate": {"split_threshold": _WHOLE, "workload": {**_WORKLOAD, "predicates": 1}},
    "five predicates": {"split_threshold": _WHOLE, "workload": {**_WORKLOAD, "predicates": 5}},
    "popular": {
        "subscriptions": 2_000,
        "split_threshold": _WHOLE,
        "workload": {"predicates": 1, "published": 10},
    },
    "crash": {"crash": 40, "crash_at_s": 100.0, "publish_s": 300.0},
}

PROPERTIES: Final[Mapping[str, str]] = {
    "query language": "1: content. What was delivered is what filters of ranges select, no more and no less.",
    "global schema": "1: needed. Without one, the busiest peer holds at least twice its share with one.",
    "DHT agnostic": "1: yes. On a ring of full membership the same is delivered as on Pastry.",
    "simultaneous attribute matching": "1: yes. A subscription of five predicates is in no more peers' "
    "indexes than one of two attributes can be, instead of one for each predicate.",
    "multicast delivery": "1: yes. Where nearly all want nearly everything, deliveries take less than half "
    "of the messages that the hops of all of them add up to.",
    "subscription indexing": "How many peers index one subscription, beside those on the way.",
    "match/storage bias": "1: match. Halving regions multiplies entries more than peers that a publication "
    "is matched at.",
    "load balance match": "1: yes. Halving regions takes a quarter of its work from the busiest peer.",
    "load balance storage": "1: yes. The same for entries.",
    "fault-tolerance": "1: yes. After a fifth of all peers crashed, everything is delivered again.",
    "hotspot avoidance": "1: yes. No peer sees more than half of all publications on their way.",
}
"""What a value means, and what decides it."""

PAPER_SAYS: Final[Mapping[str, tuple[int, int, int]]] = {
    "query language": (1, 1, 1),
    "global schema": (1, 0, 0),
    "DHT agnostic": (1, 1, 1),
    "simultaneous attribute matching": (1, 1, 1),
    "multicast delivery": (1, 1, 1),
    "subscription indexing": (1, 2, 1),
    "match/storage bias": (1, 1, 1),
    "load balance match": (1, 1, 0),
    "load balance storage": (1, 1, 0),
    "fault-tolerance": (1, 1, 1),
    "hotspot avoidance": (1, 1, 0),
}
"""Its columns DMM, DMM-AR and Hermes, with 1 for yes, content and match."""


def _settings(algorithm: str, run: str) -> dict[str, Any]:
    chosen: dict[str, Any] = {
        **_SMALL,
        "algorithm": algorithm,
        "split_threshold": _THRESHOLDS[algorithm],
        "workload": _WORKLOAD,
        "run": run,
        **_RUNS[run],
    }
    return settings_of(**chosen)


def _points(plan: Plan) -> list[Point]:
    return [
        Point(_settings(algorithm, run), seed)
        for algorithm in ALGORITHMS
        for run in _RUNS
        for seed in range(1, plan.seeds + 1)
    ]


def decided(runs: Mapping[str, Mapping[str, float]]) -> dict[str, tuple[float, float]]:
    """For each property its value and the number that decides it, from what the runs of an algorithm gave."""
    usual, whole = runs["usual"], runs["whole"]
    exact = min(usual["delivery_ratio"], 2 - usual["delivery_ratio"])
    schema = runs["schemaless"]["leaf_max"] / usual["leaf_max"]
    ring = runs["ring"]["delivery_ratio"]
    many = runs["five predicates"]["indexed_at_max"]
    popular = runs["popular"]
    sharing = popular["publication_messages"] / popular["hops"]
    spread = usual["matched"] / whole["matched"], usual["leaf"] / whole["leaf"]
    match = usual["matched_max"] / whole["matched_max"]
    storage = usual["leaf_max"] / whole["leaf_max"]
    late = runs["crash"]["delivery_ratio_late"]
    seen = usual["seen_max"] / usual["publications"]
    return {
        "query language": (float(exact == 1), usual["delivery_ratio"]),
        "global schema": (float(schema >= 2), schema),
        "DHT agnostic": (float(ring == 1), ring),
        "simultaneous attribute matching": (float(many <= 2), many),
        "multicast delivery": (float(sharing < 0.5), sharing),
        "subscription indexing": (whole["indexed_at_max"], whole["indexed_at_max"]),
        "match/storage bias": (float(spread[0] <= spread[1]), spread[0] / spread[1]),
        "load balance match": (float(match <= 0.75), match),
        "load balance storage": (float(storage <= 0.75), storage),
        "fault-tolerance": (float(late >= 0.999), late),
        "hotspot avoidance": (float(seen <= 0.5), seen),
    }


def _measure(evidence: Evidence) -> Findings:
    from pyspark.sql import functions as F

    from braid.pipeline.metrics.delay import delivery_ratio

    traces = evidence.traces
    numbers: dict[str, dict[str, float]] = {
        key: {
            "publications": run.summary["publications"],
            "publication_messages": run.summary["messages"]["publication"],
            **run.summary["table"],
        }
        for key, run in evidence.runs.items()
    }
    for run, row in evidence.by_run(delivery_ratio(traces.publication, traces.delivery)):
        numbers[run.key]["delivery_ratio"] = row["delivery_ratio"]
    for run, row in evidence.by_run(traces.delivery.groupBy("run").agg(F.sum("hops").alias("hops"))):
        numbers[run.key]["hops"] = row["hops"]
    for key, run in evidence.runs.items():
        if run.settings["crash"]:
            # The last third: replicas, beacons and expiry have had their time.
            from_us = (run.summary["crash_us"] + 2 * run.summary["end_us"]) // 3
            late = delivery_ratio(
                traces.publication.where(F.col("run") == key),
                traces.delivery.where(F.col("run") == key),
                from_us=from_us,
            )
            numbers[key]["delivery_ratio_late"] = late.collect()[0]["delivery_ratio"]
    samples = []
    seeds = sorted({run.seed for run in evidence.runs.values()})
    for seed in seeds:
        for algorithm in ALGORITHMS:
            runs = {
                run.settings["run"]: numbers[key]
                for key, run in evidence.runs.items()
                if run.seed == seed and run.settings["algorithm"] == algorithm
            }
            for name, (value, number) in decided(runs).items():
                labels = {"algorithm": algorithm, "property": name}
                samples.append(Sample("property", labels, seed, value))
                samples.append(Sample("decided_by", labels, seed, number))
    return Findings(samples)


EXPERIMENT = Experiment(
    paper="infrastructure-free",
    name="table1",
    title="Properties of DMM, DMM-AR and Hermes, from runs",
    shows=(
        "Table I, its columns DMM, DMM-AR and Hermes. `property` is 1 for yes and 0 for no (query language: "
        "content; bias: match; subscription indexing: a number of peers), `decided_by` the number that "
        "decides. " + " ".join(f"*{name}*: {text}" for name, text in PROPERTIES.items())
    ),
    function=FUNCTION,
    points=_points,
    measure=_measure,
    paper_values=tuple(
        PaperValue("property", {"algorithm": algorithm, "property": name}, float(value))
        for name, values in PAPER_SAYS.items()
        for algorithm, value in zip(ALGORITHMS, values, strict=True)
    ),
    seeds={"quick": 1, "paper": 3},
    notes=(
        "200 peers, 300 subscriptions of three predicates, no losses; regions of DMM are halved from 150 "
        "entries on, those of DMM-AR from 20. The columns of other systems are the paper's own judgement and "
        "are not measured.",
    ),
)
