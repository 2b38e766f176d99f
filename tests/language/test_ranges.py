"""Does a range-valued publication match exactly when one of its points does?"""

from __future__ import annotations

import itertools
import math
import random
from fractions import Fraction
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given

from braid.language import Filter, Range
from tests.language.strategies import Maker, makers

if TYPE_CHECKING:
    from collections.abc import Sequence

INFINITY = math.inf

# A half-space: factors . point <= bound, strictly or not.
HalfSpace = tuple[tuple[Fraction, ...], Fraction, bool]


def solved(rows: Sequence[HalfSpace]) -> tuple[Fraction, ...] | None:
    """The one point on all these planes, by elimination; None when there is no such point."""
    matrix = [[*factors, bound] for factors, bound, _ in rows]
    for column in range(len(matrix)):
        pivot = next((row for row in range(column, len(matrix)) if matrix[row][column]), None)
        if pivot is None:
            return None
        matrix[column], matrix[pivot] = matrix[pivot], matrix[column]
        scale = matrix[column][column]
        matrix[column] = [value / scale for value in matrix[column]]
        for row in range(len(matrix)):
            if row != column:
                times = matrix[row][column]
                matrix[row] = [a - times * b for a, b in zip(matrix[row], matrix[column], strict=True)]
    return tuple(row[-1] for row in matrix)


def inside(point: tuple[Fraction, ...], half_spaces: Sequence[HalfSpace], strictly: bool) -> bool:
    for factors, bound, strict in half_spaces:
        value = sum(factor * each for factor, each in zip(factors, point, strict=True))
        if value > bound or (strictly and strict and value == bound):
            return False
    return True


def has_point(half_spaces: Sequence[HalfSpace], dimensions: int) -> bool:
    """Whether a bounded polytope is not empty, by its corners.

    The mean of the corners lies in the relative interior, so if it breaks a strict bound, that bound
    is tight everywhere and no point keeps it.
    """
    corners = {solved(chosen) for chosen in itertools.combinations(half_spaces, dimensions)} - {None}
    kept = [corner for corner in corners if corner and inside(corner, half_spaces, strictly=False)]
    if not kept:
        return False
    mean = tuple(sum(values, Fraction(0)) / len(kept) for values in zip(*kept, strict=True))
    return inside(mean, half_spaces, strictly=True)


def condition(operator: str, factors: list[int], bound: int) -> list[list[HalfSpace]]:
    """`factors . point operator bound` as alternatives of half-spaces."""
    at_most = (tuple(map(Fraction, factors)), Fraction(bound))
    at_least = (tuple(Fraction(-factor) for factor in factors), Fraction(-bound))
    if operator == "=":
        return [[(*at_most, False), (*at_least, False)]]
    if operator == "<>":
        return [[(*at_most, True)], [(*at_least, True)]]
    return [[(*(at_most if operator in ("<", "<=") else at_least), operator in ("<", ">"))]]


@pytest.mark.parametrize("dimensions", [1, 2, 3])
def test_linear_conditions_are_decided_exactly(dimensions: int) -> None:
    generator = random.Random(f"linear/{dimensions}")
    names = ["a", "b", "c"][:dimensions]
    answers = {True: 0, False: 0}
    for _ in range(400):
        ends = [sorted(generator.choice([-3, -1.5, 0, 1, 2.25, 4]) for _ in range(2)) for _ in names]
        unit = [[int(row == column) for column in range(dimensions)] for row in range(dimensions)]
        box = [
            half_space
            for axis, (low, high) in zip(unit, ends, strict=True)
            for half_space in (
                (tuple(map(Fraction, axis)), Fraction(high), False),
                (tuple(Fraction(-each) for each in axis), -Fraction(low), False),
            )
        ]
        texts, choices = [], []
        for _ in range(generator.choice([1, 2, 3])):
            factors = [generator.choice([-2, -1, 0, 1, 1, 3]) for _ in names]
            bound = generator.choice([-6, -2, 0, 1, 4, 7])
            operator = generator.choice(["<", "<=", ">", ">=", "=", "<>"])
            left = " + ".join(f"{factor} * {name}" for factor, name in zip(factors, names, strict=True))
            right = "0 * a + " if generator.random() < 0.5 else "a - a + "
            texts.append(f"{left} {operator} {right}{bound}")
            choices.append(condition(operator, factors, bound))
        expected = any(
            has_point([*box, *itertools.chain.from_iterable(case)], dimensions)
            for case in itertools.product(*choices)
        )
        attributes = {name: Range(low, high) for name, (low, high) in zip(names, ends, strict=True)}
        text = " AND ".join(texts)
        assert Filter(text).matches(attributes) is expected, (text, attributes)
        answers[expected] += 1
    assert min(answers.values()) > 40, answers


