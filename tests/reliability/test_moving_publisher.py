"""Does a receipt hold whose publisher went to another broker, when the former is killed? With real processes.

The former broker passes a publication on, and cannot store it: its files may not grow. The publisher loses
that connection, sends again at the other broker, which has had it, and the former broker is killed.
"""

from __future__ import annotations

import asyncio
import resource
from typing import TYPE_CHECKING

import pytest

from braid.runtime.connecting import connect
from tests.cli.broker_process import BrokerProcess
from tests.reliability.processes import free_port
from tests.reliability.proxy import Proxy
from tests.runtime.fake_broker import until

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.net

DEADLINE_S = 60
# Less than a row takes with its body.
GROWTH_BYTES_MAX = 30_000


def started(name: str, port: int, directory: Path, *options: str) -> BrokerProcess:
    broker = BrokerProcess(
        *("--id", name, "--listen", f"127.0.0.1:{port}", "--data-dir", str(directory / name)),
        *("--strategy", "S0", *options),
    )
    assert broker.address
    return broker


def let_no_file_grow(broker: BrokerProcess, directory: Path) -> None:
    """From now on the store can be read, and not written."""
    largest = max(path.stat().st_size for path in directory.rglob("*") if path.is_file())
    limit = largest + GROWTH_BYTES_MAX
    resource.prlimit(broker.process.pid, resource.RLIMIT_FSIZE, (limit, resource.RLIM_INFINITY))


async def test_what_the_former_broker_could_not_store_is_not_lost_with_a_receipt(tmp_path: Path) -> None:
    port = free_port()
    former = started("A", port, tmp_path)
    latter = started("B", free_port(), tmp_path, "--neighbour", f"127.0.0.1:{port}")
    proxy = Proxy("A", "127.0.0.1", port)
    await proxy.open()
    try:
        async with (
            asyncio.timeout(DEADLINE_S),
            connect(f"{proxy.address},{latter.address}") as publisher,
            connect(former.address) as reader,
            connect(latter.address) as watcher,
        ):
            log = await reader.subscribe("n > 0", durable="log")
            seen = await watcher.subscribe("n > 0")
            let_no_file_grow(former, tmp_path / "A")
            stuck = await publisher.publish({"n": 1}, bytes(200_000), delivery="acknowledged")
            assert (await seen.get(DEADLINE_S))["n"] == 1
            former.wait_for("store")
            assert not stuck.done
            await proxy.close()
            await until(lambda: publisher.connected and publisher.broker == "B")
            # An answer of the new broker: what was sent again before it has been looked at.
            await (await publisher.publish({"other": 1}, delivery="fast"))
            former.process.kill()
            former.process.wait()
            former.stop()
            former = started("A", port, tmp_path)
            await stuck
            assert (await log.get(DEADLINE_S))["n"] == 1
    finally:
        await proxy.close()
        former.stop()
        latter.stop()
