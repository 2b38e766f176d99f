"""Does some point of a range-valued publication satisfy a filter?

A publication with ranges is a box of points (infrastructure-free paper, section IV-A), and it
matches when one of them satisfies the filter. Attribute by attribute that is a matter of
overlapping intervals. Conditions that bind attributes together (`length < 2 * height`) are decided
exactly where they are linear, by eliminating one variable after the other (Fourier and Motzkin) in
exact fractions. Where they are not (`a * b > 3` with both ranges, `%`), interval arithmetic decides,
which may let a publication through but never loses one.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from fractions import Fraction
from itertools import product
from typing import TYPE_CHECKING, NamedTuple

from braid.language.evaluate import evaluate, value_of
from braid.language.expressions import (
    And,
    Arithmetic,
    Attribute,
    Comparison,
    Condition,
    InList,
    IsNull,
    Or,
    ValueExpression,
    attribute_names,
)
from braid.language.interval_arithmetic import bounds_of, comparison_possible
from braid.language.intervals import intersection
from braid.language.normal_form import leaf_values
from braid.language.stack import with_room
from braid.language.value_sets import NUMBERS, floats_between, integers_between
from braid.language.values import Range, Value, ordinal_before, ordinal_to_float

if TYPE_CHECKING:
    from braid.language.normal_form import Box, Term

__all__ = ["some_point_satisfies"]

# Beyond these bounds the answer is "perhaps", that is, yes.
CASES_MAX = 256
INEQUALITIES_MAX = 2_000

_Attributes = Mapping[str, Value | None]


class _NotLinear(Exception):
    """The expression is not a linear function of the ranges."""


class _Unknown(Exception):
    """The expression is NULL whatever point is chosen."""


class _Linear(NamedTuple):
    """`constant + sum(factor * variable)`."""

    factors: dict[str, Fraction]
    constant: Fraction


class _AtMostZero(NamedTuple):
    """`linear <= 0`, or `< 0` when strict."""

    linear: _Linear
    strict: bool


def some_point_satisfies(terms: Iterable[Term], attributes: _Attributes) -> bool:
    """Whether a point of the publication's box satisfies one of the terms."""
    points: dict[str, Value | None] = {
        name: value.low if isinstance(value, Range) and value.low == value.high else value
        for name, value in attributes.items()
    }
    return any(
        all(values.accepts(attributes.get(name)) for name, values in term.box.items())
        and (not term.residual or _possible(term, points))
        for term in terms
    )


def _possible(term: Term, attributes: _Attributes) -> bool:
    try:
        return _residual_possible(term, attributes)
    except RecursionError:
        return with_room(_residual_possible, term, attributes)


def _residual_possible(term: Term, attributes: _Attributes) -> bool:
    """The finite points of the ranges all at once, and infinite ends one by one: they add up differently."""
    names = sorted({name for condition in term.residual for name in attribute_names(condition)})
    choices: dict[str, list[Value]] = {}
    for name in names:
        extent = attributes.get(name)
        if isinstance(extent, Range) and (math.isinf(extent.low) or math.isinf(extent.high)):
            values = term.box.get(name, NUMBERS)
            ends = [end for end in (extent.low, extent.high) if math.isinf(end) and values.accepts(end)]
            choices[name] = [extent, *ends]
    if math.prod(map(len, choices.values())) > CASES_MAX:
        return True
    return any(
        _jointly_possible(term.residual, term.box, {**attributes, **dict(zip(choices, case, strict=True))})
        for case in product(*choices.values())
    )


def _jointly_possible(conditions: Sequence[Condition], box: Box, attributes: _Attributes) -> bool:
    linear: list[tuple[str, _Linear]] = []
    narrowed = dict(box)
    for condition in conditions:
        if not any(isinstance(attributes.get(name), Range) for name in attribute_names(condition)):
            if evaluate(condition, attributes) is not True:  # type: ignore[arg-type]
                return False
        elif (leaf := leaf_values(condition)) is not None:
            name, values = leaf
            narrowed[name] = narrowed[name].intersection(values) if name in narrowed else values
            if not narrowed[name].accepts(attributes.get(name)):
                return False
        elif isinstance(condition, Comparison):
            try:
                left, right = _linear(condition.left, attributes), _linear(condition.right, attributes)
                linear.append((condition.operator, _sum(left, right, Fraction(-1))))
            except _Unknown:
                return False
            except _NotLinear:
                if not comparison_possible(condition, attributes):
                    return False
        elif not _alone_possible(condition, narrowed, attributes):
            return False
    return not linear or _feasible(linear, narrowed, attributes)


def _alone_possible(condition: Condition, box: Box, attributes: _Attributes) -> bool:
    """Conditions other than comparisons; those inside are looked at one by one."""
    if isinstance(condition, Or):
        return any(_jointly_possible([part], box, attributes) for part in condition.conditions)
    if isinstance(condition, And):
        return _jointly_possible(condition.conditions, box, attributes)
    if isinstance(condition, InList):
        operator = "<>" if condition.negated else "="
        parts = [Comparison(operator, condition.operand, item) for item in condition.items]
        if condition.negated:
            return _jointly_possible(parts, box, attributes)
        return any(_jointly_possible([part], box, attributes) for part in parts)
    if isinstance(condition, IsNull):
        bounds = bounds_of(condition.operand, attributes)
        return bounds is not None if condition.negated else bounds is None or bounds.may_be_null
    return False  # LIKE with a pattern that is no prefix: no number is like a string


