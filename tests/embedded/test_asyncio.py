"""Does the bus serve tasks as well as threads, and both at once?"""

from __future__ import annotations

import asyncio
import functools
import threading

import pytest

from braid.embedded import PublishDeadlockError, PublishTimeoutError, engine, open
from braid.embedded.waiting import TaskWaiter
from braid.errors import BusClosedError, ConfigurationError, SlowConsumerError
from tests.embedded.helpers import Background, no_threads_left, until, until_async


async def test_publish_and_iterate_in_one_task_each() -> None:
    async with open() as bus:
        quotes = await bus.subscribe("n > 0", queue_size=2)

        async def read() -> list[int]:
            return [publication["n"] async for publication in quotes]

        reader = asyncio.create_task(read())
        for n in range(10):
            receipt = await bus.publish({"n": n})
            assert receipt.sequence == n + 1
        await bus.publish_batch([{"n": n} for n in range(10, 200)])
    assert await reader == list(range(1, 200))


async def test_coroutine_callbacks_run_on_the_loop_that_subscribed() -> None:
    seen = []

    async def callback(publication, tag: str) -> None:
        await asyncio.sleep(0)
        seen.append((tag, publication["n"], asyncio.get_running_loop(), threading.get_ident()))

    class Callable:
        async def __call__(self, publication) -> None:
            await callback(publication, "object")

    async with open() as bus:
        await bus.subscribe("n > 0", functools.partial(callback, tag="partial"))
        await bus.subscribe("n > 0", Callable())
        await asyncio.to_thread(bus.for_threads.publish_batch, [{"n": 1}, {"n": 2}])
    here = (asyncio.get_running_loop(), threading.get_ident())
    assert sorted(seen, key=lambda entry: entry[:2]) == [
        ("object", 1, *here),
        ("object", 2, *here),
        ("partial", 1, *here),
        ("partial", 2, *here),
    ]


def test_a_coroutine_callback_needs_a_loop() -> None:
    async def callback(_) -> None:
        pass

    with open() as bus:
        with pytest.raises(ConfigurationError, match="event loop"):
            bus.subscribe("n > 0", callback)
        assert bus.statistics().subscriptions == ()


async def test_a_task_that_waits_for_room_does_not_stop_the_loop() -> None:
    async with open() as bus:
        slow = await bus.subscribe("n > 0", queue_size=1)
        publisher = asyncio.create_task(bus.publish_batch([{"n": n} for n in range(1, 6)]))
        await until_async(lambda: slow.statistics().waiting == 4)
        assert [(await slow.get())["n"] for _ in range(5)] == [1, 2, 3, 4, 5]
        assert (await publisher).delivered == 5


async def test_a_task_that_runs_out_of_time_or_is_cancelled_takes_the_rest_back() -> None:
    async with open() as bus:
        slow = await bus.subscribe("n > 0", queue_size=1, name="slow")
        with pytest.raises(PublishTimeoutError, match="'slow'"):
            await bus.publish_batch([{"n": 1}, {"n": 2}], timeout_s=0)
        publisher = asyncio.create_task(bus.publish({"n": 3}))
        await until_async(lambda: slow.statistics().waiting == 1)
        publisher.cancel()
        with pytest.raises(asyncio.CancelledError):
            await publisher
        assert slow.statistics().waiting == 0
        assert (await slow.get())["n"] == 1
        with pytest.raises(TimeoutError):
            await slow.get(timeout_s=0)


async def test_a_cancelled_reader_loses_nothing() -> None:
    async with open() as bus:
        quotes = await bus.subscribe("n > 0")
        reader = asyncio.create_task(quotes.get())
        await asyncio.sleep(0)
        reader.cancel()
        with pytest.raises(asyncio.CancelledError):
            await reader
        bus.for_threads.publish({"n": 1})
        assert (await quotes.get())["n"] == 1


async def test_a_busy_publisher_lets_readers_run_even_when_it_never_waits() -> None:
    async with open() as bus:
        latest = await bus.subscribe("n >= 0", queue_size=4, when_full="drop_oldest")

        async def read() -> None:
            while (await latest.get())["n"] < 99:
                pass

        reader = asyncio.create_task(read())
        for n in range(100):
            await bus.publish({"n": n})
        await reader
        assert latest.statistics().dropped == 0


async def test_a_busy_reader_and_a_busy_callback_let_other_tasks_run() -> None:
    turns = 0
    stop = asyncio.Event()

    async def count_turns() -> None:
        nonlocal turns
        while not stop.is_set():
            turns += 1
            await asyncio.sleep(0)

    async def callback(_) -> None:
        pass

    async with open() as bus:
        await bus.subscribe("n >= 0", callback)
        quotes = await bus.subscribe("n >= 0")
        bus.for_threads.publish_batch([{"n": n} for n in range(640)])
        counter = asyncio.create_task(count_turns())
        for _ in range(640):
            await anext(quotes)
        assert turns >= 9
        await bus.close()
        stop.set()
        await counter


