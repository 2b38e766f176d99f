"""How does a durable subscription keep what its client has not seen?

Each has a log in the store with consecutive offsets. A row is safe, and counts as settled, once the store
says so; only safe rows are sent. A reader that keeps up is served from memory, one that lags from the store.
"""

from __future__ import annotations

from collections import deque
from functools import partial
from typing import TYPE_CHECKING

from braid.broker.bottleneck import Bottleneck
from braid.broker.parties import Client, class_of
from braid.errors import FilterError, RequestRefusedError
from braid.language import Filter
from braid.protocol.duplicates import DuplicateFilter
from braid.protocol.effects import Persist, ReadLog
from braid.protocol.log import (
    AcknowledgeLog,
    AppendRows,
    CreateLog,
    DeleteLog,
    ForgetNeighbour,
    KeepNeighbour,
    LogRow,
)
from braid.protocol.messages import Done, Failed, StoredPublications

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable

    from braid.broker.on_subscribe import SubscriptionDesk
    from braid.broker.parties import Link, Party
    from braid.broker.postroom import Postroom
    from braid.broker.settings import BrokerSettings
    from braid.broker.settling import Pending
    from braid.protocol import PublicationBatch
    from braid.protocol.inputs import LogRead, Persisted
    from braid.protocol.log import LogState, StoreOperation
    from braid.protocol.messages import Acknowledge, DropDurable, Replay, StopReading, SubscribeDurable

__all__ = ["DurableDesk", "DurableLog"]

# What one row costs beside its record.
_ROW_BYTES = 64
NAME_LENGTH_MAX = 200
# Each has a piece of a log under way, up to `durable_window_bytes`.
REPLAYS_MAX = 16
# Publishers whose publications a log recognises when they come again; each takes some 200 bytes.
PUBLISHERS_MAX = 1_000_000


class DurableLog:
    """A durable subscription: where its log stands and who reads it."""

    def __init__(self, name: str, owner: str, filter: Filter, when_full: str, window: int) -> None:
        self.name = name
        """As its owner calls it."""
        self.owner = owner
        self.key = _key(owner, name)
        """As the store calls it: two owners may use the same name and never hear of each other."""
        self.filter = filter
        self.when_full = when_full
        self.next_offset = 0
        self.first_offset = 0
        self.safe_offset = 0
        """Rows before this are safely stored."""
        self.acknowledged = -1
        self.stored = DuplicateFilter(PUBLISHERS_MAX, window)
        """What is in the log, or was: what comes again is not stored again."""
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
    def restored(cls, state: LogState, window: int) -> DurableLog:
        """A log as the store knows it."""
        log = cls(
            state.name.removeprefix(_key(state.owner, "")),
            state.owner,
            Filter(state.filter_text),
            state.when_full,
            window,
        )
        log.first_offset, log.next_offset = state.first_offset, state.next_offset
        log.safe_offset = state.next_offset
        log.acknowledged = state.acknowledged_offset
        for publisher, highest in state.highest.items():
            recent = state.recent.get(publisher)
            bits = None if recent is None else int.from_bytes(recent, "little")
            log.stored.recall(publisher, highest, bits)
        return log


