"""What does it cost to distribute notifications?

The self-organising paper, section 3.1: each link has a communication cost, each broker a processing cost, and
a notification pays for every link and broker of its delivery tree. Costs may change: a table of costs with a
column `from_us` says from when on each holds, and what happened before the first pays the unit cost.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from pyspark.sql import functions as F
from pyspark.sql.window import Window

from braid.errors import ConfigurationError
from braid.pipeline.metrics.frames import PUBLICATION, first_published, period_start, within
from braid.pipeline.metrics.overlay import PRIMARY, Tree

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = ["COMPONENTS", "RECONFIGURATION_KINDS", "cost_over_time", "delivery_tree_cost", "forwarding_cost"]

UNIT_COST = 1.0
"""What a link or a broker costs that no table of costs names."""

# A table of one byte per interest and broker: some megabytes for a thousand trees.
TREES_AT_ONCE = 1_000

RECONFIGURATION_KINDS = (
    "shift",
    "exchange_request",
    "exchange_turn",
    "exchange_end",
    "change_request",
    "change_moving",
    "change_ready",
    "change_commit",
    "change_done",
    "change_finish",
    "change_abort",
    "move_entries",
    "move_in_use",
    "move_last",
    "avoid_shortcuts",
    "shortcuts_avoided",
    "use_shortcuts",
)
"""Kinds of messages by which links are exchanged: those of simulated brokers, and `shift`, which stands for
them where trees are priced without brokers."""

COMPONENTS: dict[str, tuple[str, ...]] = {
    "notifications": ("publication",),
    "broadcasts": ("topology_news",),
    "requests": ("link_request",),
    "reconfiguration": RECONFIGURATION_KINDS,
}
"""What the self-organising paper adds up, and the kinds of messages each of it is made of."""

_CROSSED_SCHEMA = "run string, source string, target string, times long"


def delivery_tree_cost(
    publication: DataFrame,
    delivery: DataFrame,
    links: DataFrame,
    *,
    link_costs: DataFrame | None = None,
    broker_costs: DataFrame | None = None,
    from_us: int | None = None,
    to_us: int | None = None,
) -> DataFrame:
    """cost(N, T): the cost of distributing all notifications of a run over its tree of primary links.

    Self-organising paper, Eq. 1 and 2:

        cost(n, T) = sum of p_v over the brokers v + sum of c_e over the links e of the delivery tree of n
        cost(N, T) = sum of cost(n, T) over the notifications n

    The delivery tree of n is the smallest subtree of T with the broker that published n and all brokers that
    delivered it. It depends on who is interested and on T only, so notifications of the same publisher broker
    and interest are priced once. The interval is of publication times; costs that change within it, and trees
    that do, are for `forwarding_cost`.

    Args:
        publication: `run, publisher, sequence, broker` and `at_us`.
        delivery: `run, publisher, sequence, broker`.
        links: `run, source, target, link`; the primary ones are T, a tree.
        link_costs: `source, target, cost`, in either direction, with `run` where runs differ. Unit costs
            without it, and for links that it does not name.
        broker_costs: `broker, cost`, likewise.

    Returns:
        `run, notifications, communication_cost, processing_cost, cost`.
    """
    if any(costs is not None and "from_us" in costs.columns for costs in (link_costs, broker_costs)):
        raise ConfigurationError(
            "a tree is priced at one time: choose the costs of that time, without from_us"
        )
    published = within(first_published(publication), from_us, to_us).select(
        *PUBLICATION, F.col("broker").alias("root")
    )
    interested = delivery.groupBy(*PUBLICATION).agg(F.sort_array(F.collect_set("broker")).alias("targets"))
    trees = (
        published.join(interested, list(PUBLICATION), "left")
        .groupBy("run", "root", "targets")
        .agg(F.count(F.lit(1)).alias("times"))
    )
    # New names, because Spark cannot tell apart the columns of two tables that come from one.
    roots = published.select(F.col("run").alias("of_run"), F.col("root").alias("of_root")).distinct()
    primary = links.where(F.col("link") == PRIMARY).select("run", "source", "target").distinct()
    tree_of_root = roots.join(primary, F.col("of_run") == F.col("run")).groupBy("of_run", "of_root")
    wanted = trees.where(F.col("targets").isNotNull()).groupBy("run", "root")
    crossed = wanted.cogroup(tree_of_root).applyInArrow(_links_crossed, _CROSSED_SCHEMA)
    entered = trees.select("run", F.col("root").alias("broker"), "times")
    return _priced(entered, crossed, link_costs, broker_costs)


def _links_crossed(trees: Any, links: Any) -> Any:
    """How often each link is part of a delivery tree, for the notifications of one publisher broker.

    Seen from the root, the link to a broker is in the delivery tree exactly when the broker lies on the way
    to one that is interested.
    """
    import pyarrow

    if trees.num_rows == 0:
        return pyarrow.table({name: [] for name in ("run", "source", "target", "times")}).cast(
            _crossed_schema()
        )
    run, root = trees.column("run")[0].as_py(), trees.column("root")[0].as_py()
    targets = trees.column("targets").combine_chunks()
    names = targets.flatten().dictionary_encode()
    pairs = list(zip(links.column("source").to_pylist(), links.column("target").to_pylist(), strict=True))
    tree = Tree({root, *(broker for pair in pairs for broker in pair)}, pairs, run)
    reached, parents, distances = tree.from_root(tree.number[root])
    # Of each target: which brokers lie on the way to it, the root left out.
    on_way = np.zeros((len(tree.brokers), len(tree.brokers)), bool)
    for broker in reached[1:]:
        on_way[broker] = on_way[parents[broker]]
        on_way[broker, broker] = True
    interested = names.dictionary.to_pylist()
    lost = [name for name in interested if name not in tree.number or distances[tree.number[name]] < 0]
    if lost:
        raise ConfigurationError(
            f"run {run!r}: {min(lost)} delivered what was published at {root}, "
            "and no primary links of the interval lead there"
        )
    numbers = np.array([tree.number[name] for name in interested], np.int64)[names.indices.to_numpy()]
    starts = targets.offsets.to_numpy()[:-1] - targets.offsets[0].as_py()
    times = trees.column("times").to_numpy()
    counts = np.zeros(len(tree.brokers), np.int64)
    for first in range(0, len(starts), TREES_AT_ONCE):
        begin = starts[first : first + TREES_AT_ONCE]
        end = starts[first + TREES_AT_ONCE] if first + TREES_AT_ONCE < len(starts) else len(numbers)
        in_tree = np.logical_or.reduceat(on_way[numbers[begin[0] : end]], begin - begin[0])
        counts += times[first : first + TREES_AT_ONCE] @ in_tree
    crossed = [broker for broker in reached[1:] if counts[broker]]
    return pyarrow.table(
        {
            "run": [run] * len(crossed),
            "source": [tree.brokers[parents[broker]] for broker in crossed],
            "target": [tree.brokers[broker] for broker in crossed],
            "times": [int(counts[broker]) for broker in crossed],
        },
        _crossed_schema(),
    )


def _crossed_schema() -> Any:
    import pyarrow

    names = [(name, pyarrow.string()) for name in ("run", "source", "target")]
    return pyarrow.schema([*names, ("times", pyarrow.int64())])


def forwarding_cost(
    publication: DataFrame,
    hop: DataFrame,
    *,
    link_costs: DataFrame | None = None,
    broker_costs: DataFrame | None = None,
    from_us: int | None = None,
    to_us: int | None = None,
) -> DataFrame:
    """What a run really spent on its notifications: Eq. 1 over the links that they crossed.

    Self-organising paper, Eq. 1 and 2, with the links and brokers that each notification came by instead of
    the smallest tree. On a tree that forwards nothing in vain it equals `delivery_tree_cost`; it also holds
    while the tree and the costs change. The interval is of publication times for publications and of arrival
    times for hops.

    Returns:
        `run, notifications, communication_cost, processing_cost, cost`.
    """
    epoch = _epoch(link_costs, broker_costs)
    entered = within(first_published(publication), from_us, to_us).select(
        "run", "broker", F.lit(1).alias("times"), epoch
    )
    crossed = within(hop, from_us, to_us).select("run", "source", "target", F.lit(1).alias("times"), epoch)
    return _priced(entered, crossed, link_costs, broker_costs)


def cost_over_time(
    link_sample: DataFrame,
    broker_load: DataFrame,
    *,
    period_us: int,
    link_costs: DataFrame | None = None,
    broker_costs: DataFrame | None = None,
    from_us: int | None = None,
    to_us: int | None = None,
) -> DataFrame:
    """What a network spent by periods, and on what: Eq. 1 for every message that crossed a link.

    Self-organising paper, section 5.1: "we measure the communication and processing costs caused by
    forwarding notifications and by additional messages the heuristics produce". A message costs its link and
    the broker that it comes to; a notification also the broker where it enters. Messages of other kinds, such
    as heartbeats and subscriptions, are what any network has, and cost nothing here.

    A sample belongs to the period in which its own begins, and pays the costs of that time.

    Args:
        link_sample: as in traces.
        broker_load: as in traces; `published` is what is taken of it.
        period_us: the length of a period.
        link_costs: `source, target, cost`, in either direction, with `from_us` where they change and with
            `run` where runs differ. Unit costs without it, and for links that it does not name.
        broker_costs: `broker, cost`, likewise.

    Returns:
        `run, at_us, notifications, broadcasts, requests, reconfiguration, cost`: the beginning of each
        period, the cost of each component, and all together.
    """
    epoch = _epoch(link_costs, broker_costs)
    begun = (F.col("at_us") - F.col("period_us")).alias("at_us")
    kind = F.col("kind")
    component = F.coalesce(
        *(F.when(kind.isin(list(kinds)), F.lit(name)) for name, kinds in COMPONENTS.items())
    )
    primary = F.col("link") == PRIMARY
    crossed = (
        link_sample.where(primary)
        .select(
            "run", begun, "source", "target", F.col("messages").alias("times"), component.alias("component")
        )
        .where(F.col("component").isNotNull())
    )
    entered = broker_load.select(
        "run", begun, "broker", F.col("published").alias("times"), F.lit("notifications").alias("component")
    )
    keys = ["run", "component"]
    over_links = within(crossed, from_us, to_us).select(
        *keys, "source", "target", "times", epoch, period_start(period_us)
    )
    at_brokers = (
        within(entered, from_us, to_us)
        .select(*keys, "broker", "times", epoch, period_start(period_us))
        .unionByName(over_links.select(*keys, F.col("target").alias("broker"), "times", "epoch", "at_us"))
    )
    communication = _with_cost(
        over_links.groupBy(*keys, "source", "target", "epoch", "at_us").agg(F.sum("times").alias("times")),
        _both_ways(link_costs),
        ["source", "target"],
    )
    processing = _with_cost(
        at_brokers.groupBy(*keys, "broker", "epoch", "at_us").agg(F.sum("times").alias("times")),
        broker_costs,
        ["broker"],
    )
    price = (F.col("times") * F.col("cost")).alias("price")
    whole = communication.select(*keys, "at_us", price).unionByName(processing.select(*keys, "at_us", price))
    return (
        whole.groupBy("run", "at_us")
        .agg(
            *(
                F.coalesce(F.sum(F.when(F.col("component") == name, F.col("price"))), F.lit(0.0)).alias(name)
                for name in COMPONENTS
            )
        )
        .withColumn("cost", sum((F.col(name) for name in COMPONENTS), F.lit(0.0)))
        .orderBy("run", "at_us")
    )


def _epoch(*tables: DataFrame | None) -> Any:
    """The latest time at which any costs changed before `at_us`; 0 where they never do."""
    times: set[int] = set()
    for costs in tables:
        if costs is not None and "from_us" in costs.columns:
            times |= {row["from_us"] for row in costs.select("from_us").distinct().collect()}
    if not times:
        return F.lit(0).cast("long").alias("epoch")
    known = F.array(*(F.lit(at_us).cast("long") for at_us in sorted(times)))
    at_us = F.col("at_us")
    # Before the first epoch there is none; no cost holds there, so that the unit cost does.
    latest = F.array_max(F.filter(known, lambda epoch: epoch <= at_us))
    return F.coalesce(latest, F.lit(-1).cast("long")).alias("epoch")


def _priced(
    entered: DataFrame, crossed: DataFrame, link_costs: DataFrame | None, broker_costs: DataFrame | None
) -> DataFrame:
    """Sum up: `entered` has `run, broker, times`, `crossed` has `run, source, target, times`."""
    epoch = ["epoch"] if "epoch" in entered.columns else []
    begun = entered.groupBy("run", "broker", *epoch).agg(F.sum("times").alias("times"))
    over_links = crossed.groupBy("run", "source", "target", *epoch).agg(F.sum("times").alias("times"))
    communication = _with_cost(over_links, _both_ways(link_costs), ["source", "target"])
    handled = begun.select(
        "run", "broker", *epoch, "times", F.col("times").alias("notifications")
    ).unionByName(
        over_links.select(
            "run", F.col("target").alias("broker"), *epoch, "times", F.lit(0).alias("notifications")
        )
    )
    processing = _with_cost(handled, broker_costs, ["broker"])
    price = F.col("times") * F.col("cost")
    nothing = F.lit(0.0)
    return (
        processing.select("run", "notifications", nothing.alias("communication"), price.alias("processing"))
        .unionByName(
            communication.select(
                "run",
                F.lit(0).alias("notifications"),
                price.alias("communication"),
                nothing.alias("processing"),
            )
        )
        .groupBy("run")
        .agg(
            F.sum("notifications").alias("notifications"),
            F.sum("communication").alias("communication_cost"),
            F.sum("processing").alias("processing_cost"),
        )
        .withColumn("cost", F.col("communication_cost") + F.col("processing_cost"))
        .orderBy("run")
    )


def _with_cost(table: DataFrame, costs: DataFrame | None, keys: list[str]) -> DataFrame:
    if costs is None:
        return table.withColumn("cost", F.lit(UNIT_COST))
    keys = ["run", *keys] if "run" in costs.columns else keys
    if "from_us" not in costs.columns:
        costs = costs.select(*keys, F.col("cost").cast("double").alias("cost"))
        return table.join(costs, keys, "left").na.fill(UNIT_COST, ["cost"])
    of_one = Window.partitionBy(*keys).orderBy("from_us")
    held = costs.select(
        *(F.col(key).alias(f"of_{key}") for key in keys),
        F.col("cost").cast("double").alias("cost"),
        "from_us",
        F.lead("from_us").over(of_one).alias("until_us"),
    )
    same = [F.col(key) == F.col(f"of_{key}") for key in keys]
    epoch = F.col("epoch")
    in_force = (F.col("from_us") <= epoch) & (F.col("until_us").isNull() | (epoch < F.col("until_us")))
    condition = in_force
    for each in same:
        condition = each & condition
    joined = table.join(held, condition, "left")
    return joined.select(*table.columns, "cost").na.fill(UNIT_COST, ["cost"])


def _both_ways(link_costs: DataFrame | None) -> DataFrame | None:
    """A link costs the same in both directions unless the table says otherwise."""
    if link_costs is None:
        return None
    others = [name for name in link_costs.columns if name not in ("source", "target")]
    reverse = link_costs.select(*others, F.col("target").alias("source"), F.col("source").alias("target"))
    named = ("run", "source", "target", "from_us")
    keys: list[str] = [name for name in named if name in link_costs.columns]
    said = link_costs.select(*keys, "cost")
    return said.unionByName(reverse.select(*keys, "cost").join(said.select(*keys), keys, "left_anti"))
