"""Which destinations can be told at first sight?

A filter that bounds a single attribute accepts whole cells of its axis. So for each cell there is a
set of destinations that any value in it reaches for certain, whatever else the publication has. Where
only destinations are asked for, a look at these sets decides most of those that are easily reached,
and a publication that reaches all of them is done before any block is looked at.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    from braid.matching.axis import Axis
    from braid.matching.columns import IntArray, WordArray

__all__ = ["FirstSight"]

# At most so many words per filter that the sets are made of: they are to save time, not to cost memory.
WORDS_PER_ROW_MAX = 4


class FirstSight:
    """The filters that bound one attribute and nothing else."""

    __slots__ = ("_ends", "_groups", "_starts", "_words", "axis", "rows")

    def __init__(
        self, axis: Axis, rows: IntArray, groups: IntArray, starts: IntArray, ends: IntArray
    ) -> None:
        """
        Args:
            axis: the attribute's line.
            rows: the filters' rows in the segment, ascending.
            groups: their destinations.
            starts: the first cell that each accepts as a whole.
            ends: the cell behind the last one.
        """
        self.axis = axis
        self.rows = rows.astype(np.int32)
        self._groups = groups.astype(np.int32)
        self._starts = starts.astype(np.int16)
        self._ends = ends.astype(np.int16)
        columns = (int(groups.max()) // 64 + 1) * 64
        # How many filters of a destination accept a cell is one more than for the cell before it where
        # a filter starts, and one less where one ends.
        changes = np.zeros(columns * (axis.cells + 1), np.int32)
        np.add.at(changes, groups * (axis.cells + 1) + starts, 1)
        np.subtract.at(changes, groups * (axis.cells + 1) + ends, 1)
        accepted = np.cumsum(changes.reshape(columns, -1)[:, :-1], axis=1) > 0
        octets = np.packbits(accepted, axis=0, bitorder="little")
        self._words = np.ascontiguousarray(octets.T).view(np.uint64)

    @classmethod
    def made(
        cls, axis: Axis, rows: IntArray, groups: IntArray, bounds: npt.NDArray[np.int64]
    ) -> FirstSight | None:
        """From the bounds of plain intervals of numbers, as ordinals; None where it would not pay."""
        lows, highs = axis.plain_ranks(bounds[:, 0], bounds[:, 1])
        starts = np.searchsorted(axis.cell_starts, lows, side="left")
        ends = np.searchsorted(axis.cell_starts, highs, side="right") - 1
        useful = (starts < ends) & (groups >= 0)
        rows, groups, starts, ends = rows[useful], groups[useful], starts[useful], ends[useful]
        if not len(rows) or axis.cells * (int(groups.max()) // 64 + 1) > WORDS_PER_ROW_MAX * len(rows):
            return None
        return cls(axis, rows, groups, starts, ends)

    def reached(self, cells: IntArray) -> WordArray:
        """For each cell the destinations that a value in it reaches for certain, as bits."""
        return self._words[cells]

    def reached_from(self, cell: int) -> int:
        """The same for one cell, as a whole number."""
        if self._words.shape[1] == 1:
            only: int = self._words.data[cell, 0]
            return only
        return int.from_bytes(self._words[cell].tobytes(), "little")

    def remove(self, row: int) -> None:
        """The filter of this row, which is one of `rows`, no longer reaches its destination."""
        place = int(np.searchsorted(self.rows, row))
        group = int(self._groups[place])
        self._groups[place] = -1
        self._tell_anew(group)

    def regroup(self, rows: IntArray, groups: IntArray) -> None:
        """The filters of these rows, which are some of `rows`, have other destinations."""
        places = np.searchsorted(self.rows, rows)
        alive = self._groups[places] >= 0
        places, groups = places[alive], groups[alive]
        former = np.unique(self._groups[places])
        # One that came later than this was made has no column here; blocks know its filters all the same.
        self._groups[places] = np.where(groups < 64 * self._words.shape[1], groups, -1)
        for group in np.union1d(former, groups).tolist():
            if group < 64 * self._words.shape[1]:
                self._tell_anew(group)

    def _tell_anew(self, group: int) -> None:
        """Say again which cells reach a destination for certain."""
        members = self._groups == group
        changes = np.zeros(self.axis.cells + 1, np.int32)
        np.add.at(changes, self._starts[members], 1)
        np.subtract.at(changes, self._ends[members], 1)
        accepted = np.cumsum(changes[:-1]) > 0
        bit = np.uint64(1) << np.uint64(group % 64)
        self._words[accepted, group // 64] |= bit
        self._words[~accepted, group // 64] &= ~bit

    @property
    def bytes(self) -> int:
        """Memory of the arrays."""
        arrays = (self.rows, self._groups, self._starts, self._ends, self._words)
        return sum(array.nbytes for array in arrays)
