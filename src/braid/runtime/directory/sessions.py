"""What do all directories do alike? Everything that needs no storage: who registered, who watches, who waits.

Each directory object has a *session* with whatever keeps the directory. Entries and locks belong to the
session and go with it. A subclass offers small steps (`_place`, `_try_lock`, ...); this class calls them in
the right order, repeats them when a session was lost, and cleans up behind cancelled callers.
"""

from __future__ import annotations

import asyncio
import logging
import math
from abc import abstractmethod
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING

from braid.errors import ConfigurationError, DirectoryError
from braid.runtime.directory.interface import Directory, HeldLock
from braid.runtime.directory.stored import new_holder
from braid.runtime.directory.watching import WatchList

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterable, Sequence

    from braid.runtime.directory.interface import (
        BrokerEntry,
        DirectorySettings,
        Unwatch,
        WatchCallback,
    )
    from braid.runtime.directory.stored import LockHolder

__all__ = ["SessionDirectory", "refusal"]

logger = logging.getLogger(__name__)


class SessionDirectory(Directory):
    """A directory whose entries and locks live as long as its session."""

    def __init__(self, name: str, settings: DirectorySettings) -> None:
        """`name` is what error messages call it, such as `the directory /var/lib/braid/brokers.db`."""
        self.name = name
        self.settings = settings
        self._registered: dict[str, BrokerEntry] = {}
        # The last registration of a broker that failed or was cancelled.
        self._uncertain: dict[str, BrokerEntry] = {}
        # Locks that a cancelled or failed caller may have left behind. Each is gone after one successful
        # round of maintenance, so there are never more than callers within one heartbeat.
        self._abandoned: list[tuple[str, LockHolder]] = []
        self._opening = asyncio.Lock()
        self._is_open = False
        self._is_closed = False
        # Registrations and maintenance take turns: a round that began before a deregistration would undo it.
        self._registering = asyncio.Lock()
        self._maintenance: asyncio.Task[None] | None = None
        self._maintenance_is_due = asyncio.Event()
        self._watches = WatchList(self.name, self._read_for_watch, self._wait_for_change)

    @property
    def lock_lease_s(self) -> float:
        """For how long locks are kept for a session that says nothing."""
        return self.settings.lease_s

    # The steps of a subclass. They raise DirectoryError, and none takes longer than the operation timeout.

    @abstractmethod
    async def _open(self) -> None:
        """Begin a session."""

    @abstractmethod
    async def _shut(self) -> None:
        """End the session, and with it its entries and locks."""

    @abstractmethod
    async def _read(self) -> dict[str, BrokerEntry]:
        """All living brokers, sorted."""

    @abstractmethod
    async def _wait_for_change(self) -> None:
        """Return when entries may have changed since the last `_read_for_watch`; early is allowed."""

    @abstractmethod
    async def _place(self, entry: BrokerEntry) -> None:
        """Enter it with its neighbour record, or raise `refusal` when another living broker has the id."""

    @abstractmethod
    async def _replace(self, entry: BrokerEntry) -> None:
        """Overwrite the entry of the same incarnation, and the neighbour record."""

    @abstractmethod
    async def _withdraw(self, entry: BrokerEntry) -> None:
        """Remove the entry, if it is still of this incarnation."""

    @abstractmethod
    async def _keep(self, entries: Sequence[BrokerEntry]) -> list[BrokerEntry]:
        """Renew the session and re-enter what was lost; return those that others have taken over."""

    @abstractmethod
    async def _read_neighbours(self, broker_id: str) -> tuple[str, ...]:
        """The neighbour record, or nothing."""

    @abstractmethod
    async def _erase_neighbours(self, broker_id: str) -> None:
        """Remove the neighbour record, if there is one."""

    @abstractmethod
    async def _try_lock(self, broker_id: str, holder: LockHolder) -> LockHolder:
        """Take the lock if it is free; return who holds it now."""

    @abstractmethod
    async def _unlock(self, broker_id: str, holder: LockHolder) -> None:
        """Release the lock, if this holder has it."""

    @abstractmethod
    async def _lock_holder(self, broker_id: str) -> LockHolder | None:
        """Who holds the lock now."""

    @abstractmethod
    async def _lock_epoch(self, broker_ids: Sequence[str], holder: LockHolder) -> int | None:
        """Renew the session; the largest epoch of these locks, or None if the holder lacks one of them.

        Each lock gets an epoch when it is taken, from one counter for all. While a holder has all of its
        locks, whoever takes one later gets a larger epoch than the largest of them.
        """

    @abstractmethod
    async def _wait_for_release(self, broker_id: str) -> None:
        """Return when the lock may be free; early is allowed."""

    # What users call.

    async def register(self, entry: BrokerEntry) -> None:
        await self._ensure_open()
        async with self._registering:
            # Until it has succeeded, nobody knows; a cancelled or timed-out request may still be carried out.
            self._uncertain[entry.broker_id] = entry
            await self._place(entry)
            self._registered[entry.broker_id] = self._uncertain.pop(entry.broker_id)

    async def update(self, entry: BrokerEntry) -> None:
        await self._ensure_open()
        async with self._registering:
            known = self._registered.get(entry.broker_id)
            if known is None or known.incarnation != entry.incarnation:
                raise DirectoryError(
                    f"broker {entry.broker_id!r} (incarnation {entry.incarnation!r}) cannot be updated: it "
                    f"is not registered through this object in {self.name}, or another start of it took "
                    "over; register it first"
                )
            await self._replace(entry)
            self._registered[entry.broker_id] = entry

    async def deregister(self, broker_id: str) -> None:
        await self._ensure_open()
        async with self._registering:
            for entries in (self._uncertain, self._registered):
                if broker_id in entries:
                    await self._withdraw(entries[broker_id])
                    del entries[broker_id]
            other = await self._read_one(broker_id)
        if other is not None:
            raise DirectoryError(
                f"broker {broker_id!r} in {self.name} was registered by another process, at "
                f"{', '.join(other.addresses)}; stop that broker, and its entry goes by itself"
            )

    async def brokers(self) -> dict[str, BrokerEntry]:
        await self._ensure_open()
        return await self._read()

    async def get(self, broker_id: str) -> BrokerEntry | None:
        await self._ensure_open()
        return await self._read_one(broker_id)

    async def neighbours_of(self, broker_id: str) -> tuple[str, ...]:
        await self._ensure_open()
        return await self._read_neighbours(broker_id)

    async def forget(self, broker_id: str) -> None:
        alive = await self.get(broker_id)
        if alive is not None:
            raise DirectoryError(
                f"broker {broker_id!r} is alive at {', '.join(alive.addresses)} according to {self.name}; "
                "stop it before it is forgotten"
            )
        await self._erase_neighbours(broker_id)

    def watch(self, callback: WatchCallback) -> Unwatch:
        self._require_not_closed()
        return self._watches.add(callback)

    @asynccontextmanager
    async def lock(self, broker_ids: Iterable[str], timeout_s: float) -> AsyncIterator[HeldLock]:
        if not (math.isfinite(timeout_s) and timeout_s > 0):
            raise ConfigurationError(
                f"timeout_s is {timeout_s!r}; a lock needs a finite number of seconds above 0"
            )
        await self._ensure_open()
        holder = new_holder(self._registered)
        held: list[str] = []
        deadline_s = asyncio.get_running_loop().time() + timeout_s
        try:
            for broker_id in sorted(set(broker_ids)):
                await self._lock_one(broker_id, holder, deadline_s, timeout_s)
                held.append(broker_id)
            # The first may have been lost while we waited for the last.
            hold = _Held(self, tuple(held), holder)
            if not await hold.renew():
                raise await self._lost_error(held, holder)
            yield hold
        finally:
            # Also when cancelled: the task goes on by itself, and what it cannot release maintenance will.
            await asyncio.shield(asyncio.ensure_future(self._release(held, holder)))

    async def close(self) -> None:
        if self._is_closed:
            return
        self._is_closed = True
        await self._watches.close()
        if self._maintenance is not None:
            self._maintenance.cancel()
            await asyncio.wait([self._maintenance])
        async with self._opening, self._registering:
            if self._is_open:
                self._is_open = False
                await self._shut()

    # How it holds together.

    async def _ensure_open(self) -> None:
        self._require_not_closed()
        if self._is_open:
            return
        async with self._opening:
            self._require_not_closed()
            if not self._is_open:
                await self._open()
                self._is_open = True
                self._maintenance = asyncio.create_task(self._maintain(), name=f"keep {self.name}")

    def _require_not_closed(self) -> None:
        if self._is_closed:
            raise self._closed_error()

    async def _lost_error(self, broker_ids: Sequence[str], holder: LockHolder) -> DirectoryError:
        """What to say when one of these locks is no longer this holder's."""
        for broker_id in broker_ids:
            current = await self._lock_holder(broker_id)
            if current is None or current.token != holder.token:
                break
        return DirectoryError(
            f"the lock on broker {broker_id!r} in {self.name} was lost and is now held by "
            f"{current.name if current else 'nobody'}: this process did not renew its session for "
            f"more than {self.settings.lease_s:g} s; stop what the lock was for"
        )

    def _closed_error(self) -> DirectoryError:
        return DirectoryError(f"{self.name} was closed; open it again with open_directory")

    async def _read_for_watch(self) -> dict[str, BrokerEntry]:
        """Like `_read`, and prepare to notice what changes after it."""
        await self._ensure_open()
        return await self._read()

    async def _read_one(self, broker_id: str) -> BrokerEntry | None:
        """One living broker."""
        return (await self._read()).get(broker_id)

    async def _lock_one(
        self, broker_id: str, holder: LockHolder, deadline_s: float, timeout_s: float
    ) -> None:
        """Try, wait for a release, try again, until the deadline."""
        loop = asyncio.get_running_loop()
        while True:
            attempt = asyncio.ensure_future(self._try_lock(broker_id, holder))
            try:
                current = await asyncio.shield(attempt)
            except asyncio.CancelledError:
                # The attempt may still succeed behind our back.
                attempt.add_done_callback(lambda done: self._abandon(broker_id, holder, done))
                raise
            except DirectoryError:
                self._abandon(broker_id, holder)
                raise
            if current.token == holder.token:
                return
            with suppress(TimeoutError):
                async with asyncio.timeout_at(deadline_s):
                    await self._wait_for_release(broker_id)
            if loop.time() >= deadline_s:
                raise DirectoryError(
                    f"no lock on broker {broker_id!r} in {self.name} after {timeout_s:g} s: it is held by "
                    f"{current.name}; try again when that has finished, or stop that process"
                )

    async def _release(self, broker_ids: list[str], holder: LockHolder) -> None:
        for broker_id in reversed(broker_ids):
            if not self._is_open:
                return  # the session has ended, and the locks with it
            try:
                await self._unlock(broker_id, holder)
            except DirectoryError as problem:
                logger.warning("lock on broker %r not released yet: %s", broker_id, problem)
                self._abandon(broker_id, holder)

    def _abandon(
        self, broker_id: str, holder: LockHolder, attempt: asyncio.Future[LockHolder] | None = None
    ) -> None:
        if attempt is not None and not attempt.cancelled():
            attempt.exception()  # its caller was cancelled: nobody else will look at it
        self._abandoned.append((broker_id, holder))
        self._maintenance_is_due.set()

    async def _maintain(self) -> None:
        """Renew, re-enter and clean up until closed: once per heartbeat, and at once when asked for."""
        while True:
            with suppress(TimeoutError):
                async with asyncio.timeout(self.settings.heartbeat_s):
                    await self._maintenance_is_due.wait()
            self._maintenance_is_due.clear()
            try:
                await self._maintain_once()
            except DirectoryError as problem:
                logger.warning("%s is not kept up to date; the next attempt follows: %s", self.name, problem)
            except Exception:
                # A lease that is never renewed again would take a healthy broker off the network.
                logger.exception("unexpected trouble with %s; the next attempt follows", self.name)

    async def _maintain_once(self) -> None:
        async with self._registering:
            for lost in await self._keep(tuple(self._registered.values())):
                del self._registered[lost.broker_id]
                logger.warning(
                    "another start of broker %r has taken over its entry in %s; incarnation %r is out",
                    lost.broker_id,
                    self.name,
                    lost.incarnation,
                )
        while self._abandoned:
            await self._unlock(*self._abandoned[0])
            del self._abandoned[0]


