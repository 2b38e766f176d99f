"""What waits for one subscriber, and what happens when it is too much?

A mailbox is a bounded queue with the subscriber's own choice for the moment it is full. With
back-pressure the rest of a publish call stands in line behind the queue, still in the hands of its
publisher, who waits; rows move from the line into the queue in order as the subscriber reads, so a
later publication never overtakes an earlier one. Nothing here knows threads or time.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING

from braid.errors import SlowConsumerError

if TYPE_CHECKING:
    from braid.language import Filter, Publication

__all__ = ["Mailbox", "Offer", "WhenFull"]


class WhenFull(StrEnum):
    """A subscriber's choice for the moment its queue is full."""

    BLOCK = "block"
    """Back-pressure: publishers whose publications concern this subscriber wait for room."""
    DROP_OLDEST = "drop_oldest"
    """The oldest queued publication makes room for the newest; drops are counted."""
    DISCONNECT = "disconnect"
    """The subscription ends with a `SlowConsumerError` after what is queued."""


@dataclass(slots=True, eq=False)
class Offer:
    """One publish call: what it handed over, and what still stands in line for whom."""

    delivered: int = 0
    waiting: dict[int, deque[Publication]] = field(default_factory=dict)
    """Rows that found no room, by the key of the mailbox; empty when the call is settled."""
    refused: bool = False
    """The bus was closed while rows were waiting; they were thrown away."""

    @property
    def undelivered(self) -> int:
        """How many hand-overs are still waiting."""
        return sum(map(len, self.waiting.values()))


@dataclass(slots=True, eq=False)
class Mailbox:
    """The queue of one subscription and its counters.

    At any time `matched == delivered + dropped + discarded + len(queue) + standing_in_line`.
    """

    key: int
    name: str
    filter: Filter
    capacity: int
    when_full: WhenFull
    queue: deque[Publication] = field(default_factory=deque)
    line: deque[Offer] = field(default_factory=deque)
    open: bool = True
    """False once nothing more may come in; what is queued can still be read."""
    failure: SlowConsumerError | None = None
    """Why it ended, when it did not simply get closed."""
    matched: int = 0
    delivered: int = 0
    dropped: int = 0
    discarded: int = 0
    errors: int = 0

    @property
    def standing_in_line(self) -> int:
        """Publications that publishers still hold back for want of room."""
        return sum(len(offer.waiting[self.key]) for offer in self.line)

    @property
    def ended(self) -> bool:
        """Nothing is queued and nothing more will come."""
        return not self.open and not self.queue

    def put(self, publications: list[Publication], offer: Offer) -> None:
        """Queue what there is room for and treat the rest as the subscriber chose."""
        count = len(publications)
        room = self.capacity - len(self.queue)
        self.matched += count
        if count <= room:
            self.queue.extend(publications)
            offer.delivered += count
        elif self.when_full is WhenFull.BLOCK:
            self.queue.extend(publications[:room])
            offer.delivered += room
            offer.waiting[self.key] = deque(publications[room:])
            self.line.append(offer)
        elif self.when_full is WhenFull.DROP_OLDEST:
            self.dropped += count - room
            for _ in range(min(count - room, len(self.queue))):
                self.queue.popleft()
            self.queue.extend(publications[-self.capacity :])
            offer.delivered += count
        else:
            self.queue.extend(publications[:room])
            offer.delivered += room
            self.dropped += count - room
            self.open = False
            self.failure = SlowConsumerError(
                f"subscription {self.name!r} was disconnected: its queue of {self.capacity} was full when "
                f"{count - room} more arrived, and it was subscribed with when_full='disconnect'"
            )

    def take(self) -> tuple[Publication | None, list[Offer]]:
        """The next publication, None when there is none now; and the offers this has settled."""
        if not self.queue:
            return None, []
        publication = self.queue.popleft()
        self.delivered += 1
        settled = []
        if self.line:
            # The line is only as long as the queue is full, so one place is free and one row moves up.
            offer = self.line[0]
            rows = offer.waiting[self.key]
            self.queue.append(rows.popleft())
            offer.delivered += 1
            if not rows:
                self.line.popleft()
                settled = self._forget(offer)
        return publication, settled

    def withdraw(self, offer: Offer) -> int:
        """Take the rest of an offer out of the line; how many rows that were."""
        rows = offer.waiting.pop(self.key)
        self.line.remove(offer)
        self.discarded += len(rows)
        return len(rows)

    def stop(self, *, keep_queue: bool, refuse: bool) -> list[Offer]:
        """Let nothing more in; the offers that no longer wait because of it.

        Args:
            keep_queue: what is queued may still be read.
            refuse: publishers in line are told that the bus was closed.
        """
        self.open = False
        if not keep_queue:
            self.discarded += len(self.queue)
            self.queue.clear()
        settled = []
        while self.line:
            offer = self.line.popleft()
            offer.refused = offer.refused or refuse
            self.discarded += len(offer.waiting[self.key])
            settled += self._forget(offer)
        return settled

    def _forget(self, offer: Offer) -> list[Offer]:
        del offer.waiting[self.key]
        return [] if offer.waiting else [offer]
