"""The inbox of a client: which subscription gets what arrives, and which frames are settled.

The broker sends each publication once per delivery class, and the client hands it to the subscriptions that
want it. Each has a bounded queue. Where the consumer chose to block, rows that find no room wait behind the
queue; a frame is settled when none of its rows, nor of any before it, waits. While rows wait the broker gets
no further credit, so what waits is bounded by the window that was granted to it.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any, Final

from braid.client.stored import ReplayWish, StoredPublication, StoredRecords
from braid.errors import RemoteProtocolError, SlowConsumerError
from braid.matching import FilterIndex
from braid.protocol.batch import decode_record
from braid.protocol.duplicates import DuplicateFilter
from braid.protocol.epochs import EpochHistory
from braid.protocol.incoming import STREAM_FIRST, STREAMS_MAX
from braid.protocol.publisher_names import whole_name

if TYPE_CHECKING:
    from braid.errors import BraidError
    from braid.language.filters import Filter
    from braid.language.publication import Publication
    from braid.protocol.batch import PublicationBatch
    from braid.protocol.messages import LogReset, StoredPublications
    from braid.protocol.packed_rows import PackedRows

__all__ = [
    "BLOCK",
    "CLASSES",
    "DISCONNECT",
    "DROP_OLDEST",
    "Inbox",
    "Interest",
]

# What was delivered is remembered, because a broker that was killed may send it again: of so many publishers
# the last so many numbers, in a bit each.
SEEN_PUBLISHERS_MAX: Final = 4096
SEEN_WINDOW: Final = 8192

BLOCK: Final = 1
DROP_OLDEST: Final = 2
DISCONNECT: Final = 3
CLASSES: Final = {"block": BLOCK, "drop_oldest": DROP_OLDEST, "disconnect": DISCONNECT}


class _Hold:
    """A frame of which some rows found no room yet."""

    __slots__ = ("frame", "rows", "size")

    def __init__(self, frame: int, size: int) -> None:
        self.frame = frame
        self.rows = 0
        self.size = size


class Interest:
    """A subscription, durable subscription or replay, and what is queued for its consumer.

    Whoever reads takes from `queue`, counts in `delivered`, and says so to the session where `crowded`.
    """

    __slots__ = (
        "acknowledged_offset",
        "capacity",
        "confirmed",
        "copies",
        "delivered",
        "dormant",
        "dropped",
        "durable",
        "effective",
        "epochs",
        "failure",
        "filter",
        "handed_offset",
        "line",
        "missing",
        "number",
        "open",
        "partial",
        "patience_us",
        "queue",
        "reader",
        "replay",
        "replay_request",
        "replayed",
        "replayed_rows",
        "request",
        "resets",
        "secret",
        "seen",
        "separating",
        "stream",
        "takeover",
        "was_apart",
        "when_full",
    )

    def __init__(self, number: int, filter: Filter | None, when_full: str, capacity: int) -> None:
        self.number = number
        self.filter = filter
        """What was asked for; None where the log's own filter stays."""
        self.effective = filter
        """What the broker granted, once it answered: perhaps less."""
        self.when_full = when_full
        self.capacity = capacity
        self.queue: deque[Any] = deque()
        """Publications, or `StoredRecords` for those who asked for them."""
        self.line: deque[tuple[_Hold, deque[Any]]] = deque()
        self.open = True
        self.partial = False
        """Whether an answer that does not cover links that are down is welcome."""
        self.patience_us = 0
        """How long the broker is to wait for such links."""
        self.missing: tuple[str, ...] = ()
        """Those that it does not cover, as was last answered."""
        self.confirmed = False
        self.failure: BraidError | None = None
        self.request = 0
        """The request that it was made with."""
        self.delivered = 0
        self.dropped = 0
        self.stream = 0
        """The class that it has for itself since it fell behind others; 0 while it shares theirs."""
        self.separating = 0
        """The request for such a class."""
        self.was_apart = False
        """Whether it ever had one: then it remembers for itself what has come."""
        self.dormant = False
        """Whether the broker does not know of it until what waits has been read."""
        # Only for those that read a log.
        self.durable = ""
        self.secret = ""
        """What is shown to a broker to which we are anonymous."""
        self.copies = 0
        """How many neighbours of the broker are to keep the rows of its log, too."""
        self.takeover = False
        """Whether another client that reads the log is to stop. Only once: whoever loses it later, has."""
        self.acknowledged_offset = -1
        self.handed_offset = -1
        self.reader = 0
        """The request with which a log is read on this connection; 0 for a replay."""
        """The highest offset that came into the queue or waits behind it."""
        self.epochs = EpochHistory()
        """The epochs of the rows up to `handed_offset`, as far as they came here."""
        self.resets = 0
        """How often the log turned out not to have the rows that were read from it."""
        self.seen = _memory()
        """What came of a log, or in a class of its own. A log may have something twice, at two offsets."""
        self.replay_request = 0
        self.replay = ReplayWish(0, -1)
        self.replayed = ""
        """What the broker answered at the end of a replay, as JSON."""
        self.replayed_rows = 0
        """Rows that came since the replay was last asked for."""

    @property
    def target(self) -> int:
        """The class of publications that are for it."""
        return self.stream or CLASSES[self.when_full]

    @property
    def blocks(self) -> bool:
        """Whether rows may wait behind its queue because its consumer chose so, and not because of a log."""
        return self.when_full == "block" and not self.durable

    @property
    def crowded(self) -> bool:
        """Rows wait behind the queue, and there is room enough to make moving them worth while."""
        return bool(self.line) and 2 * len(self.queue) <= self.capacity

    @property
    def waiting(self) -> int:
        """Rows behind the queue."""
        return sum(len(rows) for _, rows in self.line)

    def put(self, publications: list[Any], hold: _Hold) -> None:
        """Queue what there is room for, and treat the rest as the consumer chose."""
        room = self.capacity - len(self.queue)
        # With a log, the choice is about the log; what it sends is never lost here.
        when_full = "block" if self.durable else self.when_full
        if len(publications) <= room and not self.line:
            self.queue.extend(publications)
        elif when_full == "drop_oldest":
            excess = len(publications) - room
            self.dropped += excess
            for _ in range(min(excess, len(self.queue))):
                self.queue.popleft()
            self.queue.extend(publications[-self.capacity :])
        elif when_full == "disconnect":
            self.queue.extend(publications[:room])
            self.dropped += len(publications) - room
            self.open = False
            self.failure = SlowConsumerError(
                f"the subscription was ended: its queue of {self.capacity} was full when "
                f"{len(publications) - room} more arrived, and it was made with when_full='disconnect'; read "
                "faster or ask for a larger queue_size"
            )
        else:
            room = 0 if self.line else room
            self.queue.extend(publications[:room])
            self.line.append((hold, deque(publications[room:])))
            hold.rows += len(publications) - room

    def move_up(self) -> None:
        """Fill the queue from what waits behind it."""
        while self.line and len(self.queue) < self.capacity:
            hold, rows = self.line[0]
            for _ in range(min(self.capacity - len(self.queue), len(rows))):
                self.queue.append(rows.popleft())
                hold.rows -= 1
            if not rows:
                self.line.popleft()

    def expect_line_again(self) -> None:
        """Forget what waits behind the queue, because it will come again."""
        for _, rows in self.line:
            for row in rows:
                if isinstance(row, StoredRecords):
                    continue  # nothing of a replay is remembered
                self.seen.forget(whole_name(row.publisher, row.epoch), row.sequence)
        self.clear_line()

    def clear_line(self) -> None:
        """Forget what waits behind the queue."""
        for hold, rows in self.line:
            hold.rows -= len(rows)
        self.line.clear()


