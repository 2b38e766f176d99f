"""The format `braid` of Spark: what Spark asks first, and who answers the rest."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSource

from braid.errors import ConfigurationError, FilterError
from braid.language import Filter
from braid.pipeline.source.errors import SourceError, as_sentences
from braid.pipeline.source.functions import register_functions
from braid.pipeline.source.options import SinkOptions, SourceOptions
from braid.pipeline.source.reading import LogReader, Logs, LogStreamReader, PushingLogReader
from braid.pipeline.source.schema import checked_schema, inferred_schema
from braid.pipeline.source.writing import BatchSink, StreamSink, checked_rows

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

__all__ = ["FORMAT", "BraidSource", "register", "stream"]

FORMAT = "braid"
PUSH_DOWN = "spark.sql.python.filterPushdown.enabled"


class BraidSource(DataSource):
    """Logs of a Braid network as tables and streams, and rows as publications."""

    @classmethod
    def name(cls) -> str:
        """What users write after `format`."""
        return FORMAT

    def schema(self) -> StructType:
        """Columns from a sample of the log, or else from what it is for, where the user gives none."""
        with as_sentences():
            logs = Logs(SourceOptions.of(self.options))
            try:
                return inferred_schema(logs.options.log, logs.sample(), logs.filters())
            finally:
                logs.close()

    def reader(self, schema: StructType) -> LogReader:
        """For `spark.read`."""
        with as_sentences():
            options = SourceOptions.of(self.options)
            kind = PushingLogReader if options.push_down else LogReader
            return kind(options, checked_schema(schema))

    def streamReader(self, schema: StructType) -> LogStreamReader:
        """For `spark.readStream`."""
        with as_sentences():
            return LogStreamReader(SourceOptions.of(self.options), checked_schema(schema))

    def writer(self, schema: StructType, overwrite: bool) -> BatchSink:
        """For `df.write`. What was published stays published, so there is nothing to overwrite."""
        with as_sentences():
            if overwrite:
                raise SourceError("publications cannot be overwritten; write with mode('append')")
            return BatchSink(self._sink_options(schema), schema)

    def streamWriter(self, schema: StructType, overwrite: bool) -> StreamSink:
        """For `df.writeStream`."""
        with as_sentences():
            if overwrite:
                raise SourceError(
                    "publications cannot be overwritten; use outputMode('append'), or foreachBatch"
                )
            return StreamSink(self._sink_options(schema), schema)

    def _sink_options(self, schema: StructType) -> SinkOptions:
        options = SinkOptions.of(self.options)
        checked_rows(schema, options)
        return options


def register(spark: SparkSession) -> None:
    """Make the format `braid`, `braid_matches` and `braid_matching` known to a session.

    It also lets sources push predicates down.
    """
    if not hasattr(spark, "dataSource"):
        raise ConfigurationError("this session knows no Python data sources; they need Spark 4.1 or newer")
    spark.conf.set(PUSH_DOWN, "true")
    spark.dataSource.register(BraidSource)
    register_functions(spark)


def stream(
    spark: SparkSession,
    brokers: str,
    *,
    where: str,
    schema: StructType | str | None = None,
    log: str | None = None,
    **options: object,
) -> DataFrame:
    """A stream of what satisfies a filter: publications that do not never leave their brokers.

        braid.spark.stream(spark, "braid://127.0.0.1:7000", where="price > 10", schema="price double")

    Args:
        spark: the session; the format is registered if it is not.
        brokers: where to connect to.
        where: the filter of the stream's log. Another filter is another log.
        schema: the columns, such as `"symbol string, price double, _offset bigint"`; if left out, they follow
            from a sample of the log, or from its filter while it has no rows.
        log: the name of the log; made from the filter if left out, so that the same filter goes on with it.
        options: other options of the format `braid`.
    """
    register(spark)
    try:
        canonical = Filter(where).text
    except FilterError as error:
        raise SourceError(f"'where' is not a filter: {error}") from None
    if log is None:
        log = f"spark-{hashlib.sha256(canonical.encode()).hexdigest()[:12]}"
    chosen = {name: str(value) for name, value in options.items()}
    reader = spark.readStream.format(FORMAT)
    if schema is not None:
        reader = reader.schema(schema)
    return reader.options(**{"brokers": brokers, "log": log, "filter": canonical, **chosen}).load()
