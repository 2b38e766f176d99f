"""How does the text of a filter become conditions?

A recursive-descent parser. The grammar, loosest first:

    either      both OR both ...
    both        predicate AND predicate ...
    predicate   NOT predicate | arithmetic [comparison | BETWEEN | IN | LIKE | IS NULL]
    arithmetic  operands joined by * / % first and by + - after that
    operand     literal | name | - operand | + operand | ( either )

Constant arithmetic is folded, so `price > 2 * 5` is as good as `price > 10`.
"""

from __future__ import annotations

import math
from typing import NoReturn, TypeAlias

from braid.errors import FilterSyntaxError
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
    Negative,
    Not,
    Or,
    ValueExpression,
)
from braid.language.lexer import INTEGER_HINT, Token, tokenize
from braid.language.likes import DEFAULT_ESCAPE, LikePatternError, parse_like
from braid.language.memory import Memory
from braid.language.stack import with_room
from braid.language.values import INT_MAX, INT_MIN

__all__ = ["DEPTH_MAX", "TEXT_LENGTH_MAX", "parse"]

# Generous for machine-written filters; what a hostile client can make us chew on is bounded.
TEXT_LENGTH_MAX = 1_000_000
# Nesting of parentheses, NOT, signs and chains of arithmetic. A level takes five calls here, so the
# deepest filter stays well below the thousand that Python allows, and otherwise `stack` makes room.
DEPTH_MAX = 100

_COMPARISONS = frozenset({"=", "<>", "<", "<=", ">", ">="})
_PREDICATES = _COMPARISONS | {"BETWEEN", "IN", "LIKE", "IS", "NOT"}
_ARITHMETIC_LEVELS = {"+": 1, "-": 1, "*": 2, "/": 2, "%": 2}
_CONDITION_TYPES = (Comparison, Between, InList, Like, IsNull, Holds, Not, And, Or)

# Which family a piece of text belongs to is known only once it has been read: `(a)` may turn out to
# be a boolean attribute that must hold, or the left side of `(a) > 3`.
_Node: TypeAlias = Condition | ValueExpression


# Filters speak of the same attributes again and again; one node for each does.
_attribute = Memory(Attribute, characters_max=262_144)


def parse(text: str) -> Condition:
    """The condition a filter text stands for, or a `FilterSyntaxError` that says where it breaks."""
    if not isinstance(text, str):
        raise TypeError(f"a filter is written as a string, not as {type(text).__name__}")
    if len(text) > TEXT_LENGTH_MAX:
        raise FilterSyntaxError(
            text[:100], 0, f"a filter of {len(text):,} characters", f"at most {TEXT_LENGTH_MAX:,}"
        )
    try:
        return _Parser(text).whole()
    except RecursionError:
        return with_room(_parsed, text)


def _parsed(text: str) -> Condition:
    return _Parser(text).whole()


