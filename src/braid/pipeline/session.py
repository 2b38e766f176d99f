"""How does a Spark session start so that it is quiet, correct and needs no set-up?

A session is made once, at the door: by a command, an experiment or a test. Jobs receive it.

    with spark_session("overlay report") as spark:
        spark.read.parquet("traces/").transform(...)

Local mode is the default, with half of the machine's memory; `master` may name a cluster, or a Spark Connect
server by its `sc://` address, which needs no Java here. What Java and Spark print goes to a log file instead
of the terminal; Python exceptions still surface, and a session that does not start quotes the end of that
log.
"""

from __future__ import annotations

import atexit
import importlib.util
import logging
import os
import shutil
import sys
import tempfile
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from braid.errors import ConfigurationError
from braid.pipeline.clusters import (
    SHIPPED_FOLDER,
    cause_of,
    is_local,
    require_braid,
    require_master,
    shipped_archive,
)
from braid.pipeline.java import find_java

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from pyspark.sql import SparkSession

__all__ = ["Profile", "spark_session", "start_session"]

Profile = Literal["standard", "testing"]
"""`testing` starts and plans small jobs twice as fast and would run large ones slowly."""

# Plain `local[*]` never retries a task; the second number is the attempts a task gets.
LOCAL_MASTER = "local[*,4]"
# One core and one attempt: in a test, a task that fails is the answer.
TESTING_MASTER = "local[1]"

CONNECT_PREFIX = "sc://"
# What Spark Connect needs beside Spark: module, and the package that brings it.
CONNECT_MODULES = {
    "grpc": "grpcio",
    "grpc_status": "grpcio-status",
    "google.rpc": "googleapis-common-protos",
    "zstandard": "zstandard",
}

# Spark's own default of 1 GiB is too small for joins over millions of rows. Half of the memory leaves room
# for the Python workers beside the Java process; beyond 16 GiB a heap only collects garbage for longer.
DRIVER_MEMORY_SHARE = 0.5
DRIVER_MEMORY_MIB_MIN = 1_024
DRIVER_MEMORY_MIB_MAX = 16_384
# A container may have less than its machine.
CONTROL_GROUP_LIMIT = Path("/sys/fs/cgroup/memory.max")

LOG_LINES_QUOTED = 15

ALWAYS = {
    # Attribute names are case-sensitive in the filter language.
    "spark.sql.caseSensitive": "true",
    # With this off, a Python data source that offers to take filters makes the query fail.
    "spark.sql.python.filterPushdown.enabled": "true",
    # Tables must not depend on the time zone of the machine that made them.
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
}

LOCALLY = {
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
    # Saves about a third of the cost of moving rows between Java and Python.
    "spark.python.unix.domain.socket.enabled": "true",
}

# Small jobs spend their time planning, compiling and warming up, so all three are cut short.
TESTING = {
    "spark.default.parallelism": "1",
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.shuffle.partitions": "1",
}

LOG_SETTINGS = """\
rootLogger.level = warn
rootLogger.appenderRef.stderr.ref = stderr
appender.stderr.type = Console
appender.stderr.name = stderr
appender.stderr.target = SYSTEM_ERR
appender.stderr.layout.type = PatternLayout
appender.stderr.layout.pattern = %d{yyyy-MM-dd HH:mm:ss.SSS} %p %c{1}: %m%n%ex
"""

logger = logging.getLogger(__name__)


@contextmanager
def spark_session(
    app_name: str,
    *,
    master: str | None = None,
    profile: Profile = "standard",
    settings: Mapping[str, str] | None = None,
    log_file: Path | None = None,
    ship: bool = False,
) -> Iterator[SparkSession]:
    """Lend a Spark session for the length of a `with` block.

    A session that already runs in this process (a notebook's, a test's) is lent as it is, unchanged, and
    keeps running afterwards. Otherwise one is started as `start_session` does, and stopped at the end.
    """
    _require_pyspark()
    running = _running_session()
    if running is not None:
        logger.info("using the Spark session that is already running: %s", running.sparkContext.appName)
        yield running
        return
    session = start_session(
        app_name, master=master, profile=profile, settings=settings, log_file=log_file, ship=ship
    )
    try:
        yield session
    finally:
        session.stop()


