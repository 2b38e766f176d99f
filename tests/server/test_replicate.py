"""Does a standby take the place of a broker that was killed, with real processes and sockets?"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from contextlib import AsyncExitStack, suppress
from typing import TYPE_CHECKING, Any

import pytest

import braid
from braid.cli.connection_options import Door
from braid.cli.overlay_replicate import replicate
from braid.errors import ConfigurationError, NetworkError, RequestRefusedError

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.net

FREE = "127.0.0.1:0"
DOOR = Door(timeout_s=20.0)
PUBLICATIONS = 200


def named(broker_id: str, folder: Path | None = None, **options: Any) -> braid.ServerSettings:
    data_dir = folder / broker_id if folder is not None else None
    return braid.ServerSettings.of(broker_id=broker_id, listen=FREE, data_dir=data_dir, **options)


class Process:
    """A broker in a process of its own."""

    def __init__(self, *options: str) -> None:
        self._options = options
        self.address = ""
        self.lines: list[dict[str, Any]] = []

    async def __aenter__(self) -> Process:
        self._process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "braid.cli", "broker", "--listen", FREE, "--log-format", "json"),
            *self._options,
            stderr=asyncio.subprocess.PIPE,
        )
        assert self._process.stderr is not None
        while not self.address:
            line = await asyncio.wait_for(self._process.stderr.readline(), 60)
            assert line, self.lines
            self.lines.append(json.loads(line))
            self.address = self.lines[-1].get("address", "")
        self._reading = asyncio.create_task(self._read(self._process.stderr))
        return self

    async def _read(self, stderr: asyncio.StreamReader) -> None:
        while line := await stderr.readline():
            with suppress(ValueError):
                self.lines.append(json.loads(line))

    def signal(self, number: signal.Signals) -> None:
        os.kill(self._process.pid, number)

    async def ended(self) -> int:
        return await asyncio.wait_for(self._process.wait(), 60)

    async def __aexit__(self, *_: object) -> None:
        with suppress(ProcessLookupError):
            self._process.kill()
        await self._process.wait()
        await self._reading


async def publish(address: str, publisher: str, **manner: Any) -> None:
    async with braid.connect(address) as client:
        for number in range(PUBLICATIONS):
            await client.publish({"publisher": publisher, "number": number}, **manner)
            await asyncio.sleep(0.005)


async def received(subscription: Any, wanted: int) -> dict[str, list[int]]:
    found: dict[str, list[int]] = {}
    for _ in range(wanted):
        publication = await asyncio.wait_for(subscription.get(), 60)
        found.setdefault(publication["publisher"], []).append(publication["number"])
    return found


@pytest.mark.parametrize("kept", [True, False], ids=["with data", "without"])
async def test_a_standby_takes_the_place_of_a_broker_that_was_killed(tmp_path: Path, kept: bool) -> None:
    folder = tmp_path if kept else None
    async with AsyncExitStack() as stack:
        data = ["--data-dir", str(tmp_path / "F")] if kept else []
        f = await stack.enter_async_context(Process("--id", "F", *data))
        a = await stack.enter_async_context(braid.serve(named("A", folder, neighbours=[f.address])))
        b = await stack.enter_async_context(braid.serve(named("B", folder, neighbours=[f.address])))
        standby = await stack.enter_async_context(braid.serve(named("S", folder, standby=True)))
        address = standby.address
        for broker in (a, b):
            await broker.wait_ready(30)
        client = await stack.enter_async_context(braid.connect(b.address))
        reader = await client.subscribe("number >= 0")
        work = [
            asyncio.create_task(publish(a.address, "acknowledged", delivery="acknowledged")),
            asyncio.create_task(publish(a.address, "ordered", delivery="acknowledged", ordered=True)),
        ]
        reading = asyncio.create_task(received(reader, 2 * PUBLICATIONS))
        await asyncio.sleep(0.2)
        f.signal(signal.SIGKILL)
        assert await f.ended() == -signal.SIGKILL
        replaced = await replicate("F", address, [a.address], DOOR)
        assert (replaced.address, replaced.epoch) == (address, 1)
        assert replaced.granted_by == ("A", "B")
        assert standby.broker_id == "F"
        await asyncio.gather(*work)
        everything = list(range(PUBLICATIONS))
        assert await reading == {"acknowledged": everything, "ordered": everything}
        # What is asked for again is as it is.
        assert (await replicate("F", address, [a.address], DOOR)).epoch == 1
        if kept:
            again = await stack.enter_async_context(Process("--id", "F", *data))
            assert await again.ended() == 2
            assert "has the name F now" in str(again.lines), again.lines


async def test_a_standby_waits_until_the_directory_gives_the_name_away(tmp_path: Path) -> None:
    """What is killed is in the directory until its lease has ended."""
    choice = tmp_path / "directory.toml"
    choice.write_text(f'[directory]\nurl = "{tmp_path}/directory.db"\nlease_s = 2.0\n')
    async with AsyncExitStack() as stack:
        f = await stack.enter_async_context(Process("--id", "F", "--config", str(choice)))
        a = await stack.enter_async_context(braid.serve(named("A", neighbours=[f.address])))
        standby = await stack.enter_async_context(Process("--id", "S", "--standby", "--config", str(choice)))
        await a.wait_ready(30)
        f.signal(signal.SIGKILL)
        await f.ended()
        await replicate("F", standby.address, [a.address], DOOR)
        assert "waits for the name of a broker" in str(standby.lines), standby.lines
        async with braid.connect(standby.address) as client:
            assert client.broker == "F"


@pytest.mark.soak
async def test_a_standby_that_waits_for_a_name_can_be_stopped(tmp_path: Path) -> None:
    """It does not go on waiting for a lease that is longer than this test may take."""
    path = str(tmp_path / "directory.db")
    choice = tmp_path / "directory.toml"
    choice.write_text(f'[directory]\nurl = "{path}"\nlease_s = 500.0\n')
    async with AsyncExitStack() as stack:
        f = await stack.enter_async_context(Process("--id", "F", "--config", str(choice)))
        a = await stack.enter_async_context(braid.serve(named("A", neighbours=[f.address])))
        standby = await stack.enter_async_context(Process("--id", "S", "--standby", "--config", str(choice)))
        await a.wait_ready(30)
        f.signal(signal.SIGKILL)
        await f.ended()
        asked = asyncio.create_task(replicate("F", standby.address, [a.address], DOOR))
        for _ in range(1_000):
            if "waits for the name of a broker" in str(standby.lines):
                break
            await asyncio.sleep(0.05)
        asked.cancel()
        standby.signal(signal.SIGTERM)
        await standby.ended()
        with suppress(asyncio.CancelledError, NetworkError, RequestRefusedError):
            await asked
        assert "waits for the name of a broker" in str(standby.lines), standby.lines


async def test_clients_of_a_broker_that_was_killed_find_another_one() -> None:
    """They know its address alone. Their publications arrive once and in order."""
    async with AsyncExitStack() as stack:
        f = await stack.enter_async_context(Process("--id", "F"))
        a = await stack.enter_async_context(braid.serve(named("A", neighbours=[f.address])))
        b = await stack.enter_async_context(braid.serve(named("B", neighbours=[f.address])))
        standby = await stack.enter_async_context(braid.serve(named("S", standby=True)))
        for broker in (a, b):
            await broker.wait_ready(30)
        client = await stack.enter_async_context(braid.connect(b.address))
        reader = await client.subscribe("number >= 0")
        moving = await stack.enter_async_context(braid.connect(f.address))
        moved = await moving.subscribe("late = TRUE")
        work = asyncio.create_task(publish(f.address, "moving", delivery="acknowledged"))
        reading = asyncio.create_task(received(reader, PUBLICATIONS))
        await asyncio.sleep(0.2)
        f.signal(signal.SIGKILL)
        await f.ended()
        await replicate("F", standby.address, [a.address], DOOR)
        await work
        assert await reading == {"moving": list(range(PUBLICATIONS))}
        async with braid.connect(a.address) as publisher:
            # Until the subscription stands again at another broker, nothing is owed to it.
            for _ in range(600):
                await publisher.publish({"late": True}, delivery="acknowledged")
                with suppress(TimeoutError):
                    await moved.get(timeout_s=0.1)
                    break
            else:
                pytest.fail("the client has found no other broker")


async def test_a_standby_with_data_comes_back_to_its_place(tmp_path: Path) -> None:
    async with AsyncExitStack() as stack:
        f = await stack.enter_async_context(Process("--id", "F"))
        a = await stack.enter_async_context(braid.serve(named("A", tmp_path, neighbours=[f.address])))
        await a.wait_ready(30)
        settings = named("S", tmp_path, standby=True)
        async with braid.serve(settings) as standby:
            f.signal(signal.SIGKILL)
            await f.ended()
            await replicate("F", standby.address, [a.address], DOOR)
        with pytest.raises(ConfigurationError, match="has the place of the broker F"):
            await braid.serve(named("S", tmp_path))
        async with braid.serve(settings) as standby:
            assert standby.broker_id == "F"
            await standby.wait_ready(30)
            client = await stack.enter_async_context(braid.connect(standby.address))
            reader = await client.subscribe("x > 0")
            async with braid.connect(a.address) as publisher:
                await publisher.publish({"x": 1}, delivery="acknowledged")
            assert (await asyncio.wait_for(reader.get(), 30))["x"] == 1


async def test_what_cannot_be_done_is_said() -> None:
    async with AsyncExitStack() as stack:
        f = await stack.enter_async_context(braid.serve(named("F")))
        a = await stack.enter_async_context(braid.serve(named("A", neighbours=[f.address])))
        await a.wait_ready(30)
        standby = await stack.enter_async_context(braid.serve(named("S", standby=True)))
        with pytest.raises(RequestRefusedError, match="F is there"):
            await replicate("F", standby.address, [a.address], DOOR)
        with pytest.raises(NetworkError, match="has a link to Z"):
            await replicate("Z", standby.address, [a.address], DOOR)
        with pytest.raises(RequestRefusedError, match="no topic 'standby'"):
            await replicate("F", a.address, [a.address], DOOR)
        with pytest.raises(ConfigurationError, match="a standby has no neighbours"):
            await braid.serve(named("T", standby=True, neighbours=[a.address]))
