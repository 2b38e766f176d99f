"""The past from an archive and the present from a log: every row once, whatever happens at the seam."""

from __future__ import annotations

import random
import shutil
import threading
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("pyarrow")

import braid
from braid.cli import main
from braid.errors import ConfigurationError, StoreError
from braid.pipeline.archive import Archiver
from braid.pipeline.archive.segments import Segments
from tests.pipeline.source_network import running_broker

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = pytest.mark.net


def row(n: int) -> dict[str, Any]:
    return {"n": n, "price": n / 4, "symbol": f"S{n % 7}", "wide": braid.Range(n, n + 1.5)}


def publish(client: braid.SyncClient, numbers: range) -> None:
    client.publish_batch([row(n) for n in numbers], delivery="acknowledged").wait()


@pytest.fixture
def network(tmp_path: Path) -> Iterator[tuple[str, braid.SyncClient]]:
    with running_broker(tmp_path / "broker") as (address, client):
        client.create_durable("orders", "n >= 0")
        yield address, client


def test_an_archive_is_the_log_in_few_files(network: tuple[str, braid.SyncClient], tmp_path: Path) -> None:
    _, client = network
    random_ = random.Random(5)
    count = 0
    with Archiver(client, "orders", tmp_path / "archive", rows_per_file=97) as archiver:
        for _ in range(25):
            size = random_.choice([0, 1, 3, 40, 250])
            publish(client, range(count, count + size))
            assert archiver.run() == size
            count += size
        assert archiver.run() == 0
        with pytest.raises(StoreError, match="is in use by this process already"):
            Archiver(client, "orders", tmp_path / "archive")
    assert count > 500
    expected = list(client.replay("orders"))
    found = list(braid.history(tmp_path / "archive"))
    assert found == expected
    # Not one for each of the runs: about as many as the number of rows has binary digits.
    assert len(Segments(tmp_path / "archive").listed()) <= count.bit_length()
    status = client.log_status("orders")
    assert {pin.consumer: pin.offset for pin in status.pins} == {"archive": count}
    assert status.acknowledged == count - 1

    middle = expected[count // 2].published_at_us
    at = datetime.fromtimestamp(middle / 1e6, UTC) + timedelta(microseconds=0)
    at = at.replace(microsecond=middle % 1_000_000)
    condition = braid.Filter("symbol IN ('S1', 'S2') AND wide > 40")
    matching = [each for each in expected if condition.matches(each.attributes)]
    assert matching
    assert list(braid.history(tmp_path / "archive", "symbol IN ('S1', 'S2') AND wide > 40")) == matching
    assert list(braid.history(tmp_path / "archive", since=at)) == [
        each for each in expected if each.published_at_us >= middle
    ]
    assert list(braid.history(tmp_path / "archive", condition, until=at.isoformat())) == [
        each for each in matching if each.published_at_us < middle
    ]
    assert not list(braid.history(tmp_path / "archive", since="2100-01-01"))


def test_what_is_left_by_a_crash_changes_nothing(
    network: tuple[str, braid.SyncClient], tmp_path: Path
) -> None:
    _, client = network
    folder = tmp_path / "archive"
    publish(client, range(100))
    with Archiver(client, "orders", folder, rows_per_file=40) as archiver:
        archiver.run()
        # A merged file has its name, and those that it was made of are still there; one was being written.
        segments = Segments(folder)
        whole = segments.listed()
        assert [(each.first, each.end) for each in whole] == [(0, 80), (80, 100)] or len(whole) == 1
        replaced = sorted(path.name for path in folder.glob("day=*/rows-*.parquet"))
        assert len(replaced) > len(whole)
        hidden = whole[0].path.parent / ".rows-100-200.parquet.tmp"
        hidden.write_bytes(b"half")
        assert [each.offset for each in braid.history(folder)] == [*range(100)]
        publish(client, range(100, 130))
        archiver.run()
        archiver.segments.merge()
        assert [each.attributes["n"] for each in braid.history(folder)] == [*range(130)]
        assert not hidden.exists()
    shutil.rmtree(folder)
    with pytest.raises(ConfigurationError, match="there is no archive at"):
        braid.history(folder)


def test_a_file_that_is_gone_is_missed(network: tuple[str, braid.SyncClient], tmp_path: Path) -> None:
    _, client = network
    publish(client, range(1000))
    segments = Segments(tmp_path / "archive")
    with Archiver(client, "orders", tmp_path / "archive") as archiver:
        archiver.run()
    for count in (300, 40):
        publish(client, range(count))
        with Archiver(client, "orders", tmp_path / "archive") as archiver:
            archiver.run()
    middle = segments.listed()[1]
    middle.path.unlink()
    with pytest.raises(ConfigurationError, match=f"lacks rows {middle.first} to {middle.end - 1}"):
        list(braid.history(tmp_path / "archive"))


def test_mistakes_are_named(network: tuple[str, braid.SyncClient], tmp_path: Path) -> None:
    _, client = network
    publish(client, range(10))
    with Archiver(client, "orders", tmp_path / "archive") as archiver:
        archiver.run()
        with pytest.raises(ConfigurationError, match="since='yesterday' is no time"):
            braid.history(tmp_path / "archive", since="yesterday")
        with pytest.raises(ConfigurationError, match="has no time zone"):
            braid.history(tmp_path / "archive", until=datetime(2026, 1, 1))
        client.drop_durable("orders")
        client.create_durable("orders", "n >= 0")
        with pytest.raises(ConfigurationError, match="is that of another log than 'orders' is now"):
            archiver.run()
    with pytest.raises(ConfigurationError, match="is not that of the log 'orders' as it is now"):
        list(braid.follow(client, "orders", archive=tmp_path / "archive"))
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigurationError, match="an archive is a folder"):
        braid.history(tmp_path / "file")


