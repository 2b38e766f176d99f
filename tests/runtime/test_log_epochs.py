"""Does a live reader notice that its log is not the one it knew?

After a restore from backup, or with a lost data directory, a log gives offsets again that it gave before.
Real processes: the broker is killed, its data directory exchanged, and the broker started on the same port.
"""

from __future__ import annotations

import asyncio
import shutil
import signal
from typing import TYPE_CHECKING

import pytest

from braid.runtime.connecting import connect
from tests.cli.broker_process import BrokerProcess

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from braid.runtime.client_subscription import DurableSubscription

pytestmark = pytest.mark.net

DEADLINE_S = 30.0


class Restored:
    """A broker whose data directory can be exchanged while it is down."""

    def __init__(self, folder: Path) -> None:
        self.data = folder / "data"
        self.backup = folder / "backup"
        self.listen = "127.0.0.1:0"
        self.start()
        self.listen = self.broker.address.removeprefix("braid://")

    def start(self) -> None:
        self.broker = BrokerProcess("--id", "A", "--listen", self.listen, "--data-dir", str(self.data))
        assert self.broker.address

    def kill(self) -> None:
        self.broker.stop(signal.SIGKILL)

    def back_up(self) -> None:
        """As an administrator does with a broker that is at rest."""
        shutil.copytree(self.data, self.backup)

    def restore(self) -> None:
        shutil.rmtree(self.data)
        shutil.copytree(self.backup, self.data)


@pytest.fixture
def restored(tmp_path: Path) -> Iterator[Restored]:
    restored = Restored(tmp_path)
    try:
        yield restored
    finally:
        restored.broker.stop(signal.SIGKILL)


async def publish(restored: Restored, first: int, count: int) -> None:
    async with connect(restored.listen) as publisher:
        for number in range(first, first + count):
            await publisher.publish({"n": number}, delivery="acknowledged")
        await publisher.flush(DEADLINE_S)


async def read(log: DurableSubscription, count: int, *, acknowledge: bool = True) -> list[int]:
    numbers = []
    for _ in range(count):
        row = await log.get(DEADLINE_S)
        numbers.append(row["n"])
        if acknowledge:
            await log.acknowledge(row)  # type: ignore[arg-type]
    return numbers


async def log_is_there(restored: Restored) -> None:
    async with asyncio.timeout(DEADLINE_S), connect(restored.listen) as client:
        while not (await client.ask("statistics"))["durable_logs"]:
            pass


@pytest.mark.parametrize("restarted", [False, True], ids=["backup of this run", "backup of a run before"])
async def test_a_live_reader_gets_all_that_is_published_after_a_restore(
    restored: Restored, restarted: bool
) -> None:
    async with connect(restored.listen) as client:
        log = await client.subscribe("n >= 0", durable="log")
        await publish(restored, 0, 200)
        assert await read(log, 200) == list(range(200))
        await client.flush(DEADLINE_S)
        await client.ask("overlay")
        if restarted:
            restored.kill()
            restored.back_up()
            restored.start()
        else:
            restored.back_up()
        await publish(restored, 200, 400)
        assert await read(log, 400) == list(range(200, 600))
        restored.kill()
        restored.restore()
        restored.start()
        await publish(restored, 600, 400)
        assert await read(log, 400) == list(range(600, 1000))
        assert log.resets == 1


async def test_what_was_never_seen_does_not_count_as_acknowledged(restored: Restored) -> None:
    async with connect(restored.listen) as client:
        log = await client.subscribe("n >= 0", durable="log")
        await publish(restored, 0, 100)
        assert await read(log, 100) == list(range(100))
        await client.ask("overlay")
        restored.back_up()
        await publish(restored, 100, 100)
        assert await read(log, 100) == list(range(100, 200))
        restored.kill()
        restored.restore()
        restored.start()
        await publish(restored, 200, 100)
        assert await read(log, 100, acknowledge=False) == list(range(200, 300))
        await client.ask("overlay")
    async with connect(restored.listen) as client:
        # Nothing of this was acknowledged, whatever was acknowledged at these offsets before.
        log = await client.subscribe(None, durable="log")
        assert await read(log, 100) == list(range(200, 300))


async def test_a_live_reader_begins_anew_when_the_data_directory_was_lost(restored: Restored) -> None:
    async with connect(restored.listen) as client:
        log = await client.subscribe("n >= 0", durable="log")
        await publish(restored, 0, 300)
        assert await read(log, 300) == list(range(300))
        restored.kill()
        shutil.rmtree(restored.data)
        restored.start()
        await log_is_there(restored)
        await publish(restored, 300, 400)
        assert await read(log, 400) == list(range(300, 700))
        assert log.resets == 1


async def test_a_restart_alone_is_no_reset(restored: Restored) -> None:
    async with connect(restored.listen) as client:
        log = await client.subscribe("n >= 0", durable="log")
        for first in (0, 50, 100):
            await publish(restored, first, 50)
            assert await read(log, 50) == list(range(first, first + 50))
            restored.kill()
            restored.start()
        await publish(restored, 150, 50)
        assert await read(log, 50) == list(range(150, 200))
        assert log.resets == 0
