"""Does the store on disk guard its directory, its file and its space?"""

from __future__ import annotations

import os
import resource
import shutil
import sqlite3
import subprocess
import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest

from braid.errors import StoreError
from braid.protocol.log import (
    AcknowledgeLog,
    AppendRows,
    CreateLog,
    DeleteLog,
    DropRows,
    KeepNeighbour,
    LogRow,
    LogState,
    Retention,
    Sweep,
    SweptLog,
)
from braid.runtime.store import SqliteStore
from braid.runtime.store.lock import LOCK_NAME, DirectoryLock
from braid.runtime.store.schema import PAGE_BYTES, SCHEMA_VERSION
from braid.runtime.store.sqlite import DATABASE_NAME

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

CREATE = CreateLog("orders", "alice", "price > 10", "drop_oldest", 5)
SECOND_US = 1_000_000


def opened(directory: Path, retention: Retention | None = None) -> SqliteStore:
    return SqliteStore(directory, retention=retention or Retention(), synchronous="NORMAL")


def rows(count: int, first: int = 0, size: int = 10) -> list[LogRow]:
    return [
        LogRow("p", sequence, b"%d " % sequence + bytes(size)) for sequence in range(first, first + count)
    ]


def log_of(store: SqliteStore) -> LogState:
    (log,) = store.state().logs
    return log


def test_everything_is_there_after_reopening(tmp_path: Path) -> None:
    directory = tmp_path / "made" / "when needed"
    with opened(directory) as store:
        store.apply(
            [
                CREATE,
                AppendRows("orders", 0, rows(5), 0),
                AcknowledgeLog("orders", 2),
                DropRows("orders", 1),
                KeepNeighbour("B", "host:7000"),
            ]
        )
        before, kept = store.state(), store.read("orders", 0, None, 10_000)
    with opened(directory) as store:
        assert store.state() == before
        assert store.read("orders", 0, None, 10_000) == kept
        log = log_of(store)
        assert (log.first_offset, log.next_offset, log.acknowledged_offset) == (1, 5, 2)
        assert log.highest == {"p": 4}
        store.apply([AppendRows("orders", 5, rows(1, 5), 0)])
        assert [offset for offset, _ in store.read("orders", 4, None, 10_000)] == [4, 5]


def test_the_highest_sequence_and_the_acknowledged_offset_never_go_back(tmp_path: Path) -> None:
    with opened(tmp_path) as store:
        store.apply([CREATE, AppendRows("orders", 0, [*rows(1, 7), *rows(1, 3)], 0)])
        store.apply([AcknowledgeLog("orders", 1)])
        store.apply([AppendRows("orders", 2, rows(1, 5), 0), AcknowledgeLog("orders", 0)])
        log = log_of(store)
        assert (log.highest, log.acknowledged_offset) == ({"p": 7}, 1)
        store.apply([DeleteLog("orders"), CREATE])
        assert store.state().logs[0].highest == {}
        assert store._connection.execute("SELECT * FROM highest").fetchall() == []


@pytest.mark.parametrize(
    "sequences", [[-(2**63)], [-(2**63), 1 - 2**63], [2**63 - 2, 2**63 - 1], [2**63 - 1, 0]]
)
def test_sequences_at_the_ends_of_64_bits_are_read_as_columns(tmp_path: Path, sequences: list[int]) -> None:
    with opened(tmp_path) as store:
        written = [LogRow("p", sequence, b"x") for sequence in [7, *sequences]]
        store.apply([CREATE, AppendRows("orders", 0, written, 0)])
        found = store.read_packed("orders", 1, None, 10_000)
    assert found is not None
    assert [sequence for _, sequence, _ in found[1].checked().rows()] == sequences


