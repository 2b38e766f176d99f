"""What do all metrics need: an interval of time, periods, and one row per broker that was reached?

A metric takes data frames with the columns of the trace tables and a column `run`, and returns one with
`run` in front. Times are integer microseconds; an interval `[from_us, to_us)` keeps its beginning and not its
end, so that intervals side by side count everything once.
"""

from __future__ import annotations

from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

from pyspark.sql import functions as F

from braid.errors import ConfigurationError

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

__all__ = [
    "PUBLICATION",
    "US_PER_S",
    "at_brokers",
    "first_published",
    "free_places",
    "keep_places",
    "known_hops",
    "period_start",
    "ratio",
    "with_every_period",
    "within",
]

US_PER_S = 1_000_000

PUBLICATION = ("run", "publisher", "sequence")
"""The columns that name one publication of one run."""


def within(table: DataFrame, from_us: int | None = None, to_us: int | None = None) -> DataFrame:
    """The rows with `from_us <= at_us < to_us`; an end that is None is open."""
    if from_us is not None and to_us is not None and to_us <= from_us:
        raise ConfigurationError(
            f"the interval from {from_us} us to {to_us} us is empty: its end must come after its beginning"
        )
    if from_us is not None:
        table = table.where(F.col("at_us") >= from_us)
    if to_us is not None:
        table = table.where(F.col("at_us") < to_us)
    return table


def first_published(publication: DataFrame) -> DataFrame:
    """One row per publication: what was noted when it was published first.

    A client that has lost its broker publishes what was not acknowledged again, and the broker it comes to
    then notes it, too. It is one publication, and it has been under way since the first time.
    """
    others = [name for name in publication.columns if name not in (*PUBLICATION, "at_us")]
    return publication.groupBy(*PUBLICATION).agg(
        F.min("at_us").alias("at_us"), *(F.min_by(name, "at_us").alias(name) for name in others)
    )


def known_hops() -> Column:
    """`hops` where it says something; rows that were read from a log do not know how far they came."""
    return F.when(F.col("hops") >= 0, F.col("hops").cast("int"))


def at_brokers(delivery: DataFrame, hop: DataFrame | None = None) -> DataFrame:
    """One row per publication and broker that delivered it: when first, and to how many clients.

    The multipath paper (section 7) counts brokers, not subscribers: "arrive at brokers with local matching
    subscribers". A broker that serves three subscribers of a publication has delivered it once.

    `hops` is NULL where all deliveries came from logs. With the table `hop` it is known there as well: by how
    many links the publication arrived, or none if it never did and so entered there.
    """
    kept = _KEPT.get(delivery)
    delivered = kept if kept is not None else _delivered(delivery)
    if hop is None:
        return delivered
    arrived = hop.groupBy(*PUBLICATION, F.col("target").alias("broker")).agg(
        F.min("hops").cast("int").alias("links")
    )
    return (
        delivered.join(arrived, [*PUBLICATION, "broker"], "left")
        .withColumn("hops", F.coalesce("hops", "links", F.lit(0)))
        .drop("links")
    )


def _delivered(delivery: DataFrame) -> DataFrame:
    return delivery.groupBy(*PUBLICATION, "broker").agg(
        F.min("at_us").alias("at_us"),
        F.min(known_hops()).alias("hops"),
        F.count(F.lit(1)).alias("clients"),
    )


# By a table of deliveries: which broker delivered what, in Spark's memory or on its disks.
_KEPT: WeakKeyDictionary[DataFrame, DataFrame] = WeakKeyDictionary()


def keep_places(delivery: DataFrame) -> None:
    """Have `at_brokers` of this table computed once, for all metrics, until `free_places`."""
    if delivery not in _KEPT:
        _KEPT[delivery] = _delivered(delivery).persist()


def free_places(delivery: DataFrame) -> None:
    """Give the memory back."""
    kept = _KEPT.pop(delivery, None)
    if kept is not None:
        kept.unpersist()


def period_start(period_us: int) -> Column:
    """The beginning of the period that `at_us` lies in; periods are counted from zero."""
    if period_us <= 0:
        raise ConfigurationError(f"a period of {period_us} us: it must be longer than nothing")
    at_us = F.col("at_us")
    return (at_us - F.pmod(at_us, F.lit(period_us))).alias("at_us")


def with_every_period(
    series: DataFrame, period_us: int, from_us: int | None = None, to_us: int | None = None
) -> DataFrame:
    """Add the missing periods of each run with zeros, so that a mean over the series is a mean over time.

    Without an interval the series of a run goes from its first period to its last.
    """
    first = F.min("at_us") if from_us is None else F.lit(from_us - from_us % period_us)
    last = F.max("at_us") if to_us is None else F.lit((to_us - 1) - (to_us - 1) % period_us)
    periods = series.groupBy("run").agg(
        F.explode(F.sequence(first, last, F.lit(period_us))).alias("at_us"),
    )
    columns = [name for name in series.columns if name not in ("run", "at_us")]
    return (
        periods.join(series, ["run", "at_us"], "left")
        .na.fill(0, columns)
        .select("run", "at_us", *columns)
        .orderBy("run", "at_us")
    )


def ratio(numerator: Column, denominator: Column) -> Column:
    """A quotient that is NULL where there is nothing to divide by."""
    return F.when(denominator != 0, numerator.cast("double") / denominator)
