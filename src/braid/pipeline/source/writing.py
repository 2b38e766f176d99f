"""How do rows of a query become publications, each once?

A task publishes under a name that its query and partition keep, with numbers that begin at its batch:

    publisher  NAME.<query>.<partition>      sequence  (batch << 32) + row, from 1

So an attempt that is repeated gives the same rows the same numbers, and brokers drop what they know already;
a task of an older batch that comes late has only numbers that are known. That needs the rows of a partition
in the same order in every attempt: with `idColumn`, a task sorts its rows by that column first.

A task returns when everything it published is acknowledged, so that Spark commits nothing that may be lost.
Brokers know the latest tens of thousands of numbers one by one, and take what is older for repetitions. So no
row is published before all those so far behind it are acknowledged: then it is true of an attempt of the same
batch. A task that is behind by a whole batch fails.
"""

from __future__ import annotations

import logging
from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pyspark import TaskContext
from pyspark.sql import types as T
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage

from braid.errors import PublicationError, RequestRefusedError
from braid.language import Publication, Range
from braid.pipeline.source.connecting import connected
from braid.pipeline.source.errors import SourceError, as_sentences
from braid.pipeline.source.schema import METADATA, RANGE

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pyarrow as pa

    from braid.pipeline.source.options import SinkOptions
    from braid.runtime import SyncClient, SyncReceipt

__all__ = ["BatchSink", "StreamSink", "checked_rows"]

logger = logging.getLogger(__name__)

# Of one batch and partition; more would run into the numbers of the next batch.
ROWS_MAX = 2**32 - 1
# The one epoch of every query: its numbers go on from attempt to attempt.
EPOCH = "query"
PUBLISH_ROWS = 2_000
# Rows that may be under way: half of what brokers tell from repetitions one by one (`OVERTAKING_MAX`).
UNDER_WAY_MAX = 32_000
BATCH_BITS = 32

# Spark tells tasks of a stream in these which batch of which query they are about.
BATCH_PROPERTY = "streaming.sql.batchId"
QUERY_PROPERTY = "sql.streaming.queryId"

_ATTRIBUTE_TYPES = (
    T.BooleanType,
    T.ByteType,
    T.ShortType,
    T.IntegerType,
    T.LongType,
    T.FloatType,
    T.DoubleType,
    T.StringType,
)


def checked_rows(schema: T.StructType, options: SinkOptions) -> None:
    """Refuse a table of which no publications can be made."""
    for name, kind in (
        (options.id_column, None),
        (options.body_column, T.BinaryType),
        (options.content_type_column, T.StringType),
    ):
        if name and name not in schema.names:
            raise SourceError(f"there is no column {name!r}; there are {', '.join(schema.names)}")
        if name and kind is not None and not isinstance(schema[name].dataType, kind):
            found = schema[name].dataType.simpleString()
            raise SourceError(f"the column {name!r} is a {found}, and should be a {kind.typeName()}")
    apart = {options.body_column, options.content_type_column, *METADATA}
    for field in schema.fields:
        if field.name in apart or field.dataType == RANGE:
            continue
        if not isinstance(field.dataType, _ATTRIBUTE_TYPES):
            raise SourceError(
                f"the column {field.name!r} is a {field.dataType.simpleString()}, and attributes are "
                "numbers, strings, booleans and ranges; cast it, or leave it out"
            )


@dataclass(frozen=True)
class Written(WriterCommitMessage):
    """What one task has published."""

    rows: int
    repeated: int
    """Those that an earlier attempt had published already."""


