"""The embedded bus: how parts of one program publish and subscribe without a broker.

    with braid.open() as bus:
        quotes = bus.subscribe("symbol = 'ACME' AND price > 10")
        bus.publish({"symbol": "ACME", "price": 12.5})
        print(quotes.get()["price"])

Everything happens inside the process: no socket, no file, no set-up. Under `async with` the same names are
awaited, as those of a network client are.
"""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Any, Self

from braid.embedded.arguments import (
    QUEUE_SIZE,
    checked_choice,
    checked_draft,
    checked_drafts,
    checked_filter,
    checked_handler,
    checked_timeout,
    is_coroutine_callback,
    require_size,
    require_text,
)
from braid.embedded.delivery import Callback, CallbackTask, CallbackThread, Delivery, ErrorHandler
from braid.embedded.engine import Engine, in_background
from braid.embedded.farewell import CLOSE_TIMEOUT_S, await_the_end
from braid.embedded.mailbox import WhenFull
from braid.embedded.subscription import AsyncBusSubscription, BusSubscription
from braid.embedded.waiting import running_loop
from braid.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from types import TracebackType

    from braid.embedded.core import Draft
    from braid.embedded.mailbox import Mailbox
    from braid.embedded.statistics import BusReceipt, BusStatistics
    from braid.language import Filter, Publication

__all__ = ["AsyncBus", "Bus", "open"]


def open(name: str = "local", *, on_error: ErrorHandler | None = None) -> Bus:
    """An in-process bus: `with open() as bus` for threads, `async with open() as bus` for tasks.

    Args:
        name: the publisher's name on publications that give no other.
        on_error: told of each exception that a callback raises, with the publication it was given;
            and of each callback subscription that was disconnected, with None. A plain function;
            it runs where the callback runs. A subscription may have its own instead.
    """
    return Bus(name, on_error=on_error)


class _Face:
    """What the bus for threads and the bus for tasks have in common: all but the waiting."""

    def __init__(self, engine: Engine, on_error: ErrorHandler | None) -> None:
        self._engine = engine
        self._on_error = on_error

    @property
    def name(self) -> str:
        """The publisher's name on publications that give no other."""
        return self._engine.name

    @property
    def closed(self) -> bool:
        """True once nothing can be published any more."""
        return self._engine.closed

    def statistics(self) -> BusStatistics:
        """A snapshot: published, delivered, dropped and so on, in total and per subscription."""
        return self._engine.statistics()

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name!r} {'closed' if self.closed else 'open'}>"

    def _install(
        self,
        filter: Filter | str,
        callback: Callback | None,
        name: str | None,
        when_full: WhenFull | str | None,
        queue_size: int,
        on_error: ErrorHandler | None,
    ) -> tuple[Mailbox, Delivery | None]:
        wanted = checked_filter(filter)
        choice = checked_choice(when_full or WhenFull.BLOCK)
        require_size("queue_size", queue_size)
        if name is not None:
            require_text("the name of a subscription", name)
        handler = checked_handler(on_error) or self._on_error
        is_coroutine = is_coroutine_callback(callback)
        if is_coroutine and running_loop() is None:
            raise ConfigurationError(
                "a coroutine function as callback needs a running event loop to subscribe on"
            )
        mailbox = self._engine.subscribe(name, wanted, queue_size, choice)
        if callback is None:
            return mailbox, None
        return mailbox, self._start_delivery(mailbox, callback, handler, is_coroutine)

    def _start_delivery(
        self, mailbox: Mailbox, callback: Callback, on_error: ErrorHandler | None, is_coroutine: bool
    ) -> Delivery:
        loop = running_loop() if is_coroutine else None
        delivery: Delivery
        if loop is None:
            delivery = CallbackThread(self._engine, mailbox, callback, on_error)
        else:
            delivery = CallbackTask(self._engine, mailbox, callback, on_error, loop)
        self._engine.register(delivery)
        await_the_end(self._engine)
        try:
            delivery.start()
        except BaseException:
            self._engine.unsubscribe(mailbox)
            raise
        return delivery

    def _checked_publisher(self, publisher: str | None) -> str:
        if publisher is None:
            return self._engine.name
        require_text("a publisher", publisher)
        return publisher


