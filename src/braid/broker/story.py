"""What happened to a broker last, for whoever has to find out why something broke.

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

# Inputs that are remembered.
LENGTH_MAX = 64
# Kinds of frames that are named of one read.
KINDS_MAX = 6


class Story:
    """The latest inputs of one broker."""

    __slots__ = ("_lines",)

    def __init__(self) -> None:
        self._lines: deque[tuple[int, Input | tuple[int, int, tuple[str, ...]]]] = deque(maxlen=LENGTH_MAX)

    def add(self, stimulus: Input, now_us: int) -> None:
        """Remember one more input."""
        if type(stimulus) is Received:
            frames = stimulus.frames
            kinds = tuple(type(frame.body).__name__ for frame in frames[:KINDS_MAX])
            self._lines.append((now_us, (stimulus.connection, len(frames), kinds)))
        else:
            self._lines.append((now_us, stimulus))

    def lines(self) -> list[str]:
        """One line for each input, the oldest first."""
        return [f"{now_us:>14,} us  {_told(what)}" for now_us, what in self._lines]


def _told(what: Input | tuple[int, int, tuple[str, ...]]) -> str:
    if not isinstance(what, tuple):
        return repr(what)
    connection, count, kinds = what
    more = f" and {count - len(kinds)} more" if count > len(kinds) else ""
    return f"connection {connection} brings {', '.join(kinds) or 'nothing'}{more}"
