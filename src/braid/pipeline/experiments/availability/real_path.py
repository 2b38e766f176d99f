"""What do clients of real brokers feel while a line of them is rewired?

Every broker has its subscriptions and one *reader*; the first and the last have a *writer* each, which
publishes one number after the other.
"""

from __future__ import annotations

import asyncio
import re
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from braid.errors import RequestRefusedError
from braid.pipeline.experiments.availability.real_brokers import RealBrokers

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

__all__ = ["Operation", "RealPath"]

# How long an operation may take; a busy machine is slow, and one that is given up would measure nothing.
OPERATION_S_MAX: Final = 30.0
# How long it is asked for again: a broker that lost a link meanwhile is busy until its operation is overdue.
ASKED_S_MAX: Final = 180.0
AGAIN_S: Final = 0.5

_MOVED = re.compile(r"(\d+) entries moved")


@dataclass(frozen=True, slots=True)
class Operation:
    """One operation, as the operator saw it."""

    path: tuple[str, ...]
    began_s: float
    ended_s: float
    cpu_s: float
    """Processor time of all brokers meanwhile."""


class RealPath(RealBrokers):
    """A line of brokers B1, B2, ... on loopback.

    Args:
        brokers: how many.
        filters: what is asked for at each of them.
        folder: for their logs and the directory of brokers.
        rate: numbers a second, of both writers together.
    """

    def __init__(
        self, brokers: int, filters: Sequence[Sequence[str]], folder: Path, *, rate: float = 500.0
    ) -> None:
        super().__init__(folder, f"[broker]\noperation_us_max = {round(OPERATION_S_MAX * 1e6)}\n")
        self.names = tuple(f"B{number}" for number in range(1, brokers + 1))
        self._filters = filters
        self._rate = rate

    async def _open(self) -> None:
        before = ""
        for name in self.names:
            await self._broker(name, *(("--neighbor", before) if before else ()))
            before = self._addresses[name]
        for name in self.names:
            await self._operate(name)
        await self._linked(self.names[1:])
        for name, filters in zip(self.names, self._filters, strict=True):
            await self._load(name, filters)
        for name in self.names:
            reader = await self._client(name, "reader")
            await reader.subscribe("probe >= 0", self._reading(name))
        writers = (self.names[0], self.names[-1])
        for name in writers:
            self.start_writing(name, await self._client(name, "writer"), self._rate / len(writers))
        self._stack.push_async_callback(self.stop_writing)
        await self.settled(len(writers) * len(self.names))

    def entries_moved(self) -> int:
        """Entries of tables that operations have moved so far, at all brokers together."""
        total = 0
        for name in self.names:
            found = _MOVED.findall(self._said(name))
            total += max(map(int, found), default=0)
        return total

    async def rewire(self, path: Sequence[str], by: str = "") -> Operation:
        """Hang the first broker of a path on its last one instead of the second.

        A broker may still be busy with the end of the operation before; then it is asked again.

        Raises:
            RequestRefusedError: the brokers did not do it.
        """
        kind = "shift" if len(path) == 3 else "direct"
        arguments = {"operation": kind, "path": ",".join(path)}
        if kind == "shift":
            arguments = dict(zip(("operation", "moving", "old", "new"), ("shift", *path), strict=True))
        if by:
            arguments["by"] = by
        deadline_s = time.monotonic() + ASKED_S_MAX
        while True:
            cpu_s, began_s = self.cpu_s(), time.monotonic()
            try:
                answer = await self._operators[path[0]].ask("reconfigure", **arguments)
            except RequestRefusedError:
                if time.monotonic() > deadline_s:
                    raise
                await asyncio.sleep(AGAIN_S)
                continue
            ended_s = time.monotonic()
            if answer.get("outcome") != "finished":
                raise RequestRefusedError(f"{kind} of {', '.join(path)} came to {answer}")
            return Operation(tuple(path), began_s, ended_s, self.cpu_s() - cpu_s)
