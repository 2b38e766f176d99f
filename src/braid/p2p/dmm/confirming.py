"""When is something that was asked for where it has to be? Requests, and what of each is not answered yet.

What a peer asks of another leads to further messages, on the way to the tree of regions, down to its leaves,
and on to the spaces of single attributes. A *request* goes with them: whoever gets one with a number asks
others in turn with numbers of its own, and answers (`Installed`) when all of them have answered. A peer that
cannot say yes (a digest differs, a table is still on its way) says at once that it failed, and whoever asked
first asks again. What is lost on the way is never answered, which is the same after some time.

It is how computations that spread are known to have ended (Dijkstra and Scholten, 1980).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from braid.p2p.dmm.messages import Installed

if TYPE_CHECKING:
    from braid.p2p.dht.identifiers import Address
    from braid.p2p.dmm.site import Site

__all__ = ["Confirming", "Request"]

# So many numbers wait for answers; the oldest are given up, and what they were for is asked again.
WAITING_MAX: Final = 20_000


class Request:
    """What one peer, or this one itself, has asked for, and what of it is open."""

    __slots__ = ("address", "failed", "key", "number", "open", "told")

    def __init__(self, address: Address, number: int, key: str = "") -> None:
        self.address = address
        """Who asks; empty if it is this peer itself."""
        self.number = number
        self.key = key
        """What this peer itself has asked for."""
        self.open = 1
        """How many answers are missing, and one while it is taken in."""
        self.failed = False
        self.told = False
        """Whether it has been answered."""

    def fail(self) -> None:
        """It is not installed, for now."""
        self.failed = True


class Confirming:
    """The requests that one peer is busy with."""

    __slots__ = ("_number", "_of", "_site", "settled")

    def __init__(self, site: Site) -> None:
        self._site = site
        self._number = 0
        self._of: dict[int, Request] = {}
        """By the number of an answer that is missing, what it is for."""
        self.settled: list[Request] = []
        """Requests of this peer itself that have been answered, until they are taken."""

    def begin(self, address: Address, number: int) -> Request | None:
        """Something with a request has come; `end` follows when it is taken in. None: no answer is wanted."""
        return Request(address, number) if number else None

    def own(self, number: int, key: str = "") -> Request:
        """A request of this peer itself, which will be among those that are `settled`."""
        return Request("", number, key)

    def part(self, request: Request | None, now_us: int) -> int:
        """A number for a message that is sent because of a request; 0 without one."""
        if request is None:
            return 0
        request.open += 1
        # Time makes numbers that an earlier life of this peer did not use.
        self._number = number = max(self._number + 1, now_us)
        self._of[number] = request
        if len(self._of) > WAITING_MAX:
            del self._of[next(iter(self._of))]
        return number

    def end(self, request: Request | None, now_us: int) -> None:
        """All that a request leads to here has been sent."""
        if request is not None:
            self._one_less(request, now_us)

    def on_installed(self, sender: Address, message: Installed, now_us: int) -> None:
        """An answer."""
        request = self._of.pop(message.request, None)
        if request is not None:
            request.failed |= message.failed
            self._one_less(request, now_us)

    def _one_less(self, request: Request, now_us: int) -> None:
        request.open -= 1
        if request.told or (request.open and not request.failed):
            return
        request.told = True
        if request.address:
            self._site.say(request.address, Installed(request.number, request.failed), now_us)
        else:
            self.settled.append(request)
