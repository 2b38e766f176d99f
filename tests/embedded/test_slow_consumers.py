"""What happens when a subscriber does not keep up: to it, to its publishers, to its neighbours?"""

from __future__ import annotations

import pickle
import sys
import threading

import pytest

from braid.embedded import PublishDeadlockError, PublishTimeoutError, engine, open
from braid.errors import BusClosedError, SlowConsumerError
from tests.embedded.helpers import Background, until


def prices(count: int) -> list[dict[str, int]]:
    return [{"price": price} for price in range(1, count + 1)]


def test_with_back_pressure_the_publisher_waits_and_nothing_is_lost() -> None:
    with open() as bus:
        slow = bus.subscribe("price > 0", queue_size=2)
        publisher = Background(lambda: [bus.publish(row) for row in prices(10)])
        read = []
        for _ in range(10):
            assert slow.statistics().queued <= 2
            read.append(slow.get()["price"])
        assert [receipt.delivered for receipt in publisher.result()] == [1] * 10
    assert read == list(range(1, 11))


def test_a_batch_larger_than_the_queue_flows_through_it() -> None:
    with open() as bus:
        slow = bus.subscribe("price > 0", queue_size=3)
        fast = bus.subscribe("price > 0", queue_size=100)
        publisher = Background(lambda: bus.publish_batch(prices(50)))
        until(lambda: slow.statistics().waiting == 47)
        # The neighbour has everything while the publisher still waits for the slow one.
        assert [fast.get(timeout_s=0)["price"] for _ in range(50)] == list(range(1, 51))
        assert publisher.running
        assert [slow.get()["price"] for _ in range(50)] == list(range(1, 51))
        assert publisher.result().delivered == 100


def test_only_publishers_of_what_concerns_the_slow_one_wait() -> None:
    with open() as bus:
        slow = bus.subscribe("price > 100", queue_size=1)
        fast = bus.subscribe("price > 0", queue_size=100)
        bus.publish({"price": 101})
        stuck = Background(lambda: bus.publish({"price": 102}, publisher="stuck"))
        until(lambda: slow.statistics().waiting == 1)
        for row in prices(20):
            assert bus.publish(row).delivered == 1
        assert stuck.running
        assert [fast.get(timeout_s=0)["price"] for _ in range(22)] == [101, 102, *range(1, 21)]
        assert [slow.get()["price"], slow.get()["price"]] == [101, 102]
        assert stuck.result().delivered == 2


def test_a_later_publication_never_overtakes_one_that_waits() -> None:
    with open() as bus:
        slow = bus.subscribe("price > 0", queue_size=1)
        bus.publish({"price": 1})
        first = Background(lambda: bus.publish_batch([{"price": 2}, {"price": 3}]))
        until(lambda: slow.statistics().waiting == 2)
        second = Background(lambda: bus.publish({"price": 4}))
        until(lambda: slow.statistics().waiting == 3)
        assert [slow.get()["price"] for _ in range(4)] == [1, 2, 3, 4]
        first.result()
        second.result()


def test_a_publisher_that_runs_out_of_time_learns_what_was_delivered() -> None:
    with open() as bus:
        slow = bus.subscribe("price > 0", queue_size=2, name="slow")
        fast = bus.subscribe("price > 0", name="fast")
        with pytest.raises(PublishTimeoutError, match="'slow'") as caught:
            bus.publish_batch(prices(5), timeout_s=0)
        assert (caught.value.delivered, caught.value.undelivered, caught.value.full) == (7, 3, ("slow",))
        assert isinstance(caught.value, TimeoutError)
        assert pickle.loads(pickle.dumps(caught.value)).full == ("slow",)
        # What was taken back never arrives, and the next publication does.
        assert [slow.get(timeout_s=0)["price"] for _ in range(2)] == [1, 2]
        bus.publish({"price": 6})
        assert slow.get(timeout_s=0)["price"] == 6
        assert [fast.get(timeout_s=0)["price"] for _ in range(6)] == [1, 2, 3, 4, 5, 6]
        assert slow.statistics().discarded == 3


def test_unsubscribing_releases_the_publishers_that_wait() -> None:
    with open() as bus:
        slow = bus.subscribe("price > 0", queue_size=1)
        publisher = Background(lambda: bus.publish_batch(prices(5)))
        until(lambda: slow.statistics().waiting == 4)
        slow.close()
        assert publisher.result().delivered == 1


def test_closing_the_bus_releases_the_publishers_that_wait() -> None:
    with open() as bus:
        slow = bus.subscribe("price > 0", queue_size=1)
        publisher = Background(lambda: bus.publish_batch(prices(5)))
        until(lambda: slow.statistics().waiting == 4)
        bus.close()
        with pytest.raises(BusClosedError, match="1 deliveries"):
            publisher.result()
        assert [publication["price"] for publication in slow] == [1]


def test_forgetting_a_full_subscription_releases_the_publishers_that_wait() -> None:
    with open() as bus:
        slow = bus.subscribe("price > 0", queue_size=1)
        publisher = Background(lambda: bus.publish_batch(prices(5)))
        until(lambda: bus.statistics().waiting == 4)
        del slow
        assert publisher.result().delivered == 1


