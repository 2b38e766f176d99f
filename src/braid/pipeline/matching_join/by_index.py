"""How are publications joined with filters that fit into every worker's memory?"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from braid.pipeline.matching_join.answering import as_pairs
from braid.pipeline.matching_join.shards import Shards, build_shard, read_filters, undisturbed
from braid.pipeline.matching_join.sharing import Shared
from braid.pipeline.matching_join.tables import DESTINATION, KEY, TEXT, FilterTable, PublicationTable

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import DataFrame

    from braid.pipeline.matching_join.answering import Asker

__all__ = ["BuiltFilters", "Limit", "built_filters", "join_by_index", "quickly_built_filters"]


@dataclass(frozen=True, slots=True)
class Limit:
    """What one task may hold."""

    filters: int
    bytes: int
    filter_bytes: int
    """Memory of a filter beside its text."""

    def allows(self, filters: int, text_bytes: int) -> bool:
        """Whether so much is not too much."""
        return filters <= self.filters and filters * self.filter_bytes + text_bytes <= self.bytes


class BuiltFilters:
    """Shards as the driver holds them."""

    def __init__(self, packed: list[bytes], names: set[str], problems: list[str]) -> None:
        self.packed = packed
        self.names = names
        """The attributes that some filter speaks about."""
        self.problems = problems

    @property
    def bytes(self) -> int:
        """Size of what every worker gets."""
        return sum(map(len, self.packed))


def built_filters(filters: FilterTable, shards: int) -> BuiltFilters:
    """Parse and index filters in as many Spark tasks as there are to be shards."""
    built = _collected(filters, filters.rows.repartition(shards), None)
    if built is None:
        raise AssertionError("without a limit no task gives up")
    return built


def quickly_built_filters(filters: FilterTable, tasks: int, limit: Limit) -> BuiltFilters | None:
    """The same in one pass, without counting and dealing out the filters first.

    At most so many tasks read the table as it is divided. Where one of them would get more filters than it
    should there is no answer, and little was lost: a task counts before it parses.
    """
    return _collected(filters, filters.rows.coalesce(tasks), limit)


def _collected(filters: FilterTable, rows: DataFrame, limit: Limit | None) -> BuiltFilters | None:
    key_name = filters.key_name

    def build(batches: Iterator[Any]) -> Iterator[Any]:
        import pyarrow as pa

        schema = pa.schema(
            {"shard": pa.binary(), "names": pa.list_(pa.string()), "problems": pa.list_(pa.string())}
        )
        held, size, text_bytes = [], 0, 0
        for batch in batches:  # to the end in any case: a worker that leaves input behind is not used again
            size += batch.num_rows
            text_bytes += batch.column(TEXT).nbytes
            if limit is None or limit.allows(size, text_bytes):
                held.append(batch)
            else:
                held.clear()
        if limit is not None and not limit.allows(size, text_bytes):
            row: dict[str, list[Any]] = {"shard": [None], "names": [[]], "problems": [[]]}
            yield pa.RecordBatch.from_pydict(row, schema=schema)
            return
        if not size:
            return
        table = pa.Table.from_batches(held)
        with undisturbed():
            keys = _whole(table.column(KEY))
            read = read_filters(keys, table.column(TEXT).to_pylist(), key_name)
            places = pa.array(read.places)
            destinations = None
            if DESTINATION in table.column_names:
                destinations = _whole(table.column(DESTINATION)).take(places)
            shard = build_shard(keys.take(places), read, destinations)
            row = {"shard": [shard.packed()], "names": [list(shard.names)], "problems": [read.problems]}
            yield pa.RecordBatch.from_pydict(row, schema=schema)

    collected = rows.mapInArrow(build, "shard BINARY, names ARRAY<STRING>, problems ARRAY<STRING>").collect()
    if any(row.shard is None for row in collected):
        return None
    return BuiltFilters(
        [bytes(row.shard) for row in collected],
        {name for row in collected for name in row.names},
        sorted(problem for row in collected for problem in row.problems),
    )


def join_by_index(
    publications: PublicationTable, built: BuiltFilters, asker: Asker, ready: Shared | None = None
) -> DataFrame:
    """Every worker holds all filters and answers the publications of its tasks.

    `ready` are the filters where workers have them already.
    """
    names = tuple(name for name in publications.names if name in built.names)
    shards = (ready or Shared(publications.frame, Shards(built.packed))).reader()

    def match(batches: Iterator[Any]) -> Iterator[Any]:
        for batch in batches:
            if batch.num_rows:
                yield from asker.answers(batch, names, shards())

    rows = publications.rows(names, numbered=asker.partial)
    answers = rows.mapInArrow(match, asker.schema())
    return as_pairs(answers) if asker.how == "pairs" else answers


def _whole(column: Any) -> Any:
    import pyarrow as pa

    return pa.concat_arrays(column.chunks)
