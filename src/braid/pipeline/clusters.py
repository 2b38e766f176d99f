"""Is there a cluster where the user says, and can its machines run Braid?

Spark waits a minute for a master that is not there, and shows a traceback per task where a package lacks.
So both are asked for first: a master by opening a connection to it, the executors by one small job. What is
missing there can be shipped: an archive of the package and of what it needs, for machines with the same
Python.
"""

from __future__ import annotations

import importlib.util
import re
import socket
import threading
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from braid.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import SparkSession

__all__ = ["SHIPPED_FOLDER", "cause_of", "is_local", "require_braid", "require_master", "shipped_archive"]

# How long a master has to accept a connection.
MASTER_TIMEOUT_S = 3.0
# How long a cluster has to run the probe: it may have to start executors first.
PROBE_TIMEOUT_S = 60.0
PROBE_TASKS = 4
MASTER_PORT = 7077
CONNECT_PORT = 15002

SHIPPED_FOLDER = "braid-shipped"
"""What the archive is called where an executor unpacks it."""
# Beside the packages that every Python worker of Spark needs, which are there.
SHIPPED_PACKAGES = ("braid", "msgspec")

_ADDRESSED = re.compile(r"(?P<kind>spark|sc)://(?P<places>[^/;]+)")


def is_local(master: str) -> bool:
    """Whether a master is this machine."""
    return master.startswith("local")


def require_master(master: str) -> None:
    """Make sure that something listens where a standalone master or a Spark Connect server is said to be.

    Raises:
        ConfigurationError: nothing does; the first line says why.
    """
    found = _ADDRESSED.match(master)
    if found is None:  # a cluster that is found by its own means, such as yarn
        return
    what = "Spark master" if found["kind"] == "spark" else "Spark Connect server"
    default = MASTER_PORT if found["kind"] == "spark" else CONNECT_PORT
    problems = []
    for place in found["places"].split(","):
        host, _, port = place.rpartition(":") if ":" in place else (place, "", str(default))
        if not host or not port.isdigit() or not 0 < int(port) < 1 << 16:
            raise ConfigurationError(
                f"{master}: {place!r} is no address; it is like {found['kind']}://host:port"
            )
        try:
            socket.create_connection((host, int(port)), timeout=MASTER_TIMEOUT_S).close()
            return
        except TimeoutError:
            problems.append(f"{place}: no answer within {MASTER_TIMEOUT_S:g} s")
        except OSError as problem:
            problems.append(f"{place}: {problem.strerror or problem}")
    raise ConfigurationError(f"there is no {what} at {master} ({'; '.join(problems)})")


def require_braid(spark: SparkSession, master: str, timeout_s: float = PROBE_TIMEOUT_S) -> None:
    """Have the executors import Braid once.

    Raises:
        ConfigurationError: they cannot, or no executor ran anything in time.
    """
    found: list[Any] = []

    def ask() -> None:
        try:
            found.extend(
                spark.range(0, PROBE_TASKS, 1, PROBE_TASKS).mapInArrow(_probe(), PROBED).distinct().collect()
            )
        except Exception as problem:
            found.append(problem)

    thread = threading.Thread(target=ask, name="probe of the executors", daemon=True)
    thread.start()
    thread.join(timeout_s)
    if not found:
        raise ConfigurationError(
            f"no executor of {master} has run anything for {timeout_s:g} s: has the cluster workers with "
            "free cores and memory, and do they reach this machine?"
        )
    if isinstance(found[0], Exception):
        raise ConfigurationError(
            f"the executors of {master} cannot run Python tasks: {cause_of(found[0])}"
        ) from found[0]
    bad = [row for row in found if row.problem]
    if bad:
        raise ConfigurationError(
            f"the executors of {master} cannot import Braid ({bad[0].host}, {bad[0].python}: "
            f'{bad[0].problem}): install "braid-pubsub[spark]" there, or ship it from here (--ship)'
        )


PROBED = "host string, python string, problem string"


def _probe() -> Any:
    """A function that travels as a whole, because what it looks for may not be there."""

    def probe(batches: Iterator[Any]) -> Iterator[Any]:
        import platform
        import sys

        import pyarrow as pa

        problem = ""
        try:
            import braid.pipeline.source.source  # noqa: F401
        except Exception as missing:
            problem = f"{missing}"
        for _ in batches:
            row = {"host": platform.node(), "python": sys.executable, "problem": problem}
            yield pa.RecordBatch.from_pylist([row])

    return probe


def cause_of(problem: BaseException) -> str:
    """What happened, in one line: the innermost cause that a report of Spark names."""
    lines = [line.strip() for line in str(problem).splitlines()]
    causes = [line.removeprefix("Caused by: ") for line in lines if line.startswith("Caused by: ")]
    raised = [line for line in lines if re.match(r"[\w.]*(Error|Exception)\b.*: ", line)]
    candidates = causes[-1:] or raised[-1:] or [line for line in lines if line] or [type(problem).__name__]
    return re.sub(r"^(?:[a-z_]\w*\.)+(?=\w+(?:Error|Exception))", "", candidates[0])


def shipped_archive(folder: Path) -> Path:
    """An archive of this package and of what it needs beyond what Spark's workers have.

    It has the compiled parts for this Python and platform; what is in it also lies unpacked beside it.
    """
    archive = folder / f"{SHIPPED_FOLDER}.zip"
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED) as packed:
        for package in SHIPPED_PACKAGES:
            spec = importlib.util.find_spec(package)
            if spec is None or not spec.submodule_search_locations:
                raise ConfigurationError(f"the package {package} has no folder here, so it cannot be shipped")
            for root in map(Path, spec.submodule_search_locations):
                for file in sorted(root.rglob("*")):
                    if file.is_file() and "__pycache__" not in file.parts:
                        packed.write(file, Path(package) / file.relative_to(root))
    with zipfile.ZipFile(archive) as packed:
        packed.extractall(folder / SHIPPED_FOLDER)
    return archive
