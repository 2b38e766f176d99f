"""Subscriptions and replays of the synchronous client.

Each is an ordinary iterator. What is queued crosses over from the loop's thread in portions, so that a busy
reader does not wait for a change of threads with every publication. Callbacks are called by a thread of their
own.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final, Generic, Protocol, Self, TypeVar

from braid.client.stored import StoredPublication, StoredRecords
from braid.embedded.arguments import checked_timeout, require_size
from braid.embedded.farewell import CLOSE_TIMEOUT_S
from braid.errors import BraidError, BusClosedError, ConfigurationError
from braid.language import Publication
from braid.runtime.client_events import tell

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine
    from types import TracebackType

    from braid.embedded.statistics import SubscriptionStatistics
    from braid.language import Filter
    from braid.runtime.client_events import ErrorHandler
    from braid.runtime.client_logs import ReplayRange
    from braid.runtime.client_subscription import DurableSubscription, RecordReplay, Replay

__all__ = ["SyncDurableSubscription", "SyncRecordReplay", "SyncReplay", "SyncSubscription"]

# Publications that cross over at a time; as many may wait on this side beside the queue on the other.
PORTION: Final = 256

_log = logging.getLogger("braid.client")

Answer = TypeVar("Answer")
Row = TypeVar("Row")


class _Run(Protocol):
    """Has the loop do something and waits for it."""

    def __call__(self, work: Coroutine[Any, Any, Answer], timeout_s: float | None = None) -> Answer: ...


class _Reads(Protocol[Row]):
    async def get_many(self, count_max: int, timeout_s: float | None = None) -> list[Row]: ...

    async def close(self) -> None: ...


class _Answered(_Reads[Row], Protocol[Row]):
    @property
    def name(self) -> str: ...

    @property
    def filter(self) -> Filter: ...

    @property
    def closed(self) -> bool: ...

    @property
    def missing(self) -> tuple[str, ...]: ...

    def statistics(self) -> SubscriptionStatistics: ...


class _SyncReader(Generic[Row]):
    """What subscriptions and replays have in common."""

    def __init__(self, run: _Run, source: _Reads[Row]) -> None:
        self._run = run
        self._source = source
        # One thread at a time fetches; the others wait for what it brings.
        self._reading = threading.Lock()
        self._buffer: deque[Row] = deque()
        self._closed = False

    def get(self, timeout_s: float | None = None) -> Row:
        """The next publication, waiting for it at most `timeout_s` seconds (None: as long as it takes).

        Raises:
            TimeoutError: nothing arrived in time.
            BusClosedError: it was closed, or that was all.
            SlowConsumerError: it was ended because too much waited in its queue.
            ConnectionLostError: the broker is out of reach for good.
        """
        return self._read(1, timeout_s)[0]

    def get_many(self, count_max: int, timeout_s: float | None = None) -> list[Row]:
        """At least one publication, and what else is queued, at most `count_max`; otherwise as `get`."""
        require_size("count_max", count_max)
        return self._read(count_max, timeout_s)

    def _read(self, count_max: int, timeout_s: float | None) -> list[Row]:
        limit_s = checked_timeout(timeout_s)
        started_s = time.monotonic()
        if not self._reading.acquire(timeout=-1 if limit_s is None else limit_s):
            raise TimeoutError(f"nothing arrived within {limit_s:g} s")
        try:
            if self._closed:
                raise BusClosedError("the subscription was closed")
            if not self._buffer:
                if limit_s is not None:
                    limit_s = max(0.0, limit_s - (time.monotonic() - started_s))
                self._buffer.extend(self._run(self._source.get_many(max(PORTION, count_max), limit_s)))
            return [self._buffer.popleft() for _ in range(min(count_max, len(self._buffer)))]
        finally:
            self._reading.release()

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Row:
        try:
            return self.get()
        except BusClosedError:
            raise StopIteration from None

    def close(self) -> None:
        """Nothing more is delivered, and what was queued is gone. May be called any number of times."""
        if not self._closed:
            self._closed = True
            try:
                self._run(self._source.close())
            except BusClosedError:
                return  # the client was closed, and this with it

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        _kind: type[BaseException] | None,
        _error: BaseException | None,
        _traceback: TracebackType | None,
    ) -> None:
        self.close()


class SyncReplay(_SyncReader[StoredPublication]):
    """A range of a durable subscription's log; an iterator."""

    def __init__(self, run: _Run, replay: Replay) -> None:
        super().__init__(run, replay)
        self._replay = replay

    @property
    def range(self) -> ReplayRange | None:
        """Which offsets it was about, once it has ended; None before."""
        return self._replay.range


