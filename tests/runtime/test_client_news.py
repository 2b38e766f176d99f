"""What network clients share with the bus, and what they tell unasked: batches, errors, connections."""

from __future__ import annotations

import asyncio
import gc
import time
from typing import TYPE_CHECKING, Any

import pytest

from braid.errors import (
    AccessDeniedError,
    AuthenticationError,
    ConfigurationError,
    ConnectionLostError,
    PublicationError,
    PublishTimeoutError,
)
from braid.language import Filter, Publication
from braid.protocol.messages import Refused
from braid.runtime.connecting import connect, connect_sync
from tests.runtime.fake_broker import DEADLINE_S, FakeBroker, FakeBrokerThread, until

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

    from braid.runtime.client_events import ConnectionEvent

pytestmark = pytest.mark.net

ROWS: list[Any] = [{"n": 1}, Publication({"n": 2}, b"body", "text/plain"), {"n": 3}]


@pytest.fixture
async def broker() -> AsyncIterator[FakeBroker]:
    fake = FakeBroker()
    await fake.start()
    yield fake
    await fake.stop()


@pytest.fixture
def served() -> Iterator[FakeBrokerThread]:
    with FakeBrokerThread() as thread:
        yield thread


def kinds(events: list[ConnectionEvent]) -> list[tuple[str, str, bool]]:
    return [(event.kind, event.broker, event.final) for event in events]


def forget(work: object) -> None:
    """Do nothing with it, until nobody holds it any more."""
    del work
    gc.collect()


# Batches.


async def test_a_batch_has_one_receipt(broker: FakeBroker) -> None:
    async with connect(broker.address, publisher="me") as client:
        await client.publish({"n": 0})
        receipt = await client.publish_batch(ROWS, delivery="acknowledged")
        assert (receipt.sequence, receipt.published, receipt.publisher) == (2, 3, "me")
        await receipt.wait(DEADLINE_S)
        assert (receipt.done, receipt.status) == (True, "delivered")
        assert [(row["n"], row.sequence) for row in broker.published] == [(0, 1), (1, 2), (2, 3), (3, 4)]
        assert broker.published[2].body == b"body"
        nothing = await client.publish_batch([])
        assert (nothing.sequence, nothing.published, nothing.status) == (5, 0, "delivered")
        await nothing


def test_a_batch_of_a_thread_has_one_receipt(served: FakeBrokerThread) -> None:
    with connect_sync(served.broker.address, publisher="me") as client:
        client.publish({"n": 0})
        receipt = client.publish_batch(iter(ROWS))
        assert (receipt.sequence, receipt.published) == (2, 3)
        receipt.wait(DEADLINE_S)
        assert (receipt.done, receipt.status) == (True, "delivered")
        assert [row.sequence for row in served.broker.published] == [1, 2, 3, 4]
        assert client.publish_batch([]).status == "delivered"


async def test_of_a_batch_that_cannot_be_published_nothing_is(broker: FakeBroker) -> None:
    async with connect(broker.address) as client:
        with pytest.raises(PublicationError, match="publication 1 of the batch"):
            await client.publish_batch([{"n": 1}, {"n": object()}])
        with pytest.raises(PublicationError, match="a single dict"):
            await client.publish_batch({"n": 1})  # type: ignore[arg-type] # that is the point
        broker.frame_bytes_max = 100_000
        broker.drop()
        await until(lambda: not client.connected)
        await until(lambda: client.connected)
        with pytest.raises(PublicationError, match="bytes"):
            await client.publish_batch([{"n": 1}, Publication({"n": 2}, bytes(200_000))])
        assert (await client.publish({"n": 3})).sequence == 1
        await client.flush(DEADLINE_S)
    assert [row["n"] for row in broker.published] == [3]


