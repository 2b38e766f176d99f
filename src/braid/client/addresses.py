"""Where does a client go next?

To the addresses that it was given, in turn. If none of them has answered for a while, also to the neighbours
of its broker, of which it has heard while it was connected: a *refuge*. What is durable waits meanwhile: its
log is at *home*, with the broker at an address that was given, or with the one that has its name now.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

__all__ = ["Addresses"]

# So often the given addresses are tried before others are.
ROUNDS = 2
# Refuges that are remembered.
REFUGES_MAX = 16
# How long a client with logs at home stays at a refuge before it looks whether home is back, at first and at
# most: a refuge may be no neighbour of home, and then it never hears of it.
LOOK_US_MIN = 5_000_000
LOOK_US_MAX = 60_000_000
ADDRESS_LENGTH_MAX = 300


class Addresses:
    """The addresses of one client."""

    def __init__(self, given: Sequence[str]) -> None:
        self._given = tuple(given)
        self._refuges: dict[str, str] = {}
        """Other brokers by name, as the latest broker has told them."""
        self._place = 0
        self._failed = 0
        """Attempts in vain since the last connection."""
        self._dialled = self._given[0]
        self._next = ""
        self._moved = ""
        """Where home is, as the present broker says."""
        self._look_us = 0
        self.look_at_us = 0
        """When it looks for home again, if it is away."""
        self.home = ""
        """The broker at an address that was given."""
        self.away = False
        """Whether the present broker is a refuge."""

    def __str__(self) -> str:
        return ", ".join(self._tried())

    def _tried(self) -> list[str]:
        tried = list(self._given)
        if self._failed >= ROUNDS * len(self._given):
            # The one that has the name of home first.
            names = sorted(self._refuges, key=lambda name: (name != self.home, name))
            tried += [self._refuges[name] for name in names if self._refuges[name] not in tried]
        return tried

    def take(self) -> str:
        """The address to dial now."""
        tried = self._tried()
        self._dialled, self._next = self._next or tried[self._place % len(tried)], ""
        return self._dialled

    def welcomed(self, name: str, now_us: int) -> None:
        """The broker of this name has answered."""
        self._failed = 0
        self._moved = ""
        if self._dialled in self._given:
            self.home = name
        self.away = name != self.home
        self._look_us = min(LOOK_US_MAX, max(LOOK_US_MIN, 2 * self._look_us)) if self.away else 0
        self.look_at_us = now_us + self._look_us

    def lost(self) -> None:
        """A connection has ended, or could not be made."""
        self._failed += 1
        self._place += 1

    def told(self, neighbours: Iterable[tuple[str, str]]) -> None:
        """The present broker says who its neighbours are; what others said before is remembered, too."""
        known = {name: at for name, at in neighbours if 0 < len(at) <= ADDRESS_LENGTH_MAX}
        merged = known | {name: at for name, at in self._refuges.items() if name not in known}
        self._refuges = dict(list(merged.items())[:REFUGES_MAX])
        self._moved = known.get(self.home, "")

    def go_home(self) -> bool:
        """Whether home is somewhere else now, and that is known; it is dialled next then."""
        self._next = self._moved if self.away else ""
        return bool(self._next)

    def look(self, now_us: int) -> bool:
        """Whether it is time to look for home where it was; then it is dialled next, and refuges after it."""
        if not self.away or now_us < self.look_at_us:
            return False
        self._next, self._place, self._failed = self._given[0], 0, -1
        return True