class SyncRecordReplay(_SyncReader[StoredRecords]):
    """A range of a log as records, many at a time; an iterator."""

    def __init__(self, run: _Run, replay: RecordReplay) -> None:
        super().__init__(run, replay)
        self._replay = replay

    @property
    def range(self) -> ReplayRange | None:
        """Which offsets it was about, once it has ended; None before."""
        return self._replay.range


class _SyncSubscription(_SyncReader[Row]):
    """What a synchronous client's subscriptions have in common."""

    def __init__(
        self,
        run: _Run,
        subscription: _Answered[Row],
        callback: Callable[[Row], object] | None,
        on_error: ErrorHandler | None,
    ) -> None:
        super().__init__(run, subscription)
        self._answered = subscription
        self._on_error = on_error
        self._errors = 0
        self._on_close: Callable[[Any], None] | None = None
        self._dispatcher: threading.Thread | None = None
        if callback is not None:
            self._dispatcher = threading.Thread(
                target=self._dispatch, args=(callback,), name="braid-callback", daemon=True
            )
            self._dispatcher.start()

    @property
    def name(self) -> str:
        """The name it was given, or `subscription-1` and so on."""
        return self._answered.name

    @property
    def filter(self) -> Filter:
        """What it receives: what was asked for, or less where not everything was granted."""
        return self._answered.filter

    @property
    def closed(self) -> bool:
        """True once nothing more can come in; what is queued can perhaps still be read."""
        return self._closed or self._answered.closed

    @property
    def missing(self) -> tuple[str, ...]:
        """The links that were down when a partial subscription was answered; empty where it covers all."""
        return self._answered.missing

    def statistics(self) -> SubscriptionStatistics:
        """A snapshot of its counters."""

        async def look() -> SubscriptionStatistics:
            return self._answered.statistics()

        found = self._run(look())
        here = len(self._buffer)
        return replace(
            found, delivered=found.delivered - here, queued=found.queued + here, errors=self._errors
        )

    def get(self, timeout_s: float | None = None) -> Row:
        """The next publication, waiting for it at most `timeout_s` seconds (None: as long as it takes).

        Raises what `Subscription.get` raises.
        """
        self._require_readable()
        return super().get(timeout_s)

    def get_many(self, count_max: int, timeout_s: float | None = None) -> list[Row]:
        """At least one publication, and what else is queued, at most `count_max`; otherwise as `get`."""
        self._require_readable()
        return super().get_many(count_max, timeout_s)

    def _require_readable(self) -> None:
        if self._dispatcher is not None and threading.current_thread() is not self._dispatcher:
            raise ConfigurationError(
                f"subscription {self.name!r} has a callback; subscribe without one to read from it"
            )

    def close(self, timeout_s: float | None = CLOSE_TIMEOUT_S) -> None:
        """Unsubscribe. A callback that is running in another thread is waited for, at most `timeout_s`
        seconds."""
        limit_s = checked_timeout(timeout_s)
        super().close()
        if self._on_close is not None:
            self._on_close(self)
        self._join(limit_s)

    def _join(self, timeout_s: float | None = CLOSE_TIMEOUT_S) -> None:
        if self._dispatcher is not None and threading.current_thread() is not self._dispatcher:
            self._dispatcher.join(timeout_s)

    def __repr__(self) -> str:
        state = "closed" if self.closed else "open"
        return f"<{type(self).__name__} {self.name!r} {state}: {self.filter.text}>"

    def _dispatch(self, callback: Callable[[Row], object]) -> None:
        try:
            for publication in self:
                try:
                    callback(publication)
                except Exception as error:
                    self._errors += 1
                    _log.exception("a subscription's callback failed: %r", callback)
                    tell("on_error", self._on_error, error, publication)
        except BraidError as error:
            _log.error("a subscription with a callback has ended: %s", error)
            tell("on_error", self._on_error, error, None)


class SyncSubscription(_SyncSubscription[Publication]):
    """A subscription of a `SyncClient`: iterate over it, or `get` with a timeout, from any thread."""


class SyncDurableSubscription(_SyncSubscription[StoredPublication]):
    """A subscription that reads a log at the broker. See `DurableSubscription`."""

    def __init__(
        self,
        run: _Run,
        subscription: DurableSubscription,
        callback: Callable[[StoredPublication], object] | None,
        on_error: ErrorHandler | None,
    ) -> None:
        self._durable = subscription
        super().__init__(run, subscription, callback, on_error)

    @property
    def durable(self) -> str:
        """The name of the log."""
        return self._durable.durable

    @property
    def secret(self) -> str | None:
        """What opens its log where this client is anonymous."""
        return self._durable.secret

    @property
    def resets(self) -> int:
        """How often the log turned out not to have rows that were read from it."""
        return self._durable.resets

    def acknowledge(self, done: StoredPublication | int) -> None:
        """Say that everything up to this publication (or offset) is done with.

        See `DurableSubscription.acknowledge`.
        """
        self._run(self._durable.acknowledge(done))
