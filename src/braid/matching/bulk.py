"""How is an index made of very many filters at once?

A `FilterIndex` that grows takes filters one by one, each as an object with a normal form of its own. Here
filters come as a table of texts: those that are nothing but ranges of numbers (see `plain_texts`) stay
columns from the text to the block, and are parsed only if somebody asks what they say. The others take the
usual way, into a segment beside.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import numpy.typing as npt

from braid.matching.axis import MERGED_CELLS, MERGED_CELLS_OF_MANY, Axis
from braid.matching.block import Block
from braid.matching.index import HANDFUL, WAITING, FilterIndex, run_to_end
from braid.matching.lane import Lane
from braid.matching.plan import MANY_ROWS, POINT_ROWS_MIN, divided_signatures
from braid.matching.segment import MANY_ATTRIBUTES, PlacedBlock, Rows, Segment
from braid.matching.sight import FirstSight

if TYPE_CHECKING:
    from collections.abc import Sequence

    from braid.language.filters import Filter
    from braid.matching.columns import BoolArray, IntArray
    from braid.matching.plain_texts import NumberBoxes

__all__ = ["bulk_index"]

# Filters that want one value are better found by that value, from such a part of them on.
POINT_SHARE = 16


class _Bounds(NamedTuple):
    """Bounds as columns; see `NumberBoxes`."""

    slots: IntArray
    attributes: IntArray
    lows: npt.NDArray[np.int64]
    highs: npt.NDArray[np.int64]

    def taken(self, places: IntArray) -> _Bounds:
        return _Bounds(self.slots[places], self.attributes[places], self.lows[places], self.highs[places])


def bulk_index(
    filters: Sequence[Filter], boxes: NumberBoxes, groups: Sequence[int | None] | None = None
) -> FilterIndex[int]:
    """An index of filters under their places.

    Args:
        filters: all filters.
        boxes: what is known of them beforehand; its texts are the filters' by place.
        groups: the destination of each, None for none.
    """
    index: FilterIndex[int] = FilterIndex()
    size = len(filters)
    index._slot_of = {place: place for place in range(size)}
    index._keys = list(range(size))
    index._filters.extend(filters)
    entered = map(index._groups.enter, [None] * size if groups is None else groups)
    index._group_of_slot = np.fromiter(entered, np.int32, size)
    index._home = np.zeros(size, np.int32)
    in_bulk = _in_bulk(boxes)
    if in_bulk.any():
        bounds = _Bounds(boxes.texts, boxes.attributes, boxes.lows, boxes.highs)
        bounds = bounds.taken(np.flatnonzero(in_bulk[boxes.texts]))
        slots = np.flatnonzero(in_bulk)
        segment = _segment(index, boxes.names, bounds, len(slots))
        index._install(segment, slots.tolist())
    others = np.flatnonzero(~in_bulk).tolist()
    if len(others) > HANDFUL:
        index._install(run_to_end(index._plan(others)), others)
    else:
        for slot in others:
            index._tail.add(slot, filters[slot])
            index._home[slot] = WAITING
    return index


def _in_bulk(boxes: NumberBoxes) -> BoolArray:
    """Which filters are arranged here: not those for which `plan` has better ways."""
    if len(boxes.names) > MANY_ATTRIBUTES:
        return np.zeros(len(boxes.plain), np.bool_)
    wanting_one_value = np.zeros(len(boxes.plain), np.bool_)
    wanting_one_value[boxes.texts[boxes.highs - boxes.lows == 1]] = True
    count = np.count_nonzero(wanting_one_value)
    if count >= POINT_ROWS_MIN and count * POINT_SHARE > np.count_nonzero(boxes.plain):
        return boxes.plain & ~wanting_one_value
    return boxes.plain


def _segment(index: FilterIndex[int], names: tuple[str, ...], bounds: _Bounds, size: int) -> Segment:
    """What `plan_segment` makes of the same filters, without a Python object per filter."""
    groups = index._group_of_slot
    starts = np.flatnonzero(np.concatenate([[True], np.diff(bounds.slots) != 0])[: len(bounds.slots)])
    slots = bounds.slots[starts]
    parts = _parts(slots, bounds, starts, names)
    merged_cells = MERGED_CELLS if len(slots) <= MANY_ROWS else MERGED_CELLS_OF_MANY
    axes = {}
    for attribute, name in enumerate(names):
        here = bounds.attributes == attribute
        if here.any():
            ends = np.concatenate([bounds.lows[here], bounds.highs[here]])
            axes[name] = Axis(name, ends, (), merged_cells)
    ordered = [part[np.argsort(groups[part], kind="stable")] for _, part in parts]
    rows = np.concatenate([np.empty(0, np.int64), *ordered])
    row_of_slot = np.zeros(len(groups), np.int64)
    row_of_slot[rows] = np.arange(len(rows))
    part_of_row = np.repeat(np.arange(len(parts)), [len(part) for part in ordered])
    row = row_of_slot[bounds.slots]
    lanes = np.lexsort((row, bounds.attributes, part_of_row[row]))
    by_lane, row = bounds.taken(lanes), row[lanes]
    lane = part_of_row[row] * len(names) + by_lane.attributes
    blocks, first_row = [], 0
    for number, ((required, _), members) in enumerate(zip(parts, ordered, strict=True)):
        made = []
        for attribute, name in enumerate(names):
            first, last = np.searchsorted(lane, number * len(names) + attribute + np.arange(2))
            if first < last:
                low, high = axes[name].plain_ranks(by_lane.lows[first:last], by_lane.highs[first:last])
                made.append(Lane(axes[name], len(members), row[first:last] - first_row, low, high))
        block = Block(members.astype(np.int32), made, required=required, groups=groups[members])
        blocks.append(PlacedBlock(block, first_row))
        first_row += len(members)
    placed = Rows(rows.astype(np.int32), np.zeros(len(rows), np.uint16))
    sights = _sights(names, bounds, starts, row_of_slot, groups, axes)
    return Segment(placed, axes, blocks, [], None, sights, index._filters, {}, size)


def _parts(
    slots: IntArray, bounds: _Bounds, starts: IntArray, names: tuple[str, ...]
) -> list[tuple[list[str], IntArray]]:
    """The slots of each block with the attributes that all of them bound."""
    if not len(slots):
        return []
    signatures = np.bitwise_or.reduceat(np.int64(1) << bounds.attributes, starts)
    order = np.argsort(signatures, kind="stable")
    different, firsts = np.unique(signatures[order], return_index=True)
    alike = dict(zip(different.tolist(), np.split(slots[order], firsts[1:]), strict=True))
    named = {
        frozenset(name for place, name in enumerate(names) if signature >> place & 1): signature
        for signature in alike
    }
    sizes = {names_of: len(alike[signature]) for names_of, signature in named.items()}
    parts = []
    for part in divided_signatures(sizes):
        together = np.concatenate([alike[named[each]] for each in part.signatures])
        required = sorted(frozenset.intersection(*part.signatures))
        parts += [(required, together[at : at + part.step]) for at in range(0, len(together), part.step)]
    # What insists on few attributes matches most; a publication that is decided early is done.
    return sorted(parts, key=lambda part: len(part[0]))


def _sights(
    names: tuple[str, ...],
    bounds: _Bounds,
    starts: IntArray,
    row_of_slot: IntArray,
    groups: IntArray,
    axes: dict[str, Axis],
) -> list[FirstSight]:
    """What filters with a single bound say about destinations."""
    if not len(starts) or groups.max() < 0:
        return []
    alone = bounds.taken(starts[np.diff(np.append(starts, len(bounds.slots))) == 1])
    sights = []
    for attribute, name in enumerate(names):
        here = alone.taken(np.flatnonzero(alone.attributes == attribute))
        if len(here.slots):
            rows = row_of_slot[here.slots]
            here, rows = here.taken(np.argsort(rows)), np.sort(rows)
            ends = np.stack([here.lows, here.highs], axis=1)
            sight = FirstSight.made(axes[name], rows, groups[here.slots].astype(np.int64), ends)
            if sight is not None:
                sights.append(sight)
    return sights
