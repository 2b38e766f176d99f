"""How do brokers of one host find each other without any server? Through one SQLite file.

A session is a row with an expiry time that its process pushes forward; entries and locks hang on it and go
when it runs out. Expiry times are read from the host's monotonic clock, which all its processes share: a
clock that is set does not end leases. After a reboot that clock starts again, so an expiry further away than
a whole lease counts as passed. For the same reasons the file must not be shared between hosts.
"""

from __future__ import annotations

import asyncio
import sqlite3
import time
import uuid
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import TYPE_CHECKING, TypeVar

from braid.errors import DirectoryError
from braid.runtime.directory.sessions import SessionDirectory, refusal
from braid.runtime.directory.stored import (
    decode_entry,
    decode_holder,
    decode_neighbours,
    encode,
    readable_entries,
)
from braid.runtime.private_files import make_private_file

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    from braid.runtime.directory.interface import BrokerEntry, DirectorySettings
    from braid.runtime.directory.stored import LockHolder

__all__ = ["SqliteDirectory"]

Answer = TypeVar("Answer")

# In the file's header, so that no other database is taken for a directory: the letters "BrDi".
APPLICATION_ID = 0x42724469
SCHEMA_VERSION = 2

SCHEMA = f"""
CREATE TABLE sessions (session TEXT PRIMARY KEY, expires_at_us INTEGER NOT NULL, lease_us INTEGER NOT NULL);
CREATE TABLE entries (
    broker_id TEXT PRIMARY KEY,
    entry BLOB NOT NULL,
    session TEXT NOT NULL REFERENCES sessions ON DELETE CASCADE
);
CREATE INDEX entries_by_session ON entries (session);
CREATE TABLE locks (
    broker_id TEXT PRIMARY KEY,
    holder BLOB NOT NULL,
    session TEXT NOT NULL REFERENCES sessions ON DELETE CASCADE,
    epoch INTEGER NOT NULL DEFAULT 0
);
CREATE INDEX locks_by_session ON locks (session);
CREATE TABLE epochs (last INTEGER NOT NULL);
INSERT INTO epochs VALUES (0);
CREATE TABLE neighbours (broker_id TEXT PRIMARY KEY, neighbours BLOB NOT NULL);
PRAGMA application_id = {APPLICATION_ID};
PRAGMA user_version = {SCHEMA_VERSION};
"""

# A file of format 1, whose locks had no epochs. Whoever still has it open cannot take locks from then on.
UPGRADE = f"""
ALTER TABLE locks ADD COLUMN epoch INTEGER NOT NULL DEFAULT 0;
CREATE TABLE epochs (last INTEGER NOT NULL);
INSERT INTO epochs VALUES (0);
PRAGMA user_version = {SCHEMA_VERSION};
"""

LIVING = "expires_at_us > :now_us AND expires_at_us <= :now_us + lease_us"