async def test_a_batch_of_which_some_are_refused_says_so_and_the_others_arrive(broker: FakeBroker) -> None:
    told: list[tuple[BaseException, Publication | None]] = []
    async with connect(broker.address, on_error=lambda *entry: told.append(entry)) as client:
        broker.denied = Filter("n = 2")
        receipt = await client.publish_batch(ROWS)
        with pytest.raises(AccessDeniedError):
            await receipt
        assert receipt.status == "refused"
        assert [row["n"] for row in broker.published] == [1, 3]
        # Also for those who never look at a receipt.
        assert [(type(error), publication) for error, publication in told] == [(AccessDeniedError, None)]


async def test_waiting_for_room_comes_to_an_end(broker: FakeBroker) -> None:
    broker.acknowledging = False
    async with connect(broker.address, outgoing_bytes_max=100) as client:
        await client.publish({"n": 1}, bytes(200))
        for call in (client.publish({"n": 2}, timeout_s=0.01), client.publish_batch(ROWS, timeout_s=0)):
            with pytest.raises(PublishTimeoutError, match="too much is on its way"):
                await call
        broker.acknowledging = True
        for visitor in broker.visitors:
            visitor.acknowledge()
        await client.flush(DEADLINE_S)
        assert (await client.publish({"n": 2}, timeout_s=DEADLINE_S)).sequence == 2
        await client.flush(DEADLINE_S)
    assert [row["n"] for row in broker.published] == [1, 2]


def test_waiting_for_room_comes_to_an_end_in_threads(served: FakeBrokerThread) -> None:
    served.broker.acknowledging = False
    with connect_sync(served.broker.address, outgoing_bytes_max=100) as client:
        client.publish({"n": 1}, bytes(200))
        deadline_s = time.monotonic() + DEADLINE_S
        while client._engine.has_room and time.monotonic() < deadline_s:
            time.sleep(0.001)
        with pytest.raises(PublishTimeoutError, match="too much is on its way"):
            client.publish_batch(ROWS, timeout_s=0.01)
        client.close(timeout_s=0)


# Errors.


async def test_what_a_callback_raises_is_told_to_the_nearest_handler(broker: FakeBroker) -> None:
    of_client: list[Any] = []
    own: list[Any] = []

    def fail(publication: Publication) -> None:
        raise ValueError(publication["n"])

    def handle(error: BaseException, publication: Publication | None) -> None:
        of_client.append((type(error), publication and publication["n"]))
        raise RuntimeError("a handler's own mistake is only logged")

    async with connect(broker.address, on_error=handle) as client:
        first = await client.subscribe("n >= 0", fail)
        await client.subscribe("n >= 0", fail, on_error=lambda error, row: own.append(error.args))
        await client.publish_batch([{"n": 1}, {"n": 2}])
        await until(lambda: len(of_client) == 2 and len(own) == 2)
        assert of_client == [(ValueError, 1), (ValueError, 2)]
        assert own == [(1,), (2,)]
        assert first.statistics().errors == 2


async def test_a_callback_subscription_that_ends_is_told(broker: FakeBroker) -> None:
    told: list[Any] = []
    async with connect(
        broker.address, reconnect_for_s=0, on_error=lambda *entry: told.append(entry)
    ) as client:
        await client.subscribe("n >= 0", lambda _: None)
        await broker.stop()
        await until(lambda: bool(told))
    assert [(type(error), publication) for error, publication in told] == [(ConnectionLostError, None)]


def test_what_a_callback_in_a_thread_raises_is_told(served: FakeBrokerThread) -> None:
    told: list[Any] = []

    def fail(publication: Publication) -> None:
        raise ValueError(publication["n"])

    with connect_sync(served.broker.address, on_error=lambda *entry: told.append(entry)) as client:
        subscription = client.subscribe("n >= 0", fail, name="failing")
        client.publish_batch([{"n": 1}, {"n": 2}])
        deadline_s = time.monotonic() + DEADLINE_S
        while len(told) < 2 and time.monotonic() < deadline_s:
            time.sleep(0.005)
        assert subscription.statistics().errors == 2
        assert subscription.name == "failing"
    assert [(error.args, row["n"]) for error, row in told] == [((1,), 1), ((2,), 2)]


