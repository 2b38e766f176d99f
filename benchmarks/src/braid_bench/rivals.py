"""What else could one do instead of Braid's index?

Each rival is built from the plain conditions of a workload and then answers batches of publications,
given as the same attribute mappings that Braid gets. What it answers is one of
    matches       which filters (by number)
    destinations  which of up to 64 destinations have a matching filter
    counts        how many filters
and `plain` turns an answer into ordinary sets or integers for comparison.
"""

from __future__ import annotations

import importlib
import os
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from braid.errors import ConfigurationError
from braid_bench import kernels

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from braid_bench.workloads import Conditions, FloatArray

__all__ = [
    "RIVALS",
    "BitmapCount",
    "BitmapDestinations",
    "BitmapDestinationsOfMatrix",
    "Counting",
    "CountingNumpy",
    "Naive",
    "NaiveDestinations",
    "Pyroaring",
    "Rival",
]

Batch = Sequence[Mapping[str, Any]]
# Above this many different bounds an attribute's intervals are buckets, re-checked after the lookup.
INTERVALS_EXACT_MAX = 1024
BUCKETS = 256
BITMAP_BYTES_MAX = 2 << 30


class Rival(ABC):
    """One way of matching; built once, then timed on `run`."""

    name: ClassVar[str]
    title: ClassVar[str]
    answers: ClassVar[str]

    @abstractmethod
    def __init__(self, conditions: Conditions, destination: NDArray[np.int64]) -> None:
        """Build whatever the rival prepares; `destination[i]` is where filter i's matches go."""

    @classmethod
    def beside(cls, others: Sequence[Rival], conditions: Conditions, destination: NDArray[np.int64]) -> Rival:
        """Build it, or share what one of `others` has already built where that is possible."""
        return next((other for other in others if type(other) is cls), None) or cls(conditions, destination)

    def prepare(self, publications: Batch) -> Any:
        """What is made of the publications before the clock starts: nothing, for most."""
        return publications

    @abstractmethod
    def run(self, publications: Any) -> Any:
        """Answer a batch, in whatever form is cheapest; this is timed."""

    @abstractmethod
    def plain(self, answer: Any) -> list[Any]:
        """The answer as a list of sets (or integers), one per publication."""


class Naive(Rival):
    """One pass over all filters per publication, leaving a filter at its first failed condition."""

    name = "naive"
    title = "naive loop"
    answers = "matches"

    def __init__(self, conditions: Conditions, destination: NDArray[np.int64]) -> None:
        self._filters = list(enumerate(conditions.tuples()))

    def run(self, publications: Batch) -> list[list[int]]:
        """Numbers of the matching filters."""
        answer = []
        for publication in publications:
            value_of = publication.get
            matches = []
            for number, conditions in self._filters:
                for name, low, high in conditions:
                    value = value_of(name)
                    if value is None or not low <= value <= high:
                        break
                else:
                    matches.append(number)
            answer.append(matches)
        return answer

    def plain(self, answer: list[list[int]]) -> list[set[int]]:
        """As sets."""
        return [set(matches) for matches in answer]


class NaiveDestinations(Rival):
    """The naive loop asked for destinations only: it leaves a destination at its first match."""

    name = "naive_destinations"
    title = "naive loop, leaving a destination at its first match"
    answers = "destinations"

    def __init__(self, conditions: Conditions, destination: NDArray[np.int64]) -> None:
        tuples = conditions.tuples()
        self._groups = [
            (group, [tuples[number] for number in np.flatnonzero(destination == group).tolist()])
            for group in np.unique(destination).tolist()
        ]

    def run(self, publications: Batch) -> list[set[int]]:
        """Destinations with a match."""
        answer = []
        for publication in publications:
            value_of = publication.get
            reached = set()
            for group, filters in self._groups:
                for conditions in filters:
                    for name, low, high in conditions:
                        value = value_of(name)
                        if value is None or not low <= value <= high:
                            break
                    else:
                        reached.add(group)
                        break
            answer.append(reached)
        return answer

    def plain(self, answer: list[set[int]]) -> list[set[int]]:
        """They are sets already."""
        return answer


