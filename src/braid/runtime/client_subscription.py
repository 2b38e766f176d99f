"""Subscriptions, replays and advertisements of the asyncio client.

A `Subscription` is read with `async for`, or with `get` and a timeout, by any number of tasks; each
publication goes to one of them. With a callback, a task of its own reads and calls it. A queue that is not
empty is read without suspending, and a batch that arrives wakes its readers once.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from copy import copy
from inspect import isawaitable
from typing import TYPE_CHECKING, Final, Generic, Self, TypeAlias, TypeVar, cast

from braid.client.stored import StoredPublication, StoredRecords
from braid.embedded.arguments import checked_timeout, require_size
from braid.embedded.farewell import CLOSE_TIMEOUT_S
from braid.embedded.statistics import SubscriptionStatistics
from braid.errors import BusClosedError, ConfigurationError
from braid.language import Filter, Publication
from braid.runtime.client_events import tell
from braid.runtime.client_logs import replay_range

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from types import TracebackType

    from braid.client.inbox import Interest
    from braid.errors import BraidError
    from braid.runtime.client_engine import ClientEngine
    from braid.runtime.client_events import ErrorHandler
    from braid.runtime.client_logs import ReplayRange

__all__ = ["Advertisement", "DurableSubscription", "Reader", "RecordReplay", "Replay", "Subscription"]

# A reader that never finds its queue empty gives way to other tasks after so many publications.
READS_IN_A_ROW_MAX: Final = 64

_log = logging.getLogger("braid.client")

Row = TypeVar("Row")


class _Reader(Generic[Row]):
    """What subscriptions and replays have in common: a queue, and those who wait at it."""

    def __init__(self, engine: ClientEngine, interest: Interest) -> None:
        self._engine = engine
        self._interest = interest
        self._queue = cast("deque[Row]", interest.queue)
        self._waiters: deque[asyncio.Future[None]] = deque()
        self._closed = False
        self._failure: BraidError | None = None
        self._reads_in_a_row = 0
        self._discarded = 0

    @property
    def closed(self) -> bool:
        """True once nothing more can come in; what is queued can perhaps still be read."""
        return self._closed or not self._interest.open

    async def get(self, timeout_s: float | None = None) -> Row:
        """The next publication, waiting for it at most `timeout_s` seconds (None: as long as it takes).

        Raises:
            TimeoutError: nothing arrived in time.
            BusClosedError: it was closed, or that was all.
            SlowConsumerError: it was ended because too much waited in its queue.
            ConnectionLostError: the broker is out of reach for good.
        """
        if not self._queue:
            await self._wait(timeout_s)
        return self._take()

    async def get_many(self, count_max: int, timeout_s: float | None = None) -> list[Row]:
        """At least one publication, and what else is queued, at most `count_max`; otherwise as `get`."""
        require_size("count_max", count_max)
        if not self._queue:
            await self._wait(timeout_s)
        return [self._take() for _ in range(min(count_max, len(self._queue)))]

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Row:
        self._reads_in_a_row += 1
        if self._reads_in_a_row % READS_IN_A_ROW_MAX == 0:
            await asyncio.sleep(0)
        if not self._queue:
            try:
                await self._wait(None)
            except BusClosedError:
                raise StopAsyncIteration from None
        return self._take()

    def _take(self) -> Row:
        row = self._queue.popleft()
        interest = self._interest
        interest.delivered += 1
        if interest.line and interest.crowded:
            self._engine.made_room(interest)
        return row

    async def _wait(self, timeout_s: float | None) -> None:
        """Return when there is something in the queue, and raise when there never will be."""
        limit_s = checked_timeout(timeout_s)
        if limit_s is None:
            await self._wait_for_rows()
            return
        async with asyncio.timeout(limit_s):
            await self._wait_for_rows()

    async def _wait_for_rows(self) -> None:
        # Somebody else may take what this one was woken for; then it waits again.
        while not self._queue:
            if self._interest.line:
                self._engine.made_room(self._interest)
                continue
            self._check()
            waiter = self._engine.loop.create_future()
            self._waiters.append(waiter)
            try:
                await waiter
            except BaseException:
                if waiter in self._waiters:
                    self._waiters.remove(waiter)
                else:
                    self._wake()  # its turn came, perhaps while it was being cancelled: the next one may
                raise

    def _check(self) -> None:
        """Raise if nothing more comes."""
        if self._closed:
            raise BusClosedError("the subscription was closed")
        failure = self._interest.failure or self._failure
        if failure is not None:
            raise copy(failure)  # several readers may come here, and each adds its own traceback
        if not self._interest.open:
            raise BusClosedError("that was all")

    def _wake(self) -> None:
        """There is something in the queue: as many readers may come."""
        for _ in range(min(len(self._waiters), len(self._queue))):
            self._pop_waiter()

    def _wake_all(self) -> None:
        while self._waiters:
            self._pop_waiter()

    def _pop_waiter(self) -> None:
        waiter = self._waiters.popleft()
        if not waiter.done():
            waiter.set_result(None)

    def _end(self, failure: BraidError | None, *, closed: bool = False) -> None:
        """Nothing more comes. What is queued can be read, unless it was closed on purpose."""
        self._failure = self._failure or failure
        if closed and not self._closed:
            self._closed = True
            self._discarded = len(self._queue) + self._interest.waiting
            self._queue.clear()
        self._wake_all()

    async def _finish(self, timeout_s: float | None) -> None:
        """Wait for what it has started; a plain reader has started nothing."""


class _Subscription(_Reader[Row]):
    """What a client's subscriptions have in common."""

    def __init__(
        self, engine: ClientEngine, interest: Interest, name: str | None, on_error: ErrorHandler | None
    ) -> None:
        super().__init__(engine, interest)
        self._name = name or f"subscription-{interest.number}"
        self._on_error = on_error
        self._callback: Callable[[Row], object] | None = None
        self._task: asyncio.Task[None] | None = None
        self._errors = 0

    @property
    def name(self) -> str:
        """The name it was given, or `subscription-1` and so on."""
        return self._name

    @property
    def filter(self) -> Filter:
        """What it receives: what was asked for, or less where not everything was granted."""
        effective = self._interest.effective
        return effective if effective is not None else Filter("TRUE")

    @property
    def missing(self) -> tuple[str, ...]:
        """The links that were down when a partial subscription was answered; empty where it covers all."""
        return self._interest.missing

    def statistics(self) -> SubscriptionStatistics:
        """A snapshot of its counters, as far as this client knows."""
        interest = self._interest
        queued, waiting = len(interest.queue), 0 if self._closed else interest.waiting
        return SubscriptionStatistics(
            name=self.name,
            filter=self.filter.text,
            matched=interest.delivered + queued + waiting + interest.dropped + self._discarded,
            delivered=interest.delivered,
            queued=queued,
            waiting=waiting,
            dropped=interest.dropped,
            discarded=self._discarded,
            errors=self._errors,
            open=not self.closed,
        )

    async def get(self, timeout_s: float | None = None) -> Row:
        """The next publication, waiting for it at most `timeout_s` seconds (None: as long as it takes).

        Raises:
            TimeoutError: nothing arrived in time.
            ConfigurationError: a timeout that is no number of seconds, or the subscription has a callback.
            BusClosedError: it or the client was closed.
            SlowConsumerError: it was ended because too much waited in its queue.
            ConnectionLostError: the broker is out of reach for good.
        """
        self._require_readable()
        return await super().get(timeout_s)

    async def get_many(self, count_max: int, timeout_s: float | None = None) -> list[Row]:
        """At least one publication, and what else is queued, at most `count_max`; otherwise as `get`."""
        self._require_readable()
        return await super().get_many(count_max, timeout_s)

    def __aiter__(self) -> Self:
        self._require_readable()
        return self

    def _require_readable(self) -> None:
        if self._callback is not None:
            raise ConfigurationError(
                f"subscription {self.name!r} has a callback; subscribe without one to read from it"
            )

    async def close(self, timeout_s: float | None = CLOSE_TIMEOUT_S) -> None:
        """Unsubscribe: nothing more is delivered, and what was queued is gone.

        A callback that is running is awaited, at most `timeout_s` seconds. A durable subscription stays, and
        goes on collecting, until `Client.drop_durable`. May be called any number of times.
        """
        limit_s = checked_timeout(timeout_s)
        self._end(None, closed=True)
        await self._engine.unsubscribe(self, self._interest)
        await self._finish(limit_s)

    async def _finish(self, timeout_s: float | None) -> None:
        """Let a callback that is running come to its end; one that does not is cancelled after a while."""
        task = self._task
        if task is not None and task is not asyncio.current_task():
            await asyncio.wait([task], timeout=timeout_s)
            if task.cancel():
                await asyncio.wait([task], timeout=CLOSE_TIMEOUT_S)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        _kind: type[BaseException] | None,
        _error: BaseException | None,
        _traceback: TracebackType | None,
    ) -> None:
        await self.close()

    def __repr__(self) -> str:
        state = "closed" if self.closed else "open"
        return f"<{type(self).__name__} {self.name!r} {state}: {self.filter.text}>"

    # With a callback.

    def _start(self, callback: Callable[[Row], object]) -> None:
        self._callback = callback
        self._task = self._engine.loop.create_task(self._call_back(callback))

    async def _call_back(self, callback: Callable[[Row], object | Awaitable[object]]) -> None:
        calls = 0
        while True:
            if not self._queue:
                try:
                    await self._wait_for_rows()
                except BusClosedError:
                    return
                except Exception as error:
                    self._report("a subscription with a callback has ended", error, callback, None)
                    return
            publication = self._take()
            calls += 1
            try:
                result = callback(publication)
                if isawaitable(result):
                    await result
                elif calls % READS_IN_A_ROW_MAX == 0:
                    await asyncio.sleep(0)
            except (Exception, asyncio.CancelledError) as error:
                task = asyncio.current_task()
                if isinstance(error, asyncio.CancelledError) and task is not None and task.cancelling():
                    raise  # it is this task that is to end, not something that the callback waited for
                self._errors += 1
                self._report("a subscription's callback failed", error, callback, publication)

    def _report(self, message: str, error: BaseException, callback: object, publication: Row | None) -> None:
        """Tell the program's handler; without one, the event loop's, which logs it."""
        if self._on_error is not None:
            _log.error("%s: %r", message, callback, exc_info=error)
            tell("on_error", self._on_error, error, publication)
            return
        self._engine.loop.call_exception_handler(
            {"message": f"{message}: {callback!r}", "exception": error, "task": self._task}
        )


