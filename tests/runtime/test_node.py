"""Does the driver report what happens, and do what the machine says, in order?"""

from __future__ import annotations

import asyncio
import logging
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import pytest

from braid.protocol import Frame, FrameDecoder, PublicationBatch, encode_frames
from braid.protocol.batch import encode_record
from braid.protocol.effects import Close, Dial, Drained, Note, Persist, ReadLog, Send
from braid.protocol.inputs import (
    Closed,
    Drain,
    LogRead,
    Malformed,
    Opened,
    Persisted,
    Received,
    Tick,
    Writable,
)
from braid.protocol.log import KeepNeighbour
from braid.protocol.memory_store import MemoryStore
from braid.protocol.messages import Ping
from braid.runtime.node import Node
from braid.runtime.store import StoreThread

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from braid.protocol.effects import Effect
    from braid.protocol.inputs import Input

pytestmark = pytest.mark.net


class Script:
    """A machine that remembers its inputs and answers as it is told."""

    def __init__(self, answer: Callable[[Input], list[Effect]] = lambda stimulus: []) -> None:
        self.inputs: list[Input] = []
        self.deadline_us: int | None = None
        self._answer = answer
        self._heard = asyncio.Event()

    def handle(self, stimulus: Input, now_us: int) -> list[Effect]:
        self.inputs.append(stimulus)
        self._heard.set()
        if isinstance(stimulus, Tick):
            self.deadline_us = None
        return self._answer(stimulus)

    def next_deadline_us(self) -> int | None:
        return self.deadline_us

    async def wait_until(self, condition: Callable[[], bool]) -> None:
        async with asyncio.timeout(30):
            while not condition():
                self._heard.clear()
                await self._heard.wait()

    async def wait_for(self, kind: type, count: int = 1) -> Input:
        await self.wait_until(lambda: sum(isinstance(each, kind) for each in self.inputs) >= count)
        return [each for each in self.inputs if isinstance(each, kind)][count - 1]


@asynccontextmanager
async def running(machine: Script, store: StoreThread | None = None) -> AsyncIterator[tuple[Node, int]]:
    node = Node(machine, name="A", store=store)
    port = await node.listen("127.0.0.1", 0)
    node.start()
    try:
        yield node, port
    finally:
        await node.stop()


async def test_two_nodes_talk() -> None:
    def pong(stimulus: Input) -> list[Effect]:
        return [Send(stimulus.connection, stimulus.frames)] if isinstance(stimulus, Received) else []

    def dial(stimulus: Input) -> list[Effect]:
        if isinstance(stimulus, Tick):
            return [Dial(f"127.0.0.1:{port}")]
        if isinstance(stimulus, Opened):
            return [Send(stimulus.connection, [Frame(0, Ping(7))])]
        return [Close(stimulus.connection, "enough")] if isinstance(stimulus, Received) else []

    server, client = Script(pong), Script(dial)
    async with running(server) as (_, port), running(client):
        opened = await client.wait_for(Opened)
        received = await client.wait_for(Received)
        closed = await client.wait_for(Closed)
        assert isinstance(opened, Opened)
        assert isinstance(received, Received)
        assert isinstance(closed, Closed)
        assert opened.dialled == closed.dialled == f"127.0.0.1:{port}"
        assert received.frames[0].body == Ping(7)
        assert closed.reason == "enough"
        assert await server.wait_for(Closed)


async def test_a_dial_that_fails_is_reported_with_its_address() -> None:
    machine = Script(lambda stimulus: [Dial("nowhere:port:port")] if isinstance(stimulus, Tick) else [])
    async with running(machine):
        closed = await machine.wait_for(Closed)
    assert isinstance(closed, Closed)
    assert (closed.connection, closed.dialled) == (None, "nowhere:port:port")


async def test_bytes_that_are_no_frames() -> None:
    machine = Script()
    async with running(machine) as (_, port):
        _, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"\xff" * 64)
        assert await machine.wait_for(Malformed)
        writer.close()


async def test_frames_in_pieces_arrive_whole() -> None:
    machine = Script()
    async with running(machine) as (_, port):
        _, writer = await asyncio.open_connection("127.0.0.1", port)
        data = encode_frames([Frame(0, Ping(1)), Frame(0, Ping(2))])
        for at in range(len(data)):
            writer.write(data[at : at + 1])
            await writer.drain()
            await asyncio.sleep(0)
        await machine.wait_until(
            lambda: sum(len(each.frames) for each in machine.inputs if isinstance(each, Received)) == 2
        )
        writer.close()


async def test_deadlines_are_met() -> None:
    machine = Script()
    async with running(machine) as (node, _):
        machine.deadline_us = 1  # long ago
        node.report(Drain())
        assert await machine.wait_for(Tick, 2)


