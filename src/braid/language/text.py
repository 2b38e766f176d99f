"""How is a filter written down?

`condition_text` writes conditions with as few parentheses as the grammar allows; `value_set_text`
finds the plainest condition that describes a set of values. Parsing either gives back an equal
filter.
"""

from __future__ import annotations

import math
import re
from typing import Any, TypeAlias

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
from braid.language.intervals import TOP, Intervals, complement, contains, intersection, union, union_of_all
from braid.language.lexer import is_plain_name
from braid.language.likes import CANONICAL_ESCAPE, DEFAULT_ESCAPE, canonical_like, escape_like
from braid.language.value_sets import (
    ANYTHING,
    BOOLEAN_LINE,
    FLOAT_LINE,
    INTEGER_LINE,
    NOT_NULL,
    STRING_LINE,
    ValueSet,
    integers_equal_to,
    integers_of_floats,
    strings_with_prefix,
)
from braid.language.values import (
    Scalar,
    float_to_ordinal,
    ordinal_after,
    ordinal_before,
    ordinal_to_float,
)

__all__ = ["KnownTexts", "condition_text", "literal_text", "name_text", "value_set_text", "value_text"]

_LEVELS = {"+": 1, "-": 1, "*": 2, "/": 2, "%": 2}


def literal_text(value: Scalar | None) -> str:
    """A literal as it stands in a filter."""
    if value is None:
        return "NULL"
    if isinstance(value, bool):
        return "TRUE" if value else "FALSE"
    if isinstance(value, str):
        escaped = value.replace("\\", "\\\\").replace("'", "''")
        return "'" + re.sub(r"[\x00-\x1f]", lambda match: f"\\u{ord(match.group()):04x}", escaped) + "'"
    return repr(value)


def name_text(name: str) -> str:
    """An attribute's name, in backquotes where it needs them."""
    return name if is_plain_name(name) else "`" + name.replace("`", "``") + "`"


def value_text(expression: ValueExpression) -> str:
    """A value expression."""
    if isinstance(expression, Attribute):
        return name_text(expression.name)
    if isinstance(expression, Literal):
        return literal_text(expression.value)
    if isinstance(expression, Arithmetic):
        level = _LEVELS[expression.operator]
        left, right = value_text(expression.left), value_text(expression.right)
        if isinstance(expression.left, Arithmetic) and _LEVELS[expression.left.operator] < level:
            left = f"({left})"
        if isinstance(expression.right, Arithmetic) and _LEVELS[expression.right.operator] <= level:
            right = f"({right})"
        return f"{left} {expression.operator} {right}"
    inner = value_text(expression.operand)
    if isinstance(expression.operand, Arithmetic):
        return f"-({inner})"
    return f"- {inner}" if inner.startswith("-") else f"-{inner}"  # two in a row would begin a comment


# The texts of conjunctions and disjunctions by their identity, with what they are of, to keep that alive.
KnownTexts: TypeAlias = dict[int, tuple[Condition, str]]


def condition_text(condition: Condition, known: KnownTexts | None = None) -> str:
    """A condition. With `known`, texts of conditions that stand inside each other are made only once."""
    if isinstance(condition, (And, Or)):
        found = known.get(id(condition)) if known is not None else None
        if found is not None:
            return found[1]
        if isinstance(condition, And):
            text = " AND ".join(_nested(part, (Or,), known) for part in condition.conditions) or "TRUE"
        else:
            text = " OR ".join(condition_text(part, known) for part in condition.conditions) or "FALSE"
        if known is not None:
            known[id(condition)] = (condition, text)
        return text
    if isinstance(condition, Not):
        return f"NOT {_nested(condition.condition, (And, Or), known)}"
    if isinstance(condition, Comparison):
        return f"{value_text(condition.left)} {condition.operator} {value_text(condition.right)}"
    operand = value_text(condition.operand)
    if isinstance(condition, Holds):
        return operand
    negation = "NOT " if condition.negated else ""
    if isinstance(condition, IsNull):
        return f"{operand} IS {negation}NULL"
    if isinstance(condition, Between):
        return f"{operand} {negation}BETWEEN {value_text(condition.low)} AND {value_text(condition.high)}"
    if isinstance(condition, InList):
        return f"{operand} {negation}IN ({', '.join(map(value_text, condition.items))})"
    return f"{operand} {negation}LIKE {_pattern_text(condition)}"


