"""How much is there of a filter?

A weight is about the number of characters that something takes when it is written down, found without
writing it. Bounds on what may be made of a filter are in weights, because a count says little: one name
may have a thousand characters, and one list a thousand values.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from braid.language.expressions import (
    Arithmetic,
    Attribute,
    Condition,
    Like,
    Literal,
    Negative,
    ValueExpression,
    conditions_within,
    value_operands,
)

if TYPE_CHECKING:
    from braid.language.value_sets import ValueSet

__all__ = ["condition_weight", "expression_weight", "values_weight"]

# An operator with the spaces around it, or a number.
_WORD = 4


def condition_weight(condition: Condition) -> int:
    """The weight of a condition and everything inside it."""
    weight = 0
    pending: list[Condition] = [condition]
    while pending:
        current = pending.pop()
        weight += _WORD + sum(map(expression_weight, value_operands(current)))
        if isinstance(current, Like):
            weight += len(current.pattern)
        pending += conditions_within(current)
    return weight


def expression_weight(expression: ValueExpression) -> int:
    """The weight of a value expression."""
    weight = 0
    pending: list[ValueExpression] = [expression]
    while pending:
        current = pending.pop()
        if isinstance(current, Attribute):
            weight += len(current.name)
        elif isinstance(current, Literal):
            weight += len(current.value) + 2 if isinstance(current.value, str) else _WORD
        elif isinstance(current, Arithmetic):
            weight += _WORD
            pending += (current.left, current.right)
        elif isinstance(current, Negative):
            weight += 1
            pending.append(current.operand)
    return weight


def values_weight(values: ValueSet) -> int:
    """The weight of a set of values."""
    weight = _WORD * (1 + max(len(values.integers), len(values.floats)))
    for low, _ in values.strings:
        weight += _WORD + len(low)
    return weight
