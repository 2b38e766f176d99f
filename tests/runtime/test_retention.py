"""Are old rows of a real store removed while a broker runs?"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from braid.broker import retention
from braid.broker.core import BrokerCore
from braid.broker.settings import BrokerSettings
from braid.protocol.log import Retention
from braid.runtime.connecting import connect
from braid.runtime.node import Node
from braid.runtime.store import SqliteStore, StoreThread
from tests.runtime.fake_broker import DEADLINE_S, until

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.net

ROWS = 50


async def test_rows_that_are_too_many_go_once_they_are_acknowledged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(retention, "SWEEP_US", 100_000)
    store = SqliteStore(tmp_path, retention=Retention(bytes_max=10_000), synchronous="NORMAL")
    settings = BrokerSettings(broker_id="A", address="x")
    core = BrokerCore(settings, incarnation="A-1", seed=1, store=store.state())
    node = Node(core, name="A", store=StoreThread(store))
    port = await node.listen("127.0.0.1", 0)
    node.start()
    try:
        async with asyncio.timeout(DEADLINE_S), connect(f"127.0.0.1:{port}") as client:
            log = await client.subscribe("n >= 0", durable="log")
            for number in range(ROWS):
                await client.publish({"n": number}, bytes(1_000), delivery="acknowledged")
            await client.flush()
            for number in range(ROWS):
                row = await log.get(DEADLINE_S)
                assert row["n"] == number
                await log.acknowledge(row)
            await until(lambda: core.snapshot().store.logs[0].first_offset > 0)
            (kept,) = core.snapshot().store.logs
            assert kept.first_offset < kept.next_offset == ROWS
    finally:
        await node.stop()
        store.close()
