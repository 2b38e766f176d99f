"""Where do brokers of one process find each other? In a plain object, for tests and small experiments.

`memory:` is a directory of its own; all `memory:NAME` of one process are sessions of the same one. A session
ends with `close` only: nothing here can die by itself.
"""

from __future__ import annotations

import asyncio
import threading
import weakref
from contextlib import suppress
from typing import TYPE_CHECKING

from braid.errors import DirectoryError
from braid.runtime.directory.sessions import SessionDirectory, refusal

if TYPE_CHECKING:
    from collections.abc import Sequence

    from braid.runtime.directory.interface import BrokerEntry, DirectorySettings
    from braid.runtime.directory.stored import LockHolder

__all__ = ["MemoryDirectory"]


class _Shared:
    """What all sessions see. Sessions may run on the event loops of several threads."""

    def __init__(self) -> None:
        self.mutex = threading.Lock()
        self.entries: dict[str, tuple[BrokerEntry, MemoryDirectory]] = {}
        self.neighbours: dict[str, tuple[str, ...]] = {}
        self.locks: dict[str, tuple[LockHolder, MemoryDirectory]] = {}
        self.epochs: dict[str, int] = {}
        """Of the last hold of each lock."""
        self.epoch = 0
        self.sessions: set[MemoryDirectory] = set()

    def wake_all(self) -> None:
        for session in tuple(self.sessions):
            session.wake()


_named: weakref.WeakValueDictionary[str, _Shared] = weakref.WeakValueDictionary()
_named_mutex = threading.Lock()


def _shared_by(name: str) -> _Shared:
    if not name:
        return _Shared()
    with _named_mutex:
        shared = _named.get(name)
        if shared is None:
            shared = _named[name] = _Shared()
        return shared


class MemoryDirectory(SessionDirectory):
    """A session with a directory in this process."""

    def __init__(self, name: str, settings: DirectorySettings) -> None:
        super().__init__(f"the directory memory:{name}", settings)
        self._shared = _shared_by(name)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._changes = 0
        self._changes_read = 0
        self._change = asyncio.Event()

    def wake(self) -> None:
        """Something changed; called from the thread of any session."""
        if self._loop is not None:
            with suppress(RuntimeError):  # its loop was closed: nobody is left to be woken
                self._loop.call_soon_threadsafe(self._note_change)

    def _note_change(self) -> None:
        # Those who wait now hold the old object; those who come later wait for the next change.
        self._changes += 1
        self._change.set()
        self._change = asyncio.Event()

    async def _open(self) -> None:
        self._loop = asyncio.get_running_loop()
        with self._shared.mutex:
            self._shared.sessions.add(self)

    async def _shut(self) -> None:
        shared = self._shared
        with shared.mutex:
            shared.sessions.discard(self)
            shared.entries = {key: pair for key, pair in shared.entries.items() if pair[1] is not self}
            shared.locks = {key: pair for key, pair in shared.locks.items() if pair[1] is not self}
            shared.wake_all()

    async def _read(self) -> dict[str, BrokerEntry]:
        with self._shared.mutex:
            return {key: self._shared.entries[key][0] for key in sorted(self._shared.entries)}

    async def _read_for_watch(self) -> dict[str, BrokerEntry]:
        self._changes_read = self._changes
        return await super()._read_for_watch()

    async def _wait_for_change(self) -> None:
        if self._changes == self._changes_read:
            await self._change.wait()

    async def _place(self, entry: BrokerEntry) -> None:
        with self._shared.mutex:
            other = self._shared.entries.get(entry.broker_id)
            if other is not None and not entry.may_replace(other[0]):
                raise refusal(entry, other[0], self.name)
            self._write(entry)

    async def _replace(self, entry: BrokerEntry) -> None:
        with self._shared.mutex:
            other = self._shared.entries.get(entry.broker_id)
            if other is None or other[1] is not self:
                raise DirectoryError(
                    f"broker {entry.broker_id!r} cannot be updated: another start of it took over in "
                    f"{self.name}"
                )
            self._write(entry)

    def _write(self, entry: BrokerEntry) -> None:
        self._shared.entries[entry.broker_id] = (entry, self)
        self._shared.neighbours[entry.broker_id] = entry.neighbours
        self._shared.wake_all()

    async def _withdraw(self, entry: BrokerEntry) -> None:
        with self._shared.mutex:
            other = self._shared.entries.get(entry.broker_id)
            if other is not None and other[0].incarnation == entry.incarnation:
                del self._shared.entries[entry.broker_id]
                self._shared.wake_all()

    async def _keep(self, entries: Sequence[BrokerEntry]) -> list[BrokerEntry]:
        with self._shared.mutex:
            taken_over = []
            for entry in entries:
                current = self._shared.entries.get(entry.broker_id)
                if current is None:
                    self._write(entry)
                elif current[1] is not self:
                    taken_over.append(entry)
            return taken_over

    async def _read_neighbours(self, broker_id: str) -> tuple[str, ...]:
        with self._shared.mutex:
            return self._shared.neighbours.get(broker_id, ())

    async def _erase_neighbours(self, broker_id: str) -> None:
        with self._shared.mutex:
            self._shared.neighbours.pop(broker_id, None)

    async def _try_lock(self, broker_id: str, holder: LockHolder) -> LockHolder:
        with self._shared.mutex:
            if broker_id not in self._shared.locks:
                self._shared.locks[broker_id] = (holder, self)
                self._shared.epoch += 1
                self._shared.epochs[broker_id] = self._shared.epoch
            return self._shared.locks[broker_id][0]

    async def _unlock(self, broker_id: str, holder: LockHolder) -> None:
        with self._shared.mutex:
            if self._shared.locks.get(broker_id, (None,))[0] == holder:
                del self._shared.locks[broker_id]
                self._shared.wake_all()

    async def _lock_holder(self, broker_id: str) -> LockHolder | None:
        with self._shared.mutex:
            return self._shared.locks.get(broker_id, (None,))[0]

    async def _lock_epoch(self, broker_ids: Sequence[str], holder: LockHolder) -> int | None:
        with self._shared.mutex:
            if any(self._shared.locks.get(each, (None,))[0] != holder for each in broker_ids):
                return None
            return max((self._shared.epochs[each] for each in broker_ids), default=0)

    async def _wait_for_release(self, broker_id: str) -> None:
        change = self._change
        if await self._lock_holder(broker_id) is not None:
            await change.wait()
