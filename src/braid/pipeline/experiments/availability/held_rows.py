"""The rows of a trace, held in memory: a run of a tenth of a second is not worth files."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from braid.protocol import PublicationBatch

__all__ = ["Delivery", "HeldRows", "Hop", "Published", "Subscribed"]


class Published(NamedTuple):
    """A publication has entered the network."""

    at_us: int
    publisher: str
    sequence: int
    broker: str


class Hop(NamedTuple):
    """A publication has come to a broker from another one."""

    at_us: int
    publisher: str
    sequence: int
    source: str
    target: str


class Delivery(NamedTuple):
    """A publication was handed to a client."""

    at_us: int
    publisher: str
    sequence: int
    broker: str
    subscriber: str


class Subscribed(NamedTuple):
    """A client has subscribed."""

    at_us: int
    broker: str
    subscriber: str
    filter: str


@dataclass(slots=True)
class HeldRows:
    """Takes what a `TraceWriter` takes, and keeps some of its tables in the order of what happened."""

    published: list[Published] = field(default_factory=list)
    hops: list[Hop] = field(default_factory=list)
    deliveries: list[Delivery] = field(default_factory=list)
    subscriptions: list[Subscribed] = field(default_factory=list)
    crashes: list[tuple[int, str]] = field(default_factory=list)
    """When which machine has crashed."""

    def publication(self, at_us: int, broker: str, batch: PublicationBatch, _: int | None = None) -> None:
        """Publications have entered the network at a broker."""
        for number in batch.sequences.tolist():
            self.published.append(Published(at_us, batch.publisher, number, broker))

    def hop(
        self, at_us: int, _: int | None, source: str, target: str, link: str, batch: PublicationBatch
    ) -> None:
        """Publications have arrived at a broker from its neighbour."""
        for number in batch.sequences.tolist():
            self.hops.append(Hop(at_us, batch.publisher, number, source, target))

    def delivery(self, at_us: int, broker: str, subscriber: str, batch: PublicationBatch) -> None:
        """Publications were handed to a client."""
        for number in batch.sequences.tolist():
            self.deliveries.append(Delivery(at_us, batch.publisher, number, broker, subscriber))

    def subscription(
        self, at_us: int, broker: str, subscriber: str, key: str, filter: str, action: str
    ) -> None:
        """A client subscribes."""
        if action == "subscribe":
            self.subscriptions.append(Subscribed(at_us, broker, subscriber, filter))

    def fault(self, at_us: int, fault: str, subject: str, detail: str) -> None:
        """Something went wrong; crashes are kept."""
        if fault == "crash":
            self.crashes.append((at_us, subject))

    def link_sample(self, *_: Any) -> None:
        """Samples are not kept."""

    def broker_load(self, *_: Any) -> None:
        """Samples are not kept."""

    def reconfiguration(self, *_: Any) -> None:
        """Phases are not kept."""
