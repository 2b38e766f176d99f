"""Where on an attribute's line does a value fall?

All bounds that some filters put on one attribute cut its values into elementary stretches. Their
number is the *rank*: 0 for an absent attribute, then False, True, the stretches of the number line,
those of the strings, and, if some filter bounds integers beyond 2^53, those of such integers. Every
set of values is a list of rank intervals, and a value is in the set when its rank is.

With many bounds (real-valued ones, say) neighbouring stretches are put together into *cells* so that
memory stays bounded; a cell that a bound cuts through needs a second, exact look.
"""

from __future__ import annotations

import itertools
from bisect import bisect_right
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from braid.language.intervals import TOP, Intervals, intersection
from braid.language.value_sets import (
    EXACT_MAX,
    FLOAT_LINE,
    INTEGER_LINE,
    STRING_LINE,
    ValueSet,
    floats_between,
    integers_of_floats,
)
from braid.language.values import Range, Value, float_to_ordinal
from braid.matching.columns import ABSENT, FALSE, LARGE, STRING, TRUE, Column, IntArray, Numbers, ordinals_of

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = ["EXACT_CELLS_MAX", "MERGED_CELLS", "MERGED_CELLS_OF_MANY", "Axis", "plain_numbers"]

# Up to this many stretches every one has a cell of its own: integers in [1, 256] need 516.
EXACT_CELLS_MAX = 640
# Otherwise so many cells per line. More: fewer second looks; each cell costs two bits per filter.
MERGED_CELLS = 128
# The same where there are so many filters that memory matters most.
MERGED_CELLS_OF_MANY = 96
# The cells of so many different integers and strings are remembered.
REMEMBERED_MAX = 4096
# The integers from 0 up to here have their cells in an array.
SMALL_INTEGERS = 1024

_FIRST_NUMBER = 3
_DISCRETE = {int, str, type(None)}
# One further in than 2^53 itself: `< 2^53 + 1` has the bound 2^53 for doubles and accepts that integer.
_SMALL_LOW, _SMALL_HIGH = float_to_ordinal(-float(EXACT_MAX)) + 1, float_to_ordinal(float(EXACT_MAX))
_LARGE_NEGATIVE: Intervals = ((INTEGER_LINE[0], -EXACT_MAX + 1),)
_LARGE_POSITIVE: Intervals = ((EXACT_MAX, INTEGER_LINE[1]),)


def plain_numbers(values: ValueSet) -> tuple[int, int] | None:
    """The interval of ordinals a set consists of, if it is nothing but one interval of numbers.

    Its bounds must be below 2^53 in size, so that for integers too the nearest double decides.
    """
    if values.null or values.strings or values.booleans or len(values.floats) != 1:
        return None
    low, high = values.floats[0]
    integers = values.integers[0] if len(values.integers) == 1 else (None, None)
    if low == FLOAT_LINE[0]:
        if integers[0] != INTEGER_LINE[0]:
            return None
    elif not _SMALL_LOW < low < _SMALL_HIGH:
        return None
    if high == FLOAT_LINE[1]:
        if integers[1] != INTEGER_LINE[1]:
            return None
    elif not _SMALL_LOW < high < _SMALL_HIGH:
        return None
    return (low, high) if len(values.integers) < 2 else None


