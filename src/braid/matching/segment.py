"""How does a set of filters answer as a whole?

A segment is a fixed set of filters, taken apart into rows (one per box) and arranged so that a batch
touches as little as possible: rows found by a value they insist on, and blocks of rows that bound
similar attributes. Filters can be struck out of a segment, but none can be added: new ones make a
new segment (see `index`). `plan` decides the arrangement.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt

from braid.language.evaluate import evaluate
from braid.language.normal_form import Term
from braid.language.ranges import some_point_satisfies
from braid.language.stack import with_room
from braid.language.value_sets import EXACT_MAX
from braid.language.values import Range, Value
from braid.matching.bitsets import BitSets, Place, fits_bit_sets
from braid.matching.columns import ABSENT, Batch, BoolArray, IntArray
from braid.matching.lookup import Lookup, SecondLook, SingleLook

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from braid.language.filters import Filter
    from braid.matching.answers import Answer
    from braid.matching.axis import Axis
    from braid.matching.block import Block
    from braid.matching.equality import PointTable
    from braid.matching.lookup import Interner
    from braid.matching.presence import PresenceTable
    from braid.matching.sight import FirstSight
    from braid.matching.single import SingleAnswer

__all__ = ["MANY_ATTRIBUTES", "PlacedBlock", "Rows", "Segment"]


# Beyond so many attributes it pays to ask first which ones a batch has at all.
MANY_ATTRIBUTES = 32


class Rows(NamedTuple):
    """The boxes of a segment: whose they are, and which box of that filter."""

    slots: npt.NDArray[np.int32]
    terms: npt.NDArray[np.uint16]


class PlacedBlock(NamedTuple):
    """A block, and the row of the segment that its first bit stands for."""

    block: Block
    first_row: int


class Segment:
    """A fixed set of filters, ready to be matched."""

    def __init__(
        self,
        rows: Rows,
        axes: Mapping[str, Axis],
        blocks: Sequence[PlacedBlock],
        tables: Sequence[PointTable],
        presence: PresenceTable | None,
        sights: Sequence[FirstSight],
        filters: Sequence[Filter | None],
        interners: Mapping[str, Interner],
        size: int,
    ) -> None:
        """
        Args:
            rows: the boxes, those of each block side by side.
            axes: the line of every attribute that some block looks at.
            blocks: rows decided by bits.
            tables: rows found by a value.
            presence: rows found by an attribute that they insist on.
            sights: what rows with a single bound say about destinations.
            filters: the index's filters by slot.
            interners: the codes of wanted values by attribute.
            size: how many filters the segment has.
        """
        self.rows = rows
        self.size = size
        self.dead = 0
        self._axes = axes
        self._blocks = list(blocks)
        self._tables = list(tables)
        self._presence = presence
        self._sights = list(sights)
        self.takes_single = fits_bit_sets(len(rows.slots), len(axes))
        """Whether single publications are matched by `match_one`."""
        self._sight_of = {sight.axis.name: sight for sight in sights}
        self._bit_sets: BitSets | None = None
        """Made when a publication comes alone."""
        self._sight_of_row: npt.NDArray[np.uint16] | None = None
        self._filters = filters
        self._dead_rows: BoolArray | None = None
        self._by_slot: npt.NDArray[np.int64] | None = None
        self.names = set(axes).union(*(table.names for table in tables))
        """The attributes the segment looks at."""
        coded = {placed.block.access.name for placed in blocks if placed.block.access}
        coded.update(*(table.coded_names for table in tables))
        self.names |= coded
        if presence is not None:
            self.names |= presence.names
        self._interners = {name: interners[name] for name in coded}

    def match(self, batch: Batch, answer: Answer) -> None:
        """Find the matches of a batch without ranges."""
        lookup = Lookup(batch, self._interners)

        def look_from(first_row: int) -> SecondLook:
            return lambda publications, rows, boxes: self._satisfied(
                batch, publications, rows + first_row, boxes
            )

        # With very many attributes most blocks concern none of the batch; its names tell quickly.
        names = batch.names() if len(self._axes) > MANY_ATTRIBUTES else None
        for sight in self._sights:
            if names is None or sight.axis.name in names:
                answer.add_destinations(lookup, sight)
        for block, first_row in self._blocks:
            if names is None or names.issuperset(block.required):
                block.match(lookup, answer, look_from(first_row))
        for table in self._tables:
            table.match(lookup, answer, self._dead_rows, look_from(0))
        if self._presence is not None:
            self._presence.match(batch, answer, self._dead_rows, look_from(0))

    def match_one(self, attributes: Mapping[str, Value | None], answer: SingleAnswer) -> None:
        """Find the matches of one publication without ranges."""
        codes = {name: interner.code_of(attributes.get(name)) for name, interner in self._interners.items()}

        def second_look(row: int, box: bool) -> bool:
            return _holds(self._term(row), attributes, box)

        if self._blocks:
            self._match_blocks(attributes, codes, answer, second_look)
            if answer.complete:
                return
        for table in self._tables:
            table.match_one(attributes, codes, answer, self._dead_rows, second_look)
        if self._presence is not None:
            self._presence.match_one(attributes, answer, self._dead_rows, second_look)

    def _match_blocks(
        self,
        attributes: Mapping[str, Value | None],
        codes: Mapping[str, int],
        answer: SingleAnswer,
        second_look: SingleLook,
    ) -> None:
        axes, places = self._axes, list[Place]()
        for name, value in attributes.items():
            if name in axes and value is not None:
                axis = axes[name]
                rank = axis.rank_of(value)
                cell = axis.cell_of(rank)
                places.append((axis, rank, cell))
                if name in self._sight_of:
                    answer.add_destinations(self._sight_of[name], cell)
        if answer.complete:
            return
        if self._bit_sets is None:
            self._bit_sets = BitSets(self._blocks, axes, self.rows.slots)
        sets = self._bit_sets
        certain, doubtful = sets.matching(places, codes)
        answer.add_bits(sets, certain)
        if doubtful:
            doubtful = answer.open_bits(sets, doubtful)
        if doubtful:
            found, uncertain = sets.within_bounds(doubtful, places)
            rows = [row for row in sets.rows(uncertain).tolist() if second_look(row, True)]
            rows += sets.rows(found).tolist()
            answer.add_slots(self.rows.slots[rows].tolist())

    def match_ranged(self, batch: Batch, publication: int, answer: Answer) -> None:
        """Find the matches of one publication that holds ranges."""
        attributes = batch.publications[publication]
        blocks = [placed for placed in self._blocks if self._concerns(placed.block, attributes)]
        names = {lane.axis.name for placed in blocks for lane in placed.block.lanes}
        ranks, vague = self._ranks(attributes, names)
        found: list[IntArray] = []
        for block, first_row in blocks:
            rows = block.rows_accepting(ranks) + first_row
            certain = block.access is None and not vague
            found.append(self._confirmed(rows, attributes, certain))
        candidates = [] if self._presence is None else [self._presence.candidates(attributes)]
        for table in self._tables:
            code = self._code(attributes, table.name)
            if code != -1:
                candidates.append(table.candidates(code))
        for rows in candidates:
            alive = rows if self._dead_rows is None else rows[~self._dead_rows[rows]]
            found.append(self._confirmed(alive, attributes, False))
        rows = np.concatenate(found) if found else np.empty(0, np.int64)
        answer.add_pairs(np.full(len(rows), publication), self.rows.slots[rows])

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_bit_sets": None}  # made anew where a publication comes alone

    def remove(self, slot: int) -> None:
        """The filter in this slot no longer matches anything."""
        by_slot = self._rows_by_slot()
        if self._dead_rows is None:
            self._dead_rows = np.zeros(len(self.rows.slots), np.bool_)
        first, last = self._places(slot)
        for row in by_slot[first:last]:
            self._strike(int(row))
        self.dead += 1

    def regroup(self, slots: Sequence[int], group_of_slot: npt.NDArray[np.int32]) -> None:
        """The filters in these slots have other destinations."""
        if self._bit_sets is not None:
            self._bit_sets.forget_masks()
        by_slot = self._rows_by_slot()
        places = [self._places(slot) for slot in slots]
        rows = np.concatenate([by_slot[first:last] for first, last in places])
        for block, first_row in self._blocks:
            if (
                block.groups is not None
                and ((rows >= first_row) & (rows < first_row + len(block.slots))).any()
            ):
                block.groups = None  # its filters are named one by one from now on
        if self._sight_of_row is not None:
            numbers = self._sight_of_row[rows]
            for number in np.unique(numbers[numbers > 0]).tolist():
                seen = rows[numbers == number]
                self._sights[number - 1].regroup(seen, group_of_slot[self.rows.slots[seen]])

    def _rows_by_slot(self) -> IntArray:
        """Where the rows of each filter are; noted once something is to be changed about one."""
        if self._by_slot is None:
            self._by_slot = np.argsort(self.rows.slots, kind="stable")
            if self._sights:
                self._sight_of_row = np.zeros(len(self.rows.slots), np.uint16)
                for number, sight in enumerate(self._sights, 1):
                    self._sight_of_row[sight.rows] = number
        return self._by_slot

    @property
    def bytes(self) -> int:
        """Memory of the arrays."""
        own = self.rows.slots.nbytes + self.rows.terms.nbytes
        own += 0 if self._by_slot is None else self._by_slot.nbytes
        own += 0 if self._dead_rows is None else self._dead_rows.nbytes
        own += sum(axis.bytes for axis in self._axes.values())
        own += sum(placed.block.bytes for placed in self._blocks)
        own += sum(sight.bytes for sight in self._sights)
        own += 0 if self._sight_of_row is None else self._sight_of_row.nbytes
        own += 0 if self._bit_sets is None else self._bit_sets.bytes
        own += 0 if self._presence is None else self._presence.bytes
        return own + sum(table.bytes for table in self._tables)

    @property
    def shape(self) -> tuple[int, int]:
        """How many blocks and how many tables there are."""
        return len(self._blocks), len(self._tables) + (self._presence is not None)

    def _places(self, slot: int) -> tuple[int, int]:
        """Bisection over the rows ordered by slot, without making a sorted copy of the slots."""
        order = self._by_slot
        if order is None:
            return 0, 0
        bounds = []
        for wanted in (slot, slot + 1):
            low, high = 0, len(order)
            while low < high:
                middle = (low + high) // 2
                if self.rows.slots[order[middle]] < wanted:
                    low = middle + 1
                else:
                    high = middle
            bounds.append(low)
        return bounds[0], bounds[1]

    def _strike(self, row: int) -> None:
        if self._dead_rows is not None:
            self._dead_rows[row] = True
        for number, (block, first_row) in enumerate(self._blocks):
            if first_row <= row < first_row + len(block.slots):
                block.remove(row - first_row)
                if self._bit_sets is not None:
                    self._bit_sets.remove(number, row - first_row)
                break
        if self._sight_of_row is not None and self._sight_of_row[row]:
            self._sights[self._sight_of_row[row] - 1].remove(row)

    def _term(self, row: int) -> Term:
        owner = self._filters[int(self.rows.slots[row])]
        return Term({}) if owner is None else owner.terms[int(self.rows.terms[row])]

    def _satisfied(
        self, batch: Batch, publications: IntArray, rows: IntArray, boxes: BoolArray | None
    ) -> BoolArray:
        """Decide pairs by the definition: every residual condition TRUE and every value in its set.

        `boxes` tells for which pairs the box is in doubt too; None means for all of them.
        """
        outcomes = np.zeros(len(rows), np.bool_)
        terms = {row: self._term(row) for row in set(rows.tolist())}
        doubts = [True] * len(rows) if boxes is None else boxes.tolist()
        pairs = zip(publications.tolist(), rows.tolist(), doubts, strict=True)
        for number, (publication, row, box_in_doubt) in enumerate(pairs):
            outcomes[number] = _holds(terms[row], batch.publications[publication], box_in_doubt)
        return outcomes

    def _ranks(
        self, attributes: Mapping[str, Value | None], names: set[str]
    ) -> tuple[dict[str, tuple[int, int]], bool]:
        """The ranks of a publication's values, and whether they are vague: rows found need checking."""
        ranks: dict[str, tuple[int, int]] = {}
        vague = False
        for name in names:
            axis, value = self._axes[name], attributes.get(name)
            if isinstance(value, Range) and _needs_care(value, axis):
                vague = True
                ranks[name] = (ABSENT + 1, axis.ranks - 1)
            else:
                ranks[name] = axis.ranks_of(value)
        return ranks, vague

    def _confirmed(self, rows: IntArray, attributes: Mapping[str, Value | None], certain: bool) -> IntArray:
        keep = [
            (certain and not self._term(row).residual) or some_point_satisfies([self._term(row)], attributes)
            for row in rows.tolist()
        ]
        return rows[np.array(keep, np.bool_)]

    def _concerns(self, block: Block, attributes: Mapping[str, Value | None]) -> bool:
        if any(attributes.get(name) is None for name in block.required):
            return False
        return block.access is None or self._code(attributes, block.access.name) in (block.access.code, None)

    def _code(self, attributes: Mapping[str, Value | None], name: str) -> int | None:
        """The code of a publication's value, -1 if no filter wants it, None for a range of values."""
        value = attributes.get(name)
        if isinstance(value, Range):
            # A large integer shares its range with a double, which has a code of its own.
            if value.low != value.high or abs(value.low) >= EXACT_MAX:
                return None
            value = value.low
        return self._interners[name].code_of(value)


def _holds(term: Term, attributes: Mapping[str, Any], box_in_doubt: bool) -> bool:
    """Whether a publication satisfies a term, with its box if that is in doubt."""
    return (not term.residual or _residual_holds(term, attributes)) and not (
        box_in_doubt and any(not values.accepts(attributes.get(name)) for name, values in term.box.items())
    )


def _residual_holds(term: Term, attributes: Mapping[str, Any]) -> bool:
    for condition in term.residual:
        try:
            outcome = evaluate(condition, attributes)
        except RecursionError:
            outcome = with_room(evaluate, condition, attributes)
        if outcome is not True:
            return False
    return True


def _needs_care(extent: Range, axis: Axis) -> bool:
    """Whether a range reaches integers that the number line of doubles cannot tell apart."""
    large = [end for end in (extent.low, extent.high) if abs(end) >= EXACT_MAX]
    return bool(large) and (axis.has_large or any(math.isfinite(end) for end in large))