class SqliteDirectory(SessionDirectory):
    """A session with the directory in one SQLite file."""

    def __init__(self, path: Path, settings: DirectorySettings) -> None:
        super().__init__(f"the directory {path}", settings)
        self._path = path
        self._session = uuid.uuid4().hex
        self._lease_us = round(settings.lease_s * 1_000_000)
        # A thread of its own: renewals must not queue behind other blocking work of the process, and the
        # connections stay in one thread.
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="braid-directory")
        self._connection: sqlite3.Connection | None = None
        # `PRAGMA data_version` tells a connection of the commits of others, so watching has its own.
        self._watching: sqlite3.Connection | None = None
        self._version_read = -1

    async def _in_thread(self, work: Callable[[], Answer]) -> Answer:
        try:
            answer = asyncio.get_running_loop().run_in_executor(self._thread, work)
        except RuntimeError as problem:  # the thread was shut down while we were on our way here
            raise self._closed_error() from problem
        try:
            return await answer
        except sqlite3.Error as problem:
            raise DirectoryError(
                f"{self.name} cannot be used: {problem}; check that the file and its folder can be written "
                "by this user and that the disk has room"
            ) from problem

    async def _open(self) -> None:
        await self._in_thread(self._connect)

    def _connect(self) -> None:
        if not self._path.parent.is_dir():
            raise DirectoryError(
                f"{self.name} cannot be made: there is no folder {self._path.parent}; make it"
            )
        make_private_file(self._path)
        connections: list[sqlite3.Connection] = []
        try:
            for _ in range(2):
                connection = sqlite3.connect(
                    self._path, timeout=self.settings.operation_timeout_s, isolation_level=None
                )
                connections.append(connection)
                connection.execute("PRAGMA foreign_keys = ON")
                connection.execute("PRAGMA synchronous = NORMAL")
            self._make_tables(connections[0])
            self._connection, self._watching = connections
            with self._writing():
                pass  # begins the session
        except BaseException:
            self._connection = self._watching = None
            for connection in connections:
                connection.close()
            raise

    def _make_tables(self, connection: sqlite3.Connection) -> None:
        """Make the tables of a new file, or recognise those of an older one."""
        with _transaction(connection, "BEGIN"):
            if self._format(connection) == SCHEMA_VERSION:
                return
        deadline_s = time.monotonic() + self.settings.operation_timeout_s
        while True:
            # WAL lets readers and writers work side by side. SQLite does not wait for others here by itself.
            try:
                connection.execute("PRAGMA journal_mode = WAL")
                break
            except sqlite3.OperationalError:
                if time.monotonic() > deadline_s:
                    raise
                time.sleep(0.01)
        with _transaction(connection, "BEGIN IMMEDIATE"):
            found = self._format(connection)
            if found != SCHEMA_VERSION:
                for statement in (UPGRADE if found else SCHEMA).split(";"):
                    connection.execute(statement)

    def _format(self, connection: sqlite3.Connection) -> int:
        """The format of the file's tables, 0 if it has none.

        Inside a transaction, so that the three answers belong together while others make the tables.
        """
        [application_id] = connection.execute("PRAGMA application_id").fetchone()
        [version] = connection.execute("PRAGMA user_version").fetchone()
        [tables] = connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
        if application_id == APPLICATION_ID and version in (1, SCHEMA_VERSION):
            return int(version)
        if application_id == APPLICATION_ID:
            raise DirectoryError(
                f"{self.name} has format {version}, and this Braid knows format {SCHEMA_VERSION}; use the "
                "same version of Braid for all brokers of a directory, or another file"
            )
        if tables:
            raise DirectoryError(
                f"{self._path} is a database of another program, not a directory of brokers; use another file"
            )
        return 0

    async def _shut(self) -> None:
        try:
            await self._in_thread(self._disconnect)
        finally:
            self._thread.shutdown(wait=False)

    def _disconnect(self) -> None:
        connection, watching = self._open_connections()
        self._connection = self._watching = None
        try:
            connection.execute("DELETE FROM sessions WHERE session = ?", (self._session,))
        finally:
            watching.close()
            connection.close()

    def _open_connections(self) -> tuple[sqlite3.Connection, sqlite3.Connection]:
        if self._connection is None or self._watching is None:
            raise self._closed_error()
        return self._connection, self._watching

    def _select(self, statement: str, **values: object) -> list[tuple[bytes, str]]:
        connection, _ = self._open_connections()
        return connection.execute(statement, {"now_us": _now_us(), **values}).fetchall()

    @contextmanager
    def _writing(self) -> Iterator[sqlite3.Connection]:
        """One transaction in which this session lives and all dead ones are gone."""
        connection, _ = self._open_connections()
        with _transaction(connection, "BEGIN IMMEDIATE"):
            now_us = _now_us()  # not before the wait for other writers
            connection.execute(
                "INSERT INTO sessions VALUES (?, ?, ?) "
                "ON CONFLICT (session) DO UPDATE SET expires_at_us = excluded.expires_at_us",
                (self._session, now_us + self._lease_us, self._lease_us),
            )
            connection.execute(f"DELETE FROM sessions WHERE NOT ({LIVING})", {"now_us": now_us})
            yield connection

    async def _read(self) -> dict[str, BrokerEntry]:
        rows = await self._in_thread(
            lambda: self._select(
                f"SELECT entry, broker_id FROM entries JOIN sessions USING (session) WHERE {LIVING}"
            )
        )
        return readable_entries((entry, f"{self.name}, broker {broker_id!r},") for entry, broker_id in rows)

    async def _read_for_watch(self) -> dict[str, BrokerEntry]:
        await self._ensure_open()
        self._version_read = await self._in_thread(self._version)
        return await self._read()

    async def _wait_for_change(self) -> None:
        # Other processes cannot set an event here. A session that runs out is swept by the next heartbeat of
        # any process, ours included, so that is a change as well.
        while await self._in_thread(self._version) == self._version_read:  # noqa: ASYNC110
            await asyncio.sleep(self.settings.poll_s)

    def _version(self) -> int:
        _, watching = self._open_connections()
        [version] = watching.execute("PRAGMA data_version").fetchone()
        return int(version)

    async def _place(self, entry: BrokerEntry) -> None:
        def work() -> None:
            with self._writing() as connection:
                other = self._entry_in(connection, entry.broker_id)
                if other is not None and not entry.may_replace(other[0]):
                    raise refusal(entry, other[0], self.name)
                self._write(connection, entry)

        await self._in_thread(work)

    async def _replace(self, entry: BrokerEntry) -> None:
        def work() -> None:
            with self._writing() as connection:
                other = self._entry_in(connection, entry.broker_id)
                if other is not None and other[1] != self._session:
                    raise DirectoryError(
                        f"broker {entry.broker_id!r} cannot be updated: another start of it took over in "
                        f"{self.name}, at {', '.join(other[0].addresses)}"
                    )
                self._write(connection, entry)

        await self._in_thread(work)

    def _entry_in(self, connection: sqlite3.Connection, broker_id: str) -> tuple[BrokerEntry, str] | None:
        row = connection.execute(
            "SELECT entry, session FROM entries WHERE broker_id = ?", (broker_id,)
        ).fetchone()
        return (decode_entry(row[0], f"{self.name}, broker {broker_id!r},"), row[1]) if row else None

    def _write(self, connection: sqlite3.Connection, entry: BrokerEntry) -> None:
        connection.execute(
            "INSERT OR REPLACE INTO entries VALUES (?, ?, ?)", (entry.broker_id, encode(entry), self._session)
        )
        connection.execute(
            "INSERT OR REPLACE INTO neighbours VALUES (?, ?)", (entry.broker_id, encode(entry.neighbours))
        )

    async def _withdraw(self, entry: BrokerEntry) -> None:
        def work() -> None:
            with self._writing() as connection:
                connection.execute(
                    "DELETE FROM entries WHERE broker_id = ? AND session = ?",
                    (entry.broker_id, self._session),
                )

        await self._in_thread(work)

    async def _keep(self, entries: Sequence[BrokerEntry]) -> list[BrokerEntry]:
        def work() -> list[BrokerEntry]:
            taken_over = []
            with self._writing() as connection:
                for entry in entries:
                    current = self._entry_in(connection, entry.broker_id)
                    if current is None:  # our session had run out: the process stalled
                        self._write(connection, entry)
                    elif current[1] != self._session:
                        taken_over.append(entry)
            return taken_over

        return await self._in_thread(work)

    async def _read_neighbours(self, broker_id: str) -> tuple[str, ...]:
        rows = await self._in_thread(
            lambda: self._select(
                "SELECT neighbours, broker_id FROM neighbours WHERE broker_id = :broker_id",
                broker_id=broker_id,
            )
        )
        where = f"{self.name}, the neighbours of {broker_id!r},"
        return decode_neighbours(rows[0][0], where) if rows else ()

    async def _erase_neighbours(self, broker_id: str) -> None:
        def work() -> None:
            with self._writing() as connection:
                connection.execute("DELETE FROM neighbours WHERE broker_id = ?", (broker_id,))

        await self._in_thread(work)

    async def _try_lock(self, broker_id: str, holder: LockHolder) -> LockHolder:
        current = await self._lock_holder(broker_id)
        if current is not None:  # a waiting request looks often, and need not write each time
            return current

        def work() -> list[tuple[bytes, str]]:
            with self._writing() as connection:
                connection.execute("UPDATE epochs SET last = last + 1")
                connection.execute(
                    "INSERT OR IGNORE INTO locks SELECT ?, ?, ?, last FROM epochs",
                    (broker_id, encode(holder), self._session),
                )
                return connection.execute(
                    "SELECT holder, session FROM locks WHERE broker_id = ?", (broker_id,)
                ).fetchall()

        [(data, _)] = await self._in_thread(work)
        return self._decode_holder(data, broker_id)

    async def _unlock(self, broker_id: str, holder: LockHolder) -> None:
        def work() -> None:
            with self._writing() as connection:
                connection.execute(
                    "DELETE FROM locks WHERE broker_id = ? AND holder = ?", (broker_id, encode(holder))
                )

        await self._in_thread(work)

    async def _lock_holder(self, broker_id: str) -> LockHolder | None:
        rows = await self._in_thread(
            lambda: self._select(
                "SELECT holder, broker_id FROM locks JOIN sessions USING (session) "
                f"WHERE broker_id = :broker_id AND {LIVING}",
                broker_id=broker_id,
            )
        )
        return self._decode_holder(rows[0][0], broker_id) if rows else None

    async def _lock_epoch(self, broker_ids: Sequence[str], holder: LockHolder) -> int | None:
        def work() -> list[int]:
            with self._writing() as connection:  # which renews our lease
                ours = "SELECT epoch FROM locks WHERE broker_id = ? AND holder = ?"
                found = [connection.execute(ours, (each, encode(holder))).fetchone() for each in broker_ids]
                return [epoch for (epoch,) in filter(None, found)]

        epochs = await self._in_thread(work)
        return max(epochs, default=0) if len(epochs) == len(broker_ids) else None

    def _decode_holder(self, data: bytes, broker_id: str) -> LockHolder:
        return decode_holder(data, f"{self.name}, the lock of {broker_id!r},")

    async def _wait_for_release(self, broker_id: str) -> None:
        await asyncio.sleep(self.settings.poll_s)


@contextmanager
def _transaction(connection: sqlite3.Connection, begin: str) -> Iterator[None]:
    connection.execute(begin)
    try:
        yield
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:  # SQLite ends it by itself after some errors
            connection.execute("ROLLBACK")
        raise


def _now_us() -> int:
    return time.monotonic_ns() // 1_000
