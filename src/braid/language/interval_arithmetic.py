"""Between which numbers does an expression over ranges lie?

For conditions that are not linear in the ranges (`a * b > 3`, `%`) there is no exact method here, but
bounds on both sides of a comparison tell when it cannot hold. The bounds are safe: rounding,
overflow, infinity and NaN only ever make them wider.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

from braid.language.evaluate import value_of
from braid.language.expressions import (
    Arithmetic,
    Attribute,
    Comparison,
    Negative,
    ValueExpression,
    attribute_names,
)
from braid.language.values import INT_MAX, Range, Value, compare

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["Bounds", "bounds_of", "comparison_possible"]


class Bounds(NamedTuple):
    """From `low` to `high` in the order of the language, where NaN is above infinity."""

    low: float
    high: float
    may_be_null: bool = False


def comparison_possible(condition: Comparison, attributes: Mapping[str, Value | None]) -> bool:
    """Whether some point may make the comparison TRUE; False is certain."""
    left, right = bounds_of(condition.left, attributes), bounds_of(condition.right, attributes)
    if left is None or right is None:
        return False
    operator = condition.operator
    lowest, highest = compare(left.low, right.high), compare(left.high, right.low)
    if lowest is None or highest is None:
        return False  # cannot be: both are numbers
    if operator == "<":
        return lowest < 0
    if operator == "<=":
        return lowest <= 0
    if operator == ">":
        return highest > 0
    if operator == ">=":
        return highest >= 0
    return lowest <= 0 <= highest if operator == "=" else not lowest == highest == 0


def bounds_of(expression: ValueExpression, attributes: Mapping[str, Value | None]) -> Bounds | None:
    """The bounds of a numeric expression; None where it is NULL or no number whatever the point."""
    if not any(isinstance(attributes.get(name), Range) for name in attribute_names(expression)):
        value = value_of(expression, attributes)  # type: ignore[arg-type]
        if not isinstance(value, (int, float)) or isinstance(value, bool):
            return None
        return Bounds(float(value), float(value))
    if isinstance(expression, Arithmetic):
        left, right = bounds_of(expression.left, attributes), bounds_of(expression.right, attributes)
        return None if left is None or right is None else _operated(expression.operator, left, right)
    if isinstance(expression, Negative):
        operand = bounds_of(expression.operand, attributes)
        return None if operand is None else _operated("-", Bounds(0.0, 0.0), operand)
    if isinstance(expression, Attribute) and isinstance(extent := attributes[expression.name], Range):
        return Bounds(float(extent.low), float(extent.high))
    return None


def _operated(operator: str, left: Bounds, right: Bounds) -> Bounds | None:
    may_be_null = left.may_be_null or right.may_be_null
    if operator in "/%" and right.low <= 0 <= right.high:
        if right.low == right.high:
            return None
        may_be_null = True
        corners = [-math.inf, math.inf]
    elif operator == "+":
        corners = [a + b for a in left[:2] for b in right[:2]]
    elif operator == "-":
        corners = [a - b for a in left[:2] for b in right[:2]]
    elif operator == "*":
        corners = [a * b for a in left[:2] for b in right[:2]]
    elif operator == "/":
        corners = [a / b for a in left[:2] for b in right[:2]]
    if operator == "%":
        # The remainder is no larger than either operand, and has the sign of the dividend.
        size = min(max(abs(left.low), abs(left.high)), max(abs(right.low), abs(right.high)))
        corners = [-size if left.low < 0 else 0.0, size if left.high > 0 else 0.0]
    if any(map(math.isnan, corners)) or _may_be_nan(operator, left, right):
        return Bounds(-math.inf, math.nan, may_be_null=True)
    low, high = min(corners), max(corners)
    if operator == "%":
        return Bounds(low, high, may_be_null)  # exact: a remainder is never rounded
    low, high = math.nextafter(low, -math.inf), math.nextafter(high, math.inf)
    # The points of a range may be integers, whose sums and products overflow to NULL.
    overflows = operator in "+-*" and max(-low, high) > INT_MAX
    return Bounds(low, high, may_be_null or overflows)


def _may_be_nan(operator: str, left: Bounds, right: Bounds) -> bool:
    """Whether a point inside, not just a corner, may yield NaN."""
    if any(map(math.isnan, (*left[:2], *right[:2]))):
        return True
    infinite = [any(map(math.isinf, side[:2])) for side in (left, right)]
    if operator == "%":
        return infinite[0]
    if operator == "*":
        return (infinite[0] and right.low <= 0 <= right.high) or (infinite[1] and left.low <= 0 <= left.high)
    return all(infinite) and (operator == "/" or left.low != left.high or right.low != right.high)
