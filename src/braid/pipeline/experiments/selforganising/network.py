"""How does one run of the self-organising paper's network go, and what does it cost?

Settings of a point, all in JSON:

    policy          static, lmst, lmit, ci or exact
    duration_ticks  length of the run; a tick is 10 ms
    workload        name and parameters, such as {"name": "selforganising", "subscription_ticks": 2500}
    costs           fields of `CostSettings`, such as {"model": "uniform", "link_changes": [25000]}
    start           the tree at the beginning: uniform (random), recursive (random) or minimum
    topology        fields of `TopologySettings`, such as {"eta": 4}

The seed of a point makes the physical network, the costs, the workload and the tree.
"""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any

from braid.pipeline.experiments.rows import Sample

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from pyspark.sql import DataFrame

    from braid.pipeline.experiments.registry import Evidence
    from braid.pipeline.experiments.sweep import RunTask
    from braid.pipeline.experiments.sweep_folder import FinishedRun
    from braid.workloads.selforganising_costs import CostSchedule

__all__ = [
    "FUNCTION",
    "PERIOD_TICKS",
    "POLICIES",
    "TICK_US",
    "Cost",
    "byte_samples",
    "costs_by_period",
    "organise_point",
    "schedule_of",
    "settings_of",
    "start_links",
    "total",
    "vs_static",
]

FUNCTION = "braid.pipeline.experiments.selforganising.network:organise_point"

TICK_US = 10_000
PERIOD_TICKS = 1_000
"""The paper measures every 1,000 ticks."""

POLICIES = ("static", "lmst", "lmit", "ci", "exact")

INTERVAL_US = 250 * TICK_US
BROKERS = 100


def settings_of(policy: str, duration_ticks: int, **more: Any) -> dict[str, Any]:
    """The settings of a point, those that differ from the paper's evaluation given by name."""
    workload = {"name": "selforganising", **more.pop("workload", {})}
    return {
        "policy": policy,
        "duration_ticks": duration_ticks,
        "workload": workload,
        "costs": dict(more.pop("costs", {})),
        "start": more.pop("start", "uniform"),
        "topology": dict(more.pop("topology", {})),
        **more,
    }


def schedule_of(settings: Mapping[str, Any], seed: int) -> CostSchedule:
    """The costs of a run."""
    from braid.workloads.selforganising_costs import CostSettings, cost_schedule

    chosen = dict(settings["costs"])
    for name in ("link_changes", "processing_changes"):
        if name in chosen:
            chosen[name] = tuple(chosen[name])
    brokers = settings["workload"].get("brokers", BROKERS)
    return cost_schedule(seed, CostSettings(brokers=brokers, tick_us=TICK_US, **chosen))


def start_links(settings: Mapping[str, Any], seed: int, costs: CostSchedule) -> list[tuple[int, int]]:
    """The tree that a run begins with."""
    import numpy as np

    from braid.adaptation.topology.pricing import NumberedTree
    from braid.pipeline.planning.solver import Instance, minimum_tree
    from braid.sim.topologies.trees import tree_links
    from braid.workloads.tables import broker_name

    shape, count = settings["start"], len(costs.processing[0][1])
    if shape == "minimum":
        nothing = Instance(
            np.zeros((0, count), np.float32), np.zeros(0), costs.links[0][1], costs.processing[0][1]
        )
        return minimum_tree(nothing).links
    names = tuple(broker_name(each) for each in range(count))
    links = tree_links(names, None, random.Random(f"{seed}/tree/{shape}"), shape)
    number = {name: each for each, name in enumerate(names)}
    return NumberedTree.of_links(count, [(number[left], number[right]) for left, right in links]).links


