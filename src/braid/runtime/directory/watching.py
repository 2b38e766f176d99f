"""How do watchers learn of changes? One task reads whenever something may have changed, and compares."""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING

from braid.errors import DirectoryError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from braid.runtime.directory.interface import BrokerEntry, Unwatch, WatchCallback

__all__ = ["WatchList"]

logger = logging.getLogger(__name__)

# Between two attempts to read a directory that cannot be read.
RETRY_S = 0.5


@dataclass(eq=False)
class _Watcher:
    callback: WatchCallback
    seen: dict[str, BrokerEntry] | None = None
    """What it was last called with; None before the first call."""


class WatchList:
    """The watchers of one directory."""

    def __init__(
        self,
        name: str,
        read: Callable[[], Awaitable[dict[str, BrokerEntry]]],
        wait_for_change: Callable[[], Awaitable[None]],
    ) -> None:
        self._name = name
        self._read = read
        self._wait_for_change = wait_for_change
        self._watchers: list[_Watcher] = []
        self._newcomer = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    def add(self, callback: WatchCallback) -> Unwatch:
        """Begin to call it; the returned function ends that, and may be called twice."""
        loop = asyncio.get_running_loop()
        watcher = _Watcher(callback)
        self._watchers.append(watcher)
        self._newcomer.set()
        if self._task is None:
            self._task = loop.create_task(self._run(), name=f"watch {self._name}")

        def unwatch() -> None:
            if watcher in self._watchers:
                self._watchers.remove(watcher)
            if not self._watchers and self._task is not None:
                self._task.cancel()
                self._task = None

        return unwatch

    async def close(self) -> None:
        """End all watches."""
        self._watchers.clear()
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            await asyncio.wait([task])

    async def _run(self) -> None:
        while True:
            self._newcomer.clear()
            try:
                entries = await self._read()
            except DirectoryError as problem:
                logger.warning("watches of %s wait: %s", self._name, problem)
                await asyncio.sleep(RETRY_S)
                continue
            self._tell(entries)
            await self._wait()

    def _tell(self, entries: dict[str, BrokerEntry]) -> None:
        for watcher in tuple(self._watchers):
            # An earlier callback of this round may have ended this watch.
            if watcher.seen == entries or watcher not in self._watchers:
                continue
            watcher.seen = entries
            try:
                watcher.callback(dict(entries))
            except Exception as problem:
                # A watcher's mistake must not cost the others their calls, nor itself the next one.
                asyncio.get_running_loop().call_exception_handler(
                    {"message": f"a watcher of {self._name} failed", "exception": problem}
                )

    async def _wait(self) -> None:
        """Until something may have changed or a new watcher wants its first call."""
        waits = [
            asyncio.ensure_future(self._newcomer.wait()),
            asyncio.ensure_future(self._wait_for_change()),
        ]
        try:
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for wait in waits:
                wait.cancel()
        change = waits[1]
        if change.done() and not change.cancelled() and change.exception() is not None:
            logger.warning("watches of %s wait: %s", self._name, change.exception())
            await asyncio.sleep(RETRY_S)
