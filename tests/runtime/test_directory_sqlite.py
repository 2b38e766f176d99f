"""What is special about the directory in a file: other files, busy files, leases and clocks."""

from __future__ import annotations

import asyncio
import sqlite3
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from braid.errors import DirectoryError
from braid.runtime.directory import BrokerEntry, Directory, DirectorySettings, open_directory

if TYPE_CHECKING:
    from pathlib import Path

SETTINGS = DirectorySettings(lease_s=5.0, poll_s=0.02)
ENTRY = BrokerEntry("A", ("127.0.0.1:7000",), ("B",), "first", 0)


def edit(path: Path, statement: str, *values: object) -> None:
    connection = sqlite3.connect(path)
    with connection:
        connection.execute(statement, values)
    connection.close()


async def test_many_sessions_may_make_the_file_at_once(tmp_path: Path) -> None:
    directories = [open_directory(str(tmp_path / "brokers.db"), SETTINGS) for _ in range(8)]
    entries = [BrokerEntry(str(n), (f"127.0.0.1:{7000 + n}",), (), "first", 0) for n in range(8)]
    try:
        await asyncio.gather(*(d.register(e) for d, e in zip(directories, entries, strict=True)))
        assert list((await directories[0].brokers()).values()) == entries
    finally:
        await asyncio.gather(*(directory.close() for directory in directories))


async def test_neighbours_survive_the_last_session(tmp_path: Path) -> None:
    url = f"sqlite://{tmp_path}/brokers.db"
    async with open_directory(url, SETTINGS) as directory:
        await directory.register(ENTRY)
    async with open_directory(url, SETTINGS) as directory:
        assert await directory.brokers() == {}
        assert await directory.neighbours_of("A") == ("B",)


async def test_a_busy_file_does_not_stop_the_loop(tmp_path: Path) -> None:
    path = tmp_path / "brokers.db"
    async with open_directory(str(path), SETTINGS) as directory:
        await directory.brokers()
        other = sqlite3.connect(path, isolation_level=None)
        other.execute("BEGIN IMMEDIATE")
        registration = asyncio.create_task(directory.register(ENTRY))
        # If the loop stood still, nobody would end the other transaction, and the registration would fail.
        for _ in range(100):
            await asyncio.sleep(0)
        assert not registration.done()
        other.execute("ROLLBACK")
        other.close()
        await registration
        assert await directory.get("A") == ENTRY


async def test_a_file_that_stays_busy_is_an_error_with_advice(tmp_path: Path) -> None:
    path = tmp_path / "brokers.db"
    async with open_directory(str(path), DirectorySettings(operation_timeout_s=0.1)) as directory:
        await directory.brokers()
        other = sqlite3.connect(path, isolation_level=None)
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(DirectoryError, match=r"brokers\.db cannot be used: database is locked; check"):
            await directory.register(ENTRY)
        other.execute("ROLLBACK")
        other.close()
        await directory.register(ENTRY)


@pytest.mark.parametrize("offset_us", [-1, 3_600_000_000], ids=["run out", "from before a reboot"])
async def test_what_hangs_on_a_dead_session_does_not_count(tmp_path: Path, offset_us: int) -> None:
    path = tmp_path / "brokers.db"
    async with open_directory(str(path), SETTINGS) as directory:
        await directory.register(ENTRY)
        # Another session, whose expiry is moved by hand; the first one lends its own as the present time.
        edit(
            path,
            "INSERT INTO sessions SELECT 'dead', expires_at_us - lease_us + ?, lease_us FROM sessions",
            offset_us,
        )
        edit(path, "INSERT INTO entries SELECT 'B', replace(entry, '\"A\"', '\"B\"'), 'dead' FROM entries")
        edit(path, """INSERT INTO locks VALUES ('B', '{"name":"dead","token":"1"}', 'dead', 1)""")
        assert list(await directory.brokers()) == ["A"]
        async with directory.lock(["B"], timeout_s=20):
            pass
        other = BrokerEntry("B", ("127.0.0.1:7009",), (), "second", 0)
        await directory.register(other)
        assert await directory.get("B") == other


