"""An event loop in a thread of its own, and what lives on it: for faces that ordinary threads may call.

The thread begins with something that is awaited (a client, a broker) and ends when it is asked to leave. Who
calls from another thread has work done there and waits for it.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import threading
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from braid.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine

__all__ = ["LoopThread"]

Lives = TypeVar("Lives")
Answer = TypeVar("Answer")


class LoopThread(Generic[Lives]):
    """Something that lives on an event loop of its own.

    Args:
        name: of the thread.
        begin: is awaited there; what it gives lives on that loop.
        end: is awaited at the end of that life.
        loop_factory: makes the loop; by default it is asyncio's.

    Raises:
        BaseException: whatever `begin` raises.
    """

    def __init__(
        self,
        name: str,
        begin: Awaitable[Lives],
        *,
        end: Callable[[Lives], Awaitable[None]] | None = None,
        loop_factory: Callable[[], asyncio.AbstractEventLoop] | None = None,
    ) -> None:
        self.lives: Lives
        """What lives there."""
        self._begin = begin
        self._end = end
        self._loop_factory = loop_factory
        self._loop: asyncio.AbstractEventLoop
        self._leave: asyncio.Event
        begun: concurrent.futures.Future[None] = concurrent.futures.Future()
        self._thread = threading.Thread(target=self._run, args=(begun,), name=name, daemon=True)
        self._thread.start()
        try:
            begun.result()
        except BaseException:
            self.leave()
            if begun.done():  # otherwise the one who waits was interrupted
                self._thread.join()
            raise

    def _run(self, begun: concurrent.futures.Future[None]) -> None:
        with asyncio.Runner(loop_factory=self._loop_factory) as runner:
            runner.run(self._live(begun))

    async def _live(self, begun: concurrent.futures.Future[None]) -> None:
        self._loop = asyncio.get_running_loop()
        self._leave = asyncio.Event()
        try:
            self.lives = await self._begin
        except BaseException as error:
            begun.set_exception(error)
            return
        begun.set_result(None)
        try:
            await self._leave.wait()
        finally:
            if self._end is not None:
                await self._end(self.lives)

    @property
    def alive(self) -> bool:
        """Whether the thread has not ended."""
        return self._thread.is_alive()

    def call_soon(self, function: Callable[[], None]) -> None:
        """Have a function called there.

        Raises:
            RuntimeError: the loop has ended.
        """
        self._loop.call_soon_threadsafe(function)

    def submit(self, work: Coroutine[Any, Any, Answer], instead: str) -> concurrent.futures.Future[Answer]:
        """Have work done there.

        Args:
            work: what is to be done.
            instead: what to use instead, for who asks for it on that very thread.

        Raises:
            ConfigurationError: it would wait for itself.
            RuntimeError: the loop has ended.
        """
        if threading.current_thread() is self._thread:
            work.close()
            raise ConfigurationError(f"this would wait for itself; use {instead} on an event loop")
        try:
            return asyncio.run_coroutine_threadsafe(work, self._loop)
        except RuntimeError:
            work.close()
            raise

    def leave(self) -> None:
        """Ask it to end; nothing happens if it has ended."""
        try:
            self._loop.call_soon_threadsafe(self._leave.set)
        except (RuntimeError, AttributeError):
            return  # the loop has ended, or has not even begun

    def join(self, timeout_s: float | None = None) -> None:
        """Wait until the thread has ended."""
        self._thread.join(timeout_s)
