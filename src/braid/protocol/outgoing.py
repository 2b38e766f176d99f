"""What waits to be sent in one credit class?"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from braid.protocol.batch import PublicationBatch

if TYPE_CHECKING:
    from braid.protocol.codec import Body

__all__ = ["NOTHING", "Outgoing", "SendingClass"]

Care = TypeVar("Care")

NOTHING: deque[Any] = deque()
"""Where nothing is in line, which is nearly everywhere and always. Nothing is ever put into it."""


class Outgoing(Generic[Care]):
    """Something that waits to be sent; `care` is who wants to hear that it is settled.

    Only publications have a size: credit and the bounds on memory are about them.
    """

    __slots__ = ("body", "care", "order", "ready", "size")

    def __init__(self, body: Body, size: int, care: Care | None, order: int = 0) -> None:
        self.body = body
        self.size = size
        self.care = care
        self.order = order
        """Its place among everything that was offered."""
        self.ready = False
        """Whether it may be sent while only those pass that were chosen."""


class SendingClass(Generic[Care]):
    """What waits in one class, and how much of it the peer has room for."""

    __slots__ = (
        "arrived_bytes",
        "credit",
        "held",
        "room",
        "unsettled_bytes",
        "waiting",
        "waiting_bytes",
        "window",
    )

    def __init__(self, credit: int) -> None:
        self.waiting: deque[Outgoing[Care]] = NOTHING
        self.held: list[Outgoing[Care]] = []
        """Those of them that are passed over at the moment."""
        self.waiting_bytes = 0
        self.arrived_bytes = 0
        """Of what was sent since the session began, what is known to have arrived."""
        self.unsettled_bytes = 0
        """Arrived, and kept until everybody downstream has them."""
        self.window = credit
        """The credit that it began with: a larger frame goes when all of that is there."""
        self.credit = credit
        """What the peer has granted since the session began."""
        self.room = credit
        """What is left of it; less than nothing after a frame that was larger than all of it."""

    @property
    def sent_bytes(self) -> int:
        """What was sent since the session began."""
        return self.credit - self.room

    @property
    def moved_bytes(self) -> int:
        """What was sent, and once more what of that has arrived. It grows for as long as anything moves, also
        where all that there is credit for waits for a slow line."""
        return self.sent_bytes + self.arrived_bytes

    @property
    def backlog_bytes(self) -> int:
        """Publications of this class that wait or are kept."""
        return self.waiting_bytes + self.sent_bytes - self.arrived_bytes + self.unsettled_bytes

    def grant(self, credit: int) -> None:
        """The peer has room for so much since the session began."""
        self.room += credit - self.credit
        self.credit = credit

    def wait(self, outgoing: Outgoing[Care]) -> None:
        """Put something in line."""
        if self.waiting is NOTHING:
            self.waiting = deque()
        self.waiting.append(outgoing)
        self.waiting_bytes += outgoing.size

    def drop_waiting(self) -> tuple[int, list[Care]]:
        """Drop what waits; returns how many rows, and who waited for them."""
        rows = sum(len(each.body) for each in self.waiting if isinstance(each.body, PublicationBatch))
        cares = [each.care for each in self.waiting if each.care is not None]
        self.waiting.clear()
        self.waiting_bytes = 0
        return rows, cares

    def restart(self, credit: int) -> None:
        """A new session: nothing is under way."""
        self.arrived_bytes = self.unsettled_bytes = 0
        self.window = self.credit = self.room = credit

    def clear(self) -> None:
        """Forget everything that waits or is kept."""
        self.waiting.clear()
        self.waiting_bytes = self.unsettled_bytes = 0
        self.arrived_bytes = self.sent_bytes
