"""How do parts of one program publish and subscribe without a broker?

    with braid.open() as bus:
        quotes = bus.subscribe("symbol = 'ACME' AND price > 10")
        bus.publish({"symbol": "ACME", "price": 12.5})
        print(quotes.get()["price"])

Everything happens inside the process: no socket, no file, no set-up.
"""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Any, Self

from braid.embedded.arguments import (
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
from braid.embedded.subscription import Subscription
from braid.embedded.waiting import running_loop
from braid.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from types import TracebackType

    from braid.embedded.core import Draft
    from braid.embedded.mailbox import Mailbox
    from braid.embedded.statistics import BusStatistics, Receipt
    from braid.language import Filter, Publication

__all__ = ["QUEUE_SIZE", "Bus", "open"]

QUEUE_SIZE = 1000
"""Publications a subscription's queue holds unless told otherwise: enough to ride out a hiccup."""


def open(name: str = "local", *, on_error: ErrorHandler | None = None) -> Bus:
    """An in-process bus; use it in a `with` or `async with` block.

    Args:
        name: the publisher's name on publications that give no other.
        on_error: told of each exception that a callback raises, with the publication it was given;
            and of each callback subscription that was disconnected, with None. A plain function;
            it runs where the callback runs. A subscription may have its own instead.
    """
    return Bus(name, on_error=on_error)


class Bus:
    """Delivers each publication to exactly the subscriptions whose filter it satisfies.

    All methods may be called from any thread, and from inside callbacks. Each subscription receives
    the publications of one publisher in the order of its publish calls, each once.
    """

    def __init__(self, name: str = "local", *, on_error: ErrorHandler | None = None) -> None:
        require_text("the name of a bus", name)
        self._on_error = checked_handler(on_error)
        self._engine = Engine(name)

    @property
    def name(self) -> str:
        """The publisher's name on publications that give no other."""
        return self._engine.name

    @property
    def closed(self) -> bool:
        """True once nothing can be published any more."""
        return self._engine.closed

    # ---- subscribing

    def subscribe(
        self,
        condition: Filter | str,
        callback: Callback | None = None,
        *,
        queue_size: int = QUEUE_SIZE,
        when_full: WhenFull | str = WhenFull.BLOCK,
        name: str | None = None,
        on_error: ErrorHandler | None = None,
    ) -> Subscription:
        """Ask for publications; all that are published after this returns are delivered.

        Args:
            condition: a filter or its text, such as `"symbol = 'ACME' AND price > 10"`.
            callback: called with each `Publication`, one at a time: a plain function in a thread of
                its own, a coroutine function in a task of the event loop that runs here. Without
                one, read from the subscription that is returned.
            queue_size: publications that may wait for the subscriber.
            when_full: what then happens. `"block"`: publishers of what concerns it wait.
                `"drop_oldest"`: the oldest makes room. `"disconnect"`: the subscription ends with
                `SlowConsumerError` after what is queued. Its neighbours notice none of these.
            name: what messages and statistics call it.
            on_error: instead of the bus's own handler.

        Raises:
            FilterSyntaxError: the text is not a filter; nothing was subscribed.
            ConfigurationError: an argument that cannot be.
            BusClosedError: the bus was closed.
        """
        wanted = checked_filter(condition)
        choice = checked_choice(when_full)
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
        delivery = None
        if callback is not None:
            delivery = self._start_delivery(mailbox, callback, handler, is_coroutine)
        return Subscription(self._engine, mailbox, delivery)

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

    # ---- publishing

    def publish(
        self,
        attributes: Mapping[str, Any] | Publication,
        body: bytes = b"",
        content_type: str = "",
        *,
        publisher: str | None = None,
        timeout: float | None = None,
    ) -> Receipt:
        """Deliver one publication; returns when every subscription it concerns has it in its queue.

        Args:
            attributes: what filters see; a flat mapping of names to numbers, strings, booleans, ranges.
                Or a `Publication`, for its attributes, body and content type.
            body: bytes that are carried and never looked at.
            content_type: what the body is, for those who read it.
            publisher: who sends; numbers run per publisher. The bus's own name unless given.
            timeout: seconds to wait for room in full queues with back-pressure; None: as long as it takes.
                A wait of more than five seconds is logged once, with the names of the full subscriptions.

        Raises:
            PublicationError: attributes or a body that cannot be published; names the attribute.
            PublishTimeoutError: some queue stayed full; says which, and what was delivered.
            PublishDeadlockError: waiting could never have ended, as from inside the full queue's callback.
            BusClosedError: the bus was closed, before or while waiting.
        """
        drafts = [checked_draft(attributes, body, content_type)]
        return self._engine.publish(self._checked_publisher(publisher), drafts, checked_timeout(timeout))

    def publish_batch(
        self,
        batch: Iterable[Mapping[str, Any] | Publication],
        *,
        publisher: str | None = None,
        timeout: float | None = None,
    ) -> Receipt:
        """Deliver many publications in their order, matched in one go, which is much faster than singly.

        Each is a mapping of attributes, or a `Publication` for its attributes and body. They are all
        checked first: when one cannot be published, none is. Otherwise as `publish`.
        """
        drafts = checked_drafts(batch)
        return self._engine.publish(self._checked_publisher(publisher), drafts, checked_timeout(timeout))

    async def publish_async(
        self,
        attributes: Mapping[str, Any] | Publication,
        body: bytes = b"",
        content_type: str = "",
        *,
        publisher: str | None = None,
        timeout: float | None = None,  # noqa: ASYNC109 - as `publish`
    ) -> Receipt:
        """As `publish`, but waits without blocking the event loop, and always lets other tasks run."""
        drafts = [checked_draft(attributes, body, content_type)]
        return await self._publish_async(drafts, publisher, timeout)

    async def publish_batch_async(
        self,
        batch: Iterable[Mapping[str, Any] | Publication],
        *,
        publisher: str | None = None,
        timeout: float | None = None,  # noqa: ASYNC109 - as `publish_batch`
    ) -> Receipt:
        """As `publish_batch`, but waits without blocking the event loop, and always lets other tasks run."""
        return await self._publish_async(checked_drafts(batch), publisher, timeout)

    async def _publish_async(
        self, drafts: list[Draft], publisher: str | None, timeout_s: float | None
    ) -> Receipt:
        import asyncio

        sender = self._checked_publisher(publisher)
        receipt = await self._engine.publish_async(sender, drafts, checked_timeout(timeout_s))
        # Without this a publisher that finds room every time would never let a reader run.
        await asyncio.sleep(0)
        return receipt

    def _checked_publisher(self, publisher: str | None) -> str:
        if publisher is None:
            return self._engine.name
        require_text("a publisher", publisher)
        return publisher

    # ---- looking and leaving

    def statistics(self) -> BusStatistics:
        """A snapshot: published, delivered, dropped and so on, in total and per subscription."""
        return self._engine.statistics()

    def close(self, *, drain: bool = True, timeout: float | None = CLOSE_TIMEOUT_S) -> None:
        """End the bus: nothing can be published any more, and publishers that wait are released.

        Iterators can still read what is queued and then end. Callbacks are given what is queued, and
        their threads are waited for, at most `timeout` seconds altogether (None: as long as it takes);
        what is then still queued for them is thrown away. With `drain=False` everything that is queued
        is thrown away at once. From inside a callback, its own end is not waited for; on an event loop,
        the coroutine callbacks of that loop are not (`aclose` awaits them). May be called again.
        """
        self._engine.close(drain, checked_timeout(timeout))

    async def aclose(self, *, drain: bool = True, timeout: float | None = CLOSE_TIMEOUT_S) -> None:  # noqa: ASYNC109
        """As `close`, but waits without blocking the event loop."""
        await self._engine.close_async(drain, checked_timeout(timeout))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        _error: BaseException | None,
        _traceback: TracebackType | None,
    ) -> None:
        self.close(drain=is_orderly(kind))

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        _error: BaseException | None,
        _traceback: TracebackType | None,
    ) -> None:
        await self.aclose(drain=is_orderly(kind))

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

    def __repr__(self) -> str:
        return f"<Bus {self.name!r} {'closed' if self.closed else 'open'}>"


def is_orderly(kind: type[BaseException] | None) -> bool:
    """Whether to hand out what is queued: not when the user or a cancellation wants to leave now."""
    return kind is None or issubclass(kind, Exception)
