"""Does the asyncio client keep its promises over real sockets?"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from braid.client.stored import StoredPublication
from braid.errors import (
    AccessDeniedError,
    AuthenticationError,
    BusClosedError,
    ConfigurationError,
    ConnectionLostError,
    FilterSyntaxError,
    PublicationError,
    RequestRefusedError,
    SlowConsumerError,
)
from braid.language import Filter, Publication, Range
from braid.protocol.batch import PublicationBatch
from braid.protocol.messages import (
    Goodbye,
    Hello,
    Refused,
    Subscribe,
)
from braid.runtime.connecting import connect
from tests.runtime.fake_broker import DEADLINE_S, FakeBroker, until

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from braid.runtime.client import Client


pytestmark = pytest.mark.net


@pytest.fixture
async def broker() -> AsyncIterator[FakeBroker]:
    fake = FakeBroker()
    await fake.start()
    yield fake
    await fake.stop()


async def test_what_is_published_arrives_where_it_is_wanted(broker: FakeBroker) -> None:
    async with connect(f"braid://{broker.address}") as client:
        assert client.connected
        assert client.broker == "B-1"
        cheap = await client.subscribe("price < 10")
        every = await client.subscribe(Filter("price > 0"))
        for price in range(1, 21):
            receipt = await client.publish({"price": price}, b"x" * price, "text/plain")
        await receipt
        assert receipt.done
        assert (receipt.publisher, receipt.sequence) == (client.publisher, 20)
        found = [await every.get(DEADLINE_S) for _ in range(20)]
        assert [publication["price"] for publication in found] == list(range(1, 21))
        assert found[4].body == b"x" * 5
        assert found[4].content_type == "text/plain"
        assert [(each.publisher, each.sequence) for each in found] == [
            (client.publisher, number) for number in range(1, 21)
        ]
        assert [(await cheap.get(DEADLINE_S))["price"] for _ in range(9)] == list(range(1, 10))
        assert cheap.statistics().queued == 0
        assert cheap.statistics().delivered == 9


async def test_await_gives_a_client_too(broker: FakeBroker) -> None:
    client = await connect(broker.address, name="me", publisher="me.1", first_sequence=7)
    await client.flush(DEADLINE_S)
    receipt = await client.publish({"a": 1})
    await client.flush(DEADLINE_S)
    assert (receipt.publisher, receipt.sequence) == ("me.1", 7)
    assert [hello.name for hello in broker.saw if isinstance(hello, Hello)] == ["me"]
    await client.close()
    await client.close()
    await until(lambda: any(isinstance(body, Goodbye) for body in broker.saw))
    assert not client.connected
    for call in (client.publish({"a": 1}), client.subscribe("a = 1"), client.flush(), client.ask("status")):
        with pytest.raises(BusClosedError):
            await call


async def test_values_of_all_kinds_travel(broker: FakeBroker) -> None:
    async with connect(broker.address) as client:
        everything = await client.subscribe("TRUE")
        attributes = {"i": -5, "f": 2.5, "s": "Grüße", "b": True, "r": Range(1, 2.5), "none": None}
        await client.publish(attributes, bytearray(b"\x00\xff"))
        found = await everything.get(DEADLINE_S)
        del attributes["none"]
        assert found.attributes == attributes
        assert found.body == b"\x00\xff"
        assert found.published_at_us > 0
        await client.publish(found)
        assert (await everything.get(DEADLINE_S)).body == b"\x00\xff"


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        (({"a": [1]},), PublicationError),
        (({"a": 1}, "text"), PublicationError),
        (({"a": 1}, b"", 5), PublicationError),
        ((Publication({"a": 1}), b"twice"), PublicationError),
        (({"a": 1}, b"x" * 5_000_000), PublicationError),
    ],
)
async def test_what_cannot_be_published_is_refused_here(
    broker: FakeBroker, arguments: Any, error: type[Exception]
) -> None:
    async with connect(broker.address) as client:
        with pytest.raises(error):
            await client.publish(*arguments)
        with pytest.raises(ConfigurationError, match="delivery"):
            await client.publish({"a": 1}, delivery="quick")
        assert (await client.publish({"a": 1})).sequence == 1


async def test_publications_of_one_turn_share_a_batch(broker: FakeBroker) -> None:
    async with connect(broker.address) as client:
        for number in range(100):
            await client.publish({"n": number})
        await client.flush(DEADLINE_S)
        batches = [body for body in broker.saw if isinstance(body, PublicationBatch)]
        assert [len(batch) for batch in batches] == [100]
        assert [publication["n"] for publication in broker.published] == list(range(100))


async def test_a_publisher_waits_while_too_much_is_on_its_way(broker: FakeBroker) -> None:
    broker.acknowledging = False
    async with connect(broker.address, outgoing_bytes_max=20_000) as client:

        async def publish() -> None:
            for number in range(1000):
                await client.publish({"n": number}, b"x" * 100)

        publishing = asyncio.create_task(publish())
        await until(lambda: len(broker.published) > 50)
        for _ in range(20):
            await asyncio.sleep(0)
        assert not publishing.done()
        assert len(broker.published) < 1000
        broker.acknowledging = True
        for visitor in broker.visitors:
            visitor.acknowledge()
        await publishing
        await client.flush(DEADLINE_S)
        assert [publication["n"] for publication in broker.published] == list(range(1000))


async def test_refused_publications_raise_where_their_receipts_are_awaited(broker: FakeBroker) -> None:
    broker.denied = Filter("secret = 1")
    async with connect(broker.address) as client:
        fine = await client.publish({"open": 1})
        refused = await client.publish({"secret": 1})
        also_fine = await client.publish({"open": 2})
        await fine
        await also_fine
        for _ in range(2):
            with pytest.raises(AccessDeniedError, match="may not publish"):
                await refused
        await client.flush(DEADLINE_S)
        assert client.refusals[0] == 1


async def test_a_receipt_of_acknowledged_delivery(broker: FakeBroker) -> None:
    async with connect(broker.address) as client:
        receipt = await client.publish({"a": 1}, delivery="acknowledged", ordered=True)
        assert not receipt.done
        await receipt
        batch = next(body for body in broker.saw if isinstance(body, PublicationBatch))
        assert batch.acknowledged
        assert batch.ordered
        assert batch.receipt or broker.published


async def test_flush_gives_up_when_time_is_up(broker: FakeBroker) -> None:
    broker.acknowledging = False
    client = await connect(broker.address)
    receipt = await client.publish({"a": 1})
    with pytest.raises(TimeoutError):
        await client.flush(0.01)
    waiting = asyncio.ensure_future(_awaited(receipt))
    await asyncio.sleep(0)
    await client.close(timeout_s=0.01)
    with pytest.raises(BusClosedError):
        await waiting


async def _awaited(receipt: Any) -> None:
    await receipt


# Subscribing.


async def test_filters_are_read_before_anything_is_sent(broker: FakeBroker) -> None:
    async with connect(broker.address) as client:
        with pytest.raises(FilterSyntaxError):
            await client.subscribe("price >")
        with pytest.raises(ConfigurationError):
            await client.subscribe(5)  # type: ignore[arg-type]
        with pytest.raises(ConfigurationError):
            await client.subscribe(None)
        with pytest.raises(ConfigurationError):
            await client.subscribe("TRUE", queue_size=0)
        with pytest.raises(ConfigurationError, match="when_full"):
            await client.subscribe("TRUE", when_full="never")
        with pytest.raises(ConfigurationError, match="callable"):
            await client.subscribe("TRUE", 5)  # type: ignore[arg-type]
        assert not any(isinstance(body, Subscribe) for body in broker.saw)


async def test_a_subscription_may_be_denied_or_narrowed(broker: FakeBroker) -> None:
    async with connect(broker.address) as client:
        with pytest.raises(AccessDeniedError, match="not for you"):
            await client.subscribe("secret = 1")
        broker.denied = Filter("hidden = 1")
        narrowed = await client.subscribe("price > 1")
        assert narrowed.filter == Filter("price > 1 AND NOT hidden = 1")


async def test_callbacks_plain_and_async_with_errors_reported(broker: FakeBroker) -> None:
    problems: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: problems.append(context))
    plain: list[Any] = []
    awaited: list[Any] = []

    def take(publication: Publication) -> None:
        if publication["n"] == 3:
            raise ValueError("three")
        plain.append(publication["n"])

    async def take_later(publication: Publication) -> None:
        await asyncio.sleep(0)
        awaited.append(publication["n"])

    async with connect(broker.address) as client:
        first = await client.subscribe("n >= 0", take)
        await client.subscribe("n >= 0", take_later)
        with pytest.raises(ConfigurationError, match="callback"):
            await first.get()
        for number in range(200):
            await client.publish({"n": number})
        await until(lambda: len(plain) == 199 and len(awaited) == 200)
        assert awaited == list(range(200))
        assert first.statistics().errors == 1
        assert len(problems) == 1
        assert isinstance(problems[0]["exception"], ValueError)
        await first.close()
        await client.publish({"n": 5})
        await until(lambda: len(awaited) == 201)
        assert len(plain) == 199


async def test_a_callback_that_is_running_is_waited_for_and_a_cancelled_one_is_reported(
    broker: FakeBroker,
) -> None:
    problems: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: problems.append(context))
    started, go = asyncio.Event(), asyncio.Event()
    finished: list[Any] = []

    async def slow(publication: Publication) -> None:
        if publication["n"] == 0:
            raise asyncio.CancelledError
        started.set()
        await go.wait()
        finished.append(publication["n"])

    async with connect(broker.address) as client:
        subscription = await client.subscribe("n >= 0", slow)
        for number in range(5):
            await client.publish({"n": number})
        await started.wait()
        closing = asyncio.create_task(subscription.close())
        await until(lambda: not broker.visitors[0].subscriptions)
        assert not closing.done()
        go.set()
        await closing
        assert finished == [1]
        assert len(problems) == 1


async def test_a_connector_is_used_once(broker: FakeBroker) -> None:
    connector = connect(broker.address)
    async with connector:
        pass
    with pytest.raises(ConfigurationError, match="once"):
        await connector


async def test_a_callback_may_close_its_own_subscription(broker: FakeBroker) -> None:
    got: list[Any] = []
    async with connect(broker.address) as client:

        async def once(publication: Publication) -> None:
            got.append(publication["n"])
            await subscription.close()

        subscription = await client.subscribe("n >= 0", once)
        for number in range(10):
            await client.publish({"n": number})
        await until(lambda: not any(visitor.subscriptions for visitor in broker.visitors))
        assert got == [0]


async def test_a_closed_subscription_ends_its_readers(broker: FakeBroker) -> None:
    async with connect(broker.address) as client:
        async with await client.subscribe("TRUE") as subscription:
            reading = asyncio.create_task(_read_all(subscription))
            waiting = asyncio.create_task(subscription.get())
            await client.publish({"n": 1})
            await client.publish({"n": 2})
            await until(lambda: subscription.statistics().delivered == 2)
        found = await asyncio.gather(reading, waiting, return_exceptions=True)
        if isinstance(found[1], BusClosedError):
            assert len(found[0]) == 2
        else:
            assert len(found[0]) == 1
        assert not broker.visitors[0].subscriptions
        with pytest.raises(BusClosedError):
            await subscription.get()
        await subscription.close()


async def _read_all(source: Any) -> list[Any]:
    return [publication async for publication in source]


async def test_get_times_out_and_a_cancelled_reader_loses_nothing(broker: FakeBroker) -> None:
    async with connect(broker.address) as client:
        subscription = await client.subscribe("TRUE")
        with pytest.raises(TimeoutError):
            await subscription.get(0.01)
        readers = [asyncio.create_task(subscription.get()) for _ in range(3)]
        await asyncio.sleep(0)
        readers[0].cancel()
        for number in range(2):
            await client.publish({"n": number})
        found = await asyncio.gather(*readers[1:])
        assert sorted(publication["n"] for publication in found) == [0, 1]


async def test_a_full_queue_blocks_drops_or_disconnects(broker: FakeBroker) -> None:
    async with connect(broker.address) as client:
        patient = await client.subscribe("n >= 0", queue_size=5)
        newest = await client.subscribe("n >= 0", queue_size=5, when_full="drop_oldest")
        strict = await client.subscribe("n >= 0", queue_size=5, when_full="disconnect")
        for number in range(50):
            await client.publish({"n": number})
        await client.flush(DEADLINE_S)
        await until(lambda: strict.closed)
        await until(lambda: newest.statistics().dropped == 45)
        assert (patient.statistics().queued, patient.statistics().waiting) == (5, 45)
        assert [(await patient.get(DEADLINE_S))["n"] for _ in range(50)] == list(range(50))
        assert [(await newest.get(DEADLINE_S))["n"] for _ in range(5)] == list(range(45, 50))
        assert [(await strict.get(DEADLINE_S))["n"] for _ in range(5)] == list(range(5))
        with pytest.raises(SlowConsumerError):
            await strict.get(DEADLINE_S)
        await until(lambda: broker.visitors[0].channel.idle)


async def test_a_subscriber_that_reads_slowly_holds_the_broker_up_and_loses_nothing(
    broker: FakeBroker,
) -> None:
    async with connect(broker.address) as publisher, connect(broker.address) as subscriber:
        subscription = await subscriber.subscribe("n >= 0", queue_size=10)
        body = b"x" * 100_000
        for number in range(100):
            await publisher.publish({"n": number}, body)
        await publisher.flush(DEADLINE_S)
        await until(lambda: subscription.statistics().matched > 10)
        waiting = [visitor.channel.waiting_bytes for visitor in broker.visitors if visitor.subscriptions]
        assert waiting[0] > 1_000_000
        found = [(await subscription.get(DEADLINE_S))["n"] for _ in range(100)]
        assert found == list(range(100))


# Durable subscriptions.


async def test_a_durable_subscription_goes_on_where_it_was_acknowledged(broker: FakeBroker) -> None:
    async with connect(broker.address) as client:
        log = await client.subscribe("n >= 0", durable="log", queue_size=4)
        with pytest.raises(ConfigurationError, match="already"):
            await client.subscribe("n >= 0", durable="log")
        for number in range(20):
            await client.publish({"n": number})
        found = [await log.get(DEADLINE_S) for _ in range(12)]
        assert all(isinstance(row, StoredPublication) for row in found)
        assert [(row["n"], row.offset) for row in found] == [(n, n) for n in range(12)]  # type: ignore[attr-defined]
        await log.acknowledge(found[9])  # type: ignore[arg-type]
        with pytest.raises(ConfigurationError):
            await log.acknowledge(19)
        with pytest.raises(ConfigurationError):
            await log.acknowledge("9")  # type: ignore[arg-type]
    await until(lambda: broker.acknowledged["log"] == 9)
    async with connect(broker.address) as client:
        log = await client.subscribe(None, durable="log")
        assert log.durable == "log"
        assert log.filter == Filter("n >= 0")
        assert [(await log.get(DEADLINE_S))["n"] for _ in range(10)] == list(range(10, 20))
        assert [row["n"] for row in await _read_all(client.replay("log", 3, 11, queue_size=2))] == list(
            range(3, 12)
        )
        assert len(await _read_all(client.replay("log"))) == 20
        await client.drop_durable("log")
        assert await _read_all(log) == []
        with pytest.raises(RequestRefusedError) as refused:
            await client.drop_durable("log")
        assert refused.value.code == "unknown"
        with pytest.raises(ConfigurationError):
            client.replay("log", 5, 2)
        ordinary = await client.subscribe("TRUE")
        assert not hasattr(ordinary, "acknowledge"), "only a durable subscription is acknowledged"
        with pytest.raises(ConfigurationError, match="durable"):
            await client.subscribe("TRUE", takeover=True)  # type: ignore[call-overload] # it is about a log


# Connections.


async def test_a_broken_connection_is_made_again_and_nothing_is_lost_or_doubled(broker: FakeBroker) -> None:
    async with connect(broker.address) as client:
        subscription = await client.subscribe("n >= 0", queue_size=10_000)
        log = await client.subscribe("n >= 0", durable="log", queue_size=10)
        await client.advertise("n >= 0")
        for number in range(300):
            await client.publish({"n": number}, delivery="acknowledged" if number % 3 else "fast")
            if number % 60 == 30:
                await asyncio.sleep(0)
                broker.drop()
                await until(lambda: not client.connected)
        await client.flush(DEADLINE_S)
        await until(lambda: client.connected)
        assert [publication["n"] for publication in broker.published] == list(range(300))
        assert [(await log.get(DEADLINE_S))["n"] for _ in range(300)] == list(range(300))
        # An ordinary subscription misses what is published while it is away, and gets nothing twice.
        await until(lambda: bool(broker.visitors[0].subscriptions))
        await client.publish({"n": 300})
        found = []
        while not found or found[-1] != 300:
            found.append((await subscription.get(DEADLINE_S))["n"])
        assert found == sorted(set(found))
        assert list(broker.visitors[0].advertisements.values()) == ["n >= 0"]


async def test_a_broker_that_is_gone_for_good_fails_everything(broker: FakeBroker) -> None:
    client = await connect(broker.address, reconnect_for_s=0.2)
    subscription = await client.subscribe("n >= 0")
    ended = await client.subscribe("n >= 0", lambda _: None)
    problems: list[Any] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: problems.append(context))
    reading = asyncio.create_task(_read_all(subscription))
    await broker.stop()
    receipt = await client.publish({"n": 1})
    with pytest.raises(ConnectionLostError, match="could not be made again"):
        await receipt
    with pytest.raises(ConnectionLostError):
        await reading
    for call in (client.publish({"n": 1}), client.subscribe("n = 1"), client.flush(), subscription.get()):
        with pytest.raises(ConnectionLostError):
            await call
    await until(lambda: len(problems) == 1)
    assert ended.statistics().errors == 0
    await client.close()


async def test_nobody_there_is_reported_with_the_address(broker: FakeBroker) -> None:
    await broker.stop()
    with pytest.raises(ConnectionLostError, match=str(broker.port)):
        await connect(broker.address, timeout_s=0.2)


async def test_a_broker_that_starts_late_is_found_and_the_next_address_is_tried(broker: FakeBroker) -> None:
    await broker.stop()
    other = FakeBroker()
    connecting = asyncio.ensure_future(_connected(f"127.0.0.1:{broker.port},127.0.0.1:{broker.port + 0}"))
    await broker.start(broker.port)
    client = await connecting
    await client.close()
    await other.start()
    await broker.stop()
    async with connect(f"{broker.address},braid://{other.address}") as client:
        assert client.connected
    await other.stop()


async def _connected(url: str) -> Client:
    return await connect(url)


async def test_a_wrong_token_is_refused_at_once(broker: FakeBroker) -> None:
    broker.refusal = Refused("authentication", "no such token")
    with pytest.raises(AuthenticationError, match="no such token"):
        await connect(broker.address, token="wrong")
    assert [hello.token for hello in broker.saw if isinstance(hello, Hello)] == ["wrong"]


async def test_a_draining_broker_is_left(broker: FakeBroker) -> None:
    other = FakeBroker()
    await other.start()
    async with connect(f"{broker.address},{other.address}") as client:
        subscription = await client.subscribe("n >= 0")
        broker.visitors[0].write(Goodbye("draining"))
        await until(lambda: bool(other.visitors and other.visitors[0].subscriptions))
        await client.publish({"n": 1})
        assert (await subscription.get(DEADLINE_S))["n"] == 1
    await other.stop()


async def test_a_broker_that_does_not_answer(broker: FakeBroker) -> None:
    broker.silent_requests = True
    async with connect(broker.address, request_timeout_s=0.05) as client:
        with pytest.raises(TimeoutError, match="did not answer"):
            await client.subscribe("TRUE")
        with pytest.raises(TimeoutError):
            await client.advertise("TRUE")
        with pytest.raises(TimeoutError):
            await client.ask("status")


async def test_a_broker_that_speaks_gibberish_is_left(broker: FakeBroker) -> None:
    async with connect(broker.address) as client:
        broker.visitors[0].transport.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")
        await until(lambda: not client.connected)
        await until(lambda: client.connected)


async def test_questions_and_advertisements(broker: FakeBroker) -> None:
    async with connect(broker.address) as client:
        assert await client.ask("status", of="B-1", depth=2, left_out=None) == {
            "topic": "status",
            "of": "B-1",
            "depth": "2",
        }
        async with await client.advertise("price > 5") as advertisement:
            assert advertisement.filter == Filter("price > 5")
            assert list(broker.visitors[0].advertisements.values()) == ["price > 5"]
        assert not broker.visitors[0].advertisements
        await advertisement.close()


@pytest.mark.parametrize(
    ("url", "options"),
    [
        ("http://there", {}),
        ("", {}),
        ("127.0.0.1:1", {"publisher": ""}),
        ("127.0.0.1:1", {"publisher": "x" * 300}),
        ("127.0.0.1:1", {"name": "me", "publisher": "you"}),
        ("127.0.0.1:1", {"name": ""}),
        ("127.0.0.1:1", {"timeout_s": None}),
        ("127.0.0.1:1", {"reconnect_for_s": -1}),
        ("127.0.0.1:1", {"outgoing_bytes_max": 0}),
        ("127.0.0.1:1", {"first_sequence": 0}),
    ],
)
async def test_arguments_that_make_no_sense_are_refused_at_once(url: str, options: dict[str, Any]) -> None:
    with pytest.raises(ConfigurationError):
        connect(url, **options)


async def test_leaving_the_block_closes_subscriptions_with_callbacks(broker: FakeBroker) -> None:
    got: list[Any] = []
    async with connect(broker.address) as client:
        subscription = await client.subscribe("TRUE")
        await client.subscribe("TRUE", got.append)
        reading = asyncio.create_task(_read_all(subscription))
        await asyncio.sleep(0)
    assert await reading == []
    assert subscription.closed
    await until(lambda: not broker.visitors)


async def test_a_reader_that_is_cancelled_as_rows_arrive_leaves_them_to_the_next(broker: FakeBroker) -> None:
    async with connect(broker.address) as client:
        subscription = await client.subscribe("TRUE")
        first, second = (asyncio.create_task(subscription.get_many(5)) for _ in range(2))
        await asyncio.sleep(0)
        await client.publish({"n": 1})
        first.cancel()
        with pytest.raises(asyncio.CancelledError):
            await first
        assert [row["n"] for row in await asyncio.wait_for(second, 10)] == [1]


async def test_nothing_is_not_a_number_of_rows_to_read(broker: FakeBroker) -> None:
    async with connect(broker.address) as client:
        subscription = await client.subscribe("TRUE")
        with pytest.raises(ConfigurationError, match="count_max"):
            await subscription.get_many(0)
