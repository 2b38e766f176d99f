"""Which of the filters that are not in a segment yet does each publication satisfy?

For a few publications and filters each filter is simply evaluated. For more, the bounds of all plain
filters (one box of number intervals and wanted strings, which is most of them) are held against whole
columns at once, and only the others are evaluated one by one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from braid.matching.answers import Pairs
from braid.matching.axis import plain_numbers
from braid.matching.columns import LARGE, NUMBER, Batch, Column
from braid.matching.lookup import Interner

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    import numpy.typing as npt

    from braid.language.filters import Filter
    from braid.language.value_sets import ValueSet
    from braid.language.values import Value
    from braid.matching.answers import Answer

__all__ = ["FEW_PUBLICATIONS", "Tail"]

# Up to so many publications, and so many pairs of one with a filter, plain evaluation is quicker than
# arrays.
FEW_PUBLICATIONS = 8
FEW_PAIRS = 128
# Evaluating a filter takes as long as so many comparisons in arrays.
EVALUATION_COST = 64
# Arrays with more rows of removed filters than of waiting ones, and at least so many, are made anew.
REMOVED_MIN = 64

# Below every interval on the number line.
_NO_NUMBER = np.int64(np.iinfo(np.int64).min)


class Tail:
    """Filters that wait for their segment, by slot."""

    def __init__(self) -> None:
        self._waiting: dict[int, Filter] = {}
        self._new: dict[int, Filter] = {}
        """Those that are not arranged yet."""
        self._others: dict[int, Filter] = {}
        """Those that must be evaluated one by one."""
        self._row_of_slot: dict[int, int] = {}
        """The row of each plain filter that is arranged."""
        self._slots = _Growing(1)
        """The slot of each row, -1 when its filter is gone."""
        self._numbers: dict[str, _Growing] = {}
        """By attribute: rows, and an interval of ordinals each."""
        self._words: dict[str, tuple[_Growing, Interner]] = {}
        """By attribute: rows, and the code of the string that each wants."""

    def __len__(self) -> int:
        return len(self._waiting)

    def __iter__(self) -> Iterator[int]:
        return iter(self._waiting)

    def __contains__(self, slot: int) -> bool:
        return slot in self._waiting

    def add(self, slot: int, filter: Filter) -> None:
        """One more filter waits."""
        self._waiting[slot] = self._new[slot] = filter

    def remove(self, slot: int) -> None:
        """The filter in this slot waits no longer."""
        del self._waiting[slot]
        self._new.pop(slot, None)
        self._others.pop(slot, None)
        row = self._row_of_slot.pop(slot, None)
        if row is not None:
            self._slots.array[0, row] = -1
            if len(self._slots) > max(REMOVED_MIN, 2 * len(self._row_of_slot)):
                self._start_again()

    def cost(self, publications: int) -> int:
        """What matching so many publications would take, in comparisons in arrays."""
        if self._is_little(publications):
            return len(self._waiting) * publications * EVALUATION_COST
        self._arrange()
        return (len(self._row_of_slot) + len(self._others) * EVALUATION_COST) * publications

    def match(self, batch: Batch, answer: Answer) -> None:
        """Find the matches of a batch without ranges."""
        if self._is_little(len(batch)):
            self.evaluate(batch, answer)
            return
        self._arrange()
        if self._row_of_slot:
            self._compare(batch, answer)
        _evaluate(self._others.items(), batch, answer)

    def evaluate(self, batch: Batch, answer: Answer) -> None:
        """Find the matches of a batch, perhaps with ranges, filter by filter."""
        _evaluate(self._waiting.items(), batch, answer)

    def matching(self, attributes: Mapping[str, Value | None]) -> list[int]:
        """The slots of the filters that one publication satisfies."""
        if not self._is_little(1):
            found = Pairs()
            self.match(Batch([attributes]), found)
            slots: list[int] = found.result()[1].tolist()
            return slots
        return [slot for slot, filter in self._waiting.items() if filter.matches(attributes)]

    def _is_little(self, publications: int) -> bool:
        return publications <= FEW_PUBLICATIONS and len(self._waiting) * publications <= FEW_PAIRS

    def _compare(self, batch: Batch, answer: Answer) -> None:
        numbers = [(batch.column(name), bounds) for name, bounds in self._numbers.items()]
        ordinals = [_ordinals(column) for column, _ in numbers]
        publications = np.arange(len(batch))
        undecided = answer.undecided(publications)
        if undecided is not None:
            publications = publications[undecided]
            if not len(publications):
                return
            ordinals = [each[publications] for each in ordinals]
        satisfied = np.empty((len(self._slots), len(publications)), np.bool_)
        satisfied[:] = self._slots.rows[0][:, np.newaxis] >= 0
        for name, (bounds, interner) in self._words.items():
            rows, wanted = bounds.rows
            codes = interner.codes_of(batch.column(name).values)[publications]
            satisfied[rows] &= codes == wanted[:, np.newaxis]
        for (_, bounds), each in zip(numbers, ordinals, strict=True):
            rows, lows, highs = bounds.rows
            inside = each >= lows[:, np.newaxis]
            inside &= each < highs[:, np.newaxis]
            satisfied[rows] &= inside
        found, lines = np.nonzero(satisfied)
        answer.add_pairs(publications[lines], self._slots.rows[0][found], once=True)

    def _arrange(self) -> None:
        """Put the bounds of new filters into the arrays."""
        if not self._new:
            return
        slots: list[tuple[int]] = []
        numbers: dict[str, list[tuple[int, int, int]]] = {}
        words: dict[str, list[tuple[int, str]]] = {}
        for slot, each in self._new.items():
            bounds = _plain_bounds(each)
            if bounds is None:
                self._others[slot] = each
                continue
            row = self._row_of_slot[slot] = len(self._slots) + len(slots)
            slots.append((slot,))
            for name, plain, word in bounds:
                if plain is not None:
                    numbers.setdefault(name, []).append((row, *plain))
                elif word is not None:
                    words.setdefault(name, []).append((row, word))
        self._new.clear()
        self._slots.extend(slots)
        for name, intervals in numbers.items():
            if name not in self._numbers:
                self._numbers[name] = _Growing(3)
            self._numbers[name].extend(intervals)
        for name, wanted in words.items():
            if name not in self._words:
                self._words[name] = _Growing(2), Interner()
            bounds_of, interner = self._words[name]
            bounds_of.extend([(row, interner.code(word)) for row, word in wanted])

    def _start_again(self) -> None:
        self._new = dict(self._waiting)
        self._others = {}
        self._row_of_slot = {}
        self._slots = _Growing(1)
        self._numbers = {}
        self._words = {}


class _Growing:
    """Rows of integers to which more are added, kept as columns side by side."""

    __slots__ = ("_used", "array")

    def __init__(self, width: int) -> None:
        self.array = np.empty((width, 16), np.int64)
        self._used = 0

    def __len__(self) -> int:
        return self._used

    @property
    def rows(self) -> npt.NDArray[np.int64]:
        """One line per column."""
        return self.array[:, : self._used]

    def extend(self, rows: Sequence[tuple[int, ...]]) -> None:
        """Add rows at the end."""
        if not rows:
            return
        needed = self._used + len(rows)
        if needed > self.array.shape[1]:
            grown = np.empty((len(self.array), max(needed, 2 * self.array.shape[1])), np.int64)
            grown[:, : self._used] = self.rows
            self.array = grown
        self.array[:, self._used : needed] = np.array(rows, np.int64).T
        self._used = needed


def _evaluate(waiting: Iterable[tuple[int, Filter]], batch: Batch, answer: Answer) -> None:
    pairs = [
        (row, slot)
        for slot, candidate in waiting
        for row, attributes in enumerate(batch.publications)
        if candidate.matches(attributes)
    ]
    if pairs:
        rows, slots = np.array(pairs, np.int64).T
        answer.add_pairs(rows, slots, once=True)


def _ordinals(column: Column) -> npt.NDArray[np.int64]:
    """The ordinals of a column, with one that no interval has where there is no number."""
    kinds = column.kinds
    return np.where((kinds == NUMBER) | (kinds == LARGE), column.ordinals, _NO_NUMBER)


def _plain_bounds(filter: Filter) -> list[tuple[str, tuple[int, int] | None, str | None]] | None:
    """An interval of numbers or a wanted string per attribute; None for a filter with anything else."""
    if len(filter.terms) != 1 or filter.terms[0].residual:
        return None
    bounds = []
    for name, values in filter.terms[0].box.items():
        plain = plain_numbers(values)
        word = _word(values) if plain is None else None
        if plain is None and word is None:
            return None
        bounds.append((name, plain, word))
    return bounds


def _word(values: ValueSet) -> str | None:
    """The one string a set consists of."""
    if values.null or values.booleans or values.integers or values.floats or len(values.strings) != 1:
        return None
    low, high = values.strings[0]
    return str(low) if high == low + "\0" else None
