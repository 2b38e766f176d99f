"""How is a range of values named by a string of bits?

A z-code names a region: the domain of an attribute is halved again and again, and each bit says in which
half to look (infrastructure-free paper, Figure 2). The codes of several attributes are joined bit by bit
(Figure 3). A code that is a prefix of another names a region that encloses the other's.

    >>> attribute_zcode(30, 45, 0, 100)
    '01'
    >>> interleave(["01", "00"])
    '0010'
    >>> encloses("00", "0010")
    True

A `Domain` says which *place* a value has: an integer of `bits` bits that grows with the value, the longest
code that Figure 2 can give. So the code of a range is what the places of its ends have in common, and the
values of a region are an interval of places. Values outside the bounds of a domain have the place of the
nearest bound.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import chain
from typing import Any, Protocol

from braid.errors import ConfigurationError
from braid.language.values import float_to_ordinal

__all__ = [
    "BooleanDomain",
    "Domain",
    "FloatDomain",
    "IntegerDomain",
    "OrdinalDomain",
    "StringDomain",
    "attribute_zcode",
    "common_zcode",
    "encloses",
    "interleave",
    "overlap",
    "place_zcode",
]

# Longer strings are told apart by their filters, not by their places.
STRING_BYTES_MAX = 64
# A domain with more steps than this is as fine as the doubles that it is made of.
STEPS_MAX = 2**64


def attribute_zcode(low: int, high: int, lower_bound: int, upper_bound: int) -> str:
    """The z-code of the integers from `low` to `high` in the domain from `lower_bound` to `upper_bound`.

    It names the smallest region that encloses them: Figure 2, to the letter. All four are included in what
    they bound.

    Raises:
        ConfigurationError: the range or the domain is empty, or the range is not within the domain.
    """
    for number in (low, high, lower_bound, upper_bound):
        if not isinstance(number, int):
            raise ConfigurationError(f"a z-code is made of whole numbers, not of {number!r}")
    if lower_bound > upper_bound:
        raise ConfigurationError(f"a domain runs from low to high, not from {lower_bound} to {upper_bound}")
    if low > high:
        raise ConfigurationError(f"a range of values runs from low to high, not from {low} to {high}")
    if low < lower_bound or high > upper_bound:
        raise ConfigurationError(
            f"the values from {low} to {high} are not within the domain from {lower_bound} to {upper_bound}"
        )
    bits = []
    first, last = lower_bound, upper_bound
    while first < last:
        # The middle itself, if it is an integer, bounds both halves and belongs to the lower one.
        doubled = first + last
        if 2 * high <= doubled:
            last = doubled // 2
            bits.append("0")
        elif 2 * low > doubled:
            first = -(-doubled // 2)
            bits.append("1")
        else:
            break
    return "".join(bits)


def interleave(zcodes: list[str]) -> str:
    """One code for a region of several attributes: a bit of each in turn, up to the end of the shortest."""
    if isinstance(zcodes, str):
        raise ConfigurationError(f"z-codes come as a list, one for each attribute, not as {zcodes!r}")
    for code in zcodes:
        if code.strip("01"):
            raise ConfigurationError(f"a z-code is made of 0 and 1, unlike {code!r}")
    return "".join(chain.from_iterable(zip(*zcodes, strict=False)))


def encloses(outer: str, inner: str) -> bool:
    """Whether the region of one z-code encloses that of another."""
    return inner.startswith(outer)


def overlap(first: str, second: str) -> bool:
    """Whether the regions of two z-codes have something in common: one encloses the other."""
    return first.startswith(second) or second.startswith(first)


def place_zcode(place: int, bits: int) -> str:
    """A place of a domain as its z-code of full length."""
    return f"{place:0{bits}b}" if bits else ""


def common_zcode(low: int, high: int, bits: int) -> str:
    """The z-code of all places from `low` to `high`: what those two have in common."""
    shared = bits - (low ^ high).bit_length()
    return place_zcode(low >> bits - shared, shared)


class Domain(Protocol):
    """Where the values of one attribute lie."""

    @property
    def bits(self) -> int:
        """How many bits the code of a single value has."""
        ...

    def place(self, value: Any) -> int:
        """The place of a value of this domain's kind; it never falls when the value rises."""
        ...


