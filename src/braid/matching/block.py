"""Which filters of a block does each publication satisfy?

A block holds up to some thousands of filters' boxes with their bits side by side, so that one AND of
two machine words decides 64 of them for one attribute. The publications of a batch that have every
attribute the block insists on are looked up in each lane, and what survives all lanes matches.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt

from braid.matching.answers import Answer, GroupLayout, set_bits
from braid.matching.columns import NUMBER, STRING, BoolArray, IntArray, WordArray
from braid.matching.lookup import CHUNK_WORDS

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from braid.matching.lane import Lane
    from braid.matching.lookup import Lookup, SecondLook

__all__ = ["BLOCK_SIZE_MAX", "Access", "Block", "packed"]

# Its bitmaps (512 bytes each) and a chunk of publications fit into a core's cache together.
BLOCK_SIZE_MAX = 4096


class Access(NamedTuple):
    """The block's filters all want one value of one attribute: only such publications concern it."""

    name: str
    code: int


class Block:
    """Boxes of filters that are decided together."""

    __slots__ = ("access", "groups", "lanes", "live", "repeated", "required", "residual", "slots")

    def __init__(
        self,
        slots: npt.NDArray[np.int32],
        lanes: Sequence[Lane],
        *,
        required: Iterable[str] = (),
        access: Access | None = None,
        residual: BoolArray | None = None,
        repeated: BoolArray | None = None,
        groups: npt.NDArray[np.int32] | None = None,
    ) -> None:
        """
        Args:
            slots: the filter of each bit.
            lanes: one per attribute that some of the filters bound.
            required: attributes without which no filter of the block can match.
            access: a value without which no filter of the block can match.
            residual: which filters have conditions beyond their box.
            repeated: which filters have more than one box.
            groups: the destination of each bit, ascending.
        """
        self.slots = slots
        self.lanes = list(lanes)
        self.required = frozenset(required)
        self.access = access
        self.live = packed(np.ones(len(slots), np.bool_))
        self.residual = None if residual is None or not residual.any() else packed(residual)
        self.repeated = None if repeated is None or not repeated.any() else packed(repeated)
        self.groups = _layout(groups)

    def match(self, lookup: Lookup, answer: Answer, second_look: SecondLook) -> None:
        """Find the matches of a batch (publications with ranges left out).

        `second_look` decides candidates by the filter itself.
        """
        publications = self._concerned(lookup)
        undecided = answer.undecided(publications)
        if undecided is not None:
            publications = publications[undecided]
        if not len(publications):
            return
        step = max(1, CHUNK_WORDS // len(self.live))
        for start in range(0, len(publications), step):
            self._match_chunk(lookup, publications[start : start + step], answer, second_look)

    def rows_accepting(self, ranks: Mapping[str, tuple[int, int]]) -> IntArray:
        """The rows whose boxes accept a publication given by the ranks of its values (or ranges)."""
        accepting = np.unpackbits(self.live.view(np.uint8), bitorder="little")[: len(self.slots)] > 0
        for lane in self.lanes:
            accepting &= lane.accepting(*ranks[lane.axis.name])
        return np.flatnonzero(accepting)

    def remove(self, row: int) -> None:
        """The filter at this bit no longer matches anything."""
        self.live[row // 64] &= ~(np.uint64(1) << np.uint64(row % 64))

    @property
    def words(self) -> int:
        """How many machine words the bits take."""
        return len(self.live)

    @property
    def bytes(self) -> int:
        """Memory of the arrays."""
        masks = (self.residual, self.repeated)
        return (
            self.slots.nbytes
            + self.live.nbytes
            + sum(mask.nbytes for mask in masks if mask is not None)
            + sum(lane.bytes for lane in self.lanes)
            + (0 if self.groups is None else self.groups.bytes)
        )

    def _concerned(self, lookup: Lookup) -> IntArray:
        mask: Any = None
        if self.access is not None:
            mask = lookup.codes(self.access.name) == self.access.code
        for lane in self.lanes:
            if lane.axis.name in self.required:
                present = lookup.present(lane.axis)
                mask = present if mask is None else mask & present
        return np.arange(len(lookup.batch)) if mask is None else np.flatnonzero(mask)

    def _match_chunk(
        self,
        lookup: Lookup,
        publications: IntArray,
        answer: Answer,
        second_look: SecondLook,
    ) -> None:
        words = len(self.live)
        exact = all(lane.axis.exact for lane in self.lanes)
        maps = lookup.scratch(0, (len(publications), words if exact else 2 * words))
        can, surely = maps[:, :words], maps[:, words:]
        can[:] = self.live
        surely[:] = ~np.uint64(0)
        for lane in self.lanes:
            rows = lane.bitmaps(lookup.cells(lane.axis)[publications])
            taken = lookup.scratch(1, (len(publications), lane.maps.shape[1]))
            np.take(lane.maps, rows, axis=0, out=taken, mode="clip")
            if lane.axis.exact:
                can &= taken
            else:
                maps &= taken
        doubtful = self._doubtful(can, None if exact else surely)
        answer.add_bits(self, publications, can)
        if doubtful is not None:
            self._look_again(lookup, publications, doubtful, answer, second_look)

    def _doubtful(self, can: WordArray, surely: WordArray | None) -> WordArray | None:
        """Takes the candidates that need a second look out of `can` and returns them."""
        if surely is None:
            if self.residual is None:
                return None
            doubtful = can & self.residual
        else:
            if self.residual is not None:
                surely &= ~self.residual
            doubtful = can & ~surely
        can ^= doubtful
        return doubtful

    def _look_again(
        self,
        lookup: Lookup,
        publications: IntArray,
        doubtful: WordArray,
        answer: Answer,
        second_look: SecondLook,
    ) -> None:
        undecided = answer.undecided(publications)
        if undecided is not None:
            doubtful[~undecided] = 0
        lines, rows = set_bits(doubtful)
        chosen = publications[lines]
        wanted = answer.open_questions(chosen, self.slots[rows])
        if wanted is not None:
            chosen, rows = chosen[wanted], rows[wanted]
        if not len(rows):
            return
        keep, boxes = np.ones(len(rows), np.bool_), np.zeros(len(rows), np.bool_)
        for lane in self.lanes:
            if not lane.axis.exact:
                column = lookup.batch.column(lane.axis.name)
                kinds = column.kinds[chosen]
                # Exact for all numbers, the sure ones too: telling them apart would take longer.
                other = kinds != NUMBER
                if column.uniform or not other.all():
                    keep &= lane.accepts(rows, column.ordinals[chosen]) | other
                if not column.uniform:
                    strings = np.flatnonzero(kinds == STRING)
                    if len(strings):
                        ranks = lookup.string_ranks(lane.axis)[chosen[strings]]
                        keep[strings] &= lane.accepts_ranks(rows[strings], ranks)
                        other[strings] = False
                    # What else has no ordinal, large integers above all, is decided by the filter itself.
                    boxes |= other & ~lane.sure(lookup.cells(lane.axis)[chosen], rows)
        in_doubt = keep & boxes
        if self.residual is not None:
            residual = (self.residual[rows // 64] >> (rows % 64).astype(np.uint64)) & np.uint64(1) > 0
            in_doubt |= keep & residual
        by_filter = np.flatnonzero(in_doubt)
        if len(by_filter):
            keep[by_filter] = second_look(chosen[by_filter], rows[by_filter], boxes[by_filter])
        chosen, rows = chosen[keep], rows[keep]
        answer.add_pairs(chosen, self.slots[rows], once=self.repeated is None)


def packed(flags: BoolArray) -> WordArray:
    """Booleans as bits in 64-bit words, the first in the lowest bit."""
    padded = np.zeros((len(flags) + 63) // 64 * 64, np.bool_)
    padded[: len(flags)] = flags
    return np.packbits(padded, bitorder="little").view(np.uint64)


def _layout(groups: npt.NDArray[np.int32] | None) -> GroupLayout | None:
    """Runs pay only while they are not much shorter than a word on average."""
    if groups is None or not len(groups):
        return None
    runs = 1 + int((np.diff(groups) != 0).sum())
    return GroupLayout(groups) if runs * 8 <= len(groups) else None
