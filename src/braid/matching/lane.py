"""Which filters of a block accept a value of one attribute?

A lane answers for one attribute with packed bitmaps, one bit per filter: for each cell of the axis
the filters that *can* accept a value there and, where bounds cut through cells, those that *surely*
do, side by side in one row. A bitmap is made when a publication first falls into its cell.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    from collections.abc import Callable

    from braid.matching.axis import Axis
    from braid.matching.columns import BoolArray, IntArray, WordArray

__all__ = ["Lane"]

# Up to so many pairs it is quicker to look at all of them than to choose those with bounds first.
FEW_PAIRS = 2048
# Bitmaps are made for so many cells at a time, which bounds the memory of the intermediate matrix.
CELLS_AT_ONCE = 32


class Lane:
    """The bounds that the filters of one block put on one attribute."""

    __slots__ = (
        "_end_of_entry",
        "_entry_of_row",
        "_highs",
        "_lows",
        "_many",
        "_row_of_cell",
        "_rows",
        "_size",
        "_used",
        "axis",
        "maps",
        "words",
    )

    def __init__(self, axis: Axis, size: int, rows: IntArray, lows: IntArray, highs: IntArray) -> None:
        """
        Args:
            axis: the attribute's line.
            size: how many filters the block has.
            rows: the filter (by its place in the block) of each rank interval, ascending. A filter
                with several intervals is named several times, one without any accepts everything.
            lows: the first rank of each interval.
            highs: the rank behind each interval.
        """
        small: type[np.integer[Any]] = np.uint16 if axis.ranks < 2**16 else np.int32
        self.axis = axis
        self._size = size
        self._rows = rows.astype(np.uint16)
        self._lows: IntArray = lows.astype(small)
        self._highs: IntArray = highs.astype(small)
        self._many = len(rows) > 1 and bool((np.diff(rows) == 0).any())
        self._row_of_cell = np.full(axis.cells, -1, np.int16)
        self._used = 0
        self._entry_of_row: IntArray | None = None
        self._end_of_entry: IntArray | None = None
        self.words = (size + 63) // 64
        self.maps: WordArray = np.empty((0, self.words if axis.exact else 2 * self.words), np.uint64)
        """One row per cell that was asked for: the words of *can*, then, unless exact, of *surely*."""

    def bitmaps(self, cells: IntArray) -> npt.NDArray[np.int16]:
        """The rows of `maps` for these cells."""
        rows = self._row_of_cell[cells]
        if rows.size and rows.min() < 0:
            self._make(np.unique(cells[rows < 0]))
            rows = self._row_of_cell[cells]
        return rows

    def bitmap(self, cell: int) -> bytes:
        """The row of `maps` for one cell."""
        row = self._row_of_cell[cell]
        if row < 0:
            self._make(np.array([cell]))
            row = self._row_of_cell[cell]
        octets: bytes = self.maps[row].tobytes()
        return octets

    def bitmap_of_rank(self, rank: int) -> bytes:
        """The filters that accept one rank, as packed bits."""
        accepting = self.accepting(rank, rank)
        return np.packbits(accepting, bitorder="little").tobytes().ljust(8 * self.words, b"\0")

    def single_intervals(self) -> tuple[IntArray, IntArray, IntArray, IntArray]:
        """The filters with one interval each, its ends, and the filters that have more than one."""
        rows = self._rows.astype(np.intp)
        if not self._many:
            return rows, self._lows, self._highs, rows[:0]
        alone = np.bincount(rows)[rows] == 1
        return rows[alone], self._lows[alone], self._highs[alone], np.unique(rows[~alone])

    def sure(self, cells: IntArray, rows: IntArray) -> BoolArray:
        """For pairs of a cell and a filter that can accept it: whether it accepts all of the cell."""
        words = self.maps[self._row_of_cell[cells], self.words + rows // 64]
        return np.asarray((words >> (rows % 64).astype(np.uint64)) & np.uint64(1) != 0)

    def accepting(self, first: int, last: int) -> BoolArray:
        """For each filter, whether it accepts some rank from `first` to `last`, both included."""
        return self._spread((self._lows <= last) & (self._highs > first))

    def accepts(self, rows: IntArray, ordinals: npt.NDArray[np.int64]) -> BoolArray:
        """For pairs of a filter and a number: whether the filter accepts the number, exactly."""
        return self._accepted(rows, ordinals, self.axis.starts_of)

    def accepts_ranks(self, rows: IntArray, ranks: npt.NDArray[np.int64]) -> BoolArray:
        """The same for the ranks of values that are no numbers."""
        return self._accepted(rows, ranks, _as_they_are)

    def _accepted(
        self, rows: IntArray, points: npt.NDArray[np.int64], starts_of: Callable[[IntArray], IntArray]
    ) -> BoolArray:
        """Whether filters accept points; `starts_of` says at which points ranks begin."""
        if self._entry_of_row is None:
            small = np.int16 if len(self._rows) < 2**15 else np.int32
            self._entry_of_row = np.full(self._size, -1, small)
            self._entry_of_row[self._rows[::-1]] = np.arange(len(self._rows) - 1, -1, -1)
        entry = self._entry_of_row[rows]
        result = np.asarray(entry < 0)
        if not self._many and len(rows) <= FEW_PAIRS:
            result |= (starts_of(self._lows[entry]) <= points) & (points < starts_of(self._highs[entry]))
            return result
        pending = np.flatnonzero(~result)
        points = points[pending]
        at = self._interval_of(entry[pending], points, starts_of) if self._many else entry[pending]
        result[pending] = (starts_of(self._lows[at]) <= points) & (points < starts_of(self._highs[at]))
        return result

    def _interval_of(
        self, first: IntArray, points: npt.NDArray[np.int64], starts_of: Callable[[IntArray], IntArray]
    ) -> IntArray:
        """For the first intervals of filters and a point each: the filter's only interval that can hold it.

        A filter's intervals follow each other on the axis, so that is the last one that does not begin behind
        the point, or the first one if all do. All filters are searched at once, by halves.
        """
        if self._end_of_entry is None:
            ends = np.flatnonzero(np.append(np.diff(self._rows.astype(np.int32)) != 0, True)) + 1
            self._end_of_entry = np.repeat(ends, np.diff(ends, prepend=0))
        begun: IntArray = first.astype(np.int64)
        behind = self._end_of_entry[first]
        while (behind - begun > 1).any():
            middle = (begun + behind) // 2
            # Where one interval is left, it stays.
            before = (starts_of(self._lows[middle]) <= points) | (behind - begun == 1)
            begun, behind = np.where(before, middle, begun), np.where(before, behind, middle)
        return begun

    @property
    def bytes(self) -> int:
        """Memory of the arrays."""
        arrays = [self._rows, self._lows, self._highs, self._row_of_cell, self.maps]
        return sum(array.nbytes for array in arrays) + (
            0 if self._entry_of_row is None else self._entry_of_row.nbytes
        )

    def _make(self, cells: IntArray) -> None:
        needed = self._used + len(cells)
        if needed > len(self.maps):
            # An eighth more than needed: most cells are asked for early on, by the first batches.
            capacity = min(max(needed, len(self.maps) * 9 // 8), self.axis.cells)
            grown = np.empty((capacity, self.maps.shape[1]), np.uint64)
            grown[: len(self.maps)] = self.maps
            self.maps = grown
        for start in range(0, len(cells), CELLS_AT_ONCE):
            some = cells[start : start + CELLS_AT_ONCE]
            rows = slice(self._used, self._used + len(some))
            firsts = self.axis.cell_starts[some, np.newaxis].astype(self._lows.dtype)
            ends = self.axis.cell_starts[some + 1, np.newaxis].astype(self._lows.dtype)
            self.maps[rows, : self.words] = self._packed((self._lows < ends) & (self._highs > firsts))
            if not self.axis.exact:
                surely = self._packed((self._lows <= firsts) & (self._highs >= ends))
                self.maps[rows, self.words :] = surely
            self._row_of_cell[some] = np.arange(rows.start, rows.stop)
            self._used = rows.stop

    def _packed(self, inside: BoolArray) -> WordArray:
        """Bits for all filters of the block from booleans for the intervals, one line per cell."""
        bits = np.zeros((len(inside), self.words * 64), np.bool_)
        bits[:, : self._size] = self._spread(inside)
        return np.packbits(bits, axis=1, bitorder="little").view(np.uint64)

    def _spread(self, inside: BoolArray) -> BoolArray:
        spread = np.ones((*inside.shape[:-1], self._size), np.bool_)
        if self._many:
            starts = np.flatnonzero(np.concatenate([[True], np.diff(self._rows) != 0]))
            spread[..., self._rows[starts]] = np.logical_or.reduceat(inside, starts, axis=-1)
        elif len(self._rows):
            spread[..., self._rows] = inside
        return spread


def _as_they_are(ranks: IntArray) -> IntArray:
    return ranks
