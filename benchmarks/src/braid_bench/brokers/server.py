"""How is a rival broker run beside others, for a short time, leaving nothing behind?

Every server gets free ports on the loopback interface, a temporary directory for whatever it writes, and no
persistence. It is ended by the ids of the processes that were started here, and by nothing else.
"""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Protocol

from braid.errors import ConfigurationError
from braid_bench.brokers.install import INSTALL_HINT
from braid_bench.brokers.processes import family, family_cpu_seconds, family_memory_bytes

__all__ = [
    "HOST",
    "ActiveMq",
    "Mosquitto",
    "NatsServer",
    "RabbitMq",
    "RunningServer",
    "ServerProcess",
    "find_program",
    "free_ports",
]

HOST = "127.0.0.1"
# Erlang and Java need some seconds on a busy machine; a server that needs a minute will not come.
_START_SECONDS_MAX = 60.0
_STOP_SECONDS_MAX = 15.0
_PAUSE_SECONDS = 0.05
# Server programs live in sbin, which the path of an ordinary user does not name.
_EXTRA_PATH = "/usr/sbin:/usr/local/sbin:/sbin"
_RABBITMQ_SCRIPT = "/usr/lib/rabbitmq/bin/rabbitmq-server"
_ACTIVEMQ_HOME = Path("/usr/share/activemq")


class RunningServer(Protocol):
    """A contender's server side while it runs: one process, or several that form one network."""

    @property
    def ports(self) -> list[int]:
        """Where clients connect; with several brokers, one port each, the publisher's broker first."""

    def cpu_seconds(self) -> float:
        """Processor time of all its processes since they started."""

    def memory_bytes(self) -> int:
        """Resident memory of all its processes."""

    def stop(self) -> None:
        """End what was started, and remove what it wrote."""


class ServerProcess:
    """A server that was started from one command line; subclasses say which."""

    program: str
    """The name or path of the program that has to be there."""

    def __init__(self) -> None:
        self.directory = Path(tempfile.mkdtemp(prefix="braid-bench-"))
        self.ports = free_ports(1)
        self._processes: list[subprocess.Popen[bytes]] = []
        self._members: list[int] = []
        self._log = self.directory / "output.log"
        try:
            self.launch(self.ports[0])
            self._wait_accepting()
        except BaseException:
            self.stop()
            raise
        # Families are complete once the server accepts: looking again would cost time while measuring.
        self._members = [pid for process in self._processes for pid in family(process.pid)]

    def launch(self, port: int) -> None:
        """Start the server's processes with `self.run`."""
        raise NotImplementedError

    @classmethod
    def missing(cls) -> str | None:
        """Why it cannot be run here, or None when it can."""
        if find_program(cls.program) is None:
            return f"{Path(cls.program).name} is not installed; {INSTALL_HINT}"
        return None

    def run(self, *command: str, environment: dict[str, str] | None = None) -> None:
        """Start one process of this server, in its directory, with its output in a file."""
        program = find_program(command[0])
        if program is None:
            raise ConfigurationError(f"{command[0]} is not installed; {INSTALL_HINT}")
        with self._log.open("ab") as output:
            self._processes.append(
                subprocess.Popen(
                    [program, *command[1:]],
                    cwd=self.directory,
                    env=environment,
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=subprocess.STDOUT,
                )
            )

    def write(self, name: str, text: str) -> Path:
        """A file in the server's directory, such as its configuration."""
        path = self.directory / name
        path.write_text(text)
        return path

    def cpu_seconds(self) -> float:
        """Processor time of all its processes since they started."""
        return family_cpu_seconds(self._members)

    def memory_bytes(self) -> int:
        """Resident memory of all its processes."""
        return family_memory_bytes(self._members)

    def stop(self) -> None:
        """Ask every process that was started here to end, insist after a while, remove the directory."""
        for process in reversed(self._processes):
            # Helpers, such as Erlang's, end by themselves when the pipe to their parent closes.
            process.terminate()
            try:
                process.wait(_STOP_SECONDS_MAX)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        self._processes.clear()
        shutil.rmtree(self.directory, ignore_errors=True)

    def _wait_accepting(self) -> None:
        deadline = time.monotonic() + _START_SECONDS_MAX
        while time.monotonic() < deadline:
            for process in self._processes:
                if process.poll() is not None:
                    raise ConfigurationError(
                        f"{Path(self.program).name} ended with status {process.returncode} while starting: "
                        f"{self._last_words()}"
                    )
            try:
                socket.create_connection((HOST, self.ports[0]), timeout=1).close()
                return
            except OSError:
                time.sleep(_PAUSE_SECONDS)
        raise ConfigurationError(
            f"{Path(self.program).name} did not accept connections within {_START_SECONDS_MAX:.0f} seconds: "
            f"{self._last_words()}"
        )

    def _last_words(self) -> str:
        lines = self._log.read_text(errors="replace").strip().splitlines() if self._log.exists() else []
        return " / ".join(lines[-3:]) or "it said nothing"


