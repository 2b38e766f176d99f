"""What does a batch of publications look like as arrays?

A `Batch` takes publications as mappings and yields one `Column` per attribute that the index asks
for, made once and shared by everything that looks at it. Columns of one type (all integers, all
floats, all strings, absent values among them) are converted without a Python loop.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import chain
from operator import methodcaller
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from braid.errors import PublicationError
from braid.language.value_sets import EXACT_MAX
from braid.language.values import INT_MAX, INT_MIN, Range, Value, float_to_ordinal

__all__ = [
    "ABSENT",
    "FALSE",
    "LARGE",
    "NUMBER",
    "RANGE",
    "STRING",
    "TRUE",
    "BoolArray",
    "Batch",
    "Column",
    "IntArray",
    "WordArray",
    "point_key",
]

IntArray: TypeAlias = npt.NDArray[np.integer[Any]]
BoolArray: TypeAlias = npt.NDArray[np.bool_]
WordArray: TypeAlias = npt.NDArray[np.uint64]

# Kinds of values, as stored in a column. LARGE integers are those that share a double with others.
ABSENT, FALSE, TRUE, NUMBER, STRING, LARGE, RANGE = range(7)

_NONE = type(None)
_NUMERIC = {int, float, _NONE}
_MAGNITUDE = np.int64(INT_MAX)
_NAN = np.int64(float_to_ordinal(float("nan")))


class Column:
    """One attribute over a batch: the kind of each value and its place on the number line."""

    __slots__ = ("_present", "kinds", "ordinals", "uniform", "values")

    def __init__(
        self, values: list[Any], kinds: npt.NDArray[np.uint8], ordinals: npt.NDArray[np.int64], uniform: bool
    ) -> None:
        self.values = values
        self.kinds = kinds
        self.ordinals = ordinals
        """Ordinals of the doubles nearest to the numbers; anything where there is no number."""
        self.uniform = uniform
        """Whether the only kinds are ABSENT and NUMBER."""
        self._present: BoolArray | None = None

    @property
    def present(self) -> BoolArray:
        """Where the attribute is not absent."""
        if self._present is None:
            self._present = self.kinds != ABSENT
        return self._present


class Batch:
    """Publications, with their columns made on demand."""

    __slots__ = ("_columns", "publications")

    def __init__(self, publications: Sequence[Mapping[str, Value | None]]) -> None:
        self.publications = publications
        self._columns: dict[str, Column] = {}

    def __len__(self) -> int:
        return len(self.publications)

    def column(self, name: str) -> Column:
        """The column of an attribute."""
        column = self._columns.get(name)
        if column is None:
            values = [publication.get(name) for publication in self.publications]
            column = self._columns[name] = _column(name, values)
        return column

    def names(self) -> set[str]:
        """The attributes that some publication has."""
        return set(chain.from_iterable(self.publications))

    def ranged(self) -> list[int]:
        """The publications that hold a range."""
        if Range not in set(map(type, chain.from_iterable(map(_values, self.publications)))):
            return []
        return [row for row, each in enumerate(self.publications) if Range in map(type, each.values())]


_values = methodcaller("values")


def _column(name: str, values: list[Any]) -> Column:
    types = set(map(type, values))
    if types <= _NUMERIC:
        column = _numbers(values, types)
        if column is not None:
            return column
    elif types <= {str, _NONE}:
        absent = np.fromiter((value is None for value in values), np.bool_, len(values))
        kinds = np.where(absent, np.uint8(ABSENT), np.uint8(STRING))
        return Column(values, kinds, np.zeros(len(values), np.int64), False)
    return _mixed(name, values)


def _numbers(values: list[Any], types: set[type]) -> Column | None:
    """Fast conversion; None when some integer is so large that a double would not do."""
    try:
        doubles = np.array(values, dtype=np.float64)  # None becomes NaN
    except OverflowError:
        return None
    if int in types and (np.abs(doubles) >= EXACT_MAX).any():
        return None
    absent = np.isnan(doubles) if _NONE in types else None
    if absent is not None and float in types:
        absent = np.fromiter((value is None for value in values), np.bool_, len(values))
    kinds = np.full(len(values), NUMBER, np.uint8)
    if absent is not None:
        kinds[absent] = ABSENT
    return Column(values, kinds, _ordinals(doubles), True)


def _ordinals(doubles: npt.NDArray[np.float64]) -> npt.NDArray[np.int64]:
    """`float_to_ordinal` for an array."""
    bits = (doubles + 0.0).view(np.int64)
    ordinals = bits ^ ((bits >> np.int64(63)) & _MAGNITUDE)
    ordinals[np.isnan(doubles)] = _NAN
    return ordinals


def _mixed(name: str, values: list[Any]) -> Column:
    kinds = np.zeros(len(values), np.uint8)
    doubles = np.zeros(len(values), np.float64)
    plain: list[Any] = [None] * len(values)
    for row, value in enumerate(values):
        kinds[row], plain[row] = _classified(name, value)
        if kinds[row] in (NUMBER, LARGE):
            doubles[row] = float(plain[row])
    return Column(plain, kinds, _ordinals(doubles), False)


def _classified(name: str, value: Any) -> tuple[int, Any]:
    """The kind of one value, and the value as one of the language's own types."""
    if value is None:
        return ABSENT, None
    if isinstance(value, (bool, np.bool_)):
        return (TRUE, True) if value else (FALSE, False)
    if isinstance(value, (int, np.integer)):
        if not INT_MIN <= value <= INT_MAX:
            raise PublicationError(f"attribute {name!r}: the integer {value} does not fit into 64 bits")
        return (LARGE if abs(int(value)) >= EXACT_MAX else NUMBER), int(value)
    if isinstance(value, (float, np.floating)):
        return NUMBER, float(value)
    if isinstance(value, str):
        return STRING, str(value)
    if isinstance(value, Range):
        return RANGE, value
    raise PublicationError(
        f"attribute {name!r}: a {type(value).__name__} cannot be matched; "
        "use an integer, float, string, boolean or Range"
    )


def point_key(value: Any) -> Any:
    """What equality looks a value up by; None for values that are found another way.

    An integer and the double equal to it share a key, except beyond 2^53: there a double stands for
    several integers and has a key of its own.
    """
    kind = type(value)
    if kind is str or kind is int:
        return value
    if kind is float:
        return value if abs(value) < EXACT_MAX else ("double", value)
    return None
