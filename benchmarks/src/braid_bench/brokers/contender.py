"""What must a broker offer to be measured beside the others?

A `Contender` starts its server and opens connections to it; the load generator does the rest, the same way
for everyone. Connections are non-blocking sockets in the hands of one thread: a `Publisher` is given messages
that were encoded before the clock started, a `Subscriber` is asked what has arrived and only counts.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, Protocol, runtime_checkable

if TYPE_CHECKING:
    from collections.abc import Sequence

    from braid_bench.brokers.server import RunningServer
    from braid_bench.brokers.workload import Interest, Message

__all__ = [
    "Contender",
    "Delivery",
    "DeliveryUnit",
    "FilterForm",
    "GivesReceipts",
    "Guaranteeing",
    "ManyPublishers",
    "Publisher",
    "Subscriber",
]

FilterForm = Literal["sql", "equality"]
DeliveryUnit = Literal["subscription", "connection"]
Delivery = Literal["fast", "acknowledged", "durable"]
"""What a publisher may rely on: nothing; a receipt once the subscriber has the message; or one once it is in
a log on disk, which the subscriber reads."""


class Publisher(Protocol):
    """The publishing connection."""

    def fileno(self) -> int:
        """The socket, for waiting."""

    def encode(self, message: Message) -> bytes:
        """The message as `send` wants it; not timed."""

    def send(self, encoded: Sequence[bytes]) -> None:
        """Publish these now, as far as the socket takes them; what it does not take is kept for `flush`."""

    def flush(self) -> None:
        """Write more of what is kept."""

    def pending(self) -> bool:
        """Whether something is kept. While it is, nothing more is sent."""

    def receive(self) -> None:
        """Read what the server says to a publisher, such as acknowledgements."""

    def close(self) -> None:
        """End the connection."""


class Subscriber(Protocol):
    """A subscribing connection; once it is open, everything it asked for is in force."""

    def fileno(self) -> int:
        """The socket, for waiting."""

    def receive(self) -> int:
        """Read what is there, at most one buffer, and say how many deliveries it completed."""

    def close(self) -> None:
        """End the connection."""


class Contender(Protocol):
    """A broker that can be measured."""

    @property
    def name(self) -> str:
        """What it is called in reports; Braid's own contender is `braid`."""

    @property
    def filter_form(self) -> FilterForm | None:
        """How it filters by content; None: it cannot, and takes no part where that is asked."""

    @property
    def once_per(self) -> DeliveryUnit:
        """A connection with several matching subscriptions gets a publication once for each, or once."""

    @property
    def topologies(self) -> tuple[str, ...]:
        """Networks it can be started as; `one` is a single broker."""

    def missing(self) -> str | None:
        """Why it cannot be run here, or None when it can."""

    def version(self) -> str | None:
        """Which release is measured, where that is known."""

    def start(self, topology: str) -> RunningServer:
        """Start its server or servers; returns when connections are accepted."""

    def publisher(self, server: RunningServer) -> Publisher:
        """Open the publishing connection."""

    def subscriber(self, server: RunningServer, interests: Sequence[Interest] | None) -> Subscriber:
        """Open a subscribing connection for these interests, or (None) for every message."""


@runtime_checkable
class ManyPublishers(Protocol):
    """A broker that tells the publishers on one connection apart."""

    def publishers(self, server: RunningServer, count: int) -> Publisher:
        """Open a connection on which so many publish in turn, a message each."""


@runtime_checkable
class Guaranteeing(Protocol):
    """A broker that can give receipts."""

    def delivering(self, delivery: Delivery) -> Contender:
        """The same contender, which publishes and subscribes with that guarantee."""


@runtime_checkable
class GivesReceipts(Protocol):
    """A publishing connection that waits for receipts."""

    def unsettled(self) -> int:
        """How many messages were sent of which no receipt has come."""
