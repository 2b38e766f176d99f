"""Which publications give a filter away?

Whatever covers a filter accepts every publication in the filter's boxes. So a few corners of one box,
matched against an index of filters, leave only candidates that may cover it. With a residual a corner
need not satisfy the filter itself, only its box; it still finds every candidate without residuals.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from braid.language.value_sets import BOOLEAN_LINE, FLOAT_LINE, INTEGER_LINE, ValueSet
from braid.language.values import Scalar, ordinal_before, ordinal_to_float

if TYPE_CHECKING:
    from collections.abc import Callable

    from braid.language.filters import Filter
    from braid.language.intervals import Intervals

__all__ = ["witnesses"]


def witnesses(filter: Filter) -> list[dict[str, Scalar]]:
    """One or two publications that every filter which covers this one must accept.

    None when nothing can satisfy the filter. The two are opposite corners of the first box: between
    ranges that overlap without covering each other, one corner alone would tell little.
    """
    if not filter.terms:
        return []
    lower: dict[str, Scalar] = {}
    upper: dict[str, Scalar] = {}
    for name, values in filter.terms[0].box.items():
        low, high = _corners(values)
        if low is not None:
            lower[name] = low
        if high is not None:
            upper[name] = high
    return [lower] if lower == upper else [lower, upper]


def _corners(values: ValueSet) -> tuple[Scalar | None, Scalar | None]:
    """Two values at the ends of a set, None standing for an absent attribute."""
    low: Scalar | None = None
    high: Scalar | None = None
    # Doubles before integers: `share > 0.5` and `share > 0.1` begin with the same integer.
    if values.floats:
        first, last = _ends(values.floats, FLOAT_LINE, ordinal_before)
        low, high = ordinal_to_float(first), ordinal_to_float(last)
    elif values.integers:
        low, high = _ends(values.integers, INTEGER_LINE)
    elif values.strings:
        # The last string before another one has no end, so the beginnings must do.
        low, high = str(values.strings[0][0]), str(values.strings[-1][0])
    elif values.booleans:
        first, last = _ends(values.booleans, BOOLEAN_LINE)
        low, high = bool(first), bool(last)
    return low, None if values.null else high


def _ends(
    intervals: Intervals, line: tuple[Any, Any], before: Callable[[int], int] = lambda place: place - 1
) -> tuple[int, int]:
    """The ends of a set of numbers; an end of the whole line tells nothing, so the other one is taken."""
    low: int = intervals[0][0] if intervals[0][0] != line[0] else before(intervals[0][1])
    high: int = before(intervals[-1][1]) if intervals[-1][1] != line[1] else intervals[-1][0]
    return low, high
