"""What does each broker, and each link, do in each period?

Everything is counted as the metrics of whole traces do: sums over brokers are `forwarding_over_time`, delays
are those of `delivery_delay`, and costs add up to `forwarding_cost`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from braid.pipeline.live.table import BROKER_COLUMNS, COUNTS, LINK_COLUMNS
from braid.pipeline.metrics.forwarding import first_arrivals, forwarding_sums
from braid.pipeline.metrics.frames import PUBLICATION, first_published, period_start, ratio

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

__all__ = ["measured_brokers", "measured_links"]


def measured_brokers(
    publication: DataFrame,
    hop: DataFrame,
    delivery: DataFrame,
    broker_load: DataFrame,
    *,
    period_us: int,
    broker_costs: DataFrame | None = None,
) -> DataFrame:
    """A row for each broker and period in which something happened there.

    A publication belongs to the period in which it came to the broker first, or entered or was delivered
    there. `processing_cost` is what its arrivals and the publications that entered there cost.

    Returns:
        `BROKER_COLUMNS`, in order of time and broker.
    """
    at = ["at_us", "broker"]
    forwarded = (
        first_arrivals(hop, delivery).groupBy(period_start(period_us), "broker").agg(*forwarding_sums())
    )
    began = first_published(publication).select(*PUBLICATION, F.col("at_us").alias("began_us"))
    # Delays belong to the period of the delivery: what was delivered now is what is slow now.
    delayed = (
        delivery.groupBy(*PUBLICATION, "broker")
        .agg(F.min("at_us").alias("at_us"))
        .join(began, [*PUBLICATION])
        .withColumn("delay_us", F.col("at_us") - F.col("began_us"))
        .groupBy(period_start(period_us), "broker")
        .agg(F.avg("delay_us").alias("mean_delay_us"), F.max("delay_us").alias("delay_us_max"))
    )
    arrived = hop.groupBy(period_start(period_us), F.col("target").alias("broker")).agg(
        F.count(F.lit(1)).alias("arrived")
    )
    entered = (
        first_published(publication)
        .groupBy(period_start(period_us), "broker")
        .agg(F.count(F.lit(1)).alias("published"))
    )
    loaded = (
        broker_load.withColumn("at_us", F.col("at_us") - 1)  # a sample is of the period that ends with it
        .groupBy(period_start(period_us), "broker")
        .agg(F.sum("dropped").alias("dropped"), F.max_by("queue_bytes", "at_us").alias("queue_bytes"))
    )
    whole = forwarded
    for other in (delayed, arrived, entered, loaded):
        whole = whole.join(other, at, "full")
    whole = _costing(whole, broker_costs, ["broker"])
    counted = whole.na.fill(0, [*(name for name in COUNTS if name != "repeats"), "arrived"])
    return (
        counted.withColumn("repeats", F.col("sent") - F.col("deliveries") - F.col("pure_forwarders"))
        .withColumn("yield", ratio(F.col("deliveries"), F.col("sent")))
        .withColumn("mean_hops", ratio(F.col("links"), F.col("deliveries") + F.col("local_deliveries")))
        .withColumn("processing_cost", F.col("cost") * (F.col("arrived") + F.col("published")))
        .select(*BROKER_COLUMNS)
        .orderBy(*at)
    )


def measured_links(
    hop: DataFrame,
    link_sample: DataFrame,
    *,
    period_us: int,
    link_costs: DataFrame | None = None,
) -> DataFrame:
    """A row for each direction of a link and period in which something crossed it.

    `publications` and `bytes` are counted on arrival; `messages` and `message_bytes` are all that was sent,
    of every kind, as the sending broker says.

    Returns:
        `LINK_COLUMNS`, in order of time and ends.
    """
    at = ["at_us", "source", "target", "link"]
    crossed = hop.groupBy(period_start(period_us), "source", "target", "link").agg(
        F.count(F.lit(1)).alias("publications"), F.sum(F.col("size_bytes").cast("long")).alias("bytes")
    )
    sampled = (
        link_sample.withColumn("at_us", F.col("at_us") - 1)
        .groupBy(period_start(period_us), "source", "target", "link")
        .agg(
            F.sum("messages").alias("messages"),
            F.sum("bytes").alias("message_bytes"),
            F.max_by("queue_bytes", "at_us").alias("queue_bytes"),
            F.max_by("round_trip_us", "at_us").alias("round_trip_us"),
        )
    )
    whole = _costing(crossed.join(sampled, at, "full"), link_costs, ["source", "target"])
    counts = ["publications", "bytes", "messages", "message_bytes"]
    return (
        whole.na.fill(0, counts)
        .withColumn("communication_cost", F.col("cost") * F.col("publications"))
        .select(*LINK_COLUMNS)
        .orderBy(*at)
    )


def _costing(rows: DataFrame, costs: DataFrame | None, keys: list[str]) -> DataFrame:
    """Rows with the cost of their broker or link, which is 1 unless a table says otherwise."""
    unit: Column = F.lit(1.0)
    if costs is None:
        return rows.withColumn("cost", unit)
    named = costs.select(*keys, F.col("cost").cast("double").alias("cost"))
    if len(keys) == 2:  # costs of links hold in either direction
        named = named.union(named.select(F.col(keys[1]), F.col(keys[0]), "cost")).dropDuplicates(keys)
    return rows.join(F.broadcast(named), keys, "left").withColumn("cost", F.coalesce("cost", unit))
