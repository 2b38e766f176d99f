"""What do a batch's values come to in one segment?

The cell on each axis for the blocks, the code of a wanted value for the tables: found once per batch
and attribute, and shared by everything in the segment.
"""

from __future__ import annotations

from itertools import repeat
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import numpy.typing as npt

from braid.matching.columns import ABSENT, Batch, BoolArray, IntArray, WordArray, point_key

if TYPE_CHECKING:
    from collections.abc import Mapping

    from braid.matching.axis import Axis

__all__ = ["CHUNK_WORDS", "Interner", "Lookup", "SecondLook", "SingleLook"]

# So many words of intermediate results: 256 KiB.
CHUNK_WORDS = 32_768

_PLAIN_KEYS = ({str}, {int}, {str, type(None)}, {int, type(None)})


class SecondLook(Protocol):
    """Decides pairs of a publication and a row by the filter itself.

    `boxes` tells for which pairs the row's box is in doubt as well as its residual; None: for all.
    """

    def __call__(self, publications: IntArray, rows: IntArray, boxes: BoolArray | None) -> BoolArray:
        """For each pair, whether the publication satisfies the filter."""
        ...


class SingleLook(Protocol):
    """The same for one publication and one row."""

    def __call__(self, row: int, box: bool) -> bool:
        """Whether the publication satisfies the filter; `box` tells whether the row's box is in doubt."""
        ...


class Interner:
    """Small numbers for the values that filters of a segment want of one attribute."""

    __slots__ = ("_codes",)

    def __init__(self) -> None:
        self._codes: dict[Any, int] = {}

    def code(self, key: Any) -> int:
        """The number of a key (see `point_key`), a new one if need be."""
        return self._codes.setdefault(key, len(self._codes))

    def code_of(self, value: Any) -> int:
        """The number of a value, -1 if no filter asks for it."""
        return self._codes.get(point_key(value), -1)

    def codes_of(self, values: list[Any]) -> npt.NDArray[np.int64]:
        """The number of each value, -1 where no filter asks for it."""
        keys = values if set(map(type, values)) in _PLAIN_KEYS else map(point_key, values)
        return np.fromiter(map(self._codes.get, keys, repeat(-1)), np.int64, len(values))

    def __len__(self) -> int:
        return len(self._codes)


class Lookup:
    """A batch on its way through one segment: what its values come to, found once per attribute."""

    __slots__ = ("_cells", "_codes", "_interners", "_present", "_scratch", "_string_ranks", "batch")

    def __init__(self, batch: Batch, interners: Mapping[str, Interner]) -> None:
        self.batch = batch
        self._interners = interners
        self._cells: dict[str, npt.NDArray[np.integer[Any]]] = {}
        self._codes: dict[str, npt.NDArray[np.int64]] = {}
        self._present: dict[str, BoolArray] = {}
        self._string_ranks: dict[str, npt.NDArray[np.int64]] = {}
        self._scratch: dict[int, WordArray] = {}

    def codes(self, name: str) -> npt.NDArray[np.int64]:
        """The code of each publication's value, -1 where no filter of the segment wants it."""
        codes = self._codes.get(name)
        if codes is None:
            codes = self._codes[name] = self._interners[name].codes_of(self.batch.column(name).values)
        return codes

    def scratch(self, number: int, shape: tuple[int, int]) -> WordArray:
        """Memory for intermediate results, the same for every block: fresh memory costs page faults."""
        size = shape[0] * shape[1]
        memory = self._scratch.get(number)
        if memory is None or len(memory) < size:
            memory = self._scratch[number] = np.empty(max(size, CHUNK_WORDS), np.uint64)
        return memory[:size].reshape(shape)

    def cells(self, axis: Axis) -> npt.NDArray[np.integer[Any]]:
        """The cell of each publication on an axis."""
        cells = self._cells.get(axis.name)
        if cells is None:
            cells = self._cells[axis.name] = axis.cells_of(self.batch.column(axis.name))
        return cells

    def string_ranks(self, axis: Axis) -> npt.NDArray[np.int64]:
        """The rank of each publication's string on an axis; of what is no string, any."""
        ranks = self._string_ranks.get(axis.name)
        if ranks is None:
            ranks = self._string_ranks[axis.name] = axis.string_ranks_of(self.batch.column(axis.name))
        return ranks

    def present(self, axis: Axis) -> BoolArray:
        """Which publications have the attribute of an axis."""
        present = self._present.get(axis.name)
        if present is None:
            present = self._present[axis.name] = self.cells(axis) != ABSENT
        return present