@pytest.mark.parametrize("batched", [False, True])
def test_drop_oldest_keeps_the_newest_and_counts(batched: bool) -> None:
    with open() as bus:
        latest = bus.subscribe("price > 0", queue_size=3, when_full="drop_oldest")
        neighbour = bus.subscribe("price > 0")
        if batched:
            bus.publish_batch(prices(10))
        else:
            for row in prices(10):
                bus.publish(row)
        assert latest.statistics().dropped == 7
    assert [publication["price"] for publication in latest] == [8, 9, 10]
    assert [publication["price"] for publication in neighbour] == list(range(1, 11))


@pytest.mark.parametrize("batched", [False, True])
def test_disconnection_comes_after_what_is_queued_and_touches_nobody_else(batched: bool) -> None:
    with open() as bus:
        strict = bus.subscribe("price > 0", queue_size=3, when_full="disconnect", name="strict")
        neighbour = bus.subscribe("price > 0")
        if batched:
            bus.publish_batch(prices(10))
        else:
            for row in prices(10):
                bus.publish(row)
        assert strict.closed
        assert bus.statistics().disconnected == 1
        assert [next(strict)["price"] for _ in range(3)] == [1, 2, 3]
        with pytest.raises(SlowConsumerError, match="'strict'"):
            next(strict)
        with pytest.raises(SlowConsumerError):
            strict.get(timeout_s=0)
        assert {entry.name for entry in bus.statistics().subscriptions} == {neighbour.name}
        assert bus.statistics().dropped == (7 if batched else 1)
    assert [publication["price"] for publication in neighbour] == list(range(1, 11))


def test_a_disconnected_callback_gets_what_is_queued_and_then_the_error() -> None:
    seen, errors = [], []
    entered, go_on = threading.Event(), threading.Event()

    def callback(publication) -> None:
        entered.set()
        go_on.wait()
        seen.append(publication["price"])

    with open() as bus:
        bus.subscribe(
            "price > 0",
            callback,
            queue_size=2,
            when_full="disconnect",
            on_error=lambda error, publication: errors.append((error, publication)),
        )
        bus.publish({"price": 1})
        entered.wait()
        bus.publish_batch([{"price": 2}, {"price": 3}, {"price": 4}])
        go_on.set()
    assert seen == [1, 2, 3]
    [(error, publication)] = errors
    assert isinstance(error, SlowConsumerError)
    assert publication is None


def test_memory_stays_bounded_however_much_is_published() -> None:
    body = bytes(1000)
    with open() as bus:
        latest = bus.subscribe("price > 0", queue_size=10, when_full="drop_oldest")
        strict = bus.subscribe("price > 0", queue_size=10, when_full="disconnect")
        references = sys.getrefcount(body)
        for row in prices(2000):
            bus.publish(row, body)
            assert sys.getrefcount(body) <= references + 2 * 10 + 1
        assert latest.statistics().queued == strict.statistics().queued == 10


def test_a_lonely_thread_is_told_that_nobody_could_make_room(monkeypatch: pytest.MonkeyPatch) -> None:
    # Test runners have threads of their own.
    monkeypatch.setattr(threading, "active_count", lambda: 1)
    with open() as bus:
        quotes = bus.subscribe("price > 0", queue_size=2, name="quotes")
        with pytest.raises(PublishDeadlockError, match=r"'quotes'.*no other thread") as caught:
            bus.publish_batch(prices(3))
        assert (caught.value.delivered, caught.value.undelivered) == (2, 1)
        assert pickle.loads(pickle.dumps(caught.value)).full == ("quotes",)
        assert [quotes.get(timeout_s=0)["price"] for _ in range(2)] == [1, 2]


@pytest.mark.parametrize("timeout", [None, 60])
def test_a_publisher_that_waits_long_says_so_once(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, timeout: float | None
) -> None:
    monkeypatch.setattr(engine, "LONG_WAIT_S", 0.001)
    with open() as bus:
        slow = bus.subscribe("price > 0", queue_size=1, name="slow")
        bus.subscribe("price > 0", name="fast", queue_size=9, when_full="drop_oldest")
        publisher = Background(lambda: bus.publish_batch(prices(3), timeout_s=timeout))
        until(lambda: "the full queue of 'slow'" in caplog.text)
        assert publisher.running
        assert [slow.get()["price"] for _ in range(3)] == [1, 2, 3]
        assert publisher.result().published == 3
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    assert "'fast'" not in caplog.text


def test_a_publisher_whose_time_is_up_raises_instead_of_warning(caplog: pytest.LogCaptureFixture) -> None:
    with open() as bus:
        slow = bus.subscribe("price > 0", queue_size=1)
        with pytest.raises(PublishTimeoutError):
            bus.publish_batch(prices(2), timeout_s=0.001)
        assert slow.get()["price"] == 1
    assert caplog.records == []