class _DeliveryClass:
    """The subscriptions that share one copy of what the broker sends."""

    def __init__(self) -> None:
        self.members: dict[int, Interest] = {}
        self.seen = _memory()
        self.all_wanted = True
        """On this connection nobody has left yet: with one member, every row is for that one."""
        self._index: FilterIndex[int] | None = None

    def changed(self) -> None:
        self._index = None

    def choose(self, batch: PublicationBatch) -> list[tuple[Interest, list[Publication]]]:
        """Who gets which of the rows that have not come before."""
        fresh = _fresh(self.seen, batch)
        if fresh is None:
            return []
        chosen = self._chosen(fresh.publications())
        name = batch.publisher
        for place, (interest, rows) in enumerate(chosen):
            if interest.was_apart:
                chosen[place] = interest, [row for row in rows if interest.seen.is_new(name, row.sequence)]
        return chosen

    def _chosen(self, publications: list[Publication]) -> list[tuple[Interest, list[Publication]]]:
        if len(self.members) == 1 and self.all_wanted:
            return [(interest, publications) for interest in self.members.values()]
        if self._index is None:
            self._index = FilterIndex(
                (number, interest.effective) for number, interest in self.members.items()
            )
        chosen: dict[int, list[Publication]] = {}
        found = self._index.match_batch([publication.attributes for publication in publications])
        for publication, numbers in zip(publications, found, strict=True):
            for number in numbers:
                chosen.setdefault(number, []).append(publication)
        return [(self.members[number], chosen[number]) for number in sorted(chosen)]


