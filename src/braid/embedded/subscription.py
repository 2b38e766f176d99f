"""What does a subscriber hold in its hands?

A `Subscription` with a callback is only a handle to close it by. Without one it is what the
subscriber reads from: `for publication in subscription`, `async for publication in subscription`,
or `get` with a timeout, from any number of threads and tasks; each publication goes to one of them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Self

from braid.embedded.arguments import checked_timeout
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

__all__ = ["Subscription"]


class Subscription:
    """A subscription of the embedded bus; made by `Bus.subscribe`.

    One without a callback is closed when nothing refers to it any more, since nobody could read it.
    """

    def __init__(self, engine: Engine, mailbox: Mailbox, delivery: Delivery | None) -> None:
        self._engine = engine
        self._mailbox = mailbox
        self._delivery = delivery
        self._reads_in_a_row = 0

    @property
    def name(self) -> str:
        """The name it was given, or `subscription-1` and so on."""
        return self._mailbox.name

    @property
    def filter(self) -> Filter:
        """What it asked for."""
        return self._mailbox.filter

    @property
    def closed(self) -> bool:
        """True once nothing more can come in; what is queued can perhaps still be read."""
        return not self._mailbox.open

    def statistics(self) -> SubscriptionStatistics:
        """A snapshot of its counters."""
        return self._engine.statistics_of(self._mailbox)

    # ---- reading

    def get(self, timeout: float | None = None) -> Publication:
        """The next publication, waiting for it at most `timeout` seconds (None: as long as it takes).

        Raises:
            TimeoutError: nothing arrived in time.
            ConfigurationError: a timeout that is no number of seconds, or the subscription has a callback.
            BusClosedError: the subscription or the bus was closed, and all that was queued was read.
            SlowConsumerError: it was disconnected, and all that was queued was read.
        """
        self._require_readable()
        publication = self._engine.get(self._mailbox, checked_timeout(timeout))
        return self._end() if publication is None else publication

    async def get_async(self, timeout: float | None = None) -> Publication:  # noqa: ASYNC109 - as `get`
        """The next publication, awaited; otherwise as `get`."""
        self._require_readable()
        publication = await self._engine.get_async(self._mailbox, checked_timeout(timeout))
        return self._end() if publication is None else publication

    def __iter__(self) -> Self:
        self._require_readable()
        return self

    def __next__(self) -> Publication:
        try:
            return self.get()
        except BusClosedError:
            raise StopIteration from None

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
            return await self.get_async()
        except BusClosedError:
            raise StopAsyncIteration from None

    def _require_readable(self) -> None:
        if self._delivery is not None:
            raise ConfigurationError(
                f"subscription {self.name!r} has a callback; subscribe without one to read from it"
            )

    def _end(self) -> Publication:
        if self._mailbox.failure is not None:
            # A fresh one each time: several readers may come here, and each adds its own traceback.
            raise SlowConsumerError(str(self._mailbox.failure))
        raise BusClosedError(f"subscription {self.name!r} is closed")

    # ---- closing

    def close(self, timeout: float | None = CLOSE_TIMEOUT_S) -> None:
        """Unsubscribe: after this returns nothing more is delivered, and what was queued is gone.

        A callback that is running in another thread is waited for, at most `timeout` seconds. From
        inside the callback itself, or on the event loop it runs on, this returns at once and no
        further call follows. May be called any number of times.
        """
        timeout_s = checked_timeout(timeout)
        self._engine.unsubscribe(self._mailbox)
        if self._delivery is not None:
            self._engine.wait_for(self._delivery, timeout_s)

    async def aclose(self, timeout: float | None = CLOSE_TIMEOUT_S) -> None:  # noqa: ASYNC109 - as `close`
        """Unsubscribe; a running callback is awaited instead of blocking the event loop."""
        timeout_s = checked_timeout(timeout)
        self._engine.unsubscribe(self._mailbox)
        if self._delivery is not None:
            await self._engine.wait_for_async(self._delivery, timeout_s)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        _kind: type[BaseException] | None,
        _error: BaseException | None,
        _traceback: TracebackType | None,
    ) -> None:
        self.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        _kind: type[BaseException] | None,
        _error: BaseException | None,
        _traceback: TracebackType | None,
    ) -> None:
        await self.aclose()

    def __del__(self) -> None:
        if self._delivery is None:
            self._engine.abandon(self._mailbox)

    def __repr__(self) -> str:
        state = "closed" if self.closed else "open"
        return f"<Subscription {self.name!r} {state}: {self.filter.text}>"