def start_session(
    app_name: str,
    *,
    master: str | None = None,
    profile: Profile = "standard",
    settings: Mapping[str, str] | None = None,
    log_file: Path | None = None,
    ship: bool = False,
) -> SparkSession:
    """Start a Spark session that the caller stops.

    Standard output and error of the whole process point at the log file while the session starts (some
    seconds); the Java process keeps writing there afterwards, Spark's console sink included.

    Args:
        app_name: what Spark calls the job.
        master: where to run. By default `local[*,4]`: all cores of this machine, four attempts per task.
            An address such as `sc://host:15002` is a Spark Connect server: it has settings, log and files
            of its own, so only Spark SQL settings are passed on, and paths are paths on that server.
        profile: `testing` for many tiny jobs.
        settings: Spark settings on top of, and stronger than, the profile's. Those that shape the Java
            process (memory, Java options) count only for the first session of a process, because Spark
            keeps that process.
        log_file: where Spark's own messages go; by default a temporary file that ends with the process.
        ship: send this package to the executors of a cluster that do not have it. They need the same Python;
            over Spark Connect they need msgspec too.

    Raises:
        ConfigurationError: Spark or Java is missing, a session is running already, it did not start, nothing
            answers at `master`, or its executors cannot import Braid.
    """
    _require_pyspark()
    from pyspark.sql import SparkSession

    running = _running_session()
    if running is not None:
        raise ConfigurationError(
            f"a Spark session is already running in this process: {running.sparkContext.appName!r}. "
            "Use it (spark_session lends it), or stop it first."
        )
    if master is None:
        master = TESTING_MASTER if profile == "testing" else LOCAL_MASTER
    if master.startswith(CONNECT_PREFIX):
        return _connect(app_name, master, _settings(master, profile) | dict(settings or {}), ship=ship)
    require_master(master)
    log_path = log_file if log_file is not None else _scratch_directory() / "spark.log"
    builder = SparkSession.builder.appName(app_name).master(master)
    chosen = _settings(master, profile) | dict(settings or {})
    variables = _environment_for_spark(master)
    if ship and not is_local(master):
        chosen = _with_package(chosen)
        # Sources are planned here, but by the Python that executors have.
        paths = [str(_scratch_directory() / SHIPPED_FOLDER), os.environ.get("PYTHONPATH", "")]
        variables["PYTHONPATH"] = os.pathsep.join(filter(None, paths))
    for name, value in chosen.items():
        builder = builder.config(name, value)
    with _environment(variables):
        try:
            with _output_in(log_path):
                session = builder.getOrCreate()
        except Exception as problem:
            raise ConfigurationError(
                f"the Spark session did not start on {master}: {cause_of(problem)}\n{_end_of_log(log_path)}"
            ) from problem
    _hush_query_loggers()
    if not is_local(master):
        _probed(session, master)
    return session


def _probed(session: SparkSession, master: str) -> None:
    """Stop a session whose executors cannot run Braid, and say so."""
    try:
        require_braid(session, master)
    except ConfigurationError:
        session.stop()
        raise


def _with_package(settings: Mapping[str, str]) -> dict[str, str]:
    """Settings with which executors unpack this package and find it."""
    archive = f"{shipped_archive(_scratch_directory())}#{SHIPPED_FOLDER}"
    path = "spark.executorEnv.PYTHONPATH"
    return {
        **settings,
        "spark.archives": ",".join(filter(None, [settings.get("spark.archives"), archive])),
        path: os.pathsep.join(filter(None, [SHIPPED_FOLDER, settings.get(path)])),
    }


def _connect(app_name: str, address: str, settings: Mapping[str, str], *, ship: bool) -> SparkSession:
    """Open a session on a Spark Connect server."""
    missing = [package for module, package in CONNECT_MODULES.items() if not _is_installed(module)]
    if missing:
        raise ConfigurationError(
            f"Spark Connect ({address}) needs packages that are not installed: {', '.join(missing)}. "
            'pip install "braid-pubsub[connect]" brings them.'
        )
    require_master(address)
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.appName(app_name).remote(address)
    for name, value in settings.items():
        if name.startswith("spark.sql."):
            builder = builder.config(name, value)
    try:
        session = builder.getOrCreate()
    except Exception as problem:
        raise ConfigurationError(f"there is no session on {address}: {cause_of(problem)}") from problem
    if ship:
        session.addArtifacts(str(shipped_archive(_scratch_directory())), pyfile=True)
    _probed(session, address)
    return session


def _is_installed(module: str) -> bool:
    try:
        return importlib.util.find_spec(module) is not None
    except ModuleNotFoundError:  # the package that it would be in is missing
        return False


