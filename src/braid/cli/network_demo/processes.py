"""The brokers of the demo, each a process on loopback, and the dashboard beside them.

Only what was started here is ended, by its id.
"""

from __future__ import annotations

import asyncio
import json
import random
import signal
import socket
import subprocess
import sys
import time
from typing import TYPE_CHECKING, Any, Final

from braid.cli.connection_options import Door
from braid.cli.overlay_crawl import ask
from braid.errors import BraidError, ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

__all__ = ["DOOR", "DashboardProcess", "DemoBroker", "DemoBrokers", "long_tree"]

HOST: Final = "127.0.0.1"
DOOR: Final = Door(timeout_s=10.0)
STANDBY: Final = "S1"
# Below the ports that systems give to outgoing connections: while a broker is dead, nobody takes its port.
PORTS: Final = range(20_000, 32_000)
START_S_MAX: Final = 90.0
STOP_S_MAX: Final = 20.0
LOOK_S: Final = 0.1
# Lines of a log that are shown when something is wrong.
LINES_SHOWN: Final = 4


def long_tree(count: int) -> dict[str, str]:
    """Broker to the one that it dials: two long arms from a centre, and a twig; a tree that can be better."""
    names = [f"B{number:02d}" for number in range(1, count + 1)]
    centre, *arms, twig = names
    dials = {centre: ""}
    for place, name in enumerate(arms):
        dials[name] = arms[place - 2] if place >= 2 else centre
    dials[twig] = centre
    return dials


class DemoBroker:
    """A broker on one port, through all its lives."""

    def __init__(self, name: str, directory: Path, port: int) -> None:
        self.name = name
        self.address = f"{HOST}:{port}"
        self.log = directory / f"{name}.log"
        self._directory = directory
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start it, or start it again with its data."""
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "braid", "broker", "--config", f"{self.name}.toml"],
                cwd=self._directory,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )

    def kill(self) -> None:
        """`kill -9`."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    @property
    def alive(self) -> bool:
        """Whether its process runs."""
        return self._process is not None and self._process.poll() is None

    def ask_to_stop(self) -> None:
        """SIGTERM."""
        if self._process is not None and self.alive:
            self._process.send_signal(signal.SIGTERM)

    def wait_stopped(self, seconds_max: float) -> None:
        """Wait, and insist after a while."""
        if self._process is not None:
            try:
                self._process.wait(max(0.0, seconds_max))
            except subprocess.TimeoutExpired:
                self.kill()

    async def ready(self) -> None:
        """Wait until it accepts publications.

        Raises:
            ConfigurationError: it does not; the message has the end of its log.
        """
        deadline_s = time.monotonic() + START_S_MAX
        while time.monotonic() < deadline_s and self.alive:
            try:
                if (await ask(self.address, "overlay", DOOR))["ready"]:
                    return
            except BraidError:
                pass
            await asyncio.sleep(LOOK_S)
        why = "has ended" if not self.alive else f"is not ready after {START_S_MAX:g} s"
        last = self.log.read_text(errors="replace").strip().splitlines()[-LINES_SHOWN:]
        raise ConfigurationError(
            f"broker {self.name} {why}; the end of {self.log}:\n" + "\n".join(f"    {line}" for line in last)
        )


class DemoBrokers:
    """All of them.

    Args:
        directory: for configuration, logs, data and traces.
        dials: broker to the neighbour that it dials; earlier ones first.
        tables: what their configuration files have in common.
        special: tables of single brokers, which take the place of common keys.
    """

    def __init__(
        self,
        directory: Path,
        dials: Mapping[str, str],
        tables: Mapping[str, Mapping[str, Any]],
        special: Mapping[str, Mapping[str, Mapping[str, Any]]],
    ) -> None:
        self.traces = directory / "traces"
        ports = _free_ports(len(dials) + 1)
        self.by_name = {
            name: DemoBroker(name, directory, port) for name, port in zip(dials, ports, strict=False)
        }
        self.standby = DemoBroker(STANDBY, directory, ports[-1])
        """A process that waits for the place of one that is gone."""
        self._write(directory, self.standby, tables, {"standby": {"enabled": True}})
        for name, broker in self.by_name.items():
            neighbour = dials[name]
            own = {"broker": {"neighbours": [self.by_name[neighbour].address] if neighbour else []}}
            self._write(directory, broker, tables, own, special.get(name, {}))

    def _write(self, directory: Path, broker: DemoBroker, *parts: Mapping[str, Mapping[str, Any]]) -> None:
        """Write a configuration file; later parts come first."""
        whole: dict[str, dict[str, Any]] = {
            "broker": {"broker_id": broker.name},
            "listener": {"listen": broker.address},
            "store": {"data_dir": f"{broker.name}.data", "synchronous": "NORMAL"},
            "trace": {"directory": "traces"},
        }
        for part in parts:
            for table, values in part.items():
                whole.setdefault(table, {}).update(values)
        (directory / f"{broker.name}.toml").write_text(_toml(whole))

    def __getitem__(self, name: str) -> DemoBroker:
        return self.by_name[name]

    @property
    def first(self) -> DemoBroker:
        """The one that is asked about the network."""
        return next(iter(self.by_name.values()))

    def start(self) -> None:
        """Start all at a time."""
        for broker in (*self.by_name.values(), self.standby):
            broker.start()

    async def ready(self) -> int:
        """How many are ready, once all are."""
        await asyncio.gather(*(broker.ready() for broker in self.by_name.values()))
        return len(self.by_name)

    def stop(self) -> None:
        """End all of them; what they have written down is complete then."""
        chosen = (*self.by_name.values(), self.standby)
        for broker in chosen:
            broker.ask_to_stop()
        deadline_s = time.monotonic() + STOP_S_MAX
        for broker in chosen:
            broker.wait_stopped(deadline_s - time.monotonic())


class DashboardProcess:
    """The dashboard, which ends with this process."""

    def __init__(self, broker: str, log: Path) -> None:
        with log.open("ab") as errors:
            self._process = subprocess.Popen(
                [
                    *(sys.executable, "-m", "braid", "dashboard", "--broker", broker),
                    *("--listen", f"{HOST}:0", "--json", "--until-input-ends"),
                ],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
            )
        self.url = ""
        self._log = log

    def wait(self) -> None:
        """Until it serves.

        Raises:
            ConfigurationError: it does not.
        """
        output = self._process.stdout
        line = output.readline() if output is not None else b""
        if not line:
            last = self._log.read_text(errors="replace").strip().splitlines()[-LINES_SHOWN:]
            raise ConfigurationError(f"the dashboard did not start: {' / '.join(last)}")
        self.url = str(json.loads(line)["dashboard"])

    def stop(self) -> None:
        """End it."""
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                pipe.close()
        self._process.terminate()
        try:
            self._process.wait(STOP_S_MAX)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


def _toml(tables: Mapping[str, Mapping[str, Any]]) -> str:
    lines = []
    for table, values in tables.items():
        lines.append(f"[{table}]")
        # JSON's strings, numbers, booleans and lists of them are TOML's.
        lines += [f"{key} = {json.dumps(value)}" for key, value in values.items()]
    return "\n".join(lines) + "\n"


def _free_ports(count: int) -> list[int]:
    chance = random.Random()  # two demos on one machine must not meet
    found: list[int] = []
    for port in chance.sample(PORTS, len(PORTS)):
        with socket.socket() as probe:
            try:
                probe.bind((HOST, port))
            except OSError:
                continue
        found.append(port)
        if len(found) == count:
            return found
    raise ConfigurationError(f"there are no {count} free ports between {PORTS.start} and {PORTS.stop}")
