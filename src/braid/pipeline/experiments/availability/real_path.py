"""What do clients of real brokers feel while a line of them is rewired?

Brokers are processes of their own, as in the paper's evaluation (section V). Every broker has its
subscriptions and one *reader*; the first and the last have a *writer* each, which publishes one number after
the other. When each was published and read is all that is measured, beside the brokers' own processor time.
All clients share one process and one clock.
"""

from __future__ import annotations

import asyncio
import os
import re
import signal
import subprocess
import sys
import time
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from braid.errors import ConfigurationError, RequestRefusedError
from braid.runtime.connecting import connect

if TYPE_CHECKING:
    from collections.abc import Sequence

    from braid.language import Publication
    from braid.runtime.client import Client

__all__ = ["Operation", "RealPath", "Stream"]

START_S_MAX: Final = 60.0
END_S_MAX: Final = 20.0
REQUEST_S_MAX: Final = 600.0
# How long an operation may take; a busy machine is slow, and one that is given up would measure nothing.
OPERATION_S_MAX: Final = 30.0
# How long it is asked for again: a broker that lost a link meanwhile is busy until its operation is overdue.
ASKED_S_MAX: Final = 180.0
# Subscriptions that are asked for before the first of them is answered.
TOGETHER: Final = 500
# Between two publications of a writer.
INTERVAL_S: Final = 0.004
LOOK_S: Final = 0.05
AGAIN_S: Final = 0.5

_ADDRESS = re.compile(r'listening.*?(braid://[^\s"]+)')
_MOVED = re.compile(r"(\d+) entries moved")


@dataclass(slots=True)
class Stream:
    """What one reader got from one writer: numbers in the order in which they came, and when."""

    writer: str
    reader: str
    numbers: list[int] = field(default_factory=list)
    read_at_s: list[float] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Operation:
    """One operation, as the operator saw it."""

    path: tuple[str, ...]
    began_s: float
    ended_s: float
    cpu_s: float
    """Processor time of all brokers meanwhile."""


