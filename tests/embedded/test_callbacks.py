"""Where do callbacks run, what may they do, and what do their mistakes cost?"""

from __future__ import annotations

import logging
import threading

import pytest

from braid.embedded import Bus, PublishDeadlockError, open
from braid.errors import ConfigurationError
from tests.embedded.helpers import Background, no_threads_left, until


def test_each_callback_has_one_thread_of_its_own() -> None:
    threads: dict[str, set[int]] = {"a": set(), "b": set()}
    with no_threads_left(), open() as bus:
        bus.subscribe("price > 0", lambda _: threads["a"].add(threading.get_ident()))
        bus.subscribe("price > 0", lambda _: threads["b"].add(threading.get_ident()))
        for _ in range(20):
            bus.publish({"price": 1})
    assert len(threads["a"]) == len(threads["b"]) == 1
    assert len({threading.get_ident(), *threads["a"], *threads["b"]}) == 3


def test_a_slow_callback_never_stalls_its_neighbours() -> None:
    go_on = threading.Event()
    seen: list[int] = []
    with open() as bus:
        bus.subscribe("price > 0", lambda _: go_on.wait(), queue_size=100)
        bus.subscribe("price > 0", lambda publication: seen.append(publication["price"]))
        for price in range(1, 51):
            bus.publish({"price": price})
        until(lambda: len(seen) == 50)
        go_on.set()
    assert seen == list(range(1, 51))


def test_an_exception_in_a_callback_is_logged_counted_and_told(caplog: pytest.LogCaptureFixture) -> None:
    seen, told = [], []

    def callback(publication) -> None:
        if publication["price"] % 2:
            raise ValueError(f"odd {publication['price']}")
        seen.append(publication["price"])

    with (
        caplog.at_level(logging.ERROR, "braid.embedded"),
        open(on_error=lambda *entry: told.append(entry)) as bus,
    ):
        bus.subscribe("price > 0", callback, name="picky")
        bus.publish_batch([{"price": price} for price in range(1, 5)])
    assert seen == [2, 4]
    assert [(str(error), publication["price"]) for error, publication in told] == [("odd 1", 1), ("odd 3", 3)]
    assert bus.statistics().errors == 2
    assert bus.statistics().subscriptions[0].delivered == 4
    assert len(caplog.records) == 2
    assert "'picky'" in caplog.records[0].message
    assert caplog.records[0].exc_info is not None


def test_not_even_a_system_exit_or_a_broken_error_handler_stops_the_callbacks(
    caplog: pytest.LogCaptureFixture,
) -> None:
    seen = []

    def callback(publication) -> None:
        seen.append(publication["price"])
        raise SystemExit

    def on_error(*_: object) -> None:
        raise RuntimeError("broken")

    with open() as bus:
        bus.subscribe("price > 0", callback, on_error=on_error)
        bus.publish_batch([{"price": 1}, {"price": 2}])
    assert seen == [1, 2]
    assert sum("on_error" in record.message for record in caplog.records) == 2


def test_callbacks_may_publish_subscribe_and_unsubscribe() -> None:
    answers, late = [], []
    done = threading.Event()

    with open() as bus:

        def on_question(publication) -> None:
            bus.subscribe("kind = 'late'", lambda later: late.append(later["n"]))
            bus.publish({"kind": "answer", "n": publication["n"] * 2})
            bus.publish({"kind": "late", "n": publication["n"]})
            questions.close()
            done.set()

        questions = bus.subscribe("kind = 'question'", on_question)
        bus.subscribe("kind = 'answer'", lambda publication: answers.append(publication["n"]))
        bus.publish({"kind": "question", "n": 21})
        done.wait()
        assert bus.publish({"kind": "question", "n": 1}).delivered == 0
    assert answers == [42]
    assert late == [21]


def test_a_chain_of_callbacks_counts_down_through_its_own_queue() -> None:
    seen = []
    done = threading.Event()
    with open() as bus:

        def countdown(publication) -> None:
            seen.append(publication["n"])
            if publication["n"]:
                bus.publish({"n": publication["n"] - 1}, publisher="countdown")
            else:
                done.set()

        bus.subscribe("n >= 0", countdown, queue_size=1)
        bus.publish({"n": 50})
        done.wait()
    assert seen == list(range(50, -1, -1))


def test_a_callback_that_would_wait_for_itself_is_told_so() -> None:
    errors = []
    with open(on_error=lambda error, _: errors.append(error)) as bus:
        bus.subscribe("n = 0", lambda _: bus.publish_batch([{"n": 0}] * 3), queue_size=2, name="echo")
        bus.publish({"n": 0})
        until(lambda: len(errors) > 0)
        bus.close(drain=False)
    assert isinstance(errors[0], PublishDeadlockError)
    assert "'echo'" in str(errors[0])
    assert (errors[0].delivered, errors[0].undelivered) == (2, 1)


