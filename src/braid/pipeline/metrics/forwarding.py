"""How far do publications travel, and through whom?

The multipath paper, section 7: the lengths of publication paths (Figure 9), pure forwarders and system yield
(Table 2), throughput in an interval (Figure 13).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as F
from pyspark.sql.window import Window

from braid.pipeline.metrics.frames import (
    PUBLICATION,
    US_PER_S,
    at_brokers,
    known_hops,
    period_start,
    ratio,
    within,
)

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

__all__ = [
    "first_arrivals",
    "forwarding_over_time",
    "forwarding_sums",
    "hop_distribution",
    "mean_hops",
    "pure_forwarders",
    "repeated_deliveries",
    "system_yield",
    "throughput",
]


def hop_distribution(
    delivery: DataFrame,
    hop: DataFrame | None = None,
    *,
    from_us: int | None = None,
    to_us: int | None = None,
) -> DataFrame:
    """How many deliveries crossed how many links, as counts and as a cumulative distribution.

    Multipath paper, section 7 and Figure 9. One path is counted per publication and broker that delivered it;
    what is delivered where it entered crossed no link and has 0 hops. The interval is of delivery times.
    Deliveries from logs do not say how far they came: `hop` does, and without it they are left out.

    Returns:
        `run, hops, deliveries, share, cumulative_share`, in order of `run, hops`.
    """
    counts = (
        within(at_brokers(delivery, hop), from_us, to_us)
        .where(F.col("hops").isNotNull())
        .groupBy("run", "hops")
        .agg(F.count(F.lit(1)).alias("n"))
    )
    whole = Window.partitionBy("run")
    so_far = whole.orderBy("hops").rowsBetween(Window.unboundedPreceding, Window.currentRow)
    deliveries = F.col("n")
    return counts.select(
        "run",
        "hops",
        deliveries.alias("deliveries"),
        (deliveries / F.sum("n").over(whole)).alias("share"),
        (F.sum("n").over(so_far) / F.sum("n").over(whole)).alias("cumulative_share"),
    ).orderBy("run", "hops")


def mean_hops(
    delivery: DataFrame,
    hop: DataFrame | None = None,
    *,
    from_us: int | None = None,
    to_us: int | None = None,
) -> DataFrame:
    """The mean number of links that a delivery crossed.

    Multipath paper, section 7, Figures 9 and 14. Paths are counted as in `hop_distribution`.

    Returns:
        `run, deliveries, mean_hops, hops_max`.
    """
    return (
        within(at_brokers(delivery, hop), from_us, to_us)
        .where(F.col("hops").isNotNull())
        .groupBy("run")
        .agg(
            F.count(F.lit(1)).alias("deliveries"),
            F.avg("hops").alias("mean_hops"),
            F.max("hops").alias("hops_max"),
        )
        .orderBy("run")
    )


def system_yield(
    hop: DataFrame, delivery: DataFrame, *, from_us: int | None = None, to_us: int | None = None
) -> DataFrame:
    """Which part of the publications sent between brokers arrived where somebody wanted them.

    Multipath paper, section 7 and Table 2: yield = publications delivered, "i.e., arrive at brokers with
    local matching subscribers", over publications sent between brokers. Brokers are counted, not subscribers.
    What is delivered at the broker where it entered was not sent between brokers; it stands in
    `local_deliveries` and in no other column, so that the yield is at most 1. Table 2 agrees: 348 / (348 +
    559) = 38 %. A second arrival of a publication at the same broker is a *repeat*: it was sent, and it is
    neither a delivery nor a pure forwarder.

        sent = deliveries + pure_forwarders + repeats,    yield = deliveries / sent

    The interval is of arrival times. Whether a broker delivered is looked up in all of `delivery`, because an
    arrival at the end of the interval may be delivered after it.

    Returns:
        `run, sent, deliveries, pure_forwarders, repeats, local_deliveries, yield`.
    """
    within_interval = F.lit(True)
    if from_us is not None:
        within_interval &= F.col("at_us") >= from_us
    if to_us is not None:
        within_interval &= F.col("at_us") < to_us
    # One shuffle of narrow rows: arrivals and deliveries meet in one aggregation instead of a join.
    arrivals = hop.select(
        *PUBLICATION,
        F.col("target").alias("broker"),
        within_interval.cast("int").alias("arrived"),
        F.lit(True).alias("came"),
        F.lit(False).alias("delivered"),
        F.lit(False).alias("now"),
        F.lit(None).cast("int").alias("hops"),
    )
    deliveries = delivery.select(
        *PUBLICATION,
        "broker",
        F.lit(0).alias("arrived"),
        F.lit(False).alias("came"),
        F.lit(True).alias("delivered"),
        within_interval.alias("now"),
        F.when(within_interval, known_hops()).alias("hops"),
    )
    places = (
        arrivals.unionByName(deliveries)
        .groupBy(*PUBLICATION, "broker")
        .agg(
            F.sum("arrived").alias("arrived"),
            F.bool_or("came").alias("came"),
            F.bool_or("delivered").alias("delivered"),
            F.bool_or("now").alias("now"),
            F.min("hops").alias("hops"),
        )
    )
    reached = F.col("arrived") > 0
    # What was read from a log does not say how far it came; it entered here if it never arrived.
    local = F.col("now") & F.coalesce(F.col("hops") == 0, ~F.col("came"))
    return (
        places.groupBy("run")
        .agg(
            F.sum("arrived").alias("sent"),
            F.count_if(reached & F.col("delivered")).alias("deliveries"),
            F.count_if(reached & ~F.col("delivered")).alias("pure_forwarders"),
            F.count_if(~reached & local).alias("local_deliveries"),
        )
        .select(
            "run",
            "sent",
            "deliveries",
            "pure_forwarders",
            (F.col("sent") - F.col("deliveries") - F.col("pure_forwarders")).alias("repeats"),
            "local_deliveries",
            ratio(F.col("deliveries"), F.col("sent")).alias("yield"),
        )
        .orderBy("run")
    )


def forwarding_over_time(
    hop: DataFrame,
    delivery: DataFrame,
    *,
    period_us: int = 20_000_000,
    from_us: int | None = None,
    to_us: int | None = None,
) -> DataFrame:
    """How yield, pure forwarders and path lengths develop while soft links are chosen.

    Multipath paper, section 7 and Table 2: everything is counted as `system_yield` and `mean_hops` do, by the
    period in which a publication came to a broker first. Sums over periods are the figures of any interval
    that consists of whole periods, so one pass over the traces serves all of them. The periods are counted
    from `from_us`, or from zero.

    Returns:
        `run, at_us, sent, deliveries, pure_forwarders, repeats, local_deliveries, links, yield`: `links` is
        the sum of the links that deliveries crossed, `at_us` the beginning of the period.
    """
    start_us = from_us or 0
    places = first_arrivals(hop, delivery)
    shifted = within(places, from_us, to_us).withColumn("at_us", F.col("at_us") - start_us)
    return (
        shifted.groupBy("run", period_start(period_us))
        .agg(*forwarding_sums())
        .select(
            "run",
            (F.col("at_us") + start_us).alias("at_us"),
            "sent",
            "deliveries",
            "pure_forwarders",
            (F.col("sent") - F.col("deliveries") - F.col("pure_forwarders")).alias("repeats"),
            "local_deliveries",
            "links",
            ratio(F.col("deliveries"), F.col("sent")).alias("yield"),
        )
        .orderBy("run", "at_us")
    )


def first_arrivals(hop: DataFrame, delivery: DataFrame) -> DataFrame:
    """One row per publication and broker that it came to or was delivered at, at the first of these times.

    Returns:
        `run, publisher, sequence, broker, at_us, arrived, delivered, hops`: how often it arrived, whether it
        was delivered there, and how many links it had crossed, 0 where it entered.
    """
    arrivals = hop.select(
        *PUBLICATION,
        F.col("target").alias("broker"),
        "at_us",
        F.lit(1).alias("arrived"),
        F.lit(False).alias("delivered"),
        F.lit(None).cast("int").alias("hops"),
        F.col("hops").cast("int").alias("links"),
    )
    deliveries = delivery.select(
        *PUBLICATION,
        "broker",
        "at_us",
        F.lit(0).alias("arrived"),
        F.lit(True).alias("delivered"),
        known_hops().alias("hops"),
        F.lit(None).cast("int").alias("links"),
    )
    return (
        arrivals.unionByName(deliveries)
        .groupBy(*PUBLICATION, "broker")
        .agg(
            F.min("at_us").alias("at_us"),
            F.sum("arrived").alias("arrived"),
            F.bool_or("delivered").alias("delivered"),
            F.coalesce(F.min("hops"), F.min("links"), F.lit(0)).alias("hops"),
        )
    )


def forwarding_sums() -> list[Column]:
    """What rows of `first_arrivals` come to: `sent, deliveries, pure_forwarders, local_deliveries, links`."""
    reached, delivered = F.col("arrived") > 0, F.col("delivered")
    return [
        F.sum("arrived").alias("sent"),
        F.count_if(reached & delivered).alias("deliveries"),
        F.count_if(reached & ~delivered).alias("pure_forwarders"),
        F.count_if(~reached).alias("local_deliveries"),
        F.coalesce(F.sum(F.when(delivered, F.col("hops"))), F.lit(0)).alias("links"),
    ]


def pure_forwarders(
    hop: DataFrame, delivery: DataFrame, *, from_us: int | None = None, to_us: int | None = None
) -> DataFrame:
    """How often a publication passed a broker that had nobody for it.

    Multipath paper, section 7 and Table 2: a pure forwarder is a publication at a broker that it reached over
    a link and that had no local delivery of it. Counted as `system_yield` says.

    Returns:
        `run, pure_forwarders, share`, the share being that of all publications sent between brokers.
    """
    return system_yield(hop, delivery, from_us=from_us, to_us=to_us).select(
        "run", "pure_forwarders", ratio(F.col("pure_forwarders"), F.col("sent")).alias("share")
    )


def repeated_deliveries(
    delivery: DataFrame, *, from_us: int | None = None, to_us: int | None = None
) -> DataFrame:
    """How often a client was given a publication that it had been given before.

    The multipath paper, section 5, promises that there are none. The interval is of the times at which they
    were given again. A second arrival at a broker (`repeats` in `system_yield`) need not be one: with sets of
    destinations it may be for others.

    Returns:
        `run, repeated_deliveries`, a row for every run with deliveries.
    """
    given_again = F.col("times") - 1
    if from_us is not None:
        given_again = F.when(F.col("at_us") >= from_us, given_again).otherwise(0)
    if to_us is not None:
        given_again = F.when(F.col("at_us") < to_us, given_again).otherwise(0)
    return (
        delivery.groupBy(*PUBLICATION, "broker", "subscriber")
        .agg(F.count(F.lit(1)).alias("times"), F.max("at_us").alias("at_us"))
        .groupBy("run")
        .agg(F.sum(given_again).alias("repeated_deliveries"))
        .orderBy("run")
    )


def throughput(delivery: DataFrame, *, from_us: int | None = None, to_us: int | None = None) -> DataFrame:
    """How many publications were delivered within an interval.

    Multipath paper, section 7 and Figure 13: "the number of deliveries within our 10 min measurement
    interval". `deliveries` counts brokers as `at_brokers` does; `client_deliveries` counts what clients
    received. An open end of the interval is the run's own first or last delivery.

    Returns:
        `run, deliveries, client_deliveries, seconds, deliveries_per_s`.
    """
    first = F.min("at_us") if from_us is None else F.lit(from_us)
    end = F.max("at_us") + 1 if to_us is None else F.lit(to_us)
    seconds = (end - first) / US_PER_S
    return (
        within(at_brokers(delivery), from_us, to_us)
        .groupBy("run")
        .agg(
            F.count(F.lit(1)).alias("deliveries"),
            F.sum("clients").alias("client_deliveries"),
            seconds.alias("seconds"),
        )
        .withColumn("deliveries_per_s", ratio(F.col("deliveries"), F.col("seconds")))
        .orderBy("run")
    )
