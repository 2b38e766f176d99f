"""What are the parts of a filter?

The parser turns text into these frozen nodes; everything else (evaluation, normal form, Spark SQL,
explanations) is a function over them. There are two families: `ValueExpression` yields a number,
string, boolean or NULL; `Condition` yields TRUE, FALSE or unknown.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Iterator

    from braid.language.values import Scalar

__all__ = [
    "And",
    "Arithmetic",
    "Attribute",
    "Between",
    "Comparison",
    "Condition",
    "Holds",
    "InList",
    "IsNull",
    "Like",
    "Literal",
    "Negative",
    "Not",
    "Or",
    "ValueExpression",
    "attribute_names",
    "conditions_within",
    "value_operands",
]

# Shorter lists are gone through as fast as anything is looked up.
_MANY_ITEMS = 8


@dataclass(frozen=True, slots=True)
class Literal:
    """`10`, `2.5`, `'text'`, `TRUE` or `NULL` (None)."""

    value: Scalar | None

    def __eq__(self, other: object) -> bool:
        # 1, 1.0 and TRUE are equal in Python and three different literals here.
        if not isinstance(other, Literal):
            return NotImplemented
        return type(self.value) is type(other.value) and self.value == other.value

    def __hash__(self) -> int:
        return hash((type(self.value), self.value))


@dataclass(frozen=True, slots=True)
class Attribute:
    """The value of an attribute, NULL where the publication lacks it."""

    name: str


@dataclass(frozen=True, slots=True)
class Negative:
    """`-operand`."""

    operand: ValueExpression


@dataclass(frozen=True, slots=True)
class Arithmetic:
    """`left operator right` with one of `+ - * / %`."""

    operator: str
    left: ValueExpression
    right: ValueExpression


ValueExpression: TypeAlias = Literal | Attribute | Negative | Arithmetic


@dataclass(frozen=True, slots=True)
class Comparison:
    """`left operator right` with one of `= <> < <= > >=`."""

    operator: str
    left: ValueExpression
    right: ValueExpression


@dataclass(frozen=True, slots=True)
class Between:
    """`operand [NOT] BETWEEN low AND high`, both ends included."""

    operand: ValueExpression
    low: ValueExpression
    high: ValueExpression
    negated: bool = False


@dataclass(frozen=True, slots=True)
class InList:
    """`operand [NOT] IN (item, ...)`."""

    operand: ValueExpression
    items: tuple[ValueExpression, ...]
    negated: bool = False
    words: frozenset[str] | None = field(init=False, repr=False, compare=False)
    """The items of a long list of nothing but strings, to look one up; None for any other list."""

    def __post_init__(self) -> None:
        words = None
        if len(self.items) >= _MANY_ITEMS:
            values = [item.value if isinstance(item, Literal) else None for item in self.items]
            if all(isinstance(value, str) for value in values):
                words = frozenset(value for value in values if isinstance(value, str))
        object.__setattr__(self, "words", words)


@dataclass(frozen=True, slots=True)
class Like:
    """`operand [NOT] LIKE pattern [ESCAPE escape]`; the pattern is kept as it was written."""

    operand: ValueExpression
    pattern: str
    escape: str = "\\"
    negated: bool = False


@dataclass(frozen=True, slots=True)
class IsNull:
    """`operand IS [NOT] NULL`."""

    operand: ValueExpression
    negated: bool = False


@dataclass(frozen=True, slots=True)
class Holds:
    """A boolean attribute or literal used as a condition: `urgent AND price > 10`."""

    operand: ValueExpression


@dataclass(frozen=True, slots=True)
class Not:
    """`NOT condition`."""

    condition: Condition


@dataclass(frozen=True, slots=True)
class And:
    """All of two or more conditions."""

    conditions: tuple[Condition, ...]


@dataclass(frozen=True, slots=True)
class Or:
    """At least one of two or more conditions."""

    conditions: tuple[Condition, ...]


Condition: TypeAlias = Comparison | Between | InList | Like | IsNull | Holds | Not | And | Or


def conditions_within(condition: Condition) -> tuple[Condition, ...]:
    """The conditions a condition is directly made of; none for a leaf."""
    if isinstance(condition, (And, Or)):
        return condition.conditions
    return (condition.condition,) if isinstance(condition, Not) else ()


def value_operands(condition: Condition) -> tuple[ValueExpression, ...]:
    """The value expressions a leaf condition compares, from left to right."""
    if isinstance(condition, Comparison):
        return (condition.left, condition.right)
    if isinstance(condition, Between):
        return (condition.operand, condition.low, condition.high)
    if isinstance(condition, InList):
        return (condition.operand, *condition.items)
    if isinstance(condition, (Like, IsNull, Holds)):
        return (condition.operand,)
    return ()


def attribute_names(node: Condition | ValueExpression) -> Iterator[str]:
    """Every attribute named in `node`, in order, repeats included."""
    pending: list[Condition | ValueExpression] = [node]
    while pending:
        current = pending.pop()
        if isinstance(current, Attribute):
            yield current.name
        elif isinstance(current, Arithmetic):
            pending += (current.right, current.left)
        elif isinstance(current, Negative):
            pending.append(current.operand)
        elif not isinstance(current, Literal):
            pending += reversed(value_operands(current))
            pending += reversed(conditions_within(current))
