"""How do publications come back to a broker whose tables are being rebuilt?

A process that has taken the place of another broker knows no subscription. Its neighbours tell it theirs, and
have publications in line for it meanwhile. When these cross is one of four *resumptions*; the first three
are the failover protocols of the availability paper. All are about publications without a receipt: what is
acknowledged waits until both ends of a link know everything, whatever was chosen, so that no receipt is given
by tables that are not complete.

*Synchronous*: nothing crosses a link before the replica knows all tables. This is what `links.py` does.

*Basic*: everything crosses at once, and the replica routes it by what it knows so far. What it knows nobody
for is lost.

*Incremental*: a neighbour sends what meets a subscription that the replica has repeated to it; the rest
waits (wait and ready queues). The replica sends it to those whose subscriptions it knows and keeps it for
those that come later, by neighbour and row (sentTo). Both go by content: under covering the replica may
repeat other subscriptions than its predecessor did, and one that has come may have hidden one that has not.
Everybody gets everything, in whatever order.

*Immediate*, which is ours: everything crosses at once, and the replica passes it on to every other neighbour
until that one has said what it wants. A neighbour that knows all that is behind it, as it says in its
greeting, needs no subscription to decide what to keep. Nothing is lost or overtaken, and nothing waits; what
nobody wants crosses a link in vain.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from braid.broker.replica_cache import ReplicaCache, wanted_by
from braid.errors import FilterError
from braid.language.reading import read_filter
from braid.matching.matcher import OwnMatching

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from braid.broker.events import LinkBegun, LinkLost, LinkOpening, LinkRemoved
    from braid.broker.parties import Link, Party
    from braid.broker.turn import Turn
    from braid.broker.ways import Arrival, Ways
    from braid.language import Filter
    from braid.protocol.messages import Subscribe
    from braid.routing import RoutingTables

__all__ = ["BASIC", "IMMEDIATE", "INCREMENTAL", "RESUMPTIONS", "SYNCHRONOUS", "Resumptions"]

SYNCHRONOUS = "synchronous"
BASIC = "basic"
INCREMENTAL = "incremental"
IMMEDIATE = "immediate"
RESUMPTIONS = (SYNCHRONOUS, BASIC, INCREMENTAL, IMMEDIATE)
_EARLY = (BASIC, INCREMENTAL, IMMEDIATE)


class Resumptions:
    """Lets publications cross links before all tables are known.

    Args:
        own: how publications come back to this broker, if it has taken another one's place.
        turn: where publications go.
        neighbours: the links by their names.
        holding: how many links hold publications back.
        subscribe_link: keeps what a neighbour subscribes to.
        tables: know who wants what.
        ways: told when publications have to be looked at one by one.
    """

    def __init__(
        self,
        own: str,
        turn: Turn,
        neighbours: Mapping[str, Link],
        holding: Callable[[], int],
        subscribe_link: Callable[[Link, Sequence[Subscribe]], None],
        tables: RoutingTables,
        ways: Ways,
    ) -> None:
        self.own = own if own in _EARLY else ""
        """How publications come back to this broker; empty once its tables are complete."""
        self._turn = turn
        self._neighbours = neighbours
        self._holding = holding
        self._subscribe_link = subscribe_link
        self._tables = tables
        self._ways = ways
        self._queues: dict[Link, _WaitReady] = {}
        """What waits for a replica that resumes incrementally."""
        self.cache = ReplicaCache(turn, neighbours, tables)
        """At such a replica: what subscriptions may be for that have not come yet."""
        self._complete = False
        """Whether all tables are known, and only what was kept is still to be sent."""
        self._review()

    # Links.

    def link_begun(self, event: LinkBegun) -> None:
        """A session with a neighbour has begun."""
        link = event.link
        self._forget(link)
        resumption = self.own or link.resumption
        if self.own in (INCREMENTAL, IMMEDIATE) and not link.informed:
            pass  # it has begun anew itself, and would drop what is for those that it does not know yet
        elif resumption in _EARLY:
            link.channel.passing = True
            if not self.own and resumption == INCREMENTAL:
                self._queues[link] = _WaitReady(link)
            self._turn.changed(link)
        else:
            link.resumption = ""
        self._review()

    def opening(self, event: LinkOpening) -> None:
        """All that a neighbour wants is known: from here on it is a link like others."""
        link = event.link
        link.resumption = ""
        self._forget(link)
        self._complete = bool(self.own) and self._holding() == 1  # this one
        self._end_if_complete()
        self._review()

    def link_lost(self, event: LinkLost) -> None:
        """The connection is gone; if the session goes on, the rest of it waits as for any broker."""
        self._forget(event.link)
        self._review()

    def link_removed(self, event: LinkRemoved) -> None:
        """The neighbour is none any more."""
        self._forget(event.link)
        self.cache.forget_link(event.link)
        self._end_if_complete()
        self._review()

    def _forget(self, link: Link) -> None:
        link.channel.choosing = False
        self._queues.pop(link, None)

    def _end_if_complete(self) -> None:
        """This broker is one like others once it knows all tables, and has sent what it kept."""
        if self._complete and not self.cache.unfinished:
            self.own, self._complete = "", False
            self.cache.clear()

    @property
    def unfinished(self) -> bool:
        """Whether there is something left for `step`."""
        return self.cache.unfinished

    def step(self) -> None:
        """Send some more of what was kept to those whose subscriptions have come since."""
        self.cache.step()
        if self._complete:
            self._end_if_complete()
            self._review()

    def _review(self) -> None:
        """Have publications looked at one by one, or no longer."""
        watched = bool(self.own or self._queues)
        if watched != self._ways.watched:
            self._ways.watched = watched
            self._ways.forget()
        self._ways.sent_everywhere = self.own == IMMEDIATE

    def violations(self) -> Iterator[str]:
        """What is wrong with it; nothing if all is well."""
        yield from self.cache.violations()
        for link in self._queues:
            if self._neighbours.get(link.name) is not link:
                yield f"something waits for the replica {link}, which is no neighbour"
            elif not link.channel.choosing:
                yield f"something waits for the replica {link}, and its channel chooses nothing"
        if bool(self.own or self._queues) != self._ways.watched:
            yield "publications are looked at one by one, or not, for no reason"

    # What comes.

    def subscribe_link(self, link: Link, messages: Sequence[Subscribe]) -> None:
        """A neighbour subscribes for the brokers behind it."""
        self._subscribe_link(link, messages)
        queue = self._queues.get(link)
        if queue is not None:
            if queue.repeated(messages):
                self._turn.changed(link)
        elif len(self.cache):
            filters = [self._tables.subscription(message.key) for message in messages]
            waits = self.cache.unfinished
            self.cache.repeated(link, [filter for filter in filters if filter is not None])
            if not waits:
                self.cache.step()

    def arrived(self, source: Party, arrivals: Sequence[Arrival]) -> None:
        """Publications have come and were routed while tables are being rebuilt here or next door."""
        for link, queue in self._queues.items():
            if queue.look_at_new():
                self._turn.changed(link)
        if self.own == INCREMENTAL and source.is_broker:
            for batch, pending in arrivals:
                if pending is None:
                    self.cache.keep(batch.onward(), source.name)


class _WaitReady:
    """What waits for one replica: rows become ready when it repeats a subscription that they meet."""

    def __init__(self, link: Link) -> None:
        self._channel = link.channel
        self._channel.choosing = True
        self._repeated = OwnMatching()
        """The subscriptions that the replica has repeated."""
        self._looked_at = 0
        """What was in line up to here is compared with new subscriptions only."""

    def repeated(self, messages: Sequence[Subscribe]) -> bool:
        """The replica has subscribed; returns whether something may be ready."""
        self.look_at_new()
        new = OwnMatching()
        items = [
            (f"{place}", filter, "")
            for place, filter in enumerate(map(_filter_of, messages), len(self._repeated))
            if filter is not None
        ]
        new.add_many(items)
        self._repeated.add_many(items)
        self._channel.choose(wanted_by(new), 0)
        return self._channel.waiting_bytes > 0

    def look_at_new(self) -> bool:
        """Look at what has been put in line since; returns whether something may be ready."""
        before = self._looked_at
        self._looked_at = self._channel.choose(wanted_by(self._repeated), before)
        return self._looked_at > before


def _filter_of(message: Subscribe) -> Filter | None:
    try:
        return read_filter(message.filter)
    except FilterError:
        return None  # who subscribed has heard so
