"""Who shared which publications, according to a trace?

The brokers that a publication *concerns* are the one where it entered and those that delivered it. From that
follow the interest matrix (what two brokers have in common) and the groups that a tree is priced for.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from braid.errors import ConfigurationError
from braid.pipeline.metrics.frames import PUBLICATION, within
from braid.pipeline.metrics.overlay import PRIMARY, links_in_use
from braid.reconfiguration import OverlayTree

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = ["concerned", "interest_groups", "interest_matrix", "present_tree"]

# A sample is taken so often that a link without any in this many periods is gone.
PERIODS_LOOKED_AT = 3


def concerned(
    publication: DataFrame, delivery: DataFrame, *, from_us: int | None = None, to_us: int | None = None
) -> DataFrame:
    """Each publication with each broker that it concerns: `run, publisher, sequence, broker`, once.

    The interval is of publication times.
    """
    published = within(publication, from_us, to_us).select(*PUBLICATION, "broker")
    delivered = delivery.select(*PUBLICATION, "broker").join(
        published.select(*PUBLICATION).distinct(), list(PUBLICATION), "left_semi"
    )
    return published.unionByName(delivered).distinct()


def interest_matrix(concerns: DataFrame) -> DataFrame:
    """How many publications each two brokers have in common: `run, source, target, publications`.

    Both orders are there; the diagonal is how many a broker has to do with at all.
    """
    left = concerns.select(*PUBLICATION, F.col("broker").alias("source"))
    right = concerns.select(*PUBLICATION, F.col("broker").alias("target"))
    return (
        left.join(right, list(PUBLICATION))
        .groupBy("run", "source", "target")
        .agg(F.count(F.lit(1)).alias("publications"))
        .orderBy("run", "source", "target")
    )


def interest_groups(concerns: DataFrame) -> DataFrame:
    """Publications that concern the same brokers: `run, brokers, publications`, the most frequent first."""
    return (
        concerns.groupBy(*PUBLICATION)
        .agg(F.sort_array(F.collect_set("broker")).alias("brokers"))
        .groupBy("run", "brokers")
        .agg(F.count(F.lit(1)).alias("publications"))
        .orderBy("run", F.desc("publications"), "brokers")
    )


def present_tree(link_sample: DataFrame, *, to_us: int | None = None) -> OverlayTree:
    """The tree of primary links at the end of a trace, or before a time.

    Raises:
        ConfigurationError: there are no samples, or their links form no tree; it says why.
    """
    primary = within(link_sample.where(F.col("link") == PRIMARY), None, to_us)
    last = primary.agg(F.max("at_us").alias("at_us"), F.max("period_us").alias("period_us")).first()
    if last is None or last["at_us"] is None:
        raise ConfigurationError("the trace has no samples of primary links, so its tree is not known")
    since_us = last["at_us"] - PERIODS_LOOKED_AT * last["period_us"] + 1
    rows = links_in_use(primary, from_us=since_us).select("source", "target").collect()
    links = {tuple(sorted((row["source"], row["target"]))) for row in rows}
    try:
        return OverlayTree(sorted((one, other) for one, other in links))
    except ConfigurationError as problem:
        raise ConfigurationError(
            f"the primary links of the last samples form no tree ({problem}); if the network was changing, "
            "choose an earlier end with --to"
        ) from None