def test_callbacks_that_would_wait_for_each_other_are_told_so() -> None:
    errors = []
    both = threading.Barrier(2)
    with open(on_error=lambda error, _: errors.append(error)) as bus:

        def flood(other: str) -> None:
            both.wait()
            bus.publish_batch([{"to": other}] * 2)

        bus.subscribe("to = 'ping'", lambda _: flood("pong"), queue_size=1, name="ping")
        bus.subscribe("to = 'pong'", lambda _: flood("ping"), queue_size=1, name="pong")
        bus.publish_batch([{"to": "ping"}, {"to": "pong"}])
        until(lambda: len(errors) > 0)
        both.abort()
        bus.close(drain=False)
    assert isinstance(errors[0], PublishDeadlockError)


def test_closing_waits_for_the_running_call_and_no_other_follows() -> None:
    entered, go_on = threading.Event(), threading.Event()
    seen = []

    def callback(publication) -> None:
        entered.set()
        go_on.wait()
        seen.append(publication["n"])

    with open() as bus:
        slow = bus.subscribe("n >= 0", callback)
        bus.publish_batch([{"n": 1}, {"n": 2}])
        entered.wait()
        closing = Background(slow.close)
        until(lambda: slow.closed)
        assert closing.running
        go_on.set()
        closing.result()
        assert seen == [1]
        bus.publish({"n": 3})
    assert seen == [1]


def test_callbacks_may_close_each_other_at_the_same_time() -> None:
    both = threading.Barrier(2)
    with no_threads_left(), open() as bus:
        subscriptions = {}

        def close_other(name: str) -> None:
            both.wait()
            subscriptions[name].close(timeout_s=None)

        subscriptions["a"] = bus.subscribe("n = 1", lambda _: close_other("b"))
        subscriptions["b"] = bus.subscribe("n = 1", lambda _: close_other("a"))
        bus.publish({"n": 1})
        until(lambda: all(subscription.closed for subscription in subscriptions.values()))
        bus.close(timeout_s=None)


def test_a_callback_may_close_the_bus() -> None:
    with no_threads_left():
        seen = []
        bus = open()

        def callback(publication) -> None:
            seen.append(publication["n"])
            bus.close(timeout_s=None)

        bus.subscribe("n >= 0", callback)
        bus.publish_batch([{"n": 1}, {"n": 2}])
        until(lambda: bus.closed)
        bus.close(timeout_s=None)
        assert seen == [1, 2]


async def test_a_subscription_with_a_callback_cannot_be_read() -> None:
    with open() as bus:
        handle = bus.subscribe("n > 0", print)
        awaited = await bus.for_tasks.subscribe("n > 0", print)
        for read in (handle.get, lambda: iter(handle), lambda: aiter(awaited)):
            with pytest.raises(ConfigurationError, match="has a callback"):
                read()
        with pytest.raises(ConfigurationError, match="has a callback"):
            await awaited.get()


def test_a_thread_that_cannot_be_started_leaves_no_subscription(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    with open() as bus:
        with monkeypatch.context() as patch:
            patch.setattr(threading.Thread, "start", refuse)
            with pytest.raises(RuntimeError):
                bus.subscribe("n > 0", print)
        assert bus.publish({"n": 1}).delivered == 0
        assert bus.statistics().subscriptions == ()


def test_finished_callbacks_are_forgotten() -> None:
    with open() as bus:
        for _ in range(20):
            bus.subscribe("n > 0", print).close()
        bus.subscribe("n > 0", print)
        assert len(deliveries_of(bus)) == 1


def deliveries_of(bus: Bus) -> dict[int, object]:
    """What the bus would wait for; the only way to see that nothing piles up."""
    return bus._engine._deliveries


def test_an_error_handler_that_wants_to_exit_stops_nothing(caplog: pytest.LogCaptureFixture) -> None:
    seen = []

    def callback(publication) -> None:
        seen.append(publication["n"])
        raise ValueError

    def on_error(*_: object) -> None:
        raise SystemExit(1)

    with open(on_error=on_error) as bus:
        bus.subscribe("n > 0", callback, queue_size=1)
        bus.publish_batch([{"n": n} for n in range(1, 6)])
    assert seen == [1, 2, 3, 4, 5]
    assert sum("on_error" in record.message for record in caplog.records) == 5


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_callback_thread_that_ends_takes_its_subscription_along() -> None:
    def refuse(_: logging.LogRecord) -> bool:
        raise SystemExit

    with no_threads_left(), open() as bus:
        broken = bus.subscribe("n > 0", lambda _: 1 / 0, queue_size=1)
        logger = logging.getLogger("braid.embedded")
        logger.addFilter(refuse)
        try:
            bus.publish_batch([{"n": n} for n in range(1, 6)])
            until(lambda: broken.closed)
        finally:
            logger.removeFilter(refuse)
        assert bus.publish({"n": 1}).delivered == 0


def test_a_plain_callback_that_returns_a_coroutine_is_told_what_to_pass(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def work(_: object) -> None: ...

    told = []
    with open(on_error=lambda error, _: told.append(error)) as bus:
        bus.subscribe("n > 0", lambda publication: work(publication))
        bus.subscribe("n > 0", lambda _: 1 / 0, on_error=lambda error, _: work(error))
        bus.publish({"n": 1})
    assert [type(error) for error in told] == [ConfigurationError]
    assert "the coroutine function itself" in str(told[0])
    assert sum("on_error" in record.message for record in caplog.records) == 1