@pytest.mark.parametrize("seed", range(2))
def test_the_seam_while_rows_flow_and_move(tmp_path: Path, seed: int) -> None:
    """The log keeps a few hundred rows, so that rows move into the archive while the follower wants them."""
    random_ = random.Random(seed)
    total = 1_200
    access = tmp_path / "access.toml"
    access.write_text(
        '[anonymous]\npublish = "TRUE"\nsubscribe = "TRUE"\n[anonymous.limits]\nstored_rows_max = 400\n'
    )
    failures: list[BaseException] = []
    archived = [0]
    done = threading.Event()
    with running_broker(tmp_path / "broker", access=access) as (address, client):
        client.create_durable("orders", "n >= 0", when_full="block")

        def guarded(work: Any) -> threading.Thread:
            def run() -> None:
                try:
                    work()
                except BaseException as problem:
                    failures.append(problem)
                    done.set()

            thread = threading.Thread(target=run)
            thread.start()
            return thread

        def publishing() -> None:
            sizes = random.Random(seed)
            with braid.connect_sync(address, name="publisher") as publisher:
                n = 0
                while n < total and not done.is_set():
                    size = min(sizes.randint(1, 40), total - n)
                    publish(publisher, range(n, n + size))
                    n += size
                    while n - archived[0] > 300 and not done.is_set():
                        done.wait(0.002)  # beyond twice the limit, rows that are pinned would go

        def archiving() -> None:
            with Archiver(client, "orders", tmp_path / "archive", rows_per_file=25) as archiver:
                while not done.is_set():
                    archived[0] += archiver.run()

        archiver = guarded(archiving)
        while not (tmp_path / "archive" / "archive.json").exists() and not failures:
            done.wait(0.01)  # the log is pinned before anything is published
        threads = [archiver, guarded(publishing)]
        found: list[int] = []
        try:
            with braid.connect_sync(address, name="follower") as reader:
                while len(found) < total and not failures:
                    start = found[-1] + 1 if found else "earliest"
                    rows = braid.follow(
                        reader, "orders", archive=tmp_path / "archive", replay_from=start, until_now=True
                    )
                    stop_after = random_.randint(1, 500)  # then it is started anew, where it was
                    for each in rows:
                        assert each.attributes["n"] == each.offset
                        found.append(each.offset)
                        stop_after -= 1
                        if not stop_after or len(found) == total:
                            break
        finally:
            done.set()
            for thread in threads:
                thread.join()
        assert not failures, failures
        assert found == [*range(total)]
        assert client.log_status("orders").first > total // 2  # most of it came from the archive


