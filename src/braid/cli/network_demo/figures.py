"""What did the run amount to, by what brokers and clients wrote down?

Spark reads the traces of all brokers and the tables of the clients. Which quotes each reader should have
got is found by Spark SQL itself, from the text of the filters: a judge that shares nothing with the
brokers' matching.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

__all__ = ["ActFigures", "Judgement", "judge"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ActFigures:
    """One act; None where the traces cannot say."""

    act: str
    published: int
    wanted: int
    """Deliveries that there should have been."""
    delivered: int
    lost: int
    doubled: int
    uninvited: int
    mean_hops: float | None
    messages_per_delivery: float | None
    """Copies that crossed links, for each delivery at a broker that was not the publisher's own."""
    cost: float | None
    """Links crossed and brokers visited for each publication."""
    pause_ms: float | None
    """The longest time from the publication to a reader."""


@dataclass(frozen=True, slots=True)
class Judgement:
    """The whole run."""

    acts: tuple[ActFigures, ...]
    shifts: int
    """SHIFTs that were finished, as the brokers wrote them down."""
    held_ms_max: float | None
    """The longest time that one of them held publications at a broker."""

    def total(self, name: str) -> int:
        """A sum over all acts."""
        return sum(getattr(each, name) for each in self.acts)

    @property
    def wrong(self) -> int:
        """Deliveries that were not as they should be."""
        return self.total("lost") + self.total("doubled") + self.total("uninvited")

    def to_json(self) -> dict[str, Any]:
        """Plain values."""
        return {
            "acts": [asdict(each) for each in self.acts],
            "published": self.total("published"),
            "delivered": self.total("delivered"),
            "lost": self.total("lost"),
            "doubled": self.total("doubled"),
            "uninvited": self.total("uninvited"),
            "shifts": self.shifts,
            "held_ms_max": self.held_ms_max,
        }


def judge(traces: Path, clients: Path, acts: Sequence[str], incomplete: Mapping[str, str]) -> Judgement:
    """Read everything, and count.

    Args:
        traces: the folder of the brokers' traces.
        clients: that of the clients' tables.
        acts: their names, in order.
        incomplete: acts during which a broker was killed with a part of its trace, so that links crossed are
            not known, with the reason.
    """
    from braid.pipeline.session import spark_session
    from braid.pipeline.traces import Traces

    with spark_session("braid demo") as spark:
        tables = Traces(spark, traces)
        published = spark.read.parquet(str(clients / "published.parquet")).cache()
        received = spark.read.parquet(str(clients / "received.parquet")).cache()
        counted = _deliveries(spark, clients, published, received)
        known = _links(tables)
        figures = []
        for act in acts:
            mine = counted.get(act)
            if mine is None:
                continue
            way = known.get(act, {}) if act not in incomplete else {}
            figures.append(
                ActFigures(
                    act=act,
                    **mine,
                    mean_hops=way.get("mean_hops"),
                    messages_per_delivery=way.get("messages_per_delivery"),
                    cost=way.get("cost"),
                )
            )
        shifts, held_ms = _operations(tables.reconfiguration)
        return Judgement(tuple(figures), shifts, held_ms)


def _deliveries(
    spark: SparkSession, clients: Path, published: DataFrame, received: DataFrame
) -> dict[str, dict[str, Any]]:
    """Counts of deliveries, by act; expected ones are found by Spark SQL."""
    from functools import reduce

    from pyspark.sql import functions as F

    key = ("subscriber", "publisher", "sequence")
    wanted = reduce(
        lambda left, right: left.unionByName(right),
        [
            published.where(row["filter"]).select(
                F.lit(row["subscriber"]).alias("subscriber"), "publisher", "sequence", "act", "at_us"
            )
            for row in spark.read.parquet(str(clients / "wanted.parquet")).collect()
        ],
    )
    got = received.groupBy(*key).agg(F.count(F.lit(1)).alias("times"), F.min("at_us").alias("arrived_us"))
    both = wanted.join(got, list(key), "left")
    rows = {
        row["act"]: row.asDict()
        for row in both.groupBy("act")
        .agg(
            F.count(F.lit(1)).alias("wanted"),
            F.sum(F.when(F.col("times").isNotNull(), 1).otherwise(0)).alias("delivered"),
            F.sum(F.when(F.col("times").isNull(), 1).otherwise(0)).alias("lost"),
            F.sum(F.coalesce(F.col("times") - 1, F.lit(0))).alias("doubled"),
            F.max(F.col("arrived_us") - F.col("at_us")).alias("pause_us"),
        )
        .collect()
    }
    uninvited = {
        row["act"]: row["uninvited"]
        for row in got.join(wanted.select(*key), list(key), "left_anti")
        .join(published.select("act", "publisher", "sequence"), ["publisher", "sequence"])
        .groupBy("act")
        .agg(F.sum("times").alias("uninvited"))
        .collect()
    }
    found = {}
    for row in published.groupBy("act").count().collect():
        act = row["act"]
        mine = rows.get(act, {})
        pause_us = mine.get("pause_us")
        found[act] = {
            "published": int(row["count"]),
            **{name: int(mine.get(name) or 0) for name in ("wanted", "delivered", "lost", "doubled")},
            "uninvited": int(uninvited.get(act, 0)),
            "pause_ms": round(pause_us / 1000, 1) if pause_us is not None else None,
        }
    return found


def _links(tables: Any) -> dict[str, dict[str, float | None]]:
    """Hops, messages and cost by act; an act's publishers have its name, and here it stands for a run."""
    from pyspark.sql import functions as F

    from braid.pipeline.metrics.cost import forwarding_cost
    from braid.pipeline.metrics.forwarding import mean_hops, system_yield

    def by_act(table: DataFrame) -> DataFrame:
        return table.withColumn("run", F.regexp_extract("publisher", r"^([a-z]+)-\d+(#|$)", 1)).where(
            "run <> ''"
        )

    publication, hop, delivery = (
        by_act(each).cache() for each in (tables.publication, tables.hop, tables.delivery)
    )
    found: dict[str, dict[str, float | None]] = {}
    for row in mean_hops(delivery, hop).collect():
        found.setdefault(row["run"], {})["mean_hops"] = float(row["mean_hops"])
    for row in system_yield(hop, delivery).collect():
        share = row["sent"] / row["deliveries"] if row["deliveries"] else None
        found.setdefault(row["run"], {})["messages_per_delivery"] = share
    for row in forwarding_cost(publication, hop).collect():
        each = row["cost"] / row["notifications"] if row["notifications"] else None
        found.setdefault(row["run"], {})["cost"] = each
    return found


def _operations(reconfiguration: DataFrame) -> tuple[int, float | None]:
    """SHIFTs that were finished, and the longest time that one of them held publications at a broker."""
    from pyspark.sql import functions as F

    def when(phase: str) -> Any:
        return F.max(F.when(F.col("phase") == phase, F.col("at_us")))

    rows = (
        reconfiguration.groupBy("operation_id", "broker")
        .agg((when("resumed") - when("paused")).alias("paused_us"), when("finished").alias("finished_us"))
        .where(F.col("finished_us").isNotNull())
        .agg(F.count_distinct("operation_id").alias("shifts"), F.max("paused_us").alias("paused_us"))
        .collect()
    )
    longest_us = rows[0]["paused_us"]
    return int(rows[0]["shifts"]), round(longest_us / 1000, 1) if longest_us is not None else None
