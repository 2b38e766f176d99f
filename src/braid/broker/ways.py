"""The ways of publications through a broker: who gets which of them.

A *way* is the links, clients, logs and sets of brokers that publications go to. It depends on what they
match, on where they come from and on whether they may overtake others, and it is found in one place: for the
rows of a batch as for a single publication, which is a batch of one row.

Where traffic is light, as in most simulations, nearly everything that arrives is one publication that
reaches what others have reached before. So the ways of single publications are remembered by the destinations
that they reach; and where matching can say that two of them match the same, as shared matching does, by that,
so that they need not be matched. They are forgotten whenever something happens that could change them: that
is everything but publications, acknowledgements and heartbeats. What went a way is counted there, and added
up when it is forgotten or asked for.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from braid.broker.parties import TO_LINKS, Client, ClientDestination, Link
from braid.routing import Anchored, MultipathForwarding, TreeForwarding

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterable, Sequence

    from braid.broker.delegated_copies import DelegatedCopies
    from braid.broker.detours import Detours
    from braid.broker.parties import Party
    from braid.broker.questions import Hops
    from braid.broker.settling import Pending
    from braid.broker.turn import Counters
    from braid.matching.columns import IntArray
    from braid.matching.matcher import Reached
    from braid.protocol import PublicationBatch
    from braid.routing import Forwarding, RoutingTables

__all__ = ["Arrival", "Rows", "Source", "Way", "Ways", "chosen_rows"]

# Ways that are remembered for each party that publications come from; some hundred bytes each.
WAYS_MAX = 512

Rows: TypeAlias = "IntArray | None"
"""Which rows a party gets, counted through all batches that are routed together; None: all of them."""

Arrival: TypeAlias = "tuple[PublicationBatch, Pending | None]"
"""A batch, and what waits for it if anything does."""


class Way:
    """Who gets which publications."""

    __slots__ = (
        "clients",
        "forwarded",
        "links",
        "logs",
        "meant",
        "more",
        "receivers",
        "rows",
        "sets",
        "uses",
    )

    def __init__(
        self,
        links: Sequence[tuple[Sequence[Party], Rows]],
        clients: Sequence[tuple[Sequence[Party], int, Rows]],
        logs: Sequence[tuple[Hashable, Rows]],
        sets: Sequence[tuple[bytes, Rows]],
        meant: Sequence[tuple[str, int]],
        rows: int,
    ) -> None:
        self.links = tuple(links)
        """Those who get the same rows are together."""
        self.clients = tuple(clients)
        """With their delivery classes; those who get the same rows in the same class are together."""
        self.logs = tuple(logs)
        self.sets = tuple(sets)
        """Sets of brokers that they are delegated to."""
        self.meant = tuple(meant)
        """How many of them forwarding means for which links and candidates."""
        self.forwarded = sum(
            [len(parties) * (rows if chosen is None else len(chosen)) for parties, chosen in links]
        )
        """How many copies go to links, those for sets not counted."""
        self.more = bool(sets or clients or logs)
        """Whether there is more to do than to pass them on to links."""
        self.receivers: tuple[tuple[Sequence[Party], int], ...] = ()
        """All who get it, clients with their delivery classes; only if it is remembered and they are all."""
        self.rows = rows
        self.uses = 0
        """How often it was gone and is not in the broker's counters yet."""

    def find_receivers(self) -> None:
        """It is the way of a single publication that others may go, too, past all that is kept for others."""
        if not (self.logs or self.sets):
            to_links = [(parties, TO_LINKS) for parties, _ in self.links]
            self.receivers = (*to_links, *[(parties, number) for parties, number, _ in self.clients])


_NOWHERE = Way((), (), (), (), (), 0)


class Source:
    """A party that publications come from, and the ways of those that came."""

    __slots__ = ("channel", "client", "different", "party", "rerouted", "simple", "superseded", "ways")

    def __init__(self, party: Party, *, simple: bool) -> None:
        self.party = party
        self.channel = party.channel
        self.client = party if isinstance(party, Client) else None
        self.superseded = isinstance(party, Link) and party.superseded
        """Whether all that still comes along the tree comes another way as well."""
        self.rerouted = self.superseded or (isinstance(party, Link) and party.rerouted)
        """Whether what comes again may not have gone everywhere that it has to go now."""
        self.simple = simple and not self.superseded
        """Whether its publications need not be looked at before they are routed."""
        self.ways: dict[Hashable, Way] = {}
        """Those of single publications, by what they match."""
        self.different: dict[tuple[Hashable, ...], Way] = {}
        """By the destinations that they reach: there are few, however much there is to match."""


