"""What does a subscriber of a broker hold in its hands?

A `Subscription` is read with `async for`, or with `get` and a timeout, by any number of tasks; each
publication goes to one of them. With a callback, a task of its own reads and calls it. A queue that is not
empty is read without suspending, and a batch that arrives wakes its readers once.
"""

from __future__ import annotations

import asyncio
from collections import deque
from copy import copy
from dataclasses import dataclass
from inspect import isawaitable
from typing import TYPE_CHECKING, Final, Generic, Self, TypeVar, cast

from braid.embedded.arguments import require_size
from braid.errors import BusClosedError, ConfigurationError
from braid.language import Filter, Publication
from braid.protocol.client_inbox import StoredPublication

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from types import TracebackType

    from braid.errors import BraidError
    from braid.protocol.client_inbox import Interest
    from braid.runtime.client import Client

__all__ = ["Advertisement", "Replay", "Subscription", "SubscriptionStatistics"]

# A reader that never finds its queue empty gives way to other tasks after so many publications.
READS_IN_A_ROW_MAX: Final = 64

# How long closing waits for a callback that is running.
CALLBACK_TIMEOUT_S: Final = 5.0

Row = TypeVar("Row", bound=Publication)


@dataclass(frozen=True, slots=True)
class SubscriptionStatistics:
    """The counters of one subscription.

    Attributes:
        delivered: publications that its readers or its callback have been given.
        dropped: those lost to its own choice of `when_full`, as far as this client knows.
        queued: those that wait to be read.
        errors: exceptions that its callback raised.
    """

    delivered: int
    dropped: int
    queued: int
    errors: int


class _Reader(Generic[Row]):
    """What subscriptions and replays have in common: a queue, and those who wait at it."""

    def __init__(self, client: Client, interest: Interest) -> None:
        self._client = client
        self._interest = interest
        self._queue = cast("deque[Row]", interest.queue)
        self._waiters: deque[asyncio.Future[None]] = deque()
        self._closed = False
        self._failure: BraidError | None = None
        self._reads_in_a_row = 0

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
            self._client._made_room(interest)
        return row

    async def _wait(self, timeout_s: float | None) -> None:
        """Return when there is something in the queue, and raise when there never will be."""
        if timeout_s is None:
            await self._wait_for_rows()
            return
        async with asyncio.timeout(timeout_s):
            await self._wait_for_rows()

    async def _wait_for_rows(self) -> None:
        # Somebody else may take what this one was woken for; then it waits again.
        while not self._queue:
            if self._interest.line:
                self._client._made_room(self._interest)
                continue
            self._check()
            waiter = self._client._loop.create_future()
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
        if closed:
            self._closed = True
            self._queue.clear()
        self._wake_all()


