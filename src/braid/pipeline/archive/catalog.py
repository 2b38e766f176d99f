"""How does a log become a table of a Spark catalog, with typed columns?

A stream appends the log's rows to the table, partitioned by the day on which they were published. The format
is whatever the session's catalog knows: Parquet was tried, Delta and Iceberg, for which it needs packages,
were not. A run that is
repeated after a crash adds nothing twice, because the checkpoint and the table's own log of commits say what
is there.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from braid.errors import ConfigurationError
from braid.pipeline.source.schema import METADATA
from braid.pipeline.source.source import FORMAT, register

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery
    from pyspark.sql.types import StructType

__all__ = ["archive_into_table"]

DAY = "day"
# A batch becomes one file for each day that is in it.
ROWS_PER_BATCH = 1_000_000


def archive_into_table(
    spark: SparkSession,
    brokers: str,
    log: str,
    table: str,
    *,
    checkpoint: str,
    schema: StructType | str | None = None,
    format: str = "parquet",
    every: str | None = None,
    **options: object,
) -> StreamingQuery:
    """Append what a log has to a table of the session's catalog, which is made if it is not there.

    Args:
        spark: the session; its settings say which catalog and which warehouse.
        brokers: where the log is.
        log: the durable subscription.
        table: the table's name, such as `lake.market.quotes`.
        checkpoint: where Spark keeps how far the archive is. One for each log and table.
        schema: the columns, such as `"symbol string, price double, _offset bigint"`; inferred from a sample
            of the log if left out. `day` is added.
        format: `parquet`, or another one that the catalog knows, such as `delta` or `iceberg` (not tried).
        every: how often to look for more, such as `10 minutes`; without it the query ends when everything
            that is there now is in the table. A run, or a look, adds one file to each day that it is about,
            so that every five minutes are 288 files a day.
        options: other options of the format `braid`.
    """
    register(spark)
    reader = spark.readStream.format(FORMAT)
    if schema is not None:
        reader = reader.schema(schema)
    chosen = {"maxRowsPerTrigger": ROWS_PER_BATCH, "consumer": f"table {table}", **options}
    rows = _with_day(
        reader.options(
            brokers=brokers, log=log, **{name: str(value) for name, value in chosen.items()}
        ).load()
    )
    # One task writes one file of each day, where each task that reads would write its own.
    writer = rows.coalesce(1).writeStream.format(format).partitionBy(DAY)
    writer = writer.option("checkpointLocation", checkpoint)
    writer = writer.trigger(availableNow=True) if every is None else writer.trigger(processingTime=every)
    return writer.toTable(table)


def _with_day(rows: DataFrame) -> DataFrame:
    from pyspark.sql import functions as F

    if DAY in rows.columns:
        raise ConfigurationError(
            f"the log has an attribute {DAY!r}, and so is the column called that divides the table by days; "
            "give a schema without it"
        )
    if "_published_at" not in rows.columns:
        raise ConfigurationError(
            "the schema lacks `_published_at timestamp`, which says to which day a row belongs; columns that "
            f"every log has: {', '.join(METADATA)}"
        )
    return rows.withColumn(DAY, F.to_date("_published_at"))
