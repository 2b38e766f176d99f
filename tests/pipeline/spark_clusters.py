"""Real Spark processes on the loopback interface: a standalone cluster, and a Spark Connect server."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pyspark

from braid.pipeline.java import find_java

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["connect_server", "lean_python", "standalone_cluster", "unused_port"]

SPARK = Path(pyspark.__file__).parent
START_S = 60.0


def unused_port() -> int:
    """A port that nobody listens on at this moment."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextmanager
def _java(folder: Path, name: str, *arguments: str, **variables: str) -> Iterator[Path]:
    """A class of Spark in a process of its own; gives its log."""
    log = folder / f"{name}.log"
    environment = {
        key: value for key, value in os.environ.items() if key not in ("PYTHONPATH", "SPARK_CONF_DIR")
    }
    environment |= {
        "JAVA_HOME": str(find_java().home),
        "SPARK_HOME": str(SPARK),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "PYSPARK_PYTHON": sys.executable,
        **variables,
    }
    with log.open("wb") as output:
        process = subprocess.Popen(
            [str(SPARK / "bin" / "spark-class"), *arguments],
            cwd=folder,
            env=environment,
            stdout=output,
            stderr=subprocess.STDOUT,
        )
    try:
        yield log
    finally:
        process.terminate()
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _await(log: Path, text: str) -> None:
    deadline_s = time.monotonic() + START_S
    while text not in log.read_text(errors="replace"):
        if time.monotonic() > deadline_s:
            raise TimeoutError(f"{log} does not say {text!r}:\n{log.read_text(errors='replace')[-3000:]}")
        time.sleep(0.1)


@contextmanager
def standalone_cluster(folder: Path, workers: int = 2) -> Iterator[str]:
    """A master and workers with one core each; gives the master's address."""
    port = unused_port()
    address = f"spark://127.0.0.1:{port}"
    with ExitStack() as running:
        master = ("org.apache.spark.deploy.master.Master", "--host", "127.0.0.1", "--port", str(port))
        log = running.enter_context(_java(folder, "master", *master, "--webui-port", "0"))
        _await(log, "I have been elected leader")
        for number in range(workers):
            worker = ("org.apache.spark.deploy.worker.Worker", "--host", "127.0.0.1", "--webui-port", "0")
            limits = ("--cores", "1", "--memory", "1g", "--work-dir", str(folder / f"work{number}"), address)
            running.enter_context(_java(folder, f"worker{number}", *worker, *limits))
        for _ in range(workers):
            _await(log, "Registering worker")
        for number in range(workers):
            _await(folder / f"worker{number}.log", "Successfully registered with master")
        yield address


@contextmanager
def connect_server(folder: Path, **variables: str) -> Iterator[str]:
    """A Spark Connect server with a local session of its own; gives its address."""
    port = unused_port()
    submit = ("org.apache.spark.deploy.SparkSubmit", "--master", "local[2]")
    settings = {
        "spark.connect.grpc.binding.address": "127.0.0.1",
        "spark.connect.grpc.binding.port": str(port),
        "spark.ui.enabled": "false",
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
    }
    options = [part for name, value in settings.items() for part in ("--conf", f"{name}={value}")]
    server = ("--class", "org.apache.spark.sql.connect.service.SparkConnectServer", "spark-internal")
    with _java(folder, "connect", *submit, *options, *server, **variables) as log:
        _await(log, "Spark Connect server started")
        yield f"sc://127.0.0.1:{port}"


def lean_python(folder: Path) -> Path:
    """A Python that has what Spark's workers need, and neither Braid nor msgspec."""
    packages = folder / "packages"
    packages.mkdir()
    for path in sys.path:  # an environment may borrow packages of another one; its own come first
        for entry in Path(path).iterdir() if path.endswith("site-packages") else ():
            place = packages / entry.name
            if entry.suffix == ".pth" or entry.name.startswith(("braid", "msgspec")) or place.exists():
                continue
            place.symlink_to(entry)
    python = folder / "python"
    python.write_text(
        f'#!/bin/sh\nexport PYTHONPATH="{packages}:$PYTHONPATH"\nexec "{sys.executable}" -S "$@"\n'
    )
    python.chmod(0o755)
    return python