class _Held(HeldLock):
    def __init__(self, directory: SessionDirectory, broker_ids: tuple[str, ...], holder: LockHolder) -> None:
        self.broker_ids = broker_ids
        self.epoch = 0
        self.lease_s = directory.lock_lease_s
        self.renewed_at_s = 0.0
        self._directory = directory
        self._holder = holder

    async def renew(self) -> bool:
        await self._directory._ensure_open()
        asked_at_s = asyncio.get_running_loop().time()
        epoch = await self._directory._lock_epoch(self.broker_ids, self._holder)
        if epoch is None:
            return False
        self.epoch = epoch
        self.renewed_at_s = asked_at_s
        return True

    async def verify(self) -> None:
        if not await self.renew():
            raise await self._directory._lost_error(self.broker_ids, self._holder)


def refusal(entry: BrokerEntry, other: BrokerEntry, name: str) -> DirectoryError:
    """Two living brokers with one id."""
    return DirectoryError(
        f"broker id {entry.broker_id!r} is taken in {name}: a living broker with this id listens at "
        f"{', '.join(other.addresses)} (incarnation {other.incarnation!r}), and this one at "
        f"{', '.join(entry.addresses)}; choose another id, or stop that broker first. If it has just died, "
        "its entry goes when its lease runs out"
    )
