"""Which values of one attribute are acceptable?

A `ValueSet` is closed under intersection, union and difference, so a box (one value set per
attribute) can be compared with another exactly. Integers and doubles have a line each, because a
comparison of two integers is exact while one with a double is done in doubles: beyond 2^53 the
literal `9007199254740993` equals one integer and a neighbouring double.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from braid.language.intervals import (
    EMPTY,
    TOP,
    Intervals,
    complement,
    contains,
    intersection,
    overlaps,
    union,
    union_of_all,
    within,
)
from braid.language.values import (
    INT_MAX,
    INT_MIN,
    Range,
    Scalar,
    Value,
    float_to_ordinal,
    ordinal_after,
    ordinal_before,
    ordinal_to_float,
)

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = [
    "ANYTHING",
    "BOOLEAN_LINE",
    "EXACT_MAX",
    "FLOAT_LINE",
    "INTEGER_LINE",
    "NOTHING",
    "NOT_NULL",
    "NULL_ONLY",
    "NUMBERS",
    "STRINGS",
    "STRING_LINE",
    "ValueSet",
    "compared_with",
    "floats_between",
    "integers_between",
    "integers_equal_to",
    "integers_of_floats",
    "intersection_of",
    "strings_with_prefix",
    "union_of",
    "values_between",
]

BOOLEAN_LINE = (0, 2)
INTEGER_LINE = (INT_MIN, INT_MAX + 1)
FLOAT_LINE = (float_to_ordinal(-math.inf), float_to_ordinal(math.nan) + 1)
STRING_LINE = ("", TOP)

# Below this magnitude every integer is a double of its own.
EXACT_MAX = 2**53


@dataclass(frozen=True, slots=True)
class ValueSet:
    """Acceptable values by kind, and whether the attribute may be absent."""

    null: bool = False
    booleans: Intervals = EMPTY
    integers: Intervals = EMPTY
    floats: Intervals = EMPTY
    strings: Intervals = EMPTY

    def intersection(self, other: ValueSet) -> ValueSet:
        """The values in both."""
        return ValueSet(
            self.null and other.null,
            intersection(self.booleans, other.booleans),
            intersection(self.integers, other.integers),
            intersection(self.floats, other.floats),
            intersection(self.strings, other.strings),
        )

    def union(self, other: ValueSet) -> ValueSet:
        """The values in at least one."""
        return ValueSet(
            self.null or other.null,
            union(self.booleans, other.booleans),
            union(self.integers, other.integers),
            union(self.floats, other.floats),
            union(self.strings, other.strings),
        )

    def complement(self) -> ValueSet:
        """Every other value of every kind."""
        return ValueSet(
            not self.null,
            complement(self.booleans, BOOLEAN_LINE),
            complement(self.integers, INTEGER_LINE),
            complement(self.floats, FLOAT_LINE),
            complement(self.strings, STRING_LINE),
        )

    def difference(self, other: ValueSet) -> ValueSet:
        """The values that are not in `other`."""
        return self.intersection(other.complement())

    def covers(self, other: ValueSet) -> bool:
        """Whether every value of `other` is here too."""
        return (
            (self.null or not other.null)
            and within(other.booleans, self.booleans)
            and within(other.integers, self.integers)
            and within(other.floats, self.floats)
            and within(other.strings, self.strings)
        )

    def disjoint(self, other: ValueSet) -> bool:
        """Whether no value is in both."""
        return not self.intersection(other)

    def __bool__(self) -> bool:
        return self.null or bool(self.booleans or self.integers or self.floats or self.strings)

    def accepts(self, value: Value | None) -> bool:
        """Whether the value, or for a range some point of it, is acceptable."""
        kind = type(value)
        if kind is float:
            return contains(self.floats, float_to_ordinal(value))  # type: ignore[arg-type]
        if kind is int:
            return contains(self.integers, value)
        if kind is str:
            return contains(self.strings, value)
        if value is None:
            return self.null
        if kind is bool:
            return contains(self.booleans, int(value))  # type: ignore[arg-type]
        if kind is Range:
            return self.touches(value)  # type: ignore[arg-type]
        return self._accepts_subclass(value)

    def touches(self, extent: Range) -> bool:
        """Whether some integer or double from `extent.low` to `extent.high` is acceptable."""
        return overlaps(self.integers, *integers_between(extent)) or overlaps(
            self.floats, *floats_between(extent)
        )

    def _accepts_subclass(self, value: object) -> bool:
        for kind in (bool, int, float, str):
            if isinstance(value, kind):
                return self.accepts(kind(value))
        return False

    def example(self) -> Scalar | None:
        """Some value of a non-empty set, None standing for an absent attribute."""
        if self.integers:
            return int(self.integers[0][0])
        if self.floats:
            return ordinal_to_float(self.floats[0][0])
        if self.strings:
            return str(self.strings[0][0])
        return bool(self.booleans[0][0]) if self.booleans else None


NOTHING = ValueSet()
ANYTHING = NOTHING.complement()
NULL_ONLY = ValueSet(null=True)
NOT_NULL = NULL_ONLY.complement()
NUMBERS = ValueSet(integers=(INTEGER_LINE,), floats=(FLOAT_LINE,))
STRINGS = ValueSet(strings=(STRING_LINE,))


def compared_with(operator: str, literal: Scalar | None) -> ValueSet:
    """The values for which `value operator literal` is TRUE."""
    if literal is None:
        return NOTHING
    if isinstance(literal, bool):
        return ValueSet(booleans=_stretch(operator, int(literal), int(literal) + 1, BOOLEAN_LINE))
    if isinstance(literal, str):
        return ValueSet(strings=_stretch(operator, literal, literal + "\0", STRING_LINE))
    ordinal = float_to_ordinal(float(literal))
    floats = _stretch(operator, ordinal, ordinal_after(ordinal), FLOAT_LINE)
    if isinstance(literal, int):
        return ValueSet(integers=_stretch(operator, literal, literal + 1, INTEGER_LINE), floats=floats)
    low, high = integers_equal_to(literal)
    return ValueSet(integers=_stretch(operator, low, high, INTEGER_LINE), floats=floats)


def values_between(low: Scalar | None, high: Scalar | None) -> ValueSet:
    """The values for which `value >= low AND value <= high` is TRUE."""
    if low is None or high is None or isinstance(low, (bool, str)) or isinstance(high, (bool, str)):
        return compared_with(">=", low).intersection(compared_with("<=", high))
    # The same for two numbers, without the sets on the way.
    first = low if isinstance(low, int) else integers_equal_to(low)[0]
    last = high + 1 if isinstance(high, int) else integers_equal_to(high)[1]
    start, end = float_to_ordinal(float(low)), ordinal_after(float_to_ordinal(float(high)))
    return ValueSet(
        integers=((first, last),) if first < last else EMPTY,
        floats=((start, end),) if start < end else EMPTY,
    )


def union_of(sets: Iterable[ValueSet]) -> ValueSet:
    """The values in at least one of many sets, in one sweep per kind."""
    members = list(sets)
    return ValueSet(
        any(member.null for member in members),
        union_of_all([member.booleans for member in members]),
        union_of_all([member.integers for member in members]),
        union_of_all([member.floats for member in members]),
        union_of_all([member.strings for member in members]),
    )


def intersection_of(sets: Iterable[ValueSet]) -> ValueSet:
    """The values in all of one or more sets. In pairs: one by one would cost the square of their number."""
    members = list(sets)
    while len(members) > 1:
        odd = members[len(members) & ~1 :]
        pairs = zip(members[::2], members[1::2], strict=False)
        members = [first.intersection(second) for first, second in pairs] + odd
    return members[0]


def strings_with_prefix(prefix: str) -> ValueSet:
    """The strings that start with `prefix`."""
    return ValueSet(strings=((prefix, _after_prefix(prefix)),))


def integers_of_floats(floats: Intervals) -> Intervals:
    """The integers whose nearest double is in the set."""
    integers: list[Intervals] = []
    for low, high in floats:
        first = _first_integer_from(ordinal_to_float(low))
        last = INT_MAX + 1 if high == FLOAT_LINE[1] else _first_integer_from(ordinal_to_float(high))
        if first < last:
            integers.append(((first, last),))
    return union_of_all(integers)


def integers_between(extent: Range) -> tuple[int, int]:
    """The integers within a range, half-open."""
    low = INT_MIN if extent.low <= INT_MIN else math.ceil(min(extent.low, INT_MAX + 1))
    high = INT_MAX if extent.high >= INT_MAX else math.floor(max(extent.high, INT_MIN - 1))
    return low, high + 1


def floats_between(extent: Range) -> tuple[int, int]:
    """The doubles within a range as ordinals, half-open."""
    low, high = float_to_ordinal(float(extent.low)), float_to_ordinal(float(extent.high))
    # A large integer end may have been rounded outwards.
    if ordinal_to_float(low) < extent.low:
        low = ordinal_after(low)
    if ordinal_to_float(high) > extent.high:
        high = ordinal_before(high)
    return low, ordinal_after(high)


def _stretch(operator: str, low: Any, high: Any, line: tuple[Any, Any]) -> Intervals:
    """The part of `line` on the operator's side of the points `[low, high)` that equal the literal."""
    start, end = line
    if operator == "=":
        start, end = low, high
    elif operator == "<":
        end = low
    elif operator == "<=":
        end = high
    elif operator == ">":
        start = high
    elif operator == ">=":
        start = low
    else:
        return complement(((low, high),), line) if low < high else (line,)
    return ((start, end),) if start < end else EMPTY


