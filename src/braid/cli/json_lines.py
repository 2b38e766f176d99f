"""How do JSON lines come in and go out, however many there are?

Input is read as it arrives: a batch holds the lines that are there, at most as many as asked for,
so a pipe is answered at once and a file in large pieces. Nothing here grows with the number of
lines. A line that cannot be used is reported as `file:line: what is wrong`.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from enum import StrEnum
from pathlib import Path
from typing import Any, BinaryIO, cast

import msgspec

from braid.errors import ConfigurationError

__all__ = [
    "OnError",
    "decode",
    "encode_lines",
    "input_name",
    "open_input",
    "open_output",
    "read_batches",
    "require_writable",
]

_READ_BYTES = 1 << 20
# Far above any publication; a file without line ends should not be read into memory whole.
LINE_BYTES_MAX = 64 << 20
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"


class OnError(StrEnum):
    """What a line that cannot be used does to the run."""

    STOP = "stop"
    SKIP = "skip"


def input_name(path: str) -> str:
    """What to call an input in messages."""
    return "standard input" if path == "-" else path


@contextmanager
def open_input(path: str) -> Iterator[BinaryIO]:
    """The file as a binary stream; `-` is standard input, which stays open afterwards."""
    if path == "-":
        yield cast("BinaryIO", sys.stdin.buffer)
        return
    with ExitStack() as stack:
        try:
            stream = stack.enter_context(Path(path).open("rb"))
        except OSError as error:
            raise ConfigurationError(f"{path}: cannot be read: {error.strerror}") from error
        yield stream


@contextmanager
def open_output(path: str, inputs: Iterable[str] = ()) -> Iterator[BinaryIO]:
    """The file, emptied, as a binary stream; `-` is standard output, which stays open afterwards.

    `inputs` are the files being read: writing over one of them is refused.
    """
    if path == "-":
        yield cast("BinaryIO", sys.stdout.buffer)
        return
    with ExitStack() as stack:
        try:
            for each in inputs:
                if _same_file(path, each):
                    raise ConfigurationError(f"{path}: cannot be written while it is being read")
            stream = stack.enter_context(Path(path).open("wb"))
        except OSError as error:
            raise ConfigurationError(f"{path}: cannot be written: {error.strerror}") from error
        yield stream


def _same_file(path: str, source: str) -> bool:
    if not Path(path).exists():
        return False
    if source != "-":
        return Path(path).samefile(source)
    try:
        return os.path.samestat(os.stat(path), os.fstat(sys.stdin.fileno()))
    except (OSError, ValueError):  # standard input is no file, or closed
        return False


def require_writable(path: str) -> None:
    """Refuse a path that could not be written later; a file that is there keeps its content."""
    if path == "-":
        return
    try:
        with Path(path).open("ab"):
            pass
    except OSError as error:
        raise ConfigurationError(f"{path}: cannot be written: {error.strerror}") from error


def read_batches(stream: BinaryIO, lines_max: int) -> Iterator[list[tuple[int, bytes]]]:
    """Numbered lines (from 1, blank ones left out) in batches of at most `lines_max`."""
    number = 0
    rest = b""
    while True:
        chunk = _read_available(stream)
        lines = (rest + chunk).split(b"\n")
        # Without a chunk the input has ended, and what is left is its last line.
        rest = lines.pop() if chunk else b""
        if len(rest) > LINE_BYTES_MAX:
            raise ConfigurationError(
                f"line {number + len(lines) + 1} is longer than {LINE_BYTES_MAX:,} bytes"
            )
        if number == 0 and lines and lines[0].startswith(_BYTE_ORDER_MARK):
            lines[0] = lines[0][len(_BYTE_ORDER_MARK) :]
        numbered = [(number + offset, line) for offset, line in enumerate(lines, 1) if line.strip()]
        number += len(lines)
        for start in range(0, len(numbered), lines_max):
            yield numbered[start : start + lines_max]
        if not chunk:
            return


def _read_available(stream: BinaryIO) -> bytes:
    """What can be had without waiting for more than the first byte; empty at the end."""
    read1 = getattr(stream, "read1", None)
    data: bytes = read1(_READ_BYTES) if read1 is not None else os.read(stream.fileno(), _READ_BYTES)
    return data


def decode(data: bytes | str) -> Any:
    """One JSON value; a ValueError with a plain reason when it is none."""
    try:
        return msgspec.json.decode(data)
    except UnicodeError as error:
        raise ValueError(f"not UTF-8: {error}") from None
    except ValueError as error:
        raise ValueError(f"not JSON: {str(error).removeprefix('JSON is malformed: ')}") from None
    except RecursionError:
        raise ValueError("nested too deeply") from None


encode_lines = msgspec.json.Encoder().encode_lines
