"""How does something get from one end of a connection to the other?

A connection is two pipes, one per direction. A *plain* pipe only has a latency: whoever sends schedules the
arrival itself. Everything else (bandwidth, loss, faults, the codec) is in a `Shape`, which a pipe has only
while it needs one. Whatever happens to it, a pipe stays first in, first out.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any, TypeAlias

from braid.errors import RemoteProtocolError
from braid.protocol import FrameDecoder, encode_frames
from braid.protocol.codec import BROKER_VOCABULARY, GREETING_BYTES_MAX
from braid.protocol.inputs import Closed, Malformed, Received, Writable
from braid.protocol.limits import FRAME_BYTES_MAX
from braid.sim.models import frame_bytes

if TYPE_CHECKING:
    import random
    from collections.abc import Callable, Sequence

    from braid.protocol.codec import Frame, Vocabulary
    from braid.protocol.inputs import Input
    from braid.sim.loop import Loop
    from braid.sim.samples import Meter
    from braid.sim.uplink import Uplink

__all__ = ["Cargo", "Endpoint", "Pipe", "Shape"]

Cargo: TypeAlias = "Sequence[Frame] | str"
"""Frames, or the reason for which the connection ends after everything before."""

# Bytes that wait for a narrow link at which its source is asked to hold back, and to go on.
WAITING_BYTES_HIGH = 64 * 1024
WAITING_BYTES_LOW = 16 * 1024
# What is sent again comes this much later at least, however short the way is.
RETRANSMISSION_US_MIN = 1_000

_CLOSED, _OPEN, _PAUSED = range(3)


class Endpoint:
    """Whoever is at an end of connections: a host with its machine, or a station."""

    __slots__ = ("__weakref__", "frames", "kind", "loop", "name", "pipes", "report", "uplink", "vocabulary")

    report: Callable[[Input], None]
    """Told what happens."""

    def __init__(self, name: str, kind: str, vocabulary: Vocabulary = BROKER_VOCABULARY) -> None:
        self.name = name
        self.kind = kind
        self.vocabulary = vocabulary
        """The messages that are understood here."""
        self.loop: Loop
        self.pipes: dict[int, Pipe] = {}
        """The ways out, by the number of the connection at this end."""
        self.uplink: Uplink | None = None
        self.frames = 0
        """Frames that have arrived here."""

    def receive(self, frames: Sequence[Frame]) -> None:
        """Take frames without a detour over the loop; only those do that are asked to (`Pipe.direct`)."""
        raise NotImplementedError


class Pipe:
    """One direction of a connection."""

    __slots__ = (
        "back",
        "beside",
        "dialled",
        "direct",
        "latency_us",
        "meter",
        "near_number",
        "number",
        "plain",
        "resume_at_us",
        "shape",
        "source",
        "state",
        "target",
    )

    def __init__(
        self,
        source: Endpoint,
        target: Endpoint,
        near_number: int,
        number: int,
        latency_us: int,
        dialled: str | None,
    ) -> None:
        self.source = source
        self.target = target
        self.near_number = near_number
        """The connection's number at the source."""
        self.number = number
        """And at the target."""
        self.latency_us = latency_us
        self.dialled = dialled
        """The address that the target dialled, if it was the target who opened the connection."""
        self.state = _OPEN
        self.resume_at_us = 0
        """When the target reads on, while it is paused."""
        self.shape: Shape | None = None
        self.meter: Meter | None = None
        self.direct = False
        """The target takes what is sent at once, within the source's turn."""
        self.plain = True
        """Nothing but the latency lies between the two ends."""
        self.beside = False
        """Not even that, and the target takes what is sent at once."""
        self.back: Pipe

    @property
    def open(self) -> bool:
        """Whether the target still takes what comes."""
        return self.state != _CLOSED

    def settle(self) -> None:
        """Something about the pipe has changed: is it plain now?"""
        self.plain = self.shape is None and not self.direct and self.source.uplink is None
        self.beside = self.shape is None and self.direct

    def shaped(self) -> Shape:
        """The pipe's shape; it gets one if it has none."""
        if self.shape is None:
            self.shape = Shape(self)
            self.settle()
        return self.shape

    # Sending.

    def send(self, cargo: Cargo) -> None:
        """Put something in at the source."""
        uplink = self.source.uplink
        if uplink is not None and not self.direct:
            uplink.enter(self, cargo)
        else:
            self.cross(cargo)

    def cross(self, cargo: Cargo) -> None:
        """It leaves the source now."""
        if self.shape is not None:
            self.shape.cross(cargo)
        elif self.direct and not isinstance(cargo, str):
            self.hand_over(cargo)
        else:
            loop = self.source.loop
            arrive = self.end if isinstance(cargo, str) else self.arrive
            loop.schedule(loop.now_us + self.latency_us, arrive, cargo)

    def hand_over(self, frames: Sequence[Frame]) -> None:
        """The target, which is beside the source, takes frames at once."""
        if self.state == _OPEN:
            self.target.frames += len(frames)
            self.target.receive(frames)

    # Arriving.

    def arrive(self, frames: Sequence[Frame]) -> None:
        """Frames have come to the target."""
        if self.state == _OPEN:
            target = self.target
            target.frames += len(frames)
            if self.meter is not None:
                now_us = target.loop.now_us
                self.meter.arrived(frames, now_us, now_us - self.latency_us)
            target.report(Received(self.number, frames))
        elif self.state == _PAUSED:
            self.shaped().unread.append((self.arrive, frames))

    def arrive_shaped(self, arrival: tuple[int, Sequence[Frame] | bytes]) -> None:
        """Frames, or their bytes, have come another way than plainly; it is said when they were sent."""
        if self.state != _OPEN:
            if self.state == _PAUSED:
                self.shaped().unread.append((self.arrive_shaped, arrival))
            return
        sent_at_us, found = arrival
        target = self.target
        if isinstance(found, bytes):
            try:
                frames: Sequence[Frame] = self.shaped().decoder.feed(found)
            except RemoteProtocolError as error:
                target.report(Malformed(self.number, str(error)))
                return
        else:
            frames = found
        target.frames += len(frames)
        if self.meter is not None:
            self.meter.arrived(frames, target.loop.now_us, sent_at_us)
        target.report(Received(self.number, frames))

    def end(self, reason: str) -> None:
        """The connection has ended at the source, and the target hears of it."""
        if self.state == _PAUSED:
            self.shaped().unread.append((self.end, reason))
        elif self.state == _OPEN:
            self.state = _CLOSED
            self.target.pipes.pop(self.number, None)
            if self.target.uplink is not None:
                self.target.uplink.forget(self.back)
            self.back.state = _CLOSED
            self.target.report(Closed(self.number, reason, self.dialled))

    # Closing and pausing.

    def close(self, reason: str) -> None:
        """The source ends the connection, after what it has sent; it hears so itself."""
        self.source.pipes.pop(self.near_number, None)
        if self.back.state != _CLOSED:
            self.back.state = _CLOSED
            closed = Closed(self.near_number, reason, self.back.dialled)
            self.source.loop.schedule(0, self.source.report, closed)
        self.send(reason)

    def vanish(self) -> None:
        """The source is no more; nothing else comes out of this pipe, and nobody takes what comes back."""
        self.back.state = _CLOSED

    def sever(self, reason: str) -> None:
        """The connection breaks now, and both ends notice; what is under way is lost."""
        for pipe in (self, self.back):
            if pipe.state != _CLOSED:
                pipe.state = _CLOSED
                target = pipe.target
                target.pipes.pop(pipe.number, None)
                if target.uplink is not None:
                    target.uplink.forget(pipe.back)
                target.loop.schedule(0, target.report, Closed(pipe.number, reason, pipe.dialled))

    def pause(self, duration_us: int) -> None:
        """The target reads nothing for so long; a later word takes the place of an earlier one."""
        if self.state == _CLOSED or (self.state == _OPEN and duration_us <= 0):
            return
        self.state = _PAUSED
        loop = self.target.loop
        at_us = self.resume_at_us = loop.now_us + duration_us
        loop.schedule(at_us, self._resume, at_us)

    def _resume(self, at_us: int) -> None:
        if self.state == _PAUSED and self.resume_at_us == at_us:
            self.state = _OPEN
            shape = self.shaped()
            unread, shape.unread = shape.unread, deque()
            while unread and self.state == _OPEN:
                arrive, what = unread.popleft()
                arrive(what)
            shape.unread.extendleft(reversed(unread))


