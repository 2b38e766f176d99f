"""How does a command show people how far it is, without spoiling its output?"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

__all__ = ["byte_progress", "examples", "is_terminal", "json_text", "say", "spinner"]


def examples(*lines: str) -> str:
    """Examples below a command's options; blank lines keep each on a line of its own."""
    return "\n\n".join(["Examples:", *(f"[bold]{line}[/bold]" for line in lines)])


def json_text(content: object) -> str:
    """A report as people and programs can both read it."""
    import json

    return json.dumps(content, indent=2, ensure_ascii=False)


def say(message: str) -> None:
    """One message on standard error; standard output belongs to the answers."""
    sys.stderr.write(message + "\n")


def is_terminal() -> bool:
    """True when a progress display has someone to look at it and no output to disturb."""
    return sys.stderr.isatty()


def spinner(text: str) -> Any:
    """Something that turns on standard error while Spark works; where nobody looks, one line."""
    if not is_terminal():
        say(text)
        return nullcontext()
    from rich.console import Console

    return Console(stderr=True).status(text)


@contextmanager
def byte_progress(description: str, path: str, output: str) -> Iterator[Callable[[int], None]]:
    """A function to call with the bytes that have been dealt with; a bar when someone is looking."""
    if not is_terminal() or (output == "-" and sys.stdout.isatty()):
        yield lambda _: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TransferSpeedColumn

    total = Path(path).stat().st_size if Path(path).is_file() else None
    columns = (TextColumn(description), BarColumn(), DownloadColumn(), TransferSpeedColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task(description, total=total)
        yield lambda amount: progress.advance(task, amount)
