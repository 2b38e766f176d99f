"""How do records become Arrow columns without an object per publication?

The records of a piece are one msgpack array with a header in front, so that one call decodes all of them,
into structs that have exactly the columns that are wanted, with their types: everything else is skipped. Only
where a value has another type than its column are the records looked at one by one; such a value becomes
NULL, and is counted.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec
import pyarrow as pa
from pyspark.sql import types as T
from pyspark.sql.pandas.types import to_arrow_schema

from braid.language import Range
from braid.pipeline.source.schema import RANGE, attribute_fields
from braid.protocol.batch import record_decoder
from braid.protocol.publisher_names import publisher_and_epoch

if TYPE_CHECKING:
    from braid.client import StoredRecords

__all__ = ["Decoding"]

# The msgpack header of an array with so many entries as fit into 32 bits.
ARRAY_32 = b"\xdd"

_INTEGERS: dict[type[T.DataType], int] = {T.ByteType: 8, T.ShortType: 16, T.IntegerType: 32, T.LongType: 64}


class Decoding:
    """Turns stored records into record batches of one schema."""

    def __init__(self, schema: T.StructType) -> None:
        self._schema = schema
        self._arrow = to_arrow_schema(schema, timezone="UTC")
        self._fields = attribute_fields(schema)
        self._places = {field.name: f"f{number}" for number, field in enumerate(self._fields)}
        attributes: Any = msgspec.defstruct(
            "Attributes",
            [(self._places[field.name], _wanted(field.dataType), None) for field in self._fields],
            rename={place: name for name, place in self._places.items()},
            gc=False,
        )
        self._attributes = attributes
        wants_body = {"_body", "_content_type"} & set(schema.names)
        record: Any = msgspec.defstruct(
            "Record",
            [
                ("attributes", attributes),
                ("published_at_us", int, 0),
                *([("body", bytes, b""), ("content_type", str, "")] if wants_body else []),
            ],
            array_like=True,
            gc=False,
        )
        self._record = record
        self._all = record_decoder(list[record])
        self._one = record_decoder(record)
        self._narrow = {
            field.name: _INTEGERS[type(field.dataType)]
            for field in self._fields
            if type(field.dataType) in _INTEGERS
        }
        self._counts_mistyped = "_mistyped" in schema.names
        self.mistyped = 0
        """Values that had another type than their column, so far."""

    def batch(self, name: str, stored: StoredRecords) -> pa.RecordBatch:
        """One piece of a log as columns."""
        records = [record for _, _, record in stored.rows]
        wrong: list[int] | None = None
        try:
            rows = self._all.decode(b"".join((ARRAY_32, len(records).to_bytes(4, "big"), *records)))
        except msgspec.ValidationError:
            rows, wrong = self._one_by_one(records)
        columns: dict[str, Any] = {}
        heads = [row.attributes for row in rows]
        for field in self._fields:
            place = self._places[field.name]
            values = [getattr(head, place) for head in heads]
            columns[field.name] = self._column(field, values, wrong, len(rows))
            if columns[field.name] is None:  # an integer that does not fit
                wrong = wrong if wrong is not None else [0] * len(rows)
                columns[field.name] = self._fitting(field, values, wrong)
        arrays = []
        for field in self._arrow:
            if field.name in columns:
                arrays.append(columns[field.name])
            else:
                arrays.append(_METADATA[field.name](name, stored, rows, wrong).cast(field.type))
        self.mistyped += sum(wrong or ())
        return pa.RecordBatch.from_arrays(arrays, schema=self._arrow)

    def _column(self, field: T.StructField, values: list[Any], wrong: list[int] | None, count: int) -> Any:
        if field.dataType == RANGE:
            values = [_range(value) for value in values]
        try:
            return pa.array(values, self._arrow.field(field.name).type, size=count)
        except (pa.ArrowInvalid, OverflowError):
            return None

    def _fitting(self, field: T.StructField, values: list[Any], wrong: list[int]) -> Any:
        bound = 1 << (self._narrow[field.name] - 1)
        for place, value in enumerate(values):
            if value is not None and not -bound <= value < bound:
                values[place] = None
                wrong[place] += 1
        return pa.array(values, self._arrow.field(field.name).type)

    def _one_by_one(self, records: list[bytes]) -> tuple[list[Any], list[int]]:
        """All records, with NULL for values of a wrong type, and how many of those each has."""
        rows: list[Any] = []
        wrong: list[int] = []
        for record in records:
            try:
                rows.append(self._one.decode(record))
                wrong.append(0)
            except msgspec.ValidationError:
                row, count = self._mended(record)
                rows.append(row)
                wrong.append(count)
        return rows, wrong

    def _mended(self, record: bytes) -> tuple[Any, int]:
        parts = record_decoder(list[Any]).decode(record)
        found: dict[str, Any] = {}
        count = 0
        for field in self._fields:
            value = parts[0].get(field.name)
            if value is None:
                continue
            fitting = _converted(field.dataType, value)
            count += fitting is None
            found[self._places[field.name]] = fitting
        return self._record(self._attributes(**found), *parts[1 : len(self._record.__struct_fields__)]), count


def _wanted(kind: T.DataType) -> Any:
    if isinstance(kind, T.BooleanType):
        return bool | None
    if type(kind) in _INTEGERS:
        return int | None
    if isinstance(kind, (T.DoubleType, T.FloatType)):
        return float | None
    if isinstance(kind, T.StringType):
        return str | None
    return Any


def _converted(kind: T.DataType, value: Any) -> Any:
    """A value of a column's type, or None."""
    if kind == RANGE:
        return value if type(value) in (int, float, Range) else None
    if isinstance(kind, (T.DoubleType, T.FloatType)):
        return float(value) if type(value) in (int, float) else None
    wanted = bool if isinstance(kind, T.BooleanType) else str if isinstance(kind, T.StringType) else int
    return value if type(value) is wanted else None


def _range(value: Any) -> dict[str, float] | None:
    if type(value) is Range:
        return {"low": float(value.low), "high": float(value.high)}
    return {"low": float(value), "high": float(value)} if type(value) in (int, float) else None


def _publishers(stored: StoredRecords) -> list[tuple[str, str]]:
    # Most neighbours have the same publisher.
    known: dict[str, tuple[str, str]] = {}
    return [
        known.get(name) or known.setdefault(name, publisher_and_epoch(name)) for name, _, _ in stored.rows
    ]


_METADATA: dict[str, Any] = {
    "_publisher": lambda name, stored, rows, wrong: pa.array([each for each, _ in _publishers(stored)]),
    "_epoch": lambda name, stored, rows, wrong: pa.array([each for _, each in _publishers(stored)]),
    "_sequence": lambda name, stored, rows, wrong: pa.array([each for _, each, _ in stored.rows], pa.int64()),
    "_published_at": lambda name, stored, rows, wrong: pa.array(
        [row.published_at_us for row in rows], pa.int64()
    ).cast(pa.timestamp("us", tz="UTC")),
    "_log": lambda name, stored, rows, wrong: pa.array([name] * len(rows), pa.string()),
    "_offset": lambda name, stored, rows, wrong: pa.array(stored.offsets, pa.int64()),
    "_body": lambda name, stored, rows, wrong: pa.array([row.body for row in rows], pa.binary()),
    "_content_type": lambda name, stored, rows, wrong: pa.array(
        [row.content_type for row in rows], pa.string()
    ),
    "_mistyped": lambda name, stored, rows, wrong: pa.array(
        wrong if wrong is not None else [0] * len(rows), pa.int32()
    ),
}
