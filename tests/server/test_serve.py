"""Can a program run brokers, see what it needs of them, and end them in good order?"""

from __future__ import annotations

import asyncio
import gc
import logging
import socket
import sys
import threading
import urllib.request
from typing import TYPE_CHECKING, Any

import pytest

import braid
from braid.broker.settings import BrokerSettings
from braid.errors import ConfigurationError, DirectoryError, RequestRefusedError
from braid.runtime.directory import open_directory
from braid.server.access_file import new_token
from tests.runtime.certificates import Authority

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.net

FREE = "127.0.0.1:0"


def named(broker_id: str, **options: Any) -> braid.ServerSettings:
    return braid.ServerSettings.of(broker_id=broker_id, listen=FREE, **options)


def get(url: str) -> str:
    with urllib.request.urlopen(url, timeout=10) as answer:
        return str(answer.read().decode())


async def test_a_publication_crosses_two_brokers_of_one_event_loop() -> None:
    async with (
        braid.serve(named("A")) as first,
        braid.serve(named("B", neighbours=[first.address])) as second,
    ):
        await second.wait_ready(30)
        assert (first.broker_id, second.broker_id) == ("A", "B")
        assert first.port != second.port
        assert first.address == f"braid://127.0.0.1:{first.port}"
        async with braid.connect(first.address) as reader, braid.connect(second.address) as writer:
            prices = await reader.subscribe("price > 10")
            await writer.publish({"price": 12})
            assert (await prices.get())["price"] == 12
        assert first.statistics()["counters"]["delivered"] == 1
        assert second.statistics()["links_up"] == 1
        assert first.ready
        assert first.why_not_ready() == ""
    assert first.stopped
    assert not first.ready
    assert first.why_not_ready() == "shutting down"
    with pytest.raises(ConnectionRefusedError):
        await asyncio.open_connection("127.0.0.1", first.port)


async def test_nothing_is_left_behind(tmp_path: Path) -> None:
    before = own_threads()
    tasks = asyncio.all_tasks()
    for _ in range(2):  # the second one finds data directory and address free
        async with braid.serve(
            named("A", data_dir=tmp_path / "data", http=FREE, trace=tmp_path / "trace")
        ) as broker:
            await broker.wait_ready(30)
            assert await asyncio.to_thread(get, f"{broker.http}/ready") == "ready\n"
    assert asyncio.all_tasks() == tasks
    assert own_threads() == before


def own_threads() -> set[str]:
    """Without those that asyncio keeps for whatever is to be done in one."""
    return {thread.name for thread in threading.enumerate() if not thread.name.startswith("asyncio")}


async def test_an_error_ends_it_at_once_and_is_not_hidden() -> None:
    with pytest.raises(KeyError, match="mine"):
        async with braid.serve(named("A")) as broker:
            raise KeyError("mine")
    assert broker.stopped
    assert not await broker.drain()


async def test_leaving_hands_over_what_is_held(caplog: pytest.LogCaptureFixture) -> None:
    async with braid.serve(named("A")) as broker:
        client = await braid.connect(broker.address, reconnect_for_s=0)
        prices = await client.subscribe("price > 10")
        await client.publish({"price": 12}, delivery="acknowledged")
        await all_delivered(broker, 1)
        taken = asyncio.ensure_future(prices.get())
    assert (await asyncio.wait_for(taken, 10))["price"] == 12
    await client.close()
    assert "before everything was handed over" not in caplog.text


async def all_delivered(broker: braid.Broker, count: int) -> None:
    for _ in range(1_000_000):
        if broker.statistics()["counters"]["delivered"] >= count:
            return
        await asyncio.sleep(0)
    raise AssertionError("nothing was delivered")


