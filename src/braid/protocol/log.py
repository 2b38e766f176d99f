"""What can a machine ask of its durable store, and what will it find there after a restart?

A durable subscription is a *log*: rows under consecutive offsets from 0, an acknowledged offset that only
grows, and an oldest end that moves forward when rows are dropped:

    0 ... first_offset ... acknowledged_offset | ... next_offset - 1
    dropped    kept for replay                 |    still to be delivered

A machine asks for work with the operations below; a driver has a `Store` do it and reports back. One call of
`apply` is one step: all of its operations happen, or none.

`MemoryStore` keeps everything in memory: for simulations and embedded use, and as the plain twin with which
the SQLite store is compared.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol, TypeAlias

from braid.errors import ConfigurationError, StoreError
from braid.protocol.epochs import EpochHistory
from braid.protocol.kept_neighbours import EndLink, ForgetNeighbour, KeepNeighbour

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

__all__ = [
    "NOTHING_ACKNOWLEDGED",
    "SWEEP_ROWS_MAX",
    "AcknowledgeLog",
    "AppendRows",
    "BeginEpoch",
    "CreateLog",
    "DeleteLog",
    "DropRows",
    "EndLink",
    "ForgetNeighbour",
    "ForgetPublishers",
    "KeepNeighbour",
    "KeepSecret",
    "LogBounds",
    "LogRow",
    "LogState",
    "MemoryStore",
    "Pin",
    "PinRows",
    "Retention",
    "Store",
    "StoreOperation",
    "StoreState",
    "Sweep",
    "SweptLog",
    "check_operations",
    "check_read",
    "unknown_log",
]

# The acknowledged offset of a log of which nothing has been acknowledged.
NOTHING_ACKNOWLEDGED = -1

# Rows one sweep removes: some tenth of a second of work on disk, so that other work is not kept waiting.
SWEEP_ROWS_MAX = 20_000

MICROSECONDS_PER_SECOND = 1_000_000


@dataclass(frozen=True, slots=True)
class LogRow:
    """One publication in a log."""

    publisher: str
    sequence: int
    """Together with the publisher, the publication's id. It fits in 64 bits with a sign."""
    record: bytes
    """The publication as it travels in a batch; the store never looks inside."""


@dataclass(frozen=True, slots=True)
class CreateLog:
    """Start an empty log."""

    name: str
    owner: str
    filter_text: str
    when_full: str
    """What its owner chose for the case that the log is full; the store only remembers it."""
    created_at_us: int
    secret: str = ""
    """The digest of the secret that its maker holds; empty where there is none."""
    id: str = ""
    """Another one for every log, also for one that takes the name of one that was deleted."""
    shard: int = 0
    shards: int = 1
    """Of so many logs with the same filter it is that one; the store only remembers it."""


@dataclass(frozen=True, slots=True)
class KeepSecret:
    """Remember the digest of a secret for a log that had none."""

    name: str
    secret: str


@dataclass(frozen=True, slots=True)
class DeleteLog:
    """Forget a log with its rows and its memory of sequence numbers."""

    name: str


@dataclass(frozen=True, slots=True)
class AppendRows:
    """Put rows at the end of a log."""

    name: str
    first_offset: int
    """Where the asker believes the end is. If it is elsewhere, the operation fails."""
    rows: Sequence[LogRow]
    at_us: int
    """Wall-clock time: ages are counted across restarts."""
    recent: bytes = b""
    """Which of the last sequences, up to the highest, are in the log by now (`LogState.recent`). All rows are
    then of one publisher."""


@dataclass(frozen=True, slots=True)
class ForgetPublishers:
    """Forget which sequences of these publishers a log has."""

    name: str
    publishers: Sequence[str]


@dataclass(frozen=True, slots=True)
class BeginEpoch:
    """Rows that are appended from now on are of this epoch (see `braid.protocol.epochs`)."""

    name: str
    epoch: str


