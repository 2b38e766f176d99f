"""What happens when publications arrive?

All batches of one read are routed together: repeats are dropped, one match call says which way their rows
go, and everybody on that way gets its rows as the bytes they came in. A single publication is the case of one
batch with one row.
"""

from __future__ import annotations

from enum import Enum, auto
from functools import partial
from itertools import groupby
from typing import TYPE_CHECKING, Any

import numpy as np

from braid.broker.joining import in_pieces, is_long, joined
from braid.broker.left_behind import LeftBehind
from braid.broker.refusals import Refusals
from braid.broker.repetitions import Repetitions, session_of
from braid.broker.ways import Ways, chosen_rows
from braid.errors import PublicationError, RemoteProtocolError, RequestRefusedError
from braid.protocol import PublicationBatch
from braid.protocol.effects import Pause
from braid.protocol.messages import Acknowledgement

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from braid.broker.delegated_copies import DelegatedCopies
    from braid.broker.discards import Discards
    from braid.broker.durable_logs import DurableLogs
    from braid.broker.events import AnythingExpected, ClientLeft, SoftLinkLost
    from braid.broker.parties import Client, Party
    from braid.broker.questions import Hops, Readiness
    from braid.broker.settling import Pending, Unsettled
    from braid.broker.subscriptions import Subscriptions
    from braid.broker.turn import Turn
    from braid.broker.ways import Arrival, Rows, Source, Way
    from braid.protocol import Frame
    from braid.protocol.duplicates import DuplicateFilter
    from braid.protocol.effects import Effect

__all__ = ["UNROUTED", "Publications"]

UNROUTED = "unrouted"
"""Why a client gets no credit whose publications wait until subscriptions can have found their way here."""


