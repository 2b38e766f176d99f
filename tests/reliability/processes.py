"""How are brokers and clients started, killed and started again?

Everything here ends only processes that it started, by their ids.
"""

from __future__ import annotations

import asyncio
import random
import shutil
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.reliability.disk import SmallDisk
    from tests.reliability.worker import ClientTask, Specification

__all__ = ["BrokerProcess", "WorkerProcess", "free_port"]

HOST = "127.0.0.1"
# Below the ports that systems give to outgoing connections: while a broker is dead, nobody takes its port.
PORTS = range(20_000, 32_000)
PORT_TRIES_MAX = 200
CONNECT_S_MAX = 1.0
START_S_MAX = 60.0
END_S_MAX = 30.0
ROOT = Path(__file__).resolve().parents[2]


def free_port() -> int:
    """A port that nobody listens on. Chance without a seed: two runs at a time must not meet."""
    for port in random.SystemRandom().sample(PORTS, PORT_TRIES_MAX):
        with socket.socket() as candidate:
            try:
                candidate.bind((HOST, port))
            except OSError:
                continue
            return port
    raise RuntimeError(f"no free port was found among {PORT_TRIES_MAX} from {PORTS}")


class _Process:
    """A process that writes what it has to say to a file."""

    def __init__(self, name: str, directory: Path) -> None:
        self.name = name
        self.log = directory / f"{name}.log"
        self.starts = 0
        self._process: subprocess.Popen[bytes] | None = None
        self._asked_to_end = False

    def _start(self, *arguments: str) -> None:
        self.end_input()  # of the life before, which may have ended by itself
        with self.log.open("ab") as log:
            log.write(f"--- start {self.starts + 1}\n".encode())
            log.flush()
            self._process = subprocess.Popen(
                [sys.executable, *arguments],
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
                cwd=ROOT,
            )
        self.starts += 1
        self._asked_to_end = False

    @property
    def alive(self) -> bool:
        return self._process is not None and self._process.poll() is None

    @property
    def code(self) -> int | None:
        """With which code it has ended, if it has."""
        return self._process.poll() if self._process is not None else None

    @property
    def failure(self) -> str:
        """How it ended, if that was neither by our hand nor because it had nothing more to do."""
        process = self._process
        code = process.poll() if process is not None else None
        if process is None or code is None or code == -signal.SIGKILL:
            return ""
        if code == 0 and (self._asked_to_end or (process.stdin is not None and process.stdin.closed)):
            return ""
        return f"{self.name} ended by itself with code {code}: see {self.log}"

    def end_input(self) -> None:
        """Close its standard input."""
        if self._process is not None and self._process.stdin is not None:
            self._process.stdin.close()

    def kill(self) -> bool:
        """`kill -9`; returns whether it was alive until then."""
        process = self._process
        if process is None:
            return False
        was_alive = process.poll() is None
        if was_alive:
            process.kill()
        process.wait()
        self.end_input()
        return was_alive

    async def ended(self) -> bool:
        """Wait until it has ended by itself; returns False if it does not."""
        if self._process is not None:
            try:
                await asyncio.to_thread(self._process.wait, END_S_MAX)
            except subprocess.TimeoutExpired:
                return False
        return True