@dataclass(frozen=True, slots=True)
class AcknowledgeLog:
    """Everything up to and including `offset` has been dealt with.

    A lower offset than before changes nothing.
    """

    name: str
    offset: int


@dataclass(frozen=True, slots=True)
class DropRows:
    """Remove the rows below `before_offset`, acknowledged or not. The acknowledged offset stays as it is.

    So a reader whose rows were dropped unseen can be told: `first_offset` is beyond what it acknowledged.
    """

    name: str
    before_offset: int


@dataclass(frozen=True, slots=True)
class PinRows:
    """No sweep removes the rows from `offset` on before the pin expires; -1 takes the pin away."""

    name: str
    consumer: str
    """Each has one pin."""
    offset: int
    expires_at_us: int


StoreOperation: TypeAlias = (
    CreateLog
    | KeepSecret
    | DeleteLog
    | AppendRows
    | ForgetPublishers
    | BeginEpoch
    | AcknowledgeLog
    | DropRows
    | PinRows
    | KeepNeighbour
    | ForgetNeighbour
    | EndLink
)


# A field below is called `bytes`.
Bits: TypeAlias = bytes


@dataclass(frozen=True, slots=True)
class Pin:
    """Rows that a consumer may still ask for: those from `offset` on."""

    consumer: str
    offset: int
    expires_at_us: int


@dataclass(frozen=True, slots=True)
class LogState:
    """A log without its rows."""

    name: str
    owner: str
    filter_text: str
    when_full: str
    first_offset: int
    """The oldest row that is kept, or `next_offset` when there is none."""
    next_offset: int
    acknowledged_offset: int
    """`NOTHING_ACKNOWLEDGED` at first. It may be below `first_offset - 1`: then rows were dropped unseen."""
    highest: dict[str, int]
    """Per publisher the highest sequence ever appended, so that what is sent again is recognised; the one
    with the latest row last."""
    bytes: int
    """The records that are kept, without what the store needs around them."""
    created_at_us: int = 0
    recent: dict[str, Bits] = field(default_factory=dict)
    """Per publisher a bit for each sequence down from the highest, the lowest bit first: publications that
    took different ways may come out of order. Without it, all up to the highest are taken to be there."""
    epochs: tuple[tuple[str, int], ...] = ()
    """The epochs of its rows, each with the offset at which it began, oldest first."""
    secret: str = ""
    """The digest of its maker's secret; empty where there is none."""
    id: str = ""
    pins: tuple[Pin, ...] = ()
    """In the order of their consumers, expired ones included."""
    shard: int = 0
    shards: int = 1