class CountingNumpy(Rival):
    """The counting algorithm in NumPy: satisfied conditions per filter, attribute by attribute."""

    name = "counting_numpy"
    title = "counting algorithm (NumPy)"
    answers = "matches"

    def __init__(self, conditions: Conditions, destination: NDArray[np.int64]) -> None:
        self._conditions = conditions
        owner = conditions.owner()
        self._columns = []
        for column in range(len(conditions.names)):
            rows = np.flatnonzero(conditions.attribute == column)
            self._columns.append((conditions.low[rows], conditions.high[rows], owner[rows]))
        self._needed = np.diff(conditions.start).astype(np.int16)

    def run(self, publications: Batch) -> list[NDArray[np.int64]]:
        """Numbers of the matching filters."""
        answer = []
        for row in self._conditions.matrix(publications):
            satisfied = np.zeros(len(self._needed), dtype=np.int16)
            for value, (low, high, owner) in zip(row.tolist(), self._columns, strict=True):
                # A filter has at most one condition per attribute, so no owner occurs twice here.
                satisfied[owner[(low <= value) & (value <= high)]] += 1
            answer.append(np.flatnonzero(satisfied == self._needed))
        return answer

    def plain(self, answer: list[NDArray[np.int64]]) -> list[set[int]]:
        """As sets."""
        return [set(matches.tolist()) for matches in answer]


class Counting(Rival):
    """The counting algorithm in compiled code, with equalities looked up and ranges sorted."""

    name = "counting"
    title = "counting algorithm (numba)"
    answers = "matches"

    def __init__(self, conditions: Conditions, destination: NDArray[np.int64]) -> None:
        self._kernel = _compiled("counting_matches")
        self._conditions = conditions
        owner = conditions.owner()
        values, starts, equals, lows, highs, ranges = [], [np.zeros(1, np.int64)], [], [], [], []
        offsets = np.zeros((len(conditions.names) + 1, 2), dtype=np.int64)
        equal_total = 0
        for column in range(len(conditions.names)):
            rows = np.flatnonzero(conditions.attribute == column)
            low, high = conditions.low[rows], conditions.high[rows]
            points = rows[low == high]
            unique, count = np.unique(conditions.low[points], return_counts=True)
            values.append(unique)
            starts.append(equal_total + np.cumsum(count))
            equals.append(owner[points[np.argsort(conditions.low[points], kind="stable")]])
            equal_total += len(points)
            wide = rows[low != high]
            wide = wide[np.argsort(conditions.low[wide], kind="stable")]
            lows.append(conditions.low[wide])
            highs.append(conditions.high[wide])
            ranges.append(owner[wide])
            offsets[column + 1] = offsets[column] + (len(unique), len(wide))
        self._arrays = (
            np.concatenate(values),
            np.concatenate(starts),
            np.concatenate(equals),
            np.concatenate(lows),
            np.concatenate(highs),
            np.concatenate(ranges),
            np.diff(conditions.start).astype(np.int8),
            offsets,
        )
        self._counter = np.zeros(len(conditions), dtype=np.int8)
        self._found = np.zeros((1024, 2), dtype=np.int64)

    def run(self, publications: Batch) -> tuple[int, NDArray[np.int64]]:
        """Pairs (publication, filter) in one array."""
        matrix = self._conditions.matrix(publications)
        pairs = self._kernel(matrix, *self._arrays, self._counter, self._found)
        if pairs > len(self._found):
            # Twice the room, so that a run seldom meets this more than once.
            self._found = np.zeros((2 * pairs, 2), dtype=np.int64)
            pairs = self._kernel(matrix, *self._arrays, self._counter, self._found)
        return len(publications), self._found[:pairs].copy()

    def plain(self, answer: tuple[int, NDArray[np.int64]]) -> list[set[int]]:
        """As sets."""
        count, pairs = answer
        sets: list[set[int]] = [set() for _ in range(count)]
        for row, number in pairs.tolist():
            sets[row].add(number)
        return sets


