"""How are publications joined with very many selective filters by equality?

Filters and publications become z-codes (see `zcodes`), Spark joins equal codes, and the exact bounds decide.
Filters that are more than one box of number ranges are joined by an index beside it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from braid.pipeline.matching_join.answering import batch_publications
from braid.pipeline.matching_join.by_index import BuiltFilters, built_filters, join_by_index
from braid.pipeline.matching_join.shards import Shards, read_filters, undisturbed
from braid.pipeline.matching_join.sharing import Shared
from braid.pipeline.matching_join.tables import DESTINATION, KEY, ROW, TEXT, FilterTable, PublicationTable
from braid.pipeline.matching_join.zcodes import (
    NO_BOUND,
    NO_NUMBER,
    Grid,
    cover,
    grid_from,
    known_bounds,
    publication_codes,
    publication_ordinals,
    space_of,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pyspark.sql import DataFrame

    from braid.pipeline.matching_join.answering import Asker

__all__ = ["join_by_zcodes"]

# The grid is laid out for so many of the filters.
SAMPLE_FILTERS = 20_000


def join_by_zcodes(
    publications: PublicationTable,
    filters: FilterTable,
    asker: Asker,
    judge: Callable[[list[str]], None],
    shards: int,
) -> DataFrame:
    """The answers; `judge` hears of filters that cannot be read, the others are indexed in so many shards."""
    from pyspark.sql import functions as F

    grid = _grid(filters)
    # Read twice below, and parsing is most of the work; Spark drops it with the last reference.
    coded = filters.rows.mapInArrow(_covering(grid, filters), _coded_schema(grid, filters)).localCheckpoint()
    judge(sorted(row.problem for row in coded.where("problem IS NOT NULL").select("problem").collect()))
    codes = coded.where("codes IS NOT NULL")
    spaces = [
        row.space
        for row in codes.select(F.explode("spaces").alias("space")).distinct().orderBy("space").collect()
    ]
    others = coded.where("codes IS NULL AND problem IS NULL").select(*filters.rows.columns)
    other_filters = FilterTable(others, filters.key_type, filters.destination_type, filters.key_name)
    built = built_filters(other_filters, 1 if spaces else shards)
    if not spaces:
        return join_by_index(publications, built, asker)
    found = _joined(publications, codes, asker, grid, spaces, built)
    if asker.how == "pairs":
        by_codes = found.where("filter_code >= 0").select("publication", F.col(KEY).alias("filter"))
        return by_codes.unionByName(join_by_index(publications, built, asker))
    if asker.how == "counts":
        merged = F.first("others") + F.sum(F.when(F.col("filter_code") >= 0, 1).otherwise(0))
    else:
        merged = F.array_sort(F.array_union(F.first("others"), F.collect_set(DESTINATION)))
    answers = found.groupBy(ROW).agg(F.first("publication").alias("publication"), merged.alias(asker.title))
    return answers.drop(ROW)


def _joined(
    publications: PublicationTable,
    codes: DataFrame,
    asker: Asker,
    grid: Grid,
    spaces: list[int],
    built: BuiltFilters,
) -> DataFrame:
    """Every publication with every coded filter that it satisfies, and once with the code -1.

    That one brings publications to the answer that satisfy nothing, and with it in `others` what an index
    says of the filters without codes. Both in one pass, because Spark numbers rows anew in every pass.
    """
    from pyspark.sql import functions as F

    names = tuple(name for name in publications.names if name in grid.names or name in built.names)
    ordinals = [f"o{place}" for place in range(len(grid.names))]
    with_others = asker.how != "pairs"
    shards = Shared(publications.frame, Shards(built.packed)).reader()

    def encode(batches: Iterator[Any]) -> Iterator[Any]:
        import pyarrow as pa

        for batch in batches:
            asked = batch_publications(batch, names)
            lines = publication_ordinals(grid, asked)
            rows, found = publication_codes(grid, lines, spaces)
            ends = np.searchsorted(rows, np.arange(batch.num_rows + 1)).astype(np.int32)
            lists = pa.ListArray.from_arrays(pa.array(ends), pa.array(found))
            arrays = [batch.column(ROW), batch.column(KEY), lists, *map(pa.array, lines)]
            titles = [ROW, "publication", "codes", *ordinals]
            if with_others:
                arrays.append(asker.column(asked, shards()))
                titles.append("others")
            yield pa.RecordBatch.from_arrays(arrays, names=titles)

    columns = [f"{ROW} BIGINT", f"publication {publications.key_type}", "codes ARRAY<BIGINT>"]
    columns += [f"{name} BIGINT" for name in ordinals]
    if with_others:
        columns.append(f"others {asker.answer_type}")
    encoded = publications.rows(names, numbered=True).mapInArrow(encode, ", ".join(columns))
    asked = encoded.withColumn("code", F.explode("codes")).drop("codes")
    offered = codes.withColumn("filter_code", F.explode("codes")).drop("codes", "spaces", "problem", TEXT)
    everywhere = [F.lit(-1).cast("bigint").alias("filter_code")]
    for place in range(len(ordinals)):
        everywhere += [F.lit(NO_NUMBER).alias(f"l{place}"), F.lit(NO_BOUND).alias(f"h{place}")]
    anything = publications.frame.sparkSession.range(1).select(*everywhere)
    inside = [f"l{place} <= o{place} AND o{place} < h{place}" for place in range(len(ordinals))]
    return asked.join(
        offered.unionByName(anything, allowMissingColumns=True),
        F.expr(" AND ".join(["code = filter_code", *inside])),
    )


def _grid(filters: FilterTable) -> Grid:
    """Laid out where the bounds of some filters are."""
    import pyarrow as pa

    texts = [
        row[TEXT]
        for row in filters.rows.select(TEXT).where(f"{TEXT} IS NOT NULL").limit(SAMPLE_FILTERS).collect()
    ]
    # What cannot be read is reported with its key when all filters are read.
    read = read_filters(pa.nulls(len(texts)), texts, filters.key_name)
    return grid_from([bounds for bounds in known_bounds(read) if bounds is not None])


def _coded_schema(grid: Grid, filters: FilterTable) -> str:
    columns = [f"{KEY} {filters.key_type}", f"{TEXT} STRING"]
    if filters.destination_type is not None:
        columns.append(f"{DESTINATION} {filters.destination_type}")
    columns += ["problem STRING", "codes ARRAY<BIGINT>", "spaces ARRAY<BIGINT>"]
    for place in range(len(grid.names)):
        columns += [f"l{place} BIGINT", f"h{place} BIGINT"]
    return ", ".join(columns)


def _covering(grid: Grid, filters: FilterTable) -> Callable[[Iterator[Any]], Iterator[Any]]:
    """Filters with their codes and bounds; codes are missing where a filter cannot have any."""
    key_name, with_destination = filters.key_name, filters.destination_type is not None

    def encode(batches: Iterator[Any]) -> Iterator[Any]:
        import pyarrow as pa

        for batch in batches:
            with undisturbed():
                keys, texts = batch.column(KEY), batch.column(TEXT).to_pylist()
                size = len(texts)
                read = read_filters(keys, texts, key_name)
                places = read.places.tolist()
                problems: list[str | None] = [None] * size
                bad = sorted(set(range(size)) - set(places))
                for place, message in zip(bad, read.problems, strict=True):
                    problems[place] = message
                codes: list[list[int] | None] = [None] * size
                lows = np.full((len(grid.names), size), NO_NUMBER, np.int64)
                highs = np.full((len(grid.names), size), NO_BOUND, np.int64)
                for place, bounds in zip(places, known_bounds(read), strict=True):
                    codes[place] = None if bounds is None else cover(grid, bounds)
                    if bounds is not None and codes[place] is not None:
                        for name, (low, high) in bounds.items():
                            lows[grid.names.index(name), place] = low
                            highs[grid.names.index(name), place] = high
                spaces = [None if each is None else [space_of(each[0])] for each in codes]
                many = pa.list_(pa.int64())
                arrays = [keys, pa.array(texts, pa.string())]
                if with_destination:
                    arrays.append(batch.column(DESTINATION))
                arrays += [pa.array(problems, pa.string()), pa.array(codes, many), pa.array(spaces, many)]
                titles = [
                    KEY,
                    TEXT,
                    *([DESTINATION] if with_destination else []),
                    "problem",
                    "codes",
                    "spaces",
                ]
                for place in range(len(grid.names)):
                    arrays += [pa.array(lows[place]), pa.array(highs[place])]
                    titles += [f"l{place}", f"h{place}"]
            yield pa.RecordBatch.from_arrays(arrays, names=titles)

    return encode
