"""How does a client's session meet real time and a real socket?

The driver opens the connections that the session asks for, feeds it what arrives, and performs what it
decides. It knows nothing about publications or subscriptions: what concerns the application goes to
`concern`.
"""

from __future__ import annotations

import asyncio
import logging
import ssl
from collections import deque
from typing import TYPE_CHECKING, Final, cast

from braid.errors import BraidError, ConfigurationError, RemoteProtocolError
from braid.protocol.codec import FrameDecoder
from braid.protocol.effects import Close, Dial, Note, Send
from braid.protocol.inputs import Closed, Malformed, Opened, Received, Tick, Writable
from braid.runtime.clock import Progress
from braid.runtime.tls import handshake_problem, parse_address
from braid.runtime.writing import FrameWriter

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from braid.client.effects import ClientEffect
    from braid.client.session import ClientSession
    from braid.protocol import Frame
    from braid.protocol.inputs import Input
    from braid.runtime.tls import Address

__all__ = ["ClientDriver"]

# One attempt to open a connection, with its handshake; a machine that does not answer at all costs this long.
DIAL_TIMEOUT_S: Final = 5.0
# How long a connection that we close has to write what it still holds.
LINGER_S: Final = 2.0

_log = logging.getLogger("braid.client")
_LEVELS = {"debug": logging.DEBUG, "info": logging.INFO, "warning": logging.WARNING, "error": logging.ERROR}


class _Connection(asyncio.Protocol):
    """One connection; it reports to the driver and writes what it is given."""

    def __init__(self, driver: ClientDriver, number: int, address: str) -> None:
        self._driver = driver
        self._number = number
        self._address = address
        self._decoder = FrameDecoder()
        self._progress = Progress()
        self._reason = "the broker closed the connection"
        self._writer = FrameWriter(lambda writable: driver.turn(Writable(number, writable)))
        self.transport: asyncio.Transport | None = None
        self.lost: asyncio.Future[None] = driver.loop.create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.Transport", transport)  # other loops have classes of their own
        self._writer.use(self.transport)
        self._driver.turn(Opened(self._number, str(transport.get_extra_info("peername")), self._address))

    def data_received(self, data: bytes) -> None:
        # The session learns from the welcome how large frames may get.
        self._decoder.frame_bytes_max = max(self._decoder.frame_bytes_max, self._driver.frame_bytes_max)
        try:
            frames = self._decoder.feed(data)
        except RemoteProtocolError as error:
            self._driver.turn(Malformed(self._number, str(error)))
            return
        if frames or self._progress.is_due:
            self._driver.turn(Received(self._number, frames))

    def pause_writing(self) -> None:
        self._writer.pause()

    def resume_writing(self) -> None:
        self._writer.resume()

    def send(self, frames: Sequence[Frame]) -> None:
        """Send frames, as soon as the broker takes them."""
        self._writer.send(frames)

    def connection_lost(self, error: Exception | None) -> None:
        reason = self._reason if error is None else str(error) or type(error).__name__
        if isinstance(error, ssl.SSLError):
            reason = handshake_problem(error)  # a broker may look at our certificate after the handshake
        self._driver.forget(self._number)
        if not self.lost.done():
            self.lost.set_result(None)
        self._driver.turn(Closed(self._number, reason))

    def close(self, reason: str) -> None:
        """Write what is left, then close; a peer that takes nothing any more is cut off after a while."""
        self._reason = reason
        if self.transport is not None:
            self._writer.flush()
            self.transport.close()
            self._driver.loop.call_later(LINGER_S, self.transport.abort)


