"""What can a machine ask of its durable store, and what will it find there after a restart?

A durable subscription is a *log*: rows under consecutive offsets from 0, an acknowledged offset that only
grows, and an oldest end that moves forward when rows are dropped:

    0 ... first_offset ... acknowledged_offset | ... next_offset - 1
    dropped    kept for replay                 |    still to be delivered

A machine asks for work with the operations below; a driver has a `Store` do it and reports back. One call of
`apply` is one step: all of its operations happen, or none.

The stores are in `braid.runtime.store` and, for simulations and tests, `braid.protocol.memory_store`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol, TypeAlias

from braid.errors import ConfigurationError, StoreError
from braid.protocol.kept_neighbours import EndLink, ForgetNeighbour, KeepNeighbour, KeepStanding

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from braid.protocol.packed_rows import PackedRead

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
    "KeepStanding",
    "KeepSubscribed",
    "LogBounds",
    "LogRow",
    "LogState",
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
    copies: int = 0
    """How many neighbours are to keep its rows, too; the store only remembers it, and so the next."""
    origin: str = ""
    """The broker whose log this is a copy of; empty for a log of one's own."""
    first_offset: int = 0
    """Where its first row will be: rows of a log that is elsewhere may have been dropped there."""


@dataclass(frozen=True, slots=True)
class KeepSecret:
    """Remember the digest of a secret for a log that had none."""

    name: str
    secret: str


@dataclass(frozen=True, slots=True)
class KeepSubscribed:
    """Remember that a subscriber reads a log: what it has not seen, only it acknowledges."""

    name: str


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
    | KeepSubscribed
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
    | KeepStanding
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
    """Per publisher which sequences below the highest are there (`SeenNumbers.packed`): publications that
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
    copies: int = 0
    origin: str = ""
    """The broker whose log this is a copy of; empty for a log of one's own."""
    subscribed: bool = False
    """Whether a subscriber ever read it."""


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
    replaced: tuple[tuple[str, int, tuple[str, ...]], ...] = ()
    """Neighbours whose names have gone to other processes, how often, and where former ones were dialled."""
    standing: KeepStanding | None = None
    """In whose place this machine runs, if in another one's."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Retention:
    """How much of a log is kept."""

    bytes_max: int = 1 << 30
    """Bytes of records one log may keep after a sweep. Higher: more to replay and more time for an absent
    reader, more disk. Beyond it the oldest rows go, and rows that were not acknowledged go too: that
    loses them. Not so where a log was made with `when_full="block"`, and never rows behind a pin."""
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

    def read_packed(self, name: str, first: int, last: int | None, bytes_max: int) -> PackedRead:
        """The same rows, or the first of them, as columns, with their first offset; None if there is none."""

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
        if isinstance(operation, KeepNeighbour | ForgetNeighbour | EndLink | KeepStanding):
            continue
        bounds = plan(operation.name)
        if isinstance(operation, CreateLog):
            if bounds is not None:
                raise StoreError(
                    f"log {operation.name!r} exists already; delete it first or use another name"
                )
            planned[operation.name] = LogBounds(operation.first_offset, operation.first_offset)
        elif bounds is None:
            raise unknown_log(operation.name, type(operation).__name__)
        elif isinstance(operation, DeleteLog):
            planned[operation.name] = None
        elif not isinstance(operation, BeginEpoch | ForgetPublishers | KeepSecret | KeepSubscribed | PinRows):
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
