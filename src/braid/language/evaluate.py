"""Does a publication satisfy a condition?

Plain three-valued evaluation over single values, straight from the definition of the language.
The normal form and the index are compared with it in tests.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from braid.language.arithmetic import calculate, negate
from braid.language.expressions import (
    And,
    Arithmetic,
    Attribute,
    Between,
    Comparison,
    Condition,
    Holds,
    InList,
    IsNull,
    Like,
    Literal,
    Not,
    Or,
    ValueExpression,
)
from braid.language.likes import like_matcher
from braid.language.values import Scalar, compare

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["compared", "evaluate", "value_of"]


def evaluate(condition: Condition, attributes: Mapping[str, Scalar | None]) -> bool | None:
    """True, False, or None for unknown."""
    if isinstance(condition, Comparison):
        return compared(
            condition.operator, value_of(condition.left, attributes), value_of(condition.right, attributes)
        )
    if isinstance(condition, And):
        return _all(condition.conditions, attributes)
    if isinstance(condition, Or):
        return _any(condition.conditions, attributes)
    if isinstance(condition, Not):
        return _not(evaluate(condition.condition, attributes))
    value = value_of(condition.operand, attributes)
    if isinstance(condition, IsNull):
        return (value is None) != condition.negated
    if isinstance(condition, Holds):
        return value if isinstance(value, bool) else None
    if isinstance(condition, Between):
        inside = _both(
            compared(">=", value, value_of(condition.low, attributes)),
            compared("<=", value, value_of(condition.high, attributes)),
        )
    elif isinstance(condition, InList):
        inside = _in_list(value, condition, attributes)
    else:
        inside = _like(value, condition)
    return _not(inside) if condition.negated else inside


def value_of(expression: ValueExpression, attributes: Mapping[str, Scalar | None]) -> Scalar | None:
    """The value of an expression; None is NULL."""
    if isinstance(expression, Attribute):
        return attributes.get(expression.name)
    if isinstance(expression, Literal):
        return expression.value
    if isinstance(expression, Arithmetic):
        return calculate(
            expression.operator,
            value_of(expression.left, attributes),
            value_of(expression.right, attributes),
        )
    return negate(value_of(expression.operand, attributes))


def compared(operator: str, left: Scalar | None, right: Scalar | None) -> bool | None:
    """The outcome of `left operator right`."""
    order = compare(left, right)
    if order is None:
        return None
    if operator == "=":
        return order == 0
    if operator == "<>":
        return order != 0
    if operator == "<":
        return order < 0
    if operator == "<=":
        return order <= 0
    return order > 0 if operator == ">" else order >= 0


def _not(outcome: bool | None) -> bool | None:
    return None if outcome is None else not outcome


def _both(left: bool | None, right: bool | None) -> bool | None:
    if left is False or right is False:
        return False
    return None if left is None or right is None else True


def _all(conditions: tuple[Condition, ...], attributes: Mapping[str, Scalar | None]) -> bool | None:
    outcome: bool | None = True
    for condition in conditions:
        part = evaluate(condition, attributes)
        if part is False:
            return False
        if part is None:
            outcome = None
    return outcome


def _any(conditions: tuple[Condition, ...], attributes: Mapping[str, Scalar | None]) -> bool | None:
    outcome: bool | None = False
    for condition in conditions:
        part = evaluate(condition, attributes)
        if part is True:
            return True
        if part is None:
            outcome = None
    return outcome


def _in_list(value: Scalar | None, condition: InList, attributes: Mapping[str, Scalar | None]) -> bool | None:
    if condition.words is not None:
        return value in condition.words if isinstance(value, str) else None
    outcome: bool | None = False
    for item in condition.items:
        part = compared("=", value, value_of(item, attributes))
        if part is True:
            return True
        if part is None:
            outcome = None
    return outcome


def _like(value: Scalar | None, condition: Like) -> bool | None:
    if not isinstance(value, str):
        return None
    return like_matcher(condition.pattern, condition.escape).matches(value)
