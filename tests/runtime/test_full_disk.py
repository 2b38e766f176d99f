"""Does a broker whose disk is full recover by itself, and what do publishers far away see meanwhile?

A real SQLite file that may not grow (`PRAGMA max_page_count`) answers as one on a full disk does.
"""

from __future__ import annotations

import asyncio
import urllib.error
import urllib.request
from typing import TYPE_CHECKING

import pytest

from braid.broker.core import BrokerCore
from braid.broker.settings import BrokerSettings
from braid.protocol.log import Retention
from braid.runtime.connecting import connect
from braid.runtime.node import Node
from braid.runtime.store import SqliteStore, StoreThread
from tests.cli.broker_process import BrokerProcess
from tests.runtime.fake_broker import DEADLINE_S, until

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.net


def page_limit(store: SqliteStore, *, spare: int | None) -> None:
    """Let the file grow by so many pages, or without limit."""
    connection = store._connection
    pages = connection.execute("PRAGMA page_count").fetchone()[0]
    connection.execute(f"PRAGMA max_page_count = {pages + spare if spare is not None else 2**31}")


async def test_a_full_disk_far_away_holds_up_only_what_goes_to_it_and_recovers(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path, retention=Retention(), synchronous="NORMAL")
    near = Node(BrokerCore(BrokerSettings(broker_id="A", address="x"), incarnation="A-1", seed=1), name="A")
    port = await near.listen("127.0.0.1", 0)
    near.start()
    far_core = BrokerCore(
        BrokerSettings(broker_id="B", address="y", neighbours=(f"127.0.0.1:{port}",)),
        incarnation="B-1",
        seed=2,
        store=store.state(),
    )
    far = Node(far_core, name="B", store=StoreThread(store))
    far_port = await far.listen("127.0.0.1", 0)
    far.start()
    try:
        async with connect(f"127.0.0.1:{port}") as publisher, connect(f"127.0.0.1:{far_port}") as subscriber:
            log = await subscriber.subscribe("kind = 1", durable="log")
            plain = await subscriber.subscribe("kind = 2")
            page_limit(store, spare=2)
            stuck = [
                await publisher.publish({"kind": 1, "n": n}, bytes(20_000), delivery="acknowledged")
                for n in range(5)
            ]
            await until(lambda: not far_core.ready)
            unrelated = await publisher.publish({"kind": 2}, delivery="acknowledged")
            nobody = await publisher.publish({"kind": 3}, delivery="acknowledged")
            async with asyncio.timeout(DEADLINE_S):
                await unrelated
                await nobody
            assert (await plain.get(DEADLINE_S))["kind"] == 2
            assert not stuck[-1].done
            page_limit(store, spare=None)
            async with asyncio.timeout(DEADLINE_S):
                for receipt in stuck:
                    await receipt
            await publisher.flush(DEADLINE_S)
            assert far_core.ready
            assert [(await log.get(DEADLINE_S))["n"] for _ in range(5)] == list(range(5))
    finally:
        await near.stop()
        await far.stop()
        store.close()


async def test_a_broker_whose_disk_is_nearly_full_is_not_ready_and_says_so(tmp_path: Path) -> None:
    config = tmp_path / "broker.toml"
    config.write_text(
        f'[broker]\nbroker_id = "A"\ndisk_low_bytes = {1 << 60}\ndisk_high_bytes = {1 << 60}\n'
        f'[listener]\nlisten = "127.0.0.1:0"\n[http]\nlisten = "127.0.0.1:0"\n'
        f'[store]\ndata_dir = "{tmp_path / "data"}"\n',
        encoding="utf-8",
    )
    broker = BrokerProcess("--config", str(config))
    try:
        broker.wait_for("the disk is nearly full")
        with pytest.raises(urllib.error.HTTPError) as refused:
            await asyncio.to_thread(urllib.request.urlopen, f"{broker.http}/ready", timeout=DEADLINE_S)
        with refused.value as answer:
            assert (answer.code, answer.read()) == (503, b"the disk is nearly full\n")
    finally:
        broker.stop()
