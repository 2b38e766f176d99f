"""Does a store that an earlier Braid wrote still open?"""

from __future__ import annotations

import sqlite3
from contextlib import closing
from typing import TYPE_CHECKING

from braid.protocol.duplicates import DuplicateFilter
from braid.protocol.log import (
    AppendRows,
    BeginEpoch,
    CreateLog,
    EndLink,
    ForgetNeighbour,
    KeepNeighbour,
    KeepStanding,
    LogRow,
    Pin,
    PinRows,
    Retention,
)
from braid.runtime.store import SqliteStore
from braid.runtime.store.sqlite import DATABASE_NAME

if TYPE_CHECKING:
    from pathlib import Path

# The tables of schema version 1, as that Braid wrote them.
VERSION_1 = """
    CREATE TABLE logs (
        log INTEGER PRIMARY KEY AUTOINCREMENT,
        name TEXT NOT NULL UNIQUE,
        owner TEXT NOT NULL,
        filter_text TEXT NOT NULL,
        when_full TEXT NOT NULL,
        created_at_us INTEGER NOT NULL,
        first_offset INTEGER NOT NULL,
        next_offset INTEGER NOT NULL,
        acknowledged_offset INTEGER NOT NULL,
        bytes INTEGER NOT NULL
    );
    CREATE TABLE log_rows (
        log INTEGER NOT NULL,
        row_offset INTEGER NOT NULL,
        publisher TEXT NOT NULL,
        sequence INTEGER NOT NULL,
        at_us INTEGER NOT NULL,
        record BLOB NOT NULL,
        PRIMARY KEY (log, row_offset)
    );
    CREATE TABLE deleted_logs (log INTEGER PRIMARY KEY);
    CREATE TABLE highest (
        log INTEGER NOT NULL,
        publisher TEXT NOT NULL,
        sequence INTEGER NOT NULL,
        PRIMARY KEY (log, publisher)
    ) WITHOUT ROWID;
    CREATE TABLE neighbours (broker_id TEXT PRIMARY KEY, address TEXT NOT NULL) WITHOUT ROWID;
    INSERT INTO logs VALUES (1, 'alice/log', 'alice', 'price > 10', 'block', 7, 1, 3, 0, 6);
    INSERT INTO logs VALUES (2, 'alice/empty', 'alice', 'TRUE', 'block', 7, 0, 0, -1, 0);
    INSERT INTO log_rows VALUES (1, 1, 'p', 5, 8, x'aabbcc'), (1, 2, 'p', 6, 9, x'ddeeff');
    INSERT INTO highest VALUES (1, 'p', 6);
    INSERT INTO neighbours VALUES ('B', 'h:1');
    PRAGMA application_id = 0x42726169;
    PRAGMA user_version = 1;
"""

# What versions 5 to 7 have added.
BEFORE_5 = """
    ALTER TABLE logs DROP COLUMN subscribed;
    ALTER TABLE logs DROP COLUMN copies;
    ALTER TABLE logs DROP COLUMN origin;
    ALTER TABLE neighbours DROP COLUMN epoch;
    ALTER TABLE neighbours DROP COLUMN former;
    DROP TABLE standing;
"""


def test_a_file_of_an_earlier_version_is_brought_up_to_date(tmp_path: Path) -> None:
    with closing(sqlite3.connect(tmp_path / DATABASE_NAME)) as connection:
        connection.executescript(VERSION_1)
    for _ in range(2):  # and it stays as it then is
        with SqliteStore(tmp_path, retention=Retention()) as store:
            empty, log = store.state().logs
            assert store.state().neighbours == (("B", "h:1"),)
            assert (log.first_offset, log.next_offset, log.acknowledged_offset, log.bytes) == (1, 3, 0, 6)
            assert log.highest == {"p": 6}
            assert [offset for offset, _ in store.read("alice/log", 0, None, 100)] == [1, 2]
            # Rows from before there were epochs have one of their own, which no other file has.
            assert [first for _, first in log.epochs] == [0]
            assert empty.epochs == ()
            # And logs from before there were ids have some that no other log has.
            assert len({empty.id, log.id, ""}) == 3
            assert log.pins == ()
            epochs, ids = log.epochs, [empty.id, log.id]
    with SqliteStore(tmp_path, retention=Retention()) as store:
        store.apply([BeginEpoch("alice/log", "A-1"), AppendRows("alice/log", 3, [LogRow("p", 7, b"x")], 10)])
        assert store.state().logs[1].epochs == (*epochs, ("A-1", 3))
        assert [log.id for log in store.state().logs] == ids


