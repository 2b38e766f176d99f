"""What do `+ - * / %` and unary minus yield?

As in Spark SQL with its `try_` functions: integers are 64-bit and doubles are IEEE, an operation
with a double is done in doubles, `/` always yields a double, `%` takes the dividend's sign, and
overflow of integers and division by zero are unknown (None), and so is arithmetic on anything that
is not a number.
"""

from __future__ import annotations

import math

from braid.language.values import INT_MAX, INT_MIN, Scalar

__all__ = ["calculate", "negate"]


def calculate(operator: str, left: Scalar | None, right: Scalar | None) -> int | float | None:
    """The value of `left operator right`, or None where it is unknown."""
    if not _is_number(left) or not _is_number(right):
        return None
    if operator == "/":
        return float(left) / float(right) if right != 0 else None  # type: ignore[arg-type]
    if isinstance(left, int) and isinstance(right, int):
        return _calculate_integers(operator, left, right)
    return _calculate_floats(operator, float(left), float(right))  # type: ignore[arg-type]


def negate(value: Scalar | None) -> int | float | None:
    """The value of `-value`."""
    if not _is_number(value):
        return None
    return _within_64_bits(-value) if isinstance(value, int) else -value  # type: ignore[operator]


def _is_number(value: Scalar | None) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _calculate_integers(operator: str, left: int, right: int) -> int | None:
    if operator == "+":
        return _within_64_bits(left + right)
    if operator == "-":
        return _within_64_bits(left - right)
    if operator == "*":
        return _within_64_bits(left * right)
    if right == 0:
        return None
    remainder = abs(left) % abs(right)
    return -remainder if left < 0 else remainder


def _calculate_floats(operator: str, left: float, right: float) -> float | None:
    if operator == "+":
        return left + right
    if operator == "-":
        return left - right
    if operator == "*":
        return left * right
    if right == 0:
        return None
    if math.isinf(left) or math.isnan(left) or math.isnan(right):
        return math.nan  # where C's fmod would raise a floating-point exception
    return math.fmod(left, right)


def _within_64_bits(value: int) -> int | None:
    return value if INT_MIN <= value <= INT_MAX else None