def _pattern_text(condition: Like) -> str:
    escape = "" if condition.escape == DEFAULT_ESCAPE else f" ESCAPE {literal_text(condition.escape)}"
    return literal_text(condition.pattern) + escape


def _nested(condition: Condition, looser: tuple[type, ...], known: KnownTexts | None) -> str:
    text = condition_text(condition, known)
    return f"({text})" if isinstance(condition, looser) and condition_parts(condition) > 0 else text


def condition_parts(condition: Condition) -> int:
    """How many parts a conjunction or disjunction has; none means a constant."""
    return len(condition.conditions) if isinstance(condition, (And, Or)) else 1


def value_set_text(name: str, values: ValueSet) -> tuple[str, bool]:
    """A condition on one attribute, and whether it is a disjunction (and so needs parentheses in AND)."""
    quoted = name_text(name)
    if values == NOT_NULL:
        return f"{quoted} IS NOT NULL", False
    if values == ANYTHING:
        return "TRUE", False
    parts: list[str] = [f"{quoted} IS NULL"] if values.null else []
    if values.booleans == (BOOLEAN_LINE,):
        parts.append(f"{quoted} IN (FALSE, TRUE)")
    elif values.booleans:
        parts.append(f"{quoted} = {literal_text(bool(values.booleans[0][0]))}")
    parts += _number_parts(quoted, values)
    parts += _string_parts(quoted, values.strings)
    return " OR ".join(parts) if parts else "FALSE", len(parts) > 1


def _number_parts(name: str, values: ValueSet) -> list[str]:
    integers, floats = values.integers, values.floats
    regular = integers_of_floats(floats)
    if regular == integers:
        return _float_parts(name, floats)
    # Beyond 2^53, where several integers share a double: the doubles whose integers are not all alike.
    different = union(
        intersection(integers, complement(regular, INTEGER_LINE)),
        intersection(regular, complement(integers, INTEGER_LINE)),
    )
    shared: set[int] = set()
    for low, high in different:
        shared.update(range(float_to_ordinal(float(low)), float_to_ordinal(float(high - 1)) + 1))
    apart = union_of_all(((ordinal, ordinal + 1),) for ordinal in shared)
    parts = _float_parts(name, intersection(floats, complement(apart, FLOAT_LINE)))
    for ordinal in sorted(shared):
        parts += _shared_double_parts(name, ordinal, integers, contains(floats, ordinal))
    return parts


def _shared_double_parts(name: str, ordinal: int, integers: Intervals, with_double: bool) -> list[str]:
    """Conditions for some of the integers `[first, last]` that share one double, with or without it.

    A comparison with one of these integers is exact for integers and meets the double as an equal,
    so strict bounds leave the double out and the others let it in.
    """
    first, end = integers_equal_to(ordinal_to_float(ordinal))
    last = end - 1
    wanted = intersection(integers, ((first, end),))
    if with_double and not wanted:
        return [f"{name} >= {last} AND {name} <= {first}"]
    parts = []
    for low, high in wanted:
        top = high - 1
        if with_double:
            parts.append(f"{name} = {low}" if low == top else f"{name} BETWEEN {low} AND {top}")
        elif low > first:
            parts.append(f"{name} > {low - 1} AND {name} <= {top}")
        elif top < last:
            parts.append(f"{name} >= {low} AND {name} < {top + 1}")
        else:
            parts.append(f"{name} > {first} AND {name} <= {last}")
            parts.append(f"{name} >= {first} AND {name} < {last}")
    return parts


