"""Peers that are to answer a ping: how often each was asked, and when to look at it again."""

from __future__ import annotations

from heapq import heappop, heappush
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from braid.p2p.dht.identifiers import Address

__all__ = ["Pings"]


class Pings:
    """Who is asked for a sign of life."""

    __slots__ = ("_asked", "_due")

    def __init__(self) -> None:
        self._asked: dict[Address, tuple[int, int]] = {}
        self._due: list[tuple[int, Address]] = []
        """A heap; those that have answered since are passed over."""

    def __contains__(self, address: Address) -> bool:
        return address in self._asked

    def __len__(self) -> int:
        return len(self._asked)

    def expect(self, address: Address, count: int, due_us: int) -> None:
        """An address was asked for the how manieth time, and is to be looked at again then."""
        self._asked[address] = (count, due_us)
        heappush(self._due, (due_us, address))

    def end(self, address: Address) -> bool:
        """An address need not answer any more; whether it was to."""
        return self._asked.pop(address, None) is not None

    def clear(self) -> None:
        """Nobody needs to answer."""
        self._asked.clear()
        self._due.clear()

    def next_us(self) -> int | None:
        """When the next one is to be looked at."""
        due, asked = self._due, self._asked
        while due and asked.get(due[0][1], (0, None))[1] != due[0][0]:
            heappop(due)
        return due[0][0] if due else None

    def overdue(self, now_us: int) -> tuple[Address, int] | None:
        """One that has not answered in time, and how often it was asked. It counts as asked no more."""
        due_us = self.next_us()
        if due_us is None or due_us > now_us:
            return None
        address = heappop(self._due)[1]
        return address, self._asked.pop(address)[0]
