"""Copies that this broker keeps of the logs of its neighbours.

A copy holds the rows of a log under their own offsets and epochs, and what the log remembers of publishers.
Its owner sends them piece by piece, and hears when each is on disk here. An owner that comes back without its
log, or another process in its name, gets all of it back (`lost_logs.py`).
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import quote

from braid.broker.log_pieces import appended, checked_head, checked_rows, piece_of
from braid.broker.settings import LOG_MEMORY_BYTES_MAX, OVERTAKING_MAX
from braid.broker.store_work import Word
from braid.protocol.copies import CopiesTold, CopyHead, CopyKept, CopyRows, CopySafe
from braid.protocol.duplicates import DuplicateFilter
from braid.protocol.epochs import EpochHistory
from braid.protocol.log import (
    AcknowledgeLog,
    CreateLog,
    DeleteLog,
    DropRows,
    ForgetPublishers,
    KeepSecret,
    KeepSubscribed,
)
from braid.protocol.seen_numbers import PACKED_MAX

if TYPE_CHECKING:
    from collections.abc import Iterator

    from braid.broker.events import LinkBegun, NeighbourGone
    from braid.broker.log_reading import LogReading
    from braid.broker.parties import Link
    from braid.broker.store_work import StoreWork
    from braid.broker.turn import Turn
    from braid.protocol.copies import CopyBegin, CopyDrop, CopyFetch, CopyMark
    from braid.protocol.inputs import LogRead
    from braid.protocol.log import LogState

__all__ = ["COPIES_MAX", "KeptCopies"]

# Copies that are kept for one neighbour, and logs that one gives back: as many as nobody needs.
COPIES_MAX = 10_000
# Digests are shorter.
SECRET_LENGTH_MAX = 256


class _Place(NamedTuple):
    """Which copy."""

    origin: str
    key: str


class _Copy:
    """The copy of one log."""

    __slots__ = (
        "acknowledged",
        "began",
        "epochs",
        "first",
        "forgotten",
        "name",
        "next",
        "secret",
        "seen",
        "subscribed",
        "wanted",
    )

    def __init__(self, name: str, began: CopyHead, publishers_max: int) -> None:
        self.name = name
        """As the store calls it."""
        self.began = began
        """What its owner said of the log at the beginning."""
        self.secret = began.secret
        self.subscribed = False
        self.first = self.next = began.first
        self.wanted = began.next
        """The offset behind the last row that the log had when it was begun here, or gone on with."""
        self.acknowledged = -1
        self.epochs = EpochHistory()
        self.forgotten: list[str] = []
        self.seen = DuplicateFilter(
            publishers_max,
            OVERTAKING_MAX,
            when_forgotten=self.forgotten.append,
            bytes_max=LOG_MEMORY_BYTES_MAX,
        )

    @property
    def head(self) -> CopyHead:
        """What it is like now."""
        began = self.began
        return CopyHead(
            began.key,
            began.id,
            began.owner,
            began.filter,
            began.when_full,
            self.secret,
            began.shard,
            began.shards,
            began.copies,
            self.first,
            self.next,
            self.acknowledged,
            list(self.epochs.entries),
            self.subscribed,
        )

    def begins(self, head: CopyHead) -> bool:
        """Whether all rows that are here are those of a log, which can go on where they end."""
        if head.id != self.began.id or not head.first <= self.next <= head.next:
            return False
        if self.first == self.next:
            return True
        return EpochHistory(head.epochs).common_end(self.epochs, head.next, self.next) == self.next


class KeptCopies:
    """Keeps them.

    Args:
        turn: where messages go.
        work: what is asked of the store.
        reading: reads from the store.
        kept: whether there is a store at all.
        publishers_max: how many publishers are remembered of each.
    """

    def __init__(
        self, turn: Turn, work: StoreWork, reading: LogReading, *, kept: bool, publishers_max: int
    ) -> None:
        self._turn = turn
        self._work = work
        self._reading = reading
        self._kept = kept
        self._publishers_max = publishers_max
        self._copies: dict[_Place, _Copy] = {}

    def __len__(self) -> int:
        return len(self._copies)

    def restore(self, state: LogState) -> None:
        """Go on with a copy that the store holds."""
        key = state.name.removeprefix(_name_of(state.origin, ""))
        head = CopyHead(
            key,
            state.id,
            state.owner,
            state.filter_text,
            state.when_full,
            state.secret,
            state.shard,
            state.shards,
            state.copies,
            state.first_offset,
            state.next_offset,
            state.acknowledged_offset,
            list(state.epochs),
            state.subscribed,
        )
        copy = self._copies[_Place(state.origin, key)] = _Copy(state.name, head, self._publishers_max)
        copy.next, copy.acknowledged = head.next, head.acknowledged
        copy.subscribed = head.subscribed
        copy.epochs = EpochHistory(head.epochs)
        for publisher, highest in state.highest.items():
            copy.seen.recall(publisher, highest, state.recent.get(publisher))

    # Neighbours come and go.

    def link_begun(self, event: LinkBegun) -> None:
        """A neighbour hears which of its logs are here."""
        for place, copy in self._copies.items():
            if place.origin == event.link.name:
                self._turn.tell(event.link, CopyKept(copy.head, max(0, copy.wanted - copy.next)))
        self._turn.tell(event.link, CopiesTold(self._kept))

    def gone(self, event: NeighbourGone) -> None:
        """A broker is no neighbour any more. If it has left, what was kept for it goes; if it is elsewhere
        in the tree, it is kept until another one has it (`left_copies.py`)."""
        if event.for_good:
            self.forget(event.link.name)

    def forget(self, origin: str) -> None:
        """What was kept for a broker goes."""
        for place in [place for place in self._copies if place.origin == origin]:
            self._end(place)

    def origins(self) -> set[str]:
        """The brokers whose logs are kept here."""
        return {place.origin for place in self._copies}

    def kept_for(self, origin: str) -> list[tuple[str, str, int, str]]:
        """Key and id of all copies for a broker, and offset and epoch where each ends."""
        return [
            (place.key, copy.began.id, copy.next, copy.epochs.at(copy.next - 1) if copy.next else "")
            for place, copy in self._copies.items()
            if place.origin == origin
        ]

    def release(self, origin: str, key: str, id: str) -> None:
        """A copy is not needed any more."""
        copy = self._copies.get(_Place(origin, key))
        if copy is not None and copy.began.id == id:
            self._end(_Place(origin, key))

    def violations(self) -> Iterator[str]:
        """What is wrong with it; nothing if all is well."""
        for place, copy in self._copies.items():
            if not (copy.first <= copy.next and copy.acknowledged < max(copy.next, copy.began.next)):
                yield (
                    f"the copy of {place.key} of {place.origin} has rows from {copy.first} to {copy.next}, "
                    f"and is acknowledged to {copy.acknowledged}"
                )
            if copy.began.key != place.key:
                yield f"the copy of {copy.began.key} is known as {place.key}"

    # What an owner says.

    def begin(self, link: Link, message: CopyBegin) -> None:
        """Keep a copy from now on, or go on with it."""
        head = checked_head(message.head)
        place = _Place(link.name, head.key)
        copy = self._copies.get(place)
        refusal = ""
        if not self._kept:
            refusal = "it keeps nothing on disk"
        elif copy is None and sum(each.origin == link.name for each in self._copies) >= COPIES_MAX:
            refusal = f"it keeps {COPIES_MAX:,} copies for that broker already"
        if refusal:
            self._turn.tell(link, CopySafe(head.key, head.id, -1, refusal))
            return
        if copy is not None and not copy.begins(head):
            self._end(place)
            copy = None
        if copy is None:
            copy = self._make(link.name, head)
        copy.wanted = head.next
        self._mark(copy, head.acknowledged, head.first, head.secret, subscribed=head.subscribed)
        self._tell_safe(link, copy)

    def rows(self, link: Link, message: CopyRows) -> None:
        """Further rows of a log."""
        copy = self._of(link, message.key, message.id)
        if copy is None:
            self._turn.tell(link, CopySafe(message.key, message.id, -1))
            return
        if message.first == copy.next:
            rows = checked_rows(message.rows)
            for operation in appended(
                copy.name, message.first, message.epoch, rows, copy.epochs, copy.seen, self._turn.now_us
            ):
                self._work.ask(operation)
            if copy.forgotten:
                self._work.ask(ForgetPublishers(copy.name, tuple(copy.forgotten)))
                copy.forgotten.clear()
            copy.next += len(rows)
        self._tell_safe(link, copy)

    def mark(self, link: Link, message: CopyMark) -> None:
        """So much is acknowledged, and so much is gone."""
        copy = self._of(link, message.key, message.id)
        if copy is not None:
            secret = message.secret[:SECRET_LENGTH_MAX]
            self._mark(copy, message.acknowledged, message.first, secret, subscribed=message.subscribed)

    def drop(self, link: Link, message: CopyDrop) -> None:
        """The log is no more, or is kept elsewhere."""
        if self._of(link, message.key, message.id) is not None:
            self._end(_Place(link.name, message.key))
        self._work.when_safe(Word(link, CopySafe(message.key, message.id, -1)))

    def fetch(self, link: Link, message: CopyFetch) -> None:
        """The owner has lost rows, and gets them back."""
        copy = self._of(link, message.key, message.id)
        if copy is None or not copy.first <= message.first < copy.next:
            self._turn.tell(link, CopySafe(message.key, message.id, -1))
            return

        then = partial(self._was_read, link, link.session, copy, message)
        self._reading.read(copy.name, message.first, copy.next - 1, then, packed=True)

    def _was_read(self, link: Link, session: int, copy: _Copy, message: CopyFetch, answer: LogRead) -> None:
        if link.session != session or self._of(link, message.key, message.id) is not copy:
            return
        piece = piece_of(answer, message.first, copy.epochs, link, publisher_bytes=PACKED_MAX)
        if piece is None:
            reason = answer.error or "rows are missing"
            self._turn.note("error", "a copy could not be read", log=copy.name, reason=reason)
            self._turn.tell(link, CopySafe(message.key, message.id, -1, reason))
            return
        epoch, rows = piece
        memory = [
            (publisher, *copy.seen.packed(publisher))
            for publisher in rows.publishers
            if copy.seen.highest(publisher) is not None
        ]
        self._turn.tell(link, CopyRows(message.key, message.id, message.first, epoch, rows, memory))

    # What the store does.

    def removed(self, name: str, first_offset: int) -> None:
        """The store has removed the rows of a log before an offset."""
        for copy in self._copies.values():
            if copy.name == name:
                copy.first = max(copy.first, first_offset)

    def _of(self, link: Link, key: str, id: str) -> _Copy | None:
        copy = self._copies.get(_Place(link.name, key))
        return copy if copy is not None and copy.began.id == id else None

    def _make(self, origin: str, head: CopyHead) -> _Copy:
        name = _name_of(origin, head.key)
        copy = self._copies[_Place(origin, head.key)] = _Copy(name, head, self._publishers_max)
        self._work.ask(
            CreateLog(
                name,
                head.owner,
                head.filter,
                head.when_full,
                self._turn.now_us,
                head.secret,
                head.id,
                head.shard,
                head.shards,
                head.copies,
                origin,
                head.first,
            )
        )
        return copy

    def _mark(self, copy: _Copy, acknowledged: int, first: int, secret: str, *, subscribed: bool) -> None:
        acknowledged, first = min(acknowledged, copy.next - 1), min(first, copy.next)
        if acknowledged > copy.acknowledged:
            copy.acknowledged = acknowledged
            self._work.ask(AcknowledgeLog(copy.name, acknowledged))
        if first > copy.first:
            copy.first = first
            self._work.ask(DropRows(copy.name, first))
        if secret != copy.secret:
            copy.secret = secret
            self._work.ask(KeepSecret(copy.name, secret))
        if subscribed and not copy.subscribed:
            copy.subscribed = True
            self._work.ask(KeepSubscribed(copy.name))

    def _end(self, place: _Place) -> None:
        self._work.ask(DeleteLog(self._copies.pop(place).name))

    def _tell_safe(self, link: Link, copy: _Copy) -> None:
        self._work.when_safe(Word(link, CopySafe(copy.began.key, copy.began.id, copy.next)))


def _name_of(origin: str, key: str) -> str:
    """What the store calls a copy: no log of a broker's own begins with a slash."""
    return f"/{quote(origin, safe='')}/{key}"
