"""What does a worker answer for a batch of publications?

An `Asker` says what is asked for; it turns publications and shards of filters into Arrow batches, whole
answers or, where other workers hold other filters, parts of them (with the number of the publication's row,
by which `combined` puts parts together).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from braid.matching.from_arrow import ArrowPublications
from braid.pipeline.matching_join.tables import KEY, ROW

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import DataFrame

    from braid.pipeline.matching_join.shards import Shards

__all__ = ["Asker", "How", "as_pairs", "batch_publications", "combined"]

How = Literal["counts", "destinations", "pairs"]

# Beyond so many destinations a matrix of them would be wasteful.
MATRIX_DESTINATIONS_MAX = 4096

_INTEGERS = {"tinyint": "int8", "smallint": "int16", "int": "int32", "bigint": "int64"}


@dataclass(frozen=True, slots=True)
class Asker:
    """What is asked for, with the SQL types of keys and destinations."""

    how: How
    key_type: str
    filter_key_type: str
    destination_type: str | None
    partial: bool = False
    """Whether answers are parts, numbered by row."""

    def schema(self) -> str:
        """The columns of the answers."""
        row = f"{ROW} BIGINT, " if self.partial and self.how != "pairs" else ""
        return f"{row}publication {self.key_type}, {self.title} {self.answer_type}"

    @property
    def answer_type(self) -> str:
        """The SQL type of the answers' column."""
        types = {
            "counts": "BIGINT",
            "destinations": f"ARRAY<{self.destination_type}>",
            "pairs": f"ARRAY<{self.filter_key_type}>",
        }
        return types[self.how]

    def answers(self, batch: Any, names: tuple[str, ...], shards: Shards) -> Iterator[Any]:
        """Answers for the publications of an Arrow batch with the columns of `PublicationTable.rows`."""
        publications = batch_publications(batch, names)
        keys = batch.column(KEY)
        if self.how == "pairs":
            yield from self._pairs(publications, keys, shards)
            return
        arrays, titles = [keys, self.column(publications, shards)], ["publication", self.title]
        if self.partial:
            arrays, titles = [batch.column(ROW), *arrays], [ROW, *titles]
        yield _record_batch(arrays, titles)

    @property
    def title(self) -> str:
        """The name of the answers' column."""
        return {"counts": "count", "destinations": "destinations", "pairs": "filters"}[self.how]

    def column(self, publications: ArrowPublications, shards: Shards) -> Any:
        """One answer per publication, as an Arrow array: its count or its destinations."""
        if self.how == "counts":
            return self._counts(publications, shards)
        return self._destinations(publications, shards)

    def _counts(self, publications: ArrowPublications, shards: Shards) -> Any:
        import pyarrow as pa

        counts = np.zeros(len(publications), np.int64)
        for shard in shards.opened():
            counts += shard.counts(publications)
        return pa.array(counts)

    def _pairs(self, publications: ArrowPublications, keys: Any, shards: Shards) -> Iterator[Any]:
        import pyarrow as pa

        for shard in shards.opened():
            for rows, counts, places in shard.matches(publications):
                if len(places):
                    ends = np.concatenate([[0], np.cumsum(counts)]).astype(np.int32)
                    lists = pa.ListArray.from_arrays(pa.array(ends), shard.keys.take(pa.array(places)))
                    yield _record_batch([keys.take(pa.array(rows)), lists], ["publication", self.title])

    def _destinations(self, publications: ArrowPublications, shards: Shards) -> Any:
        import pyarrow as pa

        if not shards.opened():
            kind = pa.type_for_alias(_INTEGERS.get(str(self.destination_type), "string"))
            return pa.array([[]] * len(publications), pa.list_(kind))
        values, places_of = shards.destinations()
        if len(values) <= MATRIX_DESTINATIONS_MAX:
            reached = np.zeros((len(publications), len(values)), np.bool_)
            for shard, places in zip(shards.opened(), places_of, strict=True):
                if len(places):
                    reached[:, places] |= shard.matrix(publications)
            rows, found = np.nonzero(reached)
        else:
            pieces = [np.empty(0, np.int64)]
            for shard, places in zip(shards.opened(), places_of, strict=True):
                pieces += [rows << 32 | places[own] for rows, own in shard.reached(publications)]
            unique = np.unique(np.concatenate(pieces))
            rows, found = unique >> 32, unique & 0xFFFF_FFFF
        ends = np.searchsorted(rows, np.arange(len(publications) + 1)).astype(np.int32)
        return pa.ListArray.from_arrays(pa.array(ends), values.take(pa.array(found)))


def batch_publications(batch: Any, names: tuple[str, ...]) -> ArrowPublications:
    """The publications of an Arrow batch with the columns of `PublicationTable.rows`."""
    columns = {name: batch.column(f"c{place}") for place, name in enumerate(names)}
    return ArrowPublications(columns, batch.num_rows)


def as_pairs(lists: DataFrame) -> DataFrame:
    """A row per match from a publication with a list of filters.

    Lists leave the workers, because a publication's key per match would double the bytes that cross.
    """
    from pyspark.sql import functions as F

    return lists.select("publication", F.explode("filters").alias("filter"))


def combined(parts: DataFrame, how: How) -> DataFrame:
    """Whole answers from parts: counts added, destinations united, pairs as they are."""
    from pyspark.sql import functions as F

    if how == "pairs":
        return as_pairs(parts)
    if how == "counts":
        merged = F.sum("count").alias("count")
    else:
        merged = F.array_sort(F.array_distinct(F.flatten(F.collect_list("destinations")))).alias(
            "destinations"
        )
    first = F.first("publication").alias("publication")
    return parts.groupBy(ROW).agg(first, merged).drop(ROW)


def _record_batch(arrays: list[Any], titles: list[str]) -> Any:
    import pyarrow as pa

    return pa.RecordBatch.from_arrays(arrays, names=titles)
