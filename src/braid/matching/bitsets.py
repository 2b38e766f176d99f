"""The rows of a segment's blocks that accept one publication, as whole numbers.

A batch is matched with arrays, block by block, and every step of that costs about as much for one
publication as for a hundred. For a publication that comes alone the bitmaps of all blocks are therefore
laid end to end: the rows that accept a cell of an axis are the bits of one Python integer, and one AND per
attribute decides all rows of the segment. The integers are made of the blocks' own bounds when a
publication first falls into their cell, and are kept up to `KEPT_BYTES_MAX`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from braid.matching.columns import ABSENT

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from braid.matching.axis import Axis
    from braid.matching.block import Block
    from braid.matching.columns import BoolArray, IntArray
    from braid.matching.lane import Lane

__all__ = ["BitSets", "Place", "bits_of", "fits_bit_sets", "listed"]

# Where a publication's value lies: the axis, its rank there, and its cell. A plain tuple, made in no time.
Place: TypeAlias = "tuple[Axis, int, int]"

# Of so few bits the places are quickest found one by one.
FEW_BITS = 8
# So much memory for integers in one segment: enough for all cells of ten attributes and 10,000 filters.
KEPT_BYTES_MAX = 2**22
# Where there is so much room for all ranks, there is an integer for each of them, and no doubt.
FINE_BYTES_MAX = 2**21
# Where the rows that accept an attribute's absence would take more than this over all attributes, arrays do.
ABSENCE_BYTES_MAX = 2**21
# The exact bounds of all rows side by side, for second looks, take at most so much; else filters are asked.
BOUNDS_BYTES_MAX = 2**23


class _Map(NamedTuple):
    """Who accepts a cell: the rows that can, and those that surely do."""

    can: int
    surely: int


def fits_bit_sets(rows: int, axes: int) -> bool:
    """Whether single publications are better matched by bit sets than by arrays."""
    return axes * rows <= 8 * ABSENCE_BYTES_MAX


def bits_of(flags: BoolArray) -> int:
    """Booleans as the bits of a number, the first in the lowest bit."""
    return int.from_bytes(np.packbits(flags, bitorder="little").tobytes(), "little")


def listed(bits: int) -> list[int]:
    """The places of the bits that are set, ascending."""
    if bits.bit_count() > FEW_BITS:
        found: list[int] = positions_of(bits).tolist()
        return found
    places = []
    while bits:
        lowest = bits & -bits
        places.append(lowest.bit_length() - 1)
        bits ^= lowest
    return places


def positions_of(bits: int) -> npt.NDArray[np.intp]:
    """The same as an array."""
    octets = np.frombuffer(bits.to_bytes((bits.bit_length() + 7) // 8, "little"), np.uint8)
    return np.unpackbits(octets, bitorder="little").view(np.bool_).nonzero()[0]


class BitSets:
    """What the blocks of one segment know, ready for single publications.

    Each block begins at a whole word, so a bit's number is not the number of its row; see `rows`.
    """

    __slots__ = (
        "_access",
        "_axes",
        "_bounds",
        "_fine",
        "_kept",
        "_lanes",
        "_maps",
        "_masks",
        "_ones",
        "_residual",
        "_row_of_bit",
        "_several",
        "_shapes",
        "_slots",
        "_starts",
        "live",
    )

    def __init__(
        self, blocks: Sequence[tuple[Block, int]], axes: Mapping[str, Axis], slots: npt.NDArray[np.int32]
    ) -> None:
        """
        Args:
            blocks: the blocks, each with its first row.
            axes: the line of every attribute that some block looks at.
            slots: the filter of each row of the segment.
        """
        self._axes = axes
        self._slots = slots
        self._ones = [b"\xff" * (8 * block.words) for block, _ in blocks]
        sizes = [8 * len(ones) for ones in self._ones]
        self._starts: list[int] = np.cumsum([0, *sizes]).tolist()
        self._row_of_bit = np.zeros(self._starts[-1], np.int32)
        self._lanes: dict[str, list[tuple[int, Lane]]] = {name: [] for name in axes}
        for number, (block, first_row) in enumerate(blocks):
            rows = np.arange(first_row, first_row + sizes[number])
            self._row_of_bit[self._starts[number] : self._starts[number + 1]] = rows.clip(max=len(slots) - 1)
            for lane in block.lanes:
                self._lanes[lane.axis.name].append((number, lane))
        self.live = _joined(block.live.tobytes() for block, _ in blocks)
        """The rows whose filters have not been removed."""
        self._residual = _joined(
            bytes(8 * block.words) if block.residual is None else block.residual.tobytes()
            for block, _ in blocks
        )
        self._access = self._by_access([block for block, _ in blocks])
        ranks = sum(axis.ranks for axis in axes.values() if not axis.exact)
        self._fine = ranks * self._starts[-1] <= 8 * FINE_BYTES_MAX
        self._maps: dict[str, dict[int, _Map]] = {name: {} for name in axes}
        """By cell; by rank where there is room for all of them."""
        self._shapes: dict[tuple[str, ...], int] = {}
        """For the attributes that a publication has: the rows that do without all others."""
        self._masks: dict[int, int] = {}
        """The rows of a destination, which is given as a bit."""
        self._kept = 0
        self._bounds: _Bounds | None = None
        self._several = 0

    def remove(self, block: int, row: int) -> None:
        """The filter at this bit of a block no longer matches anything."""
        self.live &= ~(1 << self._starts[block] + row)

    def matching(self, places: Sequence[Place], codes: Mapping[str, int]) -> tuple[int, int]:
        """The rows that match for certain, and those that need a second look.

        Args:
            places: of all values for which there is an axis.
            codes: of the values of attributes that blocks insist on.
        """
        can = self.live & self._doing_without(tuple([axis.name for axis, _, _ in places]))
        for name, (blocked, opened) in self._access.items():
            can &= ~(blocked ^ opened.get(codes.get(name, -1), 0))
        certain = can & ~self._residual
        for axis, rank, cell in places:
            if self._fine:
                cell = rank
            known = self._maps[axis.name].get(cell) or self._made(axis, cell)
            can &= known.can
            certain &= known.surely
        return certain, can ^ certain

    def within_bounds(self, doubtful: int, places: Iterable[Place]) -> tuple[IntArray, IntArray]:
        """Of the rows that need a second look, those that match and those that the filter has to decide.

        Both are positions of bits.
        """
        positions = positions_of(doubtful)
        bounds = self._bounds
        if bounds is None:
            bounds = self._bounds = self._made_bounds()
        if bounds.lows is None or bounds.highs is None:
            return positions[:0], positions
        ranks = np.zeros(len(bounds.column_of), bounds.lows.dtype)
        for axis, rank, _ in places:
            column = bounds.column_of.get(axis.name)
            if column is not None:
                ranks[column] = rank
        inside = (bounds.lows[positions] <= ranks) & (ranks < bounds.highs[positions])
        positions = positions[inside.all(axis=1)]
        undecided = self._residual | self._several
        if not undecided:
            return positions, positions[:0]
        by_filter = np.fromiter(
            (undecided >> each & 1 for each in positions.tolist()), np.bool_, len(positions)
        )
        return positions[~by_filter], positions[by_filter]

    def rows(self, positions: IntArray) -> IntArray:
        """The rows of the segment that bits stand for."""
        return self._row_of_bit[positions]

    def slots(self, bits: int) -> list[int]:
        """The filters of rows."""
        if bits.bit_count() > FEW_BITS:
            found: list[int] = self._slots[self._row_of_bit[positions_of(bits)]].tolist()
            return found
        rows, slots = self._row_of_bit.data, self._slots.data
        return [slots[rows[place]] for place in listed(bits)]

    def mask(self, group: int, group_of_slot: npt.NDArray[np.int32]) -> int:
        """The rows of a destination, whose number is given as a bit."""
        mask = self._masks.get(group)
        if mask is None:
            owners = group_of_slot[self._slots[self._row_of_bit]]
            mask = bits_of(owners == group.bit_length() - 1)
            self._keep(1)
            self._masks[group] = mask
        return mask

    def forget_masks(self) -> None:
        """Filters have other destinations."""
        self._masks.clear()

    @property
    def bytes(self) -> int:
        """Memory of the integers and arrays."""
        bounds = 0 if self._bounds is None or self._bounds.lows is None else 2 * self._bounds.lows.nbytes
        return self._kept + self._row_of_bit.nbytes + bounds + 3 * (self._starts[-1] // 8)

    def _by_access(self, blocks: Sequence[Block]) -> dict[str, tuple[int, dict[int, int]]]:
        """By attribute: the rows of blocks that insist on some value of it, and of each value."""
        access: dict[str, tuple[int, dict[int, int]]] = {}
        for number, block in enumerate(blocks):
            if block.access is not None:
                bits = int.from_bytes(self._ones[number], "little") << self._starts[number]
                blocked, opened = access.get(block.access.name, (0, {}))
                opened[block.access.code] = opened.get(block.access.code, 0) | bits
                access[block.access.name] = (blocked | bits, opened)
        return access

    def _doing_without(self, names: tuple[str, ...]) -> int:
        """The rows that accept the absence of all attributes but these."""
        rows = self._shapes.get(names)
        if rows is None:
            rows = -1
            for name in self._axes.keys() - set(names):
                rows &= (self._maps[name].get(ABSENT) or self._made(self._axes[name], ABSENT)).can
            self._keep(1)
            self._shapes[names] = rows
        return rows

    def _made(self, axis: Axis, cell: int) -> _Map:
        can, surely = list(self._ones), list(self._ones)
        exact = self._fine or axis.exact
        for number, lane in self._lanes[axis.name]:
            octets = lane.bitmap(cell) if axis.exact or not exact else lane.bitmap_of_rank(cell)
            half = 8 * lane.words
            can[number] = octets[:half]
            surely[number] = octets[-half:]
        accepting = _joined(can)
        made = _Map(accepting, accepting if exact else _joined(surely))
        self._keep(1 if exact else 2)
        self._maps[axis.name][cell] = made
        return made

    def _keep(self, numbers: int) -> None:
        """Make room for so many more numbers."""
        self._kept += numbers * self._starts[-1] // 8
        if self._kept > KEPT_BYTES_MAX:
            self._kept = 0
            self._shapes.clear()
            self._masks.clear()
            for some in self._maps.values():
                some.clear()

    def _made_bounds(self) -> _Bounds:
        """The exact bounds of each row on the axes whose cells some bound cuts through."""
        names = [name for name, axis in self._axes.items() if not axis.exact]
        column_of = {name: column for column, name in enumerate(names)}
        ranks_max = max((axis.ranks for axis in self._axes.values()), default=0)
        kind: Any = np.uint16 if ranks_max < 2**16 else np.int32
        if 2 * len(names) * self._starts[-1] * np.dtype(kind).itemsize > BOUNDS_BYTES_MAX:
            return _Bounds({}, None, None)
        lows = np.zeros((self._starts[-1], len(names)), kind)
        highs = np.full(lows.shape, np.iinfo(kind).max, kind)
        several = np.zeros(len(lows), np.bool_)
        for name, column in column_of.items():
            for number, lane in self._lanes[name]:
                rows, low, high, also = lane.single_intervals()
                lows[self._starts[number] + rows, column] = low
                highs[self._starts[number] + rows, column] = high
                several[self._starts[number] + also] = True
        self._several = bits_of(several)
        return _Bounds(column_of, lows, highs)


class _Bounds(NamedTuple):
    """For each bit and some axes the first rank that it accepts and the one behind the last."""

    column_of: Mapping[str, int]
    lows: IntArray | None
    highs: IntArray | None


def _joined(pieces: Iterable[bytes]) -> int:
    return int.from_bytes(b"".join(pieces), "little")
