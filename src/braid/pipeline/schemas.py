"""Which columns and types do the tables of the pipeline have in Spark?

They follow from `trace.records`, so that there is one description of a trace and not two.
"""

from __future__ import annotations

from functools import cache

from pyspark.sql.types import (
    DataType,
    DoubleType,
    IntegerType,
    LongType,
    ShortType,
    StringType,
    StructField,
    StructType,
)

from braid.trace.records import TABLES, require_kind

__all__ = ["RUN", "trace_schema"]

RUN = "run"
"""The column that says which run of a sweep a row belongs to; empty for a trace that stands alone."""

_TYPES: dict[str, DataType] = {
    "int16": ShortType(),
    "int32": IntegerType(),
    "int64": LongType(),
    "float64": DoubleType(),
    "string": StringType(),
}


@cache
def trace_schema(kind: str) -> StructType:
    """The columns of one table of a trace, with `run` behind them."""
    columns = [
        StructField(column.name, _TYPES[column.type], column.nullable)
        for column in TABLES[require_kind(kind)]
    ]
    return StructType([*columns, StructField(RUN, StringType(), False)])