@pytest.mark.parametrize(
    ("first", "last", "bytes_max", "offsets"),
    [
        (0, None, 1000, [1, 2, 3, 4]),
        (2, 3, 1000, [2, 3]),
        (3, 99, 1000, [3, 4]),
        (3, 2, 1000, []),
        (2**70, None, 1000, []),
        (1, None, 30, [1, 2, 3]),
        (1, None, 29, [1, 2]),
        (4, None, 1, [4]),
    ],
)
def test_ranges(tmp_path: Path, first: int, last: int | None, bytes_max: int, offsets: list[int]) -> None:
    with opened(tmp_path) as store:
        store.apply([CREATE, AppendRows("orders", 0, [LogRow("p", n, bytes(10)) for n in range(5)], 0)])
        store.apply([DropRows("orders", 1)])
        assert [offset for offset, _ in store.read("orders", first, last, bytes_max)] == offsets
        with pytest.raises(StoreError, match="no log 'other'"):
            store.read("other", first, last, bytes_max)


@pytest.mark.parametrize(("synchronous", "number"), [("FULL", 2), ("NORMAL", 1)])
def test_the_settings_of_sqlite_are_in_force(tmp_path: Path, synchronous: str, number: int) -> None:
    with SqliteStore(tmp_path, retention=Retention(), synchronous=synchronous) as store:  # type: ignore[arg-type]
        found = [
            store._connection.execute(f"PRAGMA {name}").fetchone()[0]
            for name in ("journal_mode", "synchronous", "auto_vacuum", "user_version")
        ]
    assert found == ["wal", number, 2, SCHEMA_VERSION]


def test_full_is_the_default(tmp_path: Path) -> None:
    with SqliteStore(tmp_path, retention=Retention()) as store:
        assert store._connection.execute("PRAGMA synchronous").fetchone()[0] == 2


def test_one_directory_is_used_once_in_a_process(tmp_path: Path) -> None:
    with opened(tmp_path), pytest.raises(StoreError, match="in use by this process already"):
        opened(tmp_path)
    opened(tmp_path).close()


