"""How long is a publication under way, and does it arrive?

Delivery delay per pair of brokers (multipath paper, Figure 10), delivery ratio over time and the hops of each
publication (infrastructure-free paper, Figures 8, 19 and 26).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from braid.pipeline.metrics.frames import (
    PUBLICATION,
    at_brokers,
    first_published,
    period_start,
    ratio,
    within,
)

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

__all__ = [
    "delivery_delay",
    "delivery_delay_by_pair",
    "delivery_ratio",
    "delivery_ratio_over_time",
    "dht_hops",
]


def delivery_delay_by_pair(
    publication: DataFrame, delivery: DataFrame, *, from_us: int | None = None, to_us: int | None = None
) -> DataFrame:
    """The mean time from publishing to delivery, for each pair of source and destination broker.

    Multipath paper, section 7 and Figure 10. The source is the broker where a publication entered; the delay
    is that of the first delivery at the destination. The interval is of publication times.

    Returns:
        `run, source, target, deliveries, mean_delay_us, delay_us_max`, in that order.
    """
    return (
        _delays(publication, delivery, from_us, to_us)
        .groupBy("run", "source", "target")
        .agg(*_summary())
        .orderBy("run", "source", "target")
    )


def delivery_delay(
    publication: DataFrame, delivery: DataFrame, *, from_us: int | None = None, to_us: int | None = None
) -> DataFrame:
    """The mean time from publishing to delivery over all deliveries of a run.

    Multipath paper, section 7: "the overall average delay"; infrastructure-free paper, Figures 14 to 18.

    Returns:
        `run, deliveries, mean_delay_us, delay_us_max`.
    """
    return _delays(publication, delivery, from_us, to_us).groupBy("run").agg(*_summary()).orderBy("run")


def _delays(publication: DataFrame, delivery: DataFrame, from_us: int | None, to_us: int | None) -> DataFrame:
    published = within(first_published(publication), from_us, to_us).select(
        *PUBLICATION, F.col("broker").alias("source"), F.col("at_us").alias("published_at_us")
    )
    delivered = at_brokers(delivery).withColumnRenamed("broker", "target")
    return delivered.join(published, list(PUBLICATION)).withColumn(
        "delay_us", F.col("at_us") - F.col("published_at_us")
    )


def _summary() -> tuple[Column, ...]:
    return (
        F.count(F.lit(1)).alias("deliveries"),
        F.avg("delay_us").alias("mean_delay_us"),
        F.max("delay_us").alias("delay_us_max"),
    )


def delivery_ratio(
    publication: DataFrame, delivery: DataFrame, *, from_us: int | None = None, to_us: int | None = None
) -> DataFrame:
    """The part of the expected deliveries that happened.

    Infrastructure-free paper, section VI-A1 and Figure 8: publications successfully delivered. `expected` is
    the number of brokers (or peers) with an interested subscriber, known to an all-knowing driver only;
    publications without it are left out. The interval is of publication times; deliveries count whenever they
    happen. More than 1 means uninvited deliveries.

    Returns:
        `run, expected, delivered, delivery_ratio`.
    """
    return (
        _answered(publication, delivery, from_us, to_us)
        .groupBy("run")
        .agg(F.sum("expected").alias("expected"), F.sum("delivered").alias("delivered"))
        .withColumn("delivery_ratio", ratio(F.col("delivered"), F.col("expected")))
        .orderBy("run")
    )


def delivery_ratio_over_time(
    publication: DataFrame,
    delivery: DataFrame,
    *,
    period_us: int = 10_000_000,
    from_us: int | None = None,
    to_us: int | None = None,
) -> DataFrame:
    """The delivery ratio of what was published in each period, NULL where nothing was expected.

    Infrastructure-free paper, section VI-D and Figure 26: "a ratio of the number of actual deliveries of a
    publication to the number of interested subscribers that had not crashed at the time of publication".

    Returns:
        `run, at_us, expected, delivered, delivery_ratio`; `at_us` is the beginning of the period.
    """
    return (
        _answered(publication, delivery, from_us, to_us)
        .groupBy("run", period_start(period_us))
        .agg(F.sum("expected").alias("expected"), F.sum("delivered").alias("delivered"))
        .withColumn("delivery_ratio", ratio(F.col("delivered"), F.col("expected")))
        .orderBy("run", "at_us")
    )


def _answered(
    publication: DataFrame, delivery: DataFrame, from_us: int | None, to_us: int | None
) -> DataFrame:
    """Each publication whose expectation is known, with the number of brokers that delivered it."""
    delivered = at_brokers(delivery).groupBy(*PUBLICATION).agg(F.count(F.lit(1)).alias("delivered"))
    return (
        within(first_published(publication), from_us, to_us)
        .where(F.col("expected").isNotNull())
        .select(*PUBLICATION, "at_us", F.col("expected").cast("long").alias("expected"))
        .join(delivered, list(PUBLICATION), "left")
        .na.fill(0, ["delivered"])
    )


def dht_hops(
    publication: DataFrame,
    delivery: DataFrame,
    *,
    period_us: int = 10_000_000,
    from_us: int | None = None,
    to_us: int | None = None,
) -> DataFrame:
    """How many hops a publication took to its subscribers, over the time of publishing.

    Infrastructure-free paper, section VI-A4 and Figure 19: DHT hops per publication, matching and delivery
    included. A publication's figure is the mean of `hops` over the peers that delivered it, where `hops`
    counts every message between peers from the publisher on; a period's is the mean over its publications.
    Undelivered publications have no figure.

    Returns:
        `run, at_us, publications, mean_hops`; `at_us` is the beginning of the period.
    """
    paths = at_brokers(delivery).groupBy(*PUBLICATION).agg(F.avg("hops").alias("hops"))
    return (
        within(first_published(publication), from_us, to_us)
        .select(*PUBLICATION, "at_us")
        .join(paths, list(PUBLICATION))
        .groupBy("run", period_start(period_us))
        .agg(F.count(F.lit(1)).alias("publications"), F.avg("hops").alias("mean_hops"))
        .orderBy("run", "at_us")
    )
