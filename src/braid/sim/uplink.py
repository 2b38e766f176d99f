"""How much can leave one node in a second?

All connections of a node share its uplink in turns, one frame each. What waits here is little: a connection
for which more than some frames wait is reported as not writable, so that the rest waits in the machine, where
the machine's own rules about order, memory and dropping apply. Acknowledgements and heartbeats do not wait
behind publications, as with real connections (`runtime/connection.py`).
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from braid.protocol import PublicationBatch
from braid.protocol.inputs import Writable
from braid.protocol.messages import PASSING, Hello, Welcome
from braid.sim.models import frame_bytes

if TYPE_CHECKING:
    from collections.abc import Sequence

    from braid.protocol.codec import Frame
    from braid.sim.loop import Loop
    from braid.sim.pipe import Cargo, Pipe

__all__ = ["Uplink"]

_FIRST = PASSING | {Hello, Welcome}
# Frames of one connection that wait at which it is not writable, and writable again.
WAITING_HIGH = 4
WAITING_LOW = 1


class Uplink:
    """The way out of one node."""

    __slots__ = (
        "_choked",
        "_leaving",
        "_lines",
        "_loop",
        "_owed",
        "_served",
        "_served_line",
        "busy_us",
        "bytes_per_s",
        "messages_per_s",
        "waiting_bytes",
    )

    def __init__(self, loop: Loop) -> None:
        self.messages_per_s: int | None = None
        self.bytes_per_s: int | None = None
        self.busy_us = 0
        """Time in which something was leaving, since the start."""
        self.waiting_bytes = 0
        self._loop = loop
        # A dict keeps the order of the turns: whoever was served goes to its end.
        self._lines: dict[Pipe, deque[Frame | str]] = {}
        self._choked: dict[Pipe, None] = {}
        self._served: Pipe | None = None
        self._served_line: deque[Frame | str] = deque()
        """What follows in the line of the one that is being served."""
        self._owed = 0
        self._leaving: Frame | str = ""
        """What is being served."""

    def limit(self, messages_per_s: int | None, bytes_per_s: int | None) -> None:
        """Set the rate, in messages or in bytes; without either, whatever waits leaves at once."""
        self.messages_per_s, self.bytes_per_s, self._owed = messages_per_s, bytes_per_s, 0

    def enter(self, pipe: Pipe, cargo: Cargo) -> None:
        """Put something in line."""
        if not isinstance(cargo, str):
            cargo = self._let_pass(pipe, cargo)
            if not cargo:
                return
        served = pipe is self._served
        line = self._served_line if served else self._lines.setdefault(pipe, deque())
        if isinstance(cargo, str):
            line.append(cargo)
        else:
            line.extend(cargo)
            self.waiting_bytes += sum(map(frame_bytes, cargo))
        if self._served is None:
            self._serve()
        if len(line) > WAITING_HIGH and pipe not in self._choked:
            self._choked[pipe] = None
            self._tell(pipe, False)

    def _let_pass(self, pipe: Pipe, frames: Sequence[Frame]) -> Sequence[Frame]:
        """Let go what does not wait behind publications; returns the rest.

        They keep their order among themselves, and nothing goes before a greeting.
        """
        passing = [frame for frame in frames if type(frame.body) in PASSING]
        if not passing:
            return frames
        served = pipe is self._served
        line = self._served_line if served else self._lines.get(pipe, deque())
        at_the_head = 0
        for item in line:
            if not _goes_first(item):
                break
            at_the_head += 1
        if at_the_head or (served and _goes_first(self._leaving)):
            for place, frame in enumerate(passing, at_the_head):
                line.insert(place, frame)
            self.waiting_bytes += sum(map(frame_bytes, passing))
        elif any(map(_goes_first, frames[:1])) and type(frames[0].body) not in PASSING:
            return [frames[0], *passing, *[each for each in frames[1:] if type(each.body) not in PASSING]]
        else:
            if self.bytes_per_s is not None:
                self._owed += sum(map(frame_bytes, passing)) * 1_000_000
            pipe.cross(passing)
        return [frame for frame in frames if type(frame.body) not in PASSING]

    def waiting_for(self, target: str) -> int:
        """Bytes that wait for one target."""
        lines = [*self._lines.items()]
        if self._served is not None:
            lines.append((self._served, self._served_line))
        return sum(
            frame_bytes(item)
            for pipe, line in lines
            if pipe.target.name == target
            for item in line
            if not isinstance(item, str)
        )

    def forget(self, pipe: Pipe) -> None:
        """The connection has gone."""
        line = self._lines.pop(pipe, self._served_line if pipe is self._served else deque())
        self.waiting_bytes -= sum(frame_bytes(item) for item in line if not isinstance(item, str))
        line.clear()
        self._choked.pop(pipe, None)

    def clear(self) -> None:
        """The node has gone."""
        self._lines.clear()
        self._served_line.clear()
        self._choked.clear()
        self.waiting_bytes = 0

    def _serve(self) -> None:
        """Let what takes no time go, until something does."""
        self._served = None
        while self._lines:
            pipe = next(iter(self._lines))
            line = self._lines.pop(pipe)
            item = line.popleft()
            if len(line) <= WAITING_LOW and pipe in self._choked:
                del self._choked[pipe]
                self._tell(pipe, True)
            duration_us = 0
            if not isinstance(item, str):
                self.waiting_bytes -= frame_bytes(item)
                duration_us = self._duration_us(item)
            if duration_us:
                self._served, self._served_line = pipe, line
                self._leaving = item
                self.busy_us += duration_us
                self._loop.schedule(self._loop.now_us + duration_us, self._leave, item)
                return
            pipe.cross(item if isinstance(item, str) else (item,))
            if line:
                self._lines[pipe] = line

    def _leave(self, frame: Frame) -> None:
        pipe, line = self._served, self._served_line
        if pipe is not None:
            pipe.cross((frame,))
            if line:
                self._lines[pipe] = line
        self._serve()

    def _duration_us(self, frame: Frame) -> int:
        """Rounded so that the remainder is made up for by the next one."""
        if self.messages_per_s is not None:
            body = frame.body
            units, rate = (len(body) if isinstance(body, PublicationBatch) else 0), self.messages_per_s
        elif self.bytes_per_s is not None:
            units, rate = frame_bytes(frame), self.bytes_per_s
        else:
            return 0
        duration_us, self._owed = divmod(self._owed + units * 1_000_000, rate)
        return duration_us

    def _tell(self, pipe: Pipe, writable: bool) -> None:
        source = pipe.source
        if pipe.near_number in source.pipes:
            self._loop.schedule(0, source.report, Writable(pipe.near_number, writable))


def _goes_first(item: Frame | str) -> bool:
    """Whether this is a greeting, or what goes right behind it."""
    return not isinstance(item, str) and type(item.body) in _FIRST