class _Sink:
    """Publishes the rows of one task."""

    def __init__(self, options: SinkOptions, schema: T.StructType) -> None:
        self._options = options
        self._schema = schema
        self._ranges = {field.name for field in schema.fields if field.dataType == RANGE}

    def publish(self, batches: Iterator[pa.RecordBatch], query: str, batch: int) -> Written:
        """Everything is with everybody who wants it when this returns."""
        options = self._options
        context = TaskContext.get()
        if context is None:
            raise SourceError("the sink runs in tasks of Spark only")
        publisher = f"{options.name}.{query}.{context.partitionId()}"
        client = connected(
            options.brokers,
            options.credentials,
            options.connect_timeout_s,
            publisher=publisher,
            epoch=EPOCH,
            first_sequence=(batch << BATCH_BITS) + 1,
        )
        rows = 0
        under_way: deque[SyncReceipt] = deque()
        with client:
            for some in self._ordered(batches):
                for start in range(0, some.num_rows, PUBLISH_ROWS):
                    part = [self._publication(row) for row in some.slice(start, PUBLISH_ROWS).to_pylist()]
                    rows += len(part)
                    if rows > ROWS_MAX:
                        raise SourceError(
                            f"more than {ROWS_MAX:,} rows in one partition of a batch; make more partitions"
                        )
                    under_way.append(client.publish_batch(part, delivery="acknowledged"))
                    if len(under_way) * PUBLISH_ROWS > UNDER_WAY_MAX:
                        _wait(under_way.popleft())
                    _require_taken(client, rows, publisher, batch)
            client.flush()
            _require_taken(client, rows, publisher, batch)
            return Written(rows, client.discards)

    def _ordered(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """The rows as they come, or sorted by the column of ids."""
        name = self._options.id_column
        if not name:
            yield from batches
            return
        import pyarrow as pa
        import pyarrow.compute as pc

        all_batches = list(batches)
        if not all_batches:
            return
        table = pa.Table.from_batches(all_batches).sort_by(name)
        ids = table.column(name)
        if ids.null_count:
            raise SourceError(f"the column of ids, {name!r}, is NULL in {ids.null_count} rows")
        if len(ids) > 1 and pc.any(pc.equal(ids.slice(1), ids.slice(0, len(ids) - 1))).as_py():
            raise SourceError(
                f"the column of ids, {name!r}, has the same value in several rows of a partition"
            )
        yield from table.to_batches()

    def _publication(self, row: dict[str, Any]) -> Publication:
        options = self._options
        body = row.pop(options.body_column, None) if options.body_column else None
        kind = row.pop(options.content_type_column, None) if options.content_type_column else None
        attributes: dict[str, Any] = {}
        for name, value in row.items():
            if name in self._ranges and value is not None:
                low, high = value["low"], value["high"]
                value = None if low is None or high is None else Range(low, high)
            if value is not None and name not in METADATA:
                attributes[name] = value
        return Publication(attributes, body or b"", kind or "")


def _wait(receipt: SyncReceipt) -> None:
    """Its rows are where they are to be, or the client knows why not."""
    try:
        receipt.wait()
    except (PublicationError, RequestRefusedError) as error:
        logger.debug("rows were not taken: %s", error)


def _require_taken(client: SyncClient, rows: int, publisher: str, batch: int) -> None:
    """A `SourceError` where rows were not published, and no earlier attempt has published them either."""
    refused, why = client.refusals
    if refused:
        raise SourceError(f"{refused} of {rows} rows were not taken: {why}")
    late, highest = client.overtaken
    if highest >> BATCH_BITS > batch:
        raise SourceError(
            f"{late} rows of batch {batch} were not published: {publisher!r} has published batch "
            f"{highest >> BATCH_BITS} already, so this attempt came too late, or the number of its batch was "
            "used before; a query from an older checkpoint needs a new one, and a write another 'runId'"
        )


class BatchSink(DataSourceArrowWriter):
    """For `df.write.format("braid")`."""

    def __init__(self, options: SinkOptions, schema: T.StructType) -> None:
        if not options.run_id:
            raise SourceError(
                "the option 'runId' is missing: it names this write, so that a job that is run again "
                "publishes nothing twice; give another one for every table that is written, or the same with "
                "a 'batchId' that rises"
            )
        self._options = options
        self._sink = _Sink(options, schema)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Written:
        """Publish the rows of one partition; this runs on an executor."""
        with as_sentences():
            return self._sink.publish(iterator, self._options.run_id, self._options.batch_id)

    def commit(self, messages: list[Any]) -> None:
        """All tasks have published: a write that changed nothing is worth a word, as it may be a mistake."""
        rows = sum(each.rows for each in messages if each is not None)
        if rows and rows == sum(each.repeated for each in messages if each is not None):
            logger.warning(
                "nothing was published: all %d rows have numbers that the run %r had published before%s. "
                "That is right where the same write was done again; other rows need another 'runId', or a "
                "higher 'batchId'",
                rows,
                self._options.run_id,
                f" as batch {self._options.batch_id}" if self._options.batch_id else "",
            )


class StreamSink(DataSourceStreamArrowWriter):
    """For `df.writeStream.format("braid")`."""

    def __init__(self, options: SinkOptions, schema: T.StructType) -> None:
        self._sink = _Sink(options, schema)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Written:
        """Publish the rows of one partition of a batch; this runs on an executor."""
        with as_sentences():
            context = TaskContext.get()
            batch = context.getLocalProperty(BATCH_PROPERTY) if context is not None else None
            query = context.getLocalProperty(QUERY_PROPERTY) if context is not None else None
            if not batch or not query:
                raise SourceError(
                    "this Spark does not tell tasks which batch of which query they belong to "
                    f"({BATCH_PROPERTY} and {QUERY_PROPERTY}), so that nothing can be published exactly once"
                )
            return self._sink.publish(iterator, query, int(batch))

    def commit(self, messages: list[Any], batchId: int) -> None:
        """All tasks have published: there is nothing left to do."""

    def abort(self, messages: list[Any], batchId: int) -> None:
        """The next attempt publishes what is missing."""
