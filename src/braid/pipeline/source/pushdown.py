"""Which predicates of a query may the broker apply?

Spark trusts a source: a predicate that is accepted is not looked at again. So the broker gets a filter that
lets every row pass that the predicate accepts, and perhaps some more, such as rows whose value has another
type than the column; and each task decides exactly on the columns it has made. What cannot be said so stays
with Spark: `<=>`, `IS NULL` (a value of a wrong type is NULL for Spark and there for the broker), metadata
columns, dates, decimals, floats of 32 bits, numbers too large for a double to tell apart, and what would make
the filter too long, such as a list of thousands of strings.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pyarrow.compute as pc
from pyspark.sql import types as T
from pyspark.sql.datasource import (
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    LessThan,
    LessThanOrEqual,
    Not,
    StringContains,
    StringEndsWith,
    StringStartsWith,
)

from braid.pipeline.source.schema import METADATA

if TYPE_CHECKING:
    from collections.abc import Iterable

    import pyarrow as pa

__all__ = ["Pushed"]

# Beyond this a double cannot hold every integer, so that rounding would decide.
EXACT_MAX = 2**53
# Brokers take filters of up to 65,536 characters; half of that leaves room for what a grant adds.
TEXT_LENGTH_MAX = 32_000

_COMPARISONS: dict[type, tuple[str, Any]] = {
    EqualTo: ("=", pc.equal),
    GreaterThan: (">", pc.greater),
    GreaterThanOrEqual: (">=", pc.greater_equal),
    LessThan: ("<", pc.less),
    LessThanOrEqual: ("<=", pc.less_equal),
}
_PATTERNS: dict[type, tuple[str, Any]] = {
    StringStartsWith: ("{}%", pc.starts_with),
    StringEndsWith: ("%{}", pc.ends_with),
    StringContains: ("%{}%", pc.match_substring),
}
_INTEGERS = (T.ByteType, T.ShortType, T.IntegerType, T.LongType)


@dataclass
class Pushed:
    """The predicates that a reader has accepted."""

    accepted: list[Filter] = field(default_factory=list)
    texts: list[str] = field(default_factory=list)

    def accept(self, filters: Iterable[Filter], schema: T.StructType, own: str = "") -> list[Filter]:
        """Take what can be taken beside the query's own filter; returns what Spark has to do itself."""
        left = []
        for each in filters:
            text = _text(each, schema)
            if text is None or len(self.filter(own)) + len(text) > TEXT_LENGTH_MAX:
                left.append(each)
            else:
                self.accepted.append(each)
                self.texts.append(text)
        return left

    def filter(self, own: str = "") -> str:
        """What the broker is asked for, with what the query itself asks for; empty for everything."""
        return " AND ".join(f"({text})" for text in (own, *self.texts) if text)

    def apply(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """The rows that satisfy all accepted predicates."""
        if not self.accepted:
            return batch
        mask = None
        for each in self.accepted:
            found = _mask(each, batch)
            mask = found if mask is None else pc.and_kleene(mask, found)
        return batch.filter(mask, null_selection_behavior="drop")


def _text(filter: Filter, schema: T.StructType) -> str | None:
    """A predicate as a filter that accepts at least the same rows; None where there is none."""
    if isinstance(filter, Not):
        inner = _text(filter.child, schema)
        # The negation of a weaker filter would be stronger.
        return None if inner is None or isinstance(filter.child, (IsNotNull, Not)) else f"NOT ({inner})"
    attribute: tuple[str, ...] = getattr(filter, "attribute", ())
    if len(attribute) != 1 or attribute[0] in METADATA or attribute[0] not in schema.names:
        return None
    kind = schema[attribute[0]].dataType
    name = f"`{attribute[0].replace('`', '``')}`"
    if isinstance(filter, IsNotNull):
        return f"{name} IS NOT NULL" if not isinstance(kind, T.StructType) else None
    value: Any = getattr(filter, "value", None)
    if type(filter) in _COMPARISONS:
        literal = _literal(kind, value)
        return None if literal is None else f"{name} {_COMPARISONS[type(filter)][0]} {literal}"
    if isinstance(filter, In):
        literals = [_literal(kind, each) for each in value]
        if not literals or None in literals:
            return None
        return f"{name} IN ({', '.join(map(str, literals))})"
    if type(filter) in _PATTERNS and isinstance(kind, T.StringType) and isinstance(value, str):
        escaped = value.replace("!", "!!").replace("%", "!%").replace("_", "!_").replace("'", "''")
        return f"{name} LIKE '{_PATTERNS[type(filter)][0].format(escaped)}' ESCAPE '!'"
    return None


def _literal(kind: T.DataType, value: Any) -> str | None:
    """A value as the filter language writes it, where it means the same against a column of this type."""
    if isinstance(kind, T.BooleanType) and type(value) is bool:
        return "TRUE" if value else "FALSE"
    if isinstance(kind, T.StringType) and type(value) is str:
        return "'" + value.replace("'", "''") + "'"
    if isinstance(kind, _INTEGERS) and type(value) is int:
        return str(value)
    if isinstance(kind, T.DoubleType) and type(value) in (int, float):
        number = float(value)
        return repr(number) if math.isfinite(number) and abs(number) < EXACT_MAX else None
    return None


def _mask(filter: Any, batch: pa.RecordBatch) -> Any:
    """Which rows satisfy a predicate that was accepted, as Spark sees it; NULL where it is unknown."""
    if isinstance(filter, Not):
        return pc.invert(_mask(filter.child, batch))
    column = batch.column(filter.attribute[0])
    if isinstance(filter, IsNotNull):
        return pc.is_valid(column)
    value = filter.value
    if isinstance(filter, In):
        found = None
        for each in value:
            equal = pc.equal(column, each)
            found = equal if found is None else pc.or_kleene(found, equal)
        return found
    if type(filter) in _PATTERNS:
        return _PATTERNS[type(filter)][1](column, value)
    mask = _COMPARISONS[type(filter)][1](column, value)
    if isinstance(filter, (GreaterThan, GreaterThanOrEqual)) and str(column.type) == "double":
        # For Spark, and for the broker, NaN is larger than every other number.
        mask = pc.or_kleene(mask, pc.is_nan(column))
    return mask