class Axis:
    """The bounds on one attribute, and what follows from them for values and sets."""

    __slots__ = (
        "_cell_bounds",
        "_cell_of_rank",
        "_cell_of_small",
        "_cell_of_value",
        "_first_large",
        "_first_string",
        "_large",
        "_start_of_rank",
        "_strings",
        "cell_starts",
        "exact",
        "name",
        "numbers",
        "ranks",
    )

    def __init__(
        self,
        name: str,
        plain_bounds: npt.NDArray[np.int64],
        others: Iterable[ValueSet] = (),
        merged_cells: int = MERGED_CELLS,
    ) -> None:
        """
        Args:
            name: the attribute.
            plain_bounds: both ends of all plain intervals of numbers, as ordinals, in any order.
            others: the sets that are anything else.
            merged_cells: how many cells a line may have where not every stretch gets its own.
        """
        self.name = name
        numbers, strings, large = _bounds_of(others)
        numbers_array = np.concatenate([plain_bounds, np.array(sorted(numbers), np.int64)])
        unique = np.unique(numbers_array)
        inner = unique[(unique > FLOAT_LINE[0]) & (unique < FLOAT_LINE[1])]
        self._start_of_rank = np.concatenate([[FLOAT_LINE[0]] * (_FIRST_NUMBER + 1), inner, [FLOAT_LINE[1]]])
        self.numbers = self._start_of_rank[_FIRST_NUMBER + 1 : -1]
        self._strings = sorted(strings)
        self._large = sorted(large)
        self._first_string = _FIRST_NUMBER + len(self.numbers) + 1
        self._first_large = self._first_string + len(self._strings) + 1
        self.ranks = self._first_large + (len(self._large) + 1 if self._large else 0)
        self._cell_of_value: dict[Any, int] | None = {}
        self._cell_of_small: npt.NDArray[np.int16] | None = None
        self._make_cells(merged_cells)

    @property
    def cells(self) -> int:
        """How many cells there are."""
        return len(self.cell_starts) - 1

    def plain_ranks(
        self, low: npt.NDArray[np.int64], high: npt.NDArray[np.int64]
    ) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        """The rank intervals of plain intervals of numbers."""
        first = _FIRST_NUMBER + np.searchsorted(self.numbers, low, side="right")
        last = _FIRST_NUMBER + np.searchsorted(self.numbers, high, side="right")
        last[high == FLOAT_LINE[1]] = self._first_string
        return first, last

    def large_ranks(self) -> tuple[tuple[int, int], tuple[int, int]]:
        """The ranks of all large negative and of all large positive integers."""
        middle = self._first_large + bisect_right(self._large, 0)
        return (self._first_large, middle), (middle, self.ranks)

    def set_ranks(self, values: ValueSet) -> list[tuple[int, int]]:
        """The rank intervals of any set."""
        pieces: list[tuple[int, int]] = [(0, 1)] if values.null else []
        pieces += [(1 + low, 1 + high) for low, high in values.booleans]
        if values.floats:
            firsts, lasts = self.plain_ranks(*np.array(values.floats, np.int64).T)
            pieces += zip(firsts.tolist(), lasts.tolist(), strict=True)
        for low, high in values.strings:
            first = self._first_string + bisect_right(self._strings, low)
            last = (
                self._first_large if high is TOP else self._first_string + bisect_right(self._strings, high)
            )
            pieces.append((first, last))
        if self._large:
            for low, high in _large_parts(values.integers):
                first = self._first_large + bisect_right(self._large, low)
                last = self._first_large + bisect_right(self._large, high)
                pieces.append((first, self.ranks if high == INTEGER_LINE[1] else last))
        merged: list[tuple[int, int]] = []
        for first, last in pieces:
            if merged and merged[-1][1] == first:
                merged[-1] = (merged[-1][0], last)
            else:
                merged.append((first, last))
        return merged

    def cells_of(self, column: Column) -> npt.NDArray[np.integer[Any]]:
        """The cell of every value of a column. Ranges have none: theirs is left as absent."""
        if column.numbers is not None:
            found = np.zeros(len(column), np.int16)  # where there is no number the attribute is absent
            found[column.numbers.rows] = self._cells_of_numbers(column.numbers)
            return found
        if column.types <= _DISCRETE and self._cell_of_value is not None:
            return self._remembered_cells(column)
        cells = self._number_cells(column.ordinals)
        kinds = column.kinds
        if column.uniform:
            cells[kinds == ABSENT] = 0
            return cells
        cells[kinds <= TRUE] = kinds[kinds <= TRUE]  # absent, False and True are cells 0, 1 and 2
        for row in np.flatnonzero(kinds == STRING):
            cells[row] = self._cell_of_rank[self._string_rank(column.values[row])]
        if self._large:
            for row in np.flatnonzero(kinds == LARGE):
                cells[row] = self._cell_of_rank[self._large_rank(column.values[row])]
        cells[kinds > LARGE] = 0
        return cells

    def _cells_of_numbers(self, numbers: Numbers) -> npt.NDArray[np.integer[Any]]:
        doubles = numbers.doubles
        if not numbers.whole or not len(doubles) or doubles.min() < 0 or doubles.max() >= SMALL_INTEGERS:
            return self._number_cells(numbers.ordinals)
        if self._cell_of_small is None:
            small = ordinals_of(np.arange(SMALL_INTEGERS, dtype=np.float64))
            self._cell_of_small = self._number_cells(small).astype(np.int16)
        return self._cell_of_small[doubles.astype(np.intp)]

    def _remembered_cells(self, column: Column) -> npt.NDArray[np.integer[Any]]:
        """Integers and strings repeat, so their cells are remembered, which beats arithmetic."""
        known, values = self._cell_of_value, column.values
        if known is not None:
            try:
                return np.fromiter(map(known.__getitem__, values), np.int16, len(values))
            except KeyError:
                known = self._learnt(column)
        if known is None:
            return self.cells_of(column)
        return np.fromiter(map(known.__getitem__, values), np.int16, len(values))

    def _learnt(self, column: Column) -> dict[Any, int] | None:
        known = self._cell_of_value or {}
        new = [value for value in dict.fromkeys(column.values) if value not in known]
        if len(known) + len(new) > REMEMBERED_MAX:
            self._cell_of_value = None  # too many different values: from now on by arithmetic
            return None
        few = Column(column.name, [{column.name: value} for value in new])
        self._cell_of_value = None
        cells = self.cells_of(few).tolist()
        known.update(zip(new, cells, strict=True))
        self._cell_of_value = known
        return known

    def rank_of(self, value: Value | None) -> int:
        """The rank of one value that is no range."""
        kind = type(value)
        if kind is float:
            return self._number_rank(value)  # type: ignore[arg-type]
        if kind is str:
            return self._string_rank(value)  # type: ignore[arg-type]
        if value is None:
            return ABSENT
        if kind is bool:
            return TRUE if value else FALSE
        if self._large and abs(value) >= EXACT_MAX:  # type: ignore[arg-type]
            return self._large_rank(value)  # type: ignore[arg-type]
        return self._number_rank(float(value))  # type: ignore[arg-type]

    def cell_of(self, rank: int) -> int:
        """The cell of a rank."""
        return rank if self.exact else int(self._cell_of_rank[rank])

    def ranks_of(self, value: Value | None) -> tuple[int, int]:
        """The first and last rank of one value; they differ only for a range."""
        if isinstance(value, Range):
            low, high = floats_between(value)
            first, last = np.searchsorted(self.numbers, [low, high - 1], side="right")
            # Where the range holds no double at all, its integers share the stretch around it.
            return _FIRST_NUMBER + int(min(first, last)), _FIRST_NUMBER + int(max(first, last))
        rank = self.rank_of(value)
        return rank, rank

    def string_ranks_of(self, column: Column) -> npt.NDArray[np.int64]:
        """The rank of every string of a column; 0 for everything else."""
        ranks = np.zeros(len(column), np.int64)
        known: dict[str, int] = {}
        for row in np.flatnonzero(column.kinds == STRING).tolist():
            text = column.values[row]
            rank = known.get(text)
            if rank is None:
                rank = known[text] = self._string_rank(text)
            ranks[row] = rank
        return ranks

    def starts_of(self, ranks: IntArray) -> npt.NDArray[np.int64]:
        """The ordinals at which stretches of the number line begin; an end of it for other ranks."""
        return self._start_of_rank.take(ranks, mode="clip")

    @property
    def has_large(self) -> bool:
        """Whether integers beyond 2^53 have stretches of their own."""
        return bool(self._large)

    @property
    def bytes(self) -> int:
        """Memory of the arrays, and of the strings' list without the strings."""
        return (
            self.numbers.nbytes
            + self.cell_starts.nbytes
            + (0 if self._cell_of_small is None else self._cell_of_small.nbytes)
            + (0 if self.exact else self._cell_of_rank.nbytes + self._cell_bounds.nbytes)
            + 8 * (len(self._strings) + len(self._large))
        )

    def _make_cells(self, merged_cells: int) -> None:
        starts: npt.NDArray[np.int64]
        self.exact = self.ranks <= EXACT_CELLS_MAX
        if self.exact:
            starts = np.arange(self.ranks + 1)
            self._cell_bounds = self.numbers
        else:
            lines = [_FIRST_NUMBER, self._first_string, self._first_large, self.ranks]
            pieces = [np.arange(_FIRST_NUMBER)]
            for first, last in itertools.pairwise(lines):
                count = min(last - first, merged_cells)
                pieces.append(first + np.arange(count) * (last - first) // max(count, 1))
            starts = np.concatenate([*pieces, [self.ranks]])
            number_starts = pieces[1][1:]
            self._cell_bounds = self.numbers[number_starts - _FIRST_NUMBER - 1]
        self.cell_starts = starts.astype(np.int32)
        self._cell_of_rank = np.repeat(np.arange(len(starts) - 1, dtype=np.int32), np.diff(starts))

    def _number_cells(self, ordinals: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        return _FIRST_NUMBER + np.searchsorted(self._cell_bounds, ordinals, side="right")

    def _number_rank(self, value: float) -> int:
        return _FIRST_NUMBER + bisect_right(self.numbers.data, float_to_ordinal(value))

    def _string_rank(self, value: str) -> int:
        return self._first_string + bisect_right(self._strings, value)

    def _large_rank(self, value: int) -> int:
        return self._first_large + bisect_right(self._large, value)


def _bounds_of(sets: Iterable[ValueSet]) -> tuple[set[int], set[str], set[int]]:
    numbers: set[int] = set()
    strings: set[str] = set()
    large: set[int] = set()
    for values in sets:
        numbers.update(bound for interval in values.floats for bound in interval)
        for low, high in values.strings:
            strings.add(low)
            if high is not TOP:
                strings.add(high)
        for low, high in values.integers:
            large.update(bound for bound in (low, high) if abs(bound) >= EXACT_MAX and _inside(bound))
        if _large_parts(values.integers) != _large_parts(integers_of_floats(values.floats)):
            large.add(0)  # large integers and their doubles part, so the integers need their own line
    strings.discard(STRING_LINE[0])
    if large:
        large.add(0)  # large negative integers are one stretch at least, large positive ones another
    return numbers, strings, large


def _inside(bound: int) -> bool:
    return INTEGER_LINE[0] < bound < INTEGER_LINE[1]


def _large_parts(integers: Intervals) -> list[tuple[int, int]]:
    """The large ones among integers; a bound among the small ones counts as 0."""
    negative = [(low, min(high, 0)) for low, high in intersection(integers, _LARGE_NEGATIVE)]
    if negative and negative[-1][1] == _LARGE_NEGATIVE[0][1]:
        negative[-1] = (negative[-1][0], 0)
    positive = [(low, high) for low, high in intersection(integers, _LARGE_POSITIVE)]
    if positive and positive[0][0] == EXACT_MAX:
        positive[0] = (0, positive[0][1])
    return negative + positive
