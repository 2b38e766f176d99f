"""Which few filters want exactly this value?

Most filters of a large set often ask for one value of some attribute (`symbol = 'ACME' AND ...`).
They are then found by that value: a table lists the filters of each value, and only those are looked
at, pair by pair, on the bounds they have beyond it.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
import numpy.typing as npt

from braid.language.values import Value, float_to_ordinal
from braid.matching.columns import LARGE, NUMBER, Batch, BoolArray, IntArray

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from braid.matching.answers import Answer
    from braid.matching.lookup import Lookup, SecondLook, SingleLook
    from braid.matching.single import SingleAnswer

__all__ = ["PointTable", "SortKeys"]

_Ordinals = TypeVar("_Ordinals", "npt.NDArray[np.int64]", int)

# So many candidates at a time, to bound the memory of the intermediate arrays.
CANDIDATES_AT_ONCE = 200_000


class SortKeys:
    """An order of a table's rows by one bound, so that those beyond a publication's value are skipped.

    Rows with `low <= value` come first when sorted by `low`, rows with `value < high` when sorted by
    `~high`, which turns the order around.
    """

    __slots__ = ("_upper", "name", "values")

    def __init__(self, name: str, upper: bool, values: npt.NDArray[np.int64]) -> None:
        self.name = name
        self._upper = upper
        self.values = values

    @classmethod
    def chosen(cls, names: Sequence[str], bounds: npt.NDArray[np.int64]) -> SortKeys | None:
        """By the bound with the most different values among those of each row: bounds[row, name, end]."""
        best: SortKeys | None = None
        most = 1
        for at, name in enumerate(names):
            for end in (0, 1):
                different = len(np.unique(bounds[:, at, end]))
                if different > most:
                    most = different
                    best = cls(name, end == 1, ~bounds[:, at, 1] if end else bounds[:, at, 0])
        return best

    def ordered(self, order: IntArray) -> SortKeys:
        """The same keys for rows in another order."""
        return SortKeys(self.name, self._upper, self.values[order])

    def wanted(self, ordinals: _Ordinals) -> _Ordinals:
        """Up to which key the rows can accept these values, or this one."""
        return ~ordinals - 1 if self._upper else ordinals


class PointTable:
    """Filters by the value they want, with the same attributes bounded beyond it.

    Its rows stand side by side in the segment, and among them those that want the same value.
    """

    __slots__ = (
        "_codes",
        "_first_row",
        "_keys",
        "_levels",
        "_places",
        "_repeated",
        "_slots",
        "_starts",
        "_uncertain",
        "name",
        "numbers",
        "points",
    )

    def __init__(
        self,
        name: str,
        codes: npt.NDArray[np.int64],
        first_row: int,
        slots: npt.NDArray[np.int32],
        numbers: Sequence[tuple[str, npt.NDArray[np.int64], npt.NDArray[np.int64]]],
        points: Sequence[tuple[str, npt.NDArray[np.int32]]],
        uncertain: BoolArray,
        *,
        repeated: bool = False,
        keys: SortKeys | None = None,
    ) -> None:
        """
        Args:
            name: the attribute whose value decides.
            codes: the wanted value of each row, ascending.
            first_row: where in the segment the rows begin.
            slots: the filter of each row.
            numbers: further attributes with an interval of ordinals per row.
            points: further attributes with a wanted value per row.
            uncertain: which rows have conditions beyond all these.
            repeated: whether some row's filter has further boxes.
            keys: what the rows that want the same value are sorted by, ascending.
        """
        self.name = name
        unique, starts = np.unique(codes, return_index=True)
        self._codes = unique.astype(np.int32)
        self._starts = np.append(starts, len(codes))
        self._first_row = first_row
        self._slots = slots
        self.numbers = list(numbers)
        self.points = list(points)
        self._uncertain = uncertain if uncertain.any() else None
        self._repeated = repeated
        self._keys = keys
        if keys is not None:
            # One ascending array over all codes, to be searched for (code, key) in one go.
            self._levels, level = np.unique(keys.values, return_inverse=True)
            self._places = np.repeat(np.arange(len(unique)), np.diff(self._starts)) * (len(self._levels) + 1)
            self._places += level

    def match(
        self,
        lookup: Lookup,
        answer: Answer,
        dead: BoolArray | None,
        second_look: SecondLook,
    ) -> None:
        """Find the matches of a batch. `dead` is by row of the segment, and so is `second_look`."""
        publications, place = self._concerned(lookup)
        if not len(publications):
            return
        counts = self._ends(lookup, publications, place) - self._starts[place]
        reached = np.cumsum(counts)
        first = 0
        while first < len(publications):
            done = int(reached[first - 1]) if first else 0
            last = max(first + 1, int(np.searchsorted(reached, done + CANDIDATES_AT_ONCE, side="right")))
            some = slice(first, last)
            chosen = np.repeat(publications[some], counts[some])
            begins = self._starts[place[some]] - (reached[some] - counts[some] - done)
            rows = np.repeat(begins, counts[some]) + np.arange(len(chosen))
            self._decide(answer, dead, second_look, *self._inside(lookup, chosen, rows))
            first = last

    def match_one(
        self,
        attributes: Mapping[str, Value | None],
        codes: Mapping[str, int],
        answer: SingleAnswer,
        dead: BoolArray | None,
        second_look: SingleLook,
    ) -> None:
        """Find the matches of one publication; `codes` are those of its values for `coded_names`."""
        some = self._candidates_for(attributes, codes)
        if some is None:
            return
        rows, inside = some
        if dead is not None:
            inside &= ~dead[rows.start + self._first_row : rows.stop + self._first_row]
        if self._uncertain is not None:
            doubts = inside & self._uncertain[rows]
            inside ^= doubts
            answer.add_slots(
                [
                    int(self._slots[row])
                    for row in (doubts.nonzero()[0] + rows.start).tolist()
                    if second_look(row + self._first_row, True)
                ]
            )
        answer.add_slots(self._slots[rows][inside].tolist())

    @property
    def names(self) -> set[str]:
        """The attributes the table looks at."""
        return self.coded_names.union(name for name, _, _ in self.numbers)

    @property
    def coded_names(self) -> set[str]:
        """Those among them that it looks at by the code of their value."""
        return {self.name, *(name for name, _ in self.points)}

    def candidates(self, code: int | None) -> IntArray:
        """The rows of the segment that want this value; all rows for None."""
        first, last = 0, len(self._slots)
        if code is not None:
            first, last = self._wanting(code)
        return np.arange(first, last) + self._first_row

    @property
    def bytes(self) -> int:
        """Memory of the arrays."""
        arrays: list[npt.NDArray[Any]] = [self._codes, self._starts, self._slots]
        arrays += [array for _, lows, highs in self.numbers for array in (lows, highs)]
        arrays += [codes for _, codes in self.points]
        arrays += [] if self._keys is None else [self._levels, self._places, self._keys.values]
        return sum(array.nbytes for array in arrays) + (
            0 if self._uncertain is None else self._uncertain.nbytes
        )

    def _wanting(self, code: int) -> tuple[int, int]:
        """The first row that wants this value and the one behind the last."""
        place = bisect_left(self._codes.data, code)
        if place == len(self._codes) or self._codes[place] != code:
            return 0, 0
        starts = self._starts.data
        return starts[place], starts[place + 1]

    def _candidates_for(
        self, attributes: Mapping[str, Value | None], codes: Mapping[str, int]
    ) -> tuple[slice, BoolArray] | None:
        """The rows that one publication has to be compared with, and which of them accept its values."""
        first, last = self._wanting(codes[self.name])
        if first == last:
            return None
        ordinals = []
        for name, _, _ in self.numbers:
            value = attributes.get(name)
            if type(value) is not float and type(value) is not int:
                return None
            ordinals.append(float_to_ordinal(value))
            if self._keys is not None and self._keys.name == name:
                last = bisect_right(self._keys.values.data, self._keys.wanted(ordinals[-1]), first, last)
        if first == last:
            return None
        rows = slice(first, last)
        bounds = zip(self.numbers, ordinals, strict=True)
        tests = [_within(lows[rows], ordinal, highs[rows]) for (_, lows, highs), ordinal in bounds]
        tests += [wanted[rows] == codes[name] for name, wanted in self.points]
        inside = tests[0] if tests else np.ones(last - first, np.bool_)
        for test in tests[1:]:
            inside &= test
        return rows, inside

    def _ends(self, lookup: Lookup, publications: IntArray, place: IntArray) -> IntArray:
        """Behind the last row that each publication needs to be compared with."""
        if self._keys is None:
            return self._starts[place + 1]
        ordinals = lookup.batch.column(self._keys.name).ordinals[publications]
        level = np.searchsorted(self._levels, self._keys.wanted(ordinals), side="right")
        return np.searchsorted(self._places, place * (len(self._levels) + 1) + level)

    def _concerned(self, lookup: Lookup) -> tuple[IntArray, IntArray]:
        batch = lookup.batch
        codes = lookup.codes(self.name)
        place = np.minimum(np.searchsorted(self._codes, codes), len(self._codes) - 1)
        mask = self._codes[place] == codes
        for name, _, _ in self.numbers:
            mask &= _numeric(batch, name)
        publications = np.flatnonzero(mask)
        return publications, place[publications]

    def _inside(self, lookup: Lookup, chosen: IntArray, rows: IntArray) -> tuple[IntArray, IntArray]:
        """The candidates within all bounds."""
        for name, lows, highs in self.numbers:
            ordinals = lookup.batch.column(name).ordinals[chosen]
            inside = _within(lows[rows], ordinals, highs[rows])
            chosen, rows = chosen[inside], rows[inside]
        for name, codes in self.points:
            inside = codes[rows] == lookup.codes(name)[chosen]
            chosen, rows = chosen[inside], rows[inside]
        return chosen, rows

    def _decide(
        self,
        answer: Answer,
        dead: BoolArray | None,
        second_look: SecondLook,
        chosen: IntArray,
        rows: IntArray,
    ) -> None:
        if dead is not None:
            alive = ~dead[rows + self._first_row]
            chosen, rows = chosen[alive], rows[alive]
        if self._uncertain is not None:
            keep = ~self._uncertain[rows]
            wanted = answer.open_questions(chosen, self._slots[rows])
            doubtful = ~keep if wanted is None else ~keep & wanted
            if doubtful.any():
                keep[doubtful] = second_look(chosen[doubtful], rows[doubtful] + self._first_row, None)
            chosen, rows = chosen[keep], rows[keep]
        answer.add_pairs(chosen, self._slots[rows], once=not self._repeated)


def _within(
    lows: npt.NDArray[np.int64], ordinals: npt.NDArray[np.int64] | int, highs: npt.NDArray[np.int64]
) -> BoolArray:
    """Whether numbers, or one number, lie in the intervals."""
    inside = lows <= ordinals
    inside &= highs > ordinals
    return inside


def _numeric(batch: Batch, name: str) -> BoolArray:
    kinds = batch.column(name).kinds
    return np.asarray((kinds == NUMBER) | (kinds == LARGE))
