"""The subscriptions of one peer that wait to be installed."""

from __future__ import annotations

from heapq import heappop, heappush
from typing import TYPE_CHECKING, Final

from braid.p2p.dmm.messages import Entry
from braid.p2p.dmm.multicasting import OWN

if TYPE_CHECKING:
    from braid.language.filters import Filter
    from braid.p2p.dmm.confirming import Request
    from braid.p2p.dmm.site import Site

__all__ = ["Subscribing"]

# What is known not to be installed is asked again after so long, each time twice as long.
AGAIN_US: Final = 200_000


class Waiting:
    """A subscription that is not known to be installed."""

    __slots__ = ("key", "number", "tries", "wanted")

    def __init__(self, key: str, wanted: Filter) -> None:
        self.key = key
        self.wanted = wanted
        self.number = 0
        """Of the latest request; another one counts no more."""
        self.tries = 0


class Subscribing:
    """Asks until the answer is yes."""

    __slots__ = ("_due", "_installed", "_number", "_site", "_waiting")

    def __init__(self, site: Site) -> None:
        self._site = site
        self._number = 0
        self._waiting: dict[str, Waiting] = {}
        self._due: list[tuple[int, int, str]] = []
        """A heap of when to ask again, for which number and key; older numbers are passed over."""
        self._installed: list[str] = []

    def begin(self, key: str, wanted: Filter, now_us: int) -> None:
        """Ask for a subscription, and find out when it is installed."""
        waiting = self._waiting[key] = Waiting(key, wanted)
        self._ask_again(waiting, now_us)

    def forget(self, key: str) -> None:
        """It is not wanted any more."""
        self._waiting.pop(key, None)

    def ask(self, key: str, wanted: Filter, request: Request | None, now_us: int) -> None:
        """Ask for all entries of a subscription."""
        site = self._site
        for number, place in enumerate(site.interests.of(wanted.text).places):
            entry = Entry(f"{site.address}/{key}#{number}", wanted.text, number)
            site.multicasting.want(place.space, OWN, (entry,), (), now_us, request)
        site.gathering.enter(key, wanted, request, now_us)

    def settled(self, number: int, key: str, well: bool, now_us: int) -> None:
        """A request has been answered."""
        waiting = self._waiting.get(key)
        if waiting is None or waiting.number != number:
            return
        if well:
            del self._waiting[key]
            self._installed.append(key)
        else:
            again_us = now_us + min(self._site.settings.retry_us, AGAIN_US << min(waiting.tries, 10))
            heappush(self._due, (again_us, number, key))

    def take_installed(self) -> list[str]:
        """Those that have been installed since the last call."""
        installed, self._installed = self._installed, []
        return installed

    @property
    def due_us(self) -> int | None:
        """When one is to be asked for again."""
        due = self._due
        while due and not self._is_waiting(due[0][1], due[0][2]):
            heappop(due)
        return due[0][0] if due else None

    def tick(self, now_us: int) -> None:
        """Ask again."""
        while self._due and self._due[0][0] <= now_us:
            _, number, key = heappop(self._due)
            if self._is_waiting(number, key):
                self._ask_again(self._waiting[key], now_us)

    def _is_waiting(self, number: int, key: str) -> bool:
        waiting = self._waiting.get(key)
        return waiting is not None and waiting.number == number

    def _ask_again(self, waiting: Waiting, now_us: int) -> None:
        self._number += 1
        waiting.number = self._number
        waiting.tries += 1
        heappush(self._due, (now_us + self._site.settings.retry_us, waiting.number, waiting.key))
        request = self._site.confirming.own(waiting.number, waiting.key)
        self.ask(waiting.key, waiting.wanted, request, now_us)
        self._site.confirming.end(request, now_us)