def points_of(value: Any, generator: random.Random) -> Any:
    """Some point of a range: its ends, integers, and doubles in between."""
    if not isinstance(value, Range):
        return value
    if math.isinf(value.low) or math.isinf(value.high):
        finite = [-1000.5, -3.0, 0.0, 0.5, 2.0, 1000, 10**18, 1e300, -1e300, value.low, value.high]
        return generator.choice([each for each in finite if value.low <= each <= value.high])
    low, high = math.ceil(value.low), math.floor(value.high)
    integers = [generator.randint(low, high)] * 2 if low <= high else []
    middle = value.low + (value.high - value.low) * generator.choice([0.25, 0.5, 0.75])
    return generator.choice([value.low, value.high, middle, float(value.low), *integers])


def check_nothing_is_lost(maker: Maker) -> bool:
    """True when some sampled point satisfied the filter."""
    text = maker.filter()
    each = Filter(text)
    attributes: dict[str, Any] = maker.publication()
    for name in [*attributes][:: maker.random.choice([1, 2])]:
        attributes[name] = maker.range()
    matches = each.matches(attributes)
    for _ in range(12):
        point = {name: points_of(value, maker.random) for name, value in attributes.items()}
        if each.matches(point):
            assert matches, (text, attributes, point)
            return True
    return False


@given(makers(exact=True, wild=False))
def test_no_point_that_satisfies_a_filter_is_lost(maker: Maker) -> None:
    check_nothing_is_lost(maker)


@pytest.mark.parametrize("arithmetic", [2, 8])
def test_the_same_for_seeded_filters(arithmetic: int) -> None:
    maker = Maker(random.Random(f"ranges/{arithmetic}"), exact=True, wild=False, arithmetic=arithmetic)
    assert sum(check_nothing_is_lost(maker) for _ in range(1_500)) > 300


