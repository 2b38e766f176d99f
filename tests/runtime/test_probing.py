"""Does a probe of a real listener end, and say whether anybody is there?"""

from __future__ import annotations

import asyncio
import socket

from braid.runtime.probing import probed_us


async def test_a_listener_is_measured_and_hears_nothing() -> None:
    heard: asyncio.Queue[bytes] = asyncio.Queue()

    async def take(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await heard.put(await reader.read())
        except ConnectionError:
            await heard.put(b"")
        writer.close()

    server = await asyncio.start_server(take, "127.0.0.1", 0)
    async with server:
        port = server.sockets[0].getsockname()[1]
        found = await probed_us(f"braid://127.0.0.1:{port}")
        assert found is not None
        assert found >= 1
        assert await heard.get() == b""


async def test_nobody_there_and_no_address() -> None:
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        assert await probed_us(f"braid://127.0.0.1:{closed.getsockname()[1]}") is None
    assert await probed_us("no address at all:x") is None