class Subscription(_Subscription[Publication]):
    """A subscription of a client; made by `Client.subscribe`. Read it with `async for`, or await `get`."""


class DurableSubscription(_Subscription[StoredPublication]):
    """A subscription that reads a log at the broker; made by `Client.subscribe` with `durable`.

        async for order in orders:
            ...
            await orders.acknowledge(order)

    Its publications are `StoredPublication`s, which carry their `offset`.
    """

    @property
    def durable(self) -> str:
        """The name of the log."""
        return self._interest.durable

    @property
    def secret(self) -> str | None:
        """What opens its log where this client is anonymous."""
        return self._interest.secret or None

    @property
    def resets(self) -> int:
        """How often the log turned out not to have rows that were read from it.

        That is so after a restore from backup, or with a lost data directory. The subscription then goes on
        where the log is: rows may come twice, and none that is in the log is passed over.
        """
        return self._interest.resets

    async def acknowledge(self, done: StoredPublication | int) -> None:
        """Say that everything up to this publication (or offset) is done with.

        Waits for nothing, and still has to be awaited: whoever forgets that is warned, and nothing is
        acknowledged. It is repeated after a lost connection. What is not acknowledged comes again in the next
        process that subscribes under this name.
        """
        offset = done.offset if isinstance(done, StoredPublication) else done
        if type(offset) is not int:
            raise ConfigurationError(
                "acknowledge takes a publication of this subscription, or its offset, "
                f"not {type(done).__name__}"
            )
        epochs = self._interest.epochs
        epoch = done.log_epoch if isinstance(done, StoredPublication) else epochs.at(offset)
        if epoch and not epochs.has(epoch, offset, self._interest.handed_offset + 1):
            return  # a row from before the log was reset: it is not there any more
        if offset > self._interest.handed_offset:
            raise ConfigurationError(
                f"offset {offset} cannot be acknowledged: "
                f"{self._interest.handed_offset} is the highest that arrived"
            )
        self._engine.acknowledge(self._interest, offset, epoch)


