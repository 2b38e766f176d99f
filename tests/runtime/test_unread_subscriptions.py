"""Does a subscription that nobody reads hold up anything but its own publishers?"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from braid.runtime.connecting import connect, connect_sync
from tests.runtime.fake_broker import DEADLINE_S
from tests.runtime.test_client_with_broker import RunningBroker

if TYPE_CHECKING:
    from braid.runtime.client import Client

pytestmark = pytest.mark.net

BODY = b"x" * 20_000
# More than a client and its broker keep for a subscription that is not read.
MUCH = 600


async def flood(publisher: Client, topic: str) -> None:
    for number in range(MUCH):
        await publisher.publish({"topic": topic, "n": number}, BODY)
    await publisher.flush()


async def numbers(subscription: Any, count: int) -> list[int]:
    return [(await subscription.get(DEADLINE_S))["n"] for _ in range(count)]


@pytest.mark.parametrize("other", ["block", "drop_oldest", "disconnect"])
async def test_an_unread_subscription_stops_neither_other_subscriptions_nor_logs_nor_replays(
    other: str,
) -> None:
    broker = RunningBroker("A", client_queue_bytes_max=1 << 20)
    await broker.start()
    try:
        async with (
            connect(broker.address) as reader,
            connect(broker.address, outgoing_bytes_max=1 << 20) as flooding,
            connect(broker.address) as publisher,
        ):
            log = await reader.subscribe("topic = 'log'", durable="log", queue_size=10)
            unread = await reader.subscribe("topic = 'a'", queue_size=5)
            also_unread = await reader.subscribe("topic = 'a' AND n >= 100", queue_size=5)
            read = await reader.subscribe("topic IN ('b', 'c')", when_full=other, queue_size=1000)
            flood_of_a = asyncio.create_task(flood(flooding, "a"))
            for first in range(0, 400, 100):
                for number in range(first, first + 100):
                    await publisher.publish({"topic": "b", "n": number}, delivery="acknowledged")
                    await publisher.publish({"topic": "log", "n": number}, delivery="acknowledged")
                await publisher.flush(DEADLINE_S)
                assert await numbers(read, 100) == list(range(first, first + 100))
                assert await numbers(log, 100) == list(range(first, first + 100))
            assert not flood_of_a.done(), "whoever publishes for the unread one waits"
            replay = reader.replay("log", queue_size=10)
            assert await numbers(replay, 400) == list(range(400))
            # Both hold up their publisher, so both have to be read.
            found = await asyncio.gather(numbers(unread, MUCH), numbers(also_unread, MUCH - 100))
            assert found == [list(range(MUCH)), list(range(100, MUCH))]
            await flood_of_a
            assert (unread.statistics().queued, unread.statistics().waiting) == (0, 0)
    finally:
        await broker.stop()


async def test_what_an_unread_subscription_shares_with_others_reaches_them() -> None:
    """Those who are behind get a copy of their own; the others get everything that could be published."""
    broker = RunningBroker("A", client_queue_bytes_max=1 << 20)
    await broker.start()
    try:
        async with (
            connect(broker.address) as reader,
            connect(broker.address, outgoing_bytes_max=1 << 20) as publisher,
        ):
            divisors = (1, 2, 3)
            unread = [await reader.subscribe(f"n % {divisor} = 0", queue_size=3) for divisor in divisors]
            read = await reader.subscribe("n >= 0")
            publishing = asyncio.create_task(flood(publisher, "a"))
            # As much as their own queues, here and at the broker, have room for at least.
            assert await numbers(read, 40) == list(range(40))
            reading = [
                asyncio.create_task(numbers(subscription, len(range(0, MUCH, divisor))))
                for divisor, subscription in zip(divisors, unread, strict=True)
            ]
            assert await numbers(read, MUCH - 40) == list(range(40, MUCH))
            assert await asyncio.gather(*reading) == [list(range(0, MUCH, each)) for each in divisors]
            await publishing
    finally:
        await broker.stop()


def test_from_a_program_without_an_event_loop() -> None:
    with asyncio.Runner() as runner:
        broker = RunningBroker("A", client_queue_bytes_max=1 << 20)
        runner.run(broker.start())
        try:
            runner.run(asyncio.to_thread(_without_a_loop, broker.address))
        finally:
            runner.run(broker.stop())


def _without_a_loop(address: str) -> None:
    with (
        connect_sync(address) as reader,
        connect_sync(address, outgoing_bytes_max=64 << 20) as publisher,
    ):
        unread = reader.subscribe("topic = 'a'", queue_size=5)
        read = reader.subscribe("topic = 'b'")
        for number in range(MUCH):
            publisher.publish({"topic": "a", "n": number}, BODY)
        with connect_sync(address) as another:
            for number in range(100):
                another.publish({"topic": "b", "n": number}, delivery="acknowledged")
            another.flush(DEADLINE_S)
        assert [read.get(DEADLINE_S)["n"] for _ in range(100)] == list(range(100))
        assert [unread.get(DEADLINE_S)["n"] for _ in range(MUCH)] == list(range(MUCH))