class Publications:
    """Routes publications."""

    def __init__(
        self,
        hops_max: int,
        turn: Turn,
        subscriptions: Subscriptions,
        durables: DurableLogs,
        links: Readiness,
        mesh: Hops,
        delegated: DelegatedCopies,
        seen: DuplicateFilter,
        unsettled: Unsettled,
        from_sets: Unsettled,
        discards: Discards,
        stopwatch: Callable[[], int] | None,
        collect_store_work: Callable[[], None],
        while_rebuilding: Callable[[Party, Sequence[Arrival]], None],
    ) -> None:
        """
        Args:
            hops_max: links that a publication may cross.
            turn: where copies go.
            subscriptions: say who wants what.
            durables: the logs of this broker.
            links: whether the interest of everybody is known.
            mesh: where publications go next.
            delegated: passes on copies for sets of brokers.
            seen: what has been here as a copy along the tree.
            unsettled: where those copies came from, until they are settled.
            from_sets: where copies for sets came from; nothing that comes again waits for these.
            discards: tells publishers what went nowhere.
            stopwatch: nanoseconds, for statistics.
            collect_store_work: has what this turn has asked of the store done.
            while_rebuilding: sees what was routed while tables are being rebuilt here or next door.
        """
        self.seen = seen
        ask = self._needs_no_look
        self.ways = Ways(turn.counters, turn.roomy, subscriptions.tables, mesh, delegated, ask, stopwatch)
        self._hops_max = hops_max
        self._turn = turn
        self._subscriptions = subscriptions
        self._durables = durables
        self._collect_store_work = collect_store_work
        self._while_rebuilding = while_rebuilding
        self._links = links
        self._mesh = mesh
        self._delegated = delegated
        self._delivered_for_sets = delegated.delivered
        self._is_new = self.seen.is_new
        self._refusals = Refusals(turn)
        self._left_behind = LeftBehind(turn)
        self._settle = turn.settlement.settle
        self._repetitions = Repetitions(turn, unsettled, from_sets, discards, sees_far=mesh.sees_far)
        self.discards = discards

    # Arrivals.

    def take_in(self, source: Source, frames: Sequence[Frame], now_us: int) -> list[Effect] | None:
        """Route what has come, if it is one batch from which nothing else can follow, or take in how far a
        peer has come: all that this turn leads to.

        Otherwise nothing has happened yet, and it is None: several batches, or a long one, may be too much.
        """
        if len(frames) != 1:
            return None
        frame = frames[0]
        batch: Any = frame[1]
        party = source.party
        turn = self._turn
        if type(batch) is not PublicationBatch:
            if type(batch) is not Acknowledgement:
                return None
            turn.now_us = now_us
            party.heard(now_us)
            return turn.only_acknowledged(party, batch)
        client = source.client
        if not source.simple or (client is not None and client.unrouted):
            return None
        turn.now_us = party.heard_at_us = now_us
        party.pinged = False  # as `heard` does it, without the call
        if (
            batch.count != 1
            or batch.flags
            or batch.route
            or batch.hops >= self._hops_max
            or (client is not None and (batch.hops or batch.publisher != client.own_publisher))
        ):
            if is_long(batch):
                return None
            self._arrived(source, frames)
        elif source.channel.accept_batch(frame[0], batch):
            if client is not None:
                self._published(client, 1, batch.size)
            if self._is_new(batch.publisher, batch.first):
                # Mostly its way is known from others that match the same.
                way = source.ways.get(batch.memo)
                if way is not None:
                    way.uses += 1
                else:
                    try:
                        way = self.ways.of_one(source, batch)
                    except PublicationError:
                        self._go(source, ((batch, None),))  # which says what is wrong with it
                if way is not None:
                    if way.receivers and self._delivered_for_sets.empty:
                        return turn.pass_on_one(way.receivers, batch, party)
                    self._follow(party, ((batch, None),), way)
            else:
                self._new_part(party, batch, np.empty(0, np.int64), None)
        turn.arrived(party)
        self._collect_store_work()
        return turn.collect()

    def arrived(self, party: Party, frames: Sequence[Frame]) -> None:
        """Publications have come from a party."""
        self._arrived(self.ways.source(party), frames)

    def _arrived(self, source: Source, frames: Sequence[Frame]) -> None:
        accept = source.channel.accept
        if len(frames) == 1:
            batches: Iterable[tuple[int, Any]] = frames if accept(frames[0]) else ()
        else:
            batches = joined([frame for frame in frames if accept(frame)])
        self._take(source, [(batch, self._waited_for(source.party, each, batch)) for each, batch in batches])

    def _waited_for(self, party: Party, sequence: int, batch: PublicationBatch) -> Pending | None:
        """What its sender waits for from the moment that a batch has arrived."""
        if not (batch.flags and batch.acknowledged):
            return None
        pending = party.line.enter(sequence)
        if batch.route:
            pending.apart = session_of(party)
        return pending

    def _take(self, source: Source, arrivals: Sequence[Arrival]) -> None:
        """Route what has been accepted."""
        if source.client is not None:
            self._from_client(source.client, arrivals)
        elif source.rerouted or any(batch.route or (batch.flags and batch.again) for batch, _ in arrivals):
            self._route_unlike(source, arrivals)
        else:
            self._route(source, arrivals)

    def divided(self, party: Party, frame: Frame, rows_max: int) -> list[Arrival]:
        """Accept a batch, and make pieces of so many rows of it; its sender waits for all of them."""
        sequence, batch = frame
        if not isinstance(batch, PublicationBatch) or not party.channel.accept(frame):
            return []
        whole = self._waited_for(party, sequence, batch)
        pieces = in_pieces(batch, rows_max, party, whole)
        self._settle(whole)
        return pieces

    def take_pieces(self, party: Party, pieces: Sequence[Arrival]) -> None:
        """Route pieces of a batch that was accepted."""
        self._take(self.ways.source(party), pieces)

    def _needs_no_look(self, client: Client) -> bool:
        """Whether a client may publish whatever it likes, and subscribers may want it."""
        return client.principal.publishes_anything and self.expects_anything

    # From clients.

    def _from_client(self, client: Client, arrivals: Sequence[Arrival]) -> None:
        """A client publishes. What no subscriber can be waiting for yet is kept until one can."""
        rows = size = 0
        for batch, _ in arrivals:
            rows += batch.count
            size += batch.size
        self._published(client, rows, size)
        kept = bool(client.unrouted)
        # What is kept is read now, so that nobody else has to answer for a mistake in it.
        unseen = not kept and self._needs_no_look(client)
        checked = [self._checked(client, batch, pending, unseen=unseen) for batch, pending in arrivals]
        self._refusals.audit(client)
        client.unrouted.extend(checked)
        if not kept:
            self.release(client)
        if client.unrouted:
            # Without further credit, what is kept stays within the window that the client has.
            client.channel.hold_credit(UNROUTED)
            arrived = client.unrouted[-len(checked) :]
            client.unrouted[-len(checked) :] = [
                (self.discards.kept(client, batch), pending) for batch, pending in arrived
            ]
            if client.connection is None:
                self._left_behind.take(client)

    def _published(self, client: Client, rows: int, size: int) -> None:
        """Count what a client has published. If that is more than it may, the next has to wait."""
        wait_us = client.limiter.take(rows, size, self._turn.now_us)
        if wait_us and client.connection is not None:
            self._turn.effect(Pause(client.connection, wait_us))
        self._turn.counters.published += rows
        self._durables.publishes(client)

    def release(self, client: Client) -> None:
        """Route what was kept, as soon as everybody knows that it may come."""
        if not client.unrouted or not self._links.accepting:
            return
        try:
            expected = self._expected(client, client.unrouted)
        except PublicationError:
            client.unrouted = [
                (self._refusals.possible(client, batch), pending) for batch, pending in client.unrouted
            ]
            expected = self._expected(client, client.unrouted)
        if expected:
            self._route_kept(client)
        elif not client.advertising or client.connection is None:
            # (One that has gone has taken its advertisements with it.)
            self._subscriptions.announce_anything(client)

    def expected(self, event: AnythingExpected) -> None:
        """Everybody knows that anything may be published here."""
        if self._links.accepting:
            self._route_kept(event.client)

    def _route_kept(self, client: Client) -> None:
        kept, client.unrouted = client.unrouted, []
        if client.channel.release_credit(UNROUTED):
            self._turn.changed(client)
        if not kept:
            return
        source = self.ways.source(client)
        if any(pending is not None for _, pending in kept):
            self._route_unlike(source, kept)
        else:
            self._route(source, kept)

    def client_left(self, event: ClientLeft) -> None:
        """A client has gone: what it published and is not routed yet is kept until it can be."""
        self._left_behind.take(event.client)

    def release_all(self, clients: Iterable[Client]) -> None:
        """Publications are accepted from now on; some may have come already, also from those who left."""
        for client in (*self._left_behind, *clients):
            self.release(client)

    @property
    def unrouted(self) -> bool:
        """Whether clients that have gone have left something behind that is not routed yet."""
        return bool(self._left_behind)

    @property
    def expects_anything(self) -> bool:
        """Whether subscriptions to all publications there can be have found their way here."""
        return self._links.ready and (self._subscriptions.universal or not self._links.links)

    def _expected(self, client: Client, arrivals: Sequence[Arrival]) -> bool:
        """Whether subscriptions to these publications have found their way here."""
        if self.expects_anything:
            return True
        if client.advertising or client.connection is None:
            return False
        return all(client.has_advertised(batch.attributes()) for batch, _ in arrivals)

    def _checked(
        self, client: Client, batch: PublicationBatch, pending: Pending | None, *, unseen: bool
    ) -> Arrival:
        """The batch without the rows that this client may not publish; it hears which and why.

        `unseen`: there can be no such rows.
        """
        if not client.owns(batch.publisher):
            # A publisher's numbers say what is a repetition: nobody may use another's.
            raise RemoteProtocolError(
                f"publishers of {client.name!r} are called {client.publishers}, not {batch.publisher!r}"
            )
        if batch.hops or batch.route:
            raise RemoteProtocolError("a client's publications have crossed no link")
        if batch.publisher != client.own_publisher:
            try:
                self._turn.quotas.require_publisher(client.principal, batch.publisher, self._turn.now_us)
            except RequestRefusedError as error:
                self._refusals.refuse(client, batch, np.arange(len(batch)), error.code, str(error))
                return batch.select(np.empty(0, np.int64)), pending
            client.own_publisher = batch.publisher
        if unseen:
            return batch, pending
        try:
            permitted = client.principal.permitted_rows(batch.attributes())
        except PublicationError:
            batch = self._refusals.possible(client, batch)
            permitted = client.principal.permitted_rows(batch.attributes())
        attributes = batch.attributes()
        if permitted is not None and not permitted.all():
            refused = np.flatnonzero(~permitted)
            refusal = client.principal.refused_publication(attributes[int(refused[0])])
            self._refusals.refuse(client, batch, refused, refusal.code, str(refusal))
            batch = batch.select(np.flatnonzero(permitted))
        return batch, pending

    # From links.

    def _route_unlike(self, source: Source, arrivals: Sequence[Arrival]) -> None:
        """Route publications among which there may be copies for sets, and repetitions."""
        for kind, run in groupby(self._repetitions.owed(source, arrivals), key=partial(self._kind, source)):
            if kind is _Kind.PLAIN:
                self._route(source, list(run))
                continue
            for batch, pending in run:
                if kind is _Kind.FOR_A_SET:
                    self._delegated_arrived(source.party, batch, pending)
                else:
                    self._again(source, batch, pending)

    def _kind(self, source: Source, arrival: Arrival) -> _Kind:
        batch, pending = arrival
        if batch.route:
            return _Kind.FOR_A_SET
        if batch.again:
            return _Kind.REPETITION
        if pending is not None and (source.client is not None or source.rerouted):
            # A job that is tried again does not say so; what became of its first run may not be safe yet.
            highest = self.seen.highest(batch.publisher)
            known = highest is not None and batch.first <= highest
            if known and (source.client or self.seen.has_rows(batch.publisher, batch.sequences).any()):
                return _Kind.REPETITION
        return _Kind.PLAIN

    def _settle_all(self, pending: Pending | None) -> None:
        """Everybody concerned has been found, and has a share of what is waited for."""
        if pending is not None:
            self._settle(pending.here)
            self._settle(pending)

    def _delegated_arrived(self, link: Party, batch: PublicationBatch, pending: Pending | None) -> None:
        self._turn.counters.received += batch.count
        if pending is not None:
            self._repetitions.for_a_set(batch, pending)
        if batch.hops >= self._hops_max:
            self._looped(link, batch)
        elif pending is None:
            self._delegated.arrived(link, batch, None, self._deliver_here)
        else:
            here = self._repetitions.handed_over(batch)
            if self._delegated.arrived(link, batch, pending, self._deliver_here):
                self._repetitions.again_for_a_set(batch, pending, here)
        self._settle(pending)

    def _deliver_here(self, source: Party, batch: PublicationBatch, pending: Pending | None) -> None:
        """A copy for a set of brokers, of which this is one."""
        arrivals: list[Arrival] = [(batch, pending)]
        if pending is not None:
            self._repetitions.wait_here(batch, pending)
        try:
            way = self.ways.here(arrivals)
        except PublicationError:
            arrivals = self._without_impossible(source, arrivals)
            way = self.ways.here(arrivals)
        self._hand_over(source, arrivals, way, delegated=True)
        if pending is not None:
            self._settle(pending.here)

    def back_to_the_tree(self, event: SoftLinkLost) -> None:
        """A soft link has gone: what it may not have delivered goes the primary way."""
        soft = event.soft
        for batch, care in soft.channel.withdraw():
            if batch.route:
                self._delegated.again(batch, care)
            else:
                # Without that way its broker has left, and with it those it stood for.
                link = self._mesh.way_back(soft)
                self._turn.pass_on([link] if link is not None else [], [(batch, care)], None)
            self._settle(care, soft)

    # For both.

    def _route(self, source: Source, arrivals: Sequence[Arrival]) -> None:
        """Let what is new of these go its way."""
        fresh: list[Arrival] = []
        for arrival in arrivals:
            batch, pending = arrival
            rows = self.seen.new_in(batch)
            if rows is not None or batch.hops >= self._hops_max:
                new = self._new_part(source.party, batch, rows, pending)
                if new is None:
                    continue
                batch, pending = arrival = new, pending
            if pending is not None:
                self._repetitions.first(batch, pending)
            fresh.append(arrival)
        if self._links.holding:
            self._go_and_be_kept(source, fresh)
        elif fresh:
            self._go(source, fresh)

    def _new_part(
        self, source: Party, batch: PublicationBatch, rows: Rows, pending: Pending | None
    ) -> PublicationBatch | None:
        """The rows of a batch that are new, if they may go on."""
        if rows is not None:
            self._turn.counters.received += batch.count - len(rows)
            self._repetitions.repeated(source, batch, rows, pending)
            batch = batch.select(rows)
        if batch.count and batch.hops < self._hops_max:
            return batch
        if batch.count:
            self._turn.counters.received += batch.count
            self._looped(source, batch)
        self._settle(pending)
        return None

    def _again(self, source: Source, batch: PublicationBatch, pending: Pending | None) -> None:
        """Let a repetition go everywhere, and hand over here what is new of it."""
        party = source.party
        possible = self._without_impossible(party, [(batch, pending)])
        if not possible or batch.hops >= self._hops_max:
            for each, _ in possible:
                self._turn.counters.received += each.count
                self._looped(party, each)
            self._settle(pending)
            return
        batch = possible[0][0].repetition()
        possible = [(batch, pending)]
        rows = self.seen.new_in(batch)
        fresh = np.arange(batch.count) if rows is None else rows
        self._repetitions.again(party, batch, fresh, pending)
        if self._links.holding:
            self._keep_for_unknown(party, possible)
        way = self.ways.of(source, possible, self._links.holding)
        self._pass_on(party, possible, way)
        if len(fresh):
            new: list[Arrival] = [(batch if rows is None else batch.select(rows), pending)]
            self._hand_over(party, new, self.ways.here(new), delegated=False)
        self._settle_all(pending)

    def _looped(self, source: Party, batch: PublicationBatch) -> None:
        self._turn.counters.looped += len(batch)
        self.discards.looped(source, batch)
        self._turn.note(
            "error", "publications crossed too many links", publisher=batch.publisher, hops=batch.hops
        )

    def _go_and_be_kept(self, source: Source, arrivals: Sequence[Arrival]) -> None:
        """Let publications go their way while the interest of a neighbour is not known.

        They go one batch after the other: what is kept for such a link whether it matches or not must not
        come behind what follows it.
        """
        for batch, pending in arrivals:
            # All rows are kept, also those that matching may not look at.
            possible = self._without_impossible(source.party, [(batch, pending)])
            if possible:
                self._keep_for_unknown(source.party, possible)
                self._go(source, possible)
            else:
                self._settle_all(pending)
        if self.ways.watched:
            self._while_rebuilding(source.party, arrivals)

    def _go(self, source: Source, arrivals: Sequence[Arrival]) -> None:
        """Let publications, all of them new, go their way."""
        party = source.party
        present = arrivals
        holding = self._links.holding
        try:
            way = self.ways.of(source, present, holding)
        except PublicationError:
            present = self._without_impossible(party, arrivals)
            way = self.ways.of(source, present, holding)
        self._follow(party, present, way)
        for _, pending in arrivals:
            if pending is not None:
                self._settle_all(pending)

    def _follow(self, source: Party, arrivals: Sequence[Arrival], way: Way) -> None:
        """Give everybody on the way their rows."""
        self._pass_on(source, arrivals, way)
        if way.more:
            self._follow_further(source, arrivals, way)

    def _pass_on(self, source: Party, arrivals: Sequence[Arrival], way: Way) -> None:
        """Give links on the way their rows."""
        for links, rows in way.links:
            copies: list[Arrival] = []
            for batch, pending in arrivals if rows is None else chosen_rows(arrivals, rows):
                copies.append((batch.onward(), pending))
            self._turn.pass_on(links, copies, source)

    def _follow_further(self, source: Party, arrivals: Sequence[Arrival], way: Way) -> None:
        """Give their rows to everybody on the way but links."""
        for route, rows in way.sets:
            for batch, pending in arrivals if rows is None else chosen_rows(arrivals, rows):
                self._delegated.pass_on(source, batch, route, pending, free=True)
        if way.clients or way.logs:
            self._hand_over(source, arrivals, way, delegated=False)

    def _hand_over(self, source: Party, arrivals: Sequence[Arrival], way: Way, *, delegated: bool) -> None:
        """Give clients and logs of this broker their rows.

        `delegated`: they came for a set of brokers, so that they are known to be new here.
        """
        may_be_known = not (delegated or self._delivered_for_sets.empty)
        counters = self._turn.counters
        for clients, number, rows in way.clients:
            some = arrivals if rows is None else chosen_rows(arrivals, rows)
            copies: list[Arrival] = []
            for batch, pending in self._not_delivered(some) if may_be_known else some:
                counters.delivered += batch.count * len(clients)
                copies.append((batch.delivery(number), None if pending is None else pending.here or pending))
            if copies:
                self._turn.pass_on(clients, copies, source, arrivals[0][0].target)
        for log, rows in way.logs:
            some = arrivals if rows is None else chosen_rows(arrivals, rows)
            for batch, pending in self._not_delivered(some) if may_be_known else some:
                local = None if pending is None else pending.here or pending
                self._durables.append(log, batch, local, source)

    def _not_delivered(self, arrivals: Iterable[Arrival]) -> list[Arrival]:
        """What clients here have not had for a set."""
        found: list[Arrival] = []
        for batch, pending in arrivals:
            rest = self._delegated.not_delivered_for_a_set(batch)
            if rest is not None:
                found.append((rest, pending))
        return found

    def _without_impossible(self, source: Party, arrivals: Sequence[Arrival]) -> list[Arrival]:
        """Take out the rows with values that no publication can have, and what has no others.

        Matching looks at every value anyway, so rows are not checked one by one before it complains.
        """
        possible = [(self._refusals.possible(source, batch), pending) for batch, pending in arrivals]
        rows = sum([batch.count for batch, _ in arrivals]) - sum([batch.count for batch, _ in possible])
        self._turn.counters.received += rows  # those that are left are counted on their way
        return [arrival for arrival in possible if arrival[0].count]

    def _keep_for_unknown(self, source: Party, arrivals: Sequence[Arrival]) -> None:
        """Keep acknowledged publications for neighbours whose interest is not known, or may have grown."""
        came_from = self._mesh.direction_of(source)
        for link in self._links.unknown:
            if link.name == came_from:
                continue
            for batch, pending in arrivals:
                if pending is not None or self.ways.sent_everywhere:
                    if pending is not None and link.channel.connected:
                        # As `Links` does when a session begins, for the same reason.
                        self._subscriptions.announce_anything()
                    self._turn.pass_on((link,), [(batch.onward(), pending)], source)


class _Kind(Enum):
    """How a batch has to be treated."""

    PLAIN = auto()
    FOR_A_SET = auto()
    REPETITION = auto()
