"""How long does a change of the overlay disturb those who subscribe?

The availability paper, section II-B and the set-up of its evaluation: operation time (OT), replication time
(RT), publication delivery resumption delay (PDRD) and last message processed time (LMPT).

The metrics read these rows of `reconfiguration`, which brokers write; of the others only the first of an
operation counts, which is its beginning.

| `phase` | `broker` | `detail` | says |
|---|---|---|---|
| `finished` or `aborted` | each that took part | | the operation has ended there |
| `state requested` | the replica | the neighbour | it asks a neighbour for all that it knows |
| `state received` | the replica | the neighbour | it knows all that is wanted behind that neighbour |
| `connection requested` | a neighbour | the shifting or replaced broker | it got the request to connect |
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from braid.pipeline.metrics.frames import PUBLICATION, first_published, within

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

__all__ = [
    "ABORTED",
    "CONNECTION_REQUESTED",
    "FINISHED",
    "STATE_RECEIVED",
    "STATE_REQUESTED",
    "disruption",
    "operation_time",
    "replication_time",
    "resumption",
]

FINISHED = "finished"
ABORTED = "aborted"
STATE_REQUESTED = "state requested"
STATE_RECEIVED = "state received"
CONNECTION_REQUESTED = "connection requested"

OPERATION = ("run", "operation", "operation_id")


def operation_time(
    reconfiguration: DataFrame, *, from_us: int | None = None, to_us: int | None = None
) -> DataFrame:
    """How long each operation took, from its trigger to its end.

    Availability paper, evaluation: "OT is the duration from when a protocol is triggered to when it
    terminates". It is triggered when the first broker says anything of it, and over when the last one says
    that it has ended. The interval is of beginnings. An operation that has not ended has no time.

    Returns:
        `run, operation, operation_id, started_at_us, operation_time_us, aborted`.
    """
    return (
        reconfiguration.groupBy(*OPERATION)
        .agg(
            F.min("at_us").alias("at_us"),
            F.max(_when(FINISHED, ABORTED)).alias("ended_at_us"),
            F.bool_or(F.col("phase") == ABORTED).alias("aborted"),
        )
        .transform(within, from_us, to_us)
        .select(
            *OPERATION,
            F.col("at_us").alias("started_at_us"),
            (F.col("ended_at_us") - F.col("at_us")).alias("operation_time_us"),
            "aborted",
        )
        .orderBy(*OPERATION)
    )


def replication_time(
    reconfiguration: DataFrame, *, from_us: int | None = None, to_us: int | None = None
) -> DataFrame:
    """How long a replica took to gather the routing state of the broker it stands for.

    Availability paper, evaluation: RT is "the elapsed time since the replica broker sends advertisement
    forwarding requests to its neighbors until it receives all the subscriptions from its neighbors". The
    first request and the last arrival count. The interval is of first requests.

    Returns:
        `run, operation, operation_id, replica, replication_time_us`.
    """
    return (
        reconfiguration.where(F.col("phase").isin(STATE_REQUESTED, STATE_RECEIVED))
        .groupBy(*OPERATION, F.col("broker").alias("replica"))
        .agg(
            F.min(_when(STATE_REQUESTED)).alias("at_us"), F.max(_when(STATE_RECEIVED)).alias("received_at_us")
        )
        .where(F.col("at_us").isNotNull())
        .transform(within, from_us, to_us)
        .select(
            *OPERATION, "replica", (F.col("received_at_us") - F.col("at_us")).alias("replication_time_us")
        )
        .orderBy(*OPERATION, "replica")
    )


def resumption(
    reconfiguration: DataFrame,
    publication: DataFrame,
    hop: DataFrame,
    delivery: DataFrame,
    *,
    from_us: int | None = None,
    to_us: int | None = None,
) -> DataFrame:
    """PDRD and LMPT of each subscriber behind a connection that an operation made.

    Availability paper, evaluation. PDRD is "the elapsed time since the subscriber neighbor broker gets the
    connection request [...] until this neighbor broker receives the first publication matching the
    subscription through the new connection"; LMPT goes from that first publication "until it receives the
    last message pending at the advertisement-forwarding broker since the fault occurred".

    A publication matches a subscriber when it was delivered to it. The subscribers are those at the neighbour
    itself. A message was pending when it was published before the operation ended; while it has not ended,
    all are. The interval is of connection requests. A replica has the name of the broker that it replaces,
    and a simulated one a host of another name: the new connection is that to whoever asks for state.

    Returns:
        `run, operation, operation_id, broker, subscriber, pdrd_us, lmpt_us`; `broker` is the neighbour. A
        subscriber that never got anything through the new connection has no row.
    """
    requests = (
        reconfiguration.where(F.col("phase") == CONNECTION_REQUESTED)
        .groupBy(*OPERATION, "broker", F.col("detail").alias("peer"))
        .agg(F.min("at_us").alias("at_us"))
        .transform(within, from_us, to_us)
        .withColumnRenamed("at_us", "requested_at_us")
    )
    replicas = (
        reconfiguration.where(F.col("phase") == STATE_REQUESTED)
        .groupBy(*OPERATION)
        .agg(F.first("broker").alias("replica"))
    )
    requests = (
        requests.join(replicas, list(OPERATION), "left")
        .withColumn("peer", F.coalesce("replica", "peer"))
        .drop("replica")
    )
    ends = reconfiguration.groupBy(*OPERATION).agg(F.max(_when(FINISHED, ABORTED)).alias("ended_at_us"))
    arrivals = hop.select(
        *PUBLICATION,
        F.col("source").alias("peer"),
        F.col("target").alias("broker"),
        F.col("at_us").alias("arrived_at_us"),
    )
    # Requests are few, so they go to the hops and not the other way round.
    through = arrivals.join(
        F.broadcast(requests.join(ends, list(OPERATION), "left")), ["run", "broker", "peer"]
    ).where(F.col("arrived_at_us") >= F.col("requested_at_us"))
    matched = through.join(
        delivery.select(*PUBLICATION, "broker", "subscriber").distinct(), [*PUBLICATION, "broker"]
    ).join(
        first_published(publication).select(*PUBLICATION, F.col("at_us").alias("published_at_us")),
        list(PUBLICATION),
        "left",
    )
    was_pending = F.coalesce(F.col("published_at_us") < F.col("ended_at_us"), F.lit(True))
    return (
        matched.groupBy(*OPERATION, "broker", "subscriber")
        .agg(
            F.min("requested_at_us").alias("requested_at_us"),
            F.min("arrived_at_us").alias("first_at_us"),
            F.max(F.when(was_pending, F.col("arrived_at_us"))).alias("last_at_us"),
        )
        .select(
            *OPERATION,
            "broker",
            "subscriber",
            (F.col("first_at_us") - F.col("requested_at_us")).alias("pdrd_us"),
            # Nothing was pending any more when the first publication came: there was nothing to work off.
            F.coalesce(F.greatest(F.col("last_at_us") - F.col("first_at_us"), F.lit(0)), F.lit(0)).alias(
                "lmpt_us"
            ),
        )
        .orderBy(*OPERATION, "broker", "subscriber")
    )


def disruption(
    reconfiguration: DataFrame,
    publication: DataFrame,
    hop: DataFrame,
    delivery: DataFrame,
    *,
    from_us: int | None = None,
    to_us: int | None = None,
) -> DataFrame:
    """The mean PDRD and LMPT of each sort of operation.

    Availability paper, evaluation: "These experiments typically present the average delay across all
    subscriptions." See `resumption`.

    Returns:
        `run, operation, subscribers, pdrd_ms, lmpt_ms`.
    """
    return (
        resumption(reconfiguration, publication, hop, delivery, from_us=from_us, to_us=to_us)
        .groupBy("run", "operation")
        .agg(
            F.count(F.lit(1)).alias("subscribers"),
            (F.avg("pdrd_us") / 1_000).alias("pdrd_ms"),
            (F.avg("lmpt_us") / 1_000).alias("lmpt_ms"),
        )
        .orderBy("run", "operation")
    )


def _when(*phases: str) -> Column:
    """The time of a row of one of these phases."""
    return F.when(F.col("phase").isin(*phases), F.col("at_us"))
