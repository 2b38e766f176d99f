"""What crosses the links, and what of it is not publications?

Network traffic over time (multipath paper, Figure 11), the share of control messages, and messages by kind
and per match (infrastructure-free paper, Figures 10 to 13).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as F
from pyspark.sql.window import Window

from braid.pipeline.metrics.frames import (
    US_PER_S,
    first_published,
    period_start,
    ratio,
    with_every_period,
    within,
)

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = [
    "control_overhead",
    "message_size",
    "messages_by_kind",
    "messages_per_match",
    "network_traffic",
]

PUBLICATION_KIND = "publication"


def network_traffic(
    hop: DataFrame, *, period_us: int = US_PER_S, from_us: int | None = None, to_us: int | None = None
) -> DataFrame:
    """Publications sent between brokers per second, over time.

    Multipath paper, section 7 and Figure 11: "the aggregate network traffic in terms of the number of
    publications transmitted". Counted on arrival. Periods without traffic are there, with zeros.

    Returns:
        `run, at_us, messages_per_s, bytes_per_s`; `at_us` is the beginning of the period.
    """
    per_second = US_PER_S / period_us
    series = (
        within(hop, from_us, to_us)
        .groupBy("run", period_start(period_us))
        .agg(
            (F.count(F.lit(1)) * per_second).alias("messages_per_s"),
            (F.sum(F.col("size_bytes").cast("long")) * per_second).alias("bytes_per_s"),
        )
    )
    return with_every_period(series, period_us, from_us, to_us)


def message_size(hop: DataFrame, *, from_us: int | None = None, to_us: int | None = None) -> DataFrame:
    """The mean size of a publication on a link between brokers, with everything that travels along.

    Between runs of one workload it differs by what strategies add, such as a set of destinations.

    Returns:
        `run, messages, mean_bytes`.
    """
    return (
        within(hop, from_us, to_us)
        .groupBy("run")
        .agg(F.count(F.lit(1)).alias("messages"), F.avg("size_bytes").alias("mean_bytes"))
        .orderBy("run")
    )


def messages_by_kind(
    link_sample: DataFrame, *, from_us: int | None = None, to_us: int | None = None
) -> DataFrame:
    """Messages and bytes on all links, for each kind of message.

    Infrastructure-free paper, section VI-A2 and Figure 11 (message cost by kind); multipath paper, section 7.
    A sample belongs to the interval when its `at_us`, the end of its period, does.

    Returns:
        `run, kind, messages, bytes, messages_share, bytes_share`.
    """
    whole = Window.partitionBy("run")
    return (
        within(link_sample, from_us, to_us)
        .groupBy("run", "kind")
        .agg(F.sum("messages").alias("messages"), F.sum("bytes").alias("bytes"))
        .withColumn("messages_share", ratio(F.col("messages"), F.sum("messages").over(whole)))
        .withColumn("bytes_share", ratio(F.col("bytes"), F.sum("bytes").over(whole)))
        .orderBy("run", "kind")
    )


def control_overhead(
    link_sample: DataFrame, *, from_us: int | None = None, to_us: int | None = None
) -> DataFrame:
    """The share of the bytes on all links that are not publications.

    Multipath paper, section 7: load exchange "incurs less than 2% of the total bytes sent and received". Here
    every message that is not a publication is control: subscriptions, acknowledgements and pings as well.

    Returns:
        `run, control_messages, control_bytes, bytes, control_share`.
    """
    control = F.col("kind") != PUBLICATION_KIND
    return (
        within(link_sample, from_us, to_us)
        .groupBy("run")
        .agg(
            F.coalesce(F.sum(F.when(control, F.col("messages"))), F.lit(0)).alias("control_messages"),
            F.coalesce(F.sum(F.when(control, F.col("bytes"))), F.lit(0)).alias("control_bytes"),
            F.sum("bytes").alias("bytes"),
        )
        .withColumn("control_share", ratio(F.col("control_bytes"), F.col("bytes")))
        .orderBy("run")
    )


def messages_per_match(
    hop: DataFrame, publication: DataFrame, *, from_us: int | None = None, to_us: int | None = None
) -> DataFrame:
    """Publication messages for each expected match.

    Infrastructure-free paper, section VI-A2 and Figure 13: "the message cost normalized by the number of
    expected matches". Every row of `hop` is one message; a match is one broker (or peer) with an interested
    subscriber, from `publication.expected`. The interval is of publication times; all messages that carry
    such a publication count, whenever they arrive. Publications without `expected` are left out on both
    sides.

    Returns:
        `run, messages, matches, messages_per_match`.
    """
    keys = ["run", "publisher", "sequence"]
    published = within(first_published(publication), from_us, to_us).where(F.col("expected").isNotNull())
    expected = published.groupBy("run").agg(F.sum(F.col("expected").cast("long")).alias("matches"))
    carried = (
        hop.select(*keys)
        .join(published.select(*keys), keys, "left_semi")
        .groupBy("run")
        .agg(F.count(F.lit(1)).alias("messages"))
    )
    return (
        expected.join(carried, "run", "left")
        .na.fill(0, ["messages"])
        .select(
            "run",
            "messages",
            "matches",
            ratio(F.col("messages"), F.col("matches")).alias("messages_per_match"),
        )
        .orderBy("run")
    )
