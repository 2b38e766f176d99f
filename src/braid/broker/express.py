"""How does a single publication get through a broker in no time?

Where traffic is light, as in most simulations, nearly everything that arrives is one publication that nobody
waits for and that is simply passed on. The desks could do that, as they do for batches; but then most of the
time would go into asking each of them whether there is anything special about it. Here all that is asked
once, when a turn of another kind ends (`BrokerCore` knows whether the broker is *calm*), and what is left for
each publication is done in one place:

- its frame is accepted,
- whether it is new is looked up,
- its *way* is looked up: who gets it, depending on what it matches and where it came from,
- it is written to each of them, by itself.

Ways are remembered where matching can say that two publications match the same, as shared matching does. They
are forgotten whenever something happens that could change them: that is everything but publications,
acknowledgements and heartbeats. What went a way is counted there, and added up when it is forgotten or asked
for.

Whatever is not that simple is declined, before anything has changed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from braid.broker.parties import Client, ClientDestination
from braid.errors import PublicationError, RemoteProtocolError
from braid.protocol.batch import WAITED_FOR, PublicationBatch
from braid.protocol.effects import Pause, Send
from braid.routing import Anchored

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence

    from braid.broker.on_delegated import DelegatedDesk
    from braid.broker.on_durable import DurableDesk
    from braid.broker.on_publish import PublishDesk
    from braid.broker.parties import Party
    from braid.broker.postroom import Postroom
    from braid.broker.questions import Hops
    from braid.broker.settings import BrokerSettings
    from braid.matching.matcher import Reached
    from braid.protocol.effects import Effect
    from braid.protocol.inputs import Received
    from braid.routing import RoutingTables

__all__ = ["Express"]

# Ways that are remembered for each party that publications come from; some hundred bytes each.
WAYS_MAX = 512


class _Source:
    """A party that publications come from, and the ways of those that came."""

    __slots__ = ("channel", "client", "different", "party", "ways")

    def __init__(self, party: Party) -> None:
        self.party = party
        self.channel = party.channel
        self.client = party if isinstance(party, Client) else None
        self.ways: dict[Hashable, _Way] = {}
        """By what publications match."""
        self.different: dict[_Way, _Way] = {}
        """Each way once: there are few, however much there is to match."""


class _Way:
    """Who gets a publication."""

    __slots__ = ("clients", "kept", "links", "logs", "meant_for", "more", "sets", "uses")

    def __init__(
        self,
        links: Sequence[Party],
        clients: Sequence[ClientDestination],
        logs: Sequence[Hashable],
        sets: Sequence[bytes],
        meant_for: Sequence[str],
    ) -> None:
        self.links = tuple(links)
        self.clients = tuple(clients)
        self.logs = tuple(logs)
        self.sets = tuple(sets)
        """Sets of brokers that it is delegated to."""
        self.meant_for = tuple(meant_for)
        """Links and candidates that forwarding chose for it."""
        self.more = bool(sets or clients or logs)
        """Whether there is more to do than to pass it on to links."""
        self.kept = True
        """Whether it is remembered for others that match the same."""
        self.uses = 0
        """Publications that went this way and are not in the broker's counters yet."""

    def _who(self) -> tuple[object, ...]:
        return (self.links, self.clients, self.logs, self.sets, self.meant_for)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Way) and self._who() == other._who()

    def __hash__(self) -> int:
        return hash(self._who())


