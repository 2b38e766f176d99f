"""Which stretches of a line belong to a set?

A set of points on one totally ordered line, as a tuple of half-open intervals `(low, high)`: sorted,
disjoint, and with a gap between any two, so that equal sets are equal tuples. The points may be
integers (64-bit integers, or doubles by their ordinal) or strings. Half-open intervals suffice
because each line has a "next point": `x + 1` for integers, `s + "\\0"` for strings.
"""

from __future__ import annotations

from bisect import bisect_right
from itertools import chain
from typing import TYPE_CHECKING, Any, Final, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = [
    "EMPTY",
    "TOP",
    "Intervals",
    "complement",
    "contains",
    "intersection",
    "overlaps",
    "union",
    "union_of_all",
    "within",
]


class _Top:
    """Above every string; the open end of the line of strings."""

    __slots__ = ()

    def __lt__(self, other: object) -> bool:
        return False

    def __le__(self, other: object) -> bool:
        return other is self

    def __gt__(self, other: object) -> bool:
        return other is not self

    def __ge__(self, other: object) -> bool:
        return True

    def __repr__(self) -> str:
        return "TOP"

    def __reduce__(self) -> str:
        return "TOP"  # there is one TOP, also after a pickle's journey


TOP: Final = _Top()

# Points are int or str (or TOP); one set never mixes them, so they compare.
Intervals: TypeAlias = tuple[tuple[Any, Any], ...]
EMPTY: Intervals = ()


def intersection(first: Intervals, second: Intervals) -> Intervals:
    """The points in both."""
    if first == second or not first:
        return first
    if len(first) == len(second) == 1:
        low, high = max(first[0][0], second[0][0]), min(first[0][1], second[0][1])
        return ((low, high),) if low < high else EMPTY
    result: list[tuple[Any, Any]] = []
    i = j = 0
    while i < len(first) and j < len(second):
        low = max(first[i][0], second[j][0])
        if first[i][1] < second[j][1]:
            high = first[i][1]
            i += 1
        else:
            high = second[j][1]
            j += 1
        if low < high:
            result.append((low, high))
    return tuple(result)


def union(first: Intervals, second: Intervals) -> Intervals:
    """The points in at least one."""
    if not first or first == second:
        return second
    return union_of_all([first, second]) if second else first


def union_of_all(sets: Iterable[Intervals]) -> Intervals:
    """The points in at least one of many sets."""
    result: list[tuple[Any, Any]] = []
    for low, high in sorted(chain.from_iterable(sets), key=_low):
        if result and low <= result[-1][1]:
            if result[-1][1] < high:
                result[-1] = (result[-1][0], high)
        else:
            result.append((low, high))
    return tuple(result)


def complement(intervals: Intervals, line: tuple[Any, Any]) -> Intervals:
    """The points of `line` that are not in the set."""
    result: list[tuple[Any, Any]] = []
    position, end = line
    for low, high in intervals:
        if position < low:
            result.append((position, low))
        position = high
    if position < end:
        result.append((position, end))
    return tuple(result)


def within(inner: Intervals, outer: Intervals) -> bool:
    """Whether every point of the one is in the other."""
    if inner == outer or not inner:
        return True
    rest = iter(outer)
    begin, end = next(rest, (TOP, None))
    for low, high in inner:
        # Between any two there is a gap, so it is within one of them or not at all.
        while end is not None and end < high:
            begin, end = next(rest, (TOP, None))
        if end is None or low < begin:
            return False
    return True


def contains(intervals: Intervals, point: Any) -> bool:
    """Whether the point is in the set."""
    if len(intervals) == 1:
        low, high = intervals[0]
        return bool(low <= point < high)
    index = bisect_right(intervals, point, key=_low) - 1
    return index >= 0 and bool(point < intervals[index][1])


def overlaps(intervals: Intervals, low: Any, high: Any) -> bool:
    """Whether some point of `[low, high)` is in the set."""
    if not low < high:
        return False
    index = bisect_right(intervals, low, key=_low) - 1
    if index >= 0 and low < intervals[index][1]:
        return True
    return index + 1 < len(intervals) and bool(intervals[index + 1][0] < high)


def _low(interval: tuple[Any, Any]) -> Any:
    return interval[0]
