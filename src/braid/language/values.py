"""What is a value, and which values can be compared?

A publication's attribute holds a 64-bit integer, a double, a string, a boolean, or a `Range` of
numbers. Values of one kind (number, string, boolean) have a total order, the one Spark SQL uses:
numbers by size with NaN equal to itself and above infinity, strings by code point, False before
True. An integer and a float meet as doubles; two integers meet exactly. Values of different kinds
cannot be compared: the answer is unknown.
"""

from __future__ import annotations

import math
import struct
from dataclasses import dataclass
from typing import Any, TypeAlias

from braid.errors import PublicationError

__all__ = [
    "INT_MAX",
    "INT_MIN",
    "Range",
    "Scalar",
    "Value",
    "compare",
    "float_to_ordinal",
    "ordinal_after",
    "ordinal_before",
    "ordinal_to_float",
    "plain_number",
]

INT_MIN = -(2**63)
INT_MAX = 2**63 - 1

Scalar: TypeAlias = bool | int | float | str


@dataclass(frozen=True, slots=True)
class Range:
    """A closed range of numbers as an attribute's value: `{"height": Range(3, 5)}`.

    It stands for an extent or an uncertain value: a filter matches when some point of the range
    satisfies it. The points are all integers and all doubles from `low` to `high`; either end may
    be infinite. It says nothing about strings.
    """

    low: int | float
    high: int | float

    def __post_init__(self) -> None:
        for name in ("low", "high"):
            bound = plain_number(getattr(self, name))
            object.__setattr__(self, name, bound)
            if isinstance(bound, bool) or not isinstance(bound, (int, float)):
                raise PublicationError(
                    f"the {name} end of a Range must be a number, not {type(bound).__name__}"
                )
            if isinstance(bound, float) and math.isnan(bound):
                raise PublicationError(f"the {name} end of a Range cannot be NaN")
            if isinstance(bound, int) and not INT_MIN <= bound <= INT_MAX:
                raise PublicationError(f"the {name} end of a Range does not fit into 64 bits")
        if self.low > self.high:
            raise PublicationError(f"a Range runs from low to high, not from {self.low} to {self.high}")


Value: TypeAlias = Scalar | Range


def plain_number(value: Any) -> Any:
    """A NumPy number or boolean as Python's own, without importing NumPy; anything else as it is."""
    kind = getattr(getattr(value, "dtype", None), "kind", "")
    return value.item() if kind and kind in "biuf" and value.ndim == 0 else value


def compare(left: Scalar | None, right: Scalar | None) -> int | None:
    """-1, 0 or 1 in the order of the language; None (unknown) across kinds or with NULL."""
    if isinstance(left, str) and isinstance(right, str):
        return (left > right) - (left < right)
    left_bool, right_bool = isinstance(left, bool), isinstance(right, bool)
    if left_bool or right_bool:
        return int(left) - int(right) if left_bool and right_bool else None  # type: ignore[arg-type]
    if not isinstance(left, (int, float)) or not isinstance(right, (int, float)):
        return None
    if isinstance(left, float) or isinstance(right, float):
        left, right = float(left), float(right)
        if left != left or right != right:
            return int(left != left) - int(right != right)
    return (left > right) - (left < right)


_DOUBLE = struct.Struct("<d")
_LONG = struct.Struct("<q")
_MAGNITUDE = 2**63 - 1
_NAN_ORDINAL: int = _LONG.unpack(_DOUBLE.pack(math.nan))[0] & _MAGNITUDE


def float_to_ordinal(value: float) -> int:
    """The place of a double on the number line as a signed 64-bit integer.

    The order of doubles is the order of their ordinals, both zeros share one, and NaN comes last, so
    an interval of doubles, open or closed, is a half-open interval of integers; its ends come from
    here, `ordinal_after` and `ordinal_before`.
    """
    if value != value:
        return _NAN_ORDINAL
    bits: int = _LONG.unpack(_DOUBLE.pack(value + 0.0))[0]
    return bits if bits >= 0 else bits ^ _MAGNITUDE


def ordinal_after(ordinal: int) -> int:
    """The place of the next larger double."""
    # The place of negative zero, -1, is empty: it has moved in with the other zero.
    return ordinal + 1 if ordinal != -2 else 0


def ordinal_before(ordinal: int) -> int:
    """The place of the next smaller double."""
    return ordinal - 1 if ordinal != 0 else -2


def ordinal_to_float(ordinal: int) -> float:
    """The double at that place; the inverse of `float_to_ordinal`."""
    bits = ordinal if ordinal >= 0 else ordinal ^ _MAGNITUDE
    value: float = _DOUBLE.unpack(_LONG.pack(bits))[0]
    return value
