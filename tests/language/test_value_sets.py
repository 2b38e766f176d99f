"""Is the algebra of value sets the algebra of sets?"""

from __future__ import annotations

import itertools
import math
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from braid.language import Filter, Range
from braid.language.evaluate import compared
from braid.language.intervals import (
    TOP,
    complement,
    contains,
    intersection,
    overlaps,
    union,
    union_of_all,
    within,
)
from braid.language.text import value_set_text
from braid.language.value_sets import (
    ANYTHING,
    NOT_NULL,
    NOTHING,
    NULL_ONLY,
    ValueSet,
    compared_with,
    integers_equal_to,
    integers_of_floats,
    strings_with_prefix,
    union_of,
    values_between,
)
from braid.language.values import (
    INT_MAX,
    INT_MIN,
    compare,
    float_to_ordinal,
    ordinal_after,
    ordinal_before,
    ordinal_to_float,
)
from tests.language.strategies import (
    BIG_INTEGERS,
    SMALL_FLOATS,
    SMALL_INTEGERS,
    SPECIAL_FLOATS,
    STRINGS,
    WILD_FLOATS,
)

INTEGERS = [*SMALL_INTEGERS, *BIG_INTEGERS]
FLOATS = [*SMALL_FLOATS, *WILD_FLOATS]
DOMAIN = [None, True, False, *INTEGERS, *FLOATS, *SPECIAL_FLOATS, *map(float, INTEGERS), *STRINGS]
LITERALS = [True, False, *INTEGERS, *FLOATS, *STRINGS]
OPERATORS = ["=", "<>", "<", "<=", ">", ">="]
LINE = (0, 13)


def members(values: ValueSet) -> list[bool]:
    return [values.accepts(value) for value in DOMAIN]


def test_between_is_two_comparisons() -> None:
    literals = [None, *LITERALS, *SPECIAL_FLOATS]
    for low, high in itertools.product(literals, literals):
        both = compared_with(">=", low).intersection(compared_with("<=", high))
        assert values_between(low, high) == both, (low, high)


def some_set(random: random.Random) -> ValueSet:
    sets = [compared_with(random.choice(OPERATORS), random.choice(LITERALS)) for _ in range(4)]
    first, second, third, fourth = sets
    kind = random.randrange(5)
    if kind == 0:
        return first.intersection(second)
    if kind == 1:
        return first.union(second).intersection(third.union(fourth))
    if kind == 2:
        return first.difference(second).union(NULL_ONLY)
    return union_of([*sets, NOTHING]) if kind == 3 else first


@pytest.mark.parametrize("operator", OPERATORS)
def test_a_comparison_is_the_set_of_values_that_satisfy_it(operator: str) -> None:
    for literal in LITERALS:
        accepted = compared_with(operator, literal)
        for value in DOMAIN:
            assert accepted.accepts(value) is (compared(operator, value, literal) is True), (value, literal)


def test_a_comparison_with_null_is_empty() -> None:
    assert not compared_with("<>", None)


@given(st.randoms(use_true_random=False))
def test_the_algebra_is_that_of_sets(random: random.Random) -> None:
    first, second = some_set(random), some_set(random)
    ours, theirs = members(first), members(second)
    pairs = list(zip(ours, theirs, strict=True))
    assert members(first.intersection(second)) == [a and b for a, b in pairs]
    assert members(first.union(second)) == [a or b for a, b in pairs]
    assert members(first.difference(second)) == [a and not b for a, b in pairs]
    assert members(first.complement()) == [not a for a in ours]
    assert first.complement().complement() == first
    assert first.covers(second) is (not second.difference(first))
    assert first.disjoint(second) is (not first.intersection(second))
    assert first.union(second) == union_of([second, first])
    for values in (first, second, first.complement(), first.difference(second)):
        if values:
            assert values.accepts(values.example())


@given(st.randoms(use_true_random=False))
def test_a_set_can_be_written_down_and_read_again(random: random.Random) -> None:
    values = some_set(random)
    text, _ = value_set_text("v", values)
    terms = Filter(text).terms
    if not values:
        assert terms == ()
    else:
        (term,) = terms
        assert term.box.get("v", ANYTHING) == values
        assert not term.residual


def test_everything_and_nothing() -> None:
    assert not NOTHING
    assert NOTHING.complement() == ANYTHING
    assert NOT_NULL.union(NULL_ONLY) == ANYTHING
    assert all(members(ANYTHING))
    assert NULL_ONLY.example() is None
    assert not ANYTHING.accepts(object())  # type: ignore[arg-type]


class Celsius(float):
    """A subclass, such as NumPy's float64."""


