"""What did a client do before it was killed?

Each client appends to a file of its own, in single writes, so that a `kill -9` loses nothing that was
written. A line that was cut short is not believed: every whole one ends with a full stop. Times are those of
the system's monotonic clock, in nanoseconds, which all processes share.

    life 2                  a new process goes on
    ready 500               it is connected and has been answered, at this time
    published w1.2 120 500  about to publish, up to this number, at this time
    settled w1.2 100 500    has the receipts up to this number, at this time
    flushed w1.2            has all receipts
    row 17 w1.2 100 64      was given this offset of its log: publisher, number, price
    seen 7 w1.2 100 500     a plain subscription for this id was given a publication, at this time
    confirmed 17 500        the broker has safely stored that everything up to this offset is acknowledged;
                            it was asked at this time
    reset                   the log is not the one that it was before
    trouble ...             whatever should not happen
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

__all__ = ["Journal", "JournalReader", "journal_path"]

_END = " ."


def journal_path(directory: Path, client: str) -> Path:
    """Where a client writes."""
    return directory / f"{client}.journal"


class Journal:
    """For the client: appends."""

    def __init__(self, directory: Path, client: str) -> None:
        self._file = os.open(journal_path(directory, client), os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        os.write(self._file, b"\n")  # ends a line that the process before could not finish

    def write(self, *lines: str) -> None:
        """Append lines in one write."""
        self.write_all(lines)

    def write_all(self, lines: Iterable[str]) -> None:
        """Append lines in one write."""
        os.write(self._file, "".join(f"{line}{_END}\n" for line in lines).encode())

    def close(self) -> None:
        os.close(self._file)


class JournalReader:
    """For the checker: reads what has been added since the last time."""

    def __init__(self, directory: Path, client: str) -> None:
        self._path = journal_path(directory, client)
        self._position = 0

    def lines(self) -> Iterator[list[str]]:
        """The new whole lines, each as its words."""
        if not self._path.exists():
            return
        with self._path.open("rb") as file:
            file.seek(self._position)
            data = file.read()
        end = data.rfind(b"\n") + 1
        self._position += end
        for line in data[:end].decode().split("\n"):
            if line.endswith(_END):
                yield line.removesuffix(_END).split(" ")
