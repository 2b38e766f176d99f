"""Where do logs and neighbours live on disk?

In one SQLite file in write-ahead mode. One call of `apply` is one transaction: the rows, the ends of their
log and the highest sequence of each publisher are committed together, so what is sent again after a crash is
recognised.

What a commit is worth depends on `synchronous`:

- `"FULL"` (default): when `apply` returns, the rows survive a power failure. Price: one wait for the disk per
  call, so many operations per call are worth having; `StoreThread` sees to that.
- `"NORMAL"`: they survive the crash of the process, but a power failure or a crash of the operating system
  may take back the last calls (whole calls, from the end). Price: acknowledged publications can be lost then.

Space of removed rows is used again, and a sweep gives unused space back to the file system, a bounded piece
at a time. The rows of a deleted log are removed by the sweeps that follow.
"""

from __future__ import annotations

import sqlite3
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np

from braid.errors import StoreError
from braid.protocol.log import (
    SWEEP_ROWS_MAX,
    EndLink,
    KeepStanding,
    LogRow,
    LogState,
    Pin,
    StoreState,
    Sweep,
    SweptLog,
    check_read,
    unknown_log,
)
from braid.protocol.packed_rows import PackedRead, PackedRows
from braid.runtime.private_files import make_private_folder
from braid.runtime.store.changes import Changes
from braid.runtime.store.lock import DirectoryLock
from braid.runtime.store.schema import Synchronous, is_damage, open_database, store_error

if TYPE_CHECKING:
    import os
    from collections.abc import Iterator, Sequence
    from types import TracebackType

    from braid.protocol.log import Retention, StoreOperation
    from braid.runtime.store.changes import LogHead

__all__ = ["DATABASE_NAME", "SqliteStore", "Synchronous"]

DATABASE_NAME = "braid.sqlite3"
# Pages that one sweep gives back to the file system: 32 MiB, well below a second of work.
VACUUM_PAGES_MAX = 4096

# The index gives rows in the order of their offsets, so that what is joined is in that order, without a sort;
# SQLite refuses the query if that index could not be used.
_RANGE = "log_rows INDEXED BY sqlite_autoindex_log_rows_1 WHERE log = ? AND row_offset BETWEEN ? AND ?"
_LENGTHS = f"SELECT json_group_array(length(record)) FROM {_RANGE}"
_PUBLISHERS = f"SELECT json_group_array(publisher) FROM {_RANGE}"
_SEQUENCES = f"SELECT json_group_array(sequence) FROM {_RANGE}"
# How far sequences are from offsets says whether they ascend one by one.
_COLUMNS = f"""
    SELECT min(publisher), max(publisher), min(sequence - row_offset), max(sequence - row_offset), count(*),
           CAST(group_concat(record, '') AS BLOB)
    FROM {_RANGE}
    """

# Errors that Python's sqlite3 raises for a value: a number above 64 bits, or text that is not Unicode.
_VALUE_ERRORS = (OverflowError, UnicodeError)