def _memory() -> DuplicateFilter:
    return DuplicateFilter(SEEN_PUBLISHERS_MAX, SEEN_WINDOW, old_is_new=True)


def _fresh(seen: DuplicateFilter, batch: PublicationBatch) -> PublicationBatch | None:
    """What of a batch has not come before; None if everything has."""
    if len(batch) == 1:
        return batch if seen.is_new(batch.publisher, batch.first) else None
    rows = seen.new_rows(batch.publisher, batch.sequences)
    if rows is None:
        return batch
    return batch.select(rows) if len(rows) else None


class Inbox:
    """The receiving half of a client's session."""

    def __init__(self) -> None:
        self._classes = {target: _DeliveryClass() for target in CLASSES.values()}
        self._streams_taken: set[int] = set()
        self._dormant: dict[int, Interest] = {}
        """By their numbers, those that the broker does not know of until they have been read."""
        self._behind: dict[int, Interest] = {}
        """By their numbers, those behind whose queues rows may wait."""
        self._careful: deque[_Hold] = deque()
        """Frames of this connection whose settlement the broker waits for and has not heard of."""
        self._durables: dict[str, Interest] = {}
        self._replays: dict[int, Interest] = {}
        # Frames of this connection with waiting rows, in their order; and those of all connections.
        self._holds: deque[_Hold] = deque()
        self._all_holds: deque[_Hold] = deque()

    # Who is interested.

    def add(self, interest: Interest) -> None:
        """Rows may come for it from now on."""
        if interest.replay_request:
            self._replays[interest.replay_request] = interest
        elif interest.durable:
            self._durables[interest.durable] = interest
        else:
            self._enter(interest)

    def remove(self, interest: Interest) -> None:
        """It gets nothing more; what waits behind its queue is forgotten."""
        interest.clear_line()
        self.retire(interest)

    def retire(self, interest: Interest) -> None:
        """It gets nothing more, but what waits behind its queue is still to be read."""
        interest.open = False
        if interest.replay_request:
            self._replays.pop(interest.replay_request, None)
        elif interest.durable:
            if self._durables.get(interest.durable) is interest:
                del self._durables[interest.durable]
        else:
            self._leave(interest)

    def _enter(self, interest: Interest) -> None:
        members = self._classes.setdefault(interest.target, _DeliveryClass())
        members.members[interest.number] = interest
        members.changed()

    def _leave(self, interest: Interest) -> None:
        self._dormant.pop(interest.number, None)
        members = self._classes[interest.target]
        if members.members.pop(interest.number, None) is not None:
            members.all_wanted = False
            members.changed()

    def narrowed(self, interest: Interest) -> None:
        """Its effective filter is known now."""
        if not interest.durable and interest.number in self._classes[interest.target].members:
            self._classes[interest.target].changed()

    # Classes of their own.

    def take_stream(self) -> int:
        """A class for one that has fallen behind; 0 if all are taken."""
        for stream in range(STREAM_FIRST, STREAM_FIRST + STREAMS_MAX):
            if stream not in self._streams_taken:
                self._streams_taken.add(stream)
                return stream
        return 0

    def free_stream(self, stream: int) -> None:
        """Nothing is under way in a class any more, so another one may have it."""
        self._streams_taken.discard(stream)

    def separated(self, interest: Interest, stream: int) -> None:
        """Frames from now on bring what is for it in a class of its own."""
        if not interest.was_apart:
            # Until now its class has remembered for it what came, and that may come again.
            interest.seen.recall_all(self._classes[interest.target].seen)
        self._leave(interest)
        interest.stream = stream
        interest.was_apart = True
        self._enter(interest)

    def sleep(self, interest: Interest) -> None:
        """The broker does not know of it: nothing is for it before what waits has been read."""
        self._leave(interest)
        interest.stream = interest.separating = 0
        interest.dormant = True
        self._dormant[interest.number] = interest

    def wake(self, interest: Interest) -> None:
        """The broker is asked for it again."""
        del self._dormant[interest.number]
        interest.dormant = False
        self._enter(interest)

    def lagging(self, interest: Interest) -> bool:
        """Whether others have to wait because this one is not read."""
        return (
            bool(interest.line)
            and interest.blocks
            and not (interest.stream or interest.separating)
            and interest.open
            and len(self._classes[interest.target].members) > 1
        )

    def all_lagging(self) -> list[Interest]:
        """All for which others have to wait."""
        return [interest for interest in self._behind.values() if self.lagging(interest)]

    def full_classes(self) -> set[int]:
        """The classes of which no more should come, because rows wait behind a queue."""
        for number in [number for number, each in self._behind.items() if not each.line]:
            del self._behind[number]
        return {
            each.target for each in self._behind.values() if each.open and each.blocks and not each.dormant
        }

    def interests(self) -> list[Interest]:
        """All of them, in the order in which they were made."""
        found = [each for members in self._classes.values() for each in members.members.values()]
        found += [*self._durables.values(), *self._replays.values(), *self._dormant.values()]
        return sorted(found, key=lambda interest: interest.number)

    @property
    def has_durables(self) -> bool:
        """Whether durable subscriptions are being read."""
        return bool(self._durables)

    def durable(self, name: str) -> Interest | None:
        """The durable subscription of this name, if it is being read here."""
        return self._durables.get(name)

    def replay(self, request: int) -> Interest | None:
        """The replay that was asked for with this request."""
        return self._replays.get(request)

    # What arrives.

    def deliver(self, batch: PublicationBatch, frame: int) -> list[Interest]:
        """Hand the rows of a batch over; returns those who got some.

        Raises:
            RemoteProtocolError: a record is malformed.
        """
        members = self._classes.get(batch.target)
        hold = _Hold(frame, batch.size)
        concerned = []
        chosen = members.choose(batch) if members is not None and members.members else ()
        for interest, rows in chosen:
            if rows:
                interest.put(rows, hold)
                concerned.append(interest)
        self._keep(hold, concerned, careful=batch.acknowledged)
        return concerned

    def deliver_stored(self, stored: StoredPublications, frame: int) -> Interest | None:
        """Hand rows of a log over, without those that came before; returns who got some.

        Raises:
            RemoteProtocolError: a record is malformed.
        """
        packed = stored.packed
        size = len(packed.records) if packed else sum(len(record) for _, _, record in stored.rows)
        hold = _Hold(frame, size)
        interest = self._replays.get(stored.replay) if stored.replay else self._durables.get(stored.name)
        if interest is None or stored.reader != interest.reader:
            # Nobody reads here any more, or it was sent to a former reader.
            self._keep(hold, [], careful=True)
            return None
        if packed is not None:
            return self._deliver_packed(interest, stored, packed.checked(), hold)
        fresh: list[StoredPublication] = []
        further = [row for row in stored.numbered() if row[0] > interest.handed_offset]
        if further:
            interest.epochs.begin(stored.epoch, further[0][0])
            interest.handed_offset = further[-1][0]
            interest.replayed_rows += len(further)
            if interest.replay.records:
                interest.put([StoredRecords.of(further, stored.epoch)], hold)
                self._keep(hold, [interest], careful=True)
                return interest
        for offset, (publisher, sequence, record) in further:
            if not stored.replay and not interest.seen.is_new(publisher, sequence):
                continue
            row = decode_record(record, publisher, sequence)
            fresh.append(
                StoredPublication(
                    row.attributes,
                    row.body,
                    row.content_type,
                    row.publisher,
                    sequence,
                    row.published_at_us,
                    row.epoch,
                    offset,
                    stored.epoch,
                    interest.resets,
                )
            )
        if fresh:
            interest.put([*fresh], hold)
        self._keep(hold, [interest], careful=True)
        return interest if fresh else None

    def _deliver_packed(
        self, interest: Interest, stored: StoredPublications, packed: PackedRows, hold: _Hold
    ) -> Interest | None:
        """The same for rows as columns, which only a replay can ask for."""
        if not interest.replay.records:
            raise RemoteProtocolError(f"rows of {stored.name!r} as columns, which were not asked for")
        end = stored.first_offset + packed.count
        first = max(stored.first_offset, interest.handed_offset + 1)
        if first >= end:
            self._keep(hold, [interest], careful=True)
            return None
        interest.epochs.begin(stored.epoch, first)
        interest.handed_offset = end - 1
        interest.replayed_rows += end - first
        rows = packed.without(first - stored.first_offset)
        interest.put([StoredRecords(range(first, end), rows, stored.epoch)], hold)
        self._keep(hold, [interest], careful=True)
        return interest

    def reset(self, reset: LogReset) -> Interest | None:
        """A log no longer has all that came from it; returns its reader, who goes on where the log is."""
        interest = self._durables.get(reset.name)
        if interest is None or reset.reader != interest.reader:
            return None
        interest.resets += 1
        interest.handed_offset = reset.next_offset - 1
        if reset.known:
            interest.acknowledged_offset = min(interest.acknowledged_offset, interest.handed_offset)
            interest.epochs.cut(reset.next_offset)
        else:
            interest.acknowledged_offset = interest.handed_offset
            interest.epochs.cut(0)
        return interest

    def _keep(self, hold: _Hold, concerned: list[Interest], *, careful: bool) -> None:
        if careful and (hold.rows or self._holds):
            self._careful.append(hold)
        if hold.rows:
            self._holds.append(hold)
            self._all_holds.append(hold)
            for interest in concerned:
                if interest.line:
                    self._behind[interest.number] = interest

    # How far it has come.

    def settled(self, received: int) -> int:
        """The last frame of this connection of which no row waits, nor of any before; all have come to
        `received`."""
        for holds in (self._holds, self._all_holds):
            while holds and not holds[0].rows:
                holds.popleft()
        return self._holds[0].frame - 1 if self._holds else received

    def settled_apart(self, settled: int) -> list[int]:
        """Frames that the broker waits for and that are done with, although some before them are not."""
        if not self._careful:
            return []
        done = [hold.frame for hold in self._careful if hold.frame > settled and not hold.rows]
        self._careful = deque(hold for hold in self._careful if hold.frame > settled and hold.rows)
        return done

    @property
    def nobody_reads(self) -> bool:
        """Whether there are subscriptions, and rows wait behind all of their queues."""
        interests = self.interests()
        return bool(interests) and all(interest.line for interest in interests)

    @property
    def waiting_bytes(self) -> int:
        """The size of all frames, also of former connections, of which some rows wait."""
        return sum(hold.size for hold in self._all_holds if hold.rows)

    def restarted(self) -> None:
        """A new connection: frames count from 1, nobody has left on it yet, nor has a class of its own."""
        self._holds.clear()
        self._careful.clear()
        self._streams_taken.clear()
        for stream in [stream for stream in self._classes if stream >= STREAM_FIRST]:
            for interest in self._classes.pop(stream).members.values():
                interest.stream = 0
                self._enter(interest)
        for members in self._classes.values():
            for interest in members.members.values():
                interest.separating = 0
            members.all_wanted = True
        for interest in (*self._durables.values(), *self._replays.values()):
            # The broker sends these again, so they need not wait here.
            if interest.line:
                first = interest.line[0][1][0]
                if isinstance(first, StoredRecords):
                    interest.handed_offset = first.offsets[0] - 1
                    interest.epochs.cut(first.offsets[0])
                elif isinstance(first, StoredPublication):
                    interest.handed_offset = first.offset - 1
                    interest.epochs.cut(first.offset)
                interest.expect_line_again()
