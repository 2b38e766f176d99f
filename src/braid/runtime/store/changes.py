"""How do many operations become few statements?

Within one transaction the numbers of a log are read once, changed here and written once; rows of many
operations go to SQLite together.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from braid.protocol.epochs import EPOCHS_MAX
from braid.protocol.log import (
    NOTHING_ACKNOWLEDGED,
    AcknowledgeLog,
    AppendRows,
    BeginEpoch,
    CreateLog,
    DeleteLog,
    DropRows,
    EndLink,
    ForgetNeighbour,
    ForgetPublishers,
    KeepNeighbour,
    KeepSecret,
    KeepStanding,
    KeepSubscribed,
    LogBounds,
    Pin,
    PinRows,
    check_operations,
    unknown_log,
)

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Sequence

    from braid.protocol.log import StoreOperation

__all__ = ["Changes", "LogHead"]


@dataclass(slots=True)
class LogHead:
    """The numbers of one log, as they will be at the end of the transaction."""

    log: int
    bounds: LogBounds
    acknowledged_offset: int
    bytes: int
    when_full: str
    changed: bool = False


class Changes:
    """The work of one transaction. The caller begins it, calls `finish`, and commits."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection
        self._heads: dict[str, LogHead | None] = {}
        self._rows: list[tuple[int, int, str, int, int, bytes]] = []
        self._highest: dict[tuple[int, str], int] = {}
        self._recent: dict[tuple[int, str], bytes] = {}
        self._last_offset: dict[tuple[int, str], int] = {}

    def apply(self, operations: Sequence[StoreOperation]) -> None:
        """Do the operations in their order. Raises StoreError before the first change, if at all."""
        check_operations(operations, self._bounds_of)
        for operation in operations:
            match operation:
                case AppendRows():
                    self._append(operation)
                case AcknowledgeLog(name=name, offset=offset):
                    head = self.head(name)
                    if offset > head.acknowledged_offset:
                        head.acknowledged_offset = offset
                        head.changed = True
                case ForgetPublishers(name=name, publishers=publishers):
                    self._forget_publishers(self.head(name), publishers)
                case KeepSecret(name=name, secret=secret):
                    self._connection.execute(
                        "UPDATE logs SET secret = ? WHERE log = ?", (secret, self.head(name).log)
                    )
                case KeepSubscribed(name=name):
                    self._connection.execute(
                        "UPDATE logs SET subscribed = 1 WHERE log = ?", (self.head(name).log,)
                    )
                case BeginEpoch(name=name, epoch=epoch):
                    self._begin_epoch(self.head(name), epoch)
                case DropRows(name=name, before_offset=before_offset):
                    self.drop(name, before_offset)
                case PinRows():
                    self._pin(operation)
                case CreateLog():
                    self._create(operation)
                case DeleteLog(name=name):
                    self._delete(name)
                case KeepNeighbour(broker_id=broker_id, address=address, key=key, met_at=met_at):
                    self._connection.execute(
                        "INSERT OR REPLACE INTO neighbours (broker_id, address, key, met_at, epoch, former)"
                        " VALUES (?, ?, ?, ?, ?, ?)",
                        (broker_id, address, key, met_at, operation.epoch, "\n".join(operation.former)),
                    )
                    self._connection.execute("DELETE FROM ended_links WHERE broker_id = ?", (broker_id,))
                case KeepStanding(broker_id=broker_id, epoch=epoch, key=key, neighbours=neighbours):
                    self._connection.execute("DELETE FROM standing")
                    self._connection.execute(
                        "INSERT INTO standing (broker_id, epoch, key, neighbours) VALUES (?, ?, ?, ?)",
                        (broker_id, epoch, key, "\n".join(f"{name} {at}" for name, at in neighbours)),
                    )
                case EndLink(broker_id=broker_id, epoch=epoch, place=place, address=address, dialled=dialled):
                    self._connection.execute(
                        "INSERT OR REPLACE INTO ended_links (broker_id, epoch, place, address, dialled)"
                        " VALUES (?, ?, ?, ?, ?)",
                        (broker_id, epoch, place, address, "\n".join(dialled)),
                    )
                case ForgetNeighbour(broker_id=broker_id):
                    self._connection.execute("DELETE FROM neighbours WHERE broker_id = ?", (broker_id,))

    def head(self, name: str) -> LogHead:
        """The numbers of a log that is there."""
        head = self._find(name)
        if head is None:
            raise unknown_log(name, "a change")
        return head

    def drop(self, name: str, before_offset: int) -> None:
        """Remove the rows below an offset, and count their bytes off."""
        head = self.head(name)
        if before_offset <= head.bounds.first_offset:
            return
        self._write_rows()  # the range may reach into rows that are still waiting here
        (dropped_bytes,) = self._connection.execute(
            "SELECT coalesce(sum(length(record)), 0) FROM log_rows WHERE log = ? AND row_offset < ?",
            (head.log, before_offset),
        ).fetchone()
        self._connection.execute(
            "DELETE FROM log_rows WHERE log = ? AND row_offset < ?", (head.log, before_offset)
        )
        head.bytes -= dropped_bytes
        head.bounds.first_offset = before_offset
        head.changed = True

    def drop_deleted(self, rows_max: int) -> int:
        """Remove rows that deleted logs left behind, and return how many; below `rows_max` it was all."""
        room = rows_max
        for (log,) in self._connection.execute("SELECT log FROM deleted_logs ORDER BY log").fetchall():
            cursor = self._connection.execute(
                """
                DELETE FROM log_rows WHERE rowid IN
                    (SELECT rowid FROM log_rows WHERE log = ? ORDER BY row_offset LIMIT ?)
                """,
                (log, room),
            )
            room -= cursor.rowcount
            if room == 0:
                break  # there may be more of this log
            self._connection.execute("DELETE FROM deleted_logs WHERE log = ?", (log,))
        return rows_max - room

    def finish(self) -> None:
        """Write what is still waiting here."""
        self._write_rows()
        self._connection.executemany(
            """
            UPDATE logs SET first_offset = ?, next_offset = ?, acknowledged_offset = ?, bytes = ?
            WHERE log = ?
            """,
            [
                (
                    head.bounds.first_offset,
                    head.bounds.next_offset,
                    head.acknowledged_offset,
                    head.bytes,
                    head.log,
                )
                for head in self._heads.values()
                if head is not None and head.changed
            ],
        )

    def _append(self, operation: AppendRows) -> None:
        head = self.head(operation.name)
        log, at_us, highest = head.log, operation.at_us, self._highest
        for offset, row in enumerate(operation.rows, operation.first_offset):
            self._rows.append((log, offset, row.publisher, row.sequence, at_us, row.record))
            head.bytes += len(row.record)
            key = (log, row.publisher)
            if row.sequence > highest.get(key, row.sequence - 1):
                highest[key] = row.sequence
            self._recent[key] = operation.recent
            self._last_offset[key] = offset
        head.bounds.next_offset += len(operation.rows)
        head.changed = True

    def _create(self, operation: CreateLog) -> None:
        cursor = self._connection.execute(
            """
            INSERT INTO logs (name, owner, filter_text, when_full, created_at_us,
                              first_offset, next_offset, acknowledged_offset, bytes, secret, id,
                              shard, shards, copies, origin)
            VALUES (?, ?, ?, ?, ?, ?, ?, ?, 0, ?, ?, ?, ?, ?, ?)
            """,
            (
                operation.name,
                operation.owner,
                operation.filter_text,
                operation.when_full,
                operation.created_at_us,
                operation.first_offset,
                operation.first_offset,
                NOTHING_ACKNOWLEDGED,
                operation.secret,
                operation.id,
                operation.shard,
                operation.shards,
                operation.copies,
                operation.origin,
            ),
        )
        log = cursor.lastrowid
        assert log is not None  # an INSERT into a table with row ids always has one
        bounds = LogBounds(operation.first_offset, operation.first_offset)
        self._heads[operation.name] = LogHead(log, bounds, NOTHING_ACKNOWLEDGED, 0, operation.when_full)

    def _pin(self, operation: PinRows) -> None:
        log = self.head(operation.name).log
        if operation.offset < 0:
            self._connection.execute(
                "DELETE FROM pins WHERE log = ? AND consumer = ?", (log, operation.consumer)
            )
            return
        self._connection.execute(
            "INSERT OR REPLACE INTO pins (log, consumer, row_offset, expires_at_us) VALUES (?, ?, ?, ?)",
            (log, operation.consumer, operation.offset, operation.expires_at_us),
        )

    def pins(self, head: LogHead) -> list[Pin]:
        """The pins of a log, in the order of their consumers."""
        found = self._connection.execute(
            "SELECT consumer, row_offset, expires_at_us FROM pins WHERE log = ? ORDER BY consumer",
            (head.log,),
        )
        return [Pin(*columns) for columns in found]

    def _forget_publishers(self, head: LogHead, publishers: Sequence[str]) -> None:
        self._write_rows()  # some of them may still be waiting here
        self._connection.executemany(
            "DELETE FROM highest WHERE log = ? AND publisher = ?",
            [(head.log, publisher) for publisher in publishers],
        )

    def _begin_epoch(self, head: LogHead, epoch: str) -> None:
        known = self._connection.execute(
            "SELECT epoch FROM epochs WHERE log = ? ORDER BY number", (head.log,)
        ).fetchall()
        if known and known[-1][0] == epoch:
            return
        self._connection.execute(
            "INSERT INTO epochs (log, epoch, first_offset) VALUES (?, ?, ?)",
            (head.log, epoch, head.bounds.next_offset),
        )
        if len(known) >= EPOCHS_MAX:
            self._connection.execute(
                """
                DELETE FROM epochs WHERE log = ? AND number NOT IN
                    (SELECT number FROM epochs WHERE log = ? ORDER BY number DESC LIMIT ?)
                """,
                (head.log, head.log, EPOCHS_MAX),
            )

    def _delete(self, name: str) -> None:
        log = self.head(name).log
        self._write_rows()
        for table in ("highest", "epochs", "pins", "logs"):
            self._connection.execute(f"DELETE FROM {table} WHERE log = ?", (log,))
        self._connection.execute("INSERT INTO deleted_logs (log) VALUES (?)", (log,))
        self._heads[name] = None

    def _write_rows(self) -> None:
        """Rows and the highest sequences they brought always go together."""
        self._connection.executemany(
            """
            INSERT INTO log_rows (log, row_offset, publisher, sequence, at_us, record)
            VALUES (?, ?, ?, ?, ?, ?)
            """,
            self._rows,
        )
        self._connection.executemany(
            """
            INSERT INTO highest (log, publisher, sequence, recent, last_offset) VALUES (?, ?, ?, ?, ?)
            ON CONFLICT (log, publisher)
            DO UPDATE SET sequence = max(sequence, excluded.sequence), recent = excluded.recent,
                          last_offset = excluded.last_offset
            """,
            [
                (*key, sequence, self._recent[key], self._last_offset[key])
                for key, sequence in self._highest.items()
            ],
        )
        self._rows.clear()
        self._highest.clear()
        self._recent.clear()
        self._last_offset.clear()

    def _bounds_of(self, name: str) -> LogBounds | None:
        head = self._find(name)
        return None if head is None else head.bounds

    def _find(self, name: str) -> LogHead | None:
        if name not in self._heads:
            found = self._connection.execute(
                """
                SELECT log, first_offset, next_offset, acknowledged_offset, bytes, when_full
                FROM logs WHERE name = ?
                """,
                (name,),
            ).fetchone()
            self._heads[name] = found and LogHead(found[0], LogBounds(found[1], found[2]), *found[3:])
        return self._heads[name]
