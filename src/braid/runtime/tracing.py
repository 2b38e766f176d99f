"""How does a real broker write down what it does?

`NodeTracing` is told of every turn of a node: what came in, and what the machine decided. It knows from the
greeting who is at the other end of a connection, and so what a batch of publications on it means: one that
comes from a client has entered the network here, one that comes from a neighbour has crossed a link, one that
goes to a client is delivered. Once a second it adds what was sent on each link and the machine's numbers.

The trace never stops the broker: what its thread cannot keep up with is dropped, and after a file that cannot
be written there is no more tracing. Both are said in the log.
"""

from __future__ import annotations

import logging
import time
from dataclasses import dataclass, field
from itertools import groupby
from typing import TYPE_CHECKING, Any, Final

from braid.client.inbox import CLASSES
from braid.protocol import PublicationBatch, encode_frames
from braid.protocol.effects import Greeted, Progress, Send
from braid.protocol.inputs import Closed, Received
from braid.protocol.kinds import kind_of
from braid.protocol.messages import (
    CreateDurable,
    Done,
    DropDurable,
    Failed,
    Ping,
    Pong,
    StoredPublications,
    Subscribe,
    SubscribeDurable,
    Unsubscribe,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from braid.protocol import Frame
    from braid.protocol.effects import Effect
    from braid.protocol.inputs import Input
    from braid.trace import TraceWriter

__all__ = ["NodeTracing"]

SAMPLE_US: Final = 1_000_000

_COUNTED: Final = ("received", "published", "forwarded", "delivered", "duplicates", "dropped")
# A client's subscriptions of one delivery class are served together: each class is a subscriber of its own.
_CLASS_SUFFIXES: Final = {number: "" if name == "block" else f"/{name}" for name, number in CLASSES.items()}
# What a link is called, by the kind of its greeting.
_LINKS: Final = {"broker": "primary", "soft": "soft"}
# Rows of a log do not say how many links they had crossed.
_HOPS_UNKNOWN: Final = -1
# Numbers of one batch are at most so far from the first.
_SPREAD_MAX: Final = 2**32

_log = logging.getLogger("braid.trace")


@dataclass(slots=True)
class _Subscription:
    subscriber: str
    key: str
    filter: str
    narrowed: bool = True
    """Whether the answer says what of the filter was granted."""


@dataclass(slots=True)
class _Client:
    """A client that is connected."""

    name: str
    subscribers: Mapping[int, str]
    """What it is called as the receiver of each delivery class."""
    subscriptions: dict[str, _Subscription] = field(default_factory=dict)
    requests: dict[int, _Subscription] = field(default_factory=dict)
    """Subscriptions that it has asked for and that were not answered yet."""


@dataclass(slots=True)
class _Neighbour:
    """A neighbour that is or was connected."""

    name: str
    link: str
    """`primary` or `soft`."""
    connection: int | None = None
    sent: dict[str, list[int]] = field(default_factory=dict)
    """Messages and bytes of each kind within this period."""
    pings: dict[int, int] = field(default_factory=dict)
    """When those were sent that are not answered yet."""
    round_trip_us: int | None = None


class NodeTracing:
    """Writes the trace of one node that drives a broker."""

    def __init__(
        self,
        writer: TraceWriter,
        broker: str,
        statistics: Callable[[], Mapping[str, Any]],
        peer: Callable[[], Mapping[str, Any]] | None = None,
    ) -> None:
        """
        Args:
            writer: with a thread, since nothing here may take long.
            broker: the broker's id.
            statistics: a snapshot of the machine's numbers, as metrics show them.
            peer: what there is to know about the peer of this process, if it is one.
        """
        self._peer = peer
        self._messages: dict[str, int] = {}
        """What that has sent, by kind, until the last sample."""
        self._writer = writer
        self._broker = broker
        self._statistics = statistics
        self._clients: dict[int, _Client] = {}
        self._neighbours: dict[int, _Neighbour] = {}
        self._known: dict[tuple[str, str], _Neighbour] = {}
        """All neighbours there ever were, by their ids and links."""
        self._sampled_at_us = 0
        self._cpu_us = 0
        self._counters: dict[str, int] = dict.fromkeys(_COUNTED, 0)
        self._dropped_rows = 0
        self._ended = False

    def turn(self, stimulus: Input, effects: Sequence[Effect], at_us: int) -> None:
        """Take note of a turn that began at `at_us`."""
        if self._ended:
            return
        if type(stimulus) is Received:
            self._received(stimulus, effects, at_us)
        for effect in effects:
            if type(effect) is Send:
                self._sent(effect, at_us)
            elif type(effect) is Progress:
                self._writer.reconfiguration(
                    at_us, effect.operation, effect.id, effect.phase, self._broker, effect.detail
                )
        if type(stimulus) is Closed:
            self._closed(stimulus, at_us)
        if at_us - self._sampled_at_us >= SAMPLE_US:
            self._sample(at_us)

    def close(self, at_us: int) -> None:
        """Write what is left; may take a while."""
        if not self._ended:
            self._sample(at_us)
        self._writer.close()
        self._complain()
        self._ended = True

    # What comes in.

    def _received(self, received: Received, effects: Sequence[Effect], at_us: int) -> None:
        connection = received.connection
        client = self._clients.get(connection)
        neighbour = self._neighbours.get(connection) if client is None else None
        if client is None and neighbour is None:
            # Its greeting is among these frames, or nobody has been let in.
            for effect in effects:
                if isinstance(effect, Greeted):
                    self._greeted(effect, at_us)
            client, neighbour = self._clients.get(connection), self._neighbours.get(connection)
        if client is not None:
            for frame in received.frames:
                body = frame.body
                if type(body) is PublicationBatch:
                    self._writer.publication(at_us, self._broker, body)
                else:
                    self._asked(client, body, at_us)
        elif neighbour is not None:
            for frame in received.frames:
                body = frame.body
                if type(body) is PublicationBatch:
                    self._writer.hop(at_us, None, neighbour.name, self._broker, neighbour.link, body)
                elif isinstance(body, Pong) and body.number in neighbour.pings:
                    neighbour.round_trip_us = at_us - neighbour.pings.pop(body.number)

    def _greeted(self, greeted: Greeted, at_us: int) -> None:
        if greeted.kind == "client":
            names = {number: greeted.name + suffix for number, suffix in _CLASS_SUFFIXES.items()}
            self._clients[greeted.connection] = _Client(greeted.name, names)
        elif greeted.kind in _LINKS:
            link = _LINKS[greeted.kind]
            neighbour = self._known.get((greeted.name, link))
            if neighbour is None:
                neighbour = self._known[greeted.name, link] = _Neighbour(greeted.name, link)
            elif neighbour.connection is None:
                self._writer.fault(at_us, "link regained", f"{self._broker} {greeted.name}", "")
            neighbour.connection = greeted.connection
            self._neighbours[greeted.connection] = neighbour

    def _closed(self, closed: Closed, at_us: int) -> None:
        if closed.connection is None:
            return
        client = self._clients.pop(closed.connection, None)
        if client is not None:
            for subscription in client.subscriptions.values():
                self._subscription(subscription, "unsubscribe", at_us)
        neighbour = self._neighbours.pop(closed.connection, None)
        if neighbour is not None and neighbour.connection == closed.connection:
            # (Otherwise another connection has taken over.)
            neighbour.connection = None
            self._writer.fault(at_us, "link lost", f"{self._broker} {neighbour.name}", closed.reason)

    # Subscriptions.

    def _asked(self, client: _Client, body: object, at_us: int) -> None:
        if isinstance(body, Subscribe):
            subscriber = client.subscribers.get(CLASSES.get(body.when_full, 0), client.name)
            subscription = _Subscription(subscriber, body.key, body.filter)
            client.subscriptions[body.key] = client.requests[body.request] = subscription
            self._subscription(subscription, "subscribe", at_us)
        elif isinstance(body, Unsubscribe):
            ended = client.subscriptions.pop(body.key, None)
            if ended is not None:
                self._subscription(ended, "unsubscribe", at_us)
        elif isinstance(body, SubscribeDurable):
            # It outlives its reader, so it is not among those that end with the connection.
            subscription = _Subscription(_durable(body.name), body.name, body.filter)
            client.requests[body.request] = subscription
            self._subscription(subscription, "subscribe", at_us)
        elif isinstance(body, CreateDurable):
            subscription = _Subscription(_durable(body.name), body.name, body.filter, narrowed=False)
            client.requests[body.request] = subscription
            self._subscription(subscription, "subscribe", at_us)
        elif isinstance(body, DropDurable):
            self._subscription(_Subscription(_durable(body.name), body.name, ""), "unsubscribe", at_us)

    def _answered(self, client: _Client, body: object, at_us: int) -> None:
        if isinstance(body, Done):
            subscription = client.requests.pop(body.request, None)
            if subscription is not None:
                if subscription.narrowed:
                    subscription.filter = body.text or subscription.filter
                self._subscription(subscription, "installed", at_us)
        elif isinstance(body, Failed):
            subscription = client.requests.pop(body.request, None)
            if subscription is not None:
                if client.subscriptions.get(subscription.key) is subscription:
                    del client.subscriptions[subscription.key]
                self._subscription(subscription, "refused", at_us)

    def _subscription(self, subscription: _Subscription, action: str, at_us: int) -> None:
        self._writer.subscription(
            at_us, self._broker, subscription.subscriber, subscription.key, subscription.filter, action
        )

    # What goes out.

    def _sent(self, send: Send, at_us: int) -> None:
        client = self._clients.get(send.connection)
        if client is not None:
            for frame in send.frames:
                body = frame.body
                if type(body) is PublicationBatch:
                    subscriber = client.subscribers.get(body.target, client.name)
                    self._writer.delivery(at_us, self._broker, subscriber, body)
                elif isinstance(body, StoredPublications):
                    self._stored(body, at_us)
                else:
                    self._answered(client, body, at_us)
            return
        neighbour = self._neighbours.get(send.connection)
        if neighbour is not None:
            for frame in send.frames:
                self._count(neighbour, frame, at_us)

    def _stored(self, stored: StoredPublications, at_us: int) -> None:
        """Rows of a log that its reader gets; those that it has asked for once more are no deliveries."""
        if stored.replay:
            return
        for batch in _as_batches(stored.rows):
            self._writer.delivery(at_us, self._broker, _durable(stored.name), batch)

    def _count(self, neighbour: _Neighbour, frame: Frame, at_us: int) -> None:
        body = frame.body
        if type(body) is PublicationBatch:
            kind, messages, size = kind_of(body), len(body), body.size
        else:
            kind, messages, size = kind_of(body), 1, len(encode_frames([frame]))
            if isinstance(body, Ping):
                neighbour.pings = {body.number: at_us}  # an older one has not been answered and will not be
        counted = neighbour.sent.get(kind)
        if counted is None:
            neighbour.sent[kind] = [messages, size]
        else:
            counted[0] += messages
            counted[1] += size

    # Once a second.

    def _sample(self, at_us: int) -> None:
        cpu_us = time.process_time_ns() // 1000
        period_us = at_us - self._sampled_at_us
        found = self._statistics()
        counters = {name: int(found["counters"][name]) for name in _COUNTED}
        if self._sampled_at_us:
            waiting = found["link_waiting_bytes"]
            self._sample_links(at_us, period_us, waiting)
            routing = found["routing"]
            told = (link["subscriptions_told"] for link in routing["links"].values())
            within = {name: count - self._counters[name] for name, count in counters.items()}
            self._writer.broker_load(
                at_us,
                period_us,
                self._broker,
                within["received"],
                within["published"],
                within["forwarded"],
                within["delivered"],
                within["duplicates"],
                within["dropped"],
                found["client_waiting_bytes"] + sum(waiting.values()),
                routing["subscriptions"],
                max(told, default=0),
                cpu_us - self._cpu_us,
                links=found.get("mesh", {}).get("links_in_all"),
            )
        if self._peer is not None:
            self._sample_peer(at_us, period_us, self._peer())
        self._sampled_at_us, self._cpu_us, self._counters = at_us, cpu_us, counters
        self._complain()

    def _sample_peer(self, at_us: int, period_us: int, found: Mapping[str, Any]) -> None:
        """What this peer holds, and what it has sent to all others, by kind: it has no links."""
        before, self._messages = self._messages, dict(found["datagrams"]["messages"])
        if not self._sampled_at_us:
            return
        holds, peer = found["holds"], self._broker
        self._writer.peer_state(at_us, peer, holds["leaf_entries"], holds["tree_entries"])
        for kind, count in sorted(self._messages.items()):
            if count > before.get(kind, 0):
                sent = count - before.get(kind, 0)
                self._writer.link_sample(at_us, period_us, peer, "", "primary", kind, sent, 0, 0)

    def _sample_links(self, at_us: int, period_us: int, waiting: Mapping[str, int]) -> None:
        for neighbour in self._known.values():
            sent, neighbour.sent = neighbour.sent, {}
            for kind, (messages, size) in sorted(sent.items()):
                self._writer.link_sample(
                    at_us,
                    period_us,
                    self._broker,
                    neighbour.name,
                    neighbour.link,
                    kind,
                    messages,
                    size,
                    waiting.get(neighbour.name, 0),
                    neighbour.round_trip_us,
                )

    def _complain(self) -> None:
        """Say what is missing from the trace."""
        dropped = self._writer.dropped_rows
        if self._writer.problem:
            if not self._ended:
                self._ended = True
                fields = {"problem": self._writer.problem, "rows": dropped}
                _log.error("tracing has stopped; the broker goes on", extra={"fields": fields})
        elif dropped > self._dropped_rows:
            fields = {"rows": dropped - self._dropped_rows}
            _log.warning("the trace cannot keep up: rows are missing", extra={"fields": fields})
        self._dropped_rows = dropped


def _durable(name: str) -> str:
    """A durable subscription as a subscriber: whichever client reads it, its log is one."""
    return f"durable:{name}"


def _as_batches(rows: Sequence[tuple[str, int, bytes]]) -> Iterator[PublicationBatch]:
    """Rows of a log as batches without contents, in their order."""
    for publisher, group in groupby(rows, key=lambda row: row[0]):
        numbers: list[int] = []
        for _, sequence, _ in group:
            if numbers and not numbers[-1] < sequence < numbers[0] + _SPREAD_MAX:
                yield _empty_batch(publisher, numbers)
                numbers = []
            numbers.append(sequence)
        yield _empty_batch(publisher, numbers)


def _empty_batch(publisher: str, numbers: Sequence[int]) -> PublicationBatch:
    batch = PublicationBatch.of(publisher, numbers, [b""] * len(numbers))
    batch.hops = _HOPS_UNKNOWN
    return batch