def _float_parts(name: str, floats: Intervals) -> list[str]:
    if floats == (FLOAT_LINE,):
        return [f"{name} < 0", f"{name} >= 0"]
    return _line_parts(name, floats, FLOAT_LINE, _float_literal, _float_interval_text, _is_float_point)


def _string_parts(name: str, strings: Intervals) -> list[str]:
    if strings == (STRING_LINE,):
        return [f"{name} >= ''"]
    return _line_parts(name, strings, STRING_LINE, literal_text, _string_interval_text, _is_string_point)


def _line_parts(
    name: str, intervals: Intervals, line: tuple[Any, Any], literal: Any, interval_text: Any, is_point: Any
) -> list[str]:
    """Points as `=` or IN, all but some points as `<>` or NOT IN, and stretches one by one."""
    if not intervals:
        return []
    gaps = complement(intervals, line)
    if gaps and all(is_point(low, high) for low, high in gaps):
        excluded = ", ".join(literal(low) for low, _ in gaps)
        return [f"{name} <> {excluded}" if len(gaps) == 1 else f"{name} NOT IN ({excluded})"]
    points = [low for low, high in intervals if is_point(low, high)]
    parts = []
    if points:
        listed = ", ".join(map(literal, points))
        parts.append(f"{name} = {listed}" if len(points) == 1 else f"{name} IN ({listed})")
    parts += [interval_text(name, low, high) for low, high in intervals if not is_point(low, high)]
    return parts


def _is_float_point(low: int, high: int) -> bool:
    return high == ordinal_after(low) and _finite_literal(low) is not None


def _is_string_point(low: str, high: object) -> bool:
    return high is not TOP and high == low + "\0"


def _float_literal(ordinal: int) -> str:
    value = ordinal_to_float(ordinal)
    return str(int(value)) if value.is_integer() and abs(value) < 2**53 else repr(value)


def _float_interval_text(name: str, low: int, high: int) -> str:
    """`low <= name < high` in whichever of the open and closed forms has the shorter numbers."""
    lower = upper = ""
    if low > FLOAT_LINE[0]:
        closed, opened = _finite_literal(low), _finite_literal(ordinal_before(low))
        lower = f">= {closed}" if _is_shorter(closed, opened) else f"> {opened}"
    if high < FLOAT_LINE[1]:
        closed, opened = _finite_literal(ordinal_before(high)), _finite_literal(high)
        upper = f"<= {closed}" if _is_shorter(closed, opened) else f"< {opened}"
    return _bounds_text(name, lower, upper)


def _finite_literal(ordinal: int) -> str | None:
    """None for infinity and NaN, which have no literal; no bound needs one on both sides of it."""
    return _float_literal(ordinal) if math.isfinite(ordinal_to_float(ordinal)) else None


def _is_shorter(closed: str | None, opened: str | None) -> bool:
    return closed is not None and (opened is None or len(closed) <= len(opened))


def _string_interval_text(name: str, low: str, high: object) -> str:
    if low and strings_with_prefix(low).strings == ((low, high),):
        pattern, escape = canonical_like(escape_like(low) + "%", CANONICAL_ESCAPE)
        return f"{name} LIKE {_pattern_text(Like(Attribute(name), pattern, escape))}"
    lower = upper = ""
    if low:
        lower = f"> {literal_text(low[:-1])}" if low.endswith("\0") else f">= {literal_text(low)}"
    if isinstance(high, str):
        upper = f"<= {literal_text(high[:-1])}" if high.endswith("\0") else f"< {literal_text(high)}"
    return _bounds_text(name, lower, upper)


def _bounds_text(name: str, lower: str, upper: str) -> str:
    if lower.startswith(">=") and upper.startswith("<="):
        return f"{name} BETWEEN {lower[3:]} AND {upper[3:]}"
    return " AND ".join(f"{name} {bound}" for bound in (lower, upper) if bound)
