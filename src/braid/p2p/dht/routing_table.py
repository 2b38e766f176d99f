"""Who leads further towards a key: for every length of a common prefix and every next digit, one near peer.

Row r holds peers whose identifiers have their first r digits in common with this peer's; the slot within
the row is the next digit. A slot that could hold many peers holds one that is near in the network, so the
first hops of a message, for which there is the widest choice, are short (Pastry's proximity-aware routing).
"""

from __future__ import annotations

from array import array
from typing import TYPE_CHECKING, Final

from braid.p2p.dht.identifiers import KEY_BYTES, number_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from braid.p2p.dht.identifiers import Address, Contact

__all__ = ["UNMEASURED", "RoutingTable"]

# The round trip time to a peer that nobody has measured: worse than any that was.
UNMEASURED: Final = 0xFFFFFFFF
_BITS: Final = 8 * KEY_BYTES


class RoutingTable:
    """Rows of slots, made as they are needed."""

    __slots__ = ("_number", "_rows", "_times", "changes", "digit_bits")

    def __init__(self, number: int, digit_bits: int = 4) -> None:
        self._number = number
        self.digit_bits = digit_bits
        self._rows: list[list[Contact | None]] = []
        self._times: list[array[int]] = []
        """Round trip times in microseconds, or `UNMEASURED`."""
        self.changes = 0
        """How often a slot has got another peer, or lost one."""

    def fill(self, rows: list[list[Contact | None]], times: list[array[int]]) -> None:
        """Take over whole rows at once, with the round trip times to the peers in them."""
        self._rows, self._times = rows, times
        self.changes += 1

    def row_of(self, number: int) -> int:
        """How many digits an identifier (not this peer's own) has in common with this peer's."""
        return (_BITS - (self._number ^ number).bit_length()) // self.digit_bits

    def _digit(self, number: int, row: int) -> int:
        bits = self.digit_bits
        return (number >> (_BITS - bits * (row + 1))) & ((1 << bits) - 1)

    def get(self, number: int) -> Contact | None:
        """A peer that has at least one more digit in common with a key than this one, if one is known."""
        bits = self.digit_bits
        row = (_BITS - (self._number ^ number).bit_length()) // bits
        if row >= len(self._rows):
            return None
        return self._rows[row][(number >> (_BITS - bits * (row + 1))) & ((1 << bits) - 1)]

    def closer(self, number: int) -> Iterator[Contact]:
        """Peers that have at least as many digits in common with a key as this one."""
        for row in self._rows[self.row_of(number) :]:
            for contact in row:
                if contact is not None:
                    yield contact

    def has_room(self, number: int) -> bool:
        """Whether the slot for an identifier is free."""
        row = self.row_of(number)
        return row >= len(self._rows) or self._rows[row][self._digit(number, row)] is None

    def add(self, contact: Contact, number: int, time_us: int = UNMEASURED) -> bool:
        """Put a peer into its slot if that is free, or if it is nearer than the one there; whether it was."""
        if number == self._number:
            return False
        row, width = self.row_of(number), 1 << self.digit_bits
        while row >= len(self._rows):
            self._rows.append([None] * width)
            self._times.append(array("I", [UNMEASURED]) * width)
        digit = self._digit(number, row)
        present = self._rows[row][digit]
        if present is not None and present != contact and time_us >= self._times[row][digit]:
            return False
        if present == contact:
            self._times[row][digit] = min(time_us, UNMEASURED)
            return False
        self.changes += 1
        self._rows[row][digit] = contact
        self._times[row][digit] = min(time_us, UNMEASURED)
        return True

    def remove(self, contact: Contact) -> int | None:
        """Strike out a peer; the row it was in, if it was here."""
        number = number_of(contact.id)
        if number == self._number:
            return None
        row = self.row_of(number)
        if row >= len(self._rows):
            return None
        digit = self._digit(number, row)
        if self._rows[row][digit] != contact:
            return None
        self.changes += 1
        self._rows[row][digit] = None
        self._times[row][digit] = UNMEASURED
        return row

    def time_us(self, contact: Contact) -> int:
        """The round trip time to a peer of the table; `UNMEASURED` if it is not there or not measured."""
        number = number_of(contact.id)
        row = self.row_of(number) if number != self._number else len(self._rows)
        if row < len(self._rows):
            digit = self._digit(number, row)
            if self._rows[row][digit] == contact:
                return self._times[row][digit]
        return UNMEASURED

    def __contains__(self, contact: Contact) -> bool:
        number = number_of(contact.id)
        row = self.row_of(number) if number != self._number else len(self._rows)
        return row < len(self._rows) and self._rows[row][self._digit(number, row)] == contact

    @property
    def depth(self) -> int:
        """How many rows there are."""
        return len(self._rows)

    def row(self, row: int) -> list[Contact]:
        """The peers of a row, in the order of their digits."""
        if row >= len(self._rows):
            return []
        return [contact for contact in self._rows[row] if contact is not None]

    def __iter__(self) -> Iterator[Contact]:
        for row in self._rows:
            for contact in row:
                if contact is not None:
                    yield contact

    def addresses(self) -> list[Address]:
        """Where all these peers are."""
        return [contact.address for contact in self]