def _running_session() -> SparkSession | None:
    """The session of this process, whichever thread started it (Spark calls it active in that one only)."""
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

    if SparkContext._active_spark_context is None:
        return None
    return SparkSession.getActiveSession() or SparkSession.builder.getOrCreate()


def _hush_query_loggers() -> None:
    """Keep PySpark from writing every SQL exception to standard error before it is even raised."""
    from pyspark.logger import PySparkLogger

    for name in ("DataFrameQueryContextLogger", "SQLQueryContextLogger"):
        PySparkLogger.getLogger(name).setLevel(logging.CRITICAL)


def _require_pyspark() -> None:
    if importlib.util.find_spec("pyspark") is None:
        raise ConfigurationError('Spark is not installed: pip install "braid-pubsub[spark]"')


def _settings(master: str, profile: Profile) -> dict[str, str]:
    settings = dict(ALWAYS)
    if is_local(master):
        settings |= LOCALLY
        # Otherwise the first table leaves a directory wherever the program happened to be started.
        settings["spark.sql.warehouse.dir"] = (_scratch_directory() / "warehouse").as_uri()
        # Small tests need no more than Spark's default; who has set Spark up for this machine has chosen.
        if profile == "standard" and not {"SPARK_DRIVER_MEMORY", "SPARK_CONF_DIR"} & set(os.environ):
            settings["spark.driver.memory"] = f"{_driver_memory_mib()}m"
    if profile == "testing":
        settings |= TESTING
    return settings


def _driver_memory_mib() -> int:
    """A share of the machine's memory, or of what this process's control group may use, within bounds."""
    try:
        bytes_all = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (ValueError, OSError):  # a system that does not say
        return DRIVER_MEMORY_MIB_MIN
    limit = CONTROL_GROUP_LIMIT.read_text().strip() if CONTROL_GROUP_LIMIT.is_file() else ""
    if limit.isdigit():
        bytes_all = min(bytes_all, int(limit))
    share = int(bytes_all * DRIVER_MEMORY_SHARE) >> 20
    return min(max(share, DRIVER_MEMORY_MIB_MIN), DRIVER_MEMORY_MIB_MAX)


def _environment_for_spark(master: str) -> dict[str, str]:
    """The variables that Spark reads while it starts."""
    variables = {"JAVA_HOME": str(find_java().home), "PYSPARK_DRIVER_PYTHON": sys.executable}
    if is_local(master):
        # Otherwise the workers take the first python3 on PATH, which does not have our packages.
        variables["PYSPARK_PYTHON"] = sys.executable
        variables["SPARK_LOCAL_IP"] = "127.0.0.1"
    else:
        # On a cluster the path of Python is the cluster's affair, when somebody has said it.
        variables["PYSPARK_PYTHON"] = os.environ.get("PYSPARK_PYTHON", sys.executable)
    if "SPARK_CONF_DIR" not in os.environ:
        directory = _scratch_directory() / "conf"
        directory.mkdir(exist_ok=True)
        (directory / "log4j2.properties").write_text(LOG_SETTINGS)
        variables["SPARK_CONF_DIR"] = str(directory)
    return variables


@contextmanager
def _environment(variables: Mapping[str, str]) -> Iterator[None]:
    """Set environment variables for a while; Spark and its Java process keep the values they saw."""
    before = {name: os.environ.get(name) for name in variables}
    os.environ.update(variables)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


@contextmanager
def _output_in(path: Path) -> Iterator[None]:
    """Point file descriptors 1 and 2 at a file, because the Java process inherits the descriptors themselves.

    Both, because a Java that cannot start says so on standard output, where our commands print results.
    """
    sys.stdout.flush()
    sys.stderr.flush()
    saved = {descriptor: os.dup(descriptor) for descriptor in (1, 2)}
    try:
        with path.open("ab") as log:
            for descriptor in saved:
                os.dup2(log.fileno(), descriptor)
        yield
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        for descriptor, original in saved.items():
            os.dup2(original, descriptor)
            os.close(original)


def _end_of_log(path: Path) -> str:
    lines = path.read_text(errors="replace").splitlines()
    if not lines:
        return f"Its log {path} is empty."
    return "\n".join(["The end of its log:", *(f"  {line}" for line in lines[-LOG_LINES_QUOTED:])])


@cache
def _scratch_directory() -> Path:
    """This process's own directory for Spark's settings, log and tables; it goes when the process ends."""
    directory = tempfile.mkdtemp(prefix="braid-spark-")
    atexit.register(shutil.rmtree, directory, ignore_errors=True)
    return Path(directory)
