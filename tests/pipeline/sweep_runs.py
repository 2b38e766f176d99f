"""What do the sweeps of the tests run? Functions that leave a line in a log each time they are called."""

from __future__ import annotations

import os
import signal
from typing import TYPE_CHECKING, Any

from braid.errors import ConfigurationError

if TYPE_CHECKING:
    from pathlib import Path

    from braid.pipeline.experiments.sweep import RunTask

__all__ = ["calls", "crashing", "failing", "fails_once", "logged", "processes"]


def note(task: RunTask, word: str) -> None:
    """One short line, appended in one piece, so that processes do not tear each other's lines."""
    descriptor = os.open(task.shared / "calls.log", os.O_CREAT | os.O_WRONLY | os.O_APPEND, 0o644)
    try:
        os.write(descriptor, f"{word} {task.settings['number']} {task.seed} {os.getpid()}\n".encode())
    finally:
        os.close(descriptor)


def calls(out: Path, word: str) -> list[tuple[int, int]]:
    """(number, seed) of every call that left this word."""
    log = out / "calls.log"
    lines = [line.split() for line in log.read_text().splitlines()] if log.exists() else []
    return [(int(number), int(seed)) for said, number, seed, _ in lines if said == word]


def processes(out: Path) -> set[str]:
    """The processes that left a line."""
    return {line.split()[-1] for line in (out / "calls.log").read_text().splitlines()}


def logged(task: RunTask) -> dict[str, Any]:
    """Write a file, leave a line. From the number `gate` on, say so and wait to be let through.

    Both are pipes in the shared folder: `arrived` takes a byte, `gate` can be read when somebody writes.
    """
    note(task, "start")
    (task.folder / "hop").mkdir()
    (task.folder / "hop" / "data.txt").write_text(f"{task.settings['number']} {task.seed}")
    if task.settings.get("gate") is not None and task.settings["number"] >= task.settings["gate"]:
        (task.shared / "arrived").write_text("x")
        (task.shared / "gate").read_text()
    note(task, "end")
    return {"square": task.settings["number"] ** 2}


def failing(task: RunTask) -> dict[str, Any]:
    """Fails for the number 2, always."""
    note(task, "start")
    if task.settings["number"] == 2:
        raise ConfigurationError("two is not allowed")
    if task.settings["number"] == 3:
        raise ZeroDivisionError("three divides nothing")
    return {}


def fails_once(task: RunTask) -> dict[str, Any]:
    """Fails the first time, as a disk that was full for a moment would."""
    note(task, "start")
    (task.folder / "half.txt").write_text("half a trace")
    mark = task.shared / f"failed-{task.settings['number']}"
    if not mark.exists():
        mark.touch()
        raise OSError("no space left for a moment")
    return {"attempt": 2}


def crashing(task: RunTask) -> dict[str, Any]:
    """The number 2 takes its worker process along."""
    note(task, "start")
    if task.settings["number"] == 2:
        os.kill(os.getpid(), signal.SIGKILL)
    return {}
