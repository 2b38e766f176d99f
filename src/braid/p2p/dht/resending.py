"""Messages that are confirmed hop by hop: sent again when no confirmation comes, and given up in the end.

A receiver remembers the numbers it has seen, so what came twice because a confirmation was lost counts once.
"""

from __future__ import annotations

from dataclasses import dataclass
from heapq import heappop, heappush
from typing import TYPE_CHECKING, Final

from braid.p2p.dht.messages import Confirmed, Numbered

if TYPE_CHECKING:
    import msgspec

    from braid.p2p.dht.identifiers import Address
    from braid.p2p.turn import Turn

__all__ = ["Pending", "Resender"]

# So many messages wait for a confirmation; further ones are sent without asking for one.
PENDING_MAX: Final = 20_000
# So many numbers of others are remembered. A repeat comes within some seconds of the original.
SEEN_MAX: Final = 8_192
# So many round trip times are remembered.
TIMES_MAX: Final = 512
# A confirmation may be late by so much, beyond twice the round trip time, if nothing else is said.
GRACE_US: Final = 100_000


@dataclass(slots=True)
class Pending:
    """A message that is not confirmed yet."""

    address: Address
    message: msgspec.Struct
    sent_us: int
    tries: int = 1


class Resender:
    """What one peer has sent and heard of this kind."""

    __slots__ = (
        "_due",
        "_grace_us",
        "_number",
        "_pending",
        "_seen",
        "_timeout_us",
        "_times",
        "_tries_max",
        "_turn",
    )

    def __init__(self, turn: Turn, timeout_us: int, tries_max: int, grace_us: int = GRACE_US) -> None:
        self._turn = turn
        self._grace_us = grace_us
        self._timeout_us = timeout_us
        self._tries_max = tries_max
        self._number = 0
        self._pending: dict[int, Pending] = {}
        self._due: list[tuple[int, int]] = []
        """A heap of when to look at which number again; those confirmed since are passed over."""
        self._seen: dict[tuple[Address, int], None] = {}
        self._times: dict[Address, int] = {}

    def send(self, address: Address, message: msgspec.Struct, now_us: int) -> None:
        """Send a message until it is confirmed or given up."""
        if len(self._pending) >= PENDING_MAX:
            self._turn.send(address, message)
            return
        # Time makes numbers that an earlier life of this peer did not use.
        self._number = number = max(self._number + 1, now_us)
        self._pending[number] = Pending(address, message, now_us)
        heappush(self._due, (now_us + self._patience_us(address), number))
        self._turn.send(address, Numbered(number, message))

    def heard(self, sender: Address, message: Numbered[msgspec.Struct]) -> bool:
        """Confirm a message; whether it is new."""
        self._turn.send(sender, Confirmed(message.number))
        mark = (sender, message.number)
        if mark in self._seen:
            return False
        self._seen[mark] = None
        if len(self._seen) > SEEN_MAX:
            del self._seen[next(iter(self._seen))]
        return True

    def confirmed(self, sender: Address, number: int, now_us: int) -> None:
        """A message has come to its receiver."""
        pending = self._pending.get(number)
        if pending is None or pending.address != sender:
            return
        del self._pending[number]
        if pending.tries == 1:
            self._times.pop(sender, None)
            self._times[sender] = now_us - pending.sent_us
            if len(self._times) > TIMES_MAX:
                del self._times[next(iter(self._times))]

    def overdue(self, now_us: int) -> list[Pending]:
        """Send again what is due; returns what was tried often enough and is given up."""
        given_up: list[Pending] = []
        while self._due and self._due[0][0] <= now_us:
            _, number = heappop(self._due)
            pending = self._pending.get(number)
            if pending is None:
                continue
            if pending.tries >= self._tries_max:
                del self._pending[number]
                given_up.append(pending)
                continue
            pending.tries += 1
            # Whoever is slow may have become slower: each further try waits twice as long.
            heappush(self._due, (now_us + (self._patience_us(pending.address) << pending.tries - 1), number))
            self._turn.send(pending.address, Numbered(number, pending.message))
        return given_up

    def withdraw(self, address: Address) -> list[Pending]:
        """What waits for a peer that is known to be gone; it is not sent again."""
        numbers = [number for number, pending in self._pending.items() if pending.address == address]
        self._times.pop(address, None)
        return [self._pending.pop(number) for number in numbers]

    @property
    def is_idle(self) -> bool:
        """Whether everything is confirmed or given up."""
        return not self._pending

    @property
    def patience_us(self) -> int:
        """How long a confirmation has taken at most, of late, and some more."""
        return max(self._times.values(), default=self._timeout_us) + self._grace_us

    def next_deadline_us(self) -> int | None:
        """When `overdue` is to be asked."""
        due, pending = self._due, self._pending
        while due and due[0][1] not in pending:
            heappop(due)
        return due[0][0] if due else None

    def _patience_us(self, address: Address) -> int:
        time_us = self._times.get(address)
        if time_us is None:
            return self._timeout_us
        return min(self._timeout_us, 2 * time_us + self._grace_us)
