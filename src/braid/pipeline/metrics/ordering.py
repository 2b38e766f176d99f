"""Do subscribers receive publications in the order in which they were published?

The availability paper, set-up of the evaluation, after Banka, Bare and Jayasumana's metrics for the degree of
reordering in packet sequences.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as F
from pyspark.sql.window import Window

from braid.pipeline.metrics.frames import ratio, within

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = ["ordering_degree", "ordering_degree_by_sequence"]


def ordering_degree_by_sequence(
    delivery: DataFrame, *, from_us: int | None = None, to_us: int | None = None
) -> DataFrame:
    """The normalised ordering degree of what each subscriber received from each publisher.

    Availability paper, evaluation: with S messages in the sequence and f(D) of them displaced by D places,

        ordering degree = (sum over D of (S - D) f(D)) / S ** 2

    which is 1 for a sequence in order. Order is promised per publisher (Property 2), so a sequence is what
    one subscriber got from one publisher. D is the difference between a message's place by arrival and its
    place by sequence number among those received, so lost messages displace nobody. What arrives in the same
    microsecond came in one batch and counts as in order.

    Returns:
        `run, subscriber, publisher, messages, displaced, ordering_degree`; `displaced` are those with D > 0.
    """
    series = Window.partitionBy("run", "subscriber", "publisher")
    arrived = F.row_number().over(series.orderBy("at_us", "sequence"))
    published = F.row_number().over(series.orderBy("sequence", "at_us"))
    messages = F.col("messages").cast("double")
    return (
        within(delivery, from_us, to_us)
        .select(
            "run", "subscriber", "publisher", F.abs(arrived - published).cast("long").alias("displacement")
        )
        .groupBy("run", "subscriber", "publisher")
        .agg(
            F.count(F.lit(1)).alias("messages"),
            F.count_if(F.col("displacement") > 0).alias("displaced"),
            F.sum("displacement").alias("displacements"),
        )
        # The sum of (S - D) over S messages is S ** 2 minus the sum of all D.
        .withColumn("ordering_degree", 1 - F.col("displacements") / (messages * messages))
        .drop("displacements")
        .orderBy("run", "subscriber", "publisher")
    )


def ordering_degree(
    delivery: DataFrame, *, from_us: int | None = None, to_us: int | None = None
) -> DataFrame:
    """The normalised ordering degree of a run: the mean over its sequences, each weighted with its length.

    Availability paper, evaluation; see `ordering_degree_by_sequence`. The weights keep sequences of a single
    message, which cannot be out of order, from hiding those that are.

    Returns:
        `run, sequences, messages, displaced, ordering_degree, ordering_degree_min`.
    """
    return (
        ordering_degree_by_sequence(delivery, from_us=from_us, to_us=to_us)
        .groupBy("run")
        .agg(
            F.count(F.lit(1)).alias("sequences"),
            F.sum("messages").alias("messages"),
            F.sum("displaced").alias("displaced"),
            ratio(F.sum(F.col("ordering_degree") * F.col("messages")), F.sum("messages")).alias(
                "ordering_degree"
            ),
            F.min("ordering_degree").alias("ordering_degree_min"),
        )
        .orderBy("run")
    )
