"""How does a test write down a small table of a trace, and read a result?"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from braid.pipeline.schemas import trace_schema

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["rows_of", "table"]

DEFAULTS = {"smallint": 0, "int": 0, "bigint": 0, "double": 0.0, "string": ""}


def table(spark: SparkSession, kind: str, columns: str, *rows: tuple[Any, ...]) -> DataFrame:
    """A trace table of these rows; columns that are not named hold nothing of interest."""
    schema = trace_schema(kind)
    names = columns.split()
    assert set(names) <= set(schema.names), f"{kind} has the columns {schema.names}"
    empty = {
        field.name: None if field.nullable else DEFAULTS[field.dataType.simpleString()] for field in schema
    }
    whole = [empty | dict(zip(names, row, strict=True)) for row in rows]
    return spark.createDataFrame([tuple(row[name] for name in schema.names) for row in whole], schema)


def rows_of(result: DataFrame, columns: str | None = None) -> list[tuple[Any, ...]]:
    """The rows of a result in its own order, or some of its columns; floats as they are to be compared."""
    chosen = result.select(*columns.split()) if columns else result
    return [
        tuple(round(value, 12) if isinstance(value, float) else value for value in row)
        for row in chosen.collect()
    ]
