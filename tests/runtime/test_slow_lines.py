"""Does a publication pass that takes longer on its way than anybody may be silent?"""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING

import pytest

from braid.client import session as client_session
from braid.runtime.connecting import connect
from tests.runtime.fake_broker import DEADLINE_S, until
from tests.runtime.test_client_with_broker import RunningBroker

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

pytestmark = pytest.mark.net

HEARTBEAT_US = 100_000
BYTES_PER_S = 400_000
BODY = b"x" * 800_000
PIECE = 4096


class SlowLine:
    """Stands before a broker and passes little on at a time, both ways."""

    def __init__(self, port: int) -> None:
        self._port = port
        self.connections = 0
        self._writers: list[asyncio.StreamWriter] = []
        self._tasks: set[asyncio.Task[None]] = set()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        self._writers.append(writer)
        try:
            far_reader, far_writer = await asyncio.open_connection("127.0.0.1", self._port)
        except OSError:
            writer.close()
            return
        self._writers.append(far_writer)
        await asyncio.gather(self._pass_on(reader, far_writer), self._pass_on(far_reader, writer))

    async def end(self) -> None:
        """Cut whatever is connected."""
        for writer in self._writers:
            writer.transport.abort()
        await asyncio.wait(self._tasks, timeout=DEADLINE_S)
        await asyncio.gather(*(writer.wait_closed() for writer in self._writers), return_exceptions=True)

    async def _pass_on(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError):
            while data := await reader.read(PIECE):
                writer.write(data)
                await writer.drain()
                await asyncio.sleep(len(data) / BYTES_PER_S)
        writer.close()


@asynccontextmanager
async def slow_line_to(broker: RunningBroker) -> AsyncIterator[tuple[SlowLine, str]]:
    line = SlowLine(int(broker.address.rpartition(":")[2]))
    server = await asyncio.start_server(line.serve, "127.0.0.1", 0, limit=PIECE)
    port = server.sockets[0].getsockname()[1]
    try:
        yield line, f"127.0.0.1:{port}"
    finally:
        server.close()
        await line.end()


@asynccontextmanager
async def running(*brokers: RunningBroker) -> AsyncIterator[None]:
    for broker in brokers:
        await broker.start()
    try:
        yield
    finally:
        for broker in reversed(brokers):
            await broker.stop()


@pytest.mark.parametrize("stall_us_max", [30_000_000, 4 * HEARTBEAT_US])
async def test_a_large_publication_passes_a_slow_link(stall_us_max: int) -> None:
    a = RunningBroker("A", heartbeat_us=HEARTBEAT_US, stall_us_max=stall_us_max)
    async with running(a), slow_line_to(a) as (line, address):
        b = RunningBroker("B", (address,), heartbeat_us=HEARTBEAT_US, stall_us_max=stall_us_max)
        async with running(b), connect(a.address) as publisher, connect(b.address) as subscriber:
            await until(lambda: a.core.ready and b.core.ready)
            subscription = await subscriber.subscribe("n >= 1")
            async with asyncio.timeout(DEADLINE_S):
                receipts = [
                    await publisher.publish({"n": n}, body=BODY, delivery="acknowledged") for n in (1, 2)
                ]
                await asyncio.gather(*receipts)
                assert [(await anext(subscription))["n"] for _ in receipts] == [1, 2]
            assert line.connections == 1


@pytest.mark.parametrize("durable", [None, "log"])
async def test_a_large_publication_passes_between_a_client_and_its_broker(
    durable: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client_session, "SILENT_HEARTBEATS_MAX", 0.2)
    broker = RunningBroker("A", heartbeat_us=HEARTBEAT_US)
    async with (
        running(broker),
        slow_line_to(broker) as (line, address),
        connect(address) as far,
        connect(broker.address) as near,
    ):
        there, back = await far.subscribe("n >= 1", durable=durable), await near.subscribe("n = 2")
        async with asyncio.timeout(DEADLINE_S):
            await (await near.publish({"n": 1}, body=BODY, delivery="acknowledged"))
            assert (await anext(there))["n"] == 1
            await (await far.publish({"n": 2}, body=BODY, delivery="acknowledged"))
            assert (await anext(back))["n"] == 2
            assert (await anext(there))["n"] == 2
        assert line.connections == 1
