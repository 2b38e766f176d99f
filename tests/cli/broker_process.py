"""How do tests run `braid broker`? As a process of its own, on a free loopback port, ended by its id."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
import threading
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["BRAID", "BrokerProcess", "braid", "running_broker"]

START_S_MAX = 30.0
STOP_S_MAX = 20.0
BRAID = (sys.executable, "-c", "from braid.cli import main; main()")


class BrokerProcess:
    """A running broker and what it has written to standard error so far."""

    command = "broker"

    def __init__(self, *arguments: str) -> None:
        self.lines: list[str] = []
        self._changed = threading.Condition()
        self.process = subprocess.Popen(
            [*BRAID, self.command, *arguments], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
        )
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stderr is not None
        for line in self.process.stderr:
            with self._changed:
                self.lines.append(line.rstrip("\n"))
                self._changed.notify_all()

    def wait_for(self, pattern: str) -> re.Match[str]:
        """The first line that fits, once it is there."""
        deadline = time.monotonic() + START_S_MAX
        with self._changed:
            while True:
                for line in self.lines:
                    found = re.search(pattern, line)
                    if found:
                        return found
                left = deadline - time.monotonic()
                if left <= 0 or (self.process.poll() is not None and not self._reader.is_alive()):
                    raise AssertionError(f"no line like {pattern!r} in:\n" + "\n".join(self.lines))
                self._changed.wait(min(left, 0.1))

    @property
    def address(self) -> str:
        return self.wait_for(r'listening.*?(braids?://[^\s"]+)')[1]

    @property
    def http(self) -> str:
        return self.wait_for(r'listening.*?(http://[^\s"]+)')[1]

    def stop(self, number: signal.Signals = signal.SIGTERM) -> int:
        """Ask it to end; its exit code."""
        if self.process.poll() is None:
            self.process.send_signal(number)
        try:
            code = self.process.wait(STOP_S_MAX)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
            raise AssertionError("the broker did not stop:\n" + "\n".join(self.lines)) from None
        self._reader.join(STOP_S_MAX)
        assert self.process.stderr is not None
        self.process.stderr.close()
        return code


@contextmanager
def running_broker(broker_id: str, *arguments: str, listen: str = "127.0.0.1:0") -> Iterator[BrokerProcess]:
    """A broker that listens; it is ended afterwards."""
    broker = BrokerProcess("--id", broker_id, "--listen", listen, *arguments)
    try:
        assert broker.address
        yield broker
    finally:
        broker.stop()


def braid(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Run another command to its end."""
    return subprocess.run([*BRAID, *arguments], capture_output=True, text=True, timeout=60, check=False)
