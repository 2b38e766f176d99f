"""Do large publications of real clients pass up to the limit, and never stop what comes behind them?"""

from __future__ import annotations

import re
from contextlib import AsyncExitStack, asynccontextmanager
from typing import TYPE_CHECKING, Any

import pytest

from braid.broker.access import ANONYMOUS, AccessPolicy, Grant, Limits, Principal
from braid.errors import PublicationError, RequestRefusedError
from braid.runtime.connecting import connect
from tests.runtime.fake_broker import DEADLINE_S, until
from tests.runtime.test_client_with_broker import RunningBroker

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from braid.runtime.client import Client

pytestmark = pytest.mark.net

KIB = 1024


@asynccontextmanager
async def pair_of(left: int, right: int, **settings: Any) -> AsyncIterator[list[RunningBroker]]:
    """Two neighbours that read frames of so many bytes."""
    async with AsyncExitStack() as stack:
        brokers: list[RunningBroker] = []
        for name, frame_bytes_max in (("A", left), ("B", right)):
            neighbours = tuple(each.address for each in brokers)
            broker = RunningBroker(name, neighbours, frame_bytes_max=frame_bytes_max, **settings)
            await broker.start()
            stack.push_async_callback(broker.stop)
            brokers.append(broker)
        await until(lambda: all(broker.core.ready for broker in brokers))
        yield brokers


async def largest_body(client: Client) -> int:
    """How many bytes a body may have, as the error about a larger one says."""
    tried = 8 * KIB * KIB
    with pytest.raises(PublicationError) as caught:
        await client.publish({"n": 0}, body=b"x" * tried)
    found, most = (int(each.replace(",", "")) for each in re.findall(r"[\d,]*\d", str(caught.value)))
    return tried - (found - most)


@pytest.mark.parametrize("strategy", ["S0", "SB"])
@pytest.mark.parametrize("frame_bytes_max", [256 * KIB, 4 * KIB * KIB])
async def test_bodies_up_to_the_limit_reach_everybody(strategy: str, frame_bytes_max: int) -> None:
    async with (
        pair_of(frame_bytes_max, frame_bytes_max, strategy=strategy) as (a, b),
        connect(a.address) as publisher,
        connect(b.address) as subscriber,
        connect(b.address) as reader,
    ):
        plain = await subscriber.subscribe("n >= 1")
        durable = await reader.subscribe("n >= 0 AND n <> 77", durable="\U0001f600" * 200)
        most = await largest_body(publisher)
        assert frame_bytes_max - 17 * KIB < most < frame_bytes_max - 16 * KIB
        for number, size in enumerate((most - 1, most), 1):
            await publisher.publish({"n": number}, body=b"x" * size, delivery="acknowledged")
        with pytest.raises(PublicationError, match="takes at most"):
            await publisher.publish({"n": 3}, body=b"x" * (most + 1))
        await publisher.publish({"n": 4}, delivery="acknowledged")
        await publisher.flush(DEADLINE_S)
        for subscription in (plain, durable):
            found = [await subscription.get(DEADLINE_S) for _ in range(3)]
            assert [publication["n"] for publication in found] == [1, 2, 4]
            assert [len(publication.body) for publication in found] == [most - 1, most, 0]
        for broker in (a, b):
            counters = broker.core.statistics()["counters"]
            assert (counters["oversized"], counters["resent_frames"]) == (0, 0)


async def test_neighbours_that_read_frames_of_unlike_size() -> None:
    async with (
        pair_of(4 * KIB * KIB, 64 * KIB) as (a, b),
        connect(a.address) as publisher,
        connect(b.address) as subscriber,
    ):
        wanted = await subscriber.subscribe("n >= 0")
        await publisher.publish({"n": 0}, delivery="acknowledged")
        await publisher.publish({"n": 1}, body=b"x" * 200 * KIB, delivery="acknowledged")
        await publisher.publish({"n": 2}, delivery="acknowledged")
        await publisher.flush(DEADLINE_S)
        assert [(await wanted.get(DEADLINE_S))["n"] for _ in range(2)] == [0, 2]
        counters = a.core.statistics()["counters"]
        assert (counters["oversized"], counters["resent_frames"]) == (1, 0)


async def test_frames_beyond_the_default_pass_where_they_are_allowed() -> None:
    limits = Limits(frame_bytes_max=12 * KIB * KIB)
    everybody = AccessPolicy(anonymous=Principal(ANONYMOUS, Grant.everything(), limits))
    async with (
        pair_of(12 * KIB * KIB, 12 * KIB * KIB, access=everybody) as (a, b),
        connect(a.address) as publisher,
        connect(b.address) as subscriber,
    ):
        wanted = await subscriber.subscribe("n >= 0")
        durable = await subscriber.subscribe("n > 0", durable="log")
        for number in range(2):
            await publisher.publish({"n": number}, body=b"x" * 9 * KIB * KIB, delivery="acknowledged")
        await publisher.flush(DEADLINE_S)
        for subscription, count in ((wanted, 2), (durable, 1)):
            for _ in range(count):
                assert len((await subscription.get(DEADLINE_S)).body) == 9 * KIB * KIB


async def test_a_filter_that_no_frame_can_hold_is_an_error_and_ends_no_connection() -> None:
    limits = Limits(frame_bytes_max=10 * KIB)
    everybody = AccessPolicy(anonymous=Principal(ANONYMOUS, Grant.everything(), limits))
    async with pair_of(KIB * KIB, KIB * KIB, access=everybody) as (a, _), connect(a.address) as client:
        await client.subscribe("n = 1")
        long = "s = '" + "x" * 12 * KIB + "'"
        for ask in (
            lambda: client.subscribe(long),
            lambda: client.subscribe(long, durable="log"),
            lambda: client.advertise(long),
        ):
            with pytest.raises(RequestRefusedError, match="this broker takes at most"):
                await ask()
        wanted = await client.subscribe("n = 2")
        await client.publish({"n": 2})
        assert (await wanted.get(DEADLINE_S))["n"] == 2
        assert len(a.core._connections.clients) == 1


async def test_a_filter_that_would_multiply_is_answered_carried_and_survives_a_restart() -> None:
    multiplies = " AND ".join(f"({'n' * 123}{row} = 1 OR {'m' * 123}{row} = 1)" for row in range(10))
    satisfies = {f"{'n' * 123}{row}": 1 for row in range(10)}
    async with (
        pair_of(4 * KIB * KIB, 4 * KIB * KIB) as (a, b),
        connect(a.address) as publisher,
        connect(b.address) as subscriber,
    ):
        plain = await subscriber.subscribe(multiplies)
        durable = await subscriber.subscribe(f"({multiplies}) AND q = 1", durable="log")
        innocent = await subscriber.subscribe("z = 1")
        for number in range(2):
            await publisher.publish({**satisfies, "q": 1, "z": 1, "n": number}, delivery="acknowledged")
            await publisher.flush(DEADLINE_S)
            for subscription in (plain, durable, innocent):
                assert (await subscription.get(DEADLINE_S))["n"] == number
            if not number:
                await b.stop()
                await b.start()
                await until(lambda: a.core.ready and b.core.ready and len(b.core._connections.clients) == 1)
                await subscriber.subscribe("FALSE")  # answered behind what was asked for anew
