"""The format `braid` of Spark: what Spark asks first, and who answers the rest."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSource

from braid.errors import ConfigurationError
from braid.pipeline.source.errors import as_sentences
from braid.pipeline.source.options import SourceOptions
from braid.pipeline.source.reading import LogReader, Logs, LogStreamReader, PushingLogReader
from braid.pipeline.source.schema import checked_schema, inferred_schema

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.types import StructType

__all__ = ["BraidSource", "register"]

FORMAT = "braid"
PUSH_DOWN = "spark.sql.python.filterPushdown.enabled"


class BraidSource(DataSource):
    """Logs of a Braid network as tables and streams, and rows as publications."""

    @classmethod
    def name(cls) -> str:
        """What users write after `format`."""
        return FORMAT

    def schema(self) -> StructType:
        """Columns from a sample of the log, where the user gives none."""
        with as_sentences():
            logs = Logs(SourceOptions.of(self.options))
            try:
                return inferred_schema(logs.options.log, logs.sample())
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


def register(spark: SparkSession) -> None:
    """Make the format `braid` known to a session, and let it push predicates down."""
    if not hasattr(spark, "dataSource"):
        raise ConfigurationError("this session knows no Python data sources; they need Spark 4.1 or newer")
    spark.conf.set(PUSH_DOWN, "true")
    spark.dataSource.register(BraidSource)
