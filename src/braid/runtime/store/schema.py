"""How are logs laid out in SQLite, and is this file one of ours?

A file is looked at before anything is written to it: one that a newer Braid or another program made is left
exactly as it was.
"""

from __future__ import annotations

import secrets
import sqlite3
from typing import TYPE_CHECKING, Literal, TypeAlias

from braid.errors import StoreError
from braid.runtime.private_files import make_private_file

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["PAGE_BYTES", "SCHEMA_VERSION", "Synchronous", "is_damage", "open_database", "store_error"]

Synchronous: TypeAlias = Literal["FULL", "NORMAL"]

SCHEMA_VERSION = 8
# Files from this version on are brought up to date when they are opened.
SCHEMA_VERSION_OLDEST = 1
# "Brai" in ASCII: SQLite keeps it in the header, so that `file` and we can tell whose database it is.
APPLICATION_ID = 0x42726169
# With 8 KiB, records up to some 8 KB stay in one page; measured a little faster than 4 KiB for small ones.
PAGE_BYTES = 8192
# After a checkpoint the write-ahead log is cut back to this; one large transaction may pass it for a while.
WAL_BYTES_MAX = 64 << 20
# Somebody may look into the file with the sqlite3 program, which can lock it for a moment.
BUSY_TIMEOUT_S = 5.0

EPOCHS = """
    CREATE TABLE epochs (
        number INTEGER PRIMARY KEY,
        log INTEGER NOT NULL,
        epoch TEXT NOT NULL,
        first_offset INTEGER NOT NULL
    )
    """

# Rows that consumers may still ask for.
PINS = """
    CREATE TABLE pins (
        log INTEGER NOT NULL,
        consumer TEXT NOT NULL,
        row_offset INTEGER NOT NULL,
        expires_at_us INTEGER NOT NULL,
        PRIMARY KEY (log, consumer)
    ) WITHOUT ROWID
    """

# Links that operations have ended; addresses are one to a line.
ENDED_LINKS = """
    CREATE TABLE ended_links (
        broker_id TEXT PRIMARY KEY,
        epoch INTEGER NOT NULL,
        place TEXT NOT NULL,
        address TEXT NOT NULL,
        dialled TEXT NOT NULL
    ) WITHOUT ROWID
    """

# In whose place the broker runs, if in another one's; neighbours are one to a line, name and address.
STANDING = """
    CREATE TABLE standing (
        broker_id TEXT NOT NULL,
        epoch INTEGER NOT NULL,
        key TEXT NOT NULL,
        neighbours TEXT NOT NULL
    )
    """

# What the broker's keys are made from.
IDENTITY = """
    CREATE TABLE identity (
        secret TEXT NOT NULL
    )
    """

# A log's number is never used twice. Rows have a hidden row id, so appends to all logs go to the table's end,
# and large records are no burden for the index, which holds numbers only.
TABLES = (
    """
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
        bytes INTEGER NOT NULL,
        secret TEXT NOT NULL DEFAULT '',
        id TEXT NOT NULL DEFAULT '',
        shard INTEGER NOT NULL DEFAULT 0,
        shards INTEGER NOT NULL DEFAULT 1,
        copies INTEGER NOT NULL DEFAULT 0,
        origin TEXT NOT NULL DEFAULT '',
        subscribed INTEGER NOT NULL DEFAULT 0
    )
    """,
    """
    CREATE TABLE log_rows (
        log INTEGER NOT NULL,
        row_offset INTEGER NOT NULL,
        publisher TEXT NOT NULL,
        sequence INTEGER NOT NULL,
        at_us INTEGER NOT NULL,
        record BLOB NOT NULL,
        PRIMARY KEY (log, row_offset)
    )
    """,
    # Removing many rows takes long, so a deleted log's rows stay until sweeps have removed them bit by bit.
    """
    CREATE TABLE deleted_logs (
        log INTEGER PRIMARY KEY
    )
    """,
    """
    CREATE TABLE highest (
        log INTEGER NOT NULL,
        publisher TEXT NOT NULL,
        sequence INTEGER NOT NULL,
        recent BLOB NOT NULL DEFAULT x'',
        last_offset INTEGER NOT NULL DEFAULT 0,
        PRIMARY KEY (log, publisher)
    ) WITHOUT ROWID
    """,
    EPOCHS,
    PINS,
    """
    CREATE TABLE neighbours (
        broker_id TEXT PRIMARY KEY,
        address TEXT NOT NULL,
        key TEXT NOT NULL DEFAULT '',
        met_at TEXT NOT NULL DEFAULT '',
        epoch INTEGER NOT NULL DEFAULT 0,
        former TEXT NOT NULL DEFAULT ''
    ) WITHOUT ROWID
    """,
    ENDED_LINKS,
    STANDING,
    IDENTITY,
)