class Shape:
    """What a pipe needs beyond a latency. It goes when it is needed no more."""

    __slots__ = (
        "_choked",
        "_free_at_us",
        "_last_at_us",
        "_pipe",
        "bandwidth_bytes_per_s",
        "blocked",
        "chance",
        "codec",
        "decoder",
        "duplicate_left",
        "extra_us",
        "held",
        "lose_left",
        "loss",
        "unread",
    )

    decoder: FrameDecoder

    def __init__(self, pipe: Pipe) -> None:
        self._pipe = pipe
        self._free_at_us = 0
        # What is under way on the plain pipe must not be overtaken.
        self._last_at_us = pipe.source.loop.now_us + pipe.latency_us
        self._choked = False
        self.bandwidth_bytes_per_s: int | None = None
        self.loss = 0.0
        self.chance: random.Random | None = None
        self.codec = False
        self.extra_us = 0
        self.blocked = 0
        """How many partitions and holds are in the way."""
        self.held: deque[tuple[int, Cargo]] = deque()
        self.lose_left: int | None = None
        """Frames that vanish before the connection breaks."""
        self.duplicate_left = 0
        self.unread: deque[tuple[Callable[[Any], None], Any]] = deque()

    def use_codec(self) -> None:
        """Everything becomes bytes on its way."""
        self.codec = True
        bytes_max = FRAME_BYTES_MAX if self._pipe.dialled else GREETING_BYTES_MAX
        self.decoder = FrameDecoder(bytes_max, self._pipe.target.vocabulary)

    def cross(self, cargo: Cargo, sent_at_us: int | None = None) -> None:
        """Something leaves the source now (or left it, and was held)."""
        pipe = self._pipe
        loop = pipe.source.loop
        now_us = loop.now_us
        if sent_at_us is None:
            sent_at_us = now_us
        if self.blocked:
            self.held.append((sent_at_us, cargo))
            return
        if self.lose_left is not None:
            self._lose(cargo)
            return
        at_us = now_us + pipe.latency_us + self.extra_us
        if isinstance(cargo, str):
            loop.schedule(self._in_line(at_us), pipe.end, cargo)
            return
        if self.duplicate_left:
            cargo = self._duplicated(cargo)
        if self.bandwidth_bytes_per_s is not None:
            at_us += self._squeeze(sum(map(frame_bytes, cargo)), now_us) - now_us
        if self.loss:
            at_us += self._retransmission_us()
        what = encode_frames(cargo) if self.codec else cargo
        loop.schedule(self._in_line(at_us), pipe.arrive_shaped, (sent_at_us, what))
        self._review()

    def _in_line(self, at_us: int) -> int:
        self._last_at_us = max(self._last_at_us, at_us)
        return self._last_at_us

    def _review(self) -> None:
        """Go, if the pipe can be plain again without anything overtaking."""
        pipe = self._pipe
        if not (
            self.codec
            or self.loss
            or self.extra_us
            or self.blocked
            or self.unread
            or self.duplicate_left
            or self.bandwidth_bytes_per_s is not None
            or self._choked
            or self._last_at_us > pipe.source.loop.now_us + pipe.latency_us
        ):
            pipe.shape = None
            pipe.settle()

    def unblock(self) -> None:
        """One obstacle less; what was held goes on when none is left."""
        self.blocked = max(0, self.blocked - 1)
        if not self.blocked:
            held, self.held = self.held, deque()
            for sent_at_us, cargo in held:
                self.cross(cargo, sent_at_us)

    def _lose(self, cargo: Cargo) -> None:
        if self.lose_left is not None and not isinstance(cargo, str):
            self.lose_left -= len(cargo)
            if self.lose_left > 0:
                return
        self._pipe.sever("frames were lost")

    def _duplicated(self, frames: Sequence[Frame]) -> list[Frame]:
        """Some come twice, as from a peer that sends again; greetings and the like never do."""
        doubled: list[Frame] = []
        for frame in frames:
            doubled.append(frame)
            if frame.sequence and self.duplicate_left:
                self.duplicate_left -= 1
                doubled.append(frame)
        return doubled

    def _retransmission_us(self) -> int:
        chance = self.chance
        late_us = 0
        wait_us = max(2 * self._pipe.latency_us, RETRANSMISSION_US_MIN)
        while chance is not None and chance.random() < self.loss:
            late_us += wait_us
            wait_us *= 2
        return late_us

    # A narrow link.

    def _squeeze(self, size: int, now_us: int) -> int:
        """When so many bytes have left; the source holds back while too much waits."""
        bandwidth = self.bandwidth_bytes_per_s
        if bandwidth is None:
            return now_us
        begin_us = max(self._free_at_us, now_us)
        self._free_at_us = begin_us + -(-size * 1_000_000 // bandwidth)
        if not self._choked and self._waiting_bytes(now_us) > WAITING_BYTES_HIGH:
            self._choked = True
            self._tell(False)
            self._await_relief(now_us)
        return self._free_at_us

    def _waiting_bytes(self, now_us: int) -> int:
        return max(0, self._free_at_us - now_us) * (self.bandwidth_bytes_per_s or 0) // 1_000_000

    def _await_relief(self, now_us: int) -> None:
        bandwidth = self.bandwidth_bytes_per_s
        early_us = WAITING_BYTES_LOW * 1_000_000 // bandwidth if bandwidth else 0
        loop = self._pipe.source.loop
        loop.schedule(max(now_us + 1, self._free_at_us - early_us), self._relieve)

    def _relieve(self, _: object) -> None:
        now_us = self._pipe.source.loop.now_us
        if self._waiting_bytes(now_us) > WAITING_BYTES_LOW:
            self._await_relief(now_us)
            return
        self._choked = False
        self._tell(True)

    def _tell(self, writable: bool) -> None:
        pipe = self._pipe
        source = pipe.source
        if pipe.near_number in source.pipes:
            source.loop.schedule(0, source.report, Writable(pipe.near_number, writable))
