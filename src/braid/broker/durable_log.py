"""Where does a durable subscription stand: what is in its log, who reads it, and who may?"""

from __future__ import annotations

import zlib
from collections import deque
from typing import TYPE_CHECKING

from braid.broker.settings import LOG_MEMORY_BYTES_MAX
from braid.errors import RequestRefusedError
from braid.language import Filter
from braid.protocol.batch import decode_record
from braid.protocol.duplicates import DuplicateFilter
from braid.protocol.epochs import EpochHistory
from braid.protocol.log import Retention
from braid.protocol.publisher_names import publisher_and_epoch

if TYPE_CHECKING:
    from collections.abc import Iterable

    from braid.broker.log_copies import CopyProgress
    from braid.broker.parties import Client
    from braid.protocol.log import LogRow, LogState, Pin
    from braid.protocol.messages import SubscribeDurable

__all__ = ["ROW_BYTES", "DurableLog", "log_key", "require_unread", "size_of"]

# What one row costs beside its record.
ROW_BYTES = 64


class DurableLog:
    """A durable subscription: where its log stands and who reads it."""

    def __init__(
        self, name: str, owner: str, filter: Filter, when_full: str, *, window: int, publishers_max: int
    ) -> None:
        self.name = name
        """As its owner calls it."""
        self.owner = owner
        self.key = log_key(owner, name)
        """As the store calls it: two owners may use the same name and never hear of each other."""
        self.id = ""
        """Unlike that of any other log, also of one that had this name before."""
        self.shard = 0
        self.shards = 1
        """Of so many logs with the same filter, this is that one: each has some of the publishers."""
        self.pins: dict[str, Pin] = {}
        """By consumer: rows that are kept because a reader may go back to them."""
        self.filter = filter
        """What it was made for. All its rows satisfy this."""
        self.permitted: Filter | None = filter
        """The part of it that its owner may hear at present, and so what is stored and sent; None: none."""
        self.secret = ""
        """The digest of the secret that an anonymous maker holds; empty where there is none."""
        self.when_full = when_full
        self.next_offset = 0
        self.first_offset = 0
        self.stored_end = 0
        """Rows before this are in the store."""
        self.safe_offset = 0
        """Rows before this are safely stored: here and, where copies are wanted, at the keeper."""
        self.copies = 0
        """How many neighbours are to keep the rows, too."""
        self.copying: CopyProgress | None = None
        """How far that is; None where no copies are wanted."""
        self.acknowledged = -1
        self.epochs = EpochHistory()
        """Which start of a broker appended which rows."""
        self.forgotten: list[str] = []
        """Publishers that are not remembered any more, and that the store is to forget."""
        self.stored = DuplicateFilter(
            publishers_max,
            window,
            when_forgotten=self.forgotten.append,
            bytes_max=LOG_MEMORY_BYTES_MAX,
        )
        """What is in the log, or was: what comes again is not stored again."""
        self.subscribed = False
        """Whether a client ever subscribed to it: then rows that it has not seen are not done with."""
        self.reader: Client | None = None
        self.reader_request = 0
        """The request with which it began to read."""
        self.next_to_send = 0
        self.unsettled_bytes = 0
        """Sent to the reader and not taken in by it."""
        self.reading = False
        self.tail: deque[tuple[int, LogRow]] = deque()
        self.tail_bytes = 0

    @classmethod
    def restored(cls, state: LogState, *, window: int, publishers_max: int) -> DurableLog:
        """A log as the store knows it."""
        log = cls(
            state.name.removeprefix(log_key(state.owner, "")),
            state.owner,
            Filter(state.filter_text),
            state.when_full,
            window=window,
            publishers_max=publishers_max,
        )
        log.first_offset, log.next_offset = state.first_offset, state.next_offset
        log.safe_offset = log.stored_end = state.next_offset
        log.copies = state.copies
        log.acknowledged = state.acknowledged_offset
        log.epochs = EpochHistory(state.epochs)
        log.secret = state.secret
        log.id = state.id
        log.shard, log.shards = state.shard, state.shards
        log.subscribed = state.subscribed
        log.pins = {pin.consumer: pin for pin in state.pins}
        for publisher, highest in state.highest.items():
            log.stored.recall(publisher, highest, state.recent.get(publisher))
        return log

    def wants(self, publisher: str) -> bool:
        """Whether this is the shard that keeps what a publisher publishes."""
        if self.shards == 1:
            return True
        # A name without its epoch, so that a publisher stays where it is when it starts again.
        return zlib.crc32(publisher_and_epoch(publisher)[0].encode()) % self.shards == self.shard

    def kept_from(self, now_us: int) -> int | None:
        """The offset from which on rows are not to go, however much there is; None where any may."""
        return Retention.kept_from(self.when_full, self.acknowledged, self.pins.values(), now_us)

    def permitted_rows(self, rows: Iterable[tuple[int, LogRow]]) -> list[tuple[int, LogRow]]:
        """Those of these rows that the owner may have at present."""
        permitted = self.permitted
        if permitted is None:
            return []
        if permitted is self.filter:
            return list(rows)
        return [
            (offset, row)
            for offset, row in rows
            if permitted.matches(decode_record(row.record, row.publisher, row.sequence).attributes)
        ]


def size_of(row: LogRow) -> int:
    """What a row takes of a window or a tail."""
    return len(row.record) + ROW_BYTES


def require_unread(message: SubscribeDurable) -> None:
    """Refuse a reader that knows rows of a log that is not here: it was with the process that had our name.

    To begin a log of the same name in silence would hide that rows are missing.

    Raises:
        RequestRefusedError: it knows some.
    """
    last = max(message.taken, message.resume_after)
    if last >= 0:
        raise RequestRefusedError(
            f"the log {message.name!r} was kept by the process that had this broker's name before, and is "
            f"not here. The last row that its reader knows has offset {last}: what came after it may be "
            "missing. Subscribe anew to begin another log",
            "lost",
        )


def log_key(owner: str, name: str) -> str:
    # A slash in an owner's name must not make it another owner with another log.
    return f"{owner.replace('%', '%25').replace('/', '%2F')}/{name}"
