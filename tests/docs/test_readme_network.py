"""Do the terminals of the README and of the first steps work as they stand there?

Their commands are taken from the text and run, with free ports in place of 7000 and 7001.
"""

from __future__ import annotations

import json
import re
import shlex
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.broker_process import BRAID, BrokerProcess

ROOT = Path(__file__).parents[2]
SECTIONS = {
    "README.md": "## Across processes and hosts",
    "docs/getting-started.md": "## Two brokers, a publisher and a subscriber",
}

pytestmark = [pytest.mark.net]


def section(page: str) -> str:
    text = (ROOT / page).read_text()
    start = text.index(SECTIONS[page])
    return text[start : text.index("\n## ", start + 1)]


def free_ports(count: int) -> list[int]:
    sockets = [socket.socket() for _ in range(count)]
    try:
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return [each.getsockname()[1] for each in sockets]
    finally:
        for each in sockets:
            each.close()


@pytest.mark.parametrize("page", SECTIONS)
def test_the_terminals_and_the_program(page: str) -> None:
    text = section(page)
    for port, free in zip(("7000", "7001"), free_ports(2), strict=True):
        text = text.replace(port, str(free))
    commands = re.findall(r"^\$ (.*)$", text, re.MULTILINE)
    brokers = [command for command in commands if command.startswith("braid broker")]
    (subscribe,) = [command for command in commands if command.startswith("braid subscribe")]
    (publish,) = [command for command in commands if "| braid publish" in command]
    # The other program starts its own broker, and is run like those of all documents.
    programs = re.findall(r"^```python no-run\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    # What is typed beside the terminals, in the text.
    asides = re.findall(r"`braid (overlay [^`]* --broker [^`]*)`", text)
    assert programs or asides
    running: list[BrokerProcess] = []
    subscriber: subprocess.Popen[str] | None = None
    try:
        for command in brokers:
            running.append(BrokerProcess(*shlex.split(command)[2:]))
            assert running[-1].address
        running[-1].wait_for(r"\bready\b")
        subscriber = subprocess.Popen(
            [*BRAID, *shlex.split(subscribe)[1:], "--count", "1"],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        assert subscriber.stderr is not None
        assert "subscribed" in subscriber.stderr.readline()
        line, _, tool = publish.partition(" | ")
        said = shlex.split(line)[1]
        subprocess.run([*BRAID, *shlex.split(tool)[1:]], input=said + "\n", text=True, check=True, timeout=60)
        heard, _ = subscriber.communicate(timeout=60)
        assert json.loads(heard) == json.loads(said)
        for program in programs:
            ran = subprocess.run(
                [sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60
            )
            assert ran.stdout == "12.5\n"
        for aside in asides:
            shown = subprocess.run(
                [*BRAID, *shlex.split(aside)], capture_output=True, text=True, check=True, timeout=60
            )
            assert all(re.search(rf"\b{name}\b", shown.stdout) for name in "AB"), shown.stdout
    finally:
        if subscriber is not None and subscriber.poll() is None:
            subscriber.kill()
            subscriber.communicate()
        for broker in reversed(running):
            code = broker.stop()
            assert code == 0, "\n".join(broker.lines)
