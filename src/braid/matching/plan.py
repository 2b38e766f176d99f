"""How are filters arranged so that a batch touches as little as possible?

Every filter is taken apart into rows, one per box. Then:

1. A row that wants one value of an attribute (`symbol = 'ACME'`), where enough different values are
   wanted, is found by that value. The rare values share a table; a value that many rows want gets
   blocks of its own. Of several such attributes the one with the fewest rivals is taken.
2. Where very many attributes are bounded, a row that insists on a rare one is found by that.
3. The other rows are divided by the attributes they bound, until a part fits into a block: a
   publication without an attribute then skips the blocks that insist on it, and a block has no
   bitmaps for attributes that none of its rows bound.

The work is a generator, one bounded step at a time, so that it can be spread over other work.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from itertools import chain
from operator import itemgetter
from typing import TYPE_CHECKING, NamedTuple, TypeAlias, TypeVar

import numpy as np
import numpy.typing as npt

from braid.language.value_sets import EXACT_MAX, FLOAT_LINE, ValueSet
from braid.language.values import ordinal_to_float
from braid.matching.axis import MERGED_CELLS, MERGED_CELLS_OF_MANY, Axis, plain_numbers
from braid.matching.block import BLOCK_SIZE_MAX, Access, Block
from braid.matching.equality import PointTable, SortKeys
from braid.matching.lane import Lane
from braid.matching.lookup import Interner
from braid.matching.presence import PresenceTable
from braid.matching.segment import MANY_ATTRIBUTES, PlacedBlock, Rows, Segment
from braid.matching.sight import FirstSight

if TYPE_CHECKING:
    from braid.language.filters import Filter
    from braid.language.intervals import Intervals
    from braid.language.normal_form import Term

__all__ = ["MANY_ROWS", "POINT_ROWS_MIN", "Division", "divided_signatures", "plan_segment"]

# A step of the work takes apart so many filters, or makes one block: some milliseconds either way.
FILTERS_AT_ONCE = 256
# From so many rows on, memory matters more than second looks.
MANY_ROWS = 50_000
# Fewer rows than this are quickest as plain blocks.
POINT_ROWS_MIN = 256
# An attribute is worth a table from so many wanted values on.
POINT_VALUES_MIN = 8
# Rows of one shape share a table from so many on.
POINT_TABLE_MIN = 64
# A row with a longer list of wanted values is left to the blocks.
POINTS_PER_ROW_MAX = 8
# A value wanted by so many rows gets blocks; below, looking at every pair is cheaper.
POINT_BLOCK_MIN = 4096
# A table has at most so many rows, because making it is one step of the work.
TABLE_SIZE_MAX = 32_768
# A part with fewer than twice so many rows is not divided further.
PART_SIZE_MIN = 1024
# With very many attributes, one that so few rows insist on is how those rows are found.
RARE_ROWS_MAX = 16


_Item = TypeVar("_Item")
_Result = TypeVar("_Result")
_Steps: TypeAlias = Generator[None, None, _Result]


class _Row(NamedTuple):
    """One box, taken apart by how its bounds can be looked up.

    Tuples throughout: the garbage collector stops following tuples of plain values, and here are
    many of them.
    """

    slot: int
    term: int
    numbers: tuple[tuple[str, int, int], ...]
    """Plain intervals of numbers, as ordinals."""
    others: tuple[tuple[str, ValueSet], ...]
    points: tuple[tuple[str, tuple[int, ...]], ...]
    """The codes of wanted values, for attributes bounded to a few values."""
    residual: bool
    repeated: bool

    def codes(self, name: str) -> tuple[int, ...]:
        """The codes of the wanted values of one attribute; none if it is not bounded to a few values."""
        return next((codes for each, codes in self.points if each == name), ())

    def without(self, name: str) -> _Row:
        """The row without its bound on one attribute."""
        numbers = tuple(bound for bound in self.numbers if bound[0] != name)
        others = tuple(bound for bound in self.others if bound[0] != name)
        return _Row(self.slot, self.term, numbers, others, self.points, self.residual, self.repeated)

    def required(self) -> frozenset[str]:
        """The attributes without which the row cannot match."""
        return frozenset(
            chain(
                (bound[0] for bound in self.numbers),
                (name for name, values in self.others if not values.null),
            )
        )


class _Part(NamedTuple):
    """Rows for one block."""

    rows: list[_Row]
    required: frozenset[str]
    access: Access | None = None


def plan_segment(
    slots: Sequence[int],
    filters: Sequence[Filter | None],
    groups: npt.NDArray[np.int32],
) -> _Steps[Segment]:
    """Arrange the filters in these slots; the generator's return value is the segment.

    Args:
        slots: where the filters are.
        filters: the index's filters by slot.
        groups: the destination of each slot.
    """
    rows: list[_Row] = []
    interners: dict[str, Interner] = {}
    for start in range(0, len(slots), FILTERS_AT_ONCE):
        for slot in slots[start : start + FILTERS_AT_ONCE]:
            owner = filters[slot]
            if owner is not None:
                rows += _taken_apart(slot, owner.terms, interners)
        yield
    general, by_value = yield from _divided_by_value(rows)
    parts, tables = yield from _parts_by_value(by_value)
    common, by_name = yield from _divided_by_presence(general)
    parts += yield from _parts_by_attributes(common)
    # What insists on few attributes matches most; a publication that is decided early is done.
    parts.sort(key=lambda part: (part.access is not None, len(part.required)))
    yield
    axes: dict[str, Axis] = {}
    merged_cells = MERGED_CELLS if len(rows) <= MANY_ROWS else MERGED_CELLS_OF_MANY
    bounds_of = yield from _bounds_by_attribute(parts)
    for name, bounds in bounds_of.items():
        axes[name] = Axis(name, np.array(bounds[0], np.int64), bounds[1], merged_cells)
        yield
    ordered: list[_Row] = []
    blocks: list[PlacedBlock] = []
    for part in parts:
        part.rows.sort(key=lambda row: groups[row.slot])
        blocks.append(PlacedBlock(_block(part, axes, groups), len(ordered)))
        ordered += part.rows
        yield
    sights = yield from _first_sights(parts, axes, groups)
    made_tables = []
    for shape, table_rows in tables:
        table, in_order = _table(shape, table_rows, len(ordered))
        made_tables.append(table)
        ordered += in_order
        yield
    presence = None
    if by_name:
        presence, in_order = _presence_table(by_name, len(ordered))
        ordered += in_order
        yield
    placed = Rows(
        np.array([row.slot for row in ordered], np.int32), np.array([row.term for row in ordered], np.uint16)
    )
    return Segment(placed, axes, blocks, made_tables, presence, sights, filters, interners, len(slots))


def _taken_apart(slot: int, terms: Sequence[Term], interners: dict[str, Interner]) -> list[_Row]:
    rows = []
    for number, term in enumerate(terms):
        numbers: list[tuple[str, int, int]] = []
        others: list[tuple[str, ValueSet]] = []
        points: list[tuple[str, tuple[int, ...]]] = []
        for name, values in sorted(term.box.items()):
            plain = plain_numbers(values)
            if plain is not None:
                numbers.append((name, *plain))
                if plain[1] - plain[0] > 1:
                    continue
            else:
                others.append((name, values))
            keys = _point_keys(values)
            if keys:
                interner = interners.get(name)
                if interner is None:
                    interner = interners[name] = Interner()
                points.append((name, tuple(interner.code(key) for key in keys)))
        bounds = (tuple(numbers), tuple(others), tuple(points))
        rows.append(_Row(slot, number, *bounds, bool(term.residual), len(terms) > 1))
    return rows


def _point_keys(values: ValueSet) -> list[object]:
    """The few values a set consists of, as `point_key` makes them; none if it is anything else."""
    count = len(values.strings) + len(values.floats) + len(values.integers)
    if values.null or values.booleans or count > 2 * POINTS_PER_ROW_MAX:
        return []
    keys: list[object] = []
    for low, high in values.strings:
        if high != low + "\0":
            return []
        keys.append(low)
    if not _single_points(values.floats) or not _single_points(values.integers):
        return []
    for low, _ in values.floats:
        number = ordinal_to_float(low)
        keys.append(number if abs(number) < EXACT_MAX else ("double", number))
    keys += [low for low, _ in values.integers if abs(low) >= EXACT_MAX]
    return keys if len(keys) <= POINTS_PER_ROW_MAX else []


def _single_points(intervals: Intervals) -> bool:
    return all(high - low == 1 for low, high in intervals)


def _divided_by_value(rows: list[_Row]) -> _Steps[tuple[list[_Row], dict[_Shape, list[tuple[int, _Row]]]]]:
    """The rows to be looked up by bounds, and those found by a value: (code, row) by shape."""
    if len(rows) < POINT_ROWS_MIN:
        return rows, {}
    wanted: dict[str, defaultdict[int, int]] = {}
    for some in _at_a_time(rows):
        for row in some:
            for name, codes in row.points:
                counts = wanted.setdefault(name, defaultdict(int))
                for code in codes:
                    counts[code] += 1
        yield
    useful = {name: counts for name, counts in wanted.items() if len(counts) >= POINT_VALUES_MIN}
    general: list[_Row] = []
    by_shape: dict[_Shape, list[_Row]] = {}
    for some in _at_a_time(rows):
        for row in some:
            rivals = [
                (max(useful[name][code] for code in codes), name)
                for name, codes in row.points
                if name in useful
            ]
            if rivals:
                by_shape.setdefault(_shape(row, min(rivals)[1]), []).append(row)
            else:
                general.append(row)
        yield
    coded: dict[_Shape, list[tuple[int, _Row]]] = {}
    for shape, alike in by_shape.items():
        if len(alike) < POINT_TABLE_MIN:
            general += alike
            continue
        found = coded[shape] = []
        for some in _at_a_time(alike):
            # A publication has one value, so at most one copy of a row with several can match it.
            found += [(code, row.without(shape.name)) for row in some for code in row.codes(shape.name)]
            yield
    return general, coded


def _at_a_time(rows: Sequence[_Item]) -> Iterable[Sequence[_Item]]:
    """Bounded pieces, one per step of the work."""
    return (rows[at : at + FILTERS_AT_ONCE] for at in range(0, len(rows), FILTERS_AT_ONCE))


class _Shape(NamedTuple):
    """Rows of one shape fit into one table: found by one attribute, bounded alike on the others."""

    name: str
    numbers: tuple[str, ...]
    points: tuple[str, ...]


def _shape(row: _Row, name: str) -> _Shape:
    numbers = tuple(bound[0] for bound in row.numbers if bound[0] != name)
    return _Shape(name, numbers, tuple(other for other in _single_codes(row) if other != name))


def _parts_by_value(
    by_shape: dict[_Shape, list[tuple[int, _Row]]],
) -> _Steps[tuple[list[_Part], list[tuple[_Shape, list[tuple[int, _Row]]]]]]:
    """Blocks for values that many rows want, and tables for the others."""
    parts: list[_Part] = []
    tables: list[tuple[_Shape, list[tuple[int, _Row]]]] = []
    for shape, coded in by_shape.items():
        counts = Counter(code for code, _ in coded)
        often: dict[int, list[_Row]] = {}
        rare: list[tuple[int, _Row]] = []
        for code, row in coded:
            if counts[code] >= POINT_BLOCK_MIN:
                often.setdefault(code, []).append(row)
            else:
                rare.append((code, row))
        for code, rows in often.items():
            made = yield from _parts_by_attributes(rows)
            parts += [part._replace(access=Access(shape.name, code)) for part in made]
        rare.sort(key=itemgetter(0))
        tables += [(shape, rare[at : at + TABLE_SIZE_MAX]) for at in range(0, len(rare), TABLE_SIZE_MAX)]
        yield
    return parts, tables


def _single_codes(row: _Row) -> list[str]:
    """Attributes other than plain numbers that the row bounds to one value."""
    return sorted(name for name, _ in row.others if len(row.codes(name)) == 1)


def _parts_by_attributes(rows: list[_Row]) -> _Steps[list[_Part]]:
    """Divide rows by what they bound until each part fits into a block."""
    by_names: dict[frozenset[str], list[_Row]] = {}
    for some in _at_a_time(rows):
        for row in some:
            by_names.setdefault(row.required(), []).append(row)
        yield
    parts: list[_Part] = []
    for division in divided_signatures({names: len(alike) for names, alike in by_names.items()}):
        together = list(chain.from_iterable(by_names[names] for names in division.signatures))
        required = frozenset.intersection(*division.signatures)
        step = division.step
        parts += [_Part(together[at : at + step], required) for at in range(0, len(together), step)]
        yield
    return parts


class Division(NamedTuple):
    """Which rows share blocks: those that bound one of these sets of attributes, so many in one block."""

    signatures: list[frozenset[str]]
    step: int


def divided_signatures(sizes: Mapping[frozenset[str], int]) -> Iterator[Division]:
    """Divide rows by what they bound until each part fits into a block; given how many bound what."""
    pending = [dict(sizes)] if sizes else []
    while pending:
        signatures = pending.pop()
        size = sum(signatures.values())
        counts: Counter[str] = Counter()
        for names, alike in signatures.items():
            counts.update(dict.fromkeys(names, alike))
        name = max(counts, key=lambda each: (min(counts[each], size - counts[each]), each), default=None)
        divisible = name is not None and counts[name] < size and size >= 2 * PART_SIZE_MIN
        if divisible and (size > BLOCK_SIZE_MAX or len(counts) > MANY_ATTRIBUTES):
            pending.append({names: alike for names, alike in signatures.items() if name in names})
            pending.append({names: alike for names, alike in signatures.items() if name not in names})
        else:
            yield Division(list(signatures), -(-size // -(-size // BLOCK_SIZE_MAX)))


def _divided_by_presence(rows: list[_Row]) -> _Steps[tuple[list[_Row], dict[str, list[_Row]]]]:
    """The rows for blocks and, with very many attributes, those that insist on a rare one, by it."""
    insisting: Counter[str] = Counter()
    for some in _at_a_time(rows):
        for row in some:
            insisting.update(row.required())
        yield
    if len(insisting) <= MANY_ATTRIBUTES:
        return rows, {}
    common: list[_Row] = []
    by_name: dict[str, list[_Row]] = {}
    for some in _at_a_time(rows):
        for row in some:
            rarest = min(row.required(), key=lambda name: (insisting[name], name), default="")
            if 0 < insisting[rarest] <= RARE_ROWS_MAX:
                by_name.setdefault(rarest, []).append(row)
            else:
                common.append(row)
        yield
    return common, by_name


def _presence_table(by_name: dict[str, list[_Row]], first_row: int) -> tuple[PresenceTable, list[_Row]]:
    places: dict[str, tuple[int, int]] = {}
    rows: list[_Row] = []
    for name, some in by_name.items():
        places[name] = (len(rows), len(rows) + len(some))
        rows += some
    slots = np.array([row.slot for row in rows], np.int32)
    return PresenceTable(places, first_row, slots, any(row.repeated for row in rows)), rows


def _bounds_by_attribute(
    parts: Iterable[_Part],
) -> _Steps[Mapping[str, tuple[list[int], list[ValueSet]]]]:
    bounds: dict[str, tuple[list[int], list[ValueSet]]] = {}
    for part in parts:
        for row in part.rows:
            for name, low, high in row.numbers:
                bounds.setdefault(name, ([], []))[0].extend((low, high))
            for name, values in row.others:
                bounds.setdefault(name, ([], []))[1].append(values)
        yield
    return bounds


def _block(part: _Part, axes: Mapping[str, Axis], groups: npt.NDArray[np.int32]) -> Block:
    plain: dict[str, list[tuple[int, int, int]]] = {}
    ranked: dict[str, list[tuple[int, int, int]]] = {}
    for at, row in enumerate(part.rows):
        for name, low, high in row.numbers:
            plain.setdefault(name, []).append((at, low, high))
        for name, values in row.others:
            ranked.setdefault(name, []).extend((at, *ranks) for ranks in axes[name].set_ranks(values))
    lanes = [
        _lane(axes[name], len(part.rows), plain.get(name, []), ranked.get(name, []))
        for name in sorted(plain.keys() | ranked.keys())
    ]
    slots = np.array([row.slot for row in part.rows], np.int32)
    return Block(
        slots,
        lanes,
        required=sorted(part.required),
        access=part.access,
        residual=np.array([row.residual for row in part.rows], np.bool_),
        repeated=np.array([row.repeated for row in part.rows], np.bool_),
        groups=groups[slots],
    )


def _lane(
    axis: Axis, size: int, plain: list[tuple[int, int, int]], ranked: list[tuple[int, int, int]]
) -> Lane:
    bounds = np.array(plain, np.int64).reshape(-1, 3)
    lows, highs = axis.plain_ranks(bounds[:, 1], bounds[:, 2])
    entries = np.stack([bounds[:, 0], lows, highs], axis=1)
    if axis.has_large:
        # Plain intervals without an end reach all large integers on that side.
        negative, positive = axis.large_ranks()
        ranked = ranked + [(at, *negative) for at, low, _ in plain if low == FLOAT_LINE[0]]
        ranked += [(at, *positive) for at, _, high in plain if high == FLOAT_LINE[1]]
    if ranked:
        entries = np.concatenate([entries, np.array(ranked, np.int64)])
        entries = entries[np.argsort(entries[:, 0], kind="stable")]
    return Lane(axis, size, entries[:, 0], entries[:, 1], entries[:, 2])


def _first_sights(
    parts: Iterable[_Part], axes: Mapping[str, Axis], groups: npt.NDArray[np.int32]
) -> _Steps[list[FirstSight]]:
    """Of the rows in blocks, those with a single bound, by its attribute."""
    alone: dict[str, list[tuple[int, int, int, int]]] = {}
    first_row = 0
    for part in parts:
        if part.access is None:
            for number, row in enumerate(part.rows, first_row):
                if len(row.numbers) == 1 and not row.others and not row.residual:
                    name, low, high = row.numbers[0]
                    alone.setdefault(name, []).append((number, int(groups[row.slot]), low, high))
            yield
        first_row += len(part.rows)
    sights: list[FirstSight] = []
    for name, some in alone.items():
        rows = np.array(some, np.int64)
        sight = FirstSight.made(axes[name], rows[:, 0], rows[:, 1], rows[:, 2:])
        if sight is not None:
            sights.append(sight)
        yield
    return sights


def _table(shape: _Shape, coded: list[tuple[int, _Row]], first_row: int) -> tuple[PointTable, list[_Row]]:
    """The table of these rows, and the rows in the order in which it has them."""
    rows = [row for _, row in coded]
    codes = np.array([code for code, _ in coded], np.int64)
    bounds = np.array([[bound[1:] for bound in row.numbers] for row in rows], np.int64)
    keys = SortKeys.chosen(shape.numbers, bounds)
    order = np.lexsort((keys.values, codes)) if keys is not None else np.argsort(codes, kind="stable")
    rows = [rows[at] for at in order.tolist()]
    numbers = [
        (name, np.ascontiguousarray(bounds[order, at, 0]), np.ascontiguousarray(bounds[order, at, 1]))
        for at, name in enumerate(shape.numbers)
    ]
    points = [(name, np.array([row.codes(name)[0] for row in rows], np.int32)) for name in shape.points]
    uncertain = [row.residual or len(row.others) > len(points) for row in rows]
    table = PointTable(
        shape.name,
        codes[order],
        first_row,
        np.array([row.slot for row in rows], np.int32),
        numbers,
        points,
        np.array(uncertain, np.bool_),
        repeated=any(row.repeated for row in rows),
        keys=keys.ordered(order) if keys is not None else None,
    )
    return table, rows
