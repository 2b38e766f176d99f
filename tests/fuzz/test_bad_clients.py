"""Does a broker on a real socket go on serving others, whatever one of its clients does?

Each test ends with a well-behaved pair that is served.
"""

from __future__ import annotations

import asyncio
import random
import struct
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import pytest

from braid.broker.access import Limits
from braid.broker.core import BrokerCore
from braid.broker.settings import BrokerSettings
from braid.protocol import Channel, ChannelSettings, Frame, FrameDecoder, PublicationBatch, encode_frames
from braid.protocol.batch import encode_record
from braid.protocol.messages import (
    PROTOCOL_VERSION,
    UNSEQUENCED,
    Acknowledgement,
    Done,
    Failed,
    Hello,
    Refused,
    Subscribe,
    Welcome,
)
from braid.runtime.connecting import connect
from braid.runtime.node import Node
from tests.fuzz.test_core_fuzz import mutated, recorded
from tests.parity.on_sockets import DEADLINE_S, until

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

pytestmark = pytest.mark.net

LOST = (ConnectionError, asyncio.IncompleteReadError)


class Broker:
    """A broker on a free loopback port."""

    def __init__(self, **settings: Any) -> None:
        self.core = BrokerCore(BrokerSettings(broker_id="A", **settings), incarnation="A-1", seed=1)
        self.node = Node(self.core, name="A")
        self.port = 0

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    def statistics(self) -> dict[str, Any]:
        return self.core.statistics()

    async def require_served(self) -> None:
        """A well-behaved pair is served."""
        async with connect(self.address) as subscriber, connect(self.address) as publisher:
            subscription = await subscriber.subscribe("served > 0")
            for number in range(1, 4):
                await (await publisher.publish({"served": number}, delivery="acknowledged"))
            assert [(await subscription.get(DEADLINE_S))["served"] for _ in range(3)] == [1, 2, 3]


@asynccontextmanager
async def serving(**settings: Any) -> AsyncIterator[Broker]:
    """A broker that must serve a well-behaved pair at the end."""
    broker = Broker(**settings)
    broker.port = await broker.node.listen("127.0.0.1", 0)
    broker.node.start()
    try:
        yield broker
        await broker.require_served()
    finally:
        await broker.node.stop()


