"""Does the client without an event loop keep the same promises, from any thread?"""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING, Any

import pytest

from braid.client.stored import StoredPublication
from braid.errors import (
    AccessDeniedError,
    BusClosedError,
    ConfigurationError,
    ConnectionLostError,
    FilterSyntaxError,
    PublicationError,
)
from braid.language import Filter
from braid.runtime.connecting import connect_sync
from tests.runtime.fake_broker import DEADLINE_S, FakeBrokerThread

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

pytestmark = pytest.mark.net


@pytest.fixture
def served() -> Iterator[FakeBrokerThread]:
    with FakeBrokerThread() as thread:
        yield thread


def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + DEADLINE_S
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.005)


def test_what_is_published_arrives_where_it_is_wanted(served: FakeBrokerThread) -> None:
    with connect_sync(f"braid://{served.broker.address}", publisher="me") as client:
        assert client.connected
        assert client.broker == "B-1"
        cheap = client.subscribe("n < 500")
        every = client.subscribe(Filter("n >= 0"), queue_size=50)
        receipts = [client.publish({"n": number}) for number in range(1000)]
        receipts[-1].wait(DEADLINE_S)
        assert receipts[0].done
        assert [receipt.sequence for receipt in receipts] == list(range(1, 1001))
        assert receipts[0].publisher == "me"
        assert [every.get(DEADLINE_S)["n"] for _ in range(1000)] == list(range(1000))
        reading = iter(cheap)
        assert [next(reading)["n"] for _ in range(500)] == list(range(500))
        statistics = cheap.statistics()
        assert (statistics.delivered, statistics.queued, statistics.dropped) == (500, 0, 0)
        with pytest.raises(TimeoutError):
            cheap.get(0.01)


def test_publications_of_many_threads_keep_each_threads_order(served: FakeBrokerThread) -> None:
    with connect_sync(served.broker.address, outgoing_bytes_max=20_000) as client:
        every = client.subscribe("n >= 0", queue_size=10_000)
        sequences: dict[int, list[int]] = {}

        def publish(thread: int) -> None:
            sequences[thread] = [
                client.publish({"thread": thread, "n": number}, b"x" * 50).sequence for number in range(500)
            ]

        threads = [threading.Thread(target=publish, args=(number,)) for number in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(DEADLINE_S)
        client.flush(DEADLINE_S)
        found = [every.get(DEADLINE_S) for _ in range(2000)]
        assert [publication.sequence for publication in found] == list(range(1, 2001))
        for thread, numbers in sequences.items():
            mine = [publication for publication in found if publication["thread"] == thread]
            assert [publication["n"] for publication in mine] == list(range(500))
            assert [publication.sequence for publication in mine] == numbers


def test_callbacks_run_in_a_thread_of_their_own_and_may_fail(served: FakeBrokerThread) -> None:
    got: list[Any] = []
    threads: set[str] = set()

    def take(publication: Any) -> None:
        threads.add(threading.current_thread().name)
        if publication["n"] == 3:
            raise ValueError("three")
        got.append(publication["n"])
        if publication["n"] == 10:
            client.publish({"n": 11})  # a callback may use the client

    with connect_sync(served.broker.address) as client:
        subscription = client.subscribe("n >= 0", take)
        with pytest.raises(ConfigurationError, match="callback"):
            subscription.get()
        for number in range(11):
            client.publish({"n": number})
        until(lambda: len(got) == 11)
        assert got == [0, 1, 2, 4, 5, 6, 7, 8, 9, 10, 11]
        assert threads == {"braid-callback"}
        assert subscription.statistics().errors == 1
        subscription.close()
        assert subscription.closed

        async def never(_: Any) -> None: ...

        with pytest.raises(ConfigurationError):
            client.subscribe("n >= 0", never)


def test_closing_ends_readers_in_other_threads(served: FakeBrokerThread) -> None:
    client = connect_sync(served.broker.address)
    first, second = client.subscribe("n >= 0"), client.subscribe("n >= 0")
    found: dict[str, list[Any]] = {}

    def read(name: str, subscription: Any) -> None:
        found[name] = [publication["n"] for publication in subscription]

    threads = [
        threading.Thread(target=read, args=("first", first)),
        threading.Thread(target=read, args=("second", second)),
    ]
    for thread in threads:
        thread.start()
    client.publish({"n": 1})
    until(lambda: first.statistics().delivered == 1 and second.statistics().delivered == 1)
    first.close()
    threads[0].join(DEADLINE_S)
    client.close()
    client.close()
    threads[1].join(DEADLINE_S)
    assert found == {"first": [1], "second": [1]}
    for call in (
        lambda: client.publish({"n": 1}),
        lambda: client.subscribe("n = 1"),
        client.flush,
        first.get,
        second.get,
    ):
        with pytest.raises(BusClosedError):
            call()
    second.close()


def test_durable_subscriptions_and_replays(served: FakeBrokerThread) -> None:
    with connect_sync(served.broker.address) as client:
        log = client.subscribe("n >= 0", durable="log")
        for number in range(10):
            client.publish({"n": number}, delivery="acknowledged").wait(DEADLINE_S)
        rows = [log.get(DEADLINE_S) for _ in range(10)]
        assert isinstance(rows[4], StoredPublication)
        log.acknowledge(rows[4])
        assert log.durable == "log"
        assert [row["n"] for row in client.replay("log", 2, 5)] == [2, 3, 4, 5]
        log.close()
        served.until(lambda: served.broker.acknowledged["log"] == 4)
        client.drop_durable("log")


def test_questions_advertisements_and_errors(served: FakeBrokerThread) -> None:
    with connect_sync(served.broker.address) as client:
        assert client.ask("status", of="B") == {"topic": "status", "of": "B"}
        with client.advertise("n > 5") as advertisement:
            assert advertisement.filter == Filter("n > 5")
        with pytest.raises(FilterSyntaxError):
            client.subscribe("n >")
        with pytest.raises(PublicationError):
            client.publish({"n": [1]})
        with pytest.raises(PublicationError):
            client.publish({"n": 1}, b"x" * 5_000_000)
        with pytest.raises(AccessDeniedError):
            client.subscribe("secret = 1")
        served.broker.denied = Filter("hidden = 1")
        refused = client.publish({"hidden": 1})
        with pytest.raises(AccessDeniedError):
            refused.wait(DEADLINE_S)
        assert client.refusals[0] == 1
        assert client.publish({"n": 1}).sequence == 2


def test_a_broken_connection_is_made_again(served: FakeBrokerThread) -> None:
    with connect_sync(served.broker.address) as client:
        for number in range(200):
            client.publish({"n": number})
            if number % 50 == 25:
                served.call(served.broker.drop)
        client.flush(DEADLINE_S)
        assert [publication["n"] for publication in served.broker.published] == list(range(200))


def test_nobody_there_is_reported(served: FakeBrokerThread) -> None:
    served.run(served.broker.stop())
    with pytest.raises(ConnectionLostError, match="no broker could be reached"):
        connect_sync(served.broker.address, timeout_s=0.1)
    with pytest.raises(ConfigurationError):
        connect_sync("http://nowhere")


def test_a_broker_that_is_gone_for_good_fails_everything(served: FakeBrokerThread) -> None:
    client = connect_sync(served.broker.address, reconnect_for_s=0.1)
    subscription = client.subscribe("n >= 0")
    served.run(served.broker.stop())
    with pytest.raises(ConnectionLostError):
        subscription.get(DEADLINE_S)
    with pytest.raises(ConnectionLostError):
        client.publish({"n": 1})
    client.close()
