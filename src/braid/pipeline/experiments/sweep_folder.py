"""How does one run of a sweep reach its folder whole and once, whoever is killed on the way?

    TRACES/.run=<key>.<token>/      a run at work; `.alive` is locked as long as its process lives
    TRACES/run=<key>/               a finished run: its trace, and run.json with question and answer

A run is finished by one rename of its folder, after everything in it is on disk. Whoever comes second,
because Spark repeated the task or another sweep ran the same point, finds the place taken and throws its copy
away. The system releases the lock of a killed process, so a folder whose lock can be had belongs to nobody.
"""

from __future__ import annotations

import errno
import fcntl
import json
import os
import shutil
import time
import uuid
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

from braid.errors import ConfigurationError

if TYPE_CHECKING:
    from pathlib import Path
    from types import TracebackType

__all__ = ["RUN_FORMAT", "FinishedRun", "RunFolder", "clean_leftovers", "finished_keys", "read_run"]

RUN_FORMAT = 1
"""The version of `run.json` and of what a run's folder holds; part of every key."""

_RUN = "run="
_DOCUMENT = "run.json"
_ALIVE = ".alive"
# Between making its folder and locking it a process does next to nothing, so after a day it is dead.
_UNLOCKED_SECONDS_MAX = 24 * 3600.0


@dataclass(frozen=True, slots=True)
class FinishedRun:
    """What `run.json` says."""

    key: str
    function: str
    settings: dict[str, Any]
    seed: int
    summary: dict[str, Any]
    seconds: float

    def to_json(self) -> dict[str, Any]:
        """The document, with the version of its format."""
        return {
            "format": RUN_FORMAT,
            "key": self.key,
            "function": self.function,
            "settings": self.settings,
            "seed": self.seed,
            "summary": self.summary,
            "seconds": self.seconds,
        }


class RunFolder:
    """A folder for one attempt at a run: `commit` makes it the run's folder, leaving without it removes it.

    with RunFolder(traces, key) as folder:
        ... write below folder.path ...
        folder.commit(run)
    """

    def __init__(self, traces: Path, key: str) -> None:
        self.path = traces / f".{_RUN}{key}.{uuid.uuid4().hex[:12]}"
        self._final = traces / f"{_RUN}{key}"
        self._lock: int | None = None

    def __enter__(self) -> Self:
        self.path.mkdir(parents=True)
        # Locked before it gets the name that cleaners look for, so that they never find it free too early.
        unready = self.path / f"{_ALIVE}.new"
        self._lock = os.open(unready, os.O_CREAT | os.O_RDWR, 0o644)
        if _try_lock(self._lock):
            unready.rename(self.path / _ALIVE)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        shutil.rmtree(self.path, ignore_errors=True)  # after a commit there is nothing under that name
        if self._lock is not None:
            os.close(self._lock)

    def commit(self, run: FinishedRun) -> bool:
        """Make this the run's folder; False when another attempt was first."""
        (self.path / f"{_ALIVE}.new").unlink(missing_ok=True)
        (self.path / _ALIVE).unlink(missing_ok=True)  # without it, nobody takes the folder for a dead one
        document = self.path / _DOCUMENT
        with document.open("w", encoding="utf-8") as sink:
            json.dump(run.to_json(), sink, indent=2, ensure_ascii=False)
            sink.write("\n")
            sink.flush()
            os.fsync(sink.fileno())
        _sync_directory(self.path)
        try:
            # A rename onto a folder that holds something is refused by the system: the first one stays.
            self.path.rename(self._final)
        except OSError as problem:
            if problem.errno in (errno.EEXIST, errno.ENOTEMPTY):
                return False
            raise
        _sync_directory(self._final.parent)
        return True


def finished_keys(traces: Path) -> set[str]:
    """The keys of all runs that were committed there."""
    try:
        return {name.removeprefix(_RUN) for name in os.listdir(traces) if name.startswith(_RUN)}
    except FileNotFoundError:
        return set()


def read_run(traces: Path, key: str) -> FinishedRun:
    """What a finished run was asked and what it answered.

    Raises:
        ConfigurationError: the folder is there, but was not left by a commit or has been changed since.
    """
    path = traces / f"{_RUN}{key}" / _DOCUMENT
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
        if found["format"] != RUN_FORMAT or found["key"] != key:
            raise ValueError(f"it speaks of format {found['format']} and key {found['key']!r}")
        fields = ("key", "function", "settings", "seed", "summary", "seconds")
        return FinishedRun(**{name: found[name] for name in fields})
    except (OSError, ValueError, KeyError, TypeError) as problem:
        raise ConfigurationError(
            f"{path.parent} is not a finished run of this version ({problem}). Remove that folder, "
            "and the run will be done again."
        ) from None


def clean_leftovers(traces: Path) -> list[str]:
    """Remove the folders of runs whose processes are surely dead; returns their names."""
    return [path.name for path in sorted(traces.glob(f".{_RUN}*")) if _is_dead_and_gone(path)]


def _is_dead_and_gone(path: Path) -> bool:
    """Remove a folder if nobody can be at work in it."""
    try:
        lock = os.open(path / _ALIVE, os.O_RDWR)
    except OSError:
        # Being made, being committed, or on a file system without locks: only age can tell.
        try:
            dead = time.time() - path.stat().st_mtime > _UNLOCKED_SECONDS_MAX
        except OSError:
            return False
        if dead:
            shutil.rmtree(path, ignore_errors=True)
        return dead
    try:
        if not _try_lock(lock):
            return False
        shutil.rmtree(path, ignore_errors=True)
        return True
    finally:
        os.close(lock)


def _try_lock(descriptor: int) -> bool:
    """Take the lock of an open file; False when somebody has it or the file system knows no locks."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True


def _sync_directory(path: Path) -> None:
    """Names are on disk too, so that a power cut does not take back a commit."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