class Replay(_Reader[StoredPublication]):
    """A range of a durable subscription's log; read it with `async for`."""

    @property
    def range(self) -> ReplayRange | None:
        """Which offsets it was about, once it has ended; None before."""
        return replay_range(self._interest.replay, self._interest.replayed)

    async def close(self) -> None:
        """Read no further."""
        if not self._closed:
            self._end(None, closed=True)
            await self._engine.unsubscribe(self, self._interest)


class RecordReplay(_Reader[StoredRecords]):
    """A range of a log as records, many at a time; made by `Client.replay_records`."""

    @property
    def range(self) -> ReplayRange | None:
        """Which offsets it was about, once it has ended; None before."""
        return replay_range(self._interest.replay, self._interest.replayed)

    async def close(self) -> None:
        """Read no further."""
        if not self._closed:
            self._end(None, closed=True)
            await self._engine.unsubscribe(self, self._interest)


Reader: TypeAlias = Subscription | DurableSubscription | Replay | RecordReplay


class Advertisement:
    """What a client has announced that it publishes; made by `Client.advertise`."""

    def __init__(self, engine: ClientEngine, filter: Filter, number: int) -> None:
        self._engine = engine
        self._number = number
        self.filter = filter

    async def close(self) -> None:
        """Take it back. May be called any number of times."""
        await self._engine.unadvertise(self._number)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        _kind: type[BaseException] | None,
        _error: BaseException | None,
        _traceback: TracebackType | None,
    ) -> None:
        await self.close()
