"""How does a load client speak to a server cheaply enough not to be what is measured?

Setting up a connection may wait and parse; after that the socket is non-blocking, published bytes are joined
and written at once, and received bytes are searched for the marker that opens every body, never parsed.
"""

from __future__ import annotations

import socket
from typing import TYPE_CHECKING

from braid.errors import ConnectionLostError, RemoteProtocolError
from braid_bench.brokers.server import HOST
from braid_bench.brokers.workload import MARKER

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from braid_bench.brokers.workload import Message

__all__ = ["MarkerCounter", "RawPublisher", "RawSubscriber", "SetUp"]

# Answers while connecting come at once; installing 50,000 subscriptions at the slowest takes minutes.
_ANSWER_SECONDS_MAX = 300.0
_READ_BYTES = 1 << 18


class SetUp:
    """A connection while it is being set up: blocking, with a buffer to find answers in."""

    def __init__(self, port: int) -> None:
        self.socket = socket.create_connection((HOST, port), timeout=_ANSWER_SECONDS_MAX)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._buffer = b""

    def send(self, data: bytes) -> None:
        """Write all of it."""
        self.socket.sendall(data)

    def read(self, size: int) -> bytes:
        """Exactly this many bytes."""
        while len(self._buffer) < size:
            self._more()
        answer, self._buffer = self._buffer[:size], self._buffer[size:]
        return answer

    def read_until(self, end: bytes) -> bytes:
        """Everything up to and including `end`."""
        while end not in self._buffer:
            self._more()
        answer, _, self._buffer = self._buffer.partition(end)
        return answer + end

    def done(self) -> socket.socket:
        """The socket, non-blocking from now on."""
        if MARKER in self._buffer:
            raise RemoteProtocolError("a message was delivered while the connection was being set up")
        self.socket.setblocking(False)
        return self.socket

    def _more(self) -> None:
        data = self.socket.recv(_READ_BYTES)
        if not data:
            raise ConnectionLostError(
                f"the server closed the connection; last it said {self._buffer[:200]!r}"
            )
        self._buffer += data


class MarkerCounter:
    """Counts the markers in a stream that arrives in pieces."""

    def __init__(self) -> None:
        self._tail = b""

    def count(self, data: bytes) -> int:
        """How many markers end in this piece."""
        text = self._tail + data
        # Too short to hold a marker, so none is counted twice.
        self._tail = text[1 - len(MARKER) :]
        return text.count(MARKER)


class RawPublisher:
    """Writes encoded messages as they are."""

    def __init__(self, connected: socket.socket, encode: Callable[[Message], bytes]) -> None:
        self._socket = connected
        self.encode = encode
        self._rest = memoryview(b"")

    def fileno(self) -> int:
        """The socket, for waiting."""
        return self._socket.fileno()

    def send(self, encoded: Sequence[bytes]) -> None:
        """Publish these now, as far as the socket takes them."""
        self._rest = memoryview(b"".join(encoded))
        self.flush()

    def flush(self) -> None:
        """Write more of what is kept."""
        try:
            self._rest = self._rest[self._socket.send(self._rest) :]
        except BlockingIOError:
            return

    def pending(self) -> bool:
        """Whether something is kept."""
        return len(self._rest) > 0

    def receive(self) -> None:
        """None of these servers has anything to say to a publisher but that something is wrong."""
        data = self._socket.recv(_READ_BYTES)
        if not data or b"ERR" in data:
            raise ConnectionLostError(f"the server ended the publisher's connection: {data[:300]!r}")

    def close(self) -> None:
        """End the connection."""
        self._socket.close()


class RawSubscriber:
    """Counts deliveries."""

    def __init__(self, connected: socket.socket) -> None:
        self._socket = connected
        self._counter = MarkerCounter()

    def fileno(self) -> int:
        """The socket, for waiting."""
        return self._socket.fileno()

    def receive(self) -> int:
        """Read what is there and say how many deliveries it began: a body follows its marker at once."""
        try:
            data = self._socket.recv(_READ_BYTES)
        except BlockingIOError:
            return 0
        if not data:
            raise ConnectionLostError("the server closed a subscriber's connection")
        return self._counter.count(data)

    def close(self) -> None:
        """End the connection."""
        self._socket.close()