@dataclass(frozen=True, slots=True)
class _Intervals:
    """One attribute's value line cut into intervals, and the intervals each condition touches."""

    cuts: FloatArray
    exact: bool
    filters: NDArray[np.int64]
    first: NDArray[np.int64]
    last: NDArray[np.int64]

    @property
    def rows(self) -> int:
        """The intervals, and one row more for publications without the attribute."""
        return len(self.cuts) + 2

    def row_of(self, values: FloatArray) -> NDArray[np.int64]:
        """The row of each value; NaN, an absent attribute, has the last."""
        row = np.searchsorted(self.cuts, values, side="right")
        return np.where(np.isnan(values), self.rows - 1, row)


def _cut(conditions: Conditions, column: int, owner: NDArray[np.int64]) -> _Intervals:
    rows = np.flatnonzero(conditions.attribute == column)
    low, high = conditions.low[rows], conditions.high[rows]
    cuts = np.unique(np.concatenate([low, np.nextafter(high, np.inf)]))
    exact = len(cuts) <= INTERVALS_EXACT_MAX
    if not exact:
        cuts = np.unique(np.quantile(cuts[np.isfinite(cuts)], np.linspace(0, 1, BUCKETS)))
    return _Intervals(
        cuts,
        exact,
        owner[rows],
        np.searchsorted(cuts, low, side="right"),
        np.searchsorted(cuts, high, side="right"),
    )


class Pyroaring(Rival):
    """Roaring bitmaps: per attribute and interval the filters that it does not rule out, AND-ed."""

    name = "pyroaring"
    title = "pyroaring bitmaps"
    answers = "matches"

    def __init__(self, conditions: Conditions, destination: NDArray[np.int64]) -> None:
        bitmap = _imported("pyroaring").BitMap
        self._conditions = conditions
        owner = conditions.owner()
        everything = bitmap(range(len(conditions)))
        self._columns = []
        for column in range(len(conditions.names)):
            cut = _cut(conditions, column, owner)
            without = everything - bitmap(cut.filters)
            by_first, by_last = _grouped(cut.first, cut.filters), _grouped(cut.last + 1, cut.filters)
            bitmaps = []
            current = without.copy()
            for row in range(cut.rows - 1):
                if row in by_last:
                    current = current - bitmap(by_last[row])
                if row in by_first:
                    current = current | bitmap(by_first[row])
                bitmaps.append(current)
            self._columns.append((cut, [*bitmaps, without]))
        self._exact = all(cut.exact for cut, _ in self._columns)

    def run(self, publications: Batch) -> list[Any]:
        """Numbers of the matching filters, as bitmaps or arrays."""
        matrix = self._conditions.matrix(publications)
        rows = np.stack(
            [cut.row_of(matrix[:, column]) for column, (cut, _) in enumerate(self._columns)], axis=1
        )
        answer: list[Any] = []
        for number, row in enumerate(rows.tolist()):
            chosen = [bitmaps[each] for each, (_, bitmaps) in zip(row, self._columns, strict=True)]
            # The smallest first: what it rules out need not be looked at again.
            chosen.sort(key=len)
            found = chosen[0]
            for each in chosen[1:]:
                found = found & each
            answer.append(found if self._exact else self._checked(found, matrix[number]))
        return answer

    def _checked(self, found: Any, values: FloatArray) -> NDArray[np.int64]:
        """The candidates whose own bounds hold: buckets may let too many through."""
        conditions = self._conditions
        candidates = np.array(found.to_array(), dtype=np.int64)
        if not len(candidates):
            return candidates
        begin = conditions.start[candidates]
        length = conditions.start[candidates + 1] - begin
        first = np.concatenate([[0], np.cumsum(length)[:-1]])
        rows = np.repeat(begin - first, length) + np.arange(length.sum())
        value = values[conditions.attribute[rows]]
        holds = (conditions.low[rows] <= value) & (value <= conditions.high[rows])
        kept: NDArray[np.int64] = candidates[np.logical_and.reduceat(holds, first)]
        return kept

    def plain(self, answer: list[Any]) -> list[set[int]]:
        """As sets."""
        return [{int(number) for number in found} for found in answer]


