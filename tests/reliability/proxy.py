"""How do connections break that nobody closed?

A small proxy stands before a broker. It passes bytes on in both directions, and on request resets its
connections (both ends see a TCP reset), stalls them (both ends see silence), or has a hole in one direction
(one end is heard and hears nothing).
"""

from __future__ import annotations

import asyncio
import socket
import struct

__all__ = ["Proxy"]

# Close at once, throwing away what was not sent: the other end gets a reset instead of an end.
_RESET = struct.pack("ii", 1, 0)


class _Half(asyncio.Protocol):
    """One of the two connections of a passage."""

    def __init__(self, passage: _Passage) -> None:
        self._passage = passage
        self.transport: asyncio.Transport | None = None
        self.other: _Half | None = None
        self._waiting: list[bytes] = []
        """What arrives before the other half is connected."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport
        transport.get_extra_info("socket").setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def pair(self, other: _Half) -> None:
        self.other = other
        for data in self._waiting:
            self.data_received(data)
        self._waiting.clear()

    def data_received(self, data: bytes) -> None:
        if self.other is None:
            self._waiting.append(data)
        elif self.other.transport is not None:
            self.other.transport.write(data)

    def pause_writing(self) -> None:
        if self.other is not None and self.other.transport is not None:
            self.other.transport.pause_reading()

    def resume_writing(self) -> None:
        other = self.other
        if other is not None and other.transport is not None and not self._passage.blocks(other):
            other.transport.resume_reading()

    def connection_lost(self, error: Exception | None) -> None:
        self.transport = None
        self._passage.reset()


class _Passage:
    """A connection through the proxy."""

    def __init__(self, proxy: Proxy) -> None:
        self._proxy = proxy
        self._stalled = False
        self.near = _Half(self)
        self.far = _Half(self)

    async def reach(self, host: str, port: int) -> None:
        """Connect to the broker behind; reset the visitor if it is not there."""
        loop = asyncio.get_running_loop()
        try:
            await loop.create_connection(lambda: self.far, host, port)
        except OSError:
            self.reset()
            return
        self.near.pair(self.far)
        self.far.pair(self.near)
        if self.near.transport is None:
            self.reset()
        self.review()

    def stall(self, stalled: bool) -> None:
        self._stalled = stalled
        self.review()

    def blocks(self, half: _Half) -> bool:
        """Whether nothing may pass that comes in at this half."""
        hole = self._proxy.hole
        return (
            self._stalled or (hole == "there" and half is self.near) or (hole == "back" and half is self.far)
        )

    def review(self) -> None:
        """Something about what may pass has changed."""
        for half in (self.near, self.far):
            if half.transport is not None:
                if self.blocks(half):
                    half.transport.pause_reading()
                else:
                    half.transport.resume_reading()

    def reset(self) -> None:
        for half in (self.near, self.far):
            transport, half.transport = half.transport, None
            if transport is not None:
                transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
                transport.abort()
        self._proxy.passages.discard(self)


class Proxy:
    """Stands before one address."""

    def __init__(self, name: str, host: str, port: int) -> None:
        self.name = name
        self.passages: set[_Passage] = set()
        self.address = ""
        self.hole = ""
        """Where nothing passes: `there`, to the broker, or `back`."""
        self._host = host
        self._port = port
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    async def open(self) -> None:
        """Listen; afterwards `address` says where."""
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(self._visit, self._host, 0)
        self.address = f"{self._host}:{self._server.sockets[0].getsockname()[1]}"

    def _visit(self) -> _Half:
        passage = _Passage(self)
        self.passages.add(passage)
        task = asyncio.get_running_loop().create_task(passage.reach(self._host, self._port))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return passage.near

    def reset(self) -> int:
        """Reset all connections; returns how many there were."""
        passages = list(self.passages)
        for passage in passages:
            passage.reset()
        return len(passages)

    def stall(self, stalled: bool) -> None:
        """Stop passing bytes on the connections that there are, or go on."""
        for passage in list(self.passages):
            passage.stall(stalled)

    def tear(self, hole: str) -> None:
        """Pass nothing on in one direction (`there` or `back`), also of new connections; empty: in both."""
        self.hole = hole
        for passage in list(self.passages):
            passage.review()

    async def close(self) -> None:
        if self._server is not None:
            self._server.close()
        for task in list(self._tasks):
            task.cancel()
        self.reset()
        if self._tasks:
            await asyncio.wait(self._tasks)