class Ways:
    """Finds and remembers who gets what."""

    def __init__(
        self,
        counters: Counters,
        roomy: bool,
        tables: RoutingTables,
        mesh: Hops,
        delegated: DelegatedCopies,
        needs_no_look: Callable[[Client], bool],
        stopwatch: Callable[[], int] | None,
    ) -> None:
        """
        Args:
            counters: of this broker.
            roomy: whether what a channel keeps to send it again is a bound for what waits in it, too.
            tables: who wants what.
            mesh: where publications go next.
            delegated: makes sets of brokers.
            needs_no_look: whether a client's publications need not be looked at before they are routed.
            stopwatch: nanoseconds, to measure how long matching takes; nothing is decided by it.
        """
        self._counters = counters
        self._roomy = roomy
        self._tables = tables
        self._mesh = mesh
        self._delegated = delegated
        self._meant: list[tuple[str, int]] = []
        """What forwarding has said of the way that is being found."""
        self.forwarding: Forwarding = TreeForwarding(tables.links)
        if mesh.sees_far:
            multipath = MultipathForwarding(tables.links, self._means)
            self.forwarding = multipath
            mesh.bind(multipath)
        self._version = self.forwarding.version
        self.watched = False
        """Whether publications are looked at one by one: tables are being rebuilt, here or next door."""
        self.sent_everywhere = False
        """Whether neighbours whose interest is not known are sent everything."""
        self.sources: dict[int, Source] = {}
        """Those that publications came from since something last changed, by their connections."""
        self._needs_no_look = needs_no_look
        self._stopwatch = stopwatch
        self.detours: Detours | None = None
        """Where publications go beside their ways, while a broker moves."""

    def _means(self, broker: str, rows: int) -> None:
        self._meant.append((broker, rows))

    # Sources.

    def source(self, party: Party) -> Source:
        """A party that publications come from."""
        connection = party.connection
        source = self.sources.get(connection) if connection is not None else None
        if source is None:
            simple = not self.watched and (not isinstance(party, Client) or self._needs_no_look(party))
            source = Source(party, simple=simple)
            # What a client has left behind comes once, and is counted at once.
            if connection is not None:
                self.sources[connection] = source
        return source

    # Ways.

    def of(self, source: Source, arrivals: Sequence[Arrival], holding: int) -> Way:
        """The way of publications, which are new here and are going now.

        Args:
            source: where they come from.
            arrivals: the batches that are routed together.
            holding: to how many links nothing may be sent yet. While there are any, everything keeps to the
                tree, where it is waited for; and what is waited for is kept for them elsewhere.

        Raises:
            PublicationError: a value is none that a publication can have.
            RemoteProtocolError: they cannot be read.
        """
        if len(arrivals) == 1:
            batch = arrivals[0][0]
            if batch.count == 1 and not (holding or (batch.flags and batch.keeps_to_tree)):
                return self.of_one(source, batch)
        if not arrivals:
            return _NOWHERE
        batches = [batch for batch, _ in arrivals]
        on_tree = holding > 0 or any(batch.keeps_to_tree for batch in batches)
        without_held = holding > 0 and (
            self.sent_everywhere or any(pending is not None for _, pending in arrivals)
        )
        rows = sum([batch.count for batch in batches])
        way = self._found(source.party, self._reached(batches), rows, on_tree, without_held)
        if self._detouring:
            way = self._widened(way, batches, source.party, without_held=without_held)
        way.uses = 1
        self._add_up(way)
        return way

    def of_one(self, source: Source, batch: PublicationBatch) -> Way:
        """The way of a single publication that may overtake others. What goes to the same destinations goes
        the same way.

        Raises:
            PublicationError: a value is none that a publication can have.
            RemoteProtocolError: it cannot be read.
        """
        way = source.ways.get(batch.memo)
        if way is None:
            reached = self._reached((batch,))
            if self._detouring:  # nothing is remembered meanwhile
                way = self._found(source.party, reached, 1)
                way = self._widened(way, (batch,), source.party, without_held=False)
                way.uses = 1
                self._add_up(way)
                return way
            destinations = tuple([destination for destination, _ in reached])
            way = source.different.get(destinations)
            if way is None:
                way = self._found(source.party, reached, 1)
                if source.party.connection is None:
                    way.uses = 1
                    self._add_up(way)
                    return way
                self._keep(source, destinations, way)
            memo = batch.memo  # matching may have given it one just now
            if memo is not None:
                if len(source.ways) >= WAYS_MAX:
                    source.ways.clear()
                source.ways[memo] = way
        way.uses += 1
        return way

    @property
    def _detouring(self) -> bool:
        return self.detours is not None and self.detours.active

    def _widened(
        self, way: Way, batches: Sequence[PublicationBatch], party: Party, *, without_held: bool
    ) -> Way:
        """A way with what goes beside it while a broker moves."""
        if self.detours is None:
            return way
        came_from = self._mesh.direction_of(party)
        return self.detours.widened(way, batches, came_from, without_held=without_held)

    def _keep(self, source: Source, destinations: tuple[Hashable, ...], way: Way) -> None:
        """Remember a way for others that reach the same."""
        if len(source.different) >= WAYS_MAX:
            self._add_up_all(source.different.values())
            source.different.clear()
            source.ways.clear()
        source.different[destinations] = way
        if self._roomy:
            way.find_receivers()

    def here(self, arrivals: Sequence[Arrival]) -> Way:
        """The way of publications that are for clients and logs of this broker alone.

        Raises:
            PublicationError: a value is none that a publication can have.
        """
        if not arrivals:
            return _NOWHERE
        batches = [batch for batch, _ in arrivals]
        rows = sum([batch.count for batch in batches])
        return self._shared_out(self._tables.reached_here(batches), rows)

    def _reached(self, batches: Sequence[PublicationBatch]) -> Reached:
        if self._stopwatch is None:
            return self._tables.reached(batches)
        begin_ns = self._stopwatch()
        try:
            return self._tables.reached(batches)
        finally:
            self._counters.match_ns += self._stopwatch() - begin_ns

    def _found(
        self, source: Party, reached: Reached, rows: int, on_tree: bool = False, without_held: bool = False
    ) -> Way:
        """Find out who gets which rows of those that reach these destinations."""
        mesh = self._mesh
        came_from = mesh.direction_of(source)
        sets = None
        # What has come along the tree stays there: nothing that keeps to it may wait for what does not.
        if mesh.delegates and not on_tree and isinstance(source, Client):
            sets = self._delegated.sets(reached, came_from, rows)
            if sets is not None:
                reached = [hop for hop in reached if not isinstance(hop[0], Anchored)]
        self._meant.clear()
        if self.detours is not None:
            reached = self.detours.without_gone(reached)
        hops = self.forwarding.next_hops(reached, came_from, on_tree, rows)
        return self._shared_out(hops, rows, sets or (), self._meant, without_held)

    def _shared_out(
        self,
        hops: Reached,
        rows: int,
        sets: Sequence[tuple[bytes, Rows]] = (),
        meant: Sequence[tuple[str, int]] = (),
        without_held: bool = False,
    ) -> Way:
        # Those who get all rows are together, at the place of the first of them.
        links: dict[Hashable, tuple[list[Party], Rows]] = {}
        clients: dict[Hashable, tuple[list[Party], int, Rows]] = {}
        logs: list[tuple[Hashable, Rows]] = []
        for destination, chosen in hops:
            wanted = None if chosen is not None and len(chosen) == rows else chosen
            if isinstance(destination, str):
                link = self._mesh.party(destination)
                if not (without_held and link.channel.holding):
                    key = None if wanted is None else destination
                    links.setdefault(key, ([], wanted))[0].append(link)
            elif not isinstance(destination, ClientDestination):
                logs.append((destination, wanted))
            elif destination.client.connection is not None:  # otherwise it has left
                number = destination.number
                place = number if wanted is None else destination
                clients.setdefault(place, ([], number, wanted))[0].append(destination.client)
        return Way(
            [(tuple(parties), wanted) for parties, wanted in links.values()],
            [(tuple(parties), number, wanted) for parties, number, wanted in clients.values()],
            logs,
            sets,
            meant,
            rows,
        )

    def forget(self) -> None:
        """Something happens that could change the ways."""
        if self.sources:
            self.add_up()
            self.sources.clear()

    def forget_if_moved(self) -> None:
        """Something has happened that changes the ways if forwarding goes by something else now."""
        if self.forwarding.version != self._version:
            self._version = self.forwarding.version
            self.forget()

    def add_up(self) -> None:
        """Bring the broker's counters up to date."""
        for source in self.sources.values():
            self._add_up_all(source.different.values())

    def _add_up_all(self, ways: Iterable[Way]) -> None:
        for way in ways:
            if way.uses:
                self._add_up(way)

    def _add_up(self, way: Way) -> None:
        uses, way.uses = way.uses, 0
        self._counters.received += uses * way.rows
        self._counters.matched_batches += uses
        self._counters.forwarded += uses * way.forwarded
        for broker, rows in way.meant:
            self._mesh.sent(broker, uses * rows)


def chosen_rows(arrivals: Sequence[Arrival], rows: IntArray) -> Sequence[Arrival]:
    """Some rows of batches that are routed together."""
    if len(arrivals) == 1:
        batch, pending = arrivals[0]
        return [(batch.select(rows), pending)]
    ends = np.cumsum([batch.count for batch, _ in arrivals])
    if ends[-1] == len(arrivals):  # each a single one, perhaps of as many publishers
        return [arrivals[row] for row in rows.tolist()]
    chosen: list[Arrival] = []
    begin = 0
    cuts = np.searchsorted(rows, ends).tolist()
    for (batch, pending), end, cut in zip(arrivals, ends.tolist(), cuts, strict=True):
        if cut > begin:
            whole = cut - begin == batch.count
            some = batch if whole else batch.select(rows[begin:cut] - (end - batch.count))
            chosen.append((some, pending))
            begin = cut
    return chosen
