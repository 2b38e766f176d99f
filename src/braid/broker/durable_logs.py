"""How does a durable subscription keep what its client has not seen?

Each has a log in the store with consecutive offsets. A row is safe, and counts as settled, once the store
says so; only safe rows are sent. A reader that keeps up is served from memory, one that lags from the store.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from braid.broker.access import Limits
from braid.broker.bottleneck import Bottleneck
from braid.broker.confirmations import Installation
from braid.broker.durable_log import DurableLog, log_key, require_unread, size_of
from braid.broker.events import Installed
from braid.broker.kept_copies import KeptCopies
from braid.broker.left_copies import LeftCopies
from braid.broker.log_copies import LogCopies
from braid.broker.log_making import LogMaking, unknown_durable
from braid.broker.log_owners import LogOwners
from braid.broker.log_reading import LogReading
from braid.broker.log_replays import LogReplays
from braid.broker.log_secrets import LogSecrets
from braid.broker.lost_logs import DROPPED, LostLogs
from braid.broker.parties import Client
from braid.broker.pressure import Pressure
from braid.broker.retention import Sweeps
from braid.broker.settings import OVERTAKING_MAX
from braid.broker.settling import Pending
from braid.broker.snapshot import LogSnapshot, StoreSnapshot
from braid.broker.store_work import Answer, Appended, StoreWork, Word
from braid.broker.stored_rows import StoredRows
from braid.broker.turn import REASON_LENGTH_MAX
from braid.broker.waiters import Waiter, WaiterKind
from braid.errors import FilterError, RequestRefusedError
from braid.language import Filter
from braid.protocol.epochs import EpochHistory
from braid.protocol.inputs import Resources, Swept
from braid.protocol.log import (
    AcknowledgeLog,
    AppendRows,
    BeginEpoch,
    DeleteLog,
    ForgetPublishers,
    LogRow,
)
from braid.protocol.messages import Done, Failed, LogReset, SubscribeDurable

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Mapping

    from braid.broker.access import Principal
    from braid.broker.discards import Discards
    from braid.broker.events import ClientLeft, NotInstalled
    from braid.broker.parties import Link, Party
    from braid.broker.settings import BrokerSettings
    from braid.broker.subscriptions import Subscriptions
    from braid.broker.turn import Turn
    from braid.protocol import PublicationBatch
    from braid.protocol.copies import CopyRows
    from braid.protocol.inputs import Persisted
    from braid.protocol.log import LogState, StoreOperation, StoreState
    from braid.protocol.messages import Acknowledge, DropDurable, Replay, StopReading

__all__ = ["DurableLogs"]

_NOTHING = Filter("FALSE")


class DurableLogs:
    """Appends to logs and feeds their readers.

    Args:
        discards: tells publishers what a log did not store.
        principal_of: whom a name stands for at present; None for nobody.
        epoch: the name of this start, unlike that of any other: rows that it stores are of this epoch.
        neighbours: the links by their names.
        store: what was kept from earlier; None if there is no store at all.
        toward: the neighbour behind which a broker is.
        unmet, started_us, complete: as for `LostLogs`.
    """

    def __init__(
        self,
        settings: BrokerSettings,
        turn: Turn,
        subscriptions: Subscriptions,
        discards: Discards,
        *,
        neighbours: Mapping[str, Link],
        principal_of: Callable[[str], Principal | None],
        epoch: str,
        store: StoreState | None,
        unmet: Callable[[], list[str]],
        toward: Callable[[str], str | None],
        started_us: Callable[[], int | None],
        complete: Callable[[], None],
    ) -> None:
        kept = store is not None
        self.logs: dict[str, DurableLog] = {}
        self.set_aside: dict[str, str] = {}
        """Logs whose filter cannot be read, and why. They stay in the store as they are."""
        self._secrets_aside: dict[str, str] = {}
        self.unsafe_bytes = 0
        """Handed to the store and not yet safe."""
        self._epoch = epoch
        self._kept = kept
        self._settings = settings
        self._turn = turn
        self._subscriptions = subscriptions
        self._principal_of = principal_of
        self.reading = LogReading(turn)
        self.replays = LogReplays(turn, self.reading, self.require_reader)
        self.owners = LogOwners(turn, self)
        self.work = StoreWork(
            turn,
            {
                Pending: turn.settlement.settle,
                Appended: self._appended,
                Answer: self._answer,
                Word: self._tell,
            },
        )
        self._secrets = LogSecrets(self.work)
        self.making = LogMaking(turn, self, self._secrets, kept=kept, epoch=epoch)
        self.lost = LostLogs(
            turn,
            self,
            neighbours,
            kept=kept,
            bereft=store is not None and not store.neighbours and not store.logs,
            unmet=unmet,
            started_us=started_us,
            complete=complete,
        )
        self.copies = LogCopies(turn, self, neighbours, self.lost)
        self.kept_copies = KeptCopies(
            turn, self.work, self.reading, kept=kept, publishers_max=settings.log_publishers_max
        )
        self.left_copies = LeftCopies(turn, neighbours, toward, self.kept_copies, self.copies.needless)
        self.stored = StoredRows(turn, self.work, self._limits_of)
        self.sweeps = Sweeps(turn, self.stored)
        self._memory = {
            "window": OVERTAKING_MAX,
            "publishers_max": settings.log_publishers_max,
        }
        self.pressure = Pressure(turn)
        self._bottleneck = Bottleneck("the store")
        self._discards = discards

    def restore(self, state: LogState) -> None:
        """Go on with a log that the store holds."""
        if state.name.startswith(DROPPED):
            self.lost.restore_dropped(state)
            return
        if state.origin:
            self.kept_copies.restore(state)
            return
        try:
            log = DurableLog.restored(state, **self._memory)
        except FilterError as error:
            reason = str(error)[:REASON_LENGTH_MAX]
            self.set_aside[state.name] = reason
            self._secrets_aside[state.name] = state.secret
            self._turn.note(
                "error", "a log is set aside: its filter cannot be read", log=state.name, reason=reason
            )
            return
        self.logs[log.key] = log
        self._turn.quotas.log_kept(log.owner)
        self.stored.restored(log, state.bytes)
        self._forget_publishers(log)
        self._look_at_grant(log)
        self.install(log, self._unasked(log))
        self.copies.made(log)
        if log.copying is not None:
            log.copying.ever = True

    def empty(self, name: str, owner: str, filter: Filter, when_full: str) -> DurableLog:
        """A log with nothing in it, which nobody knows yet."""
        return DurableLog(name, owner, filter, when_full, **self._memory)

    def enter(self, log: DurableLog) -> None:
        """There is one log more."""
        self.logs[log.key] = log
        self._turn.quotas.log_kept(log.owner)
        self.stored.created(log)

    def restored(self, log: DurableLog) -> None:
        """A log is back, with all its rows: it collects further ones."""
        self._look_at_grant(log)
        self.install(log, self._unasked(log))

    def require_carried(self, filter: Filter) -> None:
        """Refuse a filter that no link could carry; see `Subscriptions.require_carried`."""
        self._subscriptions.require_carried(filter)

    def _limits_of(self, owner: str) -> Limits:
        principal = self._principal_of(owner)
        return principal.limits if principal is not None else Limits()

    def _forget_publishers(self, log: DurableLog) -> None:
        """The store forgets those that the log has forgotten."""
        if log.forgotten:
            self.work.ask(ForgetPublishers(log.key, tuple(log.forgotten)))
            log.forgotten.clear()

    def subscription(self, log: DurableLog) -> str:
        return f"{self._settings.broker_id}/durable/{log.key}"

    def of(self, client: Client, name: str) -> DurableLog | None:
        """The client's log of this name."""
        return self.logs.get(log_key(client.principal.name, name))

    def readable(self, client: Client, name: str, secret: str) -> DurableLog:
        """The log of this name that the client may read: its own, or by its whole key one granted to it.

        Raises:
            RequestRefusedError: there is none, or it may not.
        """
        self.require_readable(client, name)
        log = self.of(client, name)
        if log is None:
            log = self.logs.get(name)
            if log is None or not self._may_replay(client, log):
                raise unknown_durable(name)
            return log
        self._secrets.require(client, log, secret)
        self.require_reader(client, log)
        return log

    def _may_replay(self, client: Client, log: DurableLog) -> bool:
        """Whether a log of another principal was granted to this client at present."""
        principal = self._principal_of(client.principal.name) or client.principal
        return log.key in principal.grant.replay

    def require_readable(self, client: Client, name: str) -> None:
        reason = self.set_aside.get(log_key(client.principal.name, name))
        if reason is not None:
            raise RequestRefusedError(
                f"the durable subscription {name!r} is set aside, because its filter cannot be read: "
                f"{reason}; its rows are kept until it is dropped",
                "store",
            )

    # What an owner may hear at present.

    def grants_changed(self) -> None:
        """Principals may do more or less than before: logs store and send what their owners may hear now."""
        self.stored.limits_changed()
        for log in self.logs.values():
            before = log.permitted
            self._look_at_grant(log)
            if log.permitted != before:
                self.install(log, self._unasked(log))
            if log.reader is not None:
                try:
                    self.require_reader(log.reader, log)
                except RequestRefusedError as error:
                    self._turn.fail(log.reader, log.reader_request, error)
                    self.stop_reading(log.reader, log.key)

    def _look_at_grant(self, log: DurableLog) -> None:
        owner = self._principal_of(log.owner)
        log.permitted = owner.permitted_part(log.filter) if owner is not None else None

    def require_reader(self, client: Client, log: DurableLog) -> Filter:
        """What of a log a client may read at present, or an `AccessDeniedError`."""
        principal = self._principal_of(client.principal.name) or client.principal
        if log.owner != principal.name and log.key in principal.grant.replay:
            return log.permitted if log.permitted is not None else _NOTHING
        return principal.permitted_subscription(log.filter)

    def _unasked(self, log: DurableLog) -> Installation:
        """Nobody waits for an answer."""
        waiter = Waiter(WaiterKind.UNASKED_SUBSCRIPTION, key=log.key)
        return Installation(self.subscription(log), None, waiter)

    def install(self, log: DurableLog, installation: Installation) -> None:
        """Have what the owner may hear sent here, and nothing else."""
        if log.permitted is not None:
            self._subscriptions.install(installation, log.permitted, log)
        else:
            self._subscriptions.withdraw(installation.key)
            self.installed(Installed(installation.waiter, ()))

    # What clients ask for.

    def subscribe(self, client: Client, message: SubscribeDurable) -> None:
        """Create a log, or go on reading one."""
        try:
            if self._turn.epoch and self.of(client, message.name) is None:
                require_unread(message)
            log = self.making.had(client, message)
        except (FilterError, RequestRefusedError) as error:
            self._turn.fail(client, message.request, error)
            return
        if log.reader is not None:
            self._displace(log, log.reader, client)
        client.logs.add(log.key)
        self.owners.subscribed(log)
        log.reader = client
        log.reader_request = message.request
        log.unsettled_bytes = 0
        self._find_place(log, client, message)
        text = log.permitted.text if log.permitted is not None else "FALSE"
        self.install(
            log,
            Installation(
                self.subscription(log),
                None,
                Waiter(WaiterKind.LOG_SUBSCRIPTION, client, log.key, message.request, text=text),
                partial=message.partial,
                deadline_us=self._subscriptions.deadline_of(message),
            ),
        )

    def _find_place(self, log: DurableLog, client: Client, message: SubscribeDurable) -> None:
        """Where the reader goes on. If the log is not the one it knew, it hears of that before any row."""
        resume_after = min(message.resume_after, log.next_offset - 1)
        known = EpochHistory(message.epochs)
        if known.entries and message.taken >= 0:
            end = log.epochs.common_end(known, log.next_offset, message.taken + 1)
            resume_after = -1 if end is None else min(resume_after, end - 1)
            if end is None or end <= message.taken:
                begin = max(log.acknowledged + 1, log.first_offset) if end is None else end
                reset = LogReset(log.name, message.request, begin, known=end is not None)
                self._turn.tell(client, reset)
                self._turn.note(
                    "warning",
                    "a reader knows rows that its log does not have",
                    log=log.key,
                    client=client.name,
                    taken=message.taken,
                    goes_on_at=begin,
                )
        # The connection before may have broken while it said so.
        self.done_with(log, resume_after)
        log.next_to_send = max(log.acknowledged + 1, resume_after + 1, log.first_offset)

    def installed(self, event: Installed) -> None:
        """A durable subscription is known everywhere: its client is answered when the log is safe, too."""
        self.owners.installed(event)
        waiter = event.waiter
        if waiter.kind is not WaiterKind.LOG_SUBSCRIPTION or not isinstance(waiter.party, Client):
            return
        answer = Done(waiter.request, waiter.text, list(event.missing))
        self.work.when_safe(Answer(waiter.party, answer, self.logs.get(waiter.key)))

    def _answer(self, answer: Answer) -> None:
        if answer.log is None or not self.copies.hold(answer.log, answer):
            self.answer(answer)

    def _tell(self, word: Word) -> None:
        if word.link.agreed:
            self._turn.tell(word.link, word.message)

    def answer(self, answer: Answer) -> None:
        """What a client has asked for is safe."""
        self._turn.tell(answer.client, answer.message)
        if answer.log is not None:
            self.reading.feed(answer.log)

    def not_installed(self, event: NotInstalled) -> None:
        """The log goes on, and can be read by the next client that asks."""
        self.owners.not_installed(event)
        waiter, client = event.waiter, event.waiter.party
        if waiter.kind is not WaiterKind.LOG_SUBSCRIPTION or not isinstance(client, Client):
            return
        log = self.logs.get(waiter.key)
        if log is not None and log.reader is client and log.reader_request == waiter.request:
            self.stop_reading(client, log.key)
        self._turn.fail(client, waiter.request, event.error)

    def acknowledge(self, client: Client, message: Acknowledge) -> None:
        """The reader is done with everything up to an offset."""
        log = self.of(client, message.name)
        if log is None or log.reader is not client:
            return
        if message.epoch and not log.epochs.has(message.epoch, message.offset, log.next_offset):
            return  # it speaks of a row that was at this offset before a restore
        self.done_with(log, message.offset)

    def done_with(self, log: DurableLog, offset: int) -> None:
        offset = min(offset, log.safe_offset - 1)
        if offset > log.acknowledged:
            log.acknowledged = offset
            self.work.ask(AcknowledgeLog(log.key, offset))
            self.stored.review(log.owner)

    def replay(self, client: Client, message: Replay) -> None:
        """Send a range of offsets again."""
        try:
            self.replays.begin(client, self.readable(client, message.name, message.secret), message)
        except (FilterError, RequestRefusedError) as error:
            self._turn.fail(client, message.request, error)

    def drop(self, client: Client, message: DropDurable) -> None:
        """End a durable subscription for good."""
        log = self.of(client, message.name)
        key = log_key(client.principal.name, message.name)
        if log is None and key not in self.set_aside:
            self._turn.fail(client, message.request, unknown_durable(message.name))
            return
        try:
            digest = log.secret if log is not None else self._secrets_aside.get(key, "")
            self._secrets.require_holder(client, message.name, digest, message.secret)
        except RequestRefusedError as error:
            self._turn.fail(client, message.request, error)
            return
        if log is not None:
            self._end(log)
        self._secrets_aside.pop(key, None)
        self.set_aside.pop(key, None)
        self.work.ask(DeleteLog(key))
        self.work.when_safe(Answer(client, Done(message.request)))

    def _end(self, log: DurableLog) -> None:
        del self.logs[log.key]
        self._turn.quotas.log_kept(log.owner, -1)
        self.stored.dropped(log)
        self.copies.ended(log)
        if log.reader is not None:
            self.stop_reading(log.reader, log.key)
        self._subscriptions.withdraw(self.subscription(log))

    def _displace(self, log: DurableLog, former: Client, client: Client) -> None:
        """The reader before this one may be a dead connection. If it lives, it hears of it."""
        self.stop_reading(former, log.key)
        if former is not client:
            reason = f"another connection reads the durable subscription {log.name!r} now"
            self._turn.tell(former, Failed(log.reader_request, "taken", reason))
            self._turn.note("info", "a durable subscription changes hands", log=log.key)

    def stop(self, client: Client, message: StopReading) -> None:
        """A client reads no more; what was sent to it and not acknowledged comes again to the next."""
        self.stop_reading(client, log_key(client.principal.name, message.name))

    def client_left(self, event: ClientLeft) -> None:
        """A client has gone, and reads nothing any more."""
        for key in list(event.client.logs):
            self.stop_reading(event.client, key)

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
        publisher = batch.publisher
        if not log.wants(publisher):
            if pending is not None:
                self.work.when_safe(pending.share())
            return
        fresh = log.stored.new_in(batch)
        new = batch if fresh is None else batch.select(fresh)
        rows = [
            LogRow(publisher, sequence, record)
            for sequence, record in zip(new.sequences.tolist(), new.records(), strict=True)
        ]
        if fresh is not None:
            others = np.setdiff1d(batch.sequences, new.sequences)
            self._discards.further_in(source, batch, log.stored, others.tolist())
        if not rows:
            # It may be on its way to the store at this moment, so it is safe only after what is.
            if pending is not None:
                self._when_safe(log, pending)
            return
        recent = log.stored.packed(publisher)[1]
        first = log.next_offset
        if log.epochs.current != self._epoch:
            log.epochs.begin(self._epoch, first)
            self.work.ask(BeginEpoch(log.key, self._epoch))
        log.next_offset += len(rows)
        size = sum(map(size_of, rows))
        self.unsafe_bytes += size + len(recent)
        self._turn.counters.stored += len(rows)
        self.work.ask(AppendRows(log.key, first, tuple(rows), self._turn.now_us, recent))
        self.work.when_safe(Appended(log, first, rows, size, len(recent)))
        if log.forgotten:
            self._forget_publishers(log)
        self.stored.appended(log, len(rows), sum(len(row.record) for row in rows))
        if pending is not None:
            self._when_safe(log, pending)
        if self.unsafe_bytes > self._settings.persist_bytes_max:
            self._bottleneck.hold_up(source)
        self.stored.stores(log.owner, source)
        if isinstance(source, Client):
            # A link carries what others publish for others, too: it is held up only where memory must be.
            self.pressure.stores(source)

    def _when_safe(self, log: DurableLog, pending: Pending) -> None:
        """Publications are settled when they are in the store, and where the log is copied, there, too."""
        self.work.when_safe(pending.share())
        if log.copying is not None and self.copies.hold(log, pending):
            pending.share()

    def _appended(self, appended: Appended) -> None:
        log, first, rows, size, recent_bytes = appended
        self.unsafe_bytes -= size + recent_bytes
        log.stored_end = first + len(rows)
        if log.copies:
            self.copies.stored(log)  # its readers get what both have, from the store
            return
        log.safe_offset = log.stored_end
        log.tail.extend(enumerate(rows, first))
        log.tail_bytes += size
        while log.tail and log.tail_bytes > self._settings.durable_tail_bytes:
            log.tail_bytes -= size_of(log.tail.popleft()[1])
        self.reading.feed(log)

    def keep(self, operation: StoreOperation) -> None:
        """Have the store do something else, if there is one."""
        if self._kept:
            self.work.ask(operation)

    def copy_rows(self, link: Link, message: CopyRows) -> None:
        """Rows of a log come back from its keeper, or of a neighbour's log to be kept."""
        if not self.lost.fetched(link, message):
            self.kept_copies.rows(link, message)

    # What the driver says of the store, and what operators hear of it.

    def snapshot(self) -> StoreSnapshot:
        """How much there is of everything now."""
        return StoreSnapshot(
            logs=tuple(
                LogSnapshot(
                    key=log.key,
                    first_offset=log.first_offset,
                    next_offset=log.next_offset,
                    safe_offset=log.safe_offset,
                    acknowledged=log.acknowledged,
                    read=log.reader is not None,
                    pins=tuple((pin.consumer, pin.offset, pin.expires_at_us) for pin in log.pins.values()),
                )
                for log in self.logs.values()
            ),
            logs_set_aside=len(self.set_aside),
            unsafe_bytes=self.unsafe_bytes,
            failed=self.work.failed,
            disk_low=self.pressure.disk_low,
            memory_high=self.pressure.memory_high,
        )

    def publishes(self, client: Client) -> None:
        """A client publishes: it gets no more credit while memory is short."""
        self.pressure.publishes(client)

    @property
    def short(self) -> bool:
        """The store takes nothing, or disk or memory is nearly used up."""
        return self.work.failed or self.pressure.short

    def review(self) -> None:
        """From time to time: try again what failed, and have old rows removed."""
        self.work.review()
        if self._kept:
            self.sweeps.review()
            self.lost.review()
            self.copies.review()
            self.left_copies.review()

    def heard(self, told: Persisted | Swept | Resources) -> None:
        """Store work is done or is not, rows were removed, or the driver says how much room there is."""
        if isinstance(told, Swept):
            self.sweeps.swept(told)
            for swept in told.logs:
                self.kept_copies.removed(swept.name, swept.first_offset)
            return
        if isinstance(told, Resources):
            self.pressure.looked_at(told)
            return
        self.work.persisted(told)
        if self.unsafe_bytes * 2 <= self._settings.persist_bytes_max:
            self._turn.open(self._bottleneck)