def test_the_past_of_a_broker_that_started_again(tmp_path: Path) -> None:
    folder = tmp_path / "archive"
    with running_broker(tmp_path / "broker") as (_, client):
        client.create_durable("orders", "n >= 0")
        publish(client, range(50))
        with Archiver(client, "orders", folder) as archiver:
            archiver.run()
        publish(client, range(50, 60))
    with running_broker(tmp_path / "broker") as (_, client):
        publish(client, range(60, 90))
        rows = braid.follow(client, "orders", archive=folder, until_now=True, filter="n >= 40")
        assert [each.attributes["n"] for each in rows] == [*range(40, 90)]
        with Archiver(client, "orders", folder) as archiver:
            assert archiver.run() == 40
        since = list(braid.history(folder))[70]
        at = datetime.fromtimestamp(since.published_at_us / 1e6 + 1e-7, UTC)
        rows = braid.follow(client, "orders", archive=folder, until_now=True, replay_from=at)
        assert [each.offset for each in rows] == [each.offset for each in braid.history(folder, since=at)]
        assert len({each.log_epoch for each in braid.history(folder)}) == 2


def test_a_subscriber_that_is_away_misses_nothing_that_is_archived(tmp_path: Path) -> None:
    folder = tmp_path / "archive"
    with running_broker(tmp_path / "broker") as (address, client):
        with braid.connect_sync(address) as other:
            orders = other.subscribe("n >= 0", durable="orders")
            publish(client, range(10))
            for n in range(4):
                each = orders.get(timeout_s=30)
                assert each["n"] == n
                orders.acknowledge(each)
        publish(client, range(10, 20))
        with Archiver(client, "orders", folder) as archiver:
            assert archiver.run() == 20
    with running_broker(tmp_path / "broker") as (address, client):
        publish(client, range(20, 30))
        with Archiver(client, "orders", folder) as archiver:
            assert archiver.run() == 10
        orders = client.subscribe("n >= 0", durable="orders")
        assert [orders.get(timeout_s=30)["n"] for _ in range(26)] == [*range(4, 30)]


def test_a_subscriber_that_comes_meanwhile_ends_no_archiver(
    network: tuple[str, braid.SyncClient], tmp_path: Path
) -> None:
    _, client = network
    publish(client, range(10))
    with Archiver(client, "orders", tmp_path / "archive") as archiver:
        status = client.log_status("orders")
        client.subscribe("n >= 0", durable="orders").close()
        archiver._acknowledge(status, 10)
    assert client.log_status("orders").acknowledged == -1


def test_the_command_archives_once(
    network: tuple[str, braid.SyncClient], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    address, client = network
    publish(client, range(20))
    folder = str(tmp_path / "archive")
    command = ["pipeline", "archive", "--broker", address, "--log", "orders"]

    def run(*more: str) -> Any:
        with pytest.raises(SystemExit) as ended:
            main([*command, *more])
        return ended.value.code

    assert not run("--to", folder)
    assert "20 rows of orders are in" in capsys.readouterr().err
    assert [each.offset for each in braid.history(folder)] == [*range(20)]
    assert run("--to", str(tmp_path / "file"), "--log", "nothing")
    assert "there is no durable subscription 'nothing'" in capsys.readouterr().err