class RealPath:
    """A line of brokers B1, B2, ... on loopback; an asynchronous context manager.

    Args:
        brokers: how many.
        filters: what is asked for at each of them.
        folder: for their logs and the directory of brokers.
    """

    def __init__(self, brokers: int, filters: Sequence[Sequence[str]], folder: Path) -> None:
        self.names = tuple(f"B{number}" for number in range(1, brokers + 1))
        self.streams: dict[tuple[str, str], Stream] = {}
        """By writer and reader."""
        self.published_at_s: dict[str, list[float]] = {self.names[0]: [], self.names[-1]: []}
        """When each number was published, by the broker of its writer; the first is number 0."""
        self._filters = filters
        self._folder = folder
        self._configuration = folder / "broker.toml"
        self._stack = AsyncExitStack()
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        self._addresses: dict[str, str] = {}
        self._operators: dict[str, Client] = {}
        self._writing: list[asyncio.Task[None]] = []

    async def __aenter__(self) -> RealPath:
        try:
            await self._open()
        except BaseException:
            await self._stack.aclose()
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._stack.aclose()

    async def _open(self) -> None:
        self._stack.callback(self._end_brokers)
        self._configuration.write_text(f"[broker]\noperation_us_max = {round(OPERATION_S_MAX * 1e6)}\n")
        before = ""
        for name in self.names:
            self._start(name, before)
            before = self._addresses[name] = await self._listening(name)
        for name in self.names:
            client = await self._stack.enter_async_context(
                connect(self._addresses[name], name=f"operator-{name}", request_timeout_s=REQUEST_S_MAX)
            )
            self._operators[name] = client
        await self._linked()
        for name, filters in zip(self.names, self._filters, strict=True):
            loader = await self._client(name, "loader")
            for at in range(0, len(filters), TOGETHER):
                await asyncio.gather(
                    *(loader.subscribe(text, _ignore) for text in filters[at : at + TOGETHER])
                )
        for name in self.names:
            reader = await self._client(name, "reader")
            await reader.subscribe("probe >= 0", self._reading(name))
        for name in self.published_at_s:
            writer = await self._client(name, "writer")
            self._writing.append(asyncio.create_task(self._write(name, writer)))
        self._stack.push_async_callback(self.stop_writing)

    async def _client(self, name: str, role: str) -> Client:
        return await self._stack.enter_async_context(
            connect(
                self._addresses[name],
                name=f"{role}-{name}",
                publisher=f"{role}-{name}",
                request_timeout_s=REQUEST_S_MAX,
            )
        )

    # Brokers.

    def _start(self, name: str, neighbour: str) -> None:
        with self._log(name).open("wb") as sink:
            self._processes[name] = subprocess.Popen(
                [
                    *(sys.executable, "-c", "from braid.cli import main; main()", "broker"),
                    *("--id", name, "--listen", "127.0.0.1:0"),
                    *("--directory", str(self._folder / "brokers.db")),
                    *("--config", str(self._configuration)),
                    *(("--neighbor", neighbour) if neighbour else ()),
                ],
                stdout=subprocess.DEVNULL,
                stderr=sink,
            )

    async def _listening(self, name: str) -> str:
        """Its address, once it says it."""
        deadline_s = time.monotonic() + START_S_MAX
        while time.monotonic() < deadline_s and self._processes[name].poll() is None:
            found = _ADDRESS.search(self._said(name))
            if found:
                return found[1]
            await asyncio.sleep(LOOK_S)
        raise ConfigurationError(f"broker {name} did not start: {self._said(name)[-500:]}")

    def _log(self, name: str) -> Path:
        return self._folder / f"{name}.log"

    def _said(self, name: str) -> str:
        return self._log(name).read_text(errors="replace")

    async def _linked(self) -> None:
        """Wait until all links are up."""
        deadline_s = time.monotonic() + START_S_MAX
        for name in self.names[1:]:
            while True:
                overlay = await self._operators[name].ask("overlay")
                if any(link["up"] for link in overlay["links"]):
                    break
                if time.monotonic() > deadline_s:
                    raise ConfigurationError(f"broker {name} has no link after {START_S_MAX:g} s")
                await asyncio.sleep(LOOK_S)

    def _end_brokers(self) -> None:
        for process in self._processes.values():
            process.send_signal(signal.SIGKILL)
            process.wait(END_S_MAX)

    def cpu_s(self) -> float:
        """Processor time that all brokers have taken."""
        ticks = 0
        for process in self._processes.values():
            fields = Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()
            ticks += int(fields[11]) + int(fields[12])
        return ticks / os.sysconf("SC_CLK_TCK")

    def entries_moved(self) -> int:
        """Entries of tables that operations have moved so far, at all brokers together."""
        total = 0
        for name in self.names:
            found = _MOVED.findall(self._said(name))
            total += max(map(int, found), default=0)
        return total

    # Clients.

    def _reading(self, reader: str) -> Any:
        clock = time.monotonic

        def read(publication: Publication) -> None:
            now_s = clock()
            writer = str(publication.attributes["writer"])
            stream = self.streams.get((writer, reader))
            if stream is None:
                stream = self.streams[writer, reader] = Stream(writer, reader)
            number = publication.attributes["probe"]
            if isinstance(number, int):
                stream.numbers.append(number)
                stream.read_at_s.append(now_s)

        return read

    async def _write(self, name: str, writer: Client) -> None:
        moments = self.published_at_s[name]
        next_s = time.monotonic()
        while True:
            moments.append(time.monotonic())
            await writer.publish({"probe": len(moments) - 1, "writer": name}, ordered=True)
            next_s = max(next_s + INTERVAL_S, time.monotonic() - INTERVAL_S)
            await asyncio.sleep(max(0.0, next_s - time.monotonic()))

    async def stop_writing(self) -> None:
        """Publish nothing more, and wait a moment for what is under way."""
        for task in self._writing:
            task.cancel()
        if self._writing:
            await asyncio.wait(self._writing)
            self._writing.clear()
            await self._settled()

    async def _settled(self) -> None:
        """Wait until everybody has read everything, or nothing comes any more."""
        before = -1
        while True:
            found = sum(len(stream.numbers) for stream in self.streams.values())
            wanted = sum(map(len, self.published_at_s.values())) * len(self.names)
            if found in (before, wanted):
                return
            before = found
            await asyncio.sleep(1.0)

    # Operations.

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


def _ignore(_: object) -> None:
    """What is asked for to fill tables is not read."""
