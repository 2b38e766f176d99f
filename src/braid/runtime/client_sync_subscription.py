"""What does a subscriber without an event loop hold in its hands?

An ordinary iterator. What is queued crosses over from the loop's thread in portions, so that a busy reader
does not wait for a change of threads with every publication. Callbacks are called by a thread of their own.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final, Generic, Protocol, Self, TypeVar

from braid.embedded.arguments import checked_timeout
from braid.errors import BraidError, BusClosedError, ConfigurationError
from braid.language import Publication
from braid.protocol.client_inbox import StoredPublication

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine
    from types import TracebackType

    from braid.language import Filter
    from braid.runtime.client_subscription import Replay, Subscription, SubscriptionStatistics

__all__ = ["SyncReplay", "SyncSubscription"]

# Publications that cross over at a time; as many may wait on this side beside the queue on the other.
PORTION: Final = 256
# How long `close` waits for a callback that is running.
JOIN_TIMEOUT_S: Final = 5.0

_log = logging.getLogger("braid.client")

Answer = TypeVar("Answer")
Row = TypeVar("Row", bound=Publication)


class _Run(Protocol):
    """Has the loop do something and waits for it."""

    def __call__(self, work: Coroutine[Any, Any, Answer], timeout_s: float | None = None) -> Answer: ...


class _Reads(Protocol[Row]):
    async def get_many(self, count_max: int, timeout_s: float | None = None) -> list[Row]: ...

    async def close(self) -> None: ...


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
                self._buffer.extend(self._run(self._source.get_many(PORTION, limit_s)))
            return self._buffer.popleft()
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


class SyncSubscription(_SyncReader[Publication]):
    """A subscription of a `SyncClient`: iterate over it, or `get` with a timeout, from any thread."""

    def __init__(
        self, run: _Run, subscription: Subscription, callback: Callable[[Publication], object] | None
    ) -> None:
        super().__init__(run, subscription)
        self._subscription = subscription
        self._errors = 0
        self._on_close: Callable[[SyncSubscription], None] | None = None
        self._dispatcher: threading.Thread | None = None
        if callback is not None:
            self._dispatcher = threading.Thread(
                target=self._dispatch, args=(callback,), name="braid-callback", daemon=True
            )
            self._dispatcher.start()

    @property
    def filter(self) -> Filter:
        """What it receives: what was asked for, or less where not everything was granted."""
        return self._subscription.filter

    @property
    def durable(self) -> str | None:
        """The name of the log that it reads, if any."""
        return self._subscription.durable

    @property
    def closed(self) -> bool:
        """True once nothing more can come in; what is queued can perhaps still be read."""
        return self._closed or self._subscription.closed

    @property
    def secret(self) -> str | None:
        """What opens its log where this client is anonymous; None for one that is not durable."""
        return self._subscription.secret

    @property
    def missing(self) -> tuple[str, ...]:
        """The links that were down when a partial subscription was answered; empty where it covers all."""
        return self._subscription.missing

    @property
    def resets(self) -> int:
        """How often a durable subscription's log turned out not to have rows that were read from it."""
        return self._subscription.resets

    def statistics(self) -> SubscriptionStatistics:
        """A snapshot of its counters."""

        async def look() -> SubscriptionStatistics:
            return self._subscription.statistics()

        found = self._run(look())
        here = len(self._buffer)
        return replace(
            found, delivered=found.delivered - here, queued=found.queued + here, errors=self._errors
        )

    def acknowledge(self, done: StoredPublication | int) -> None:
        """Say that everything up to this publication of a durable subscription is done with."""
        self._run(self._subscription.acknowledge(done))

    def get(self, timeout_s: float | None = None) -> Publication:
        """The next publication, waiting for it at most `timeout_s` seconds (None: as long as it takes).

        Raises what `Subscription.get` raises.
        """
        if self._dispatcher is not None and threading.current_thread() is not self._dispatcher:
            raise ConfigurationError(
                "this subscription has a callback; subscribe without one to read from it"
            )
        return super().get(timeout_s)

    def close(self) -> None:
        """Unsubscribe. A callback that is running in another thread is waited for, for a few seconds."""
        super().close()
        if self._on_close is not None:
            self._on_close(self)
        self._join()

    def _join(self) -> None:
        if self._dispatcher is not None and threading.current_thread() is not self._dispatcher:
            self._dispatcher.join(JOIN_TIMEOUT_S)

    def _dispatch(self, callback: Callable[[Publication], object]) -> None:
        try:
            for publication in self:
                try:
                    callback(publication)
                except Exception:
                    self._errors += 1
                    _log.exception("a subscription's callback failed: %r", callback)
        except BraidError as error:
            _log.error("a subscription with a callback has ended: %s", error)
