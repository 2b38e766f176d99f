"""How does a machine get the locks of a directory?

`DirectoryLocks` turns the effects `Lock` and `Unlock` into calls of a `Directory`. While locks are held it
renews them, and it says `LockLost` before another process can have them: a lease counts from the moment at
which its renewal was asked for, which is before the directory counts it.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Final

from braid.errors import BraidError, DirectoryError
from braid.protocol.effects import Lock
from braid.protocol.inputs import Locked, LockLost, LockRefused

if TYPE_CHECKING:
    from collections.abc import Callable

    from braid.protocol.effects import Unlock
    from braid.protocol.inputs import Input
    from braid.runtime.directory import Directory
    from braid.runtime.directory.interface import HeldLock

__all__ = ["DirectoryLocks"]

# Locks are renewed so often during their lease.
RENEWALS_PER_LEASE: Final = 4

_log = logging.getLogger("braid.locks")


class DirectoryLocks:
    """The locks that one machine holds or waits for, on the running event loop."""

    def __init__(self, directory: Directory, report: Callable[[Input], None]) -> None:
        """`report` hands the machine what happened, as `Node.report` does."""
        self._directory = directory
        self._report = report
        self._wishes: dict[int, asyncio.Task[None]] = {}

    def __call__(self, wish: Lock | Unlock) -> None:
        """Take locks, or give them back; answers are reported."""
        if isinstance(wish, Lock):
            self._wishes[wish.token] = asyncio.get_running_loop().create_task(self._hold(wish))
        else:
            task = self._wishes.pop(wish.token, None)
            if task is not None:
                task.cancel()  # leaving `Directory.lock` gives back whatever was taken

    async def close(self) -> None:
        """Give everything back; nothing is reported any more."""
        tasks = list(self._wishes.values())
        self._wishes.clear()
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)

    async def _hold(self, wish: Lock) -> None:
        taken = False
        try:
            async with self._directory.lock(wish.brokers, wish.wait_us_max / 1e6) as held:
                taken = True
                self._report(Locked(wish.token, held.broker_ids, held.epoch))
                reason = await _keep(held)
        except BraidError as error:
            reason = str(error)
        # An `Unlock` would have cancelled us: what is left to say is that it ended by itself.
        if self._wishes.pop(wish.token, None) is not None:
            self._report(LockLost(wish.token, reason) if taken else LockRefused(wish.token, reason))


async def _keep(held: HeldLock) -> str:
    """Renew locks until they are lost; says why."""
    loop = asyncio.get_running_loop()
    while True:
        await asyncio.sleep(held.lease_s / RENEWALS_PER_LEASE)
        ours_until_s = held.renewed_at_s + held.lease_s
        try:
            async with asyncio.timeout_at(ours_until_s):
                if not await held.renew():
                    return "the directory has given them to others"
        except TimeoutError:
            return f"they could not be renewed for {held.lease_s:g} s"
        except DirectoryError as error:
            if loop.time() >= ours_until_s:
                return str(error)
            _log.warning("locks are not renewed yet", extra={"fields": {"reason": str(error)}})
