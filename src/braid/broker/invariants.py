"""What must hold in a broker after every turn, whatever has happened.

Each invariant is a small function that names what is wrong; `Invariants` knows them all. They ask the owners
of a state and change nothing. Tests look after every turn, simulations now and then (`BrokerCore.validate`).
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Protocol

from braid.broker.bottleneck import Bottleneck
from braid.broker.draining import DRAINING
from braid.broker.link_life import LinkStage
from braid.broker.parties import Client, Link, SoftLink
from braid.broker.publications import UNROUTED
from braid.protocol.channel_checks import channel_violations

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from braid.broker.connections import Connections
    from braid.broker.draining import Draining
    from braid.broker.durable_logs import DurableLogs
    from braid.broker.fair_queue import FairQueue
    from braid.broker.link_changes import MovableLinks
    from braid.broker.operations import Changing
    from braid.broker.parties import Party
    from braid.broker.soft_links import SoftLinks
    from braid.broker.subscriptions import Subscriptions
    from braid.broker.turn import Turn

__all__ = ["Invariants"]


class Checked(Protocol):
    """Says what is wrong with its state."""

    def violations(self) -> Iterator[str]: ...


class Invariants:
    """Everything that must hold in one broker."""

    def __init__(
        self,
        turn: Turn,
        connections: Connections,
        links: MovableLinks,
        subscriptions: Subscriptions,
        durables: DurableLogs,
        soft: SoftLinks,
        turns: FairQueue,
        draining: Draining,
        changing: Changing,
        *further: Checked,
    ) -> None:
        """`further`: owners of a state that say themselves what is wrong with it."""
        self._turn = turn
        self._connections = connections
        self._links = links
        self._subscriptions = subscriptions
        self._durables = durables
        self._soft = soft
        self._turns = turns
        self._draining = draining
        self._changing = changing
        self._further = further

    def violations(self) -> list[str]:
        """What is wrong; nothing if all is well."""
        invariants: tuple[Callable[[], Iterator[str]], ...] = (
            self._channels,
            self._greeted,
            self._credit,
            self._behind,
            self._holding,
            self._link_states,
            self._tables,
            self._confirmations,
            self._installations,
            self._settlement,
            self._clients,
            self._quotas,
            self._soft_links,
            self._logs,
            self._lines,
            self._deadlines,
            self._operation,
            *(each.violations for each in self._further),
        )
        return [found for invariant in invariants for found in invariant()]

    def _parties(self) -> list[Party]:
        links = (*self._links.links.values(), *self._links.leaving, *self._links.joining.values())
        return [*links, *self._soft.all(), *self._connections.clients]

    # Parties and connections.

    def _channels(self) -> Iterator[str]:
        for party in [*self._parties(), *self._links.strangers]:
            for found in channel_violations(party.channel):
                yield f"{party}: {found}"

    def _greeted(self) -> Iterator[str]:
        for connection, party in self._connections.parties.items():
            # One that is refused has none any more, until the driver says that it has gone.
            if party.connection not in (connection, None):
                yield f"{party} is at connection {party.connection}, and {connection} leads to it"
            if connection in self._connections.visitors:
                yield f"connection {connection} is {party}'s, and has not been greeted"
        for party in self._parties():
            if party.connection is not None and self._connections.parties.get(party.connection) is not party:
                yield f"{party} has connection {party.connection}, which is not its own"
            if party.connection is not None and (party.outside or party.again):
                yield f"{party} is connected, and something that goes before all else was not written"

    def _clients(self) -> Iterator[str]:
        for client in self._connections.clients:
            if self._connections.parties.get(client.connection or 0) is not client and client.connection:
                yield f"{client} is known, and its connection is not"
            if (client.connection is not None) != (client.stage in Client.CONNECTED):
                yield f"{client} has the connection {client.connection}"
            for number, destination in client.destinations.items():
                if destination.number != number or destination.client is not client:
                    yield f"{client} has {destination} as its class {number}"
            for key in client.subscriptions.values():
                if self._subscriptions.tables.local(key) is None:
                    yield f"{client} has the subscription {key}, which the tables do not know"
            if client.advertising < 0:
                yield f"{client} waits for {client.advertising} advertisements"

    # Credit.

    def _credit(self) -> Iterator[str]:
        """Who gets no credit is known to the one because of whom it gets none, and the other way round."""
        for party in self._parties():
            for reason, number in party.channel.holds():
                if isinstance(reason, Bottleneck):
                    if (party, number) not in reason.held_up:
                        yield f"{party} gets no credit because of {reason.name}, which does not know it"
                elif reason == DRAINING:
                    if not self._draining.begun:
                        yield f"{party} gets no credit because of a drain that has not begun"
                elif reason != UNROUTED:
                    yield f"{party} gets no credit for a reason that nobody knows: {reason!r}"
                elif isinstance(party, Client) and not party.unrouted:
                    yield f"{party} gets no credit, and nothing of it waits to be routed"
        for bottleneck in self._bottlenecks():
            for source, number in bottleneck.held_up:
                if (bottleneck, number) not in source.channel.holds():
                    yield f"{bottleneck.name} holds {source} up, and {source} has credit"

    def _bottlenecks(self) -> Iterator[Bottleneck]:
        for party in self._parties():
            yield party.bottleneck
            if isinstance(party, Client):
                yield from (each.bottleneck for each in party.destinations.values())

    def _behind(self) -> Iterator[str]:
        """Only who is behind holds others up."""
        for party in self._parties():
            if party.bottleneck.held_up and party.behind_since_us is None:
                yield f"{party} is not behind and holds others up"
            if isinstance(party, Client):
                for destination in party.destinations.values():
                    if destination.bottleneck.held_up and destination.behind_since_us is None:
                        yield f"{destination} is not behind and holds others up"

    # Links.

    def _holding(self) -> Iterator[str]:
        holding = sum(link.holding for link in self._links.links.values())
        holding += len(self._links.strangers)
        if self._links.holding != holding:
            yield f"{holding} links hold publications back, {self._links.holding} are counted"

    def _link_states(self) -> Iterator[str]:
        for name, link in self._links.links.items():
            if link.name != name:
                yield f"{link} is known as {name}"
            if link.channel.connected == link.down:
                yield f"{link} is {'down' if link.down else 'up'}, and its channel does not know it"
            if link.down and (link.connection is not None or link.behind):
                yield f"{link} is down, and has a connection or brokers behind it"
            if (link.connection is not None) != (link.stage in Link.CONNECTED):
                yield f"{link} has the connection {link.connection}"
            if bool(link.agreed) != (link.stage is not LinkStage.DOWN):
                yield f"{link} is in the session {link.agreed!r}"
            if link.channel.holding != link.holding:
                yield f"{link} holds publications back or not, and its channel does the other"
            if link.stage is LinkStage.OPEN and (link.unknown or not link.met):
                yield f"the interest behind {link} is not known"
            if link.channel.passing and not link.channel.holding:
                yield f"{link} lets some pass, and holds nothing back"
        reached = Counter(broker for link in self._links.links.values() for broker in link.behind)
        twice = sorted(broker for broker, ways in reached.items() if ways > 1)
        if twice:
            yield f"there is more than one way to {', '.join(twice)}"

    def _soft_links(self) -> Iterator[str]:
        soft = self._soft
        for name in soft.outgoing.keys() & soft.incoming.keys():
            yield f"there are two soft links between this broker and {name}"
        if soft.held > max(soft.fanout, len(self._links.links)):
            yield f"{soft.held} links where there may be {soft.fanout}"
        for each in soft.all():
            if (each.connection is not None) != (each.stage in SoftLink.CONNECTED):
                yield f"the soft link {each} has the connection {each.connection}"

    # Tables and those who wait.

    def _tables(self) -> Iterator[str]:
        known = set(self._subscriptions.tables.links) - self._changing.leaving
        if known != self._links.links.keys():
            yield f"tables know the links {sorted(known)}, there are {sorted(self._links.links)}"

    def _confirmations(self) -> Iterator[str]:
        for link in self._links.links.values():
            for found in link.outstanding.violations():
                yield f"{link}: {found}"
            if not link.agreed and link.outstanding.subscriptions:
                yield f"{link} has no session, and confirmations are waited for"

    def _installations(self) -> Iterator[str]:
        yield from self._subscriptions.installations.violations()

    def _settlement(self) -> Iterator[str]:
        for party in self._parties():
            yield from (f"{party}: {found}" for found in party.line.violations())

    def _quotas(self) -> Iterator[str]:
        connections: Counter[str] = Counter()
        subscriptions: Counter[str] = Counter()
        logs = Counter(log.owner for log in self._durables.logs.values())
        for client in self._connections.clients:
            connections[client.principal.name] += 1
            subscriptions[client.principal.name] += len(client.subscriptions)
        for name, held in self._turn.quotas.held():
            found = (connections[name], subscriptions[name], logs[name])
            if held != found:
                yield f"{name} has {found} connections, subscriptions and logs, {held} are counted"

    # Logs.

    def _logs(self) -> Iterator[str]:
        for key, log in self._durables.logs.items():
            if not (log.acknowledged < log.next_offset and log.safe_offset <= log.next_offset):
                yield (
                    f"the log {key} is acknowledged to {log.acknowledged}, safe to {log.safe_offset}, "
                    f"and goes on at {log.next_offset}"
                )
            if log.reader is not None and key not in log.reader.logs:
                yield f"the log {key} is read by {log.reader}, which does not know it"
        for client in self._connections.clients:
            for key in client.logs:
                log_read = self._durables.logs.get(key)
                if log_read is None or log_read.reader is not client:
                    yield f"{client} reads the log {key}, which does not know it"
        if self._durables.unsafe_bytes < 0 or (self._durables.work.idle and self._durables.unsafe_bytes):
            yield f"{self._durables.unsafe_bytes} bytes are on their way to a store that has nothing to do"

    # Operations.

    def _operation(self) -> Iterator[str]:
        operation = self._changing.current
        if operation is not None and operation.over:
            yield f"{operation} is over and still under way"
        if self._changing.paused != self._turns.holding:
            yield "an operation holds publications at the door, and the door does not know it, or does not"
        left = self._changing.leaving and not self._changing.moving
        if operation is None and (left or self._changing.dialled or self._links.joining):
            yield "an operation is over and has left something behind"
        for link in self._links.leaving:
            if link.stage is not LinkStage.LEAVING or self._links.links.get(link.name) is link:
                yield f"{link} is leaving, and is not"
        for name in self._changing.ended.keys() & self._links.links.keys():
            yield f"the link to {name} was ended, and is there"

    # Turns and time.

    def _lines(self) -> Iterator[str]:
        for connection, line in self._turns.waiting.items():
            known = self._connections.parties.get(connection)
            if known is not line.party and line.party.connection == connection:
                yield f"{line.party} stands in line and is not there"
            if not (line.frames or line.pieces):
                yield f"{line.party} stands in line with nothing"

    def _deadlines(self) -> Iterator[str]:
        """What is to be acknowledged later has a time for it."""
        if self._turn.unacknowledged and self._turn.acknowledge_at_us is None:
            yield f"{len(self._turn.unacknowledged)} parties are to be told later, and nobody says when"
        for party in self._parties():
            if party.channel.telling != (party in self._turn.unacknowledged):
                yield f"{party} is told later, or is not: its channel says {party.channel.telling}"
