"""What has the bus done so far?"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

__all__ = ["BusReceipt", "BusStatistics", "SubscriptionStatistics"]


@dataclass(frozen=True, slots=True)
class BusReceipt:
    """What became of one publish call.

    Attributes:
        publisher, sequence: the id of the publication; of a batch, its first.
        published: publications in the call; a batch's ids run from `sequence` without a gap.
        delivered: hand-overs to subscriptions, so 2 for one publication with two subscribers.
    """

    publisher: str
    sequence: int
    published: int
    delivered: int


@dataclass(frozen=True, slots=True)
class SubscriptionStatistics:
    """The counters of one subscription: every publication it matched is in exactly one of them.

    Attributes:
        matched: publications that satisfied its filter.
        delivered: those its reader or callback has been given.
        queued: those in its queue.
        waiting: those that publishers hold back until there is room.
        dropped: those lost to its own choice of `when_full`.
        discarded: those thrown away because it was closed, or taken back by a publisher.
        errors: exceptions that its callback raised.
        open: False once nothing more can come in.
    """

    name: str
    filter: str
    matched: int
    delivered: int
    queued: int
    waiting: int
    dropped: int
    discarded: int
    errors: int
    open: bool


@dataclass(slots=True)
class BusStatistics:
    """The counters of a bus: sums over its subscriptions, with those that are gone."""

    published: int = 0
    matched: int = 0
    delivered: int = 0
    queued: int = 0
    waiting: int = 0
    dropped: int = 0
    discarded: int = 0
    errors: int = 0
    disconnected: int = 0
    subscriptions: tuple[SubscriptionStatistics, ...] = ()

    def add(self, entry: SubscriptionStatistics) -> None:
        """Count a subscription in."""
        self.matched += entry.matched
        self.delivered += entry.delivered
        self.queued += entry.queued
        self.waiting += entry.waiting
        self.dropped += entry.dropped
        self.discarded += entry.discarded
        self.errors += entry.errors

    def to_json(self) -> dict[str, Any]:
        """The same as plain values, ready for `json.dumps`."""
        return asdict(self)