RANGES = [
    # The infrastructure-free paper's example: a condition that binds two attributes.
    ("length < 2 * height", {"length": Range(5, 9), "height": Range(1, 3)}, True),
    ("length < 2 * height", {"length": Range(6, 9), "height": Range(1, 3)}, False),
    ("length <= 2 * height", {"length": Range(6, 9), "height": Range(1, 3)}, True),
    ("length < 2 * height", {"length": 5, "height": Range(1, 3)}, True),
    ("length < 2 * height AND height < 2", {"length": 5, "height": Range(1, 3)}, False),
    # Boxes.
    ("price > 10", {"price": Range(5, 11)}, True),
    ("price > 10", {"price": Range(5, 10)}, False),
    ("price = 7", {"price": Range(5, 10)}, True),
    ("price IN (1, 2)", {"price": Range(1.25, 1.75)}, False),
    ("price <> 7", {"price": Range(7, 7)}, False),
    ("price NOT BETWEEN 5 AND 10", {"price": Range(5, 10)}, False),
    ("price NOT BETWEEN 5 AND 10", {"price": Range(5, 10.5)}, True),
    ("price IS NULL", {"price": Range(5, 10)}, False),
    ("price IS NOT NULL", {"price": Range(5, 10)}, True),
    ("other IS NULL", {"price": Range(5, 10)}, True),
    # Two conditions, one point must satisfy both, but each attribute has its own.
    ("a > 5 AND a < 3", {"a": Range(0, 10)}, False),
    ("a > 5 OR a < -1", {"a": Range(0, 5)}, False),
    ("a > b AND b > a", {"a": Range(0, 10), "b": Range(0, 10)}, False),
    ("a > b AND b > c AND c > a", {"a": Range(0, 9), "b": Range(0, 9), "c": Range(0, 9)}, False),
    ("a + b = 3 AND a - b = 4", {"a": Range(0, 9), "b": Range(0, 9)}, False),
    ("a + b = 3 AND a - b = 2", {"a": Range(0, 9), "b": Range(0, 9)}, True),
    ("a = b AND a IN (1, 5) AND b IN (2, 5)", {"a": Range(0, 4), "b": Range(0, 9)}, False),
    ("a = b AND a IN (1, 5) AND b IN (2, 5)", {"a": Range(0, 6), "b": Range(0, 9)}, True),
    ("a <> b", {"a": Range(1, 1), "b": Range(1, 1)}, False),
    ("a / 2 > 2", {"a": Range(0, 4)}, False),
    ("-a > 2", {"a": Range(-3, 4)}, True),
    # Other kinds.
    ("a = 'x'", {"a": Range(0, 4)}, False),
    ("a LIKE '%'", {"a": Range(0, 4)}, False),
    ("a LIKE '%x%y'", {"a": Range(0, 4)}, False),
    ("a < b", {"a": Range(0, 4), "b": "x"}, False),
    ("a < b", {"a": Range(0, 4)}, False),
    ("a + b IS NULL", {"a": Range(0, 4)}, True),
    ("a + b IS NULL", {"a": Range(0, 4), "b": 1}, False),
    ("a + b IS NULL", {"a": Range(0, 2**63 - 1), "b": 1}, True),
    ("urgent", {"urgent": Range(0, 1)}, False),
    # Degenerate and infinite ends.
    ("a = 5", {"a": Range(5, 5)}, True),
    ("a % 2 = 1", {"a": Range(5, 5)}, True),
    ("a = 9007199254740993", {"a": Range(2**53, 2.0**53)}, True),  # as a double it is
    ("a > 1e300", {"a": Range(0, INFINITY)}, True),
    ("a < 0", {"a": Range(-INFINITY, -1)}, True),
    ("a > b", {"a": Range(0, INFINITY), "b": 10**18}, True),
    ("a > b", {"a": Range(0, 5), "b": INFINITY}, False),
    ("a < b", {"a": Range(0, 5), "b": INFINITY}, True),
    ("a < b", {"a": Range(0, 5), "b": math.nan}, True),
    ("a > b", {"a": Range(0, 5), "b": math.nan}, False),
    ("a = 2 * a", {"a": Range(1, 9)}, False),
    ("a = 2 * a", {"a": Range(1, INFINITY)}, True),  # infinity is twice itself
    ("2 * a < b", {"a": Range(3, INFINITY), "b": Range(1, 2)}, False),
    # Not linear: interval arithmetic.
    ("a * b > 20", {"a": Range(0, 4), "b": Range(0, 4)}, False),
    ("a * b > 10", {"a": Range(0, 4), "b": Range(0, 4)}, True),
    ("a * b < 0", {"a": Range(1, 4), "b": Range(0.5, 4)}, False),
    ("a % 3 > 3", {"a": Range(0, 100)}, False),
    ("a % 3 < 0", {"a": Range(0, 100)}, False),
    ("1 / a > 5", {"a": Range(1, 4)}, False),
    ("1 / a > 5", {"a": Range(0, 4)}, True),
    ("1 / a IS NULL", {"a": Range(0, 4)}, True),
    ("a / 0 IS NULL", {"a": Range(0, 4)}, True),
    ("a / 0 = 1", {"a": Range(0, 4)}, False),
    ("-(a * a) < -5", {"a": Range(0, 2)}, False),
]


@pytest.mark.parametrize(("text", "attributes", "expected"), RANGES)
def test_ranges(text: str, attributes: dict[str, Any], expected: bool) -> None:
    assert Filter(text).matches(attributes) is expected


def test_conditions_inside_a_residual_alternative_see_ranges_too() -> None:
    """Too many alternatives to multiply out, so lists and patterns stay inside a residual."""
    parts = [f"(a{number} IN (1, 2) OR b{number} > c{number} OR s{number} LIKE 'x%')" for number in range(10)]
    each = Filter(" AND ".join(parts))
    assert each.terms[0].residual
    ranges: dict[str, Any] = {f"a{number}": Range(1.5, 2.5) for number in range(10)}
    assert each.matches(ranges)
    assert not each.matches({**ranges, "a3": Range(2.5, 3)})
    assert each.matches({**ranges, "a3": Range(2.5, 3), "b3": Range(1, 2), "c3": Range(0, 9)})
    assert not each.matches({**ranges, "a3": Range(2.5, 3), "b3": Range(1, 2), "c3": Range(2, 9)})
    both = Filter(" AND ".join([*parts, "(d IN (1, 9) AND d < e OR f = 1)"]))
    assert both.matches({**ranges, "d": Range(1, 3), "e": Range(0, 2)})
    assert not both.matches({**ranges, "d": Range(2, 9), "e": Range(0, 2)})


def test_too_many_cases_count_as_perhaps() -> None:
    names = [f"a{number}" for number in range(10)]
    text = " AND ".join(f"{name} <> {following}" for name, following in itertools.pairwise(names))
    assert Filter(text).matches(dict.fromkeys(names, Range(0, 1)))
    unbounded = Filter(" + ".join(names) + " < 0")
    assert unbounded.matches(dict.fromkeys(names, Range(1, INFINITY)))