class SqliteStore:
    """A `Store` in a data directory. Use it from one thread at a time."""

    def __init__(
        self, path: str | os.PathLike[str], *, retention: Retention, synchronous: Synchronous = "FULL"
    ) -> None:
        """Open the data directory `path`, making it first if it is not there.

        Raises:
            StoreError: another process uses it, its file is damaged or from a newer Braid, or the disk says
                no. The message says what to do.
        """
        directory = Path(path)
        try:
            make_private_folder(directory)
        except OSError as problem:
            raise StoreError(f"cannot make the data directory {directory}: {problem.strerror}") from problem
        self._retention = retention
        self._path = directory / DATABASE_NAME
        self._distrusted: StoreError | None = None
        self._closed = False
        self._lock = DirectoryLock(directory)
        try:
            self._connection = open_database(self._path, synchronous)
        except BaseException:
            self._lock.release()
            raise

    def __enter__(self) -> SqliteStore:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, problem: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the file and give the data directory free; a second call does nothing."""
        if not self._closed:
            self._closed = True
            try:
                self._connection.close()
            finally:
                self._lock.release()

    def apply(self, operations: Sequence[StoreOperation]) -> None:
        """Do all operations in their order in one transaction, or none of them."""
        with self._transaction("write to") as changes:
            changes.apply(operations)

    def read(
        self, name: str, first_offset: int, last_offset: int | None, bytes_max: int
    ) -> list[tuple[int, LogRow]]:
        """Rows of a range that are still kept; see `Store.read`."""
        check_read(name, first_offset, bytes_max)
        with self._access("read from") as connection:
            log = connection.execute("SELECT log, next_offset FROM logs WHERE name = ?", (name,)).fetchone()
            if log is None:
                raise unknown_log(name, "reading")
            end = log[1] - 1 if last_offset is None else min(last_offset, log[1] - 1)
            cursor = connection.execute(
                """
                SELECT row_offset, publisher, sequence, record FROM log_rows
                WHERE log = ? AND row_offset BETWEEN ? AND ? ORDER BY row_offset
                """,
                (log[0], min(first_offset, log[1]), end),
            )
            found: list[tuple[int, LogRow]] = []
            room = bytes_max
            for offset, publisher, sequence, record in cursor:
                room -= len(record)
                if room < 0 and found:
                    break
                found.append((offset, LogRow(publisher, sequence, record)))
            cursor.close()  # an unfinished read would hold back the checkpoints of the write-ahead log
            return found

    def read_packed(self, name: str, first: int, last: int | None, bytes_max: int) -> PackedRead:
        """The same rows, or the first of them, as columns; see `Store.read_packed`.

        SQLite joins the records, so that there is no object for each. (It does so for text; that of a blob
        is its bytes, since the file has text in UTF-8.)
        """
        check_read(name, first, bytes_max)
        with self._access("read from") as connection:
            log = connection.execute(
                "SELECT log, first_offset, next_offset, bytes FROM logs WHERE name = ?", (name,)
            ).fetchone()
            if log is None:
                raise unknown_log(name, "reading")
            number, oldest, following, size = log
            first = max(first, oldest)
            end = following - 1 if last is None else min(last, following - 1)
            # About as many as there is room for, with some more, since their sizes differ.
            usual = max(1, size // max(1, following - oldest))
            end = min(end, first + bytes_max * 5 // (4 * usual) + 16)
            if first > end:
                return None
            found = connection.execute(_LENGTHS, (number, first, end)).fetchone()
            lengths = np.array(msgspec.json.decode(found[0], type=list[int]), np.int64)
            room = int(np.searchsorted(np.cumsum(lengths), bytes_max, "right"))
            lengths = lengths[: max(1, room)]
            end = first + len(lengths) - 1
            least, most, least_shift, most_shift, count, records = connection.execute(
                _COLUMNS, (number, first, end)
            ).fetchone()
            if count != len(lengths) or records is None or int(lengths.sum()) != len(records):
                raise StoreError(f"{self._path} lacks rows of {name!r} between offsets {first} and {end}")
            publishers = [least]
            if least != most:
                text = connection.execute(_PUBLISHERS, (number, first, end)).fetchone()[0]
                publishers = msgspec.json.decode(text, type=list[str])
            # A difference beyond 64 bits is a float in SQLite, and floats that are equal say nothing.
            if least_shift == most_shift and isinstance(least_shift, int):
                sequences = np.arange(first, end + 1) + least_shift
            else:
                text = connection.execute(_SEQUENCES, (number, first, end)).fetchone()[0]
                sequences = np.array(msgspec.json.decode(text, type=list[int]), np.int64)
            return first, PackedRows.joined(publishers, sequences, lengths, records)

    def state(self) -> StoreState:
        """All logs and neighbours."""
        with self._access("read from") as connection:
            highest: dict[int, dict[str, int]] = {}
            recent: dict[int, dict[str, bytes]] = {}
            for log, publisher, sequence, bits in connection.execute(
                "SELECT log, publisher, sequence, recent FROM highest ORDER BY last_offset, publisher"
            ):
                highest.setdefault(log, {})[publisher] = sequence
                if bits:
                    recent.setdefault(log, {})[publisher] = bits
            epochs: dict[int, list[tuple[str, int]]] = {}
            for log, epoch, first_offset in connection.execute(
                "SELECT log, epoch, first_offset FROM epochs ORDER BY number"
            ):
                epochs.setdefault(log, []).append((epoch, first_offset))
            pins: dict[int, list[Pin]] = {}
            for log, *pin in connection.execute(
                "SELECT log, consumer, row_offset, expires_at_us FROM pins ORDER BY consumer"
            ):
                pins.setdefault(log, []).append(Pin(*pin))
            logs = connection.execute(
                """
                SELECT log, name, owner, filter_text, when_full, first_offset, next_offset,
                       acknowledged_offset, bytes, created_at_us, secret, id,
                       shard, shards, copies, origin, subscribed
                FROM logs ORDER BY name
                """
            )
            neighbours = connection.execute(
                "SELECT broker_id, address, key, met_at, epoch, former FROM neighbours ORDER BY broker_id"
            ).fetchall()
            standing = connection.execute("SELECT broker_id, epoch, key, neighbours FROM standing").fetchone()
            ended = connection.execute(
                "SELECT broker_id, epoch, place, address, dialled FROM ended_links ORDER BY broker_id"
            ).fetchall()
            (secret,) = connection.execute("SELECT secret FROM identity").fetchone()
            return StoreState(
                tuple(
                    _log_state(
                        columns,
                        highest.get(columns[0], {}),
                        recent.get(columns[0], {}),
                        tuple(epochs.get(columns[0], ())),
                        tuple(pins.get(columns[0], ())),
                    )
                    for columns in logs
                ),
                tuple((broker_id, address) for broker_id, address, *_ in neighbours),
                tuple((broker_id, key) for broker_id, _, key, *_ in neighbours if key),
                tuple((broker_id, met_at) for broker_id, _, _, met_at, *_ in neighbours if met_at),
                secret,
                tuple(
                    EndLink(broker_id, epoch, place, address, tuple(dialled.split()))
                    for broker_id, epoch, place, address, dialled in ended
                ),
                tuple(
                    (broker_id, epoch, tuple(former.split()))
                    for broker_id, _, _, _, epoch, former in neighbours
                    if epoch
                ),
                _standing(standing),
            )

    def sweep(self, now_us: int, rows_max: int = SWEEP_ROWS_MAX) -> Sweep:
        """Remove what the retention no longer keeps, and what deleted logs left; see `Store.sweep`."""
        swept = []
        room, finished = rows_max, True
        with self._transaction("sweep") as changes:
            names = self._connection.execute("SELECT name FROM logs ORDER BY name").fetchall()
            for (name,) in names:
                head = changes.head(name)
                start = head.bounds.first_offset
                kept_from = self._retention.kept_from(
                    head.when_full, head.acknowledged_offset, changes.pins(head), now_us
                )
                cut, is_whole = self._sweep_end(head, now_us, room, kept_from)
                finished = finished and is_whole
                if cut > start:
                    changes.drop(name, cut)
                    room -= cut - start
                    acknowledged = max(0, min(cut, head.acknowledged_offset + 1) - start)
                    swept.append(SweptLog(name, cut, acknowledged, cut - start - acknowledged))
            room -= changes.drop_deleted(room)
        with self._access("shrink") as connection:
            # This PRAGMA frees one page per step and yields rows without columns, at the first of which
            # `execute` stops; `executescript` goes on to the end.
            connection.executescript(f"PRAGMA incremental_vacuum({VACUUM_PAGES_MAX})")
        return Sweep(tuple(swept), finished and room > 0)

    def _sweep_end(
        self, head: LogHead, now_us: int, rows_max: int, kept_from: int | None
    ) -> tuple[int, bool]:
        """The offset before which rows must go, and whether `rows_max` was enough for all of them.

        Rows from `kept_from` on stay. Reads the rows that go and one more.
        """
        oldest_at_us = self._retention.oldest_at_us(now_us)
        excess = head.bytes - self._retention.bytes_max
        first_offset = cut = head.bounds.first_offset
        is_whole = True
        cursor = self._connection.execute(
            "SELECT row_offset, at_us, length(record) FROM log_rows WHERE log = ? ORDER BY row_offset",
            (head.log,),
        )
        for offset, at_us, record_bytes in cursor:
            is_acknowledged = offset <= head.acknowledged_offset
            is_too_old = is_acknowledged and oldest_at_us is not None and at_us < oldest_at_us
            if (not is_too_old and excess <= 0) or (kept_from is not None and offset >= kept_from):
                break
            if offset - first_offset == rows_max:
                is_whole = False
                break
            excess -= record_bytes
            cut = offset + 1
        cursor.close()
        return cut, is_whole

    @contextmanager
    def _transaction(self, wish: str) -> Iterator[Changes]:
        """Commit at the end; on any error, undo everything."""
        with self._access(wish) as connection:
            connection.execute("BEGIN IMMEDIATE")
            try:
                changes = Changes(connection)
                yield changes
                changes.finish()
                connection.execute("COMMIT")
            except BaseException:
                # After some errors SQLite has rolled back by itself.
                if connection.in_transaction:
                    connection.execute("ROLLBACK")
                raise

    @contextmanager
    def _access(self, wish: str) -> Iterator[sqlite3.Connection]:
        """Turn what SQLite raises into StoreErrors, and stop after signs of damage.

        After what was written could not be brought to the disk, the kernel may believe pages to be there that
        are not, so that trying again could report a success that is none. Only a new start, which reads the
        file again, clears that.
        """
        if self._closed:
            raise StoreError(f"cannot {wish} {self._path}: the store is closed")
        if self._distrusted is not None:
            raise StoreError(f"cannot {wish} {self._path} after an earlier failure: {self._distrusted}")
        try:
            yield self._connection
        except (sqlite3.Error, *_VALUE_ERRORS) as problem:
            error = store_error(self._path, wish, problem)
            if is_damage(problem):
                self._distrusted = error
            raise error from problem


def _standing(columns: tuple[str, int, str, str] | None) -> KeepStanding | None:
    """The row of the table `standing`, if there is one."""
    if columns is None:
        return None
    broker_id, epoch, key, neighbours = columns
    named = (line.partition(" ") for line in neighbours.splitlines())
    return KeepStanding(broker_id, epoch, key, tuple((name, address) for name, _, address in named))


def _log_state(
    columns: Sequence[Any],
    highest: dict[str, int],
    recent: dict[str, bytes],
    epochs: tuple[tuple[str, int], ...],
    pins: tuple[Pin, ...],
) -> LogState:
    """A row of the table `logs`, in the order in which `state` asks for its columns."""
    return LogState(
        name=columns[1],
        owner=columns[2],
        filter_text=columns[3],
        when_full=columns[4],
        first_offset=columns[5],
        next_offset=columns[6],
        acknowledged_offset=columns[7],
        highest=highest,
        bytes=columns[8],
        created_at_us=columns[9],
        recent=recent,
        epochs=epochs,
        secret=columns[10],
        id=columns[11],
        pins=pins,
        shard=columns[12],
        shards=columns[13],
        copies=columns[14],
        origin=columns[15],
        subscribed=bool(columns[16]),
    )