class Subscription(_Reader[Publication]):
    """A subscription of a client; made by `Client.subscribe`.

    Publications of a durable one are `StoredPublication`s, which carry their `offset`.
    """

    def __init__(self, client: Client, interest: Interest) -> None:
        super().__init__(client, interest)
        self._callback: Callable[[Publication], object] | None = None
        self._task: asyncio.Task[None] | None = None
        self._errors = 0

    @property
    def filter(self) -> Filter:
        """What it receives: what was asked for, or less where not everything was granted."""
        effective = self._interest.effective
        return effective if effective is not None else Filter("TRUE")

    @property
    def durable(self) -> str | None:
        """The name of the log that it reads, if any."""
        return self._interest.durable or None

    @property
    def secret(self) -> str | None:
        """What opens its log where this client is anonymous; None for one that is not durable."""
        return self._interest.secret or None

    @property
    def missing(self) -> tuple[str, ...]:
        """The links that were down when a partial subscription was answered; empty where it covers all."""
        return self._interest.missing

    @property
    def resets(self) -> int:
        """How often a durable subscription's log turned out not to have rows that were read from it.

        That is so after a restore from backup, or with a lost data directory. The subscription then goes on
        where the log is: rows may come twice, and none that is in the log is passed over.
        """
        return self._interest.resets

    def statistics(self) -> SubscriptionStatistics:
        """A snapshot of its counters."""
        interest = self._interest
        queued = len(interest.queue) + interest.waiting
        return SubscriptionStatistics(interest.delivered, interest.dropped, queued, self._errors)

    async def acknowledge(self, done: StoredPublication | int) -> None:
        """Say that everything up to this publication (or offset) of a durable subscription is done with.

        Returns at once; it is repeated after a lost connection. What is not acknowledged comes again in the
        next process that subscribes under this name.
        """
        if not self._interest.durable:
            raise ConfigurationError(
                "only a durable subscription is acknowledged; subscribe with durable=NAME"
            )
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
        self._client._acknowledge(self._interest, offset, epoch)

    async def get(self, timeout_s: float | None = None) -> Publication:
        """The next publication, waiting for it at most `timeout_s` seconds (None: as long as it takes).

        Raises:
            TimeoutError: nothing arrived in time.
            ConfigurationError: the subscription has a callback.
            BusClosedError: it or the client was closed.
            SlowConsumerError: it was ended because too much waited in its queue.
            ConnectionLostError: the broker is out of reach for good.
        """
        self._require_readable()
        return await super().get(timeout_s)

    async def get_many(self, count_max: int, timeout_s: float | None = None) -> list[Publication]:
        """At least one publication, and what else is queued, at most `count_max`; otherwise as `get`."""
        self._require_readable()
        return await super().get_many(count_max, timeout_s)

    def __aiter__(self) -> Self:
        self._require_readable()
        return self

    def _require_readable(self) -> None:
        if self._callback is not None:
            raise ConfigurationError(
                "this subscription has a callback; subscribe without one to read from it"
            )

    async def close(self) -> None:
        """Unsubscribe: nothing more is delivered, and what was queued is gone.

        A durable subscription stays, and goes on collecting, until `Client.drop_durable`. May be called any
        number of times.
        """
        self._end(None, closed=True)
        await self._client._unsubscribe(self, self._interest)
        await self._finish()

    async def _finish(self) -> None:
        """Let a callback that is running come to its end; one that does not is cancelled after a while."""
        task = self._task
        if task is not None and task is not asyncio.current_task():
            await asyncio.wait([task], timeout=CALLBACK_TIMEOUT_S)
            if task.cancel():
                await asyncio.wait([task], timeout=CALLBACK_TIMEOUT_S)

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
        return f"<Subscription {state}: {self.filter.text}>"

    # With a callback.

    def _start(self, callback: Callable[[Publication], object]) -> None:
        self._callback = callback
        self._task = self._client._loop.create_task(self._call_back(callback))

    async def _call_back(self, callback: Callable[[Publication], object | Awaitable[object]]) -> None:
        calls = 0
        while True:
            if not self._queue:
                try:
                    await self._wait_for_rows()
                except BusClosedError:
                    return
                except Exception as error:
                    self._report("a subscription with a callback has ended", error, callback)
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
                self._report("a subscription's callback failed", error, callback)

    def _report(self, message: str, error: BaseException, callback: object) -> None:
        self._client._loop.call_exception_handler(
            {"message": f"{message}: {callback!r}", "exception": error, "task": self._task}
        )


class Replay(_Reader[StoredPublication]):
    """A range of a durable subscription's log; read it with `async for`."""

    async def close(self) -> None:
        """Read no further."""
        if not self._closed:
            self._end(None, closed=True)
            await self._client._unsubscribe(self, self._interest)


class Advertisement:
    """What a client has announced that it publishes; made by `Client.advertise`."""

    def __init__(self, client: Client, filter: Filter, number: int) -> None:
        self._client = client
        self._number = number
        self.filter = filter

    async def close(self) -> None:
        """Take it back. May be called any number of times."""
        await self._client._unadvertise(self._number)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        _kind: type[BaseException] | None,
        _error: BaseException | None,
        _traceback: TracebackType | None,
    ) -> None:
        await self.close()
