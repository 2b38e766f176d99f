"""What number does a destination have?"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from braid.matching.bitsets import bits_of, listed

if TYPE_CHECKING:
    from collections.abc import Hashable, Sequence

    from braid.matching.columns import BoolArray

__all__ = ["Groups"]

# So many sets of destinations are kept, some hundred bytes each.
REACHED_MAX = 512


class Groups:
    """Numbers for groups; a number is used again once its group has no filter left."""

    def __init__(self) -> None:
        self._number_of: dict[Hashable, int] = {}
        self._values: list[Any] = []
        self._members: list[int] = []
        self._free: list[int] = []
        self._used_bits: int | None = 0
        self._reached: dict[int, list[tuple[Any, None]]] = {}
        self.own = 0
        """How many filters are their own group."""

    def __len__(self) -> int:
        return len(self._values)

    def enter(self, group: Hashable) -> int:
        """One more filter belongs to this group; its number, or -1 for a filter that is its own group."""
        if group is None:
            self.own += 1
            return -1
        number = self._number_of.get(group)
        if number is None:
            if self._free:
                number = self._free.pop()
                self._values[number] = group
            else:
                number = len(self._values)
                self._values.append(group)
                self._members.append(0)
            self._number_of[group] = number
            self._used_bits = None
            self._reached.clear()
        self._members[number] += 1
        return number

    def leave(self, number: int) -> None:
        """One filter fewer belongs to the group of this number."""
        if number < 0:
            self.own -= 1
            return
        self._members[number] -= 1
        if not self._members[number]:
            del self._number_of[self._values[number]]
            self._values[number] = None
            self._free.append(number)
            self._used_bits = None
            self._reached.clear()

    def value(self, number: int) -> Any:
        """The group of a number."""
        return self._values[number]

    def values(self) -> list[Any]:
        """The groups by number, None where a number is free."""
        return list(self._values)

    def named(self, numbers: int) -> list[Any]:
        """The groups of the numbers whose bits are set."""
        return [self._values[number] for number in listed(numbers)]

    def reached(self, numbers: int) -> list[tuple[Any, None]]:
        """The same as destinations that get all rows; kept, as publications alike follow each other."""
        found = self._reached.get(numbers)
        if found is None:
            if len(self._reached) >= REACHED_MAX:
                self._reached.clear()
            found = self._reached[numbers] = [(group, None) for group in self.named(numbers)]
        return found

    def flags(self, lines: Sequence[int]) -> BoolArray:
        """The same as booleans, one line for each set of bits and one column per number."""
        octets = (len(self) + 7) // 8
        packed = np.frombuffer(b"".join([bits.to_bytes(octets, "little") for bits in lines]), np.uint8)
        flags = np.unpackbits(packed.reshape(len(lines), octets), axis=1, bitorder="little")
        return flags[:, : len(self)].view(np.bool_)

    def used(self) -> BoolArray:
        """Which numbers have a group."""
        return np.array(self._members, np.int64) > 0

    @property
    def used_bits(self) -> int:
        """The same as the bits of a whole number."""
        if self._used_bits is None:
            self._used_bits = bits_of(self.used())
        return self._used_bits
