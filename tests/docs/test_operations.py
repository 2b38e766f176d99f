"""Do the commands of docs/operations.md work, with loopback addresses in place of its hosts?

`sh` blocks run to their end and must succeed; each line of an `sh service` block is a process that has to
become ready, and runs until the test ends.
"""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.docs.runner import blocks_of
from tests.runtime.zookeeper import missing_parts, zookeeper_server

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = [pytest.mark.net, pytest.mark.slow]

DOCUMENT = Path(__file__).parents[2] / "docs" / "operations.md"
READY_S_MAX = 60.0
STOP_S_MAX = 30.0
TOOLS = ("openssl", "curl", "sh", "python3")


def free_ports(count: int) -> list[int]:
    with ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return [each.getsockname()[1] for each in sockets]


class Hosts:
    """The hosts of the document on one machine: each has ports of its own."""

    def __init__(self, zookeeper: str) -> None:
        ports = free_ports(6)
        self._brokers = dict(zip("abc", ports[:3], strict=True))
        self._http = dict(zip("abc", ports[3:], strict=True))
        self._zookeeper = zookeeper

    def local(self, text: str, host: str = "a") -> str:
        """A block as it is run here; `host` is whose file or terminal it is."""
        for name, port in self._brokers.items():
            text = text.replace(f"{name}.example:7000", f"127.0.0.1:{port}")
        text = text.replace("0.0.0.0:7000", f"127.0.0.1:{self._brokers[host]}")
        text = text.replace("127.0.0.1:9000", f"127.0.0.1:{self._http[host]}")
        text = text.replace("zk1.example:2181,zk2.example:2181,zk3.example:2181", self._zookeeper)
        return text.replace("DNS:$id.example", "IP:127.0.0.1")


class Services:
    """The processes that the document starts."""

    def __init__(self, environment: dict[str, str]) -> None:
        self._environment = environment
        self._running: dict[str, subprocess.Popen[bytes]] = {}

    def start(self, command: str) -> None:
        log = Path(f"{command.split()[-1]}.log")
        with log.open("wb") as output:
            words = ["exec " + command]
            self._running[command] = subprocess.Popen(
                ["sh", "-c", *words], stderr=output, stdout=output, env=self._environment
            )

    def wait_ready(self, command: str) -> None:
        log = Path(f"{command.split()[-1]}.log")
        deadline = time.monotonic() + READY_S_MAX
        while '"message": "ready"' not in log.read_text():
            assert self._running[command].poll() is None, log.read_text()
            assert time.monotonic() < deadline, log.read_text()
            time.sleep(0.05)

    def stop(self, command: str) -> int:
        process = self._running.pop(command)
        process.send_signal(signal.SIGTERM)
        try:
            return process.wait(STOP_S_MAX)
        except subprocess.TimeoutExpired:
            process.kill()
            return process.wait()

    def stop_all(self) -> list[int]:
        return [self.stop(command) for command in list(self._running)]


@pytest.fixture
def zookeeper(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    missing = [tool for tool in TOOLS if shutil.which(tool) is None]
    if missing:
        pytest.skip(f"the commands of operations.md need {', '.join(missing)}; install them")
    problem = missing_parts()
    if problem is not None:
        pytest.skip(problem)
    with zookeeper_server(tmp_path_factory.mktemp("zookeeper")) as server:
        yield server.host


def test_the_commands(zookeeper: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])
    environment = os.environ | {"PATH": path, "NO_COLOR": "1", "TERM": "dumb"}
    hosts, services = Hosts(zookeeper), Services(environment)
    outputs = []
    commands: list[str] = []
    try:
        for block in blocks_of(DOCUMENT.read_text(encoding="utf-8"), "docs/operations.md"):
            if block.file_name is not None:
                Path(block.file_name).write_text(hosts.local(block.text, block.file_name[0]))
            elif block.language == "sh" and "service" in block.words:
                commands = block.text.splitlines()
                for command in commands:
                    services.start(command)
                for command in commands:
                    services.wait_ready(command)
            elif block.language == "sh":
                ran = subprocess.run(
                    ["sh", "-e", "-c", hosts.local(block.text)],
                    capture_output=True,
                    text=True,
                    env=environment,
                    timeout=120,
                    check=False,
                )
                assert ran.returncode == 0, f"{block.place}\n{ran.stdout}\n{ran.stderr}"
                outputs.append(ran.stdout)
        for command in commands:  # the rolling restart
            assert services.stop(command) == 0
            services.start(command)
            services.wait_ready(command)
    finally:
        codes = services.stop_all()
    assert codes == [0, 0, 0]
    everything = "\n".join(outputs)
    assert "alive\nready\n" in everything
    assert 'braid_links_up{broker="a"} 1.0' in everything
    assert "3 of 3 brokers reached" in everything
    assert "a: S0, 2 in sight (delta 4), no soft links\n" in everything
    assert "c: S2, 2 in sight (delta 4), " in everything
    assert 'braid_strategy{broker="a",strategy="S2"} 1.0' in everything
    assert '{"shop":7,"total":12.5}' in everything.replace(" ", "")
