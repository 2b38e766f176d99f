"""What the asker wants to know of one publication that comes alone.

The counterparts of `answers` without arrays: matches arrive as bits of a segment's rows (see `bitsets`)
and as slots, and become a list of slots or a set of destinations.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

import numpy as np

from braid.matching.bitsets import bits_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy.typing as npt

    from braid.matching.bitsets import BitSets
    from braid.matching.sight import FirstSight

__all__ = ["SingleAnswer", "SingleDestinations", "SingleSlots"]

# So many destinations are asked one by one whether they are reached; of more, all matches are listed.
MASKS_MAX = 32
# The destinations of so few matches are found one by one.
FEW_SLOTS = 64


class SingleAnswer(Protocol):
    """Takes in the matches of one publication."""

    def add_bits(self, sets: BitSets, bits: int) -> None:
        """The rows of a segment's blocks that match."""
        ...

    def add_slots(self, slots: Sequence[int]) -> None:
        """Single matches; a slot may come more than once."""
        ...

    def add_destinations(self, sight: FirstSight, cell: int) -> None:
        """Destinations that a look at one attribute tells; the filters themselves will be found later."""
        ...

    def open_bits(self, sets: BitSets, bits: int) -> int:
        """Those of a segment's rows that still matter."""
        ...

    @property
    def complete(self) -> bool:
        """Whether further matches make no difference."""
        ...


class SingleSlots:
    """Every match."""

    complete = False

    def __init__(self) -> None:
        self.slots: list[int] = []
        """The slots that match; one may be there several times."""

    def add_bits(self, sets: BitSets, bits: int) -> None:
        if bits:
            self.slots += sets.slots(bits)

    def add_slots(self, slots: Sequence[int]) -> None:
        self.slots += slots

    def add_destinations(self, sight: FirstSight, cell: int) -> None:
        pass

    def open_bits(self, sets: BitSets, bits: int) -> int:
        return bits


class SingleDestinations:
    """Which destinations have at least one matching filter, as bits. Filters without one do not count."""

    def __init__(self, used: int, group_of_slot: npt.NDArray[np.int32]) -> None:
        """
        Args:
            used: the destinations that have any filter.
            group_of_slot: the destination of each filter.
        """
        self._used = used
        self._group_of_slot = group_of_slot
        self.reached = 0
        """The destinations that are reached."""

    @property
    def complete(self) -> bool:
        return self.reached == self._used

    def add_bits(self, sets: BitSets, bits: int) -> None:
        if not bits:
            return
        wanting = self._used & ~self.reached
        if wanting.bit_count() > MASKS_MAX:
            self.add_slots(sets.slots(bits))
            return
        while wanting:
            group = wanting & -wanting
            if bits & sets.mask(group, self._group_of_slot):
                self.reached |= group
            wanting ^= group

    def add_slots(self, slots: Sequence[int]) -> None:
        if len(slots) > FEW_SLOTS:
            groups = self._group_of_slot[slots]
            flags = np.zeros(self._used.bit_length(), np.bool_)
            flags[groups[groups >= 0]] = True
            self.reached |= bits_of(flags)
            return
        group_of_slot, reached = self._group_of_slot.data, self.reached
        for slot in slots:
            group = group_of_slot[slot]
            if group >= 0:
                reached |= 1 << group
        self.reached = reached

    def add_destinations(self, sight: FirstSight, cell: int) -> None:
        self.reached |= sight.reached_from(cell)

    def open_bits(self, sets: BitSets, bits: int) -> int:
        wanting = self._used & ~self.reached
        if wanting.bit_count() > MASKS_MAX:
            return bits
        wanted = 0
        while wanting:
            group = wanting & -wanting
            wanted |= sets.mask(group, self._group_of_slot)
            wanting ^= group
        return bits & wanted
