"""Real broker processes on loopback, with clients that write numbers and readers that write down what comes.

Brokers are processes of their own, as in the evaluation of the availability paper (section V). When each
number was published and read is what is measured, beside the brokers' own processor time. All clients share
one process and one clock. Which brokers there are, how they are linked and what is done to them is for
those who build on this.
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
from typing import TYPE_CHECKING, Any, Final, Self

from braid.errors import ConfigurationError
from braid.runtime.connecting import connect

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from braid.language import Publication
    from braid.runtime.client import Client

__all__ = ["LOOK_S", "RealBrokers", "Stream"]

START_S_MAX: Final = 60.0
END_S_MAX: Final = 20.0
REQUEST_S_MAX: Final = 600.0
# How far readers may be behind writers in a network that has settled, and how long that may take.
BEHIND_S_MAX: Final = 0.5
SETTLED_S_MAX: Final = 300.0
# Subscriptions that are asked for before the first of them is answered.
TOGETHER: Final = 500
# Between two moments at which a writer publishes; what falls between them is published together.
INTERVAL_S: Final = 0.004
# What a writer that was kept from publishing makes up for.
CATCH_UP_S: Final = 0.1
LOOK_S: Final = 0.05

_ADDRESS = re.compile(r'listening.*?(braid://[^\s"]+)')


@dataclass(slots=True)
class Stream:
    """What one reader got from one writer: numbers in the order in which they came, and when."""

    writer: str
    reader: str
    numbers: list[int] = field(default_factory=list)
    read_at_s: list[float] = field(default_factory=list)


class RealBrokers:
    """Broker processes that share a folder; an asynchronous context manager, which ends them.

    Args:
        folder: for their logs and the directory of brokers.
        configuration: what their configuration file says.
        directory: whether they share a directory of brokers, which knows the address of each for a lease.
    """

    def __init__(self, folder: Path, configuration: str = "", *, directory: bool = True) -> None:
        self.streams: dict[tuple[str, str], Stream] = {}
        """By writer and reader."""
        self.published_at_s: dict[str, list[float]] = {}
        """When each number was published, by writer; the first is number 0."""
        self._folder = folder
        self._configuration = folder / "broker.toml"
        self._configuration.write_text(configuration)
        self._directory = ("--directory", str(folder / "brokers.db")) if directory else ()
        self._stack = AsyncExitStack()
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        self._addresses: dict[str, str] = {}
        self._operators: dict[str, Client] = {}
        self._clients: list[Client] = []
        self._writing: list[asyncio.Task[None]] = []

    async def __aenter__(self) -> Self:
        try:
            self._stack.callback(self._end_brokers)
            await self._open()
        except BaseException:
            await self._stack.aclose()
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._stack.aclose()

    async def _open(self) -> None:
        """Start brokers and clients."""

    # Clients.

    async def _client(self, name: str, role: str) -> Client:
        client = await self._stack.enter_async_context(
            connect(
                self._addresses[name],
                name=f"{role}-{name}",
                publisher=f"{role}-{name}",
                request_timeout_s=REQUEST_S_MAX,
            )
        )
        self._clients.append(client)
        return client

    async def _operate(self, name: str) -> Client:
        """A client that asks a broker for this and that."""
        client = self._operators[name] = await self._client(name, "operator")
        return client

    async def _load(
        self, name: str, filters: Sequence[str], handlers: Sequence[Callable[[Publication], None]] = ()
    ) -> None:
        """Subscribe to what fills the tables; without handlers it is not read."""
        loader = await self._client(name, "loader")
        wanted = list(zip(filters, handlers or [_ignore] * len(filters), strict=True))
        for at in range(0, len(wanted), TOGETHER):
            await asyncio.gather(*(loader.subscribe(*each) for each in wanted[at : at + TOGETHER]))

    # Brokers.

    async def _broker(self, name: str, *options: str) -> None:
        """Start a broker and wait until it listens."""
        self._start(name, options)
        self._addresses[name] = await self._listening(name)

    def _start(self, name: str, options: Sequence[str]) -> None:
        with self._log(name).open("wb") as sink:
            self._processes[name] = subprocess.Popen(
                [
                    *(sys.executable, "-c", "from braid.cli import main; main()", "broker"),
                    *("--id", name, "--listen", "127.0.0.1:0"),
                    *self._directory,
                    *("--config", str(self._configuration)),
                    *options,
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

    async def _linked(self, names: Sequence[str]) -> None:
        """Wait until each of these has a link that is up."""
        deadline_s = time.monotonic() + START_S_MAX
        for name in names:
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
        """Processor time that all brokers that are there have taken."""
        ticks = 0
        for process in self._processes.values():
            if process.poll() is None:
                fields = Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()
                ticks += int(fields[11]) + int(fields[12])
        return ticks / os.sysconf("SC_CLK_TCK")

    # Writing and reading.

    def _reading(self, reader: str) -> Callable[[Publication], None]:
        """Write down what comes to a reader."""
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

    def start_writing(
        self,
        name: str,
        writer: Client,
        rate: float,
        attributes: Callable[[int], dict[str, Any]] = lambda _: {},
    ) -> None:
        """Have a client publish so many numbers a second, each with further attributes."""
        self.published_at_s[name] = []
        self._writing.append(asyncio.create_task(self._write(name, writer, rate, attributes)))

    async def _write(
        self, name: str, writer: Client, rate: float, attributes: Callable[[int], dict[str, Any]]
    ) -> None:
        moments = self.published_at_s[name]
        began_s = time.monotonic()
        while True:
            wanted = (time.monotonic() - began_s) * rate
            behind_s = (wanted - len(moments)) / rate
            if behind_s > CATCH_UP_S:
                began_s += behind_s - CATCH_UP_S
                wanted = len(moments) + CATCH_UP_S * rate
            while len(moments) < wanted:
                number = len(moments)
                moments.append(time.monotonic())
                await writer.publish({"probe": number, "writer": name, **attributes(number)}, ordered=True)
            await asyncio.sleep(INTERVAL_S)

    async def stop_writing(self) -> None:
        """Publish nothing more, and wait a moment for what is under way."""
        for task in self._writing:
            task.cancel()
        if self._writing:
            await asyncio.wait(self._writing)
            self._writing.clear()
            await self._all_read()

    async def _all_read(self) -> None:
        """Wait until nothing comes any more."""
        before = -1
        while True:
            found = sum(len(stream.numbers) for stream in self.streams.values())
            if found == before:
                return
            before = found
            await asyncio.sleep(1.0)

    async def settled(self, streams_wanted: int) -> None:
        """Wait until so many streams flow, and none of them is behind.

        Raises:
            ConfigurationError: it took too long.
        """
        deadline_s = time.monotonic() + SETTLED_S_MAX
        while time.monotonic() < deadline_s:
            late_s = time.monotonic() - BEHIND_S_MAX
            if len(self.streams) >= streams_wanted and all(
                stream.read_at_s and self.published_at_s[stream.writer][stream.numbers[-1]] > late_s
                for stream in self.streams.values()
            ):
                return
            await asyncio.sleep(LOOK_S)
        raise ConfigurationError(
            f"after {SETTLED_S_MAX:g} s readers were still behind: this machine is too slow for that many"
        )


def _ignore(_: object) -> None:
    """What is asked for to fill tables is not read."""