# What SQLite answers when the file or the disk can no longer be trusted.
DAMAGE_CODES = frozenset({sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_IOERR})
# What may be over when the same is tried again.
TEMPORARY_CODES = frozenset(
    {sqlite3.SQLITE_FULL, sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED, sqlite3.SQLITE_NOMEM}
)
PRIMARY_CODE_MASK = 0xFF
# The operating system did not take what was to be written, such as beyond a quota or a limit on file sizes.
# What it has taken before is not in doubt, as it is when it could not bring that to the disk.
NOT_TAKEN_CODES = frozenset(
    {sqlite3.SQLITE_IOERR_WRITE, sqlite3.SQLITE_IOERR_TRUNCATE, sqlite3.SQLITE_IOERR_SHMSIZE}
)


def open_database(path: Path, synchronous: Synchronous) -> sqlite3.Connection:
    """Open the file, making it first if it is not there. Raises StoreError when it cannot be used."""
    make_private_file(path)
    try:
        # The store is made on one thread and used on another, never on two at a time.
        connection = sqlite3.connect(
            path, isolation_level=None, timeout=BUSY_TIMEOUT_S, check_same_thread=False
        )
    except sqlite3.Error as problem:
        raise store_error(path, "open", problem) from problem
    try:
        is_new = _check_identity(connection, path)
        if is_new:
            connection.execute(f"PRAGMA page_size = {PAGE_BYTES}")
            connection.execute("PRAGMA auto_vacuum = INCREMENTAL")
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute(f"PRAGMA journal_size_limit = {WAL_BYTES_MAX}")
        connection.execute(f"PRAGMA synchronous = {synchronous}")
        # On macOS a plain fsync leaves data in the drive's cache; elsewhere these two change nothing.
        connection.execute(f"PRAGMA fullfsync = {int(synchronous == 'FULL')}")
        connection.execute("PRAGMA checkpoint_fullfsync = 1")
        if is_new:
            _create_tables(connection)
        else:
            _bring_up_to_date(connection)
        _check_ends(connection, path)
    except sqlite3.Error as problem:
        connection.close()
        raise store_error(path, "open", problem) from problem
    except StoreError:
        connection.close()
        raise
    return connection


def _check_identity(connection: sqlite3.Connection, path: Path) -> bool:
    """True for a new file; raises StoreError for one that is not ours, or not for this version."""
    application_id, version, tables = (
        connection.execute(question).fetchone()[0]
        for question in ("PRAGMA application_id", "PRAGMA user_version", "SELECT count(*) FROM sqlite_master")
    )
    if (application_id, version, tables) == (0, 0, 0):
        return True
    if application_id != APPLICATION_ID:
        raise StoreError(f"{path} is a database of another program; choose another data directory")
    if not SCHEMA_VERSION_OLDEST <= version <= SCHEMA_VERSION:
        raise StoreError(
            f"{path} has schema version {version}, and this Braid knows the versions "
            f"{SCHEMA_VERSION_OLDEST} to {SCHEMA_VERSION}; "
            "use the Braid that wrote it or a newer one, or choose another data directory"
        )
    return False


def _bring_up_to_date(connection: sqlite3.Connection) -> None:
    """Add what a file of an earlier version lacks, in one transaction: a crash leaves the file as it was."""
    version = connection.execute("PRAGMA user_version").fetchone()[0]
    if version == SCHEMA_VERSION:
        return
    connection.execute("BEGIN IMMEDIATE")
    if version < 2:
        _bring_to_version_2(connection)
    if version < 3:
        connection.execute(PINS)
        connection.execute("ALTER TABLE logs ADD COLUMN id TEXT NOT NULL DEFAULT ''")
        for column, usual in (("shard", 0), ("shards", 1)):
            connection.execute(f"ALTER TABLE logs ADD COLUMN {column} INTEGER NOT NULL DEFAULT {usual}")
        connection.execute("UPDATE logs SET id = 'before-' || lower(hex(randomblob(8)))")
    if version < 4:
        connection.execute(ENDED_LINKS)
    if version < 5:
        connection.execute("ALTER TABLE neighbours ADD COLUMN epoch INTEGER NOT NULL DEFAULT 0")
        connection.execute("ALTER TABLE neighbours ADD COLUMN former TEXT NOT NULL DEFAULT ''")
        connection.execute(STANDING)
    if version < 6:
        connection.execute("ALTER TABLE logs ADD COLUMN copies INTEGER NOT NULL DEFAULT 0")
        connection.execute("ALTER TABLE logs ADD COLUMN origin TEXT NOT NULL DEFAULT ''")
    if version < 7:
        connection.execute("ALTER TABLE logs ADD COLUMN subscribed INTEGER NOT NULL DEFAULT 0")
        # Whether it had a subscriber was not written down: only a log that jobs have pinned may have none.
        connection.execute("UPDATE logs SET subscribed = log NOT IN (SELECT log FROM pins)")
    # What is known of publishers says its form since then (`SeenNumbers.packed`); before it was always bits.
    connection.execute("UPDATE highest SET recent = CAST(x'01' || recent AS BLOB) WHERE length(recent) > 0")
    connection.execute(f"PRAGMA user_version = {SCHEMA_VERSION}")
    connection.execute("COMMIT")