class _Parser:
    """A place among the tokens; every method reads from there on and leaves it behind."""

    __slots__ = ("_before", "_depth", "_following", "_kind", "_text", "_token")

    def __init__(self, text: str) -> None:
        self._text = text
        self._following = tokenize(text)
        self._depth = 0
        self._token = self._before = next(self._following)
        self._kind = self._token.kind

    def whole(self) -> Condition:
        condition = self._as_condition(self._either())
        if self._kind != "end":
            self._refuse_trailing()
        return condition

    # Conditions.

    def _either(self) -> _Node:
        node = self._both()
        if self._kind != "OR":
            return node
        parts = [self._as_condition(node)]
        while self._take("OR"):
            parts.append(self._as_condition(self._both()))
        return Or(tuple(parts))

    def _both(self) -> _Node:
        node = self._predicate()
        if self._kind != "AND":
            return node
        parts = [self._as_condition(node)]
        while self._take("AND"):
            parts.append(self._as_condition(self._predicate()))
        return And(tuple(parts))

    def _predicate(self) -> _Node:
        if self._take("NOT"):
            self._deeper()
            condition: Condition = Not(self._as_condition(self._predicate()))
            self._depth -= 1
            return condition
        first = self._token
        left = self._arithmetic()
        kind = self._kind
        if kind not in _PREDICATES:
            return left
        operand = self._as_value(left, first)
        if kind in _COMPARISONS:
            self._move()
            condition = Comparison(kind, operand, self._value())
        elif self._take("IS"):
            negated = self._take("NOT")
            self._expect("NULL", "NULL" if negated else "NULL or NOT NULL")
            condition = IsNull(operand, negated)
        else:
            condition = self._keyword_predicate(operand, self._take("NOT"))
        if self._kind in _PREDICATES:
            hint = "comparisons cannot be chained; combine them with AND"
            self._refuse(self._token, "AND, OR or the end", hint)
        return condition

    def _keyword_predicate(self, operand: ValueExpression, negated: bool) -> Condition:
        if self._take("BETWEEN"):
            low = self._value()
            self._expect("AND", "AND and the upper end of BETWEEN")
            return Between(operand, low, self._value(), negated)
        if self._take("IN"):
            self._expect("(", "an opening parenthesis")
            items = [self._value()]
            while self._take(","):
                items.append(self._value())
            self._expect(")", "a comma or a closing parenthesis")
            return InList(operand, tuple(items), negated)
        self._expect("LIKE", "BETWEEN, IN or LIKE")
        return self._like(operand, negated)

    def _like(self, operand: ValueExpression, negated: bool) -> Condition:
        at = self._token
        pattern = self._string("a pattern in quotes")
        escape = DEFAULT_ESCAPE
        if self._take("ESCAPE"):
            escape_at = self._token
            escape = self._string("a single character in quotes")
            if len(escape) != 1:
                self._refuse(escape_at, "a single character in quotes")
            if escape in "%_":
                self._refuse(escape_at, "an escape character other than % and _")
        try:
            parse_like(pattern, escape)
        except LikePatternError as error:
            self._refuse(at, str(error))
        return Like(operand, pattern, escape, negated)

    # Values.

    def _value(self) -> ValueExpression:
        at = self._token
        return self._as_value(self._arithmetic(), at)

    def _arithmetic(self, floor: int = 0) -> _Node:
        """Operands joined by operators that bind tighter than the level `floor`."""
        at = self._token
        node = self._operand()
        level = _ARITHMETIC_LEVELS.get(self._kind, 0)
        if level <= floor:
            return node
        outer_depth = self._depth
        while level > floor:
            operator, left = self._kind, self._as_number(node, at)
            self._move()
            right_at = self._token
            right = self._as_number(self._arithmetic(level), right_at)
            node = _folded(operator, left, right)
            self._deeper()  # a chain is a tree that leans to the left, as deep as it is long
            level = _ARITHMETIC_LEVELS.get(self._kind, 0)
        self._depth = outer_depth
        return node

    def _operand(self) -> _Node:
        token, kind = self._token, self._kind
        if kind == "name":
            self._move()
            return _attribute(token.value)  # type: ignore[arg-type]
        if kind == "literal":
            if type(token.value) is int and token.value > INT_MAX:
                self._refuse(token, "a 64-bit integer", INTEGER_HINT)
            self._move()
            return Literal(token.value)
        if kind == "-" or kind == "+":
            self._move()
            return self._signed(negative=kind == "-")
        if kind == "(":
            self._move()
            self._deeper()
            node = self._either()
            self._expect(")", "a closing parenthesis or an operator")
            self._depth -= 1
            return node
        if self._take("NULL"):
            return Literal(None)
        self._refuse_operand()

    def _signed(self, negative: bool) -> ValueExpression:
        at = self._token
        if negative and type(at.value) is int and at.value == INT_MAX + 1:
            self._move()
            return Literal(INT_MIN)  # its digits alone are one too many for an integer
        self._deeper()
        operand = self._as_number(self._operand(), at)
        self._depth -= 1
        if isinstance(operand, Literal):
            return Literal(negate(operand.value)) if negative else operand
        # A sign is arithmetic, so it makes a string unknown; adding to zero says just that.
        return Negative(operand) if negative else Arithmetic("+", Literal(0), operand)

    # Insisting on the right family of node.

    def _as_condition(self, node: _Node) -> Condition:
        if isinstance(node, _CONDITION_TYPES):
            return node
        if isinstance(node, Attribute) or (
            isinstance(node, Literal) and (node.value is None or isinstance(node.value, bool))
        ):
            return Holds(node)
        if self._kind in ("end", ")", "AND", "OR"):
            self._refuse(self._token, "a comparison such as =, <, BETWEEN, IN, LIKE or IS NULL")
        self._refuse(self._token, "an operator")

    def _as_value(self, node: _Node, at: Token) -> ValueExpression:
        if isinstance(node, _CONDITION_TYPES):
            self._refuse(at, "a value", "a condition has no value; combine conditions with AND, OR and NOT")
        return node

    def _as_number(self, node: _Node, at: Token) -> ValueExpression:
        value = self._as_value(node, at)
        if isinstance(value, Literal) and isinstance(value.value, (str, bool)):
            self._refuse(at, "a number or an attribute", "arithmetic works on numbers only")
        return value

    # Tokens.

    def _move(self) -> None:
        self._before = self._token
        self._token = next(self._following)
        self._kind = self._token.kind

    def _take(self, kind: str) -> bool:
        if self._kind != kind:
            return False
        self._move()
        return True

    def _expect(self, kind: str, expected: str) -> None:
        if not self._take(kind):
            self._refuse(self._token, expected)

    def _string(self, expected: str) -> str:
        value = self._token.value
        if self._kind != "literal" or not isinstance(value, str):
            self._refuse(self._token, expected)
        self._move()
        return value

    def _deeper(self) -> None:
        self._depth += 1
        if self._depth > DEPTH_MAX:
            self._refuse(self._token, f"nesting of at most {DEPTH_MAX} levels")

    def _refuse_operand(self) -> NoReturn:
        token, hint = self._token, ""
        if token.kind == self._before.kind == "=" and token is not self._before:
            hint = "equality is a single ="
        elif token.kind.isalpha() and token.kind != "end":
            hint = f"an attribute of that name is written in backquotes: `{token.text}`"
        self._refuse(token, "a value or a name", hint)

    def _refuse_trailing(self) -> NoReturn:
        token, before, hint = self._token, self._before, ""
        joined = token.position == before.position + len(before.text)
        if _is_string(token) or (joined and _is_string(before)):
            hint = "a quote inside a string is written twice: 'it''s'"
        elif token.kind == "ESCAPE":
            hint = "ESCAPE follows the pattern of LIKE"
        self._refuse(token, "an operator, AND, OR or the end", hint)

    def _refuse(self, token: Token, expected: str, hint: str = "") -> NoReturn:
        found = token.text if token.kind == "end" else repr(token.text[:40])
        raise FilterSyntaxError(self._text, token.position, found, expected, hint)


def _is_string(token: Token) -> bool:
    return token.kind == "literal" and isinstance(token.value, str)


def _folded(operator: str, left: ValueExpression, right: ValueExpression) -> ValueExpression:
    if isinstance(left, Literal) and isinstance(right, Literal):
        result = calculate(operator, left.value, right.value)
        # Infinity and NaN have no literal, so that such a filter could not be written down again.
        if not isinstance(result, float) or math.isfinite(result):
            return Literal(result)
    return Arithmetic(operator, left, right)