async def test_an_input_that_an_effect_leads_to_has_its_own_turn() -> None:
    def answer(stimulus: Input) -> list[Effect]:
        if isinstance(stimulus, Drain):
            return [Persist(1, []), ReadLog(2, "x", 0, None, 1), Drained()]
        return []

    machine = Script(answer)
    async with running(machine) as (node, _):
        await node.drain()
    assert machine.inputs[1:4] == [
        Drain(),
        Persisted(1, "there is no store"),
        LogRead(2, error="there is no store"),
    ]


async def test_store_work_is_answered() -> None:
    def answer(stimulus: Input) -> list[Effect]:
        if isinstance(stimulus, Drain):
            return [Persist(1, [KeepNeighbour("B", "x:1")]), ReadLog(2, "none", 0, None, 1), Drained()]
        return []

    machine = Script(answer)
    store = MemoryStore()
    async with running(machine, StoreThread(store)) as (node, _):
        await node.drain()
        assert await machine.wait_for(Persisted) == Persisted(1, None)
        read = await machine.wait_for(LogRead)
    assert isinstance(read, LogRead)
    assert read.error
    assert store.state().neighbours == (("B", "x:1"),)


async def test_notes_are_logged_with_their_fields(caplog: pytest.LogCaptureFixture) -> None:
    machine = Script(lambda stimulus: [Note("warning", "so it is", {"why": "because"})])
    with caplog.at_level(logging.WARNING, logger="braid"):
        async with running(machine):
            pass
    assert caplog.records[0].getMessage() == "so it is"
    assert caplog.records[0].fields == {"why": "because"}


async def test_turns_are_observed() -> None:
    seen: list[tuple[Input, int]] = []
    node = Node(
        Script(), name="A", on_turn=lambda stimulus, duration_us: seen.append((stimulus, duration_us))
    )
    node.start()
    await node.stop()
    node.report(Tick())  # after the end nothing happens
    assert [stimulus for stimulus, _ in seen] == [Tick()]
    assert seen[0][1] >= 0


async def test_heartbeats_and_acknowledgements_do_not_wait_behind_publications_on_a_slow_line() -> None:
    """The reader takes nothing until all is said; what waits then is as it was, and complete."""
    record = encode_record({"text": "x" * 100_000}, 0)
    batches = [PublicationBatch.of("p", [number], [record]) for number in range(1, 301)]  # 30 MB
    said = asyncio.Event()

    def answer(stimulus: Input) -> list[Effect]:
        if not isinstance(stimulus, Opened):
            return []
        number = stimulus.connection
        said.set()
        first = [Send(number, [Frame(place, batch)]) for place, batch in enumerate(batches[:200], 1)]
        more = [Frame(place, batch) for place, batch in enumerate(batches[200:], 201)]
        pings = [Frame(0, Ping(place)) for place in range(3)]
        first[0] = Send(number, [Frame(1, batches[0]), pings[0]])
        return [*first, Send(number, [*more, pings[1]]), Send(number, [pings[2], Frame(301, batches[0])])]

    machine = Script(answer)
    async with running(machine) as (_, port):
        reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=65_536)
        await said.wait()
        await machine.wait_for(Writable)
        decoder = FrameDecoder()
        frames: list[Frame] = []
        async with asyncio.timeout(60):
            while len(frames) < 304:
                frames += decoder.feed(await reader.read(65_536))
        sequences = [frame.sequence for frame in frames]
        assert [each.body.number for each in frames if isinstance(each.body, Ping)] == [0, 1, 2]
        assert max(place for place, each in enumerate(sequences) if each == 0) < 200
        assert [each for each in sequences if each] == list(range(1, 302))
        await machine.wait_for(Writable, 2)
        writable = [each.writable for each in machine.inputs if isinstance(each, Writable)]
        assert writable == [False, True] * (len(writable) // 2)
        writer.close()


async def test_what_has_not_been_written_yet_goes_before_the_end() -> None:
    record = encode_record({"text": "x" * 100_000}, 0)
    frames = [Frame(number, PublicationBatch.of("p", [number], [record])) for number in range(1, 101)]

    def answer(stimulus: Input) -> list[Effect]:
        if isinstance(stimulus, Opened):
            return [Send(stimulus.connection, frames), Close(stimulus.connection, "enough")]
        return []

    async with running(Script(answer)) as (_, port):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        decoder = FrameDecoder()
        found: list[Frame] = []
        async with asyncio.timeout(60):
            while data := await reader.read(1 << 20):
                found += decoder.feed(data)
        assert [frame.sequence for frame in found] == list(range(1, 101))
        writer.close()
