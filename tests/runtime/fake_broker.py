"""A whole network in a few lines, over real sockets.

It matches with `Filter.matches`, keeps logs in memory, and can be told to refuse, to stay silent and to drop
connections.
"""

from __future__ import annotations

import asyncio
import json
import threading
from collections import defaultdict
from typing import TYPE_CHECKING, Any

import numpy as np

from braid.client.inbox import CLASSES
from braid.language import Filter, Publication
from braid.protocol.batch import PublicationBatch
from braid.protocol.channel import Channel, ChannelSettings
from braid.protocol.codec import Frame, FrameDecoder, encode_frames
from braid.protocol.messages import (
    PROTOCOL_VERSION,
    Acknowledge,
    Acknowledgement,
    Advertise,
    Ask,
    Done,
    DropDurable,
    Failed,
    Hello,
    Ping,
    Pong,
    PublishDiscarded,
    PublishRefused,
    Refused,
    Replay,
    StopReading,
    StoredPublications,
    Subscribe,
    SubscribeDurable,
    Unadvertise,
    Unsubscribe,
    Welcome,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from braid.protocol.codec import Body

__all__ = ["DEADLINE_S", "LOG_ROWS_MAX", "FakeBroker", "FakeBrokerThread", "Visitor", "until"]

DEADLINE_S = 20.0
LOG_ROWS_MAX = 3


async def until(condition: Callable[[], bool]) -> None:
    """Wait for a condition, not for a time."""
    async with asyncio.timeout(DEADLINE_S):
        while not condition():  # noqa: ASYNC110 - conditions of the other side have no event
            await asyncio.sleep(0.005)


class Visitor(asyncio.Protocol):
    """One client, as the fake broker sees it."""

    def __init__(self, broker: FakeBroker) -> None:
        self.broker = broker
        self.decoder = FrameDecoder()
        self.channel: Channel[object] = Channel(ChannelSettings())
        self.hello: Hello | None = None
        self.subscriptions: dict[str, tuple[Filter, str]] = {}
        self.advertisements: dict[str, str] = {}
        self.readers: dict[str, int] = {}
        self.reader_requests: dict[str, int] = {}
        self.replays: list[tuple[int, str, int, int]] = []
        self.log_frame = 0
        self.saw: list[Body] = []
        self.transport: asyncio.Transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport
        self.broker.visitors.append(self)

    def connection_lost(self, error: Exception | None) -> None:
        self.channel.disconnect()
        if self in self.broker.visitors:
            self.broker.visitors.remove(self)

    def data_received(self, data: bytes) -> None:
        for frame in self.decoder.feed(data):
            self.saw.append(frame.body)
            self.broker.saw.append(frame.body)
            if frame.sequence == 0:
                self.unsequenced(frame.body)
            elif self.channel.accept(frame):
                self.broker.sequenced(self, frame.body)
        self.channel.settled = self.channel.received
        self.acknowledge()

    def acknowledge(self) -> None:
        if self.broker.acknowledging and self.channel.connected:
            acknowledgement = self.channel.acknowledgement()
            if acknowledgement is not None:
                self.write(acknowledgement)
        self.pump()

    def unsequenced(self, body: Body) -> None:
        if isinstance(body, Hello):
            self.hello = body
            if self.broker.refusal is not None:
                self.write(self.broker.refusal)
                self.transport.close()
                return
            self.channel.restart(body.credit)
            granted = self.channel.credit_to_grant
            self.write(
                Welcome(
                    PROTOCOL_VERSION,
                    self.broker.name,
                    "i",
                    credit=granted,
                    frame_bytes_max=self.broker.frame_bytes_max,
                )
            )
        elif isinstance(body, Acknowledgement):
            self.channel.acknowledged(body)
            self.log_frame = self.log_frame if self.log_frame > body.settled else 0
            self.broker.feed_logs()
        elif isinstance(body, Ping):
            self.write(Pong(body.number))

    def write(self, body: Body) -> None:
        if not self.transport.is_closing():
            self.transport.write(encode_frames([Frame(0, body)]))

    def offer(self, body: Body) -> None:
        self.channel.offer(body)
        self.pump()

    def pump(self) -> None:
        frames = self.channel.take()
        if frames and not self.transport.is_closing():
            self.transport.write(encode_frames(frames))


class FakeBrokerThread:
    """A fake broker on an event loop of its own, for clients that have none."""

    def __init__(self) -> None:
        self.broker = FakeBroker()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)

    def run(self, work: Coroutine[Any, Any, None]) -> None:
        asyncio.run_coroutine_threadsafe(work, self._loop).result(DEADLINE_S)

    def call(self, function: Callable[[], None]) -> None:
        async def call() -> None:
            function()

        self.run(call())

    def until(self, condition: Callable[[], bool]) -> None:
        self.run(until(condition))

    def __enter__(self) -> FakeBrokerThread:
        self._thread.start()
        self.run(self.broker.start())
        return self

    def __exit__(self, *_: object) -> None:
        self.run(self.broker.stop())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(DEADLINE_S)
        self._loop.close()