class BadClient:
    """A connection in the hands of somebody who knows the protocol, and need not keep to it."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer
        self.decoder = FrameDecoder()
        self.heard: list[Any] = []
        self.channel: Channel[None] = Channel(ChannelSettings())
        self.sequence = 0

    async def hello(
        self, *, name: str = "eve", version: int = PROTOCOL_VERSION, credit: int = 1 << 22
    ) -> None:
        self.say(Hello(version, "client", name, f"{name}-1", credit=credit))
        while not any(isinstance(body, (Welcome, Refused)) for body in self.heard):
            await self.read()

    def frame(self, body: Any) -> Frame:
        if isinstance(body, UNSEQUENCED):
            return Frame(0, body)
        self.sequence += 1
        return Frame(self.sequence, body)

    def say(self, *bodies: Any) -> None:
        self.write(encode_frames([self.frame(body) for body in bodies]))

    def write(self, data: bytes) -> None:
        self.writer.write(data)

    async def read(self) -> bool:
        """Take in what comes next; False when the broker has closed the connection."""
        try:
            async with asyncio.timeout(DEADLINE_S):
                data = await self.reader.read(1 << 16)
        except ConnectionError:
            return False
        self.heard.extend(frame.body for frame in self.decoder.feed(data))
        return bool(data)

    async def answer(self) -> Any:
        """The next answer to a request."""
        while True:
            for body in self.heard:
                if isinstance(body, Done | Failed | Refused):
                    self.heard.remove(body)
                    return body
            assert await self.read(), "the broker has closed the connection"

    async def closed(self) -> list[Refused]:
        """Wait until the broker has closed the connection; what it said about that."""
        while await self.read():
            pass
        return [body for body in self.heard if isinstance(body, Refused)]


@asynccontextmanager
async def bad_client(broker: Broker) -> AsyncIterator[BadClient]:
    """A connection to the broker, closed at the end."""
    reader, writer = await asyncio.open_connection("127.0.0.1", broker.port)
    try:
        yield BadClient(reader, writer)
    finally:
        writer.transport.abort()


def batch(first: int, size: int, *, publisher: str = "eve", count: int = 1) -> PublicationBatch:
    record = encode_record({"n": first}, 0, b"x" * size)
    return PublicationBatch.of(publisher, range(first, first + count), [record] * count)


@pytest.mark.parametrize("greeted", [False, True])
@pytest.mark.parametrize("length", [2**32 - 1, 2**31, 5 * 1024 * 1024, 0])
async def test_a_frame_that_is_too_large_or_too_small(greeted: bool, length: int) -> None:
    async with serving() as broker, bad_client(broker) as eve:
        if greeted:
            await eve.hello()
        eve.write(struct.pack("<IBQ", length, 1, 0))
        assert [refused.code for refused in await eve.closed()] == ["malformed"]


async def test_a_large_frame_before_the_greeting() -> None:
    async with serving() as broker, bad_client(broker) as eve:
        eve.write(struct.pack("<IBQ", 100_000, 1, 0))
        assert [refused.code for refused in await eve.closed()] == ["malformed"]


async def test_another_version() -> None:
    async with serving() as broker, bad_client(broker) as eve:
        await eve.hello(version=PROTOCOL_VERSION + 1)
        assert [refused.code for refused in await eve.closed()] == ["version"]


@pytest.mark.parametrize("greeted", [False, True])
async def test_garbage(greeted: bool) -> None:
    chance = random.Random(f"garbage/{greeted}")
    async with serving() as broker:
        for _ in range(20):
            async with bad_client(broker) as eve:
                if greeted:
                    await eve.hello()
                eve.write(chance.randbytes(chance.randrange(13, 2000)))
                eve.writer.write_eof()
                await eve.closed()
        for text in (
            b"GET / HTTP/1.1\r\nHost: braid\r\n\r\n",
            b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" * 3,
        ):
            async with bad_client(broker) as eve:
                eve.write(text)
                assert [refused.code for refused in await eve.closed()] == ["malformed"]


async def test_a_greeting_that_never_comes() -> None:
    async with serving(handshake_us_max=100_000, heartbeat_us=200_000, connections_max=6) as broker:
        async with bad_client(broker) as half, bad_client(broker) as silent:
            half.write(encode_frames([Frame(0, Hello(PROTOCOL_VERSION, "client", "eve", "eve-1"))])[:20])
            for each in (half, silent):
                assert [refused.code for refused in await each.closed()] == ["late"]
        strangers = [await asyncio.open_connection("127.0.0.1", broker.port) for _ in range(20)]
        for reader, writer in strangers:
            async with asyncio.timeout(DEADLINE_S):
                await reader.read()  # all of them are sent away, some at once, some when their time is over
            writer.close()
        await until(lambda: not broker.core._connections.visitors)


@pytest.mark.parametrize(
    "text",
    [
        " OR ".join(f"a = {number}" for number in range(10_000)),
        " OR ".join(f"(a > {number} AND b < {number})" for number in range(10_000)),
        " OR ".join(f"a{number} = 1" for number in range(10_000)),
        " AND ".join(f"(a = {number} OR b = {number})" for number in range(10_000)),
        "NOT (" * 10_000 + "a = 1" + ")" * 10_000,
        "a LIKE '" + "%_" * 10_000 + "'",
    ],
    ids=["values", "boxes", "attributes", "product", "depth", "pattern"],
)
async def test_a_filter_that_is_very_large(text: str) -> None:
    async with (
        serving() as broker,
        bad_client(broker) as eve,
        connect(broker.address) as subscriber,
        connect(broker.address) as publisher,
    ):
        subscription = await subscriber.subscribe("n > 0")
        await eve.hello()
        eve.say(Subscribe(1, "1", text))
        answer = await eve.answer()
        assert isinstance(answer, Done | Failed)
        if isinstance(answer, Failed):
            assert answer.code in ("filter", "limit")
            assert 0 < len(answer.reason) < 2_000, "the reason is something to read"
        assert isinstance(answer, Failed) or len(text) <= Limits().filter_length_max
        await (await publisher.publish({"n": 1}, delivery="acknowledged"))
        assert (await subscription.get(DEADLINE_S))["n"] == 1


@pytest.mark.parametrize("credit", [100_000, 1 << 40], ids=["no credit", "full sockets"])
async def test_one_who_never_reads_and_blocks_is_sent_away_in_the_end(credit: int) -> None:
    bound = 300_000
    async with (
        serving(client_queue_bytes_max=bound, stall_us_max=300_000, heartbeat_us=400_000) as broker,
        bad_client(broker) as eve,
        connect(broker.address) as subscriber,
        connect(broker.address, outgoing_bytes_max=1 << 20) as publisher,
    ):
        await eve.hello(credit=credit)
        eve.say(Subscribe(1, "1", "n > 0"))
        await eve.answer()
        subscription = await subscriber.subscribe("n > 0", queue_size=10_000)
        held_up = False
        waiting_bytes = 0
        for number in range(1, 1501):
            await publisher.publish({"n": number}, b"x" * 20_000)
            if number % 20 == 0:
                await asyncio.sleep(0)
                held_up = held_up or broker.statistics()["clients_behind"] == 1
                waiting_bytes = max(waiting_bytes, broker.statistics()["client_waiting_bytes"])
        await publisher.flush(DEADLINE_S)
        assert held_up, "the publisher had to wait"
        window = broker.core.settings.client.window_bytes
        assert waiting_bytes <= 2 * (bound + 2 * window), "no more than the bound and what was on its way"
        await until(lambda: broker.statistics()["clients"] == 2)
        assert [(await subscription.get(DEADLINE_S))["n"] for _ in range(1500)] == list(range(1, 1501))


async def test_one_who_never_reads_and_drops_keeps_nobody() -> None:
    bound = 300_000
    async with (
        serving(client_queue_bytes_max=bound) as broker,
        bad_client(broker) as eve,
        connect(broker.address) as subscriber,
        connect(broker.address) as publisher,
    ):
        await eve.hello(credit=50_000)
        eve.say(Subscribe(1, "1", "n > 0", "drop_oldest"))
        await eve.answer()
        subscription = await subscriber.subscribe("n > 0", queue_size=10_000)
        for number in range(1, 301):
            await publisher.publish({"n": number}, b"x" * 20_000)
            if number % 20 == 0:
                await publisher.flush(DEADLINE_S)
                waiting = {
                    client.name: client.channel.waiting_bytes for client in broker.core._connections.clients
                }
                assert waiting["eve"] <= bound
        assert [(await subscription.get(DEADLINE_S))["n"] for _ in range(300)] == list(range(1, 301))
        assert broker.statistics()["counters"]["dropped"] > 100


async def test_a_flood_beyond_the_credit() -> None:
    settings = ChannelSettings(window_bytes=10_000)
    async with serving(client=settings) as broker, bad_client(broker) as eve:
        await eve.hello()
        (welcome,) = [body for body in eve.heard if isinstance(body, Welcome)]
        assert welcome.credit == 10_000
        eve.say(*(batch(number, 1_000) for number in range(1, 100)))
        (refused,) = await eve.closed()
        assert refused.code == "protocol"
        assert "credit" in refused.reason


async def test_publications_in_somebody_elses_name() -> None:
    async with serving() as broker, bad_client(broker) as eve, connect(broker.address) as subscriber:
        subscription = await subscriber.subscribe("n >= 0")
        await eve.hello()
        eve.say(batch(1, 10, publisher="carol"))
        assert [refused.code for refused in await eve.closed()] == ["protocol"]
        assert not subscription.statistics().queued


async def test_acknowledgements_of_what_was_never_sent() -> None:
    async with serving() as broker, bad_client(broker) as eve:
        await eve.hello()
        eve.say(Acknowledgement(1000, 1000, 1 << 22))
        assert [refused.code for refused in await eve.closed()] == ["protocol"]


async def test_many_conversations_with_something_wrong_in_them() -> None:
    chance = random.Random("mutated over sockets")
    frames = recorded()
    async with serving() as broker, connect(broker.address) as subscriber:
        subscription = await subscriber.subscribe("honest > 0")
        for _ in range(100):
            async with bad_client(broker) as eve:
                eve.write(mutated(frames, chance))
                eve.writer.write_eof()
                await eve.closed()
        assert not subscription.statistics().queued
        await until(lambda: broker.statistics()["clients"] == 1)