async def test_a_drain_can_be_cut_short(caplog: pytest.LogCaptureFixture) -> None:
    broker = await braid.serve(named("A"))
    options = {"reconnect_for_s": 0}
    async with (
        braid.connect(broker.address, **options) as reader,
        braid.connect(broker.address, **options) as writer,
    ):
        await reader.subscribe("price > 10", queue_size=1)
        for _ in range(3):
            await writer.publish({"price": 12}, delivery="acknowledged")
        await all_delivered(broker, 3)
        draining = asyncio.ensure_future(broker.drain())
        await asyncio.sleep(0)
        await broker.stop(drain=False)
        assert not await draining
    await broker.stop()
    assert "stopped before everything was handed over" in caplog.text


async def test_a_start_is_used_once() -> None:
    start = braid.serve(named("A"))
    broker = await start
    with pytest.raises(ConfigurationError, match=r"call serve\(\) again"):
        await start
    await broker.stop()
    await broker.stop()


async def test_a_broker_that_cannot_start_leaves_nothing_open(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        busy = f"127.0.0.1:{taken.getsockname()[1]}"
        settings = braid.ServerSettings.of(broker_id="A", listen=busy, data_dir=tmp_path / "data")
        with pytest.raises(ConfigurationError, match=r"cannot listen on .*choose another address"):
            await braid.serve(settings)
    async with braid.serve(named("A", data_dir=tmp_path / "data")) as broker:  # nobody holds it
        with pytest.raises(braid.BraidError, match=r"is used by|in use|already"):
            await braid.serve(named("B", data_dir=tmp_path / "data"))
        assert not broker.stopped


async def test_settings_may_be_a_mapping_a_file_or_a_value(tmp_path: Path) -> None:
    tables = {"broker": {"broker_id": "A", "heartbeat": "1s"}, "listener": {"listen": FREE}}
    async with braid.serve(tables) as broker:
        assert broker.settings.broker.heartbeat_us == 1_000_000
    path = tmp_path / "broker.toml"
    path.write_text(f'[broker]\nbroker_id = "A"\n[listener]\nlisten = "{FREE}"\n[store]\ndata_dir = "data"\n')
    async with braid.serve(str(path)) as broker:
        assert broker.settings.store.data_dir == tmp_path / "data"
    with pytest.raises(ConfigurationError, match="did you mean 'broker'"):
        braid.serve({"brokers": {}})
    with pytest.raises(ConfigurationError, match="has no id; give broker_id"):
        braid.serve({})
    with pytest.raises(ConfigurationError, match=r"refusing to listen on 0\.0\.0\.0"):
        await braid.serve({"broker": {"broker_id": "A"}, "listener": {"listen": "0.0.0.0:0"}})
    plain = braid.ServerSettings(broker=BrokerSettings(broker_id="A"))
    assert plain == braid.ServerSettings.of(broker_id="A")


async def test_waiting_for_a_neighbour_that_does_not_come() -> None:
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        nobody = f"127.0.0.1:{silent.getsockname()[1]}"
        async with braid.serve(named("A", neighbours=[nobody])) as broker:
            with pytest.raises(TimeoutError, match=r"A is not ready after 0\.01 s: waiting for the tables"):
                await broker.wait_ready(0.01)


async def test_tls_access_and_reloading(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    authority = Authority(tmp_path)
    files = authority.issue("127.0.0.1")
    secret, hashed = new_token()
    access = tmp_path / "access.toml"
    access.write_text(f'[principals.till]\nsubscribe = "shop = 7"\ntokens = ["{hashed}"]\n')
    access.chmod(0o600)
    settings = named("A", access=access, tls_certificate=files.certificate, tls_key=files.key)
    async with braid.serve(settings) as broker:
        assert broker.address.startswith("braids://")
        tls = braid.TlsSettings(authority=authority.certificate)
        async with braid.connect(broker.address, token=secret, tls=tls) as client:
            await client.subscribe("shop = 7 AND price > 1")
            with pytest.raises(RequestRefusedError):
                await client.subscribe("shop = 8")
        access.write_text('[anonymous]\nsubscribe = "TRUE"\n')
        broker.reload()
        async with braid.connect(broker.address, tls=tls) as client:
            await client.subscribe("shop = 8")
        access.write_text("[anonymous]\nsubscribes = 7\n")
        with caplog.at_level(logging.INFO):
            broker.reload()
        assert "did you mean 'subscribe'" in str([vars(record) for record in caplog.records])


async def test_the_directory_is_told(tmp_path: Path) -> None:
    path = str(tmp_path / "directory.db")
    async with braid.serve(named("A", directory=path)) as broker, open_directory(path) as directory:
        entry = await directory.get("A")
        assert entry is not None
        assert entry.addresses == (broker.address,)
    async with open_directory(path) as directory:
        assert "A" not in await directory.brokers()
    with pytest.raises((ConfigurationError, DirectoryError)):
        await braid.serve(named("A", directory="zoo://nowhere"))


async def test_the_programs_logging_and_collector_are_left_alone() -> None:
    root = logging.getLogger("braid")
    before = (list(root.handlers), root.level, root.propagate, gc.get_threshold(), gc.get_freeze_count())
    async with braid.serve(named("A")):
        pass
    assert before == (
        list(root.handlers),
        root.level,
        root.propagate,
        gc.get_threshold(),
        gc.get_freeze_count(),
    )


# Without an event loop.


def test_a_broker_in_a_thread() -> None:
    with braid.serve_sync(named("A", http=FREE)) as broker:
        broker.wait_ready(30)
        assert broker.ready
        assert broker.port > 0
        assert get(f"{broker.http}/health") == "alive\n"
        with braid.connect_sync(broker.address) as client:
            prices = client.subscribe("price > 10")
            client.publish({"price": 12})
            assert prices.get()["price"] == 12
        assert broker.statistics()["counters"]["delivered"] == 1
        assert broker.why_not_ready() == ""
        broker.reload()
        assert broker.drain()
    assert broker.stopped
    broker.stop()
    assert not any(thread.name == "braid-broker" for thread in threading.enumerate())
    with pytest.raises(ConfigurationError, match="A has ended"):
        broker.statistics()


def test_a_broker_in_a_thread_that_cannot_start() -> None:
    with pytest.raises(ConfigurationError, match="refusing to listen"):
        braid.serve_sync({"broker": {"broker_id": "A"}, "listener": {"listen": "0.0.0.0:0"}})
    assert not any(thread.name == "braid-broker" for thread in threading.enumerate() if thread.is_alive())


def test_an_error_in_the_program_ends_the_thread() -> None:
    with pytest.raises(KeyError), braid.serve_sync(named("A")) as broker:
        raise KeyError("mine")
    assert broker.stopped


def test_the_two_forms_offer_the_same() -> None:
    def offered(kind: type) -> set[str]:
        return {name for name in dir(kind) if not name.startswith("_")}

    assert offered(braid.Broker) | {"http", "settings"} == offered(braid.SyncBroker)


def test_settings_are_described_where_people_look() -> None:
    assert sys.modules["braid"].serve is braid.serve
    for name in ("broker_id", "listen", "data_dir", "tls_certificate", "http"):
        assert f"{name}:" in (braid.ServerSettings.of.__doc__ or "")


async def test_the_directory_hears_of_neighbours_when_they_change(tmp_path: Path) -> None:
    path = str(tmp_path / "directory.db")
    async with braid.serve(named("A", directory=path)) as first, open_directory(path) as directory:
        seen: asyncio.Queue[tuple[str, ...]] = asyncio.Queue()

        async def neighbours() -> tuple[str, ...]:
            entry = await directory.get("A")
            assert entry is not None
            return entry.neighbours

        assert await neighbours() == ()
        told = first._node.on_neighbours

        def spy(names: tuple[str, ...]) -> None:
            told(names)
            seen.put_nowait(names)

        first._node.on_neighbours = spy
        async with braid.serve(named("B", neighbours=[first.address])) as second:
            await second.wait_ready(30)
            assert await asyncio.wait_for(seen.get(), 10) == ("B",)
            for _ in range(1_000):
                if await neighbours() == ("B",):
                    break
            assert await neighbours() == ("B",)