class Express:
    """Passes on single publications."""

    __slots__ = (
        "_delegated",
        "_durables",
        "_forwarding",
        "_hops_max",
        "_meant_for",
        "_mesh",
        "_parties",
        "_postroom",
        "_publish",
        "_roomy",
        "_seen",
        "_sources",
        "_tables",
        "_version",
        "stopwatch",
    )

    def __init__(
        self,
        settings: BrokerSettings,
        postroom: Postroom,
        parties: Mapping[int, Party],
        tables: RoutingTables,
        mesh: Hops,
        delegated: DelegatedDesk,
        durables: DurableDesk,
        publish: PublishDesk,
    ) -> None:
        self._hops_max = settings.hops_max
        self._postroom = postroom
        self._parties = parties
        self._tables = tables
        self._mesh = mesh
        self._delegated = delegated
        self._durables = durables
        self._publish = publish
        self._seen = publish.seen
        self._forwarding = publish.forwarding
        self._version = publish.forwarding.version
        # Then what a channel keeps to send it again is a bound for what waits in it, too.
        self._roomy = settings.link_queue_bytes_max >= max(
            settings.link.resend_bytes_max, settings.client.resend_bytes_max
        )
        self._sources: dict[int, _Source] = {}
        """By their connections."""
        self._meant_for: list[str] | None = None
        self.stopwatch: Callable[[], int] | None = None
        """Nanoseconds, to measure how long matching takes; nothing is decided by it."""

    def pass_on(self, received: Received, now_us: int) -> list[Effect] | None:
        """Pass on what has come, while the broker is calm; None if it is not that simple.

        Raises:
            RemoteProtocolError: it is for a set of brokers and not what the format says.
        """
        frames = received.frames
        if len(frames) != 1:
            return None
        sequence, batch = frames[0]
        if (
            type(batch) is not PublicationBatch
            or batch.count != 1
            or batch.flags & WAITED_FOR
            or batch.hops >= self._hops_max
        ):
            return None
        source = self._sources.get(received.connection) or self._new_source(received.connection)
        if source is None:
            return None
        party = source.party
        client = source.client
        if party.connection is None or (client is not None and not _simple(client, batch)):
            return None
        way: _Way | None = None
        if batch.route:
            try:
                delegation = self._delegated.delegation(batch)
            except RemoteProtocolError:
                return None
        else:
            # Without a memo, or if nothing may overtake it, it is looked at by itself.
            way = source.ways.get(batch.memo) if not batch.flags else None
            if way is None:
                way = self._new_way(source, batch)
                if way is None:
                    return None
        channel = source.channel
        if not channel.accept_quietly(sequence, batch):
            return None
        postroom = self._postroom
        postroom.now_us = party.heard_at_us = now_us
        party.pinged = False
        if not channel.telling:
            postroom.acknowledge_later(party)
        if client is not None:
            self._limit(client, batch)
        if way is None:
            postroom.counters.received += 1
            # One that is only passed on need not be matched.
            if delegation.here:
                self._delegated.arrived(party, batch, None, self._publish.deliver_here)
            else:
                self._delegated.pass_on_one(party, batch, batch.route, free=bool(batch.target))
        elif self._seen.is_new(batch.publisher, batch.first):
            way.uses += 1
            links = way.links
            if links:
                # The copy for the next brokers is the same for all of them.
                onward = batch.onward()
                roomy = self._roomy
                for link in links:  # as `_write` does it, without the call
                    outgoing = link.channel
                    connection = link.connection
                    if (
                        roomy
                        and connection is not None
                        and not outgoing.unsettled_bytes
                        and (frame := outgoing.send_at_once(onward)) is not None
                    ):
                        postroom.effects.append(Send(connection, (frame,)))
                    else:
                        postroom.pass_on(link, onward, None, party)
            if way.more:
                self._do_more(way, source, batch)
        else:
            postroom.counters.received += 1
            postroom.counters.duplicates += 1
            if client is not None:
                postroom.counters.published += 1
                self._publish.discards.here(client, batch, (batch.first,))
        return postroom.collect_at_once()

    def _limit(self, client: Client, batch: PublicationBatch) -> None:
        """A client that exceeds its rate is not read from for a while."""
        postroom = self._postroom
        wait_us = client.limiter.take(1, batch.size, postroom.now_us)
        if wait_us and client.connection is not None:
            postroom.effect(Pause(client.connection, wait_us))

    def _write(self, party: Party, batch: PublicationBatch, source: Party) -> None:
        """Write it by itself; if something is in the way, it waits its turn."""
        channel = party.channel
        connection = party.connection
        if connection is not None and self._roomy and not channel.unsettled_bytes:
            frame = channel.send_at_once(batch)
            if frame is not None:
                self._postroom.effects.append(Send(connection, (frame,)))
                return
        self._postroom.pass_on(party, batch, None, source)

    def _do_more(self, way: _Way, source: _Source, batch: PublicationBatch) -> None:
        """Delegate it, give it to those who are here, and count it if its way is not kept."""
        party = source.party
        for route in way.sets:
            self._delegated.pass_on_one(party, batch, route, free=True)
        if self._delegated.delivered.has(batch.publisher, batch.first):
            self._postroom.counters.delivered -= len(way.clients)
        else:
            for destination in way.clients:
                self._write(destination.client, batch.readdressed(target=destination.number), party)
            for log in way.logs:
                self._durables.append(log, batch, None, party)
            if way.logs:
                self._durables.work.collect()
        if not way.kept:
            self._add_up(source, (way,))

    # Sources.

    def _new_source(self, connection: int) -> _Source | None:
        """Whoever publications come from for the first time; None if theirs are not that simple."""
        party = self._parties.get(connection)
        if party is None:
            return None
        if isinstance(party, Client) and not (
            party.principal.publishes_anything and self._publish.expects_anything
        ):
            return None
        source = self._sources[connection] = _Source(party)
        return source

    # Ways.

    def _new_way(self, source: _Source, batch: PublicationBatch) -> _Way | None:
        """Find out who gets a publication; None if it cannot be matched."""
        begin_ns = self.stopwatch() if self.stopwatch is not None else 0
        try:
            reached = self._tables.reached((batch,))
        except (PublicationError, RemoteProtocolError):
            return None
        if self.stopwatch is not None:
            self._postroom.counters.match_ns += self.stopwatch() - begin_ns
        if batch.memo is None or batch.flags:
            way = self._found(source.party, reached, batch.ordered)
            way.kept, way.more = False, True
            return way
        ways = source.ways
        known = ways.get(batch.memo)  # it came without its memo, and has got it just now
        if known is not None:
            return known
        if len(ways) >= WAYS_MAX:
            self._add_up(source, source.different)
            source.different.clear()
            ways.clear()
        found = self._found(source.party, reached, False)
        way = ways[batch.memo] = source.different.setdefault(found, found)
        return way

    def _found(self, source: Party, reached: Reached, ordered: bool) -> _Way:
        mesh = self._mesh
        came_from = mesh.direction_of(source)
        # What has come along the tree stays there, as `PublishDesk` says.
        delegates = mesh.delegates and not ordered and isinstance(source, Client)
        sets = self._delegated.sets(reached, came_from, 1) if delegates else None
        if sets is not None:
            reached = [hop for hop in reached if not isinstance(hop[0], Anchored)]
        links: list[Party] = []
        clients: list[ClientDestination] = []
        logs: list[Hashable] = []
        meant_for: list[str] = []
        self._meant_for = meant_for
        for destination, _ in self._forwarding.next_hops(reached, came_from, ordered, 1):
            if isinstance(destination, str):
                links.append(mesh.party(destination))
            elif isinstance(destination, ClientDestination):
                if destination.client.connection is not None:  # otherwise it has left
                    clients.append(destination)
            else:
                logs.append(destination)
        self._meant_for = None
        return _Way(links, clients, logs, [route for route, _ in sets or ()], meant_for)

    def meant(self, broker: str, publications: int) -> None:
        """Forwarding says for which links and candidates publications are meant."""
        if self._meant_for is not None:
            self._meant_for.append(broker)  # those that go this way are counted later
        else:
            self._mesh.sent(broker, publications)

    def forget(self) -> None:
        """Something happens that could change the ways."""
        if self._sources:
            self.add_up()
            self._sources.clear()

    def forget_if_moved(self) -> None:
        """Something has happened that changes the ways if forwarding goes by something else now."""
        if self._forwarding.version != self._version:
            self._version = self._forwarding.version
            self.forget()

    def add_up(self) -> None:
        """Bring the broker's counters up to date."""
        for source in self._sources.values():
            self._add_up(source, source.different)

    def _add_up(self, source: _Source, ways: Iterable[_Way]) -> None:
        counters = self._postroom.counters
        published = source.client is not None
        for way in ways:
            uses, way.uses = way.uses, 0
            if uses:
                counters.received += uses
                counters.published += uses * published
                counters.matched_batches += uses
                counters.forwarded += uses * len(way.links)
                counters.delivered += uses * len(way.clients)
                for broker in way.meant_for:
                    self._mesh.sent(broker, uses)


def _simple(client: Client, batch: PublicationBatch) -> bool:
    """Whether a client's publication is one in its own name, which waits for nothing."""
    return not (client.unrouted or batch.hops or batch.route) and batch.publisher == client.own_publisher
