"""What happened to a broker last, to find out why something broke.

A bounded log of the latest inputs, in a few words each: it keeps no publication alive. Single publications
that are merely passed on are not in it.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from braid.protocol.inputs import Received

if TYPE_CHECKING:
    from braid.protocol.inputs import Input

__all__ = ["Story"]

# Inputs that are remembered. There may be thousands of brokers in one process, so this is kept small.
LENGTH_MAX = 24


class Story:
    """The latest inputs of one broker."""

    __slots__ = ("_lines",)

    def __init__(self) -> None:
        self._lines: deque[tuple[int, Input] | tuple[int, int, int, type]] = deque(maxlen=LENGTH_MAX)

    def add(self, stimulus: Input, now_us: int) -> None:
        """Remember one more input."""
        if type(stimulus) is Received:
            frames = stimulus.frames
            kind = type(frames[0].body) if frames else type(None)
            self._lines.append((now_us, stimulus.connection, len(frames), kind))
        else:
            self._lines.append((now_us, stimulus))

    def lines(self) -> list[str]:
        """One line for each input, the oldest first."""
        return [f"{line[0]:>14,} us  {_told(line)}" for line in self._lines]


def _told(line: tuple[int, Input] | tuple[int, int, int, type]) -> str:
    if len(line) == 2:
        return repr(line[1])
    _, connection, count, kind = line
    if not count:
        return f"connection {connection} brings a piece of a long frame"
    more = f" and {count - 1} more" if count > 1 else ""
    return f"connection {connection} brings {kind.__name__}{more}"