class BitmapDestinations(Rival):
    """Packed bitmaps AND-ed by a compiled kernel, reduced to destinations."""

    name = "bitmap_destinations"
    title = "packed bitmaps (numba), destinations"
    answers = "destinations"

    def __init__(self, conditions: Conditions, destination: NDArray[np.int64]) -> None:
        self._kernel = _compiled(self._kernel_name)
        self._conditions = conditions
        owner = conditions.owner()
        self._cuts = [_cut(conditions, column, owner) for column in range(len(conditions.names))]
        self._exact = all(cut.exact for cut in self._cuts)
        # A destination begins at a word of its own, so that no word belongs to two.
        sizes = np.bincount(destination)
        words = (sizes + 63) // 64
        self._group_start = np.concatenate([[0], np.cumsum(words)]).astype(np.int64)
        order = np.argsort(destination, kind="stable")
        within = np.arange(len(order)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
        bit = np.zeros(len(order), dtype=np.int64)
        bit[order] = self._group_start[destination[order]] * 64 + within
        total_words = int(self._group_start[-1])
        bytes_needed = sum(cut.rows for cut in self._cuts) * total_words * 8
        if bytes_needed > BITMAP_BYTES_MAX:
            raise ConfigurationError(f"its bitmaps would take {bytes_needed / 2**30:.1f} GiB")
        self._filter_of_bit = np.zeros(total_words * 64, dtype=np.int64)
        self._filter_of_bit[bit] = np.arange(len(order))
        self._bitmaps = np.concatenate([_packed(cut, bit, total_words) for cut in self._cuts])
        self._first_row = np.cumsum([0, *(cut.rows for cut in self._cuts)])
        self._powers = np.left_shift(np.uint64(1), np.arange(64, dtype=np.uint64))
        # The powers of two differ modulo 67, which finds the place of a single bit.
        self._bit_of_residue = np.zeros(67, dtype=np.int64)
        self._bit_of_residue[(self._powers % np.uint64(67)).astype(np.int64)] = np.arange(64)

    _kernel_name: ClassVar[str] = "bitmap_destinations"

    @classmethod
    def beside(cls, others: Sequence[Rival], conditions: Conditions, destination: NDArray[np.int64]) -> Rival:
        """The bitmaps of a sibling serve as well."""
        for other in others:
            if isinstance(other, BitmapDestinations):
                rival = cls.__new__(cls)
                rival.__dict__.update(other.__dict__)
                rival._kernel = _compiled(cls._kernel_name)
                return rival
        return cls(conditions, destination)

    def run(self, publications: Batch) -> NDArray[np.uint64]:
        """A bit per destination."""
        return self._answer(self._conditions.matrix(publications))

    def _answer(self, matrix: FloatArray) -> NDArray[np.uint64]:
        answer = np.zeros(len(matrix), dtype=np.uint64)
        self._kernel(
            matrix, self._bitmaps, self._chosen(matrix), self._exact, self._group_start, *self._tail(), answer
        )
        return answer

    def _chosen(self, matrix: FloatArray) -> NDArray[np.int64]:
        rows = [cut.row_of(matrix[:, column]) for column, cut in enumerate(self._cuts)]
        chosen: NDArray[np.int64] = np.stack(rows, axis=1) + self._first_row[:-1]
        return chosen

    def _tail(self) -> tuple[Any, ...]:
        conditions = self._conditions
        return (
            self._powers,
            self._bit_of_residue,
            self._filter_of_bit,
            conditions.start,
            conditions.attribute,
            conditions.low,
            conditions.high,
        )

    def plain(self, answer: NDArray[Any]) -> list[Any]:
        """As sets."""
        return [{group for group in range(64) if bits >> group & 1} for bits in answer.tolist()]


class BitmapDestinationsOfMatrix(BitmapDestinations):
    """The same kernel, given the publications as a matrix of numbers: what decoding costs."""

    name = "bitmap_destinations_of_matrix"
    title = "packed bitmaps (numba), destinations, publications given as a matrix"

    def prepare(self, publications: Batch) -> FloatArray:
        """The matrix, made before the clock starts."""
        return self._conditions.matrix(publications)

    def run(self, publications: FloatArray) -> NDArray[np.uint64]:  # type: ignore[override]
        """A bit per destination."""
        return self._answer(publications)


class BitmapCount(BitmapDestinations):
    """The same bitmaps, counting every match."""

    name = "bitmap_count"
    title = "packed bitmaps (numba), counts"
    answers = "counts"
    _kernel_name = "bitmap_count"

    def _answer(self, matrix: FloatArray) -> NDArray[Any]:
        answer = np.zeros(len(matrix), dtype=np.int64)
        self._kernel(matrix, self._bitmaps, self._chosen(matrix), self._exact, *self._tail(), answer)
        return answer

    def plain(self, answer: NDArray[Any]) -> list[Any]:
        """As integers."""
        numbers: list[Any] = answer.tolist()
        return numbers


def _packed(cut: _Intervals, bit: NDArray[np.int64], words: int) -> NDArray[np.uint64]:
    """One row of bits per interval: filters that do not ask about the attribute are in every row."""
    lowest, highest = 0, cut.rows
    first = np.full(words * 64, highest, dtype=np.int16)
    last = np.full(words * 64, lowest - 1, dtype=np.int16)
    first[bit], last[bit] = lowest, highest
    first[bit[cut.filters]], last[bit[cut.filters]] = cut.first, cut.last
    # The last row, for an absent attribute, lies beyond every condition.
    rows = np.arange(cut.rows, dtype=np.int16)[:, np.newaxis]
    packed = np.zeros((cut.rows, words * 8), dtype=np.uint8)
    # A slice of the filters at a time keeps the unpacked matrix small.
    step = 1 << 14
    for begin in range(0, words * 64, step):
        here = slice(begin, begin + step)
        bits = (first[here] <= rows) & (rows <= last[here])
        packed[:, begin // 8 : (begin + step) // 8] = np.packbits(bits, axis=1, bitorder="little")
    return packed.view(np.uint64)


def _grouped(keys: NDArray[np.int64], values: NDArray[np.int64]) -> dict[int, NDArray[np.int64]]:
    order = np.argsort(keys, kind="stable")
    unique, begin = np.unique(keys[order], return_index=True)
    return dict(zip(unique.tolist(), np.split(values[order], begin[1:]), strict=True))


@lru_cache
def _compiled(name: str) -> Any:
    # Kept on disk where the benchmark says so: its processes then compile once between them.
    keep = "NUMBA_CACHE_DIR" in os.environ
    return _imported("numba").njit(getattr(kernels, name), cache=keep)


def _imported(package: str) -> Any:
    try:
        return importlib.import_module(package)
    except ImportError:
        raise ConfigurationError(f"{package} is not installed") from None


RIVALS: tuple[type[Rival], ...] = (
    Naive,
    NaiveDestinations,
    Counting,
    CountingNumpy,
    Pyroaring,
    BitmapDestinations,
    BitmapDestinationsOfMatrix,
    BitmapCount,
)
