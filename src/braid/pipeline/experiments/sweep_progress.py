"""How far is a sweep?

The folder of finished runs knows, whoever did them and wherever: nothing has to be reported by the tasks. A
thread counts them some times a second and moves a bar on standard error. Where that is no terminal, a long
sweep writes a line every half minute instead.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["Watcher", "watching"]

Watcher = Callable[[int, int], None]
"""Called with how many runs are finished, and how many there will be."""

_LOOK_SECONDS = 0.25
_LINE_SECONDS = 30.0


@contextmanager
def watching(
    count: Callable[[], int], total: int, description: str, watcher: Watcher | None = None
) -> Iterator[None]:
    """Look after the number of finished runs for the length of a `with` block, and once more at its end."""
    if watcher is not None:
        with _polling(count, total, watcher):
            yield
    elif sys.stderr.isatty():
        with _bar(description, total) as move, _polling(count, total, move):
            yield
    else:
        with _polling(count, total, _Lines(description)):
            yield


@contextmanager
def _polling(count: Callable[[], int], total: int, watcher: Watcher) -> Iterator[None]:
    seen = -1
    ended = threading.Event()

    def look() -> None:
        nonlocal seen
        found = count()
        if found != seen:
            seen = found
            watcher(found, total)

    def keep_looking() -> None:
        look()
        while not ended.wait(_LOOK_SECONDS):
            look()

    thread = threading.Thread(target=keep_looking, name="sweep progress", daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()
        look()


class _Lines:
    """Says in the log how far it is, not too often."""

    def __init__(self, description: str) -> None:
        self._description = description
        self._begun = self._said = time.monotonic()

    def __call__(self, finished: int, total: int) -> None:
        now = time.monotonic()
        if now - self._said >= _LINE_SECONDS:
            self._said = now
            minutes, seconds = divmod(round(now - self._begun), 60)
            line = f"{self._description}: {finished} of {total} runs, {minutes}:{seconds:02d} gone"
            print(line, file=sys.stderr, flush=True)


@contextmanager
def _bar(description: str, total: int) -> Iterator[Watcher]:
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeElapsedColumn,
        TimeRemainingColumn,
    )

    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("runs,"),
        TimeElapsedColumn(),
        TextColumn("gone,"),
        TimeRemainingColumn(),
        TextColumn("left"),
    )
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task(description, total=total)
        yield lambda finished, _: progress.update(task, completed=finished)
