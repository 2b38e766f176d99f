"""How do tests get a ZooKeeper of their own? They start Debian's on a free loopback port.

The process is ended by its id. The system's own ZooKeeper service is neither used nor touched.
"""

from __future__ import annotations

import shutil
import socket
import subprocess
import time
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["ZookeeperServer", "missing_parts", "zookeeper_server"]

JAR = Path("/usr/share/java/zookeeper.jar")
START_S_MAX = 60.0
STOP_S_MAX = 20.0

CONFIGURATION = """\
tickTime=200
minSessionTimeout=400
maxSessionTimeout=60000
dataDir={folder}/data
clientPort={port}
clientPortAddress=127.0.0.1
admin.enableServer=false
4lw.commands.whitelist=srvr
forceSync=no
maxClientCnxns=0
"""

LOGGING = """\
log4j.rootLogger=WARN, file
log4j.appender.file=org.apache.log4j.FileAppender
log4j.appender.file.File={folder}/zookeeper.log
log4j.appender.file.layout=org.apache.log4j.PatternLayout
log4j.appender.file.layout.ConversionPattern=%d %p %c %m%n
"""


def missing_parts() -> str | None:
    """What stands between a test and a ZooKeeper, and what to do about it; None when nothing does."""
    if shutil.which("java") is None:
        return "no java on the path; on Debian or Ubuntu: apt-get install zookeeperd"
    if not JAR.exists():
        return f"no ZooKeeper: {JAR} is missing; on Debian or Ubuntu: apt-get install zookeeperd"
    return None


@contextmanager
def zookeeper_server(folder: Path) -> Iterator[ZookeeperServer]:
    """A running server, or a skipped test where ZooKeeper is not installed."""
    problem = missing_parts()
    if problem is not None:
        pytest.skip(problem)
    server = ZookeeperServer(folder)
    try:
        server.start()
        yield server
    finally:
        server.stop()


class ZookeeperServer:
    """One server with its own folder; it can be stopped and started again on the same port and data."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.port = _free_port()
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def host(self) -> str:
        return f"127.0.0.1:{self.port}"

    def start(self) -> None:
        """Start it and wait until it serves."""
        (self.folder / "data").mkdir(parents=True, exist_ok=True)
        configuration = self.folder / "zoo.cfg"
        configuration.write_text(CONFIGURATION.format(folder=self.folder, port=self.port))
        (self.folder / "log4j.properties").write_text(LOGGING.format(folder=self.folder))
        command = ["java", "-Xmx128m", "-Dzookeeper.jmx.log4j.disable=true", "-cp", f"{self.folder}:{JAR}"]
        command += ["org.apache.zookeeper.server.quorum.QuorumPeerMain", str(configuration)]
        with (self.folder / "output.txt").open("ab") as output:
            self._process = subprocess.Popen(command, stdout=output, stderr=output, cwd=self.folder)
        deadline = time.monotonic() + START_S_MAX
        while not self._serves():
            if self._process.poll() is not None or time.monotonic() > deadline:
                self.stop()
                raise RuntimeError(f"ZooKeeper did not start: {self._story()}")
            time.sleep(0.05)

    def stop(self) -> None:
        """End the process, if it runs."""
        process, self._process = self._process, None
        if process is None:
            return
        process.terminate()
        try:
            process.wait(STOP_S_MAX)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()

    def _serves(self) -> bool:
        try:
            with socket.create_connection(("127.0.0.1", self.port), timeout=1) as connection:
                connection.sendall(
                    b"srvr"
                )  # unlike "ruok", it is answered in earnest only by one that serves
                return connection.recv(64).startswith(b"Zookeeper version")
        except OSError:
            return False

    def _story(self) -> str:
        files = [self.folder / "output.txt", self.folder / "zookeeper.log"]
        return "\n".join(file.read_text(errors="replace")[-2000:] for file in files if file.exists())


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
