"""Whose turn is it? Locks by name, taken one after the other, without time or messages.

Whoever waits for its next lock keeps those it has. Since everybody takes them in the order of their names, no
circle of waiting can form. Each completed claim gets an epoch, greater than all before.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = ["Claim", "LockTable"]


class Claim:
    """A wish for some locks: waiting for the next of them, complete, or over."""

    __slots__ = ("epoch", "names", "owner", "taken", "token")

    def __init__(self, owner: object, token: int, names: Iterable[str]) -> None:
        self.owner = owner
        self.token = token
        self.names = tuple(sorted(set(names)))
        self.taken = 0
        """How many of them it has."""
        self.epoch = 0
        """Above 0 when it has all of them."""


class LockTable:
    """Locks that come to be when they are asked for."""

    def __init__(self) -> None:
        self._lines: dict[str, deque[Claim]] = {}
        """By lock: who has it, and then who waits for it, in the order in which they came."""
        self._epoch = 0

    def holder(self, name: str) -> Claim | None:
        """Who has a lock."""
        line = self._lines.get(name)
        return line[0] if line else None

    def enter(self, claim: Claim) -> list[Claim]:
        """Take the locks that are free, in order, and stand in line for the next; what is complete now."""
        return self._go_on([claim], entering=True)

    def leave(self, claim: Claim) -> list[Claim]:
        """Give everything back; the claims that are complete because of that."""
        moved = []
        for name in claim.names[: claim.taken + 1]:
            line = self._lines.get(name, deque())
            if claim in line:
                first = line[0] is claim
                line.remove(claim)
                if not line:
                    del self._lines[name]
                elif first:
                    moved.append(line[0])
        return self._go_on(moved, entering=False)

    def _go_on(self, claims: list[Claim], *, entering: bool) -> list[Claim]:
        """Each has got the lock that it waited for, or has just come."""
        complete = []
        for claim in claims:
            if not entering:
                claim.taken += 1
            while claim.taken < len(claim.names):
                line = self._lines.setdefault(claim.names[claim.taken], deque())
                line.append(claim)
                if line[0] is not claim:
                    break
                claim.taken += 1
            else:
                self._epoch += 1
                claim.epoch = self._epoch
                complete.append(claim)
        return complete
