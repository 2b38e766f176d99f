"""What do quotes and messages of the real world say?

Nothing of it is part of Braid. It is read from the directory named by the environment variable BRAID_DATA:

    stockquotes.tar.gz   daily quotes of 100 symbols, from the PADRES distribution
    CollegeMsg.txt.gz    messages between users of a social network, from SNAP (Panzarasa et al., 2009)
"""

from __future__ import annotations

import gzip
import re
import tarfile
from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from braid.errors import ConfigurationError
from braid.sim.real_data import data_file

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray

__all__ = [
    "MESSAGES",
    "QUOTES",
    "Quotes",
    "dataset",
    "quote_attributes",
    "read_messages",
    "read_quotes",
]

QUOTES = "stockquotes.tar.gz"
MESSAGES = "CollegeMsg.txt.gz"

_WHAT = {
    QUOTES: "the stock quotes of the PADRES distribution",
    MESSAGES: "the messages between students of SNAP's dataset CollegeMsg",
}
_PAIR = re.compile(r"\[(\w+),(?:'([^']*)'|([-0-9.eE+]+))\]")
_LINE = re.compile(
    r"^(.*?\[symbol,'([^']*)'\].*?\[close,([-0-9.eE+]+)\].*?\[volume,([0-9]+)\].*)$", re.MULTILINE
)
_INTEGERS = frozenset({"volume"})


class Quotes(NamedTuple):
    """All quotes; whole ones are made from their lines where they are needed."""

    lines: list[str]
    symbols: list[str]
    close: NDArray[np.float64]
    volume: NDArray[np.float64]


def dataset(name: str) -> Path:
    """Where a file of real data is, or a `ConfigurationError` that says how to provide it."""
    return data_file(name, _WHAT[name])


def read_quotes(path: Path) -> Quotes:
    """The quotes of an archive with a file for each symbol."""
    texts: dict[str, str] = {}
    with tarfile.open(path) as archive:
        # In the order of the archive: going back in it means unpacking it from the start again.
        for member in archive:
            content = archive.extractfile(member)
            if content is not None:
                texts[member.name] = content.read().decode("ascii", errors="replace")
    found = _LINE.findall("\n".join(texts[name] for name in sorted(texts)))
    if not found:
        raise ConfigurationError(f"{path} holds no stock quotes")
    lines, symbols, close, volume = (list(each) for each in zip(*found, strict=True))
    return Quotes(lines, symbols, np.array(close, dtype=np.float64), np.array(volume, dtype=np.float64))


def quote_attributes(line: str) -> dict[str, Any]:
    """A quote's attributes: prices as floats, the volume as an integer, the rest as strings."""
    return {
        key: text if not number else int(number) if key in _INTEGERS else float(number)
        for key, text, number in _PAIR.findall(line)
    }


@lru_cache(maxsize=1)
def read_messages(path: Path) -> NDArray[np.int64]:
    """Source, target and time (seconds since 1970) of each message, in the order of their times."""
    with gzip.open(path, "rt", encoding="ascii") as lines:
        rows = [line.split() for line in lines]
    # The first line names the columns.
    try:
        table = np.array([row for row in rows[1:] if row], dtype=np.int64).reshape(-1, 3)
    except ValueError as problem:
        raise ConfigurationError(f"{path} is not lines of source, target and time: {problem}") from None
    return table[np.argsort(table[:, 2], kind="stable")]