async def test_a_handler_is_a_plain_function(broker: FakeBroker) -> None:
    async def handler(*_: object) -> None: ...

    for options in ({"on_error": handler}, {"on_connection": handler}, {"on_error": 5}, {"on_connection": 5}):
        with pytest.raises(ConfigurationError, match=r"on_(error|connection) must"):
            connect(broker.address, **options)  # type: ignore[arg-type] # that is the point
        with pytest.raises(ConfigurationError, match=r"on_(error|connection) must"):
            connect_sync(broker.address, **options)  # type: ignore[arg-type] # that is the point
    async with connect(broker.address) as client:
        with pytest.raises(ConfigurationError, match="on_error must"):
            await client.subscribe("n > 0", on_error=handler)


async def test_an_acknowledgement_that_is_not_awaited_is_reported(broker: FakeBroker) -> None:
    async with connect(broker.address) as client:
        log = await client.subscribe("n >= 0", durable="log")
        await client.publish({"n": 1}, delivery="acknowledged")
        row = await log.get(DEADLINE_S)
        with pytest.warns(RuntimeWarning, match="acknowledge' was never awaited"):
            forget(log.acknowledge(row))
        assert broker.acknowledged["log"] == -1
        await log.acknowledge(row)
        await until(lambda: broker.acknowledged["log"] == 0)


# Connections.


async def test_a_program_hears_what_becomes_of_its_connection(broker: FakeBroker) -> None:
    other = FakeBroker("B-2")
    await other.start()
    events: list[ConnectionEvent] = []
    addresses = f"{broker.address},{other.address}"
    async with connect(addresses, reconnect_for_s=60.0, on_connection=events.append) as client:
        assert kinds(events) == [("connected", "B-1", False)]
        await broker.stop()
        await until(lambda: client.broker == "B-2")
        assert kinds(events)[1:] == [("lost", "B-1", False), ("moved", "B-2", False)]
        assert events[1].reason
        other.drop()
        await until(lambda: len(events) == 5)
        assert kinds(events)[3:] == [("lost", "B-2", False), ("connected", "B-2", False)]
        other.refusal = Refused("full", "too many of you")
        other.drop()
        await until(lambda: ("refused", "B-2", False) in kinds(events))
        other.refusal = Refused("authentication", "not any more")
        await until(lambda: len(events) > 0 and events[-1].final)
        assert kinds(events)[-2:] == [("refused", "B-2", True), ("lost", "B-2", True)]
        assert "not any more" in events[-2].reason
        assert client.closed
    await other.stop()


async def test_whoever_is_refused_at_once_hears_of_it_too(broker: FakeBroker) -> None:
    broker.refusal = Refused("authentication", "no such token")
    events: list[ConnectionEvent] = []
    with pytest.raises(AuthenticationError):
        await connect(broker.address, on_connection=events.append)
    assert kinds(events) == [("refused", "", True), ("lost", "", True)]


def test_a_thread_hears_what_becomes_of_its_connection(served: FakeBrokerThread) -> None:
    events: list[ConnectionEvent] = []
    with connect_sync(served.broker.address, on_connection=events.append) as client:
        served.call(served.broker.drop)
        deadline_s = time.monotonic() + DEADLINE_S
        while len(events) < 3 and time.monotonic() < deadline_s:
            time.sleep(0.005)
        assert not client.closed
    assert [event.kind for event in events] == ["connected", "lost", "connected"]
    assert client.closed


async def test_a_handler_of_connections_that_fails_harms_nobody(broker: FakeBroker) -> None:
    def fail(_: ConnectionEvent) -> None:
        raise ValueError("a handler's own mistake is only logged")

    async with connect(broker.address, on_connection=fail) as client:
        await (await client.publish({"n": 1}))
        await asyncio.sleep(0)