async def test_exceptions_in_coroutine_callbacks_are_counted_and_told() -> None:
    errors = []

    async def callback(publication) -> None:
        raise ValueError(publication["n"])

    async with open(on_error=lambda error, _: errors.append(error)) as bus:
        await bus.subscribe("n > 0", callback)
        bus.for_threads.publish_batch([{"n": 1}, {"n": 2}])
    assert [error.args for error in errors] == [(1,), (2,)]
    assert bus.statistics().errors == 2


async def test_disconnection_reaches_async_readers_and_callbacks() -> None:
    errors, seen = [], []

    async def callback(publication) -> None:
        seen.append(publication["n"])

    async with open(on_error=lambda error, _: errors.append(error)) as bus:
        await bus.subscribe("n > 0", callback, queue_size=2, when_full="disconnect")
        strict = await bus.subscribe("n > 0", queue_size=2, when_full="disconnect")
        bus.for_threads.publish_batch([{"n": n} for n in range(1, 6)])
        read = [(await anext(strict))["n"] for _ in range(2)]
        with pytest.raises(SlowConsumerError):
            await anext(strict)
    assert read == seen == [1, 2]
    assert [type(error) for error in errors] == [SlowConsumerError]


async def test_a_coroutine_callback_that_would_wait_for_itself_is_told_so() -> None:
    errors = []
    told = asyncio.Event()

    def on_error(error: BaseException, _: object) -> None:
        errors.append(error)
        told.set()

    async with open(on_error=on_error) as bus:

        async def echo(_) -> None:
            await bus.publish_batch([{"n": 1}] * 3)

        await bus.subscribe("n > 0", echo, queue_size=2)
        await bus.publish({"n": 1})
        await told.wait()
        await bus.close(drain=False)
    assert isinstance(errors[0], PublishDeadlockError)


async def test_blocking_the_loop_that_should_make_room_is_refused() -> None:
    async def callback(_) -> None:
        pass

    async with open() as bus:
        await bus.subscribe("n = 1", callback, queue_size=1)
        with pytest.raises(PublishDeadlockError, match="would block; await publish"):
            bus.for_threads.publish_batch([{"n": 1}] * 3)
        quotes = await bus.subscribe("n = 2", queue_size=1)
        bus.for_threads.publish({"n": 2})
        reader = asyncio.create_task(quotes.get())
        await reader
        second = asyncio.create_task(quotes.get())
        await asyncio.sleep(0)
        with pytest.raises(PublishDeadlockError, match="would block; await publish"):
            bus.for_threads.publish_batch([{"n": 2}] * 3)
        await second


async def test_threads_and_tasks_share_one_bus() -> None:
    async_seen, thread_seen = [], []

    async def callback(publication) -> None:
        async_seen.append((publication.publisher, publication["n"]))

    with no_threads_left():
        async with open() as bus:
            await bus.subscribe("n >= 0", callback, queue_size=3)
            await bus.subscribe(
                "n >= 0",
                lambda publication: thread_seen.append((publication.publisher, publication["n"])),
                queue_size=3,
            )
            iterated = bus.for_threads.subscribe("n >= 0", queue_size=3)
            reader = Background(lambda: [(row.publisher, row["n"]) for row in iterated])
            publisher = Background(
                lambda: [bus.for_threads.publish({"n": n}, publisher="thread") for n in range(100)]
            )
            for n in range(100):
                await bus.publish({"n": n}, publisher="task")
            await until_async(lambda: not publisher.running)
            publisher.result()
        for seen in (async_seen, thread_seen, reader.result()):
            for name in ("thread", "task"):
                assert [n for publisher_name, n in seen if publisher_name == name] == list(range(100))


async def test_an_awaited_close_waits_for_callbacks_in_threads_without_stopping_the_loop() -> None:
    entered, go_on = threading.Event(), threading.Event()

    def callback(_) -> None:
        entered.set()
        go_on.wait()

    with no_threads_left():
        bus = open()
        handle = await bus.for_tasks.subscribe("n > 0", callback)
        bus.publish({"n": 1})
        entered.wait()
        closing = asyncio.create_task(handle.close(timeout_s=None))
        await until_async(lambda: handle.closed)
        assert not closing.done()
        go_on.set()
        await closing
        await bus.for_tasks.close()


