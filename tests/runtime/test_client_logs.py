"""Do the owners of logs get from real brokers what docs/api.md says?"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

import braid
from braid.protocol.batch import decode_record
from braid.runtime.connecting import connect
from tests.runtime.test_client_with_broker import RunningBroker

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.net

ROWS = 3_000


async def test_a_log_is_made_filled_replayed_and_pinned() -> None:
    broker = RunningBroker("A")
    await broker.start()
    try:
        async with connect(f"braid://127.0.0.1:{broker.port}", name="owner") as owner:
            made = await owner.create_durable("log", "n >= 0", secret="s")
            assert (made.first, made.next, made.when_full) == (0, 0, "block")
            await owner.publish_batch(
                [{"n": n, "text": f"row {n}"} for n in range(ROWS)], delivery="acknowledged"
            )
            await owner.flush()
        async with connect(f"braid://127.0.0.1:{broker.port}", name="other") as other:
            status = await other.log_status("log", secret="s")
            assert (status.id, status.safe, status.acknowledged) == (made.id, ROWS, -1)
            replay = other.replay(
                "log", 10, 99, filter="n % 10 = 3", columns=["n"], complete=True, log=status.id
            )
            rows = [row async for row in replay]
            assert [(row.offset, dict(row.attributes)) for row in rows] == [
                (n, {"n": n}) for n in range(13, 100, 10)
            ]
            assert replay.range == braid.ReplayRange(status.id, 10, 99, 100)
            records = other.replay_records("log", 0, ROWS - 1, log=status.id, epoch=status.epoch_at(-1))
            found = []
            async for piece in records:
                for offset, (publisher, sequence, record) in zip(piece.offsets, piece.rows, strict=True):
                    found.append((offset, decode_record(record, publisher, sequence)["n"]))
            assert found == [(n, n) for n in range(ROWS)]
            with pytest.raises(braid.RequestRefusedError) as refused:
                [row async for row in other.replay("log", 0, ROWS, complete=True)]
            assert refused.value.code == "unsafe"
            await other.pin_log("log", "job", 7, log=status.id)
            await other.acknowledge_log("log", 99, log=status.id)
            status = await other.log_status("log")
            assert status.acknowledged == 99
            assert [(pin.consumer, pin.offset) for pin in status.pins] == [("job", 7)]
            await other.pin_log("log", "job", None)
            assert (await other.log_status("log")).pins == ()
    finally:
        await broker.stop()


async def test_a_replay_of_records_goes_on_after_a_lost_connection() -> None:
    broker = RunningBroker("A", durable_window_bytes=4_000)
    await broker.start()
    try:
        url = f"braid://127.0.0.1:{broker.port}"
        async with connect(url, name="owner") as owner:
            made = await owner.create_durable("log", "n >= 0", secret="s")
            await owner.publish_batch([{"n": n} for n in range(ROWS)], delivery="acknowledged")
            await owner.flush()
            replay = owner.replay_records("log", 0, ROWS - 1, log=made.id, queue_size=1)
            found: list[int] = []
            async for piece in replay:
                before = len(found)
                found += piece.offsets
                if before < ROWS // 2 <= len(found):
                    await broker.stop()
                    await broker.start()
            assert found == list(range(ROWS))
            assert replay.range is not None
            assert (replay.range.first, replay.range.next) == (0, ROWS)
    finally:
        await broker.stop()


def test_the_synchronous_client_has_the_same(tmp_path: Path) -> None:
    settings = braid.ServerSettings.of(broker_id="A", listen="127.0.0.1:0", data_dir=tmp_path)
    with braid.serve_sync(settings) as broker, braid.connect_sync(broker.address) as client:
        made = client.create_durable("log", "n >= 0", when_full="drop_oldest")
        client.publish_batch([{"n": n} for n in range(10)], delivery="acknowledged").wait()
        status = client.log_status("log")
        assert (status.id, status.safe, status.when_full) == (made.id, 10, "drop_oldest")
        replay = client.replay("log", 2, 5, complete=True, filter="n <> 3", log=made.id)
        assert [row["n"] for row in replay] == [2, 4, 5]
        assert replay.range == braid.ReplayRange(made.id, 2, 5, 6)
        records = client.replay_records("log", columns=["n"])
        assert [offset for piece in records for offset in piece.offsets] == list(range(10))
        client.pin_log("log", "job", 3)
        client.acknowledge_log("log", 4)
        assert client.log_status("log").pins[0].consumer == "job"
        with pytest.raises(braid.RequestRefusedError, match="made anew"):
            client.acknowledge_log("log", 4, log="another")
        with pytest.raises(braid.ConfigurationError, match="columns is a list"):
            client.replay("log", columns="n")