@dataclass(frozen=True, slots=True)
class StoreState:
    """Everything a machine needs to know when it starts."""

    logs: tuple[LogState, ...]
    """In the order of their names."""
    neighbours: tuple[tuple[str, str], ...]
    """Broker id and address, in the order of the ids."""
    keys: tuple[tuple[str, str], ...] = ()
    """Of those neighbours that have given one, in the same order."""
    met_at: tuple[tuple[str, str], ...] = ()
    """Where neighbours were met, in the same order."""
    secret: str = ""
    """What the machine's own keys are made from; empty where a store keeps none."""
    ended: tuple[EndLink, ...] = ()
    """The links that operations have ended, in the order of the ids."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Retention:
    """How much of a log is kept."""

    bytes_max: int = 1 << 30
    """Bytes of records one log may keep after a sweep. Higher: more to replay and more time for an absent
    reader, more disk. Beyond it the oldest rows go, and rows nobody acknowledged go too: that loses them. Not
    so where a log was made with `when_full="block"`, and never rows behind a pin."""
    age_s_max: float | None = 7 * 24 * 3600.0
    """Seconds an acknowledged row is kept for replay; None for as long as there is room, 0 until the next
    sweep. Higher: longer replays, more disk. Age alone never removes a row that was not acknowledged."""

    def __post_init__(self) -> None:
        if self.bytes_max < 1:
            raise ConfigurationError(f"retention: bytes_max is {self.bytes_max}; a log needs at least 1 byte")
        if self.age_s_max is not None and not self.age_s_max >= 0:
            raise ConfigurationError(
                f"retention: age_s_max is {self.age_s_max}; give seconds from 0, or None for no limit"
            )

    def oldest_at_us(self, now_us: int) -> int | None:
        """Acknowledged rows from before this time are too old; None when no row ever is."""
        if self.age_s_max is None or self.age_s_max == float("inf"):
            return None
        return now_us - int(self.age_s_max * MICROSECONDS_PER_SECOND)

    @staticmethod
    def kept_from(when_full: str, acknowledged: int, pins: Iterable[Pin], now_us: int) -> int | None:
        """The offset from which on no sweep may take rows of a log; None where any may go."""
        pinned = [pin.offset for pin in pins if pin.expires_at_us > now_us]
        if when_full == "block":
            pinned.append(acknowledged + 1)
        return min(pinned, default=None)


@dataclass(frozen=True, slots=True)
class SweptLog:
    """What a sweep removed from one log."""

    name: str
    first_offset: int
    """The oldest row that is left, or the next offset when none is."""
    acknowledged: int
    unacknowledged: int
    """Rows that were lost to their reader."""


@dataclass(frozen=True, slots=True)
class Sweep:
    """What a sweep removed."""

    logs: tuple[SweptLog, ...]
    """Those that lost rows, in the order of their names."""
    finished: bool
    """False when there is more to remove than one sweep may: sweep again soon."""


class Store(Protocol):
    """What keeps logs and neighbours. Every method raises `StoreError` when it cannot do its work."""

    def apply(self, operations: Sequence[StoreOperation]) -> None:
        """Do all operations in their order, or none of them."""

    def read(
        self, name: str, first_offset: int, last_offset: int | None, bytes_max: int
    ) -> list[tuple[int, LogRow]]:
        """Rows from `first_offset` to `last_offset` (inclusive; None for the end) that are still kept.

        It stops before `bytes_max` bytes of records are exceeded, but a first row is always returned, so a
        reader makes progress. A first offset above the asked one means that the rows between were dropped.
        """

    def state(self) -> StoreState:
        """All logs and neighbours."""

    def sweep(self, now_us: int, rows_max: int = SWEEP_ROWS_MAX) -> Sweep:
        """Remove what the retention no longer keeps, but at most so many rows.

        Acknowledged rows go when they are too old. While a log is above its bytes, its oldest rows go:
        acknowledged ones as long as there are any, since they are the oldest, and then the others. Rows that
        `Retention.kept_from` names stay, whatever their age and size.
        """


@dataclass(slots=True)
class LogBounds:
    """Where a log begins and ends."""

    first_offset: int = 0
    next_offset: int = 0


def check_operations(
    operations: Sequence[StoreOperation], bounds_of: Callable[[str], LogBounds | None]
) -> None:
    """Raise `StoreError` for the first operation that cannot be done after those before it.

    `bounds_of` tells of a log before the first operation, or None if there is no such log. Stores call this
    before they change anything: what it lets pass cannot fail for a reason of meaning.
    """
    planned: dict[str, LogBounds | None] = {}

    def plan(name: str) -> LogBounds | None:
        if name not in planned:
            current = bounds_of(name)
            planned[name] = current and LogBounds(current.first_offset, current.next_offset)
        return planned[name]

    for operation in operations:
        if isinstance(operation, KeepNeighbour | ForgetNeighbour | EndLink):
            continue
        bounds = plan(operation.name)
        if isinstance(operation, CreateLog):
            if bounds is not None:
                raise StoreError(
                    f"log {operation.name!r} exists already; delete it first or use another name"
                )
            planned[operation.name] = LogBounds()
        elif bounds is None:
            raise unknown_log(operation.name, type(operation).__name__)
        elif isinstance(operation, DeleteLog):
            planned[operation.name] = None
        elif not isinstance(operation, BeginEpoch | ForgetPublishers | KeepSecret | PinRows):
            _check_offset(operation, bounds)


def _check_offset(operation: AppendRows | AcknowledgeLog | DropRows, bounds: LogBounds) -> None:
    """Check an operation on a log that exists, and move its planned bounds."""
    if isinstance(operation, AppendRows):
        if operation.first_offset != bounds.next_offset:
            raise StoreError(
                f"log {operation.name!r}: rows were to be appended at offset {operation.first_offset}, "
                f"but its next offset is {bounds.next_offset}; read the state of the store again"
            )
        bounds.next_offset += len(operation.rows)
    elif isinstance(operation, AcknowledgeLog):
        if not NOTHING_ACKNOWLEDGED <= operation.offset < bounds.next_offset:
            raise StoreError(
                f"log {operation.name!r}: cannot acknowledge offset {operation.offset}, "
                f"since its next offset is {bounds.next_offset}"
            )
    elif 0 <= operation.before_offset <= bounds.next_offset:
        bounds.first_offset = max(bounds.first_offset, operation.before_offset)
    else:
        raise StoreError(
            f"log {operation.name!r}: cannot drop rows before offset {operation.before_offset}, "
            f"since its next offset is {bounds.next_offset}"
        )


def check_read(name: str, first_offset: int, bytes_max: int) -> None:
    """Raise `StoreError` for a range that no log can have."""
    if first_offset < 0 or bytes_max < 1:
        raise StoreError(
            f"log {name!r}: cannot read from offset {first_offset} with at most {bytes_max} bytes; "
            "offsets start at 0 and at least 1 byte is needed"
        )


def unknown_log(name: str, wish: str) -> StoreError:
    """The error for a log that is not there."""
    return StoreError(f"there is no log {name!r} for {wish}; create it first")


@dataclass(slots=True)
class _MemoryLog:
    created: CreateLog
    bounds: LogBounds = field(default_factory=LogBounds)
    acknowledged_offset: int = NOTHING_ACKNOWLEDGED
    highest: dict[str, int] = field(default_factory=dict)
    recent: dict[str, Bits] = field(default_factory=dict)
    epochs: EpochHistory = field(default_factory=EpochHistory)
    secret: str = ""
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
        )


class MemoryStore:
    """A `Store` that forgets everything when it goes."""

    def __init__(self, *, retention: Retention | None = None, secret: str = "") -> None:
        self._retention = retention or Retention()
        self._secret = secret
        self._logs: dict[str, _MemoryLog] = {}
        self._neighbours: dict[str, KeepNeighbour] = {}
        self._ended: dict[str, EndLink] = {}

    def apply(self, operations: Sequence[StoreOperation]) -> None:
        """Do all operations in their order, or none of them."""
        check_operations(operations, lambda name: self._logs[name].bounds if name in self._logs else None)
        for operation in operations:
            match operation:
                case CreateLog(name=name):
                    self._logs[name] = _MemoryLog(operation)
                case DeleteLog(name=name):
                    del self._logs[name]
                case AppendRows(name=name):
                    self._logs[name].append(operation)
                case KeepSecret(name=name, secret=secret):
                    self._logs[name].secret = secret
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

    def state(self) -> StoreState:
        """All logs and neighbours."""
        return StoreState(
            tuple(self._logs[name].state() for name in sorted(self._logs)),
            tuple((name, kept.address) for name, kept in sorted(self._neighbours.items())),
            tuple((name, kept.key) for name, kept in sorted(self._neighbours.items()) if kept.key),
            tuple((name, kept.met_at) for name, kept in sorted(self._neighbours.items()) if kept.met_at),
            self._secret,
            tuple(ended for _, ended in sorted(self._ended.items())),
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