@dataclass(frozen=True, slots=True)
class IntegerDomain:
    """Whole numbers from `low` to `high`; others are rounded down."""

    low: int
    high: int

    def __post_init__(self) -> None:
        if self.low > self.high:
            raise ConfigurationError(f"a domain runs from low to high, not from {self.low} to {self.high}")

    @property
    def bits(self) -> int:
        """Both halves of a domain are equally wide, so every value has a code of this length."""
        return (self.high - self.low).bit_length()

    def place(self, value: Any) -> int:
        """Figure 2 for a single value."""
        if value != value or value >= self.high:  # NaN is above all numbers
            number = self.high
        else:
            number = self.low if value <= self.low else math.floor(value)
        code, first, last = 0, self.low, self.high
        while first < last:
            doubled = first + last
            code <<= 1
            if 2 * number <= doubled:
                last = doubled // 2
            else:
                first = -(-doubled // 2)
                code |= 1
        return code


@dataclass(frozen=True, slots=True)
class FloatDomain:
    """Numbers from `low` to `high` in steps of `granularity`; those between two steps are rounded down."""

    low: float
    high: float
    granularity: float

    def __post_init__(self) -> None:
        if not (math.isfinite(self.low) and math.isfinite(self.high) and self.low < self.high):
            raise ConfigurationError(f"a domain runs from low to high, not from {self.low} to {self.high}")
        if not self.granularity > 0 or self._ratio(self.high) >= STEPS_MAX:
            raise ConfigurationError(
                f"a granularity is positive and not finer than the numbers, unlike {self.granularity}"
            )

    @property
    def bits(self) -> int:
        """As many as number the steps."""
        return math.floor(self._ratio(self.high)).bit_length()

    def place(self, value: Any) -> int:
        """The number of the step that the value is on, as Figure 2 codes it."""
        last = math.floor(self._ratio(self.high))
        if value != value or value >= self.high:
            step = last
        else:
            step = 0 if value <= self.low else math.floor(self._ratio(value))
        return IntegerDomain(0, last).place(step)

    def _ratio(self, value: float) -> float:
        # Subtraction and division of doubles never turn an order round.
        return (float(value) - self.low) / self.granularity


@dataclass(frozen=True, slots=True)
class OrdinalDomain:
    """All numbers, in the order of doubles: what is taken for a number without a schema."""

    @property
    def bits(self) -> int:
        """Those of a double."""
        return 64

    def place(self, value: Any) -> int:
        """The ordinal of the nearest double, counted from the smallest."""
        return float_to_ordinal(float(value)) + 2**63


@dataclass(frozen=True, slots=True)
class StringDomain:
    """Strings by their first bytes in UTF-8, whose order is that of code points."""

    length_max: int = 8

    def __post_init__(self) -> None:
        if not 1 <= self.length_max <= STRING_BYTES_MAX:
            raise ConfigurationError(
                f"a string's length_max is from 1 to {STRING_BYTES_MAX} bytes, not {self.length_max}"
            )

    @property
    def bits(self) -> int:
        """Those of the bytes that count."""
        return 8 * self.length_max

    def place(self, value: Any) -> int:
        """The first bytes as one number; a shorter string is filled up with zeros."""
        start = str(value)[: self.length_max].encode("utf-8", "surrogatepass")[: self.length_max]
        return int.from_bytes(start.ljust(self.length_max, b"\0"), "big")


@dataclass(frozen=True, slots=True)
class BooleanDomain:
    """False and True."""

    @property
    def bits(self) -> int:
        """One."""
        return 1

    def place(self, value: Any) -> int:
        """False before True."""
        return int(bool(value))
