"""How are publications joined with filters that no worker can hold at once?

Filters are dealt out into slices. A task holds one slice: its input begins with the filters, which it
indexes, and goes on with publications, which it answers as they stream by. Each publication visits every
slice, and its partial answers are combined. Nothing but Spark's own exchange moves the data, so neither the
driver nor a shared disk has to take the filters.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from braid.pipeline.matching_join.shards import Shards, build_shard, read_filters, undisturbed
from braid.pipeline.matching_join.tables import DESTINATION, KEY, ROW, TEXT, FilterTable, PublicationTable

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import DataFrame

    from braid.pipeline.matching_join.answering import Asker

__all__ = ["filter_problems", "join_by_slices"]


def filter_problems(filters: FilterTable) -> list[str]:
    """A message for every filter that cannot be read."""
    key_name = filters.key_name

    def check(batches: Iterator[Any]) -> Iterator[Any]:
        import pyarrow as pa

        for batch in batches:
            problems = read_filters(batch.column(KEY), batch.column(TEXT).to_pylist(), key_name).problems
            if problems:
                yield pa.RecordBatch.from_arrays([pa.array(problems, pa.string())], names=["problem"])

    rows = filters.rows.select(KEY, TEXT).mapInArrow(check, "problem STRING")
    return sorted(row.problem for row in rows.collect())


def join_by_slices(
    publications: PublicationTable, filters: FilterTable, asker: Asker, *, slices: int, parts: int
) -> DataFrame:
    """Partial answers of every slice.

    Args:
        publications, filters: the tables.
        asker: what is asked for, in parts.
        slices: how many slices the filters are dealt out into.
        parts: how many tasks share the publications for one slice; each of them indexes the slice.
    """
    from pyspark.sql import functions as F

    names = publications.names
    key_name = filters.key_name

    def numbers(count: int) -> Any:
        return F.explode(F.sequence(F.lit(0), F.lit(count - 1)))

    # Filters with the number of publications' columns missing, and the other way round.
    dealt = (
        filters.rows.withColumn("slice", F.expr(f"CAST(pmod(xxhash64({KEY}, {TEXT}), {slices}) AS INT)"))
        .withColumn("part", numbers(parts))
        .withColumnRenamed(KEY, "filter_key")
        .withColumn("is_publication", F.lit(False))
    )
    asked = (
        publications.rows(names, numbered=True)
        .withColumn("part", F.expr(f"CAST(pmod({ROW}, {parts}) AS INT)"))
        .withColumn("slice", numbers(slices))
        .withColumn("is_publication", F.lit(True))
    )
    together = dealt.unionByName(asked, allowMissingColumns=True)
    placed = together.withColumn("place", F.expr(f"slice * {parts} + part")).repartitionById(
        slices * parts, F.col("place")
    )

    def match(batches: Iterator[Any]) -> Iterator[Any]:
        held: list[Any] = []
        shards: Shards | None = None
        for batch in batches:
            first = int(np.count_nonzero(~batch.column("is_publication").to_numpy(zero_copy_only=False)))
            if first:
                held.append(batch.slice(0, first))
            if first < batch.num_rows:
                if shards is None:
                    shards = _indexed(held, key_name, asker)
                    held.clear()
                yield from asker.answers(batch.slice(first), names, shards)

    ordered = placed.drop("slice", "part", "place").sortWithinPartitions("is_publication")
    return ordered.mapInArrow(match, asker.schema())


def _indexed(batches: list[Any], key_name: str, asker: Asker) -> Shards:
    """A slice as one shard; bad filters were reported before and are left out."""
    import pyarrow as pa

    if not batches:
        return Shards.of([])
    table = pa.Table.from_batches(batches).combine_chunks()
    with undisturbed():
        keys = pa.concat_arrays(table.column("filter_key").chunks)
        read = read_filters(keys, table.column(TEXT).to_pylist(), key_name)
        chosen = pa.array(read.places)
        destinations = None
        if asker.how == "destinations":
            destinations = pa.concat_arrays(table.column(DESTINATION).chunks).take(chosen)
        return Shards.of([build_shard(keys.take(chosen), read, destinations)])
