"""How far is a sweep?

The folder of finished runs knows, whoever did them and wherever: nothing has to be reported by the tasks. A
thread counts them some times a second and moves a bar on standard error when that is a terminal.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["Watcher", "watching"]

Watcher = Callable[[int, int], None]
"""Called with how many runs are finished, and how many there will be."""

_LOOK_SECONDS = 0.25


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
