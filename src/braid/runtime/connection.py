"""How do bytes of one connection come in and go out?"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import TYPE_CHECKING, Final, cast

from braid.errors import RemoteProtocolError
from braid.protocol import FrameDecoder
from braid.protocol.codec import GREETING_BYTES_MAX
from braid.protocol.inputs import Closed, Malformed, Opened, Received, Writable
from braid.protocol.limits import FRAME_BYTES_MAX
from braid.runtime.clock import Progress
from braid.runtime.reading import held_against, long_filter, without_long_filters
from braid.runtime.tls import peer_name
from braid.runtime.writing import FrameWriter

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from braid.protocol import Frame
    from braid.protocol.codec import Vocabulary
    from braid.protocol.effects import Dial, Granted
    from braid.protocol.inputs import Input

__all__ = ["Connection"]

# How long a connection that we close has to write what it still holds.
LINGER_S: Final = 2.0
# While a long filter is read, the machine hears so often that its peer is not silent.
NOT_SILENT_S: Final = 1.0


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
        read_filter: Callable[[str, str, bool, Callable[[], None]], None] | None = None,
    ) -> None:
        """
        Args:
            number: of this connection.
            report: told what happens.
            forget: called with the number when it has ended.
            dialled: what it was dialled for, if it was.
            vocabulary: the messages that are understood on it.
            read_filter: has a long filter read and held against another one, as `FilterReader.read` does;
                None if none are expected.
        """
        self._read_filter = read_filter
        self._held: deque[tuple[Input, str | None]] = deque()
        """What waits until a filter has been read, each with the one to be read before it."""
        self._reading: asyncio.TimerHandle | None = None
        """There while a filter of the first of these is read; it says that the peer is not silent."""
        self.granted: Granted | None = None
        """What filters that come on it are held against; None for nothing."""
        self.number = number
        self._report = report
        self._forget = forget
        self._dialled = dialled.address if dialled is not None else None
        self._soft = dialled is not None and dialled.soft
        # Whoever we dialled may send much right behind its welcome; whoever comes to us waits for ours.
        bytes_max = GREETING_BYTES_MAX if dialled is None else max(FRAME_BYTES_MAX, dialled.frame_bytes_max)
        self._decoder = FrameDecoder(bytes_max, vocabulary)
        self._writer = FrameWriter(lambda writable: report(Writable(number, writable)))
        self._reason = "the peer closed the connection"
        self._resuming: asyncio.TimerHandle | None = None
        self._lost = False
        self._progress = Progress()
        self.transport: asyncio.Transport | None = None
        self.lost = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # A stream always; uvloop's are not of asyncio's class.
        self.transport = transport = cast("asyncio.Transport", transport)
        self._writer.use(transport)
        ssl_object = transport.get_extra_info("ssl_object")
        certificate = peer_name(ssl_object) if ssl_object is not None else None
        remote = transport.get_extra_info("peername")
        where = f"{remote[0]}:{remote[1]}" if remote else "somewhere"
        self._report(Opened(self.number, where, self._dialled, certificate, self._soft))

    def data_received(self, data: bytes) -> None:
        try:
            frames = self._decoder.feed(data)
        except RemoteProtocolError as error:
            self._tell(Malformed(self.number, str(error)))
            return
        if frames and self._read_filter is not None and any(map(long_filter, frames)):
            self._hold(frames)
        elif frames or self._progress.is_due:
            self._tell(Received(self.number, frames))

    def pause_writing(self) -> None:
        self._writer.pause()

    def resume_writing(self) -> None:
        self._writer.resume()

    def connection_lost(self, error: Exception | None) -> None:
        self._lost = True
        if self._resuming is not None:
            self._resuming.cancel()
        reason = self._reason if error is None else str(error) or type(error).__name__
        self._forget(self.number)
        if not self.lost.done():
            self.lost.set_result(None)
        self._tell(Closed(self.number, reason, self._dialled, self._soft))

    # Long filters.

    def _tell(self, stimulus: Input) -> None:
        """Report something, behind what waits for a filter to be read."""
        if self._held:
            self._held.append((stimulus, None))
            self._go_on()
        else:
            self._report(stimulus)

    def _hold(self, frames: list[Frame]) -> None:
        """Report frames as soon as the filters in them have been read."""
        for part, text in without_long_filters(frames):
            self._held.append((Received(self.number, part), text))
        self._go_on()

    def _go_on(self) -> None:
        """Report what need not wait. Who stands in line at the machine is not read from either."""
        while self._held and self._reading is None and (self._resuming is None or self._lost):
            stimulus, text = self._held[0]
            if text is not None and self._read_filter is not None:
                if not self._lost:
                    cast("asyncio.Transport", self.transport).pause_reading()
                self._not_silent()
                granted, narrow = held_against(stimulus, self.granted)
                self._read_filter(text, granted, narrow, self._was_read)
                return
            self._held.popleft()
            self._report(stimulus)
        if not self._held and self._resuming is None:
            self._read_on()

    def _was_read(self) -> None:
        if self._reading is not None:
            self._reading.cancel()
            self._reading = None
        if self._held:
            stimulus, _ = self._held[0]
            self._held[0] = (stimulus, None)
        self._go_on()

    def _not_silent(self) -> None:
        if not self._lost:
            self._report(Received(self.number, []))
        self._reading = asyncio.get_running_loop().call_later(NOT_SILENT_S, self._not_silent)

    # Writing and closing.

    def greeted(self, frame_bytes_max: int) -> None:
        """Accept frames of this size from now on."""
        self._decoder.frame_bytes_max = frame_bytes_max

    def send(self, frames: Sequence[Frame]) -> None:
        """Send frames, as soon as the peer takes them."""
        self._writer.send(frames)

    def close(self, reason: str) -> None:
        """Write what is left, then close; a peer that takes nothing any more is cut off after a while."""
        self._reason = reason
        if self.transport is not None:
            self._writer.flush()
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
        if self._held:
            self._go_on()
        else:
            self._read_on()

    def _read_on(self) -> None:
        if self.transport is not None and not self.transport.is_closing():
            self.transport.resume_reading()