def test_another_process_is_named(tmp_path: Path) -> None:
    script = (
        "import sys\n"
        "from braid.protocol.log import Retention\n"
        "from braid.runtime.store import SqliteStore\n"
        "store = SqliteStore(sys.argv[1], retention=Retention())\n"
        "print('open', flush=True)\n"
        "sys.stdin.read()\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", script, str(tmp_path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == b"open\n"
        try:
            with pytest.raises(StoreError, match=f"in use by process {other.pid}; stop that process"):
                opened(tmp_path)
        finally:
            other.kill()
    opened(tmp_path).close()


@pytest.mark.parametrize("text", ["", "someone\n"])
def test_a_holder_without_a_number_is_another_process(tmp_path: Path, text: str) -> None:
    lock = DirectoryLock(tmp_path)
    (tmp_path / LOCK_NAME).write_text(text)
    with pytest.raises(StoreError, match="in use by another process"):
        opened(tmp_path)
    lock.release()
    lock.release()
    opened(tmp_path).close()


def test_a_directory_that_cannot_be_made(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StoreError, match="cannot make the data directory"):
        opened(tmp_path / "file" / "below")


def test_a_closed_store_says_so(tmp_path: Path) -> None:
    store = opened(tmp_path)
    store.close()
    store.close()
    with pytest.raises(StoreError, match="the store is closed"):
        store.apply([CREATE])


def test_a_newer_schema_is_left_alone(tmp_path: Path) -> None:
    opened(tmp_path).close()
    path = tmp_path / DATABASE_NAME
    change(path, f"PRAGMA user_version = {SCHEMA_VERSION + 1}")
    before = path.read_bytes()
    with pytest.raises(StoreError, match=f"schema version {SCHEMA_VERSION + 1}, and this Braid knows"):
        opened(tmp_path)
    assert path.read_bytes() == before
    change(path, f"PRAGMA user_version = {SCHEMA_VERSION}")
    opened(tmp_path).close()  # the lock was given free


def test_a_database_of_another_program_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / DATABASE_NAME
    change(path, "CREATE TABLE theirs (x)")
    before = path.read_bytes()
    with pytest.raises(StoreError, match="database of another program"):
        opened(tmp_path)
    assert path.read_bytes() == before


def test_a_file_that_is_no_database_says_what_to_do(tmp_path: Path) -> None:
    opened(tmp_path).close()
    (tmp_path / DATABASE_NAME).write_bytes(b"not a database at all " * 1000)
    with pytest.raises(StoreError, match=r"damaged .*put a backup in its place.*\.recover"):
        opened(tmp_path)


def test_damaged_pages_are_noticed_and_the_store_stops(tmp_path: Path) -> None:
    with opened(tmp_path) as store:
        store.apply([CREATE, AppendRows("orders", 0, rows(2000, size=200), 0)])
    path = tmp_path / DATABASE_NAME
    damaged = bytearray(path.read_bytes())
    # The page that holds the row in the middle becomes nonsense; both ends of the log stay readable.
    page = damaged.index(b"1000 " + bytes(200)) // PAGE_BYTES
    damaged[page * PAGE_BYTES : (page + 1) * PAGE_BYTES] = b"\xa5" * PAGE_BYTES
    path.write_bytes(damaged)
    with opened(tmp_path) as store:
        with pytest.raises(StoreError, match=r"damaged .*put a backup in its place"):
            store.read("orders", 0, None, 10**9)
        with pytest.raises(StoreError, match=r"after an earlier failure: .*damaged"):
            store.apply([KeepNeighbour("B", "host:1")])


def test_a_damaged_file_is_noticed_at_the_start_if_the_ends_of_a_log_are_gone(tmp_path: Path) -> None:
    with opened(tmp_path) as store:
        store.apply([CREATE, AppendRows("orders", 0, rows(2000, size=200), 0)])
    path = tmp_path / DATABASE_NAME
    damaged = bytearray(path.read_bytes())
    damaged[len(damaged) // 3 :] = b"\xa5" * len(damaged[len(damaged) // 3 :])
    path.write_bytes(damaged)
    with pytest.raises(StoreError, match=r"cannot open .* damaged .*put a backup in its place"):
        opened(tmp_path)


def test_rows_that_are_missing_at_an_end_are_noticed_at_the_start(tmp_path: Path) -> None:
    with opened(tmp_path) as store:
        store.apply([CREATE, AppendRows("orders", 0, rows(5), 0)])
    change(tmp_path / DATABASE_NAME, "DELETE FROM log_rows WHERE row_offset = 4")
    with pytest.raises(StoreError, match=r"'orders' should hold the offsets from 0 to 4, but .* from 0 to 3"):
        opened(tmp_path)


def test_a_full_disk_changes_nothing_and_can_be_survived(tmp_path: Path) -> None:
    with opened(tmp_path) as store:
        store.apply([CREATE, AppendRows("orders", 0, rows(5), 0)])
        before = store.state()
        (pages,) = store._connection.execute("PRAGMA page_count").fetchone()
        store._connection.execute(f"PRAGMA max_page_count = {pages}")
        with pytest.raises(StoreError, match="disk is full, and nothing was changed"):
            store.apply([AppendRows("orders", 5, rows(1000, 5, size=500), 0)])
        assert store.state() == before
        store._connection.execute("PRAGMA max_page_count = 1000000")
        store.apply([AppendRows("orders", 5, rows(1000, 5, size=500), 0)])
        assert log_of(store).next_offset == 1005


@contextmanager
def files_of_at_most(size: int) -> Iterator[None]:
    """As with a quota: the operating system refuses to write more, and there may be more room later."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


@pytest.mark.parametrize("beyond_kib", [0, 4, 40, 400])
def test_a_quota_that_is_used_up_changes_nothing_and_can_be_survived(tmp_path: Path, beyond_kib: int) -> None:
    with opened(tmp_path) as store:
        store.apply([CREATE, AppendRows("orders", 0, rows(5), 0)])
        largest = max(file.stat().st_size for file in tmp_path.iterdir())
        stored = 5
        refused = None
        with files_of_at_most(largest + beyond_kib * 1024):
            while refused is None:
                try:
                    store.apply([AppendRows("orders", stored, rows(10, stored, size=500), 0)])
                    stored += 10
                except StoreError as error:
                    refused = error
        assert refused.temporary
        assert log_of(store).next_offset == stored
        for _ in range(100):
            store.apply([AppendRows("orders", stored, rows(10, stored, size=500), 0)])
            stored += 10
        assert log_of(store).next_offset == stored
    with opened(tmp_path) as store:
        found = store.read("orders", 0, None, 1 << 30)
        assert [(offset, row.sequence) for offset, row in found] == [(each, each) for each in range(stored)]


@pytest.mark.parametrize("row", [LogRow("p", 2**63, b""), LogRow("\ud800", 1, b"")])
def test_a_value_that_cannot_be_stored_changes_nothing(tmp_path: Path, row: LogRow) -> None:
    with opened(tmp_path) as store:
        store.apply([CREATE])
        with pytest.raises(StoreError, match="cannot write to"):
            store.apply([AppendRows("orders", 0, [*rows(3), row], 0)])
        assert log_of(store).next_offset == 0
        store.apply([AppendRows("orders", 0, rows(3), 0)])


def test_retention_by_age_then_by_size(tmp_path: Path) -> None:
    retention = Retention(bytes_max=500, age_s_max=10)
    with opened(tmp_path, retention) as store:
        store.apply(
            [
                CREATE,
                AppendRows("orders", 0, [LogRow("p", n, bytes(100)) for n in range(4)], 0),
                AppendRows("orders", 4, [LogRow("p", n, bytes(100)) for n in range(4, 10)], 9 * SECOND_US),
                AcknowledgeLog("orders", 1),
            ]
        )
        # Two are acknowledged and too old; three more must go for room, though nobody acknowledged them.
        assert store.sweep(11 * SECOND_US) == Sweep((SweptLog("orders", 5, 2, 3),), True)
        log = log_of(store)
        assert (log.first_offset, log.acknowledged_offset, log.next_offset, log.bytes) == (5, 1, 10, 500)
        assert store.sweep(11 * SECOND_US) == Sweep((), True)
    with opened(tmp_path, retention) as store:
        assert log_of(store) == log
        assert log.highest == {"p": 9}


def test_each_log_is_swept_for_itself(tmp_path: Path) -> None:
    with opened(tmp_path, Retention(bytes_max=100, age_s_max=None)) as store:
        for name, count in (("a", 5), ("b", 20), ("c", 0)):
            store.apply(
                [
                    CreateLog(name, "o", "TRUE", "drop_oldest", 0),
                    AppendRows(name, 0, [LogRow("p", n, bytes(10)) for n in range(count)], 0),
                ]
            )
        assert store.sweep(0) == Sweep((SweptLog("b", 10, 0, 10),), True)


def test_one_sweep_removes_only_so_many_rows_of_all_logs_together(tmp_path: Path) -> None:
    with opened(tmp_path, Retention(bytes_max=1, age_s_max=None)) as store:
        for name in ("a", "b"):
            some = [LogRow("p", n, bytes(10)) for n in range(5)]
            store.apply([CreateLog(name, "o", "TRUE", "drop_oldest", 0), AppendRows(name, 0, some, 0)])
        assert store.sweep(0, 7) == Sweep((SweptLog("a", 5, 0, 5), SweptLog("b", 2, 0, 2)), False)
        assert store.sweep(0, 7) == Sweep((SweptLog("b", 5, 0, 3),), True)


def test_a_row_is_too_old_only_beyond_the_age(tmp_path: Path) -> None:
    with opened(tmp_path, Retention(age_s_max=10)) as store:
        store.apply([CREATE, AppendRows("orders", 0, rows(3), 0), AcknowledgeLog("orders", 1)])
        assert store.sweep(10 * SECOND_US) == Sweep((), True)
        assert store.sweep(10 * SECOND_US + 1) == Sweep((SweptLog("orders", 2, 2, 0),), True)


def test_space_is_used_again_and_given_back(tmp_path: Path) -> None:
    path = tmp_path / DATABASE_NAME
    with opened(tmp_path, Retention(bytes_max=500_000, age_s_max=None)) as store:
        store.apply([CREATE])
        sizes, offset = [], 0
        for _ in range(12):
            store.apply([AppendRows("orders", offset, rows(1000, offset, size=1000), 0)])
            offset += 1000
            store.sweep(0)
            store._connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
            sizes.append(path.stat().st_size)
        assert max(sizes) < 2_000_000  # 12 MB went through
        store.apply([DeleteLog("orders")])
        store.sweep(0)
        store._connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
        assert path.stat().st_size < 200_000


def test_a_deleted_log_goes_bit_by_bit_and_its_name_is_free_at_once(tmp_path: Path) -> None:
    def rows_on_disk() -> int:
        (count,) = store._connection.execute("SELECT count(*) FROM log_rows").fetchone()
        return int(count)

    other = CreateLog("other", "o", "TRUE", "drop_oldest", 0)
    with opened(tmp_path) as store:
        store.apply([CREATE, other, AppendRows("orders", 0, rows(25), 0), AppendRows("other", 0, rows(5), 0)])
        store.apply([DeleteLog("orders"), DeleteLog("other"), CREATE, AppendRows("orders", 0, rows(3, 9), 0)])
    with opened(tmp_path) as store:
        expected = store.state()
        for left in (23, 13, 3):
            assert store.sweep(0, 10) == Sweep((), False)
            assert rows_on_disk() == left
        assert store.sweep(0, 10) == Sweep((), True)
        assert store.state() == expected
        assert store.read("orders", 0, None, 1000) == list(enumerate(rows(3, 9)))
        assert store._connection.execute("SELECT * FROM deleted_logs").fetchall() == []


def test_a_sweep_with_nothing_to_do_writes_nothing(tmp_path: Path) -> None:
    with opened(tmp_path) as store:
        store.apply([CREATE, AppendRows("orders", 0, rows(5), 0)])
        before = (tmp_path / f"{DATABASE_NAME}-wal").read_bytes()
        assert store.sweep(0) == Sweep((), True)
        assert (tmp_path / f"{DATABASE_NAME}-wal").read_bytes() == before


def test_a_torn_end_of_the_write_ahead_log_takes_back_whole_calls(tmp_path: Path) -> None:
    live = tmp_path / "live"
    with opened(live) as store:
        store.apply([CREATE])
        for batch in range(8):
            store.apply([AppendRows("orders", batch * 10, rows(10, batch * 10, size=300), 0)])
        names = [DATABASE_NAME, f"{DATABASE_NAME}-wal"]
        pieces = {name: (live / name).read_bytes() for name in names}
    log_bytes = len(pieces[names[1]])
    seen = set()
    for step in range(41):
        torn = tmp_path / f"torn {step}"
        torn.mkdir()
        (torn / names[0]).write_bytes(pieces[names[0]])
        (torn / names[1]).write_bytes(pieces[names[1]][: log_bytes * step // 40])
        with opened(torn) as store:
            for log in store.state().logs:
                assert log.next_offset % 10 == 0
                assert log.highest == ({"p": log.next_offset - 1} if log.next_offset else {})
                found = store.read("orders", 0, None, 10**9)
                assert found == list(enumerate(rows(log.next_offset, size=300)))
                seen.add(log.next_offset)
        shutil.rmtree(torn)
    assert {0, 80} <= seen
    assert len(seen) > 4


def test_a_read_that_stops_early_holds_nothing_back(tmp_path: Path) -> None:
    with opened(tmp_path) as store:
        store.apply([CREATE, AppendRows("orders", 0, rows(1000, size=200), 0)])
        assert len(store.read("orders", 0, None, 1000)) == 4
        busy, *_ = store._connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
        assert busy == 0


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_directory_that_may_not_be_written(tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    try:
        with pytest.raises(StoreError, match="must be writable"):
            opened(tmp_path)
    finally:
        tmp_path.chmod(0o700)


def change(path: Path, statement: str) -> None:
    connection = sqlite3.connect(path)
    connection.execute(statement)
    connection.commit()
    connection.close()
