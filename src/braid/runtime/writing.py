"""How are frames written to a line that may be slow?

A transport and the system behind it would take megabytes, and on a slow line whatever is written then waits
behind them: acknowledgements and heartbeats too, until the other end believes that nobody is there. So they
get little at a time. What is left waits here, and acknowledgements and heartbeats go past it.
"""

from __future__ import annotations

import socket
from collections import deque
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from braid.protocol import PublicationBatch, encode_frames
from braid.protocol.messages import PASSING, Hello, Welcome

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable, Sequence

    from braid.protocol import Frame

__all__ = ["FrameWriter"]

# Unwritten bytes at which the transport gets no more, and gets more again.
WRITE_BYTES_HIGH: Final = 256 * 1024
WRITE_BYTES_LOW: Final = 64 * 1024
# What is written in one go, if it is more than one frame.
WRITE_BYTES_MAX: Final = 256 * 1024
# Bytes that the system takes beyond what is on its way, where it can be told so.
UNSENT_BYTES_MAX: Final = 128 * 1024
# What a message counts for beside publications.
MESSAGE_BYTES: Final = 128


class FrameWriter:
    """Writes the frames of one connection; `tell` hears whether more can be taken, when that changes."""

    __slots__ = ("_choked", "_tell", "_told_to_wait", "_transport", "_unwritten")

    def __init__(self, tell: Callable[[bool], None]) -> None:
        self._tell = tell
        self._transport: asyncio.Transport | None = None
        self._unwritten: deque[Frame] = deque()
        """What the transport has not been given yet."""
        self._choked = False
        """Whether the transport wants no more at present."""
        self._told_to_wait = False

    def use(self, transport: asyncio.Transport) -> None:
        """The connection is there."""
        self._transport = transport
        transport.set_write_buffer_limits(WRITE_BYTES_HIGH, WRITE_BYTES_LOW)
        option = getattr(socket, "TCP_NOTSENT_LOWAT", None)
        raw = transport.get_extra_info("socket")
        if option is not None and raw is not None:
            with suppress(OSError):
                raw.setsockopt(socket.IPPROTO_TCP, option, UNSENT_BYTES_MAX)

    def send(self, frames: Sequence[Frame]) -> None:
        """Send frames in their order, as soon as the peer takes them; only what may go past others does."""
        transport = self._transport
        if transport is None or transport.is_closing():
            return
        if not (self._unwritten or self._choked) and sum(map(_size, frames)) <= WRITE_BYTES_MAX:
            transport.write(encode_frames(frames))
            return
        passing = [frame for frame in frames if type(frame.body) in PASSING]
        if passing:
            # They never wait, so that they keep their order; but a greeting goes before everything.
            first = frames[:1] if isinstance(frames[0].body, Hello | Welcome) else ()
            transport.write(encode_frames((*first, *passing)))
            frames = [frame for frame in frames[len(first) :] if type(frame.body) not in PASSING]
        self._unwritten.extend(frames)
        self._write_on()
        self._tell_writable()

    def pause(self) -> None:
        """The transport wants no more."""
        self._choked = True
        self._tell_writable()

    def resume(self) -> None:
        """The transport takes more."""
        self._choked = False
        self._write_on()
        self._tell_writable()

    def flush(self) -> None:
        """Give the transport all that is left: it is about to be closed."""
        if self._unwritten and self._transport is not None and not self._transport.is_closing():
            self._transport.write(encode_frames(self._unwritten))
        self._unwritten.clear()

    def _write_on(self) -> None:
        transport, unwritten = self._transport, self._unwritten
        while unwritten and not self._choked and transport is not None:
            some: list[Frame] = []
            size = 0
            while unwritten and size < WRITE_BYTES_MAX:
                frame = unwritten.popleft()
                some.append(frame)
                size += _size(frame)
            transport.write(encode_frames(some))

    def _tell_writable(self) -> None:
        wait = self._choked or bool(self._unwritten)
        if wait != self._told_to_wait:
            self._told_to_wait = wait
            self._tell(not wait)


def _size(frame: Frame) -> int:
    return frame.body.size if type(frame.body) is PublicationBatch else MESSAGE_BYTES
