"""How much does a broker or peer have to remember?

Sizes of covering sets (multipath paper, Figure 12) and subscription state per peer (infrastructure-free
paper, Figure 20), from the samples of broker load.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from braid.pipeline.metrics.frames import within

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = ["covering_set_size", "state_distribution", "state_per_peer"]


def covering_set_size(
    broker_load: DataFrame, *, from_us: int | None = None, to_us: int | None = None
) -> DataFrame:
    """The mean size of the covering sets that publications are matched against.

    Multipath paper, section 7 and Figure 12: the "average size of covering sets over a 120s interval", over
    all brokers and all samples in the interval. The paper divides by the value at the smallest fanout; that
    is left to whoever compares runs.

    Returns:
        `run, brokers, covering_set, covering_set_max, subscriptions`: means, except for the largest.
    """
    # The mean of each broker first, so that one with more samples weighs no more than another.
    by_broker = (
        within(broker_load, from_us, to_us)
        .groupBy("run", "broker")
        .agg(
            F.avg("covering_set").alias("covering_set"),
            F.max("covering_set").alias("covering_set_max"),
            F.avg("subscriptions").alias("subscriptions"),
        )
    )
    return (
        by_broker.groupBy("run")
        .agg(
            F.count(F.lit(1)).alias("brokers"),
            F.avg("covering_set").alias("covering_set"),
            F.max("covering_set_max").alias("covering_set_max"),
            F.avg("subscriptions").alias("subscriptions"),
        )
        .orderBy("run")
    )


def state_per_peer(
    broker_load: DataFrame, *, from_us: int | None = None, to_us: int | None = None
) -> DataFrame:
    """The number of subscriptions that each peer (or broker) stored at the end of the interval.

    Infrastructure-free paper, section VI-A5: "a peer's state is taken to be the number of subscriptions
    stored at that peer". The last sample of each peer counts.

    Returns:
        `run, broker, subscriptions`.
    """
    return (
        within(broker_load, from_us, to_us)
        .groupBy("run", "broker")
        .agg(F.max_by("subscriptions", "at_us").alias("subscriptions"))
        .orderBy("run", "broker")
    )


def state_distribution(
    broker_load: DataFrame, *, from_us: int | None = None, to_us: int | None = None
) -> DataFrame:
    """How many peers store how many subscriptions.

    Infrastructure-free paper, section VI-A5 and Figure 20: "an x-value of 10 and y-value of 100 means that
    there are 100 peers that store 10 subscriptions".

    Returns:
        `run, subscriptions, peers`.
    """
    return (
        state_per_peer(broker_load, from_us=from_us, to_us=to_us)
        .groupBy("run", "subscriptions")
        .agg(F.count(F.lit(1)).alias("peers"))
        .orderBy("run", "subscriptions")
    )
