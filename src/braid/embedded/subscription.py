"""Subscriptions of the embedded bus: what a subscriber of one holds in its hands.

One with a callback is only a handle to close it by. Without one it is what the subscriber reads from, with
`get` and a timeout or in a loop, from any number of threads (`BusSubscription`) or tasks
(`AsyncBusSubscription`); each publication goes to one of them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NoReturn, Self

from braid.embedded.arguments import checked_timeout, require_size
from braid.embedded.delivery import DELIVERIES_IN_A_ROW_MAX
from braid.embedded.farewell import CLOSE_TIMEOUT_S
from braid.errors import BusClosedError, ConfigurationError, SlowConsumerError

if TYPE_CHECKING:
    from types import TracebackType

    from braid.embedded.delivery import Delivery
    from braid.embedded.engine import Engine
    from braid.embedded.mailbox import Mailbox
    from braid.embedded.statistics import SubscriptionStatistics
    from braid.language import Filter, Publication

__all__ = ["AsyncBusSubscription", "BusSubscription"]


class _Reader:
    """What both kinds have in common: all but the waiting.

    One without a callback is closed when nothing refers to it any more, since nobody could read it.
    """

    def __init__(self, engine: Engine, mailbox: Mailbox, delivery: Delivery | None) -> None:
        self._engine = engine
        self._mailbox = mailbox
        self._delivery = delivery

    @property
    def name(self) -> str:
        """The name it was given, or `subscription-1` and so on."""
        return self._mailbox.name

    @property
    def filter(self) -> Filter:
        """What it receives."""
        return self._mailbox.filter

    @property
    def closed(self) -> bool:
        """True once nothing more can come in; what is queued can perhaps still be read."""
        return not self._mailbox.open

    def statistics(self) -> SubscriptionStatistics:
        """A snapshot of its counters."""
        return self._engine.statistics_of(self._mailbox)

    def _require_readable(self) -> None:
        if self._delivery is not None:
            raise ConfigurationError(
                f"subscription {self.name!r} has a callback; subscribe without one to read from it"
            )

    def _ended(self) -> NoReturn:
        if self._mailbox.failure is not None:
            # A fresh one each time: several readers may come here, and each adds its own traceback.
            raise SlowConsumerError(str(self._mailbox.failure))
        raise BusClosedError(f"subscription {self.name!r} is closed")

    def _with_queued(self, first: Publication, count_max: int) -> list[Publication]:
        """The first of a portion, and what else can be had without waiting."""
        rows = [first]
        while len(rows) < count_max and (row := self._engine.take(self._mailbox)) is not None:
            rows.append(row)
        return rows

    def __del__(self) -> None:
        if self._delivery is None:
            self._engine.abandon(self._mailbox)

    def __repr__(self) -> str:
        state = "closed" if self.closed else "open"
        return f"<{type(self).__name__} {self.name!r} {state}: {self.filter.text}>"


class BusSubscription(_Reader):
    """A subscription of a `Bus`: iterate over it, or `get` with a timeout, from any thread."""

    def get(self, timeout_s: float | None = None) -> Publication:
        """The next publication, waiting for it at most `timeout_s` seconds (None: as long as it takes).

        Raises:
            TimeoutError: nothing arrived in time.
            ConfigurationError: a timeout that is no number of seconds, or the subscription has a callback.
            BusClosedError: the subscription or the bus was closed, and all that was queued was read.
            SlowConsumerError: it was disconnected, and all that was queued was read.
        """
        self._require_readable()
        publication = self._engine.get(self._mailbox, checked_timeout(timeout_s))
        return self._ended() if publication is None else publication

    def get_many(self, count_max: int, timeout_s: float | None = None) -> list[Publication]:
        """At least one publication, and what else is queued, at most `count_max`; otherwise as `get`."""
        require_size("count_max", count_max)
        return self._with_queued(self.get(timeout_s), count_max)

    def __iter__(self) -> Self:
        self._require_readable()
        return self

    def __next__(self) -> Publication:
        try:
            return self.get()
        except BusClosedError:
            raise StopIteration from None

    def close(self, timeout_s: float | None = CLOSE_TIMEOUT_S) -> None:
        """Unsubscribe: after this returns nothing more is delivered, and what was queued is gone.

        A callback that is running in another thread is waited for, at most `timeout_s` seconds. From
        inside the callback itself, or on the event loop it runs on, this returns at once and no
        further call follows. May be called any number of times.
        """
        limit_s = checked_timeout(timeout_s)
        self._engine.unsubscribe(self._mailbox)
        if self._delivery is not None:
            self._engine.wait_for(self._delivery, limit_s)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        _kind: type[BaseException] | None,
        _error: BaseException | None,
        _traceback: TracebackType | None,
    ) -> None:
        self.close()


class AsyncBusSubscription(_Reader):
    """A subscription of an `AsyncBus`: read it with `async for`, or await `get`, in any task."""

    def __init__(self, engine: Engine, mailbox: Mailbox, delivery: Delivery | None) -> None:
        super().__init__(engine, mailbox, delivery)
        self._reads_in_a_row = 0

    async def get(self, timeout_s: float | None = None) -> Publication:
        """The next publication, waiting for it at most `timeout_s` seconds (None: as long as it takes).

        Raises what `BusSubscription.get` raises.
        """
        self._require_readable()
        publication = await self._engine.get_async(self._mailbox, checked_timeout(timeout_s))
        return self._ended() if publication is None else publication

    async def get_many(self, count_max: int, timeout_s: float | None = None) -> list[Publication]:
        """At least one publication, and what else is queued, at most `count_max`; otherwise as `get`."""
        require_size("count_max", count_max)
        return self._with_queued(await self.get(timeout_s), count_max)

    def __aiter__(self) -> Self:
        self._require_readable()
        return self

    async def __anext__(self) -> Publication:
        # A full queue is read without waiting, so a busy reader gives way to its neighbours at times.
        self._reads_in_a_row += 1
        if self._reads_in_a_row % DELIVERIES_IN_A_ROW_MAX == 0:
            import asyncio

            await asyncio.sleep(0)
        try:
            return await self.get()
        except BusClosedError:
            raise StopAsyncIteration from None

    async def close(self, timeout_s: float | None = CLOSE_TIMEOUT_S) -> None:
        """Unsubscribe; a callback that is running is awaited, at most `timeout_s` seconds.

        Otherwise as `BusSubscription.close`.
        """
        limit_s = checked_timeout(timeout_s)
        self._engine.unsubscribe(self._mailbox)
        if self._delivery is not None:
            await self._engine.wait_for_async(self._delivery, limit_s)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        _kind: type[BaseException] | None,
        _error: BaseException | None,
        _traceback: TracebackType | None,
    ) -> None:
        await self.close()