class FakeBroker:
    """Serves clients on a loopback port."""

    def __init__(self, name: str = "B-1") -> None:
        self.name = name
        self.visitors: list[Visitor] = []
        self.saw: list[Body] = []
        self.seen: dict[str, set[int]] = defaultdict(set)
        self.published: list[Publication] = []
        self.repeats = 0
        self.tells_discarded = False
        self.logs: dict[str, tuple[Filter, list[tuple[str, int, bytes]]]] = {}
        self.acknowledged: dict[str, int] = defaultdict(lambda: -1)
        self.refusal: Refused | None = None
        self.denied: Filter | None = None
        self.acknowledging = True
        self.frame_bytes_max = 0
        self.silent_requests = False
        self.port = 0
        self._server: asyncio.Server | None = None

    async def start(self, port: int = 0) -> None:
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(lambda: Visitor(self), "127.0.0.1", port)
        self.port = self._server.sockets[0].getsockname()[1]

    async def stop(self) -> None:
        if self._server is not None:
            self._server.close()
            self.drop()
            await self._server.wait_closed()
            self._server = None

    def drop(self) -> None:
        """Cut all connections."""
        for visitor in list(self.visitors):
            visitor.transport.abort()

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    def sequenced(self, visitor: Visitor, body: Body) -> None:
        if isinstance(body, PublicationBatch):
            self.on_batch(visitor, body)
            return
        if isinstance(body, Acknowledge):
            self.acknowledged[body.name] = max(self.acknowledged[body.name], body.offset)
            return
        if self.silent_requests:
            return
        answer = self.answer(visitor, body)
        if answer is not None:
            visitor.offer(answer)
        self.feed_logs()

    def answer(self, visitor: Visitor, body: Any) -> Body | None:
        if isinstance(body, Subscribe):
            filter = Filter(body.filter)
            if body.filter == "secret = 1":
                return Failed(body.request, "denied", "not for you")
            if self.denied is not None:
                filter = Filter(f"({filter}) AND NOT ({self.denied})")
            visitor.subscriptions[body.key] = (filter, body.when_full)
            return Done(body.request, str(filter))
        if isinstance(body, Unsubscribe):
            visitor.subscriptions.pop(body.key)
        elif isinstance(body, Advertise):
            visitor.advertisements[body.key] = body.filter
        elif isinstance(body, Unadvertise):
            visitor.advertisements.pop(body.key)
        elif isinstance(body, SubscribeDurable):
            if body.name not in self.logs:
                self.logs[body.name] = (Filter(body.filter), [])
            log = self.logs[body.name]
            start = max(body.resume_after, self.acknowledged[body.name])
            visitor.readers[body.name] = start + 1
            visitor.reader_requests[body.name] = body.request
            return Done(body.request, str(log[0]))
        elif isinstance(body, StopReading):
            visitor.readers.pop(body.name, None)
            return None
        elif isinstance(body, DropDurable):
            if self.logs.pop(body.name, None) is None:
                return Failed(body.request, "unknown", f"no durable subscription {body.name!r}")
            visitor.readers.pop(body.name, None)
        elif isinstance(body, Replay):
            last = len(self.logs[body.name][1]) - 1 if body.last < 0 else body.last
            visitor.replays.append((body.request, body.name, body.first, last))
            return None
        elif isinstance(body, Ask):
            return Done(body.request, json.dumps({"topic": body.topic, **body.arguments}))
        return Done(body.request)

    def on_batch(self, visitor: Visitor, batch: PublicationBatch) -> None:
        fresh = []
        refused = []
        for row, sequence in enumerate(batch.sequences.tolist()):
            if sequence in self.seen[batch.publisher]:
                self.repeats += 1
                if self.tells_discarded:
                    visitor.offer(
                        PublishDiscarded(batch.publisher, [sequence], max(self.seen[batch.publisher]))
                    )
                continue
            self.seen[batch.publisher].add(sequence)
            if self.denied is not None and self.denied.matches(batch.attributes()[row]):
                refused.append(sequence)
            else:
                fresh.append(row)
        if refused:
            visitor.offer(PublishRefused(batch.publisher, refused, "denied", "you may not publish that"))
        if fresh:
            self.route(batch.select(np.array(fresh)))

    def route(self, batch: PublicationBatch) -> None:
        self.published += batch.publications()
        attributes = batch.attributes()
        for visitor in self.visitors:
            for when_full, target in CLASSES.items():
                filters = [filter for filter, choice in visitor.subscriptions.values() if choice == when_full]
                rows = [
                    row
                    for row, each in enumerate(attributes)
                    if any(filter.matches(each) for filter in filters)
                ]
                if rows:
                    visitor.offer(batch.select(np.array(rows)).readdressed(target=target))
        for filter, log in self.logs.values():
            for row, each in enumerate(attributes):
                if filter.matches(each):
                    log.append((batch.publisher, int(batch.sequences[row]), batch.records()[row]))
        self.feed_logs()

    def feed_logs(self) -> None:
        """Send each reader the next rows of one log, when it has settled those before."""
        for visitor in self.visitors:
            if visitor.log_frame or not visitor.channel.connected:
                continue
            for name, following in visitor.readers.items():
                rows = self.logs[name][1][following : following + LOG_ROWS_MAX]
                if rows:
                    visitor.readers[name] = following + len(rows)
                    reader = visitor.reader_requests[name]
                    visitor.offer(StoredPublications(name, following, rows, reader=reader))
                    visitor.log_frame = visitor.channel.sent
                    break
            else:
                self.feed_replay(visitor)

    def feed_replay(self, visitor: Visitor) -> None:
        if visitor.replays:
            request, name, first, last = visitor.replays.pop(0)
            rows = self.logs[name][1][first : min(first + LOG_ROWS_MAX, last + 1)]
            if rows:
                visitor.replays.insert(0, (request, name, first + len(rows), last))
                visitor.offer(StoredPublications(name, first, rows, request))
                visitor.log_frame = visitor.channel.sent
            else:
                visitor.offer(Done(request))