class BrokerProcess(_Process):
    """A broker with its data directory, on one port for all its lives."""

    def __init__(
        self,
        name: str,
        directory: Path,
        log_level: str,
        strategy: str = "S0",
        settings: str = "",
        disk: SmallDisk | None = None,
    ) -> None:
        super().__init__(name, directory)
        self.port = free_port()
        self.neighbours: list[str] = []
        """Whom it dials."""
        self.stopped = False
        self.address = ""
        """What others are told, if not its own."""
        self.standby = False
        """Whether it waits for the place of another one."""
        self.brokers_directory = ""
        """The directory of brokers, if there is one."""
        self._strategy = strategy
        self._configuration = directory / f"{name}.toml"
        # Soft links come and go quickly, so that much can go wrong with them in little time.
        soft_links = "[soft_links]\nfanout = 5\nreview_us = 700_000\nrest_reviews = 1\n"
        self._configuration.write_text(f"{settings}\n{soft_links}")
        self.disk = disk
        """Where its data directory is, if it has one of its own."""
        self._data = directory / f"{name}.data" if disk is None else disk.directory / "data"
        self._copy = directory / f"{name}.copy"
        self._log_level = log_level

    def start(self) -> None:
        self.stopped = False
        self._start(
            "-c",
            "from braid.cli import main; main()",
            "broker",
            *("--id", self.name, "--listen", f"{HOST}:{self.port}", "--data-dir", str(self._data)),
            *("--log-level", self._log_level),
            *("--config", str(self._configuration), "--strategy", self._strategy),
            *(("--address", self.address) if self.address else ()),
            *(("--standby",) if self.standby else ()),
            *(("--directory", self.brokers_directory) if self.brokers_directory else ()),
            *(word for address in self.neighbours for word in ("--neighbour", address)),
        )

    def end(self) -> None:
        """Ask it to hand over what it holds and to end, as an operator would."""
        if self._process is not None and self.alive:
            self._asked_to_end = True
            self._process.terminate()

    def freeze(self, frozen: bool) -> None:
        """`kill -STOP`, or `kill -CONT`."""
        if self._process is not None and self.alive:
            self._process.send_signal(signal.SIGSTOP if frozen else signal.SIGCONT)
            self.stopped = frozen

    @property
    def full(self) -> bool:
        """Whether its disk is full; a broker would not start then."""
        return self.disk is not None and self.disk.full

    @property
    def accepts(self) -> bool:
        """Whether it accepts connections; then it has opened its store."""
        try:
            socket.create_connection((HOST, self.port), CONNECT_S_MAX).close()
        except OSError:
            return False
        return True

    def said(self, sentence: str, since: int) -> bool:
        """Whether its log has a sentence behind this many bytes."""
        with self.log.open("rb") as log:
            log.seek(since)
            return sentence.encode() in log.read()

    # While it is dead.

    def copy_data(self) -> None:
        """Make a backup of its data directory."""
        if self._data.exists():
            shutil.rmtree(self._copy, ignore_errors=True)
            shutil.copytree(self._data, self._copy)

    def restore_data(self) -> bool:
        """Put the backup in its place; returns whether there was one."""
        if self._copy.exists():
            shutil.rmtree(self._data, ignore_errors=True)
            shutil.copytree(self._copy, self._data)
        return self._copy.exists()

    def lose_data(self) -> None:
        """Its disk is gone."""
        shutil.rmtree(self._data, ignore_errors=True)

    async def listening(self) -> None:
        """Wait until it accepts connections."""
        deadline = time.monotonic() + START_S_MAX
        while time.monotonic() < deadline and self.alive:
            try:
                _, writer = await asyncio.open_connection(HOST, self.port)
            except OSError:
                await asyncio.sleep(0.05)
                continue
            writer.close()
            return
        raise RuntimeError(f"broker {self.name} did not start within {START_S_MAX:g} s: see {self.log}")


class WorkerProcess(_Process):
    """A process with some clients."""

    def __init__(self, name: str, directory: Path) -> None:
        super().__init__(name, directory)
        self.clients: tuple[str, ...] = ()

    def start(self, specification: Specification) -> None:
        self.clients = tuple(each.name for each in specification.clients)
        self._start("-m", "tests.reliability.worker", specification.to_json())

    def add(self, task: ClientTask) -> None:
        """Let one more client come."""
        if self._process is not None and self._process.stdin is not None and self.alive:
            self._process.stdin.write(f"{task.to_json()}\n".encode())
            self._process.stdin.flush()
            self.clients += (task.name,)