class DurableDesk:
    """Appends to logs and feeds their readers."""

    def __init__(
        self,
        settings: BrokerSettings,
        postroom: Postroom,
        subscriptions: SubscriptionDesk,
        *,
        kept: bool,
    ) -> None:
        """`kept`: whether there is a store at all."""
        self.logs: dict[str, DurableLog] = {}
        self.unsafe_bytes = 0
        """Handed to the store and not yet safe."""
        self._kept = kept
        self._settings = settings
        self._postroom = postroom
        self._subscriptions = subscriptions
        self._operations: list[StoreOperation] = []
        self._when_safe: list[Callable[[], None]] = []
        self._unsafe: dict[int, list[Callable[[], None]]] = {}
        self._reads: dict[int, Callable[[LogRead], None]] = {}
        self._tokens = 0
        self._bottleneck = Bottleneck("the store")
        self.failed = False
        """The store has refused work: what is durable is not safe here."""

    def restore(self, state: LogState) -> None:
        """Go on with a log that the store holds."""
        log = DurableLog.restored(state, self._settings.overtaking_max)
        self.logs[log.key] = log
        self._subscriptions.install(self._subscription(log), log.filter, log, lambda: None)

    def _subscription(self, log: DurableLog) -> str:
        return f"{self._settings.broker_id}/durable/{log.key}"

    def _of(self, client: Client, name: str) -> DurableLog | None:
        """The client's log of this name."""
        return self.logs.get(_key(client.principal.name, name))

    # What clients ask for.

    def subscribe(self, client: Client, message: SubscribeDurable) -> None:
        """Create a log, or go on reading one."""
        try:
            if not self._kept:
                raise RequestRefusedError(
                    "this broker keeps nothing on disk: start it with a data directory", "store"
                )
            log = self._of(client, message.name)
            if log is None:
                log = self._created(client, message)
            else:
                self._require_same(client, log, message)
        except (FilterError, RequestRefusedError) as error:
            self._subscriptions.fail(client, message.request, error)
            return
        if log.reader is not None:
            self._displace(log, log.reader, client)
        client.logs.add(log.key)
        log.reader = client
        log.reader_request = message.request
        # The connection before may have broken while it said so.
        self._done_with(log, message.resume_after)
        log.next_to_send = max(log.acknowledged + 1, message.resume_after + 1, log.first_offset)
        log.next_to_send = min(log.next_to_send, log.next_offset)
        log.unsettled_bytes = 0
        text = str(log.filter)
        answer = partial(self._postroom.tell, client, Done(message.request, text))
        when_installed = partial(self._answer_when_safe, answer, log)
        self._subscriptions.install(self._subscription(log), log.filter, log, when_installed)

    def _answer_when_safe(self, answer: Callable[[], None], log: DurableLog) -> None:
        def answered() -> None:
            answer()
            self.feed(log)

        self._when_safe.append(answered)

    def _created(self, client: Client, message: SubscribeDurable) -> DurableLog:
        if not 0 < len(message.name) <= NAME_LENGTH_MAX:
            raise RequestRefusedError(
                f"the name of a durable subscription has 1 to {NAME_LENGTH_MAX} characters, "
                f"not {len(message.name)}"
            )
        if class_of(message.when_full) is None:
            raise RequestRefusedError(f"when_full cannot be {message.when_full!r}")
        if not message.filter:
            raise _unknown(message.name)
        client.principal.limits.require_subscription(len(client.subscriptions) + len(client.logs))
        filter = client.principal.permitted_subscription(client.principal.asked_filter(message.filter))
        window = self._settings.overtaking_max
        log = DurableLog(message.name, client.principal.name, filter, message.when_full, window)
        self.logs[log.key] = log
        self._operations.append(
            CreateLog(log.key, log.owner, str(filter), log.when_full, self._postroom.now_us)
        )
        return log

    def _require_same(self, client: Client, log: DurableLog, message: SubscribeDurable) -> None:
        client.principal.permitted_subscription(log.filter)  # the grant may have shrunk meanwhile
        if (
            message.filter
            and client.principal.permitted_subscription(client.principal.asked_filter(message.filter))
            != log.filter
        ):
            raise RequestRefusedError(
                f"durable subscription {log.name!r} has the filter {log.filter}; drop it first, or resume it "
                "without a filter",
                "conflict",
            )

    def acknowledge(self, client: Client, message: Acknowledge) -> None:
        """The reader is done with everything up to an offset."""
        log = self._of(client, message.name)
        if log is not None and log.reader is client:
            self._done_with(log, message.offset)

    def _done_with(self, log: DurableLog, offset: int) -> None:
        offset = min(offset, log.safe_offset - 1)
        if offset > log.acknowledged:
            log.acknowledged = offset
            self._operations.append(AcknowledgeLog(log.key, offset))

    def replay(self, client: Client, message: Replay) -> None:
        """Send a range of offsets again."""
        log = self._of(client, message.name)
        try:
            if log is None:
                raise _unknown(message.name)
            client.principal.permitted_subscription(log.filter)
            if len(client.replays) >= REPLAYS_MAX and message.request not in client.replays:
                raise RequestRefusedError(f"more than {REPLAYS_MAX} replays at a time", "limit")
        except RequestRefusedError as error:
            self._subscriptions.fail(client, message.request, error)
            return
        client.replays.add(message.request)
        last = log.safe_offset - 1 if message.last < 0 else min(message.last, log.safe_offset - 1)
        self._replay_from(client, log, message.request, max(message.first, 0), last)

    def _replay_from(self, client: Client, log: DurableLog, request: int, first: int, last: int) -> None:
        if client.connection is None:
            return
        if first > last:
            self._replayed(client, request)
            return

        def read(answer: LogRead) -> None:
            if answer.error is not None:
                client.replays.discard(request)
                self._subscriptions.fail(client, request, RequestRefusedError(answer.error, "store"))
            elif not answer.rows:
                self._replayed(client, request)
            else:
                # The next piece is read when the client has taken this one in.
                following = answer.rows[-1][0] + 1
                care = partial(self._replay_from, client, log, request, following, last)
                self._postroom.offer(client, _stored(log.name, list(answer.rows), replay=request), care)

        self._read(log, first, last, read)

    def _replayed(self, client: Client, request: int) -> None:
        client.replays.discard(request)
        self._postroom.tell(client, Done(request))

    def drop(self, client: Client, message: DropDurable) -> None:
        """End a durable subscription for good."""
        log = self._of(client, message.name)
        if log is None:
            self._subscriptions.fail(client, message.request, _unknown(message.name))
            return
        del self.logs[log.key]
        if log.reader is not None:
            self.stop_reading(log.reader, log.key)
        self._subscriptions.withdraw(self._subscription(log))
        self._operations.append(DeleteLog(log.key))
        self._when_safe.append(partial(self._postroom.tell, client, Done(message.request)))

    def _displace(self, log: DurableLog, former: Client, client: Client) -> None:
        """The newest reader wins: the one before is often a dead connection. If it lives, it hears of it."""
        self.stop_reading(former, log.key)
        if former is not client:
            reason = f"another connection reads the durable subscription {log.name!r} now"
            self._postroom.tell(former, Failed(log.reader_request, "taken", reason))
            self._postroom.note("info", "a durable subscription changes hands", log=log.key)

    def stop(self, client: Client, message: StopReading) -> None:
        """A client reads no more; what was sent to it and not acknowledged comes again to the next."""
        self.stop_reading(client, _key(client.principal.name, message.name))

    def stop_reading(self, client: Client, key: str) -> None:
        """A reader has gone, or another connection takes over."""
        client.logs.discard(key)
        log = self.logs.get(key)
        if log is not None and log.reader is client:
            log.reader = None
            log.unsettled_bytes = 0

    # Appending.

    def append(
        self, destination: Hashable, batch: PublicationBatch, pending: Pending | None, source: Party
    ) -> None:
        """Store the rows of a batch that the log does not have yet."""
        if not isinstance(destination, DurableLog):
            raise TypeError(f"{destination!r} is no destination of this broker")
        log = destination
        is_new, publisher = log.stored.is_new, batch.publisher
        rows = [
            LogRow(publisher, sequence, record)
            for sequence, record in zip(batch.sequences.tolist(), batch.records(), strict=True)
            if is_new(publisher, sequence)
        ]
        if not rows:
            # It may be on its way to the store at this moment, so it is safe only after what is.
            if pending is not None:
                self._when_safe.append(pending.share())
            return
        bits = log.stored.window_of(publisher)[1]
        recent = bits.to_bytes((bits.bit_length() + 7) // 8, "little")
        first = log.next_offset
        log.next_offset += len(rows)
        size = sum(len(row.record) + _ROW_BYTES for row in rows)
        self.unsafe_bytes += size
        self._postroom.counters.stored += len(rows)
        self._operations.append(AppendRows(log.key, first, tuple(rows), self._postroom.now_us, recent))
        self._when_safe.append(partial(self._appended, log, first, rows, size))
        if pending is not None:
            self._when_safe.append(pending.share())
        if self.unsafe_bytes > self._settings.persist_bytes_max:
            self._bottleneck.hold_up(source)

    def _appended(self, log: DurableLog, first: int, rows: list[LogRow], size: int) -> None:
        self.unsafe_bytes -= size
        log.safe_offset = first + len(rows)
        log.tail.extend(enumerate(rows, first))
        log.tail_bytes += size
        while log.tail and log.tail_bytes > self._settings.durable_tail_bytes:
            log.tail_bytes -= len(log.tail.popleft()[1].record) + _ROW_BYTES
        self.feed(log)

    # Neighbours from before a restart.

    def keep_neighbour(self, link: Link, address: str) -> None:
        """Remember a neighbour, so that after a restart its share is kept until it speaks."""
        if self._kept:
            self._operations.append(KeepNeighbour(link.name, address))

    def forget_neighbour(self, name: str) -> None:
        """Its share is not kept any more."""
        if self._kept:
            self._operations.append(ForgetNeighbour(name))

    # Reading.

    def feed(self, log: DurableLog) -> None:
        """Send the reader what it has room for."""
        client = log.reader
        window = self._settings.durable_window_bytes
        while client is not None and not log.reading and log.unsettled_bytes < window:
            if log.next_to_send >= log.safe_offset:
                return
            if not log.tail or log.tail[0][0] > log.next_to_send:
                log.reading = True
                last = log.safe_offset - 1
                self._read(log, log.next_to_send, last, partial(self._was_read, log, last))
                return
            start = log.next_to_send - log.tail[0][0]
            rows: list[tuple[int, LogRow]] = []
            size = 0
            while start + len(rows) < len(log.tail) and size + log.unsettled_bytes < window:
                row = log.tail[start + len(rows)]
                cost = len(row[1].record) + _ROW_BYTES
                if rows and size + cost > window:
                    break  # a large row goes alone: the reader accepts only frames of a certain size
                rows.append(row)
                size += cost
            self._send(log, client, rows)

    def _was_read(self, log: DurableLog, last: int, answer: LogRead) -> None:
        log.reading = False
        if answer.error is not None:
            self._postroom.note("error", "a log could not be read", log=log.name, reason=answer.error)
        elif log.reader is not None:
            # Rows that were wanted may have been dropped meanwhile: the log goes on where it can. The
            # reader may be another one than when the rows were asked for.
            rows = [row for row in answer.rows if row[0] >= log.next_to_send]
            if rows and rows[0][0] == max(log.next_to_send, answer.rows[0][0]):
                self._send(log, log.reader, rows)
            elif not answer.rows:
                log.next_to_send = max(log.next_to_send, last + 1)
            self.feed(log)

    def _send(self, log: DurableLog, client: Client, rows: list[tuple[int, LogRow]]) -> None:
        size = sum(len(row.record) + _ROW_BYTES for _, row in rows)
        log.unsettled_bytes += size
        log.next_to_send = rows[-1][0] + 1
        self._postroom.counters.delivered += len(rows)
        request = log.reader_request
        stored = _stored(log.name, rows, reader=request)
        self._postroom.offer(client, stored, partial(self._taken, log, client, request, size))

    def _taken(self, log: DurableLog, client: Client, request: int, size: int) -> None:
        if log.reader is client and log.reader_request == request:
            log.unsettled_bytes -= size
            self.feed(log)

    def _read(self, log: DurableLog, first: int, last: int, then: Callable[[LogRead], None]) -> None:
        self._tokens += 1
        self._reads[self._tokens] = then
        bytes_max = self._settings.durable_window_bytes
        self._postroom.effect(ReadLog(self._tokens, log.key, first, last, bytes_max))

    # The store's answers.

    def was_read(self, answer: LogRead) -> None:
        """Rows that were asked for are here."""
        then = self._reads.pop(answer.token, None)
        if then is not None:
            then(answer)

    def persisted(self, answer: Persisted) -> None:
        """Store work is done."""
        waiting = self._unsafe.pop(answer.token, [])
        if answer.error is not None:
            # Nothing of it counts as safe: senders keep it, and logs refuse what would leave a gap.
            self.failed = True
            self._postroom.note("error", "the store failed", reason=answer.error)
            return
        for then in waiting:
            then()
        if self.unsafe_bytes * 2 <= self._settings.persist_bytes_max:
            self._postroom.open(self._bottleneck)

    def collect(self) -> None:
        """At the end of a turn: ask for all its store work in one transaction."""
        while self._when_safe and not self._operations and not self._unsafe:
            waiting, self._when_safe = self._when_safe, []
            for then in waiting:
                then()
        if self._operations or self._when_safe:
            self._tokens += 1
            self._unsafe[self._tokens], self._when_safe = self._when_safe, []
            operations, self._operations = self._operations, []
            self._postroom.effect(Persist(self._tokens, operations))

    @property
    def idle(self) -> bool:
        """Nothing is on its way to the store."""
        return not self._operations and not self._unsafe


def _key(owner: str, name: str) -> str:
    # A slash in an owner's name must not make it somebody else with another log.
    return f"{owner.replace('%', '%25').replace('/', '%2F')}/{name}"


def _unknown(name: str) -> RequestRefusedError:
    return RequestRefusedError(f"there is no durable subscription {name!r}", "unknown")


def _stored(
    name: str, rows: list[tuple[int, LogRow]], *, replay: int = 0, reader: int = 0
) -> StoredPublications:
    content = [(row.publisher, row.sequence, row.record) for _, row in rows]
    return StoredPublications(name, rows[0][0], content, replay, reader)