def test_subclasses_are_taken_for_what_they_are() -> None:
    assert compared_with(">", 3).accepts(Celsius(4.0))
    assert not compared_with(">", 3).accepts(Celsius(2.0))


@pytest.mark.parametrize("prefix", ["", "a", "a\U0010ffff", "\U0010ffff", "\ud7ff", "a\0"])
def test_a_prefix_is_an_interval(prefix: str) -> None:
    strings = [*STRINGS, *(prefix + text for text in STRINGS), "b", "\ue000"]
    accepted = strings_with_prefix(prefix)
    assert [accepted.accepts(text) for text in strings] == [text.startswith(prefix) for text in strings]


@pytest.mark.parametrize("value", [*FLOATS, *map(float, BIG_INTEGERS), math.inf, -math.inf, math.nan])
def test_integers_that_equal_a_double_are_all_found(value: float) -> None:
    low, high = integers_equal_to(value)
    for integer in (low - 1, low, high - 1, high):
        if INT_MIN <= integer <= INT_MAX:
            assert (low <= integer < high) is (compare(integer, value) == 0), integer
    ordinal = float_to_ordinal(value)
    assert integers_of_floats(((ordinal, ordinal + 1),)) == (((low, high),) if low < high else ())


def test_ordinals_are_the_order_of_doubles() -> None:
    ordered = sorted({*FLOATS, *map(float, BIG_INTEGERS), math.inf, -math.inf})
    ordinals = [float_to_ordinal(value) for value in ordered]
    assert ordinals == sorted(ordinals)
    assert ordinals[-1] < float_to_ordinal(math.nan)
    assert float_to_ordinal(-0.0) == float_to_ordinal(0.0) == 0
    for value in ordered:
        assert ordinal_to_float(float_to_ordinal(value)) == value
        if value < math.inf:
            above = ordinal_to_float(ordinal_after(float_to_ordinal(value)))
            assert above == math.nextafter(value, math.inf)
            assert ordinal_before(float_to_ordinal(above)) == float_to_ordinal(value)


@pytest.mark.parametrize(
    "extent",
    [
        Range(0, 0), Range(-1.5, 2), Range(0.25, 0.75), Range(2**53 + 1, 2**53 + 1), Range(-4, 2**53 + 3),
        Range(INT_MAX, INT_MAX), Range(INT_MIN, INT_MIN), Range(-math.inf, math.inf), Range(1e19, 1e20),
        Range(math.inf, math.inf), Range(-math.inf, -1e19), Range(-0.0, 0.0), Range(-5e-324, -5e-324),
    ],
)  # fmt: skip
def test_a_range_touches_a_set_when_one_of_its_points_is_in_it(extent: Range) -> None:
    numbers = [*INTEGERS, *FLOATS, *map(float, INTEGERS), math.inf, -math.inf, 0.3, 0.6, 1.9, 2e19]
    points = [number for number in numbers if extent.low <= number <= extent.high]
    assert points
    generator = random.Random(str(extent))
    for _ in range(300):
        values = some_set(generator)
        # The samples are dense enough around every literal for the opposite to hold only one way.
        if any(values.accepts(point) for point in points):
            assert values.touches(extent)
    for operator, literal in itertools.product(OPERATORS, [extent.low, extent.high]):
        values = compared_with(operator, literal)
        if extent.low == extent.high and abs(extent.low) < 2**53:
            assert values.touches(extent) is values.accepts(extent.low)


def as_points(intervals: tuple[tuple[int, int], ...]) -> set[int]:
    return {point for low, high in intervals for point in range(low, high)}


def as_intervals(points: set[int]) -> tuple[tuple[int, int], ...]:
    return union_of_all([((point, point + 1),) for point in points])


small_sets = st.sets(st.integers(LINE[0], LINE[1] - 1))


@given(small_sets, small_sets, st.integers(-1, 14), st.integers(-1, 14))
def test_intervals_against_sets_of_integers(first: set[int], second: set[int], low: int, high: int) -> None:
    ours, theirs = as_intervals(first), as_intervals(second)
    assert as_points(ours) == first
    assert intersection(ours, theirs) == as_intervals(first & second)
    assert union(ours, theirs) == as_intervals(first | second)
    assert complement(ours, LINE) == as_intervals(set(range(*LINE)) - first)
    assert [contains(ours, point) for point in range(*LINE)] == [point in first for point in range(*LINE)]
    assert overlaps(ours, low, high) is bool(first & set(range(low, high)))
    assert within(ours, theirs) is (first <= second)
    assert within(intersection(ours, theirs), ours)


def test_the_top_of_the_strings() -> None:
    assert TOP > "\U0010ffff"
    assert not TOP < TOP
    assert TOP <= TOP
    assert TOP >= "x"
    assert not TOP > TOP
    assert repr(TOP) == "TOP"