class Bus(_Face):
    """Delivers each publication to exactly the subscriptions whose filter it satisfies.

    All methods may be called from any thread, and from inside callbacks. Each subscription receives
    the publications of one publisher in the order of its publish calls, each once.
    """

    def __init__(self, name: str = "local", *, on_error: ErrorHandler | None = None) -> None:
        require_text("the name of a bus", name)
        super().__init__(Engine(name), checked_handler(on_error))

    @property
    def for_tasks(self) -> AsyncBus:
        """The same bus with methods that are awaited, as `async with` gives it."""
        return AsyncBus(self)

    # ---- subscribing

    def subscribe(
        self,
        filter: Filter | str,
        callback: Callback | None = None,
        *,
        name: str | None = None,
        when_full: WhenFull | str | None = None,
        queue_size: int = QUEUE_SIZE,
        on_error: ErrorHandler | None = None,
    ) -> BusSubscription:
        """Ask for publications; all that are published after this returns are delivered.

        Args:
            filter: what to receive, or its text, such as `"symbol = 'ACME' AND price > 10"`.
            callback: called with each `Publication`, one at a time: a plain function in a thread of
                its own, a coroutine function in a task of the event loop that runs here. Without
                one, read from the subscription that is returned.
            name: what messages and statistics call it.
            when_full: what happens when the queue is full. `"block"` (the default): publishers of what
                concerns it wait. `"drop_oldest"`: the oldest makes room. `"disconnect"`: the subscription
                ends with `SlowConsumerError` after what is queued. Its neighbours notice none of these.
            queue_size: publications that may wait for the subscriber.
            on_error: instead of the bus's own handler.

        Raises:
            FilterSyntaxError: the text is not a filter; nothing was subscribed.
            ConfigurationError: an argument that cannot be.
            BusClosedError: the bus was closed.
        """
        installed = self._install(filter, callback, name, when_full, queue_size, on_error)
        return BusSubscription(self._engine, *installed)

    # ---- publishing

    def publish(
        self,
        attributes: Mapping[str, Any] | Publication,
        body: bytes = b"",
        content_type: str = "",
        *,
        timeout_s: float | None = None,
        publisher: str | None = None,
    ) -> BusReceipt:
        """Deliver one publication; returns when every subscription it concerns has it in its queue.

        Args:
            attributes: what filters see; a flat mapping of names to numbers, strings, booleans, ranges.
                Or a `Publication`, for its attributes, body and content type.
            body: bytes that are carried and never looked at.
            content_type: what the body is, for those who read it.
            timeout_s: how long to wait for room in full queues with back-pressure; None: as long as it
                takes. A wait of more than five seconds is logged once, with the names of the full
                subscriptions.
            publisher: who sends; numbers run per publisher. The bus's own name unless given.

        Raises:
            PublicationError: attributes or a body that cannot be published; names the attribute.
            PublishTimeoutError: some queue stayed full; says which, and what was delivered.
            PublishDeadlockError: waiting could never have ended, as from inside the full queue's callback.
            BusClosedError: the bus was closed, before or while waiting.
        """
        drafts = [checked_draft(attributes, body, content_type)]
        return self._engine.publish(self._checked_publisher(publisher), drafts, checked_timeout(timeout_s))

    def publish_batch(
        self,
        batch: Iterable[Mapping[str, Any] | Publication],
        *,
        timeout_s: float | None = None,
        publisher: str | None = None,
    ) -> BusReceipt:
        """Deliver many publications in their order, matched in one go, which is much faster than singly.

        Each is a mapping of attributes, or a `Publication` for its attributes and body. They are all
        checked first: when one cannot be published, none is. Otherwise as `publish`.
        """
        drafts = checked_drafts(batch)
        return self._engine.publish(self._checked_publisher(publisher), drafts, checked_timeout(timeout_s))

    # ---- leaving

    def close(self, timeout_s: float | None = CLOSE_TIMEOUT_S, *, drain: bool = True) -> None:
        """End the bus: nothing can be published any more, and publishers that wait are released.

        Iterators can still read what is queued and then end. Callbacks are given what is queued, and
        their threads are waited for, at most `timeout_s` seconds altogether (None: as long as it takes);
        what is then still queued for them is thrown away. With `drain=False` everything that is queued
        is thrown away at once. From inside a callback, its own end is not waited for; on an event loop,
        the coroutine callbacks of that loop are not (`AsyncBus.close` awaits them). May be called again.
        """
        self._engine.close(drain, checked_timeout(timeout_s))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        _error: BaseException | None,
        _traceback: TracebackType | None,
    ) -> None:
        self.close(drain=is_orderly(kind))

    async def __aenter__(self) -> AsyncBus:
        return self.for_tasks

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        _error: BaseException | None,
        _traceback: TracebackType | None,
    ) -> None:
        await self.for_tasks.close(drain=is_orderly(kind))

    def __del__(self) -> None:
        engine = getattr(self, "_engine", None)  # absent when the name was refused
        if engine is None or engine.closed or not engine.in_use:
            return
        try:
            if engine.delivering:
                warnings.warn(f"{self!r} was not closed", ResourceWarning, source=self, stacklevel=2)
        finally:
            # Even when warnings are errors. What was queued before may still be read or called with.
            in_background(lambda: engine.stop(drain=True))


