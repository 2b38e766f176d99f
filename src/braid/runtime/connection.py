"""How do bytes of one connection come in and go out?"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final, cast

from braid.errors import RemoteProtocolError
from braid.protocol import FrameDecoder
from braid.protocol.codec import GREETING_BYTES_MAX
from braid.protocol.inputs import Closed, Malformed, Opened, Received, Writable
from braid.protocol.limits import FRAME_BYTES_MAX
from braid.runtime.clock import Progress
from braid.runtime.tls import peer_name

if TYPE_CHECKING:
    from collections.abc import Callable

    from braid.protocol.codec import Vocabulary
    from braid.protocol.effects import Dial
    from braid.protocol.inputs import Input

__all__ = ["Connection"]

# How long a connection that we close has to write what it still holds.
LINGER_S: Final = 2.0
# Unwritten bytes at which the machine is asked to hold back, and to go on.
WRITE_BYTES_HIGH: Final = 1024 * 1024
WRITE_BYTES_LOW: Final = 256 * 1024


class Connection(asyncio.Protocol):
    """One connection: reports what arrives as inputs, and writes what it is given."""

    def __init__(
        self,
        number: int,
        report: Callable[[Input], None],
        forget: Callable[[int], None],
        *,
        dialled: Dial | None,
        vocabulary: Vocabulary,
    ) -> None:
        self.number = number
        self._report = report
        self._forget = forget
        self._dialled = dialled.address if dialled is not None else None
        self._soft = dialled is not None and dialled.soft
        # Whoever we dialled may send much right behind its welcome; whoever comes to us waits for ours.
        bytes_max = GREETING_BYTES_MAX if dialled is None else max(FRAME_BYTES_MAX, dialled.frame_bytes_max)
        self._decoder = FrameDecoder(bytes_max, vocabulary)
        self._reason = "the peer closed the connection"
        self._resuming: asyncio.TimerHandle | None = None
        self._progress = Progress()
        self.transport: asyncio.Transport | None = None
        self.lost = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # A stream always; uvloop's are not of asyncio's class.
        self.transport = transport = cast("asyncio.Transport", transport)
        transport.set_write_buffer_limits(WRITE_BYTES_HIGH, WRITE_BYTES_LOW)
        ssl_object = transport.get_extra_info("ssl_object")
        certificate = peer_name(ssl_object) if ssl_object is not None else None
        remote = transport.get_extra_info("peername")
        where = f"{remote[0]}:{remote[1]}" if remote else "somewhere"
        self._report(Opened(self.number, where, self._dialled, certificate, self._soft))

    def data_received(self, data: bytes) -> None:
        try:
            frames = self._decoder.feed(data)
        except RemoteProtocolError as error:
            self._report(Malformed(self.number, str(error)))
            return
        if frames or self._progress.is_due:
            self._report(Received(self.number, frames))

    def pause_writing(self) -> None:
        self._report(Writable(self.number, False))

    def resume_writing(self) -> None:
        self._report(Writable(self.number, True))

    def connection_lost(self, error: Exception | None) -> None:
        if self._resuming is not None:
            self._resuming.cancel()
        reason = self._reason if error is None else str(error) or type(error).__name__
        self._forget(self.number)
        if not self.lost.done():
            self.lost.set_result(None)
        self._report(Closed(self.number, reason, self._dialled, self._soft))

    def greeted(self, frame_bytes_max: int) -> None:
        """Accept frames of this size from now on."""
        self._decoder.frame_bytes_max = frame_bytes_max

    def write(self, data: bytes) -> None:
        """Send bytes, now or as soon as the peer takes them."""
        if self.transport is not None and not self.transport.is_closing():
            self.transport.write(data)

    def close(self, reason: str) -> None:
        """Write what is left, then close; a peer that takes nothing any more is cut off after a while."""
        self._reason = reason
        if self.transport is not None:
            self.transport.close()
            asyncio.get_running_loop().call_later(LINGER_S, self.transport.abort)

    def pause(self, duration_us: int) -> None:
        """Read nothing for so long; a later word takes the place of an earlier one."""
        if self.transport is None or self.transport.is_closing():
            return
        paused = self._resuming is not None
        if self._resuming is not None:
            self._resuming.cancel()
            self._resuming = None
        if duration_us > 0:
            if not paused:
                self.transport.pause_reading()
            self._resuming = asyncio.get_running_loop().call_later(duration_us / 1e6, self._resume)
        elif paused:
            self._resume()

    def _resume(self) -> None:
        self._resuming = None
        if self.transport is not None and not self.transport.is_closing():
            self.transport.resume_reading()
