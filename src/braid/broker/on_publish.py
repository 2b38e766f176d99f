"""What happens when publications arrive?

All batches of one read are routed together: repeats are dropped, one match call says which rows go to
which destinations, and each destination gets its rows as the bytes they came in.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from braid.broker.joining import joined
from braid.broker.parties import Client, ClientDestination, Link, SoftLink
from braid.broker.settling import Pending, Unsettled
from braid.errors import PublicationError, RemoteProtocolError, RequestRefusedError
from braid.language.publication import checked_attributes
from braid.language.values import Range
from braid.protocol.effects import Pause
from braid.protocol.messages import PublishRefused, Settled
from braid.routing import Anchored, MultipathForwarding, TreeForwarding

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence

    from braid.broker.discards import Discards
    from braid.broker.events import AnythingExpected, ClientLeft, SoftLinkLost
    from braid.broker.on_delegated import DelegatedDesk
    from braid.broker.on_durable import DurableDesk
    from braid.broker.on_subscribe import SubscriptionDesk
    from braid.broker.parties import Party
    from braid.broker.postroom import Postroom
    from braid.broker.questions import Hops, Readiness
    from braid.matching import FilterIndex
    from braid.matching.columns import IntArray
    from braid.matching.matcher import Reached
    from braid.protocol import Frame, PublicationBatch
    from braid.protocol.duplicates import DuplicateFilter
    from braid.routing import Forwarding

__all__ = ["UNROUTED", "PublishDesk"]

UNROUTED = "unrouted"
"""Why a client gets no credit whose publications wait until subscriptions can have found their way here."""

# Publications of clients that left before these were routed. All of a few clients' windows fit.
LEFT_BEHIND_BYTES_MAX = 64 * 1024 * 1024

# Numbers in one message about frames that are settled apart.
SETTLED_FRAMES_MAX = 10_000

Arrival: TypeAlias = "tuple[PublicationBatch, Pending | None]"


class _Route:
    """A batch on its way through this broker."""

    __slots__ = ("batch", "delegated", "first", "here", "pending", "source_class")

    def __init__(self, batch: PublicationBatch, pending: Pending | None, *, delegated: bool = False) -> None:
        self.batch = batch
        self.pending = pending
        self.source_class = batch.target
        """The credit class it came in."""
        self.delegated = delegated
        """Whether it came for a set of brokers, so that it is known to be new to clients here."""
        self.here: Pending | None = None
        """What clients and logs of this broker have of it, where that is waited for by itself."""
        self.first = 0
        """Its first row among those of all batches that are matched together."""

    @property
    def local(self) -> Pending | None:
        """What a destination of this broker has a share of."""
        return self.here if self.here is not None else self.pending


class PublishDesk:
    """Routes publications."""

    def __init__(
        self,
        hops_max: int,
        postroom: Postroom,
        subscriptions: SubscriptionDesk,
        durables: DurableDesk,
        links: Readiness,
        mesh: Hops,
        delegated: DelegatedDesk,
        seen: DuplicateFilter,
        unsettled: Unsettled,
        from_sets: Unsettled,
        discards: Discards,
    ) -> None:
        self._mesh = mesh
        self._delegated = delegated
        self.forwarding: Forwarding = TreeForwarding(subscriptions.tables.links)
        if mesh.sees_far:
            multipath = MultipathForwarding(subscriptions.tables.links, self._meant)
            self.forwarding = multipath
            mesh.bind(multipath)
        self.seen = seen
        """What was here as a copy along the tree."""
        self.when_meant: Callable[[str, int], None] = mesh.sent
        """Called when forwarding means so many publications for a link or candidate."""
        self.stopwatch: Callable[[], int] | None = None
        """Nanoseconds, to measure how long matching takes; nothing is decided by it."""
        self._hops_max = hops_max
        self._postroom = postroom
        self._subscriptions = subscriptions
        self._durables = durables
        self._links = links
        self._left_behind: list[Client] = []
        self._refused: dict[str, tuple[int, str]] = {}
        """Publications of a client that were refused and are not in the audit log yet, by code, and why."""
        self._unsettled = unsettled
        self._unsettled_here = Unsettled()
        self._from_sets = from_sets
        """Where copies for sets came from; nothing that comes again waits for these."""
        self.discards = discards

    def _meant(self, broker: str, publications: int) -> None:
        self.when_meant(broker, publications)

    def arrived(self, party: Party, frames: Sequence[Frame]) -> None:
        """Publications have come from a party, all of them new to the channel."""
        batches = joined(frames)
        if not batches:
            return
        if isinstance(party, Client):
            rows = sum(len(batch) for _, batch in batches)
            size = sum(batch.size for _, batch in batches)
            wait_us = party.limiter.take(rows, size, self._postroom.now_us)
            if wait_us and party.connection is not None:
                self._postroom.effect(Pause(party.connection, wait_us))
            self._from_client(party, batches)
        elif isinstance(party, Link | SoftLink):
            self._from_link(party, batches)

    # From clients.

    def _from_client(self, client: Client, frames: Sequence[tuple[int, PublicationBatch]]) -> None:
        """A client publishes. What nobody can be waiting for yet is kept until somebody can."""
        self._postroom.counters.published += sum(len(batch) for _, batch in frames)
        checked = [
            self._checked(client, batch, _pending(client, sequence, batch)) for sequence, batch in frames
        ]
        self._audit_refusals(client)
        self._durables.pressure.publishes(client)
        kept = bool(client.unrouted)
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

    def release(self, client: Client) -> None:
        """Route what was kept, as soon as everybody knows that it may come."""
        if not client.unrouted or not self._links.ready:
            return
        try:
            expected = self._expected(client, client.unrouted)
        except PublicationError:
            client.unrouted = [(self._possible(client, batch), pending) for batch, pending in client.unrouted]
            expected = self._expected(client, client.unrouted)
        if expected:
            self._route_kept(client)
        elif not client.advertising or client.connection is None:
            # (One that has gone has taken its advertisements with it.)
            self._subscriptions.announce_anything(client)

    def expected(self, event: AnythingExpected) -> None:
        """Everybody knows that anything may be published here."""
        self._route_kept(event.client)

    def _route_kept(self, client: Client) -> None:
        kept, client.unrouted = client.unrouted, []
        if client.channel.release_credit(UNROUTED):
            self._postroom.changed(client)
        if kept:
            self._route(client, kept)

    def client_left(self, event: ClientLeft) -> None:
        """A client has gone: what it published and is not routed yet is kept until it can be.

        It may have heard that it was received.
        """
        client = event.client
        if not client.unrouted:
            return
        self._left_behind = [each for each in self._left_behind if each.unrouted]
        size = sum(batch.size for each in (*self._left_behind, client) for batch, _ in each.unrouted)
        if size <= LEFT_BEHIND_BYTES_MAX:
            self._left_behind.append(client)
            return
        rows = sum(len(batch) for batch, _ in client.unrouted)
        client.unrouted.clear()
        self._postroom.note(
            "warning", "publications of a client that left were dropped", client=client.name, count=rows
        )

    def release_all(self, clients: Iterable[Client]) -> None:
        """Publications are accepted from now on; some may have come already, also from those who left."""
        for client in (*self._left_behind, *clients):
            self.release(client)

    @property
    def unrouted(self) -> bool:
        """Whether clients that have gone have left something behind that is not routed yet."""
        return any(client.unrouted for client in self._left_behind)

    @property
    def expects_anything(self) -> bool:
        """Whether subscriptions to all publications there can be have found their way here."""
        return self._links.ready and (self._subscriptions.universal or not self._links.links)

    def _expected(self, client: Client, arrivals: Sequence[Arrival]) -> bool:
        """Whether subscriptions to these publications have found their way here."""
        if self.expects_anything:
            return True
        if client.advertised is None or client.advertising or client.connection is None:
            return False
        return all(_advertised(client.advertised, batch.attributes()) for batch, _ in arrivals)

    def _checked(self, client: Client, batch: PublicationBatch, pending: Pending | None) -> Arrival:
        """The batch without the rows that this client may not publish; it hears which and why."""
        if not client.owns(batch.publisher):
            # A publisher's numbers say what is a repetition: nobody may use another's.
            raise RemoteProtocolError(
                f"publishers of {client.name!r} are called {client.publishers}, not {batch.publisher!r}"
            )
        if batch.hops or batch.route:
            raise RemoteProtocolError("a client's publications have crossed no link")
        if batch.publisher != client.own_publisher:
            try:
                self._postroom.quotas.require_publisher(
                    client.principal, batch.publisher, self._postroom.now_us
                )
            except RequestRefusedError as error:
                self._refuse(client, batch, np.arange(len(batch)), error.code, str(error))
                return batch.select(np.empty(0, np.int64)), pending
            client.own_publisher = batch.publisher
        try:
            permitted = client.principal.permitted_rows(batch.attributes())
        except PublicationError:
            batch = self._possible(client, batch)
            permitted = client.principal.permitted_rows(batch.attributes())
        attributes = batch.attributes()
        if permitted is not None and not permitted.all():
            refused = np.flatnonzero(~permitted)
            refusal = client.principal.refused_publication(attributes[int(refused[0])])
            self._refuse(client, batch, refused, refusal.code, str(refusal))
            batch = batch.select(np.flatnonzero(permitted))
        return batch, pending

    def _refuse(
        self, client: Client, batch: PublicationBatch, rows: IntArray, code: str, reason: str
    ) -> None:
        sequences = batch.sequences[rows].tolist()
        self._postroom.counters.refused += len(sequences)
        self._postroom.tell(client, PublishRefused(batch.publisher, sequences, code, reason))
        count, first_reason = self._refused.get(code, (0, reason))
        self._refused[code] = count + len(sequences), first_reason

    def _audit_refusals(self, client: Client) -> None:
        """A line for all refusals of a turn: whoever is refused a thousand times writes no thousand lines."""
        for code, (count, reason) in self._refused.items():
            self._postroom.audit(
                "warning",
                "publication refused",
                client=client.name,
                principal=client.principal.name,
                count=count,
                code=code,
                reason=reason,
            )
        self._refused.clear()

    # From links.

    def _from_link(self, link: Link | SoftLink, frames: Sequence[tuple[int, PublicationBatch]]) -> None:
        """Another broker passes publications on."""
        arrivals = [(batch, _pending(link, sequence, batch)) for sequence, batch in frames]
        for (sequence, batch), (_, pending) in zip(frames, arrivals, strict=True):
            if batch.route and pending is not None:
                pending.follow(self._tells_settled(link, sequence))
        if any(batch.route for batch, _ in arrivals):
            for batch, pending in arrivals:
                if not batch.route:
                    self._route(link, [(batch, pending)])
                    continue
                self._postroom.counters.received += len(batch)
                self._delegated_arrived(link, batch, pending)
            link.line.advance()
            return
        self._route(link, arrivals)

    def _tells_settled(self, link: Link | SoftLink, sequence: int) -> Callable[[], None]:
        """Tell that one frame is settled, whatever is before it.

        Copies for sets go both ways on a link. If each waited for those before it, two brokers could wait for
        each other for ever; along the tree that cannot be. What is behind such a copy does not wait for it
        either, or what keeps to the tree would wait for what does not: `SettleLine.done_apart`.
        """
        session = link.session

        def tell() -> None:
            if link.session == session and sequence > link.channel.settled:
                self._postroom.tell(link, Settled([sequence]))

        return tell

    def tell_apart(self, party: Party) -> None:
        """Tell which frames are settled behind one that has been waited for too long."""
        frames = party.line.done_apart()
        for first in range(0, len(frames), SETTLED_FRAMES_MAX):
            self._postroom.tell(party, Settled(frames[first : first + SETTLED_FRAMES_MAX]))

    def _delegated_arrived(
        self, link: Link | SoftLink, batch: PublicationBatch, pending: Pending | None
    ) -> None:
        if pending is not None:
            self._from_sets.enter(batch, pending, link)
        if batch.hops >= self._hops_max:
            self._looped(link, batch)
        else:
            earlier = self._unsettled_here.of(batch.publisher, batch.sequences)
            if self._delegated.arrived(link, batch, pending, self.deliver_here) and pending is not None:
                # What was delivered here before may not be safe yet.
                for first in earlier:
                    first.follow(pending.share())
        if pending is not None:
            pending.release()

    def deliver_here(self, source: Party, batch: PublicationBatch, pending: Pending | None) -> None:
        """A copy for a set of brokers, of which this is one."""
        route = _Route(batch.readdressed(target=batch.target), pending, delegated=True)
        self._wait_here(route)
        tables = self._subscriptions.tables
        try:
            reached = tables.reached_here((route.batch,))
        except PublicationError:
            self._without_impossible(source, [route])
            reached = tables.reached_here((route.batch,))
        for destination, rows in reached:
            self._hand_over(source, [route], destination, rows)
        if route.here is not None:
            route.here.release()

    def _wait_here(self, route: _Route) -> None:
        """Wait for destinations of this broker by themselves.

        A copy for a set of brokers that comes again is safe when they have it, wherever else the first copy
        still has to go. Waiting for all of that could go in a circle, because such copies cross the network
        in any direction.
        """
        if route.pending is not None and self._mesh.sees_far:
            route.here = Pending()
            route.here.follow(route.pending.share())
            # What was delivered here for another copy may not be safe yet.
            for earlier in self._unsettled_here.of(route.batch.publisher, route.batch.sequences):
                earlier.follow(route.here.share())
            self._unsettled_here.enter(route.batch, route.here)

    def back_to_the_tree(self, event: SoftLinkLost) -> None:
        """A soft link has gone: what it may not have delivered goes the primary way."""
        soft = event.soft
        for batch, care in soft.channel.withdraw():
            if batch.route:
                self._delegated.again(batch, care)
                continue
            link = self._mesh.way_back(soft)
            if link is not None:
                self._postroom.pass_on(link, batch, care, None)
            elif care is not None:
                # Its broker has left, and with it those it stood for.
                care()

    # For both.

    def _route(self, source: Party, arrivals: Sequence[Arrival]) -> None:
        counters = self._postroom.counters
        routes: list[_Route] = []
        rows = 0
        for batch, pending in arrivals:
            counters.received += len(batch)
            route = self._new_part(source, batch, pending)
            if route is not None:
                route.first = rows
                rows += len(route.batch)
                routes.append(route)
        if self._links.holding:
            # What is kept for such a link whether it matches or not must not come behind what follows it.
            for route in routes:
                route.first = 0
                self._match(source, [route])
        elif routes:
            self._match(source, routes)
        source.line.advance()

    def _new_part(self, source: Party, batch: PublicationBatch, pending: Pending | None) -> _Route | None:
        """What has not been here before; None if everything has."""
        fresh = self._new_rows(batch)
        if fresh is not None:
            repeated = len(batch) - len(fresh)
            self._postroom.counters.duplicates += repeated
            if repeated:
                gone = np.setdiff1d(batch.sequences, batch.sequences[fresh])
                self.discards.here(source, batch, gone.tolist())
            if repeated and pending is not None:
                # A repeated publication is settled when its first copy is, not before; whoever sends it
                # does not wait for what is on its own side.
                for earlier in self._unsettled.of(batch.publisher, batch.sequences):
                    earlier.follow_beside(source, pending.share())
            if not len(fresh):
                if pending is not None:
                    pending.release()
                return None
            batch = batch.select(fresh)
        if batch.hops >= self._hops_max:
            self._looped(source, batch)
            if pending is not None:
                pending.release()
            return None
        route = _Route(batch, pending)
        if pending is not None:
            self._unsettled.enter(batch, pending, source)
            self._wait_here(route)
        return route

    def _looped(self, source: Party, batch: PublicationBatch) -> None:
        self._postroom.counters.looped += len(batch)
        self.discards.looped(source, batch)
        self._postroom.note(
            "error", "publications crossed too many links", publisher=batch.publisher, hops=batch.hops
        )

    def _new_rows(self, batch: PublicationBatch) -> IntArray | None:
        """Which rows are new; None if all are."""
        count = len(batch)
        if not count:
            return batch.sequences
        first = batch.first
        if batch.last - first + 1 == count and self.seen.new_run(batch.publisher, first, count):
            return None
        return self.seen.new_rows(batch.publisher, batch.sequences)

    def _match(self, source: Party, routes: Sequence[_Route]) -> None:
        begin_ns = self.stopwatch() if self.stopwatch is not None else 0
        if self._links.holding:
            # All rows are kept for such a link, also those that matching may not look at.
            self._without_impossible(source, routes)
        try:
            reached = self._reached(routes)
        except PublicationError:
            self._without_impossible(source, routes)
            reached = self._reached(routes)
        if self.stopwatch is not None:
            self._postroom.counters.match_ns += self.stopwatch() - begin_ns
        self._postroom.counters.matched_batches += 1
        came_from = self._mesh.direction_of(source)
        # While somebody's interest is not known, everything keeps to the tree, where it is waited for.
        on_tree = bool(self._links.holding) or any(route.batch.ordered for route in routes)
        rows = routes[-1].first + len(routes[-1].batch)
        # What has come along the tree stays there: nothing that keeps to it may wait for what does not.
        if self._mesh.delegates and not on_tree and isinstance(source, Client):
            sets = self._delegated.sets(reached, came_from, rows)
            if sets is not None:
                for destinations, chosen in sets:
                    self._hand_over(source, routes, destinations, chosen)
                reached = [hop for hop in reached if not isinstance(hop[0], Anchored)]
        for destination, chosen in self.forwarding.next_hops(reached, came_from, on_tree, rows):
            self._hand_over(source, routes, destination, chosen)
        self._keep_for_unknown(source, routes, came_from)
        for route in routes:
            if route.here is not None:
                route.here.release()
            if route.pending is not None:
                route.pending.release()

    def _reached(self, routes: Sequence[_Route]) -> Reached:
        return self._subscriptions.tables.reached([route.batch for route in routes])

    def _without_impossible(self, source: Party, routes: Sequence[_Route]) -> None:
        """Take out the rows with values that no publication can have.

        Matching looks at every value anyway, so rows are not checked one by one before it complains.
        """
        first = 0
        for route in routes:
            route.batch = self._possible(source, route.batch)
            route.first = first
            first += len(route.batch)

    def _possible(self, source: Party, batch: PublicationBatch) -> PublicationBatch:
        """The rows whose values a publication can have. A client hears of the others; a neighbour should
        not have passed them on, but if that ended its connection, it would send them again on the next."""
        kept = []
        for row, values in enumerate(batch.attributes()):
            try:
                checked_attributes(values)
                kept.append(row)
            except PublicationError as error:
                if isinstance(source, Client):
                    self._refuse(source, batch, np.array([row]), "publication", str(error))
                else:
                    self._postroom.counters.refused += 1
                    self._postroom.note(
                        "error",
                        "a neighbour passed on what cannot be",
                        neighbour=source.name,
                        reason=str(error),
                    )
        if isinstance(source, Client):
            self._audit_refusals(source)
        return batch if len(kept) == len(batch) else batch.select(np.array(kept, np.int64))

    def _hand_over(
        self, source: Party, routes: Sequence[_Route], destination: Hashable, rows: IntArray | None
    ) -> None:
        """Give a destination its rows; `rows` None means all. Bytes are a set of destinations."""
        for route in routes:
            batch = route.batch
            if not len(batch):
                continue  # nothing of it could be
            if rows is not None and len(routes) == 1:
                batch = batch.select(rows) if len(rows) < len(batch) else batch
            elif rows is not None:
                low, high = np.searchsorted(rows, (route.first, route.first + len(batch)))
                if low == high:
                    continue
                if high - low < len(batch):
                    batch = batch.select(rows[low:high] - route.first)
            self._give(source, route, destination, batch)

    def _give(self, source: Party, route: _Route, destination: Hashable, batch: PublicationBatch) -> None:
        counters = self._postroom.counters
        if isinstance(destination, bytes):
            self._delegated.pass_on(source, batch, destination, route.pending, free=True)
            return
        if not isinstance(destination, str) and not route.delegated:
            not_delivered = self._delegated.not_delivered_for_a_set(batch)
            if not_delivered is None:
                return
            batch = not_delivered
        if isinstance(destination, ClientDestination):
            if destination.client.connection is None:
                return  # it has left, and its subscriptions are going
            counters.delivered += len(batch)
            care = route.local.share() if route.local is not None else None
            readdressed = batch.readdressed(target=destination.number)
            self._postroom.pass_on(destination.client, readdressed, care, source, route.source_class)
        elif isinstance(destination, str):
            link = self._mesh.party(destination)
            if route.pending is not None and link.channel.holding:
                return  # `_keep_for_unknown` keeps all rows for it
            counters.forwarded += len(batch)
            care = route.pending.share_of(link) if route.pending is not None else None
            self._postroom.pass_on(link, batch.readdressed(further=True), care, source)
        else:
            self._durables.append(destination, batch, route.local, source)

    def _keep_for_unknown(self, source: Party, routes: Sequence[_Route], came_from: str | None) -> None:
        """Keep acknowledged publications for neighbours whose interest is not known, or may have grown."""
        if not self._links.holding:
            return
        for link in self._links.unknown:
            if link.name == came_from:
                continue
            for route in routes:
                if route.pending is not None and len(route.batch):
                    if link.channel.connected:
                        # As `LinkDesk` does when a session begins, for the same reason.
                        self._subscriptions.announce_anything()
                    care = route.pending.share_of(link)
                    self._postroom.pass_on(link, route.batch.readdressed(further=True), care, source)


def _pending(source: Party, sequence: int, batch: PublicationBatch) -> Pending | None:
    """Whoever waits for an acknowledged batch waits from the moment it has arrived."""
    return source.line.enter(sequence) if batch.acknowledged else None


def _advertised(index: FilterIndex[str], attributes: Sequence[Mapping[str, Any]]) -> bool:
    """Whether advertisements cover all these publications.

    A range may reach beyond an advertisement that it meets, so it counts as not advertised.
    """
    if any(Range in map(type, values.values()) for values in attributes):
        return False
    return not attributes or bool(index.count_batch(attributes).all())
