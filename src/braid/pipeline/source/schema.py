"""What columns does a log have?

Attributes become columns of their kind, and each row has columns of its own that begin with an underscore:

| column | type | what |
|---|---|---|
| `_publisher`, `_epoch`, `_sequence` | string, string, bigint | together the publication's id |
| `_published_at` | timestamp | when its publisher made it |
| `_log`, `_offset` | string, bigint | its place |
| `_body`, `_content_type` | binary, string | what is carried and never matched |
| `_mistyped` | int | how many of its values have another type than their column, and so are NULL |

A range is a struct of `low` and `high`; a number in such a column is a range of one point.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

from pyspark.sql import types as T

from braid.language import Filter, Range
from braid.pipeline.source.errors import SourceError
from braid.protocol.batch import decode_heads

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = ["METADATA", "RANGE", "attribute_fields", "checked_schema", "inferred_schema"]

RANGE = T.StructType([T.StructField("low", T.DoubleType()), T.StructField("high", T.DoubleType())])

METADATA = {
    "_publisher": T.StringType(),
    "_epoch": T.StringType(),
    "_sequence": T.LongType(),
    "_published_at": T.TimestampType(),
    "_log": T.StringType(),
    "_offset": T.LongType(),
    "_body": T.BinaryType(),
    "_content_type": T.StringType(),
    "_mistyped": T.IntegerType(),
}

_KINDS: dict[type, T.DataType] = {
    bool: T.BooleanType(),
    int: T.LongType(),
    float: T.DoubleType(),
    str: T.StringType(),
    Range: RANGE,
}
_COLUMN_TYPES = (
    T.BooleanType,
    T.ByteType,
    T.ShortType,
    T.IntegerType,
    T.LongType,
    T.FloatType,
    T.DoubleType,
    T.StringType,
)


def attribute_fields(schema: T.StructType) -> list[T.StructField]:
    """The columns that hold attributes."""
    return [field for field in schema.fields if field.name not in METADATA]


def checked_schema(schema: T.StructType) -> T.StructType:
    """The schema that a user gave, if publications can fill it; or a `SourceError`."""
    for field in schema.fields:
        wanted = METADATA.get(field.name)
        if wanted is not None:
            if field.dataType != wanted:
                raise SourceError(
                    f"the column {field.name!r} is a {wanted.simpleString()}, not a "
                    f"{field.dataType.simpleString()}"
                )
        elif field.dataType != RANGE and not isinstance(field.dataType, _COLUMN_TYPES):
            raise SourceError(
                f"the column {field.name!r} cannot be a {field.dataType.simpleString()}: attributes are "
                "numbers, strings, booleans, and ranges as struct<low:double,high:double>"
            )
    return schema


def inferred_schema(name: str, records: Iterable[bytes], filters: Iterable[str] = ()) -> T.StructType:
    """Columns for the attributes of a sample, and those that every row has.

    Without a sample they follow from what the log is for: an attribute that its filter compares with numbers
    is a number in every row that it will ever have, or is not there.
    """
    kinds: dict[str, Counter[type]] = {}
    for head in decode_heads(records):
        for attribute, value in head.attributes.items():
            if value is not None:
                kinds.setdefault(attribute, Counter())[type(value)] += 1
    if not kinds:
        kinds = _kinds_of_filters(filters)
    if not kinds:
        raise SourceError(
            f"the log {name!r} has no rows to infer columns from; give a schema, such as "
            '.schema("symbol string, price double, _offset bigint")'
        )
    fields = [T.StructField(attribute, _type_of(found)) for attribute, found in sorted(kinds.items())]
    fields += [T.StructField(column, kind) for column, kind in METADATA.items() if column not in kinds]
    return T.StructType(fields)


def _kinds_of_filters(filters: Iterable[str]) -> dict[str, Counter[type]]:
    """The attributes that filters speak about and that can have values of one kind only."""
    possible: dict[str, set[type]] = {}
    for text in filters:
        for term in Filter(text).terms:
            for attribute, values in term.box.items():
                of_each = {
                    bool: values.booleans,
                    float: values.integers or values.floats,
                    str: values.strings,
                }
                possible.setdefault(attribute, set()).update(kind for kind, some in of_each.items() if some)
    return {name: Counter(kinds) for name, kinds in possible.items() if len(kinds) == 1}


def _type_of(found: Counter[type]) -> T.DataType:
    """The type that holds most of the values; integers are welcome among floats, and numbers among ranges."""
    amounts: Counter[Any] = Counter(found)
    if found[Range]:
        amounts[Range] += found[int] + found[float]
    if found[float]:
        amounts[float] += found[int]
    kind = max(sorted(amounts, key=lambda each: each.__name__), key=lambda each: amounts[each])
    return _KINDS[kind]