# Linear conditions.


def _linear(expression: ValueExpression, attributes: _Attributes) -> _Linear:
    if isinstance(expression, Attribute) and isinstance(attributes.get(expression.name), Range):
        return _Linear({expression.name: Fraction(1)}, Fraction(0))
    if not any(isinstance(attributes.get(name), Range) for name in attribute_names(expression)):
        value = value_of(expression, attributes)  # type: ignore[arg-type]
        if not isinstance(value, (int, float)) or isinstance(value, bool):
            raise _Unknown
        if not math.isfinite(value):
            raise _NotLinear
        return _Linear({}, Fraction(value))
    if isinstance(expression, Arithmetic):
        left, right = _linear(expression.left, attributes), _linear(expression.right, attributes)
        return _combined(expression.operator, left, right)
    operand = _linear(expression.operand, attributes)  # type: ignore[union-attr]
    return _sum(_Linear({}, Fraction(0)), operand, Fraction(-1))


def _combined(operator: str, left: _Linear, right: _Linear) -> _Linear:
    if operator in "+-":
        return _sum(left, right, Fraction(1 if operator == "+" else -1))
    if operator == "*" and not left.factors:
        left, right = right, left
    if operator == "%" or right.factors:
        raise _NotLinear
    if operator == "/":
        if right.constant == 0:
            raise _Unknown
        return _sum(_Linear({}, Fraction(0)), left, 1 / right.constant)
    return _sum(_Linear({}, Fraction(0)), left, right.constant)


def _sum(left: _Linear, right: _Linear, times: Fraction) -> _Linear:
    factors = dict(left.factors)
    for name, factor in right.factors.items():
        factors[name] = factors.get(name, Fraction(0)) + times * factor
    return _Linear({n: f for n, f in factors.items() if f}, left.constant + times * right.constant)


def _feasible(conditions: list[tuple[str, _Linear]], box: Box, attributes: _Attributes) -> bool:
    """Whether one choice of points satisfies all the linear conditions at once."""
    names = sorted({name for _, linear in conditions for name in linear.factors})
    choices: list[list[list[_AtMostZero]]] = [
        _stretches(name, box, attributes[name])  # type: ignore[arg-type]
        for name in names
    ]
    choices += [_inequalities(operator, linear) for operator, linear in conditions]
    cases = math.prod(len(alternatives) for alternatives in choices)
    if cases > CASES_MAX:
        return True
    return any(
        _has_solution([part for alternative in case for part in alternative], names)
        for case in product(*choices)
    )


def _stretches(name: str, box: Box, extent: Range) -> list[list[_AtMostZero]]:
    """The acceptable stretches of a range, each as one or two inequalities."""
    values = box.get(name, NUMBERS)
    doubles = intersection(values.floats, (floats_between(extent),))
    ends: list[tuple[float | int, float | int]] = [
        (ordinal_to_float(low), ordinal_to_float(ordinal_before(high))) for low, high in doubles
    ]
    if not ends:  # a narrow range between large integers may hold no double
        integers = intersection(values.integers, (integers_between(extent),))
        ends = [(low, high - 1) for low, high in integers]
    result = []
    for low, high in ends:
        bounds = []
        if math.isfinite(low):
            bounds.append(_AtMostZero(_Linear({name: Fraction(-1)}, Fraction(low)), False))
        if math.isfinite(high):
            bounds.append(_AtMostZero(_Linear({name: Fraction(1)}, -Fraction(high)), False))
        result.append(bounds)
    return result


def _inequalities(operator: str, linear: _Linear) -> list[list[_AtMostZero]]:
    """`linear operator 0` as alternatives of inequalities."""
    opposite = _sum(_Linear({}, Fraction(0)), linear, Fraction(-1))
    if operator == "=":
        return [[_AtMostZero(linear, False), _AtMostZero(opposite, False)]]
    if operator == "<>":
        return [[_AtMostZero(linear, True)], [_AtMostZero(opposite, True)]]
    below = operator in ("<", "<=")
    return [[_AtMostZero(linear if below else opposite, operator in ("<", ">"))]]


def _has_solution(inequalities: list[_AtMostZero], names: Sequence[str]) -> bool:
    for name in names:
        below = [each for each in inequalities if each.linear.factors.get(name, 0) < 0]
        above = [each for each in inequalities if each.linear.factors.get(name, 0) > 0]
        inequalities = [each for each in inequalities if name not in each.linear.factors]
        if len(below) * len(above) + len(inequalities) > INEQUALITIES_MAX:
            return True
        for lower, upper in product(below, above):
            ratio = -upper.linear.factors[name] / lower.linear.factors[name]
            combined = _sum(upper.linear, lower.linear, ratio)
            inequalities.append(_AtMostZero(combined, lower.strict or upper.strict))
    return all(
        each.linear.constant < 0 or (each.linear.constant == 0 and not each.strict) for each in inequalities
    )
