"""How do the rooms act as one broker?

`BrokerCore` is a machine without sockets or clocks: inputs go in, effects come out. It hands each message to
the desk that knows what to do, and sees to it that a peer's mistake closes that peer's connection and
touches nothing else.
"""

from __future__ import annotations

import random
from functools import partial
from typing import TYPE_CHECKING

from braid.broker.access import AccessPolicy
from braid.broker.admission import AccessDesk
from braid.broker.draining import REVIEW_US as DRAINING_REVIEW_US
from braid.broker.draining import Draining
from braid.broker.identities import Acquaintances, Identities
from braid.broker.liveness import Liveness
from braid.broker.on_ask import OperatorDesk
from braid.broker.on_delegated import DelegatedDesk
from braid.broker.on_durable import DurableDesk
from braid.broker.on_link import LinkDesk
from braid.broker.on_mesh import MeshDesk
from braid.broker.on_publish import PublishDesk
from braid.broker.on_subscribe import SubscriptionDesk
from braid.broker.parties import Client, Link, Party, SoftLink
from braid.broker.postroom import Postroom
from braid.broker.reception import Reception
from braid.broker.streams import StreamDesk
from braid.broker.turns import Turns
from braid.errors import RemoteProtocolError, RequestRefusedError
from braid.protocol import Frame, PublicationBatch
from braid.protocol.duplicates import DuplicateFilter
from braid.protocol.effects import Close
from braid.protocol.inputs import (
    Closed,
    Drain,
    LogRead,
    Malformed,
    Opened,
    Persisted,
    Received,
    Reconfigured,
    Resources,
    Swept,
    Tick,
    Writable,
)
from braid.protocol.messages import (
    Acknowledge,
    Acknowledgement,
    Advertise,
    Ask,
    Done,
    DropDurable,
    Failed,
    Goodbye,
    Introduction,
    LinkState,
    Loads,
    Nearby,
    Ping,
    Pong,
    PublishDiscarded,
    Reach,
    Refused,
    Replay,
    Separate,
    Settled,
    StopReading,
    Subscribe,
    SubscribeDurable,
    SyncBegin,
    TablesComplete,
    TablesIncomplete,
    Unadvertise,
    Unsubscribe,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from typing import Any

    from braid.broker.settings import BrokerSettings
    from braid.broker.ways import Source
    from braid.matching import Matcher
    from braid.protocol.effects import Effect
    from braid.protocol.inputs import Input
    from braid.protocol.log import StoreState

__all__ = ["BrokerCore"]

# Answers that a client has not acknowledged: as many as all its subscriptions lead to, twice over. Each takes
# some hundred bytes.
ANSWERS_MAX = 200_000

# Between two steps of tidying, so that others have their turn.
TIDY_PAUSE_US = 1_000


class BrokerCore:
    """One broker."""

    def __init__(
        self,
        settings: BrokerSettings,
        *,
        incarnation: str,
        seed: int,
        access: AccessPolicy | None = None,
        store: StoreState | None = None,
        neighbours: Iterable[tuple[str, str]] = (),
        stopwatch: Callable[[], int] | None = None,
        matcher: Matcher | None = None,
    ) -> None:
        """
        Args:
            settings: its choices.
            incarnation: unlike that of every earlier start of a broker with this id.
            seed: for the chance in its pauses.
            access: who may do what; everybody everything if not given.
            store: what was kept from earlier; None if nothing is kept.
            stopwatch: nanoseconds, for statistics only; without one matching is not timed.
            neighbours: ids and addresses that somebody else, such as a directory, remembers from earlier.
            matcher: who answers which destinations want a publication, such as a view of what many brokers
                in one process share; an index of its own if not given.
        """
        self.settings = settings
        self.incarnation = incarnation
        self._postroom = Postroom(settings)
        self._links = LinkDesk(
            settings, incarnation, self._postroom, random.Random(seed), self._postroom.changed
        )
        self._subscriptions = SubscriptionDesk(settings.broker_id, self._postroom, self._links.links, matcher)
        self._matcher = self._subscriptions.tables.matcher
        self._links.bind(self._subscriptions)
        self._streams = StreamDesk(self._postroom, self._subscriptions)
        self._durables = DurableDesk(
            settings, self._postroom, self._subscriptions, epoch=incarnation, kept=store is not None
        )
        self._mesh = MeshDesk(settings, self._postroom, self._links)
        seen = DuplicateFilter(window=settings.overtaking_max)
        self._delegated = DelegatedDesk(self._postroom, self._links, self._mesh, seen)
        self._publish = PublishDesk(
            settings.hops_max,
            self._postroom,
            self._subscriptions,
            self._durables,
            self._links,
            self._mesh,
            self._delegated,
            seen,
        )
        self._store_work = self._durables.work
        self._ways = self._publish.ways
        self._sources = self._ways.sources
        self._ways.stopwatch = stopwatch
        identities = Identities(settings.broker_id, store)
        self._acquaintances = Acquaintances(identities, self._links.dialling, self._durables.keep)
        self._reception = Reception(
            settings,
            incarnation,
            identities,
            access if access is not None else AccessPolicy.open(),
            self._postroom,
            self._links,
            self._mesh,
            self._postroom.changed,
        )
        self._durables.principal_of = self._reception.principal
        self._admission = AccessDesk(
            self._postroom,
            self._reception,
            self._subscriptions,
            self._durables,
            send_away=self._broken,
            end=self._end,
        )
        self._liveness = Liveness(self._postroom)
        self._operator = OperatorDesk(
            incarnation,
            self._postroom,
            self._links,
            self._subscriptions,
            self._durables,
            self._reception,
            self._mesh,
            self._detached,
            self._admission.reload,
        )
        self._turns = Turns(
            self._postroom,
            handler=self._handler,
            batches=self._publish.arrived,
            subscribe_link=self._subscriptions.subscribe_link,
            changing=self._ways.forget,
            check=_check_answers,
            busy=lambda link: self._subscriptions.tables.telling(link.name),
            guard=self._guarded,
        )
        self._links.when_ready = self._release_publications
        self._links.when_known = self._acquaintances.known
        self._links.when_begun = self._mesh.met
        self._links.when_complete = self._mesh.complete
        self._links.when_dropped = self._mesh.gone
        self._links.when_stranded = self._delegated.again
        self._subscriptions.tables.anchor_for = self._mesh.anchor_for
        self._mesh.when_seen = self._delegated.look_again
        self._links.when_gone = self._acquaintances.gone
        self._subscriptions.when_told = self._links.tell_completeness
        self._subscriptions.when_advertised = self._publish.release
        self._review_at_us: int | None = None
        self._tidy_at_us: int | None = None
        self._draining = Draining(
            self._postroom, self._reception, self._links, self._mesh, self._publish, self._durables
        )
        self._deadline_us = 0
        self._calm = False
        """Whether nothing is to be done before the deadline but what messages ask for."""
        self._postroom.when_due = self._due
        self._links.remember(neighbours)
        if store is not None:
            self._links.remember(store.neighbours, dict(store.met_at))
            for log in store.logs:
                self._durables.restore(log)
        if settings.flooding:
            self._subscriptions.announce_anything()
        self._on_message: dict[type, Callable[[Any, Any], None]] = {
            Ping: self._pinged,
            Pong: lambda party, message: self._mesh.answered(party, message.number),
            LinkState: self._mesh.hear_link_state,
            Settled: self._settled_apart,
            Acknowledgement: self._acknowledged,
            Goodbye: self._goodbye,
            Refused: self._refused,
        }
        self._on_client: dict[type, Callable[[Any, Any], None]] = {
            Subscribe: self._subscriptions.subscribe_client,
            Unsubscribe: self._streams.unsubscribe,
            Separate: self._streams.separate,
            Advertise: self._subscriptions.advertise_client,
            Unadvertise: self._subscriptions.unadvertise_client,
            SubscribeDurable: self._durables.subscribe,
            Acknowledge: self._durables.acknowledge,
            Replay: self._durables.replay,
            DropDurable: self._durables.drop,
            StopReading: self._durables.stop,
            Ask: self._operator.ask,
        }
        self._on_link: dict[type, Callable[[Any, Any], None]] = {
            Unsubscribe: self._subscriptions.unsubscribe_link,
            Advertise: self._subscriptions.advertise_link,
            Unadvertise: self._subscriptions.unadvertise_link,
            Done: lambda link, message: self._subscriptions.confirmed(link, message.request),
            Failed: self._link_failed,
            SyncBegin: lambda link, message: self._links.sync_begins(link),
            TablesComplete: lambda link, message: self._links.tables_complete(link),
            Reach: lambda link, message: self._links.reaches(link, message.brokers, message.missing),
            TablesIncomplete: lambda link, message: self._links.tables_incomplete(link),
            Nearby: self._mesh.hear_nearby,
            Loads: self._mesh.hear_loads,
            Introduction: self._acquaintances.introduced,
            PublishDiscarded: self._publish.discards.further_on,
        }

    # The two doors.

    def handle(self, stimulus: Input, now_us: int) -> list[Effect]:
        """Take in what happened and say what is to be done, in order."""
        if self._calm and now_us < self._deadline_us and type(stimulus) is Received:
            source = self._sources.get(stimulus.connection) or self._source(stimulus.connection)
            try:
                if source is not None and self._publish.take_in(source, stimulus.frames, now_us):
                    if self._store_work.asked:
                        self._store_work.collect()
                    return self._postroom.collect()
            except (RemoteProtocolError, RequestRefusedError) as error:
                self._wrong(stimulus.connection, error)
                stimulus = Tick()  # all that is left of this turn
        self._postroom.now_us = now_us
        self._turns.work = 0
        if not isinstance(stimulus, Received | Tick):
            self._ways.forget()
        if isinstance(stimulus, Received):
            self._guarded(stimulus.connection, partial(self._take_in, stimulus.connection, stimulus.frames))
        elif isinstance(stimulus, Writable):
            self._writable(stimulus)
        elif isinstance(stimulus, Opened):
            self._reception.opened(stimulus)
        elif isinstance(stimulus, Closed):
            self._closed(stimulus)
        elif isinstance(stimulus, Malformed):
            self._broken(stimulus.connection, "malformed", stimulus.reason)
        elif isinstance(stimulus, Persisted | Swept | Resources):
            self._durables.heard(stimulus)
        elif isinstance(stimulus, LogRead):
            self._durables.reading.was_read(stimulus)
        elif isinstance(stimulus, Reconfigured):
            self._admission.reconfigured(stimulus)
        elif isinstance(stimulus, Drain):
            self._draining.begin()
            self._review_at_us = None
        elif not isinstance(stimulus, Tick):
            raise TypeError(f"{stimulus!r} is no input")
        self._on_time(now_us)
        if self._turns.due_us is not None and now_us >= self._turns.due_us and not self._turns.work:
            self._turns.serve()
        if self._subscriptions.unfinished and isinstance(stimulus, Tick):
            self._ways.forget()
            self._subscriptions.step()
        if self._tidy_at_us is not None or self._matcher.unfinished:
            self._tidy(now_us, quiet=isinstance(stimulus, Tick))
        self._durables.work.collect()
        effects = self._postroom.collect()
        self._deadline_us = self._next_deadline_us()
        busy = self._links.holding or self._draining.begun or self._turns.waiting
        self._calm = not busy and self._tidy_at_us is None
        return effects

    def _source(self, connection: int) -> Source | None:
        party = self._reception.parties.get(connection)
        return self._ways.source(party) if party is not None else None

    def next_deadline_us(self) -> int | None:
        """When a `Tick` is due at the latest."""
        return self._deadline_us

    def _due(self, at_us: int) -> None:
        self._deadline_us = min(self._deadline_us, at_us)

    def _next_deadline_us(self) -> int:
        if self._review_at_us is None:
            return 0
        others = (
            self._postroom.acknowledge_at_us,
            self._links.dialling.next_us,
            self._tidy_at_us,
            self._mesh.review_at_us,
            self._subscriptions.installations.next_deadline_us,
            self._turns.due_us,
            self._reception.next_refusal_us,
            self._postroom.now_us if self._subscriptions.unfinished else None,
        )
        return min([self._review_at_us, *(at_us for at_us in others if at_us is not None)])

    # Messages.

    def _guarded(self, connection: int, action: Callable[[], None]) -> None:
        """Do what a peer's mistake may end, which then ends its connection."""
        try:
            action()
        except (RemoteProtocolError, RequestRefusedError) as error:
            self._wrong(connection, error)

    def _wrong(self, connection: int, error: RemoteProtocolError | RequestRefusedError) -> None:
        code = error.code if isinstance(error, RequestRefusedError) else "protocol"
        self._broken(connection, code, str(error))

    def _take_in(self, connection: int, frames: Sequence[Frame]) -> None:
        party = self._reception.parties.get(connection)
        visitor = self._reception.visitors.get(connection)
        if party is None and visitor is not None and visitor.refusal is None and frames:
            first = frames[0].body
            if isinstance(first, PublicationBatch):
                raise RemoteProtocolError("publications before a greeting")
            self._ways.forget()
            party = self._reception.greeted(connection, first)
            frames = frames[1:]
        if party is not None:
            party.heard_at_us = self._postroom.now_us
            party.pinged = False
            if self._draining.begun and isinstance(party, Client):
                frames = self._draining.admitted(party, frames)
            self._turns.take_in(party, frames)

    def _handler(self, party: Party, kind: type) -> Callable[[Any, Any], None]:
        special = self._on_client if isinstance(party, Client) else self._on_link
        if isinstance(party, SoftLink):
            special = {}
        handler = self._on_message.get(kind) or special.get(kind)
        if handler is None:
            raise RemoteProtocolError(f"a {kind.__name__} makes no sense here")
        return handler

    def _pinged(self, party: Party, message: Ping) -> None:
        # One who takes nothing gets no answers that would only pile up.
        if party.channel.writable:
            self._postroom.aside(party, Pong(message.number))

    def _acknowledged(self, party: Party, message: Acknowledgement) -> None:
        received_before = party.channel.peer_received
        for care in party.channel.acknowledged(message):
            self._postroom.settlement.settle(care)
        self._postroom.caught_up(party, moves=party.channel.peer_received > received_before)
        self._postroom.changed(party)

    def _settled_apart(self, party: Party, message: Settled) -> None:
        for care in party.channel.settled_apart(message.frames):
            self._postroom.settlement.settle(care)
        self._postroom.caught_up(party)

    def _link_failed(self, link: Link, message: Failed) -> None:
        self._postroom.note(
            "error", "a neighbour refused", neighbour=link.name, code=message.code, reason=message.reason
        )
        self._subscriptions.refused(link, message.request, message.reason)

    def _refused(self, party: Party, message: Refused) -> None:
        self._postroom.note(
            "error", "a peer ends the connection", party=party.name, code=message.code, reason=message.reason
        )
        if party.connection is not None:
            self._postroom.effect(Close(party.connection, message.reason))

    def _goodbye(self, party: Party, message: Goodbye) -> None:
        connection = party.connection
        if connection is None:
            return
        self._postroom.effect(Close(connection, message.reason or "goodbye"))
        self._end(connection)
        if isinstance(party, Link) and message.detach:
            self._detached(party)

    def _detached(self, link: Link) -> None:
        if link.connection is not None:
            self._end(link.connection)
        self._links.remove(link)
        self._acquaintances.gone(link)
        self._postroom.note("info", "a neighbour has left the network", neighbour=link.name)

    # Connections.

    def _writable(self, stimulus: Writable) -> None:
        party = self._reception.parties.get(stimulus.connection)
        if party is not None:
            party.channel.writable = stimulus.writable
            self._postroom.caught_up(party)
            self._postroom.changed(party)
            self._turns.writable(stimulus.connection)

    def _closed(self, closed: Closed) -> None:
        if closed.connection is None:
            self._not_made(closed.dialled, closed.soft)
            return
        visitor = self._reception.visitors.pop(closed.connection, None)
        if visitor is not None:
            self._not_made(visitor.opened.dialled, visitor.opened.soft)
        party = self._reception.parties.get(closed.connection)
        if party is not None:
            self._postroom.note("info", "connection closed", party=party.name, reason=closed.reason)
            self._guarded(closed.connection, partial(self._turns.last_words, closed.connection))
        self._end(closed.connection)

    def _not_made(self, dialled: str | None, soft: bool) -> None:
        """A connection, which we may have dialled, is not to be."""
        if dialled is not None and soft:
            self._mesh.dial_failed(dialled)
        elif dialled is not None:
            self._links.dialling.again(dialled)

    def _broken(self, connection: int, code: str, reason: str) -> None:
        """A peer broke the rules or is not let in: tell it, and end its connection."""
        party = self._reception.parties.get(connection)
        visitor = self._reception.visitors.pop(connection, None)
        if party is None and visitor is None:
            return
        who = party.name if party is not None else visitor.opened.remote if visitor is not None else ""
        self._postroom.audit("warning", "connection refused", party=who, code=code, reason=reason)
        self._postroom.refuse(connection, code, reason)
        self._end(connection)
        if visitor is not None:
            self._not_made(visitor.opened.dialled, visitor.opened.soft)

    def _end(self, connection: int) -> None:
        """A connection is over; a link waits for the next one, a client is gone."""
        self._ways.forget()
        self._turns.forget(connection)
        self._reception.admissions.pop(connection, None)
        party = self._reception.parties.pop(connection, None)
        if isinstance(party, Link):
            self._links.disconnected(party)
            self._links.dialling.lost(party.name)
        elif isinstance(party, SoftLink):
            self._mesh.disconnected(party)
        elif isinstance(party, Client):
            self._client_left(party)

    def _client_left(self, client: Client) -> None:
        client.connection = None
        client.channel.disconnect()
        for name in list(client.logs):
            self._durables.stop_reading(client, name)
        self._subscriptions.client_left(client)
        self._reception.left(client)
        self._postroom.forget(client)
        # What it was to get is nobody's care any more; what it published goes its way.
        for care in client.channel.abandon():
            self._postroom.settlement.settle(care)
        self._publish.leave_behind(client)

    # Time.

    def _on_time(self, now_us: int) -> None:
        self._links.begin(now_us)
        self._links.dialling.due(now_us)
        for connection, error in self._reception.refusals_due() if self._reception.refused else ():
            self._broken(connection, error.code, str(error))
        if self._mesh.review_at_us is not None and now_us >= self._mesh.review_at_us:
            self._review_mesh(now_us)
        self._subscriptions.installations.review(now_us)
        if self._review_at_us is not None and now_us < self._review_at_us:
            return
        self._review_at_us = now_us + min(self.settings.heartbeat_us, self.settings.recovery_us_max) // 4
        self._review(now_us)

    def _tidy(self, now_us: int, quiet: bool) -> None:
        """Let the index go on with its merging when nothing else is to be done, a step at a time."""
        matcher = self._matcher
        if not matcher.unfinished:
            self._tidy_at_us = None
        elif self._tidy_at_us is None:
            self._tidy_at_us = now_us + TIDY_PAUSE_US
        elif quiet and now_us >= self._tidy_at_us:
            self._tidy_at_us = now_us + TIDY_PAUSE_US if matcher.tidy() else None

    def _review(self, now_us: int) -> None:
        """Look after everything that only time brings about."""
        for connection in self._reception.overdue():
            self._broken(connection, "late", "no greeting came in time")
        self._turns.review()
        self._durables.work.review()
        self._admission.review()
        parties = list(self._reception.parties.values())
        for party in parties:
            self._publish.tell_apart(party)
        for party, code, reason in self._liveness.review(parties):
            if party.connection is not None:
                self._broken(party.connection, code, reason)
                self._delegated.leave(party)
        for party in parties:
            for stream in self._postroom.stalled(party):
                if party.connection is not None:
                    self._ways.forget()
                    self._streams.give_up(stream)
        if any(link.down_since_us is not None for link in self._links.links.values()):
            self._ways.forget()
        self._links.review_waiting()
        self._links.tell_completeness()
        self._links.review_readiness()
        self._review_mesh(now_us)
        if self._draining.begun:
            self._review_at_us = now_us + DRAINING_REVIEW_US
            self._draining.review(now_us)

    def _review_mesh(self, now_us: int) -> None:
        self._ways.add_up()  # it looks at what was passed on
        self._mesh.review(now_us)
        self._ways.forget_if_moved()

    def _release_publications(self) -> None:
        """Clients' publications are accepted from now on; some may have come already."""
        self._delegated.look_again()
        self._publish.release_left_behind()
        for client in self._reception.clients:
            self._publish.release(client)

    # For people and metrics.

    @property
    def ready(self) -> bool:
        """Whether publications are accepted."""
        return self._links.ready and not (self._draining.begun or self._durables.short)

    def statistics(self) -> dict[str, Any]:
        """A snapshot for metrics and reports."""
        self._ways.add_up()
        return self._operator.statistics()


def _check_answers(party: Party) -> None:
    if isinstance(party, Client) and party.channel.unacknowledged_messages > ANSWERS_MAX:
        raise RemoteProtocolError(f"more than {ANSWERS_MAX:,} answers were not acknowledged")