class AsyncBus(_Face):
    """A bus whose methods are awaited, and never block the event loop: `async with braid.open() as bus`.

    It is the same bus as `for_threads`: what one publishes, the subscriptions of both receive.
    """

    def __init__(self, bus: Bus) -> None:
        super().__init__(bus._engine, bus._on_error)
        self._bus = bus

    @property
    def for_threads(self) -> Bus:
        """The same bus with plain methods, for other threads."""
        return self._bus

    async def subscribe(
        self,
        filter: Filter | str,
        callback: Callback | None = None,
        *,
        name: str | None = None,
        when_full: WhenFull | str | None = None,
        queue_size: int = QUEUE_SIZE,
        on_error: ErrorHandler | None = None,
    ) -> AsyncBusSubscription:
        """Ask for publications; all that are published after this returns are delivered.

        The arguments, and what is raised, are those of `Bus.subscribe`.
        """
        installed = self._install(filter, callback, name, when_full, queue_size, on_error)
        return AsyncBusSubscription(self._engine, *installed)

    async def publish(
        self,
        attributes: Mapping[str, Any] | Publication,
        body: bytes = b"",
        content_type: str = "",
        *,
        timeout_s: float | None = None,
        publisher: str | None = None,
    ) -> BusReceipt:
        """Deliver one publication, and let other tasks run.

        The arguments, and what is raised, are those of `Bus.publish`.
        """
        drafts = [checked_draft(attributes, body, content_type)]
        return await self._publish(drafts, publisher, timeout_s)

    async def publish_batch(
        self,
        batch: Iterable[Mapping[str, Any] | Publication],
        *,
        timeout_s: float | None = None,
        publisher: str | None = None,
    ) -> BusReceipt:
        """Deliver many publications in their order, matched in one go. See `Bus.publish_batch`."""
        return await self._publish(checked_drafts(batch), publisher, timeout_s)

    async def _publish(
        self, drafts: list[Draft], publisher: str | None, timeout_s: float | None
    ) -> BusReceipt:
        import asyncio

        sender = self._checked_publisher(publisher)
        receipt = await self._engine.publish_async(sender, drafts, checked_timeout(timeout_s))
        # Without this a publisher that finds room every time would never let a reader run.
        await asyncio.sleep(0)
        return receipt

    async def close(self, timeout_s: float | None = CLOSE_TIMEOUT_S, *, drain: bool = True) -> None:
        """End the bus, awaiting callbacks instead of blocking the event loop. See `Bus.close`."""
        await self._engine.close_async(drain, checked_timeout(timeout_s))


def is_orderly(kind: type[BaseException] | None) -> bool:
    """Whether to hand out what is queued: not when the user or a cancellation wants to leave now."""
    return kind is None or issubclass(kind, Exception)