def _bring_to_version_2(connection: sqlite3.Connection) -> None:
    columns = [column[1] for column in connection.execute("PRAGMA table_info(highest)")]
    if "recent" not in columns:
        connection.execute("ALTER TABLE highest ADD COLUMN recent BLOB NOT NULL DEFAULT x''")
    connection.execute("ALTER TABLE highest ADD COLUMN last_offset INTEGER NOT NULL DEFAULT 0")
    connection.execute("ALTER TABLE logs ADD COLUMN secret TEXT NOT NULL DEFAULT ''")
    for column in ("key", "met_at"):
        connection.execute(f"ALTER TABLE neighbours ADD COLUMN {column} TEXT NOT NULL DEFAULT ''")
    connection.execute(IDENTITY)
    _make_secret(connection)
    connection.execute(EPOCHS)
    # Rows from before there were epochs are of one that no other file has.
    connection.execute(
        """
        INSERT INTO epochs (log, epoch, first_offset)
        SELECT log, 'before-' || lower(hex(randomblob(8))), 0 FROM logs WHERE next_offset > 0
        """
    )


def _create_tables(connection: sqlite3.Connection) -> None:
    """One transaction: after a crash there is either a whole store or an empty file."""
    connection.execute("BEGIN IMMEDIATE")
    for statement in TABLES:
        connection.execute(statement)
    _make_secret(connection)
    connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
    connection.execute(f"PRAGMA user_version = {SCHEMA_VERSION}")
    connection.execute("COMMIT")


def _make_secret(connection: sqlite3.Connection) -> None:
    connection.execute("INSERT INTO identity (secret) VALUES (?)", (secrets.token_hex(32),))


def _check_ends(connection: sqlite3.Connection, path: Path) -> None:
    """Each log's first and last row are where the log says: cheap, and a damaged file often fails it.

    A whole check (`PRAGMA integrity_check`) reads the whole file, which is too long for every start.
    """
    ends = connection.execute(
        """
        SELECT name, first_offset, next_offset,
               (SELECT min(row_offset) FROM log_rows WHERE log_rows.log = logs.log),
               (SELECT max(row_offset) FROM log_rows WHERE log_rows.log = logs.log)
        FROM logs
        """
    )
    for name, first_offset, next_offset, lowest, highest in ends:
        found = (next_offset, next_offset) if lowest is None else (lowest, highest + 1)
        if found != (first_offset, next_offset):
            raise StoreError(
                f"{path} is damaged: log {name!r} should hold the offsets from {first_offset} to "
                f"{next_offset - 1}, but its rows go from {found[0]} to {found[1] - 1}; {_REMEDY}"
            )


_REMEDY = (
    "stop the broker, keep a copy of the data directory, and put a backup in its place, rescue what can be "
    "read with `sqlite3 FILE .recover`, or start with an empty data directory"
)


def is_damage(problem: BaseException) -> bool:
    """True when the file or the disk can no longer be trusted."""
    code = getattr(problem, "sqlite_errorcode", None)
    return code is not None and code & PRIMARY_CODE_MASK in DAMAGE_CODES and code not in NOT_TAKEN_CODES


def store_error(path: Path, wish: str, problem: BaseException) -> StoreError:
    """What went wrong in SQLite, as an error that says what to do."""
    code = getattr(problem, "sqlite_errorcode", None)
    primary = None if code is None else code & PRIMARY_CODE_MASK
    if primary in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB):
        return StoreError(f"cannot {wish} {path}: the file is damaged ({problem}); {_REMEDY}")
    if code in NOT_TAKEN_CODES:
        refused = StoreError(
            f"cannot {wish} {path}: the operating system takes nothing more ({problem}), such as beyond a "
            "quota, and nothing was changed; make room or keep less"
        )
        refused.temporary = True
        return refused
    advice = {
        sqlite3.SQLITE_FULL: "the disk is full, and nothing was changed; make room or keep less",
        sqlite3.SQLITE_IOERR: "the disk failed; check it before the broker is started again",
        sqlite3.SQLITE_CANTOPEN: "check that the directory is there and that this user may write to it",
        sqlite3.SQLITE_READONLY: "this user may not write to it; change its owner or its mode",
        sqlite3.SQLITE_BUSY: "another program has locked it; close that program",
    }.get(primary or sqlite3.SQLITE_OK, "nothing was changed")
    error = StoreError(f"cannot {wish} {path}: {problem}; {advice}")
    error.temporary = primary in TEMPORARY_CODES
    return error
