"""How are publications joined with filters that fit into every worker's memory?"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from braid.pipeline.matching_join.answering import as_pairs
from braid.pipeline.matching_join.shards import Shards, build_shard, parsed_filters, undisturbed
from braid.pipeline.matching_join.tables import DESTINATION, KEY, TEXT, FilterTable, PublicationTable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pyspark.sql import DataFrame

    from braid.pipeline.matching_join.answering import Asker

__all__ = ["BuiltFilters", "built_filters", "join_by_index", "shared"]


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
    key_name = filters.key_name

    def build(batches: Iterator[Any]) -> Iterator[Any]:
        import pyarrow as pa

        table = _table(batches)
        if table is None:
            return
        with undisturbed():
            keys = _whole(table.column(KEY))
            places, parsed, problems = parsed_filters(keys, table.column(TEXT).to_pylist(), key_name)
            keys = keys.take(pa.array(places, pa.int64()))
            destinations = None
            if DESTINATION in table.column_names:
                destinations = _whole(table.column(DESTINATION)).take(pa.array(places, pa.int64()))
            shard = build_shard(keys, parsed, destinations)
            yield pa.RecordBatch.from_pydict(
                {"shard": [shard.packed()], "names": [list(shard.names)], "problems": [problems]},
                schema=pa.schema(
                    {"shard": pa.binary(), "names": pa.list_(pa.string()), "problems": pa.list_(pa.string())}
                ),
            )

    rows = filters.rows.repartition(shards).mapInArrow(
        build, "shard BINARY, names ARRAY<STRING>, problems ARRAY<STRING>"
    )
    collected = rows.collect()
    return BuiltFilters(
        [bytes(row.shard) for row in collected],
        {name for row in collected for name in row.names},
        sorted(problem for row in collected for problem in row.problems),
    )


def join_by_index(publications: PublicationTable, built: BuiltFilters, asker: Asker) -> DataFrame:
    """Every worker holds all filters and answers the publications of its tasks."""
    names = tuple(name for name in publications.names if name in built.names)
    shards = shared(publications.frame, Shards(built.packed))

    def match(batches: Iterator[Any]) -> Iterator[Any]:
        for batch in batches:
            if batch.num_rows:
                yield from asker.answers(batch, names, shards())

    rows = publications.rows(names, numbered=asker.partial)
    answers = rows.mapInArrow(match, asker.schema())
    return as_pairs(answers) if asker.how == "pairs" else answers


def shared(frame: DataFrame, value: Any) -> Callable[[], Any]:
    """A function that gives workers the value, sent to each of them once.

    A broadcast where there is a Spark context; with Spark Connect, which has none, the value travels
    inside the function.
    """
    try:
        context = frame.sparkSession.sparkContext
    except Exception:  # Connect raises its own kind of error, from a module that may not be installed
        return lambda: value
    broadcast = context.broadcast(value)
    return lambda: broadcast.value


def _table(batches: Iterator[Any]) -> Any:
    import pyarrow as pa

    held = list(batches)
    return pa.Table.from_batches(held) if held else None


def _whole(column: Any) -> Any:
    import pyarrow as pa

    return pa.concat_arrays(column.chunks)