def integers_equal_to(literal: float) -> tuple[int, int]:
    """The integers that a comparison in doubles takes for `literal`, half-open, perhaps empty."""
    if abs(literal) < EXACT_MAX:
        return math.ceil(literal), math.floor(literal) + 1
    first = _first_integer_from(literal)
    following = ordinal_to_float(ordinal_after(float_to_ordinal(literal)))
    return first, max(first, _first_integer_from(following))


def _first_integer_from(bound: float) -> int:
    """The smallest 64-bit integer `i` with `float(i) >= bound`; one past the largest if there is none."""
    if bound != bound or bound > 2.0**63:
        return INT_MAX + 1
    if abs(bound) < EXACT_MAX:
        return math.ceil(bound)
    if bound <= INT_MIN:
        return INT_MIN
    # Rounding to the nearest double is monotonic, so bisection finds the place.
    low, high = max(INT_MIN, int(bound) - 2048), min(INT_MAX + 1, int(bound) + 2048)
    while low < high:
        middle = (low + high) // 2
        if float(middle) >= bound:
            high = middle
        else:
            low = middle + 1
    return low


def _after_prefix(prefix: str) -> object:
    """The first string behind all those that start with `prefix`."""
    kept = prefix.rstrip("\U0010ffff")
    if not kept:
        return TOP
    code = ord(kept[-1]) + 1
    # Surrogates are not characters; the next one after U+D7FF is U+E000.
    return kept[:-1] + chr(0xE000 if code == 0xD800 else code)
