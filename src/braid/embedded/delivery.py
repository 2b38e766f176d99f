"""In which thread or task does a callback run?

A plain callback has one thread of its own, from `subscribe` to the end of the subscription: a slow
callback never stalls its neighbours, and whatever it keeps per thread stays with it. A coroutine
function runs in one task on the event loop that subscribed. Both are called for one publication at
a time, in order. An exception is logged, counted and passed to `on_error`; then the next publication
follows. Only who cancels the task itself, or leaves the program on its event loop, ends it.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Awaitable, Callable
from types import CoroutineType
from typing import TYPE_CHECKING, Any, TypeAlias

from braid.embedded.waiting import Gate, running_loop
from braid.errors import ConfigurationError
from braid.language import Publication

if TYPE_CHECKING:
    import asyncio

    from braid.embedded.engine import Engine
    from braid.embedded.mailbox import Mailbox

__all__ = [
    "DELIVERIES_IN_A_ROW_MAX",
    "Callback",
    "CallbackTask",
    "CallbackThread",
    "Delivery",
    "ErrorHandler",
    "require_plain",
]

Callback: TypeAlias = Callable[[Publication], Any]
ErrorHandler: TypeAlias = Callable[[BaseException, "Publication | None"], object]

# A busy task gives way to the others of its loop this often.
DELIVERIES_IN_A_ROW_MAX = 64

logger = logging.getLogger("braid.embedded")


class CallbackThread:
    """Calls a plain callback in a thread of its own."""

    loop = None

    def __init__(
        self, engine: Engine, mailbox: Mailbox, callback: Callback, on_error: ErrorHandler | None
    ) -> None:
        self.mailbox = mailbox
        self.given_up = False
        self._engine = engine
        self._callback = callback
        self._on_error = on_error
        self._gate = Gate()
        # A daemon, so that a bus someone forgot to close does not keep the interpreter alive.
        self._thread = threading.Thread(
            target=self._run, name=f"braid-{engine.name}-{mailbox.name}", daemon=True
        )

    @property
    def finished(self) -> bool:
        """True when the thread has ended."""
        return self._gate.is_open and not self._thread.is_alive()

    def start(self) -> None:
        """Begin to call."""
        try:
            self._thread.start()
        except RuntimeError:
            self._gate.open()  # nothing to wait for: the system has no more threads to give
            raise

    def is_current(self) -> bool:
        """True inside the callback."""
        return self._thread.ident == threading.get_ident()

    def wait(self, timeout_s: float | None) -> bool:
        """Wait as a thread until the last call has returned."""
        if not self._gate.wait(timeout_s):
            return False
        self._join()
        return True

    async def wait_async(self, timeout_s: float | None) -> bool:
        """Wait as a task until the last call has returned."""
        if not await self._gate.wait_async(timeout_s):
            return False
        self._join()
        return True

    def _join(self) -> None:
        if self._thread.ident is not None:  # it was started, and has nothing left to do
            self._thread.join()

    def _run(self) -> None:
        try:
            while (publication := self._engine.get(self.mailbox, None)) is not None:
                try:
                    require_plain("a callback", self._callback(publication))
                except BaseException as error:
                    report(self._engine, self.mailbox, self._on_error, error, publication)
                del publication  # not kept alive while waiting for the next
            if self.mailbox.failure is not None:
                report_end(self.mailbox, self._on_error)
        finally:
            # However the thread ends, the subscription ends with it: its queue would only fill up.
            self._engine.unsubscribe(self.mailbox)
            self._gate.open()


class CallbackTask:
    """Awaits a coroutine function in a task of the event loop that subscribed."""

    def __init__(
        self,
        engine: Engine,
        mailbox: Mailbox,
        callback: Callable[[Publication], Awaitable[Any]],
        on_error: ErrorHandler | None,
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        self.mailbox = mailbox
        self.loop = loop
        self.given_up = False
        self._engine = engine
        self._callback = callback
        self._on_error = on_error
        self._gate = Gate()
        self._task: asyncio.Task[None] | None = None

    @property
    def finished(self) -> bool:
        """True when the task has ended, or never can because its loop is closed."""
        return self._gate.is_open or self.loop.is_closed()

    def start(self) -> None:
        """Begin to call."""
        self._task = self.loop.create_task(self._run(), name=f"braid-{self._engine.name}-{self.mailbox.name}")

    def is_current(self) -> bool:
        """True inside the callback, as long as it does not start tasks of its own."""
        if self._task is None or running_loop() is not self.loop:
            return False
        import asyncio

        return asyncio.current_task(self.loop) is self._task

    def wait(self, timeout_s: float | None) -> bool:
        """Wait as a thread until the last call has returned."""
        if not self.loop.is_running():
            return self.finished
        return self._gate.wait(timeout_s)

    async def wait_async(self, timeout_s: float | None) -> bool:
        """Wait as a task until the last call has returned."""
        if not self.loop.is_running():
            return self.finished
        return await self._gate.wait_async(timeout_s)

    async def _run(self) -> None:
        import asyncio

        calls = 0
        task = asyncio.current_task()
        try:
            while (publication := await self._engine.get_async(self.mailbox, None)) is not None:
                try:
                    await self._callback(publication)
                except (Exception, asyncio.CancelledError) as error:
                    if isinstance(error, asyncio.CancelledError) and task is not None and task.cancelling():
                        raise
                    # Something that the callback awaited was cancelled, which is its own affair.
                    report(self._engine, self.mailbox, self._on_error, error, publication)
                del publication
                calls += 1
                if calls % DELIVERIES_IN_A_ROW_MAX == 0:
                    await asyncio.sleep(0)
            if self.mailbox.failure is not None:
                report_end(self.mailbox, self._on_error)
        finally:
            # Whoever cancels the task ends the subscription: its queue would only fill up.
            self._engine.unsubscribe(self.mailbox)
            self._gate.open()


Delivery: TypeAlias = CallbackThread | CallbackTask


def report(
    engine: Engine,
    mailbox: Mailbox,
    on_error: ErrorHandler | None,
    error: BaseException,
    publication: Publication,
) -> None:
    """Log and count what a callback raised, and tell whoever wants to know."""
    engine.count_error(mailbox)
    logger.error(
        "the callback of subscription %r raised %r for publication %d of %r",
        mailbox.name,
        error,
        publication.sequence,
        publication.publisher,
        exc_info=error,
    )
    tell(mailbox, on_error, error, publication)


def report_end(mailbox: Mailbox, on_error: ErrorHandler | None) -> None:
    """Log that a subscription was disconnected, and tell whoever wants to know."""
    if mailbox.failure is not None:
        logger.warning("%s", mailbox.failure)
        tell(mailbox, on_error, mailbox.failure, None)


def tell(
    mailbox: Mailbox, on_error: ErrorHandler | None, error: BaseException, publication: Publication | None
) -> None:
    """Call an error handler, whose own errors are only logged."""
    if on_error is None:
        return
    try:
        require_plain("an on_error handler", on_error(error, publication))
    except BaseException as mistake:
        logger.exception("the on_error handler of subscription %r raised", mailbox.name)
        # A thread of ours has nowhere to exit to; an event loop belongs to someone who may want to.
        if isinstance(mistake, (KeyboardInterrupt, SystemExit)) and running_loop() is not None:
            raise


def require_plain(what: str, result: object) -> None:
    """Raise when a plain function returned a coroutine, which nobody would ever await."""
    if isinstance(result, CoroutineType):
        result.close()
        raise ConfigurationError(
            f"{what} returned a coroutine, which is never awaited; "
            "a callback that awaits must be passed as the coroutine function itself"
        )