class ClientDriver:
    """Runs one session on the running event loop."""

    def __init__(
        self,
        session: ClientSession,
        addresses: Mapping[str, tuple[Address, ssl.SSLContext | None]],
        concern: Callable[[ClientEffect], None],
        after_turn: Callable[[], None],
    ) -> None:
        """Addresses are keyed by the text that the session knows them by."""
        self.loop = asyncio.get_running_loop()
        self._session = session
        self._addresses = addresses
        self._concern = concern
        self._after_turn = after_turn
        self._connections: dict[int, _Connection] = {}
        self._connection_last = 0
        self._dialling: set[asyncio.Task[None]] = set()
        self._effects: deque[ClientEffect] = deque()
        self._performing = False
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at_us = 0
        self._flush_soon = False

    @property
    def frame_bytes_max(self) -> int:
        """The largest frame that the broker may send."""
        return self._session.readable_bytes_max

    def start(self) -> None:
        """Open the first connection."""
        self._perform(self._session.start(self._now_us()))

    def turn(self, stimulus: Input) -> None:
        """Report what happened and do what is to be done; runs to its end without awaiting."""
        self._perform(self._session.handle(stimulus, self._now_us()))

    def act(self) -> None:
        """Do what method calls of the session have asked for."""
        self._perform(self._session.take_effects())

    def flush_soon(self) -> None:
        """Send what was published in this turn of the loop when it ends."""
        if not self._flush_soon:
            self._flush_soon = True
            self.loop.call_soon(self.flush)

    def flush(self) -> None:
        """Send what was published."""
        self._flush_soon = False
        self._session.flush()
        self.act()

    async def stop(self) -> None:
        """End everything that was started; the session has been closed or is lost."""
        if self._timer is not None:
            self._timer.cancel()
        connections = list(self._connections.values())
        for connection in connections:
            connection.close("the client was closed")
        for task in self._dialling:
            task.cancel()
        waiting = [*self._dialling, *(connection.lost for connection in connections)]
        if waiting:
            # One turn more than the linger, after which connections are cut off.
            await asyncio.wait(waiting, timeout=LINGER_S + 1)

    def forget(self, number: int) -> None:
        """A connection has gone."""
        self._connections.pop(number, None)

    def _now_us(self) -> int:
        return int(self.loop.time() * 1e6)

    def _perform(self, effects: Sequence[ClientEffect]) -> None:
        self._effects.extend(effects)
        if self._performing:
            return  # a write has reported back at once; its effects have their turn after the others
        self._performing = True
        try:
            while self._effects:
                self._perform_one(self._effects.popleft())
        finally:
            self._performing = False
        self._after_turn()
        self._rearm()

    def _perform_one(self, effect: ClientEffect) -> None:
        if isinstance(effect, Send):
            connection = self._connections.get(effect.connection)
            if connection is not None:
                connection.send(effect.frames)
        elif isinstance(effect, Close):
            connection = self._connections.get(effect.connection)
            if connection is not None:
                connection.close(effect.reason)
        elif isinstance(effect, Dial):
            task = self.loop.create_task(self._dial(effect.address))
            self._dialling.add(task)
            task.add_done_callback(self._dialling.discard)
        elif isinstance(effect, Note):
            _log.log(_LEVELS[effect.level], "%s %s", effect.what, dict(effect.fields))
        else:
            self._concern(effect)

    async def _dial(self, text: str) -> None:
        self._connection_last += 1
        number = self._connection_last
        try:
            address, context = self._addresses.get(text) or self._elsewhere(text)
        except BraidError as error:
            self.turn(Closed(None, str(error), text))
            return

        def make() -> _Connection:
            connection = self._connections[number] = _Connection(self, number, text)
            return connection

        try:
            async with asyncio.timeout(DIAL_TIMEOUT_S):
                await self.loop.create_connection(make, address.host, address.port, ssl=context)
        except TimeoutError:
            problem = f"{address} did not answer within {DIAL_TIMEOUT_S:g} s"
        except ssl.SSLError as error:
            problem = f"{address}: {handshake_problem(error)}"
        except (OSError, BraidError) as error:
            problem = f"{address}: {error}"
        else:
            return
        connection = self._connections.pop(number, None)
        if connection is not None and connection.transport is not None:
            connection.transport.abort()
        self.turn(Closed(None, problem, text))

    def _elsewhere(self, text: str) -> tuple[Address, ssl.SSLContext | None]:
        """An address that a broker has told: as safe as those that the program has given.

        Raises:
            ConfigurationError: it is not, or it is none.
        """
        address = parse_address(text)
        context = next((each for _, each in self._addresses.values() if each is not None), None)
        if address.tls != (context is not None):
            raise ConfigurationError(f"{text} is not as safe as the addresses that were given")
        return address, context

    def _rearm(self) -> None:
        """See to it that the session's next deadline is met; one that fires early is harmless."""
        deadline_us = self._session.next_deadline_us()
        if deadline_us is None:
            if self._timer is not None:
                self._timer.cancel()
                self._timer = None
            return
        if self._timer is not None:
            if self._timer_at_us <= deadline_us:
                return
            self._timer.cancel()
        self._timer_at_us = deadline_us
        # A microsecond later, so that rounding never makes it early, which would mean a second one at once.
        self._timer = self.loop.call_at((deadline_us + 1) / 1e6, self._fire)

    def _fire(self) -> None:
        self._timer = None
        self.turn(Tick())