async def test_a_subscription_is_an_async_context_manager() -> None:
    async with open() as bus:
        async with await bus.subscribe("n > 0") as quotes:
            bus.for_threads.publish({"n": 1})
        assert [publication async for publication in quotes] == []
        assert bus.for_threads.publish({"n": 1}).delivered == 0


async def test_a_plain_close_on_the_loop_lets_coroutine_callbacks_finish_later() -> None:
    seen = []
    finished = asyncio.Event()

    async def callback(publication) -> None:
        seen.append(publication["n"])
        if publication["n"] == 2:
            finished.set()

    with open() as bus:
        bus.subscribe("n > 0", callback)
        bus.publish_batch([{"n": 1}, {"n": 2}])
    assert seen == []
    await finished.wait()
    assert seen == [1, 2]
    await bus.for_tasks.close()


async def test_a_coroutine_callback_may_close_its_subscription_and_the_bus() -> None:
    seen = []
    bus = open()

    async def once(publication) -> None:
        seen.append(publication["n"])
        await handle.close(timeout_s=None)

    async def last(_) -> None:
        await bus.for_tasks.close(timeout_s=None)

    handle = await bus.for_tasks.subscribe("n = 1", once)
    bus.publish_batch([{"n": 1}, {"n": 1}])
    await until_async(lambda: handle.closed)
    bus.subscribe("n = 2", last)
    bus.publish({"n": 2})
    await until_async(lambda: bus.closed)
    await bus.for_tasks.close(timeout_s=None)
    assert seen == [1]
    with pytest.raises(BusClosedError):
        await bus.for_tasks.publish({"n": 1})


def test_a_loop_that_ends_takes_its_subscriptions_with_it() -> None:
    bus = open()

    async def callback(_) -> None:
        pass

    async def main() -> None:
        bus.subscribe("n > 0", callback, queue_size=1)

    asyncio.run(main())
    assert bus.publish_batch([{"n": 1}] * 5).delivered == 0
    bus.close()


def test_a_loop_that_was_closed_under_a_callback_is_noticed() -> None:
    bus = open()

    async def callback(_) -> None:
        pass

    async def main() -> None:
        bus.subscribe("n > 0", callback, queue_size=1, name="lost")

    loop = asyncio.new_event_loop()
    loop.run_until_complete(main())
    tasks = asyncio.all_tasks(loop)
    assert len(tasks) == 1
    blocked = Background(lambda: bus.publish_batch([{"n": 1}] * 2))
    until(lambda: bus.statistics().waiting == 1)
    bus.close(timeout_s=None)
    with pytest.raises(BusClosedError):
        blocked.result()
    loop.run_until_complete(asyncio.gather(*tasks))
    loop.close()


async def test_a_cancellation_inside_a_callback_is_its_own_failure() -> None:
    told, seen = [], []

    async def callback(publication) -> None:
        seen.append(publication["n"])
        if publication["n"] == 1:
            inner = asyncio.create_task(asyncio.sleep(3600))
            inner.cancel()
            await inner

    async with open(on_error=lambda error, publication: told.append((type(error), publication["n"]))) as bus:
        handle = await bus.subscribe("n > 0", callback)
        await bus.publish_batch([{"n": 1}, {"n": 2}])
        await until_async(lambda: seen == [1, 2])
        assert not handle.closed
    assert told == [(asyncio.CancelledError, 1)]
    assert bus.statistics().errors == 1


async def test_cancelling_the_task_of_a_callback_still_ends_its_subscription() -> None:
    told, seen = [], []

    async def callback(publication) -> None:
        seen.append(asyncio.current_task())
        await asyncio.sleep(3600)

    async with open(on_error=lambda *entry: told.append(entry)) as bus:
        handle = await bus.subscribe("n > 0", callback)
        await bus.publish({"n": 1})
        await until_async(lambda: len(seen) == 1)
        seen[0].cancel()
        await until_async(lambda: handle.closed)
    assert told == []


async def test_a_waiter_may_wait_again_after_its_time_was_up() -> None:
    waiter = TaskWaiter()
    assert not await waiter.wait(0)
    waiter.wake()
    assert await waiter.wait(None)
    assert await waiter.wait(3600)


async def test_an_awaited_publish_that_waits_long_says_so_once(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(engine, "LONG_WAIT_S", 0.001)
    async with open() as bus:
        slow = await bus.subscribe("n > 0", queue_size=1, name="slow")
        await bus.publish({"n": 1})
        publishing = asyncio.create_task(bus.publish({"n": 2}))
        await until_async(lambda: "'slow'" in caplog.text)
        assert not publishing.done()
        assert (await slow.get())["n"] == 1
        assert (await publishing).delivered == 1
    assert len(caplog.records) == 1