class NatsServer(ServerProcess):
    """nats-server: core NATS, no JetStream."""

    program = "nats-server"

    def launch(self, port: int) -> None:
        """No monitoring port; the raw clients do not answer pings, so the server must not mind."""
        configuration = self.write(
            "nats.conf",
            f'listen: "{HOST}:{port}"\nping_interval: "30m"\nping_max: 1000\nmax_pending: 256MB\n',
        )
        self.run("nats-server", "--config", str(configuration))


class Mosquitto(ServerProcess):
    """mosquitto: MQTT without persistence."""

    program = "mosquitto"

    def launch(self, port: int) -> None:
        """A queue that the closed loop cannot fill, since a full one drops messages of quality 0."""
        configuration = self.write(
            "mosquitto.conf",
            f"listener {port} {HOST}\nallow_anonymous true\npersistence false\nlog_type error\n"
            "max_queued_messages 100000\nset_tcp_nodelay true\n",
        )
        self.run("mosquitto", "-c", str(configuration))


class RabbitMq(ServerProcess):
    """rabbitmq-server under a node name, ports and directories of its own, without plugins."""

    program = _RABBITMQ_SCRIPT

    def launch(self, port: int) -> None:
        """Erlang's port mapper is started here too, else RabbitMQ would leave one behind as a daemon."""
        mapper_port, distribution_port = free_ports(2)
        configuration = self.write(
            "rabbitmq.conf", f"listeners.tcp.1 = {HOST}:{port}\nlog.file = false\nlog.console.level = error\n"
        )
        environment = {
            "PATH": f"{os.environ.get('PATH', os.defpath)}:{_EXTRA_PATH}",
            "HOME": str(self.directory),
            "LANG": "C.UTF-8",
            "ERL_EPMD_ADDRESS": HOST,
            "ERL_EPMD_PORT": str(mapper_port),
            "RABBITMQ_NODENAME": f"braid-bench-{port}@localhost",
            "RABBITMQ_DIST_PORT": str(distribution_port),
            "RABBITMQ_CONF_ENV_FILE": str(self.directory / "none"),
            "RABBITMQ_CONFIG_FILE": str(configuration),
            "RABBITMQ_ENABLED_PLUGINS_FILE": str(self.directory / "plugins"),
            "RABBITMQ_MNESIA_BASE": str(self.directory / "mnesia"),
            "RABBITMQ_LOG_BASE": str(self.directory / "log"),
            "RABBITMQ_PID_FILE": str(self.directory / "pid"),
            "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS": "-kernel inet_dist_use_interface {127,0,0,1}",
            # The script then becomes the virtual machine instead of waiting for it as its parent.
            "RABBITMQ_ALLOW_INPUT": "1",
        }
        self.run("epmd", "-address", HOST, "-port", str(mapper_port), environment=environment)
        self.run(_RABBITMQ_SCRIPT, "-noinput", environment=environment)


class ActiveMq(ServerProcess):
    """ActiveMQ Classic with a STOMP listener, in memory, without management beans."""

    program = "activemq"

    def launch(self, port: int) -> None:
        """Without a logging configuration it would prepare debug lines for nobody to read."""
        logging = self.write("log4j.properties", "log4j.rootLogger=OFF\n")
        here = self.directory
        self.run(
            "java",
            # Debian's default of 512 MB is too little for 50,000 subscriptions.
            "-Xms512M",
            "-Xmx2G",
            "-Dorg.apache.activemq.UseDedicatedTaskRunner=false",
            f"-Dlog4j.configuration={logging.as_uri()}",
            f"-Dactivemq.home={_ACTIVEMQ_HOME}",
            *(f"-Dactivemq.{purpose}={here}" for purpose in ("base", "conf", "data")),
            f"-Djava.io.tmpdir={here}",
            "-jar",
            str(_ACTIVEMQ_HOME / "bin" / "activemq.jar"),
            "start",
            f"broker:(stomp://{HOST}:{port})?persistent=false&useJmx=false&dataDirectory={here}",
        )


def find_program(name: str) -> str | None:
    """The full path of a program, looked for among the servers' places too."""
    return shutil.which(name, path=f"{os.environ.get('PATH', os.defpath)}:{_EXTRA_PATH}")


def free_ports(count: int) -> list[int]:
    """Ports of the loopback interface that nobody listens on at this moment."""
    sockets = [socket.socket() for _ in range(count)]
    try:
        for each in sockets:
            each.bind((HOST, 0))
        return [each.getsockname()[1] for each in sockets]
    finally:
        for each in sockets:
            each.close()
