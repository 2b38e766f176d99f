"""How does a thread or a task wait until it is woken from any thread?

The bus has one door for both kinds of users: whoever must wait leaves a waiter behind and is woken
through it, whether the waker runs in a thread or on an event loop. The asyncio module is imported
only by those who wait with it.
"""

from __future__ import annotations

import sys
import threading
from contextlib import suppress
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    import asyncio

__all__ = ["Gate", "TaskWaiter", "ThreadWaiter", "Waiter", "running_loop"]


class ThreadWaiter:
    """One wait of one thread; `wake` may come before, during or never."""

    __slots__ = ("_closed_door",)

    loop = None

    def __init__(self) -> None:
        self._closed_door = threading.Lock()
        self._closed_door.acquire()

    def wake(self) -> None:
        """Let the thread go on; called once at most."""
        self._closed_door.release()

    def wait(self, timeout_s: float | None) -> bool:
        """Wait until woken; False when the time was up before."""
        if timeout_s is None:
            return self._closed_door.acquire()
        return self._closed_door.acquire(timeout=min(max(timeout_s, 0.0), threading.TIMEOUT_MAX))


class TaskWaiter:
    """One wait of one asyncio task; `wake` may come from any thread."""

    __slots__ = ("_future", "loop")

    def __init__(self) -> None:
        import asyncio

        self.loop = asyncio.get_running_loop()
        self._future: asyncio.Future[None] = self.loop.create_future()

    def wake(self) -> None:
        """Let the task go on."""
        with suppress(RuntimeError):  # its loop was closed: nobody is left to be woken
            self.loop.call_soon_threadsafe(self._finish)

    async def wait(self, timeout_s: float | None) -> bool:
        """Wait until woken; False when the time was up before."""
        if timeout_s is None:
            await self._future
            return True
        import asyncio

        # Unlike `asyncio.timeout`, this leaves the future alone when the time is up: one may wait again.
        done, _ = await asyncio.wait((self._future,), timeout=timeout_s)
        return bool(done)

    def _finish(self) -> None:
        if not self._future.done():
            self._future.set_result(None)


Waiter: TypeAlias = ThreadWaiter | TaskWaiter


class Gate:
    """Opens once, for all threads and tasks that wait at it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._waiters: list[Waiter] = []
        self.is_open = False

    def open(self) -> None:
        """Let everyone through from now on."""
        with self._lock:
            self.is_open = True
            waiters, self._waiters = self._waiters, []
        for waiter in waiters:
            waiter.wake()

    def wait(self, timeout_s: float | None) -> bool:
        """Wait as a thread; False when the time was up before it opened."""
        waiter = ThreadWaiter()
        return self._is_open_or_joins(waiter) or waiter.wait(timeout_s)

    async def wait_async(self, timeout_s: float | None) -> bool:
        """Wait as a task; False when the time was up before it opened."""
        waiter = TaskWaiter()
        return self._is_open_or_joins(waiter) or await waiter.wait(timeout_s)

    def _is_open_or_joins(self, waiter: Waiter) -> bool:
        with self._lock:
            if not self.is_open:
                self._waiters.append(waiter)
            return self.is_open


def running_loop() -> asyncio.AbstractEventLoop | None:
    """The event loop that runs in this thread, if any, without importing asyncio to find out."""
    module = sys.modules.get("asyncio")
    if module is None:
        return None
    try:
        loop: asyncio.AbstractEventLoop = module.get_running_loop()
    except (RuntimeError, AttributeError):  # none is running, or another thread is importing asyncio
        return None
    return loop
