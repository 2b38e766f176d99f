"""Which of the filters that are not in a segment yet does each publication satisfy?

For a few publications each waiting filter is simply evaluated. For more, the bounds of all plain
filters (one box of number intervals and wanted strings, which is most of them) are held against whole
columns at once, and only the others are evaluated one by one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from braid.matching.axis import plain_numbers
from braid.matching.columns import LARGE, NUMBER, Batch, BoolArray, IntArray
from braid.matching.lookup import Interner

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    import numpy.typing as npt

    from braid.language.filters import Filter
    from braid.language.value_sets import ValueSet
    from braid.matching.answers import Answer

__all__ = ["FEW_PUBLICATIONS", "Tail"]

# Up to so many publications plain evaluation is quicker than arrays.
FEW_PUBLICATIONS = 8


class _Bounds(NamedTuple):
    """The bounds on one attribute: of which waiting filters, and which."""

    numbers: tuple[IntArray, npt.NDArray[np.int64], npt.NDArray[np.int64]]
    """Rows with an interval of ordinals each."""
    words: tuple[IntArray, npt.NDArray[np.int64]]
    """Rows that want one string each, by its code."""
    codes: Interner


class _Arranged(NamedTuple):
    slots: IntArray
    """The slot of each plain filter; a row is a place in this array."""
    bounds: dict[str, _Bounds]
    others: list[tuple[int, Filter]]


class Tail:
    """Filters that wait for their segment, by slot."""

    def __init__(self) -> None:
        self._waiting: dict[int, Filter] = {}
        self._arranged: _Arranged | None = None

    def __len__(self) -> int:
        return len(self._waiting)

    def __iter__(self) -> Iterator[int]:
        return iter(self._waiting)

    def __contains__(self, slot: int) -> bool:
        return slot in self._waiting

    def add(self, slot: int, filter: Filter) -> None:
        """One more filter waits."""
        self._waiting[slot] = filter
        self._arranged = None

    def remove(self, slot: int) -> None:
        """The filter in this slot waits no longer."""
        del self._waiting[slot]
        self._arranged = None

    def clear(self) -> None:
        """Nothing waits any more."""
        self._waiting.clear()
        self._arranged = None

    def match(self, batch: Batch, answer: Answer) -> None:
        """Find the matches of a batch; with more than a few publications it must be without ranges."""
        if len(batch) <= FEW_PUBLICATIONS:
            _evaluate(self._waiting.items(), batch, answer)
            return
        if self._arranged is None:
            self._arranged = _arrange(self._waiting)
        slots, bounds, others = self._arranged
        satisfied = np.ones((len(slots), len(batch)), np.bool_)
        for name, bound in bounds.items():
            rows, lows, highs = bound.numbers
            if len(rows):
                satisfied[rows] &= _inside(batch, name, lows, highs)
            rows, wanted = bound.words
            if len(rows):
                codes = bound.codes.codes_of(batch.column(name).values)
                satisfied[rows] &= codes == wanted[:, np.newaxis]
        found, publications = np.nonzero(satisfied)
        answer.add_pairs(publications, slots[found], once=True)
        _evaluate(others, batch, answer)


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


def _inside(batch: Batch, name: str, lows: npt.NDArray[np.int64], highs: npt.NDArray[np.int64]) -> BoolArray:
    column = batch.column(name)
    numeric = (column.kinds == NUMBER) | (column.kinds == LARGE)
    above = column.ordinals >= lows[:, np.newaxis]
    return np.asarray(above & (column.ordinals < highs[:, np.newaxis]) & numeric)


def _arrange(waiting: dict[int, Filter]) -> _Arranged:
    slots: list[int] = []
    others: list[tuple[int, Filter]] = []
    numbers: dict[str, list[tuple[int, int, int]]] = {}
    words: dict[str, list[tuple[int, str]]] = {}
    for slot, each in waiting.items():
        if len(each.terms) != 1 or each.terms[0].residual:
            others.append((slot, each))
            continue
        box = [(name, plain_numbers(values), _word(values)) for name, values in each.terms[0].box.items()]
        if any(plain is None and word is None for _, plain, word in box):
            others.append((slot, each))
            continue
        for name, plain, word in box:
            if plain is not None:
                numbers.setdefault(name, []).append((len(slots), *plain))
            elif word is not None:
                words.setdefault(name, []).append((len(slots), word))
        slots.append(slot)
    names = numbers.keys() | words.keys()
    bounds = {name: _bounds(numbers.get(name, []), words.get(name, [])) for name in sorted(names)}
    return _Arranged(np.array(slots, np.int64), bounds, others)


def _word(values: ValueSet) -> str | None:
    """The one string a set consists of."""
    if values.null or values.booleans or values.integers or values.floats or len(values.strings) != 1:
        return None
    low, high = values.strings[0]
    return str(low) if high == low + "\0" else None


def _bounds(numbers: list[tuple[int, int, int]], words: list[tuple[int, str]]) -> _Bounds:
    interner = Interner()
    intervals = np.array(numbers, np.int64).reshape(-1, 3)
    wanted = np.array([(row, interner.code(word)) for row, word in words], np.int64).reshape(-1, 2)
    return _Bounds(
        (intervals[:, 0], intervals[:, 1], intervals[:, 2]), (wanted[:, 0], wanted[:, 1]), interner
    )
