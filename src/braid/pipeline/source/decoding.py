"""How do records become Arrow columns without an object per publication?

Records that look alike are read together, a column at a time (`columns`). The others are decoded as one
msgpack array with a header in front, into structs that have exactly the columns that are wanted, with their
types. Only where a value has another type than its column are records looked at one by one; such a value
becomes NULL, and is counted.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import types as T
from pyspark.sql.pandas.types import to_arrow_schema

from braid.language import Range
from braid.pipeline.source.columns import PADDING, Columns, Strings, read_columns
from braid.pipeline.source.schema import RANGE, attribute_fields
from braid.protocol.batch import record_decoder
from braid.protocol.publisher_names import publisher_and_epoch

if TYPE_CHECKING:
    from braid.client import StoredRecords

__all__ = ["Decoding"]

# The msgpack header of an array with so many entries as fit into 32 bits.
ARRAY_32 = b"\xdd"

# Records of so many different shapes are read together; the others, and the last few, one by one.
SHAPES_MAX = 8
FEW_ROWS = 16

_INTEGERS: dict[type[T.DataType], int] = {T.ByteType: 8, T.ShortType: 16, T.IntegerType: 32, T.LongType: 64}


@dataclass(slots=True)
class _Part:
    """Some rows of a piece, as Arrow columns."""

    rows: Any
    """Which rows these are."""
    attributes: dict[str, Any]
    published_at_us: Any
    body: Any
    content_type: Any
    wrong: Any
    """How many values of each row have another type than their column."""


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
        self._wants_body = bool(wants_body)
        self._kinds = _kinds_of(self._fields)
        self.mistyped = 0
        """Values that had another type than their column, so far."""

    def batch(self, name: str, stored: StoredRecords) -> pa.RecordBatch:
        """One piece of a log as columns."""
        packed = stored.packed
        parts: list[_Part] = []
        left = np.arange(packed.count)
        data = np.zeros(len(packed.records) + PADDING, np.uint8)
        data[: len(packed.records)] = np.frombuffer(packed.records, np.uint8)
        ends = np.cumsum(packed.record_lengths(), dtype=np.int64)
        starts = ends - packed.record_lengths()
        for _ in range(SHAPES_MAX if self._kinds is not None else 0):
            if len(left) < FEW_ROWS:
                break
            columns = read_columns(
                data, left, starts[left], ends[left], wanted=self._kinds or {}, body=self._wants_body
            )
            # A record that is not like itself is left to the slow way, and so are those like it.
            part = self._from_columns(packed.records, columns) if len(columns.rows) else None
            if part is None:
                break
            parts.append(part)
            left = np.setdiff1d(left, columns.rows, assume_unique=True)
        if len(left):
            parts.append(self._from_records(left, [packed.records[starts[row] : ends[row]] for row in left]))
        whole = _in_order(parts)
        arrays = []
        for field in self._arrow:
            if field.name in self._places:
                arrays.append(whole.attributes[field.name])
            else:
                arrays.append(_METADATA[field.name](name, stored, whole).cast(field.type))
        self.mistyped += int(pc.sum(whole.wrong).as_py() or 0)
        return pa.RecordBatch.from_arrays(arrays, schema=self._arrow)

    def _from_columns(self, records: bytes, columns: Columns) -> _Part | None:
        """The Arrow columns of records that were read together; None where text is no text."""
        count = len(columns.rows)
        wrong = np.zeros(count, np.int32)
        attributes = {}
        try:
            for field in self._fields:
                kind = self._arrow.field(field.name).type
                found, valid = columns.values.get(field.name), columns.valid.get(field.name)
                if found is None:
                    attributes[field.name] = pa.nulls(count, kind)
                    continue
                if isinstance(found, Strings):
                    attributes[field.name] = _strings(records, found, valid, pa.string())
                    continue
                if field.name in self._narrow:
                    bound = 1 << (self._narrow[field.name] - 1)
                    fits = (found >= -bound) & (found < bound)
                    if not fits.all():
                        valid = np.ones(count, bool) if valid is None else valid
                        wrong += valid & ~fits
                        valid = valid & fits
                    if valid is not None:
                        found = np.where(valid, found, 0)
                with np.errstate(over="ignore"):
                    found = found.astype(kind.to_pandas_dtype(), copy=False)
                attributes[field.name] = pa.array(found, kind, mask=None if valid is None else ~valid)
            if columns.body is None or columns.content_type is None:
                body, content = _repeated(b"", pa.binary(), count), _repeated("", pa.string(), count)
            else:
                body = _strings(records, columns.body, None, pa.binary())
                content = _strings(records, columns.content_type, None, pa.string())
        except pa.ArrowInvalid:
            return None
        return _Part(
            columns.rows, attributes, pa.array(columns.published_at_us), body, content, pa.array(wrong)
        )

    def _from_records(self, places: Any, records: list[bytes]) -> _Part:
        """The Arrow columns of records that are decoded one by one."""
        wrong: list[int] | None = None
        try:
            rows = self._all.decode(b"".join((ARRAY_32, len(records).to_bytes(4, "big"), *records)))
        except msgspec.ValidationError:
            rows, wrong = self._one_by_one(records)
        attributes: dict[str, Any] = {}
        heads = [row.attributes for row in rows]
        for field in self._fields:
            place = self._places[field.name]
            values = [getattr(head, place) for head in heads]
            attributes[field.name] = self._column(field, values, len(rows))
            if attributes[field.name] is None:  # an integer that does not fit
                wrong = wrong if wrong is not None else [0] * len(rows)
                attributes[field.name] = self._fitting(field, values, wrong)
        bodies = [row.body for row in rows] if self._wants_body else [b""] * len(rows)
        contents = [row.content_type for row in rows] if self._wants_body else [""] * len(rows)
        return _Part(
            places,
            attributes,
            pa.array([row.published_at_us for row in rows], pa.int64()),
            pa.array(bodies, pa.binary()),
            pa.array(contents, pa.string()),
            pa.array(wrong if wrong is not None else [0] * len(rows), pa.int32()),
        )

    def _column(self, field: T.StructField, values: list[Any], count: int) -> Any:
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


def _kinds_of(fields: list[T.StructField]) -> dict[str, type] | None:
    """The attributes as `read_columns` wants them; None where there is one that it does not read."""
    kinds: dict[str, type] = {}
    for field in fields:
        if isinstance(field.dataType, T.BooleanType):
            kinds[field.name] = bool
        elif type(field.dataType) in _INTEGERS:
            kinds[field.name] = int
        elif isinstance(field.dataType, (T.DoubleType, T.FloatType)):
            kinds[field.name] = float
        elif isinstance(field.dataType, T.StringType):
            kinds[field.name] = str
        else:
            return None
    return kinds


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


def _in_order(parts: list[_Part]) -> _Part:
    """Parts as one, with their rows in the order of the log."""
    if len(parts) == 1:
        return parts[0]
    order = pa.array(np.argsort(np.concatenate([part.rows for part in parts])))

    def joined(arrays: list[Any]) -> Any:
        return pa.concat_arrays(arrays).take(order)

    return _Part(
        np.concatenate([part.rows for part in parts]),
        {name: joined([part.attributes[name] for part in parts]) for name in parts[0].attributes},
        *(joined([getattr(part, name) for part in parts]) for name in _Part.__slots__[2:]),
    )


def _strings(records: bytes, found: Strings, valid: Any, kind: pa.DataType) -> Any:
    """Pieces of the records as an Arrow column.

    The pieces and what lies between them are made one column of twice the length; every other is taken.

    Raises:
        pa.ArrowInvalid: some are no text.
    """
    count = len(found.starts)
    bounds = np.empty(2 * count + 1, np.int32)
    bounds[0 : 2 * count : 2] = found.starts
    bounds[1 : 2 * count : 2] = found.ends
    bounds[2 * count] = found.ends[-1] if count else 0
    all_pieces = pa.Array.from_buffers(
        pa.binary(), 2 * count, [None, pa.py_buffer(bounds), pa.py_buffer(records)]
    )
    chosen = pa.array(np.arange(0, 2 * count, 2), mask=None if valid is None else ~valid)
    return all_pieces.take(chosen).cast(kind)


def _repeated(value: Any, kind: pa.DataType, count: int) -> Any:
    return pa.repeat(pa.scalar(value, kind), count)


def _publishers(stored: StoredRecords, part: int) -> Any:
    """By row, its publisher (0) or that one's epoch (1)."""
    packed = stored.packed
    names = pa.array([publisher_and_epoch(name)[part] for name in packed.publishers], pa.string())
    return names.take(pa.array(packed.publisher_places()))


_METADATA: dict[str, Any] = {
    "_publisher": lambda name, stored, whole: _publishers(stored, 0),
    "_epoch": lambda name, stored, whole: _publishers(stored, 1),
    "_sequence": lambda name, stored, whole: pa.array(stored.packed.sequence_numbers()),
    "_published_at": lambda name, stored, whole: whole.published_at_us.cast(pa.timestamp("us", tz="UTC")),
    "_log": lambda name, stored, whole: _repeated(name, pa.string(), stored.packed.count),
    "_offset": lambda name, stored, whole: _offsets(stored),
    "_body": lambda name, stored, whole: whole.body,
    "_content_type": lambda name, stored, whole: whole.content_type,
    "_mistyped": lambda name, stored, whole: whole.wrong,
}


def _offsets(stored: StoredRecords) -> Any:
    if isinstance(stored.offsets, range):
        return pa.array(np.arange(stored.offsets.start, stored.offsets.stop))
    return pa.array(stored.offsets, pa.int64())