async def test_an_entry_that_cannot_be_read_hides_no_other(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "brokers.db"
    async with open_directory(str(path), SETTINGS) as directory:
        await directory.register(ENTRY)
        edit(path, "INSERT INTO entries SELECT 'B', ?, session FROM entries", b'{"broker_id": 7}')
        assert list(await directory.brokers()) == ["A"]
        assert "broker 'B', holds" in caplog.text


async def test_files_that_are_no_directory_are_left_alone(tmp_path: Path) -> None:
    foreign = tmp_path / "foreign.db"
    edit(foreign, "CREATE TABLE customers (name TEXT)")
    text = tmp_path / "text.db"
    text.write_text("this is not a database, and it is long enough to be sure of that" * 20)
    newer = tmp_path / "newer.db"
    async with open_directory(str(newer)) as directory:
        await directory.brokers()
    edit(newer, "PRAGMA user_version = 99")
    for url, complaint in [
        (foreign, "database of another program"),
        (text, "file is not a database"),
        (newer, "has format 99, and this Braid knows format 2"),
        (tmp_path / "missing" / "brokers.db", "there is no folder .*missing"),
        (tmp_path, "cannot be used"),
    ]:
        async with open_directory(str(url)) as directory:
            with pytest.raises(DirectoryError, match=complaint):
                await directory.brokers()
    assert text.read_text().startswith("this is not")


async def test_a_file_of_the_format_before_epochs_is_carried_over(tmp_path: Path) -> None:
    path = tmp_path / "brokers.db"
    async with open_directory(str(path)) as directory:
        await directory.register(ENTRY)
    for statement in ("ALTER TABLE locks DROP COLUMN epoch", "DROP TABLE epochs", "PRAGMA user_version = 1"):
        edit(path, statement)
    epochs = []
    for _ in range(2):
        async with open_directory(str(path)) as directory:
            assert await directory.neighbours_of("A") == ENTRY.neighbours
            async with directory.lock(["A", "B"], timeout_s=20) as held:
                epochs.append(held.epoch)
    assert 0 < epochs[0] < epochs[1]


# One step: what is done, in which session, with which broker, from which address, with which neighbours.
STEPS = st.lists(
    st.tuples(
        st.sampled_from(["register", "update", "deregister", "forget", "close"]),
        st.integers(0, 1),
        st.sampled_from("AB"),
        st.integers(7000, 7001),
        st.sampled_from(["", "C", "DE"]),
    ),
    max_size=12,
)


async def outcome(url: str, steps: list[tuple[str, int, str, int, str]]) -> list[object]:
    """What a directory shows after every step, errors included."""
    sessions: list[Directory] = [open_directory(url, SETTINGS) for _ in range(2)]
    observer = open_directory(url, SETTINGS)
    shown: list[object] = []
    for action, number, broker_id, port, near in steps:
        entry = BrokerEntry(broker_id, (f"127.0.0.1:{port}",), tuple(near), f"start {number}", 0)
        try:
            if action in ("register", "update"):
                await getattr(sessions[number], action)(entry)
            elif action in ("deregister", "forget"):
                await getattr(sessions[number], action)(broker_id)
            else:
                await sessions[number].close()
                sessions[number] = open_directory(url, SETTINGS)
        except DirectoryError as problem:
            shown.append(str(problem).partition(" ")[0])
        shown.append((await observer.brokers(), [await observer.neighbours_of(each) for each in "AB"]))
    for directory in (*sessions, observer):
        await directory.close()
    return shown


@settings(max_examples=40)
@given(steps=STEPS)
def test_the_file_behaves_like_the_plain_object(
    steps: list[tuple[str, int, str, int, str]], tmp_path_factory: pytest.TempPathFactory
) -> None:
    path = tmp_path_factory.mktemp("agreement") / "brokers.db"
    assert asyncio.run(outcome(str(path), steps)) == asyncio.run(outcome(f"memory:{path}", steps))
