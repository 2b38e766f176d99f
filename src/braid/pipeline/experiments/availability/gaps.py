"""Measures of what readers noticed: pauses, order, and the slope of a line.

They are computed from times on one clock and from the numbers that came, of real runs or made-up ones.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from itertools import pairwise
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from braid.pipeline.experiments.availability.real_brokers import Stream

__all__ = ["added_pause", "longest_gap", "mean", "median", "ordering_degree", "slope"]


def added_pause(streams: Sequence[Stream], from_s: float, to_s: float, quiet_s: tuple[float, float]) -> float:
    """The longest gap between two moments at any reader, minus the longest in an equal time of quiet.

    Times of quiet are cut from a stretch in which nothing was done to the network, as many as it has; the
    median of their longest gaps counts. A longer operation than that stretch is compared with all of it.
    """
    length_s = min(to_s - from_s, quiet_s[1] - quiet_s[0])
    usual = []
    at_s = quiet_s[1]
    # Rounding must not cost the only window that there is.
    while length_s > 0 and at_s - length_s >= quiet_s[0] - 1e-6:
        usual.append(longest_gap(streams, at_s - length_s, at_s))
        at_s -= length_s
    return longest_gap(streams, from_s, to_s) - median(usual)


def longest_gap(streams: Sequence[Stream], from_s: float, to_s: float) -> float:
    """The longest time without anything at any of some readers, if part of it is between two moments."""
    longest = 0.0
    for stream in streams:
        read_at_s = stream.read_at_s
        first = max(bisect_right(read_at_s, from_s) - 1, 0)
        last = bisect_left(read_at_s, to_s)
        for before_s, at_s in pairwise(read_at_s[first : last + 1]):
            longest = max(longest, at_s - before_s)
    return longest


def ordering_degree(numbers: Sequence[int]) -> float:
    """The paper's measure of order, 1 if there is nothing wrong: the sum of (S - D) f(D) over S squared.

    S is how many came, D how far one is from its place among those that came, f(D) how many are that far.
    """
    size = len(numbers)
    if not size:
        return 1.0
    place = {number: wanted for wanted, number in enumerate(sorted(set(numbers)))}
    return sum(size - min(size, abs(place[number] - at)) for at, number in enumerate(numbers)) / size**2


def mean(values: Sequence[float]) -> float:
    """The mean; 0 of nothing."""
    return sum(values) / len(values) if values else 0.0


def median(values: Sequence[float]) -> float:
    """The median; 0 of nothing."""
    ordered = sorted(values)
    middle = len(ordered) // 2
    if len(ordered) % 2:
        return ordered[middle]
    return (ordered[middle - 1] + ordered[middle]) / 2 if ordered else 0.0


def slope(points: Sequence[tuple[float, float]]) -> float:
    """The slope of the line nearest to some points."""
    mean_x, mean_y = (mean([point[axis] for point in points]) for axis in (0, 1))
    spread = sum((x - mean_x) ** 2 for x, _ in points)
    return sum((x - mean_x) * (y - mean_y) for x, y in points) / spread if spread else 0.0