def test_a_file_of_version_2_gets_ids_and_pins(tmp_path: Path) -> None:
    with SqliteStore(tmp_path, retention=Retention()) as store:
        store.apply([CreateLog("alice/log", "alice", "TRUE", "block", 7)])
    with closing(sqlite3.connect(tmp_path / DATABASE_NAME)) as connection:
        connection.executescript(
            f"{BEFORE_5} DROP TABLE ended_links;"
            "DROP TABLE pins; ALTER TABLE logs DROP COLUMN id; ALTER TABLE logs DROP COLUMN shard;"
            " ALTER TABLE logs DROP COLUMN shards; PRAGMA user_version = 2;"
        )
    with SqliteStore(tmp_path, retention=Retention()) as store:
        assert store.state().logs[0].id.startswith("before-")
        store.apply([PinRows("alice/log", "job", 0, 10)])
        assert store.state().logs[0].pins == (Pin("job", 0, 10),)


def test_a_file_of_version_3_gets_links_that_operations_have_ended(tmp_path: Path) -> None:
    with closing(SqliteStore(tmp_path, retention=Retention())) as store:
        store.apply([KeepNeighbour("B", "h:1")])
    with closing(sqlite3.connect(tmp_path / DATABASE_NAME)) as connection:
        connection.executescript(f"{BEFORE_5} DROP TABLE ended_links; PRAGMA user_version = 3;")
    ended = EndLink("B", 7, "C", "h:2", ("h:1", "h:3"))
    with closing(SqliteStore(tmp_path, retention=Retention())) as store:
        store.apply([ForgetNeighbour("B"), ended])
    with closing(SqliteStore(tmp_path, retention=Retention())) as store:
        assert store.state().neighbours == ()
        assert store.state().ended == (ended,)
        store.apply([KeepNeighbour("B", "h:1")])
        assert store.state().ended == ()


def test_a_file_of_version_4_gets_names_that_have_gone_to_other_processes(tmp_path: Path) -> None:
    with closing(SqliteStore(tmp_path, retention=Retention())) as store:
        store.apply([KeepNeighbour("B", "h:1", "key", "h:1")])
    with closing(sqlite3.connect(tmp_path / DATABASE_NAME)) as connection:
        connection.executescript(f"{BEFORE_5} PRAGMA user_version = 4;")
    standing = KeepStanding("F", 3, "secret", (("B", "h:1"), ("C", "[::1]:2")))
    with closing(SqliteStore(tmp_path, retention=Retention())) as store:
        assert store.state().neighbours == (("B", "h:1"),)
        assert (store.state().replaced, store.state().standing) == ((), None)
        store.apply([KeepNeighbour("B", "h:2", "key", "h:2", 2, ("h:1", "h:0")), standing])
    with closing(SqliteStore(tmp_path, retention=Retention())) as store:
        assert store.state().replaced == (("B", 2, ("h:1", "h:0")),)
        assert store.state().standing == standing
        store.apply([KeepNeighbour("B", "h:2", "key", "h:2"), KeepStanding("F", 4, "another")])
        assert store.state().replaced == ()
        assert store.state().standing == KeepStanding("F", 4, "another")


def test_a_file_of_version_6_takes_a_log_without_pins_as_one_with_a_subscriber(tmp_path: Path) -> None:
    with closing(SqliteStore(tmp_path, retention=Retention())) as store:
        store.apply([CreateLog(name, "alice", "TRUE", "block", 7) for name in ("alice/a", "alice/b")])
        store.apply([PinRows("alice/b", "job", 0, 10)])
    with closing(sqlite3.connect(tmp_path / DATABASE_NAME)) as connection:
        connection.executescript("ALTER TABLE logs DROP COLUMN subscribed; PRAGMA user_version = 6;")
    for _ in range(2):
        with closing(SqliteStore(tmp_path, retention=Retention())) as store:
            assert [(log.name, log.subscribed) for log in store.state().logs] == [
                ("alice/a", True),
                ("alice/b", False),
            ]


def test_what_a_file_of_version_7_knows_of_publishers_is_still_known(tmp_path: Path) -> None:
    """It kept a bit for each number down from the highest, without a word of what they are."""
    with closing(SqliteStore(tmp_path, retention=Retention())) as store:
        store.apply(
            [
                CreateLog("alice/log", "alice", "TRUE", "block", 7),
                AppendRows("alice/log", 0, [LogRow("p", 9, b"x"), LogRow("q", 4, b"x")], 10),
            ]
        )
    with closing(sqlite3.connect(tmp_path / DATABASE_NAME)) as connection:
        # Of p there are 9, 7, 2 and 0; of q nothing is known but the highest.
        connection.execute("UPDATE highest SET recent = x'8502' WHERE publisher = 'p'")
        connection.execute("UPDATE highest SET recent = x'' WHERE publisher = 'q'")
        connection.execute("PRAGMA user_version = 7")
        connection.commit()
    for _ in range(2):
        with closing(SqliteStore(tmp_path, retention=Retention())) as store:
            (log,) = store.state().logs
        seen = DuplicateFilter()
        for publisher, highest in log.highest.items():
            seen.recall(publisher, highest, log.recent.get(publisher))
        assert [number for number in range(12) if seen.has("p", number)] == [0, 2, 7, 9]
        assert [number for number in range(12) if seen.has("q", number)] == [0, 1, 2, 3, 4]
