"""A store that keeps logs and neighbours in memory.

For simulations and embedded use, and as the plain twin with which the SQLite store is compared.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeAlias

from braid.protocol.epochs import EpochHistory
from braid.protocol.kept_neighbours import EndLink, ForgetNeighbour, KeepNeighbour, KeepStanding
from braid.protocol.log import (
    NOTHING_ACKNOWLEDGED,
    SWEEP_ROWS_MAX,
    AcknowledgeLog,
    AppendRows,
    BeginEpoch,
    CreateLog,
    DeleteLog,
    DropRows,
    ForgetPublishers,
    KeepSecret,
    KeepSubscribed,
    LogBounds,
    LogRow,
    LogState,
    Pin,
    PinRows,
    Retention,
    StoreState,
    Sweep,
    SweptLog,
    check_operations,
    check_read,
    unknown_log,
)
from braid.protocol.packed_rows import PackedRead, packed_read

if TYPE_CHECKING:
    from collections.abc import Sequence

    from braid.protocol.log import StoreOperation

__all__ = ["MemoryStore"]

# A field below is called `bytes`.
Bits: TypeAlias = bytes


@dataclass(slots=True)
class _MemoryLog:
    created: CreateLog
    bounds: LogBounds
    acknowledged_offset: int = NOTHING_ACKNOWLEDGED
    highest: dict[str, int] = field(default_factory=dict)
    recent: dict[str, Bits] = field(default_factory=dict)
    epochs: EpochHistory = field(default_factory=EpochHistory)
    secret: str = ""
    subscribed: bool = False
    pins: dict[str, Pin] = field(default_factory=dict)
    rows: list[tuple[int, LogRow]] = field(default_factory=list)
    """The kept rows, each with its time; the first one has the offset `bounds.first_offset`."""

    def append(self, operation: AppendRows) -> None:
        for row in operation.rows:
            self.rows.append((operation.at_us, row))
            # The latest last, as in `LogState`.
            self.highest[row.publisher] = max(row.sequence, self.highest.pop(row.publisher, row.sequence))
            if operation.recent:
                self.recent[row.publisher] = operation.recent
        self.bounds.next_offset += len(operation.rows)

    def drop(self, before_offset: int) -> None:
        count = max(0, before_offset - self.bounds.first_offset)
        del self.rows[:count]
        self.bounds.first_offset += count

    def bytes(self) -> int:
        return sum(len(row.record) for _, row in self.rows)

    def state(self) -> LogState:
        return LogState(
            self.created.name,
            self.created.owner,
            self.created.filter_text,
            self.created.when_full,
            self.bounds.first_offset,
            self.bounds.next_offset,
            self.acknowledged_offset,
            dict(self.highest),
            self.bytes(),
            self.created.created_at_us,
            dict(self.recent),
            tuple(self.epochs.entries),
            self.secret or self.created.secret,
            self.created.id,
            tuple(self.pins[consumer] for consumer in sorted(self.pins)),
            self.created.shard,
            self.created.shards,
            self.created.copies,
            self.created.origin,
            self.subscribed,
        )


class MemoryStore:
    """A `Store` that forgets everything when it goes."""

    def __init__(self, *, retention: Retention | None = None, secret: str = "") -> None:
        self._retention = retention or Retention()
        self._secret = secret
        self._logs: dict[str, _MemoryLog] = {}
        self._neighbours: dict[str, KeepNeighbour] = {}
        self._ended: dict[str, EndLink] = {}
        self._standing: KeepStanding | None = None

    def apply(self, operations: Sequence[StoreOperation]) -> None:
        """Do all operations in their order, or none of them."""
        check_operations(operations, lambda name: self._logs[name].bounds if name in self._logs else None)
        for operation in operations:
            match operation:
                case CreateLog(name=name):
                    first = operation.first_offset
                    self._logs[name] = _MemoryLog(operation, LogBounds(first, first))
                case DeleteLog(name=name):
                    del self._logs[name]
                case AppendRows(name=name):
                    self._logs[name].append(operation)
                case KeepSecret(name=name, secret=secret):
                    self._logs[name].secret = secret
                case KeepSubscribed(name=name):
                    self._logs[name].subscribed = True
                case ForgetPublishers(name=name, publishers=publishers):
                    for publisher in publishers:
                        self._logs[name].highest.pop(publisher, None)
                        self._logs[name].recent.pop(publisher, None)
                case BeginEpoch(name=name, epoch=epoch):
                    log = self._logs[name]
                    log.epochs.begin(epoch, log.bounds.next_offset)
                case AcknowledgeLog(name=name, offset=offset):
                    log = self._logs[name]
                    log.acknowledged_offset = max(log.acknowledged_offset, offset)
                case DropRows(name=name, before_offset=before_offset):
                    self._logs[name].drop(before_offset)
                case PinRows(name=name, consumer=consumer, offset=offset, expires_at_us=expires_at_us):
                    self._logs[name].pins.pop(consumer, None)
                    if offset >= 0:
                        self._logs[name].pins[consumer] = Pin(consumer, offset, expires_at_us)
                case KeepNeighbour(broker_id=broker_id):
                    self._neighbours[broker_id] = operation
                    self._ended.pop(broker_id, None)
                case EndLink(broker_id=broker_id):
                    self._ended[broker_id] = operation
                case ForgetNeighbour(broker_id=broker_id):
                    self._neighbours.pop(broker_id, None)
                case KeepStanding():
                    self._standing = operation

    def read(
        self, name: str, first_offset: int, last_offset: int | None, bytes_max: int
    ) -> list[tuple[int, LogRow]]:
        """Rows of a range that are still kept; see `Store.read`."""
        check_read(name, first_offset, bytes_max)
        log = self._logs.get(name)
        if log is None:
            raise unknown_log(name, "reading")
        end = log.bounds.next_offset if last_offset is None else min(last_offset + 1, log.bounds.next_offset)
        found: list[tuple[int, LogRow]] = []
        room = bytes_max
        for offset in range(max(first_offset, log.bounds.first_offset), end):
            row = log.rows[offset - log.bounds.first_offset][1]
            room -= len(row.record)
            if room < 0 and found:
                break
            found.append((offset, row))
        return found

    def read_packed(self, name: str, first: int, last: int | None, bytes_max: int) -> PackedRead:
        """The same rows as columns; see `Store.read_packed`."""
        return packed_read(self.read(name, first, last, bytes_max))

    def state(self) -> StoreState:
        """All logs and neighbours."""
        kept_neighbours = sorted(self._neighbours.items())
        return StoreState(
            tuple(self._logs[name].state() for name in sorted(self._logs)),
            tuple((name, kept.address) for name, kept in kept_neighbours),
            tuple((name, kept.key) for name, kept in kept_neighbours if kept.key),
            tuple((name, kept.met_at) for name, kept in kept_neighbours if kept.met_at),
            self._secret,
            tuple(ended for _, ended in sorted(self._ended.items())),
            tuple((name, kept.epoch, kept.former) for name, kept in kept_neighbours if kept.epoch),
            self._standing,
        )

    def sweep(self, now_us: int, rows_max: int = SWEEP_ROWS_MAX) -> Sweep:
        """Remove what the retention no longer keeps; see `Store.sweep`."""
        oldest_at_us = self._retention.oldest_at_us(now_us)
        swept = []
        room, finished = rows_max, True
        for name in sorted(self._logs):
            log = self._logs[name]
            excess = log.bytes() - self._retention.bytes_max
            cut = start = log.bounds.first_offset
            kept_from = self._retention.kept_from(
                log.created.when_full, log.acknowledged_offset, log.pins.values(), now_us
            )
            for at_us, row in log.rows:
                if kept_from is not None and cut >= kept_from:
                    break
                acknowledged = cut <= log.acknowledged_offset
                too_old = acknowledged and oldest_at_us is not None and at_us < oldest_at_us
                if not too_old and excess <= 0:
                    break
                if room == 0:
                    finished = False
                    break
                room -= 1
                excess -= len(row.record)
                cut += 1
            if cut > start:
                log.drop(cut)
                acknowledged_count = max(0, min(cut, log.acknowledged_offset + 1) - start)
                swept.append(SweptLog(name, cut, acknowledged_count, cut - start - acknowledged_count))
        return Sweep(tuple(swept), finished)
