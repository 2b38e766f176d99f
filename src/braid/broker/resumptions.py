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

import numpy as np

from braid.errors import FilterError
from braid.language.reading import read_filter
from braid.matching.matcher import OwnMatching

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from braid.broker.events import LinkBegun, LinkLost, LinkOpening, LinkRemoved
    from braid.broker.parties import Link, Party
    from braid.broker.turn import Turn
    from braid.broker.ways import Arrival, Ways
    from braid.language import Filter
    from braid.matching.columns import IntArray
    from braid.protocol import PublicationBatch
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
        self._cache: list[_Cached] = []
        """At such a replica: what subscriptions may be for that have not come yet, in order."""
        self._cached_bytes = 0
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
        if self._holding() == 1:  # this one
            self._over()
        self._review()

    def link_lost(self, event: LinkLost) -> None:
        """The connection is gone; if the session goes on, the rest of it waits as for any broker."""
        self._forget(event.link)
        self._review()

    def link_removed(self, event: LinkRemoved) -> None:
        """The neighbour is none any more."""
        self._forget(event.link)
        self._review()

    def _forget(self, link: Link) -> None:
        link.channel.choosing = False
        self._queues.pop(link, None)

    def _over(self) -> None:
        """This broker knows all tables."""
        self.own = ""
        self._cache.clear()
        self._cached_bytes = 0

    def _review(self) -> None:
        """Have publications looked at one by one, or no longer."""
        watched = bool(self.own or self._queues)
        if watched != self._ways.watched:
            self._ways.watched = watched
            self._ways.forget()
        self._ways.sent_everywhere = self.own == IMMEDIATE

    # What comes.

    def subscribe_link(self, link: Link, messages: Sequence[Subscribe]) -> None:
        """A neighbour subscribes for the brokers behind it."""
        self._subscribe_link(link, messages)
        queue = self._queues.get(link)
        if queue is not None:
            if queue.repeated(messages):
                self._turn.changed(link)
        elif self._cache:
            self._send_cached(link, messages)

    def arrived(self, source: Party, arrivals: Sequence[Arrival]) -> None:
        """Publications have come and were routed while tables are being rebuilt here or next door."""
        for link, queue in self._queues.items():
            if queue.look_at_new():
                self._turn.changed(link)
        if self.own == INCREMENTAL and source.is_broker:
            for batch, pending in arrivals:
                if pending is None:
                    self._keep(_Cached(batch.onward(), source.name))

    # At the replica.

    def _keep(self, cached: _Cached) -> None:
        """Keep a publication for subscriptions that have not come; who has had it by now is noted."""
        for link in self._neighbours.values():
            if link.name != cached.source:
                cached.sent[link.name] = self._tables.wanted_behind(link.name, cached.batch)
        self._cache.append(cached)
        self._cached_bytes += cached.batch.size
        while self._cached_bytes > self._turn.settings.link_queue_bytes_max:
            oldest = self._cache.pop(0)
            self._cached_bytes -= oldest.batch.size
            self._turn.counters.dropped += oldest.batch.count

    def _send_cached(self, link: Link, messages: Sequence[Subscribe]) -> None:
        """Send a neighbour what meets subscriptions that have just come, and that it has not had.

        What is kept is compared with these subscriptions only, all of it at once: they come one after the
        other, and each comparison with all that is known would cost as much as routing everything again.
        """
        new = OwnMatching()
        new.add_many(_items_of(messages))
        kept = [each for each in self._cache if each.source != link.name]
        if not kept or not len(new):
            return
        for cached, met in zip(kept, _wanted_by(new)([each.batch for each in kept]), strict=True):
            if len(met):
                self._send_rows(cached, link)

    def _send_rows(self, cached: _Cached, link: Link) -> None:
        """Send a neighbour the rows that it wants and has not had."""
        wanted = self._tables.wanted_behind(link.name, cached.batch)
        sent = cached.sent.get(link.name)
        rows = wanted if sent is None else np.setdiff1d(wanted, sent)
        if len(rows):
            cached.sent[link.name] = wanted if sent is None else np.union1d(wanted, sent)
            batch = cached.batch if len(rows) == cached.batch.count else cached.batch.select(rows)
            self._turn.pass_on((link,), [(batch, None)], None)


class _Cached:
    """Publications that were routed by tables that may lack subscriptions."""

    __slots__ = ("batch", "sent", "source")

    def __init__(self, batch: PublicationBatch, source: str) -> None:
        self.batch = batch
        self.source = source
        """The neighbour that they came from."""
        self.sent: dict[str, IntArray] = {}
        """By neighbour: the rows that it has had."""


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
        items = _items_of(messages, len(self._repeated))
        new.add_many(items)
        self._repeated.add_many(items)
        self._channel.choose(_wanted_by(new), 0)
        return self._channel.waiting_bytes > 0

    def look_at_new(self) -> bool:
        """Look at what has been put in line since; returns whether something may be ready."""
        before = self._looked_at
        self._looked_at = self._channel.choose(_wanted_by(self._repeated), before)
        return self._looked_at > before


def _items_of(messages: Sequence[Subscribe], first: int = 0) -> list[tuple[str, Filter, str]]:
    """What an index keeps of the filters of subscriptions, under keys that are numbers."""
    return [
        (f"{place}", filter, "")
        for place, filter in enumerate(map(_filter_of, messages), first)
        if filter is not None
    ]


def _filter_of(message: Subscribe) -> Filter | None:
    try:
        return read_filter(message.filter)
    except FilterError:
        return None  # who subscribed has heard so


def _wanted_by(
    matching: OwnMatching,
) -> Callable[[Sequence[PublicationBatch]], Sequence[IntArray]]:
    """Which rows of batches meet any of some filters."""

    def wanted(batches: Sequence[PublicationBatch]) -> Sequence[IntArray]:
        found = np.zeros(sum(batch.count for batch in batches), bool)
        for _, rows in matching.reached(batches) if len(matching) else ():
            found[slice(None) if rows is None else rows] = True
        ends = np.cumsum([batch.count for batch in batches])
        return [np.flatnonzero(each) for each in np.split(found, ends[:-1])]

    return wanted
