"""Keeps the entry of a broker in the directory: who it is, where it is, and which neighbours it has."""

from __future__ import annotations

import asyncio
import logging
import time
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from braid.errors import DirectoryError
from braid.runtime.directory import BrokerEntry

if TYPE_CHECKING:
    from braid.broker.core import BrokerCore
    from braid.runtime.directory import Directory

__all__ = ["Registration", "known_neighbours"]

# How soon the directory is told again what it could not be told.
AGAIN_S: Final = 1.0

_log = logging.getLogger("braid.broker")


async def known_neighbours(directory: Directory | None, broker_id: str) -> list[tuple[str, str]]:
    """The neighbours that the directory remembers; their addresses where they live."""
    if directory is None:
        return []
    names = await directory.neighbours_of(broker_id)
    living = await directory.brokers() if names else {}
    return [(name, living[name].addresses[0] if name in living else "") for name in names]


class Registration:
    """Keeps the directory's entry of a broker, with its neighbours as they are."""

    def __init__(self, directory: Directory, core: BrokerCore) -> None:
        self._directory = directory
        self._entry = BrokerEntry(
            broker_id=core.settings.broker_id,
            addresses=(core.settings.address,),
            neighbours=tuple(sorted(core.statistics()["link_waiting_bytes"])),
            incarnation=core.incarnation,
            registered_at_us=time.time_ns() // 1000,
        )
        self._neighbours = self._entry.neighbours
        self._changed = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    async def begin(self) -> None:
        """Enter the broker, and keep the entry true from now on."""
        await self._directory.register(self._entry)
        self._task = asyncio.get_running_loop().create_task(self._keep())

    def changed(self, neighbours: tuple[str, ...]) -> None:
        """The broker has these neighbours now."""
        self._neighbours = neighbours
        self._changed.set()

    async def end(self) -> None:
        """Take the entry back."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])
        try:
            await self._directory.deregister(self._entry.broker_id)
        except DirectoryError as error:
            _log.warning("the directory still lists this broker", extra={"fields": {"reason": str(error)}})

    async def _keep(self) -> None:
        complained = False
        while True:
            await self._changed.wait()
            self._changed.clear()
            entry = replace(self._entry, neighbours=self._neighbours)
            if entry == self._entry:
                continue
            try:
                await self._directory.update(entry)
            except DirectoryError as error:
                if not complained:
                    reason = {"reason": str(error)}
                    _log.error("the directory could not be told of the neighbours", extra={"fields": reason})
                complained = True
                self._changed.set()
                await asyncio.sleep(AGAIN_S)
            else:
                self._entry, complained = entry, False