def organise_point(task: RunTask) -> dict[str, Any]:
    """One run, in a Spark task: what crossed the links into its folder, and what became of the tree."""
    from braid.adaptation.topology import TopologySettings
    from braid.pipeline.experiments.selforganising.demand import Demand
    from braid.pipeline.experiments.selforganising.organised import OrganisedNetwork
    from braid.trace.writer import TraceWriter
    from braid.workloads import workload

    settings = task.settings
    chosen = dict(settings["workload"])
    duration = settings["duration_ticks"]
    played = workload(chosen.pop("name"), seed=task.seed, duration_ticks=duration, tick_us=TICK_US, **chosen)
    costs = schedule_of(settings, task.seed)
    network = OrganisedNetwork(
        Demand(played),
        costs,
        TopologySettings(policy=settings["policy"], interval_us=INTERVAL_US, **settings["topology"]),
        start_links(settings, task.seed, costs),
    )
    trace = TraceWriter(task.folder, "organised")
    try:
        network.run(duration * TICK_US, PERIOD_TICKS * TICK_US, trace)
    finally:
        trace.close()
    return {
        "exchanges": len(network.exchanges),
        "exchange_ticks": [exchange.at_us // TICK_US for exchange in network.exchanges],
        "links": [list(link) for link in network.tree.links],
        "degree_max": max(len(beside) for beside in network.beside),
        "false_positive_rate": network.false_positive_rate,
    }


class Cost(dict[str, float]):
    """What a run spent in a period, by component."""

    @property
    def control(self) -> float:
        """On looking for a better tree and changing to it."""
        return self["cost"] - self["notifications"]


def costs_by_period(evidence: Evidence) -> dict[str, list[Cost]]:
    """What every run spent in each period of 1,000 ticks, by the run's key, computed by Spark."""
    from braid.pipeline.metrics.cost import cost_over_time

    traces = evidence.traces
    link_costs, broker_costs = _cost_tables(evidence)
    table = cost_over_time(
        traces.link_sample,
        traces.broker_load,
        period_us=PERIOD_TICKS * TICK_US,
        link_costs=link_costs,
        broker_costs=broker_costs,
    )
    found: dict[str, list[Cost]] = {key: [] for key in evidence.runs}
    for run, row in sorted(evidence.by_run(table), key=lambda pair: pair[1]["at_us"]):
        row.pop("run")
        row.pop("at_us")
        found[run.key].append(Cost(row))
    return found


def byte_samples(
    evidence: Evidence, labels_of: Callable[[FinishedRun], dict[str, Any]], last_ticks: int | None = None
) -> list[Sample]:
    """Beside the prices, in which every message counts as one: how many bytes crossed links, and how often a
    filter of interest said yes to a stranger.

    Args:
        evidence: the runs.
        labels_of: the labels of a run's rows; those of other kinds of runs are left out with None.
        last_ticks: only the end of each run counts; None: all of it.
    """
    from pyspark.sql import functions as F

    from braid.pipeline.metrics.cost import COMPONENTS

    table = evidence.traces.link_sample
    if last_ticks is not None:
        ends = table.groupBy("run").agg(F.max("at_us").alias("end_us"))
        table = table.join(ends, "run").where(F.col("at_us") > F.col("end_us") - last_ticks * TICK_US)
    kinds = {kind: name for name, some in COMPONENTS.items() for kind in some}
    found: dict[str, dict[str, int]] = {}
    for run, row in evidence.by_run(table.groupBy("run", "kind").agg(F.sum("bytes").alias("bytes"))):
        spent = found.setdefault(run.key, {})
        name = kinds.get(row["kind"], "other")
        spent[name] = spent.get(name, 0) + row["bytes"]
    samples: list[Sample] = []
    for key, spent in found.items():
        run = evidence.runs[key]
        if run.settings["policy"] in ("static", "offline"):
            continue
        labels = labels_of(run)
        control = sum(count for name, count in spent.items() if name != "notifications")
        samples.append(Sample("control_bytes", labels, run.seed, control))
        samples.append(Sample("control_bytes_share", labels, run.seed, control / sum(spent.values())))
        if "false_positive_rate" in run.summary:
            rate = run.summary["false_positive_rate"]
            samples.append(Sample("false_positive_rate", labels, run.seed, rate))
    return samples


def _cost_tables(evidence: Evidence) -> tuple[DataFrame, DataFrame]:
    """The costs of all runs, with the column `run`."""
    import pyarrow as pa

    links: list[pa.Table] = []
    brokers: list[pa.Table] = []
    for run in evidence.runs.values():
        schedule = schedule_of(run.settings, run.seed)
        for table, parts in ((schedule.link_table(), links), (schedule.broker_table(), brokers)):
            name = pa.DictionaryArray.from_arrays(
                pa.array([0] * table.num_rows, pa.int32()), pa.array([run.key])
            )
            parts.append(table.append_column("run", name.cast(pa.string())))
    spark = evidence.spark
    return spark.createDataFrame(pa.concat_tables(links)), spark.createDataFrame(pa.concat_tables(brokers))


def total(costs: Sequence[Cost], name: str = "cost") -> float:
    """Several periods together."""
    return sum(cost[name] for cost in costs)


def vs_static(
    runs: Mapping[str, FinishedRun],
    costs: Mapping[str, Sequence[Cost]],
    labels: Mapping[str, str | int | float | bool] | None = None,
    first: int = 0,
    last: int | None = None,
    named: Sequence[str] = (),
) -> list[Sample]:
    """`cost_vs_static` of every run: everything it spent over what the tree would have cost if left alone.

    Args:
        runs: all runs; each needs a static one with the same settings otherwise.
        costs: of each run by periods.
        labels: for all rows.
        first: the first period that counts.
        last: the first that counts no more.
        named: settings of runs that rows say, as `topology.eta` or `policy`.
    """
    static = {
        _but_policy(run.settings, run.seed): total(costs[key][first:last])
        for key, run in runs.items()
        if run.settings["policy"] == "static"
    }
    found: list[Sample] = []
    for key, run in runs.items():
        chosen = {"policy": run.settings["policy"], **(labels or {}), **_named(run.settings, named)}
        base = static.get(_but_policy(run.settings, run.seed))
        if base:
            spent = total(costs[key][first:last])
            found.append(Sample("cost_vs_static", chosen, run.seed, spent / base))
    return found


def _named(settings: Mapping[str, Any], names: Sequence[str]) -> dict[str, Any]:
    found = {}
    for name in names:
        value: Any = settings
        for part in name.split("."):
            value = value.get(part) if isinstance(value, dict) else None
        if value is not None:
            found[name.rpartition(".")[2]] = value
    return found


def _but_policy(settings: Mapping[str, Any], seed: int) -> str:
    """What two runs have in common that differ in how they organise themselves."""
    import json

    kept = {name: value for name, value in settings.items() if name not in ("policy", "topology")}
    return json.dumps([kept, seed], sort_keys=True)
