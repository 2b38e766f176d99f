"""What would matching look like in compiled code?

Plain loops over arrays, written for numba and correct (if slow) without it. They are rivals for the
benchmark only: Braid itself does not use them.
"""

from __future__ import annotations

from typing import Any

__all__ = ["bitmap_count", "bitmap_destinations", "counting_matches"]

# Untyped on purpose: numba compiles them for the arrays it is given.


def counting_matches(
    matrix: Any,
    equal_values: Any,
    equal_start: Any,
    equal_filters: Any,
    range_low: Any,
    range_high: Any,
    range_filters: Any,
    needed: Any,
    offsets: Any,
    counter: Any,
    found: Any,
) -> int:
    """The counting algorithm: satisfied conditions per filter; those that reach `needed` match.

    Per attribute, equalities are looked up and ranges, sorted by their lower end, are walked as far
    as the value. `offsets[a]` says where attribute a's equal values, equal filters and ranges begin.
    Writes pairs (publication, filter) to `found` and returns how many there are; when `found` is
    full, it only counts on.
    """
    pairs = 0
    for row in range(matrix.shape[0]):
        counter[:] = 0
        for column in range(matrix.shape[1]):
            value = matrix[row, column]
            if value != value:
                continue
            first, last = offsets[column, 0], offsets[column + 1, 0]
            while first < last:
                middle = (first + last) // 2
                if equal_values[middle] < value:
                    first = middle + 1
                else:
                    last = middle
            if first < offsets[column + 1, 0] and equal_values[first] == value:
                for position in range(equal_start[first], equal_start[first + 1]):
                    counter[equal_filters[position]] += 1
            first, last = offsets[column, 1], offsets[column + 1, 1]
            while first < last:
                middle = (first + last) // 2
                if range_low[middle] <= value:
                    first = middle + 1
                else:
                    last = middle
            # Adding the comparison itself spares a branch that no processor could foresee.
            for position in range(offsets[column, 1], first):
                counter[range_filters[position]] += value <= range_high[position]
        for each in range(needed.shape[0]):
            if counter[each] == needed[each]:
                if pairs < found.shape[0]:
                    found[pairs, 0] = row
                    found[pairs, 1] = each
                pairs += 1
    return pairs


def bitmap_destinations(
    matrix: Any,
    bitmaps: Any,
    chosen: Any,
    exact: bool,
    group_start: Any,
    powers: Any,
    bit_of_residue: Any,
    filter_of_bit: Any,
    start: Any,
    attribute: Any,
    low: Any,
    high: Any,
    answer: Any,
) -> None:
    """Destinations (a bit each, at most 64) with a matching filter, per publication.

    Per attribute the bitmap row of the value's interval is chosen; the rows are AND-ed word by word.
    A destination's filters lie next to each other, so its words are only read until one matches.
    Where rows are not exact, each set bit is checked against the filter's own bounds. `powers` are
    the 64 powers of two; all arithmetic on words stays among unsigned numbers that way.
    """
    one, zero, modulus = powers[0], powers[0] ^ powers[0], powers[6] + powers[1] + powers[0]
    for row in range(matrix.shape[0]):
        destinations = zero
        for group in range(group_start.shape[0] - 1):
            hit = False
            for word in range(group_start[group], group_start[group + 1]):
                bits = bitmaps[chosen[row, 0], word]
                for column in range(1, matrix.shape[1]):
                    bits &= bitmaps[chosen[row, column], word]
                hit = exact and bits != zero
                while bits != zero and not hit:
                    rest = bits & (bits - one)
                    each = filter_of_bit[word * 64 + bit_of_residue[(bits ^ rest) % modulus]]
                    bits = rest
                    hit = True
                    for condition in range(start[each], start[each + 1]):
                        value = matrix[row, attribute[condition]]
                        if not (low[condition] <= value <= high[condition]):
                            hit = False
                            break
                if hit:
                    break
            if hit:
                destinations |= powers[group]
        answer[row] = destinations


def bitmap_count(
    matrix: Any,
    bitmaps: Any,
    chosen: Any,
    exact: bool,
    powers: Any,
    bit_of_residue: Any,
    filter_of_bit: Any,
    start: Any,
    attribute: Any,
    low: Any,
    high: Any,
    answer: Any,
) -> None:
    """Matching filters per publication, from the same bitmaps."""
    one, zero, modulus = powers[0], powers[0] ^ powers[0], powers[6] + powers[1] + powers[0]
    for row in range(matrix.shape[0]):
        total = 0
        for word in range(bitmaps.shape[1]):
            bits = bitmaps[chosen[row, 0], word]
            for column in range(1, matrix.shape[1]):
                bits &= bitmaps[chosen[row, column], word]
            while bits != zero:
                rest = bits & (bits - one)
                total += 1
                if not exact:
                    each = filter_of_bit[word * 64 + bit_of_residue[(bits ^ rest) % modulus]]
                    for condition in range(start[each], start[each + 1]):
                        value = matrix[row, attribute[condition]]
                        if not (low[condition] <= value <= high[condition]):
                            total -= 1
                            break
                bits = rest
        answer[row] = total
