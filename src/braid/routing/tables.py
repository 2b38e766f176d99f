"""Who wants what, who offers what, and what must each neighbour know of it?

Reverse path routing with advertisements (availability paper, section III-B). Advertisements are told to
every neighbour, and each broker remembers from where it heard them (the SRT). A subscription is told to
the neighbours from which an intersecting advertisement came, and is remembered with its origin (the
PRT); publications then travel the way back. What a neighbour knows already by a covering filter is not
told again.

An entry's *origin* is its last hop on the tree, as in a master subscription table; the group it has in
the index is the destination that matching names. Without soft links the two are the same.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from braid.errors import LocalProtocolError
from braid.matching.matcher import Matcher, OwnMatching
from braid.routing.anchored_entries import HERE, Anchor
from braid.routing.entries import Entries, Entry
from braid.routing.movable_tables import (
    ANYTHING,
    ENTRIES_PER_STEP,
    LOOKED_AT_PER_STEP,
    MovableTables,
    take_some,
    unanchored,
)
from braid.routing.multipath import Anchored
from braid.routing.neighbour import Kind, LinkStatistics, Neighbour, Tell, Verb
from braid.routing.overlap import OverlapIndex

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterable, KeysView, Mapping, Sequence

    from braid.language.filters import Filter
    from braid.language.values import Value
    from braid.matching.columns import IntArray
    from braid.matching.index import GroupMatrix
    from braid.matching.matcher import Publications, Reached

__all__ = ["ANYTHING", "RoutingStatistics", "RoutingTables"]


class RoutingStatistics(NamedTuple):
    """A snapshot for people and metrics."""

    subscriptions: int
    advertisements: int
    links: dict[str, LinkStatistics]


class RoutingTables(MovableTables):
    """The routing state of one broker.

    Every method that changes it returns what neighbours must be told, in an order that is safe for a
    receiver which processes one after the other: what is new comes before what is gone, so that nothing
    that is wanted throughout is ever without a subscription.

    A key that arrives again means: nothing, if filter and origin are the same; a changed filter; or,
    from another origin, that the way there has changed. Removing what is not there is no error,
    because a neighbour may repeat itself.

    >>> from braid.language.filters import Filter
    >>> tables = RoutingTables()
    >>> tables.add_link("north")
    []
    >>> tables.subscribe([("s1", Filter("price > 10"))], "alice", link=False)
    []
    >>> [str(tell) for tell in tables.advertise([("a1", Filter("TRUE"))], "north", link=True)]
    ['north: subscribe s1 to price > 10']

    Whether a subscription meets an advertisement is asked for publications without ranges: a publication
    with ranges should lie within its advertisement as a whole, or be advertised as TRUE.
    """

    def __init__(
        self,
        matcher: Matcher | None = None,
        anchor_for: Callable[[str, Anchor | None], Anchor] = lambda link, anchor: HERE,
    ) -> None:
        """
        Args:
            matcher: answers for the subscriptions; an index of our own if none is given.
            anchor_for: how a neighbour is to know what has an anchor, or (None) is for somebody here.
        """
        self.matcher: Matcher = matcher if matcher is not None else OwnMatching()
        """All subscriptions, grouped by destination."""
        self._matcher_here: Matcher | None = None
        """Those of local destinations alone, once somebody asks for them."""
        self._keys_here: set[str] = set()
        self._neighbours: dict[str, Neighbour] = {}
        self._agenda: dict[str, Neighbour] = {}
        """Neighbours for whom something is left for `step`."""
        self._subscriptions = Entries()
        self._advertisements = Entries()
        self._overlaps = OverlapIndex()
        self._destinations: Counter[Hashable] = Counter()
        """Those that matching can name, with how many subscriptions they have."""
        self._takes_all: Counter[Hashable] = Counter()
        """Those of them that want everything, with how many subscriptions say so."""
        self._anchor_for = anchor_for
        self._places: dict[str, str] = {}
        """Where publications for what matching names go meanwhile."""

    # Links.

    @property
    def links(self) -> KeysView[str]:
        """The neighbours, as a live view."""
        return self._neighbours.keys()

    def add_link(self, link: str, *, muted: bool = False) -> list[Tell]:
        """A new neighbour is told all advertisements, or (`muted`) nothing for now; nothing happens if it is
        there already."""
        if link in self._neighbours:
            return []
        if self._subscriptions.from_origin(link) or self._advertisements.from_origin(link):
            raise LocalProtocolError(f"{link!r} is a local destination; a link needs another name")
        neighbour = self._neighbours[link] = Neighbour(link, self._agenda)
        neighbour.muted = muted
        return neighbour.change(
            Kind.ADVERTISEMENT, [], unanchored(self._advertisements.items_elsewhere(link))
        )

    def remove_link(self, link: str) -> list[Tell]:
        """Forget a neighbour and all that came from it; the others are told."""
        if self._neighbours.pop(link, None) is None:
            return []
        self._agenda.pop(link, None)
        subscriptions, advertisements = self.from_link(link)
        return self.unadvertise(advertisements) + self.unsubscribe(subscriptions)

    # Subscriptions.

    def subscribe(
        self,
        items: Sequence[tuple[str, Filter]],
        origin: Hashable,
        *,
        link: bool,
        anchors: Mapping[str, Anchor] | None = None,
    ) -> list[Tell]:
        """Subscriptions from a neighbour (`link`) or for a local destination.

        `anchors` says of keys where publications can be sent to instead of the neighbour.
        """
        anchors = anchors if anchors is not None else {}
        self._require_origin(origin, link)
        tells: list[Tell] = []
        fresh: dict[str, Filter] = {}
        for key, filter in items:
            known = self._subscriptions.get(key)
            if known is None and key not in fresh:
                fresh[key] = filter
                continue
            # One by one: each replacement is safe by itself, several at once need not be.
            tells += self._subscribe_new(fresh, origin, anchors)
            fresh = {}
            tells += self._subscribe_again(key, filter, origin, anchors.get(key, HERE))
        return tells + self._subscribe_new(fresh, origin, anchors)

    def local(self, key: str) -> tuple[Filter, Hashable] | None:
        """The filter and the destination of a subscription, None if there is no such one."""
        entry = self._subscriptions.get(key)
        return (entry.filter, entry.origin) if entry is not None else None

    def unsubscribe(self, keys: Iterable[str], *, origin: Hashable = None) -> list[Tell]:
        """Remove subscriptions; with an `origin` only those that are still its own."""
        known = self._known(self._subscriptions, keys, origin)
        for key in known:
            self._leave_index(key, self._subscriptions.pop(key))
        for neighbour in self._neighbours.values():
            neighbour.disclaim(known)
        return [
            tell for each in self._neighbours.values() for tell in each.change(Kind.SUBSCRIPTION, known, [])
        ]

    def _subscribe_new(
        self, fresh: Mapping[str, Filter], origin: Hashable, anchors: Mapping[str, Anchor]
    ) -> list[Tell]:
        if not fresh:
            return []
        entries = {
            key: self._subscriptions.put(key, filter, origin, anchors.get(key, HERE))
            for key, filter in fresh.items()
        }
        self._enter_index(entries)
        tells: list[Tell] = []
        for neighbour in self._neighbours.values():
            wanted = [(key, filter) for key, filter in fresh.items() if neighbour.asks(filter, origin)]
            tells += neighbour.change(Kind.SUBSCRIPTION, [], self._anchored(neighbour, wanted))
        return tells

    def _subscribe_again(self, key: str, filter: Filter, origin: Hashable, anchor: Anchor) -> list[Tell]:
        known = self._subscriptions.get(key)
        if known is None or (known.filter == filter and (known.origin, known.anchor) == (origin, anchor)):
            return []
        if known.filter == filter and self._neighbour(origin) and self._neighbour(known.origin):
            entry = self._subscriptions.move(key, origin, anchor)
            self._regroup([(key, known)])
        else:
            self._leave_index(key, self._subscriptions.pop(key))
            entry = self._subscriptions.put(key, filter, origin, anchor)
            self._enter_index({key: entry})
        tells: list[Tell] = []
        for neighbour in self._neighbours.values():
            wanted = neighbour.asks(filter, origin)
            neighbour.place(Kind.SUBSCRIPTION, key, origin)
            tells += neighbour.replace(
                Kind.SUBSCRIPTION,
                key,
                filter,
                wanted,
                known.filter == filter,
                self._anchor_at(neighbour, entry),
            )
        return _news_first(tells)

    def _anchored(
        self, neighbour: Neighbour, items: Iterable[tuple[str, Filter]]
    ) -> list[tuple[str, Filter, Anchor]]:
        """Subscriptions with the anchors under which a neighbour is to know them."""
        found = []
        for key, filter in items:
            entry = self._subscriptions.get(key)
            found.append((key, filter, self._anchor_at(neighbour, entry) if entry is not None else HERE))
            if entry is not None:
                neighbour.place(Kind.SUBSCRIPTION, key, entry.origin)
        return found

    def _anchor_at(self, neighbour: Neighbour, entry: Entry) -> Anchor:
        if self._neighbour(entry.origin) is None:
            return self._anchor_for(neighbour.link, None)
        return self._anchor_for(
            neighbour.link, entry.anchor if entry.anchor.broker else Anchor(str(entry.origin))
        )

    def reanchor(self, link: str) -> list[Tell]:
        """Tell a neighbour anew what is anchored otherwise now, because it wants to see more or less."""
        neighbour = self._neighbours[self._require_link(link)]
        entries = neighbour.entries(Kind.SUBSCRIPTION)
        moved = [
            (key, entries.filter_of(key))
            for key in entries
            if (entry := self._subscriptions.get(key)) is not None
            and self._anchor_at(neighbour, entry) != entries.anchor_of(key)
        ]
        return neighbour.change(
            Kind.SUBSCRIPTION, [key for key, _ in moved], self._anchored(neighbour, moved)
        )

    # Advertisements.

    def advertise(self, items: Sequence[tuple[str, Filter]], origin: Hashable, *, link: bool) -> list[Tell]:
        """Advertisements from a neighbour (`link`) or of a local publisher.

        A neighbour is first told the subscriptions that its advertisements meet.
        """
        self._require_origin(origin, link)
        tells: list[Tell] = []
        fresh: dict[str, Filter] = {}
        for key, filter in items:
            known = self._advertisements.get(key)
            if known is None and key not in fresh:
                fresh[key] = filter
                continue
            tells += self._advertise_new(fresh, origin)
            fresh = {}
            tells += self._advertise_again(key, filter, origin)
        return tells + self._advertise_new(fresh, origin)

    def unadvertise(self, keys: Iterable[str], *, origin: Hashable = None) -> list[Tell]:
        """Remove advertisements, and untell subscriptions that were told because of them alone."""
        known = self._known(self._advertisements, keys, origin)
        gone: dict[Hashable, dict[str, Filter]] = {}
        for key in known:
            entry = self._advertisements.pop(key)
            gone.setdefault(entry.origin, {})[key] = entry.filter
        tells: list[Tell] = []
        for neighbour in self._neighbours.values():
            neighbour.disclaim(known)
            tells += neighbour.change(Kind.ADVERTISEMENT, known, [])
        for source, filters in gone.items():
            tells += self._unhear(source, filters)
        return tells

    def _advertise_new(self, fresh: Mapping[str, Filter], origin: Hashable) -> list[Tell]:
        if not fresh:
            return []
        for key, filter in fresh.items():
            self._advertisements.put(key, filter, origin)
        tells = self._hear(origin, fresh)
        for neighbour in self._neighbours.values():
            if not neighbour.owns(origin):
                for key in fresh:
                    neighbour.place(Kind.ADVERTISEMENT, key, origin)
                tells += neighbour.change(Kind.ADVERTISEMENT, [], unanchored(fresh.items()))
        return tells

    def _advertise_again(self, key: str, filter: Filter, origin: Hashable) -> list[Tell]:
        known = self._advertisements.get(key)
        if known is None or (known.filter == filter and known.origin == origin):
            return []
        self._advertisements.pop(key)
        self._advertisements.put(key, filter, origin)
        tells: list[Tell] = []
        former = self._hearers(known.origin)
        for neighbour in former:
            neighbour.unhear(key)
        tells += self._hear(origin, {key: filter})
        for neighbour in former:
            tells += self._forget_unwanted(neighbour, [known.filter])
        for neighbour in self._neighbours.values():
            neighbour.place(Kind.ADVERTISEMENT, key, origin)
            tells += neighbour.replace(
                Kind.ADVERTISEMENT, key, filter, not neighbour.owns(origin), known.filter == filter
            )
        return _news_first(tells)

    def _hear(self, origin: Hashable, filters: Mapping[str, Filter]) -> list[Tell]:
        """Tell a neighbour the subscriptions that its new advertisements meet."""
        return [tell for each in self._hearers(origin) for tell in self._hear_at(each, filters)]

    def _hearers(self, origin: Hashable) -> list[Neighbour]:
        """The neighbours that advertisements come from: one, or also the one that they will come from."""
        return [
            each
            for each in self._neighbours.values()
            if each.link == origin or (each.sharing and each.sharing == origin)
        ]

    def _hear_at(self, neighbour: Neighbour, filters: Mapping[str, Filter]) -> list[Tell]:
        universal_before = neighbour.wants_everything
        for key, filter in filters.items():
            neighbour.hear(key, filter)
        if universal_before or neighbour.muted:
            return []
        if neighbour.wants_everything:
            neighbour.later(neighbour.postponed, self._subscriptions.keys())
            return self._tell_postponed(neighbour)
        keys = {key for filter in filters.values() for key in self._overlaps.find(filter)}
        met = self._subscriptions.items_elsewhere(neighbour.link, keys)
        if neighbour.also:
            met = [item for item in met if not neighbour.owns(self._subscriptions[item[0]].origin)]
        known = neighbour.entries(Kind.SUBSCRIPTION)
        wanted = [(key, filter) for key, filter in met if key not in known and filter.satisfiable]
        neighbour.later(neighbour.postponed, (key for key, _ in wanted[ENTRIES_PER_STEP:]))
        return neighbour.change(Kind.SUBSCRIPTION, [], self._anchored(neighbour, wanted[:ENTRIES_PER_STEP]))

    # Long work.

    @property
    def unfinished(self) -> bool:
        """Whether there is something left for `step`."""
        return bool(self._agenda)

    def step(self) -> list[Tell]:
        """Go on with what would have taken too long at once, a bounded amount for each neighbour."""
        tells: list[Tell] = []
        for neighbour in list(self._agenda.values()):
            if neighbour.again:
                tells += self._tell_again(neighbour)
            elif neighbour.rejoining:
                tells += self._rejoin(neighbour, take_some(neighbour.rejoining))
            elif neighbour.postponed:
                tells += self._tell_postponed(neighbour)
            elif neighbour.unwanted:
                tells += self._untell_unwanted(neighbour, take_some(neighbour.unwanted))
            else:
                tells += neighbour.step(ENTRIES_PER_STEP)
            if not neighbour.unfinished:
                del self._agenda[neighbour.link]
        return tells

    def telling(self, link: str) -> bool:
        """Whether a neighbour has not been told of all that it must know."""
        neighbour = self._neighbours.get(link)
        return neighbour is not None and neighbour.telling

    def hides_many(self, key: str) -> bool:
        """Whether a subscription hides so many that its key should not be given to another one."""
        return any(each.entries(Kind.SUBSCRIPTION).hides_many(key) for each in self._neighbours.values())

    def _tell_postponed(self, neighbour: Neighbour) -> list[Tell]:
        known = neighbour.entries(Kind.SUBSCRIPTION)
        wanted: list[tuple[str, Filter]] = []
        looked_at = 0
        for key in neighbour.postponed:
            if len(wanted) == ENTRIES_PER_STEP or looked_at == LOOKED_AT_PER_STEP:
                break
            looked_at += 1
            entry = self._subscriptions.get(key)
            # It may have gone meanwhile, or come another way, or the advertisement has gone.
            if entry is not None and key not in known and neighbour.asks(entry.filter, entry.origin):
                wanted.append((key, entry.filter))
        take_some(neighbour.postponed, looked_at)
        return neighbour.change(Kind.SUBSCRIPTION, [], self._anchored(neighbour, wanted))

    def _unhear(self, origin: Hashable, filters: Mapping[str, Filter]) -> list[Tell]:
        tells: list[Tell] = []
        for neighbour in self._hearers(origin):
            for key in filters:
                neighbour.unhear(key)
            tells += self._forget_unwanted(neighbour, filters.values())
        return tells

    def _forget_unwanted(self, neighbour: Neighbour, gone: Iterable[Filter]) -> list[Tell]:
        """Untell what only these advertisements, which the neighbour has taken back, asked for."""
        if neighbour.wants_everything:
            return []
        known = neighbour.entries(Kind.SUBSCRIPTION)
        met: set[str] = set()
        for filter in gone:
            met.update(known if str(filter) == "TRUE" else self._overlaps.find(filter))
        touched = [key for key in known if key in met]
        # The latest go first: what was told first hides others, which would have to be told for a moment.
        neighbour.later(neighbour.unwanted, reversed(touched[:-ENTRIES_PER_STEP]))
        return self._untell_unwanted(neighbour, touched[-ENTRIES_PER_STEP:])

    def _untell_unwanted(self, neighbour: Neighbour, keys: Iterable[str]) -> list[Tell]:
        """Untell those of these that no advertisement of the neighbour meets any more."""
        known = neighbour.entries(Kind.SUBSCRIPTION)
        unwanted = [
            key
            for key in keys
            if key in known and key not in known.apart and not neighbour.wants(known.filter_of(key))
        ]
        return neighbour.change(Kind.SUBSCRIPTION, unwanted, [])

    # Questions.

    def told_to(self, link: str) -> list[Tell]:
        """Everything a neighbour has been told and not untold, advertisements first."""
        neighbour = self._neighbours[self._require_link(link)]
        return [tell for kind in Kind for tell in self._told(neighbour, kind)]

    def representative(self, link: str, key: str) -> str | None:
        """The key under which a neighbour knows a subscription: its own, or that of one which covers it.

        None if the subscription is not wanted there.
        """
        return self._neighbours[self._require_link(link)].entries(Kind.SUBSCRIPTION).coverer(key)

    def from_link(self, link: str) -> tuple[list[str], list[str]]:
        """The keys of the subscriptions and of the advertisements that came from a neighbour."""
        return self._subscriptions.from_origin(link), self._advertisements.from_origin(link)

    def origin_of(self, key: str) -> Hashable:
        """Where a subscription or advertisement came from; None for an unknown key."""
        entry = self._subscriptions.get(key) or self._advertisements.get(key)
        return None if entry is None else entry.origin

    def subscription(self, key: str) -> Filter | None:
        """What is asked for under a key; None for an unknown one."""
        entry = self._subscriptions.get(key)
        return None if entry is None else entry.filter

    def advertisement(self, key: str) -> Filter | None:
        """What is said to be published under a key; None for an unknown one."""
        entry = self._advertisements.get(key)
        return None if entry is None else entry.filter

    def destinations(self, batch: Iterable[Mapping[str, Value | None]]) -> GroupMatrix:
        """Which destinations have a subscription for each publication."""
        return self.matcher.group_matrix(batch)

    def reached(self, batches: Sequence[Publications]) -> Reached:
        """The same as destinations with their rows, counted through all batches.

        Those who take everything are not asked.
        """
        if len(self._takes_all) < len(self._destinations):
            reached = self.matcher.reached(batches)
            return self._in_place(reached) if self._places else reached
        # Nothing has to be compared, but the values must be such as publications can have.
        self.matcher.check(batches)
        if not any(map(len, batches)):
            return []
        reached = [(destination, None) for destination in self._takes_all]
        return self._in_place(reached) if self._places else reached

    def wanted_behind(self, link: str, publications: Publications) -> IntArray:
        """Which rows somebody behind a neighbour wants."""
        rows = [
            np.arange(len(publications)) if wanted is None else wanted
            for destination, wanted in self.reached((publications,))
            if destination == link or (isinstance(destination, Anchored) and destination.origin == link)
        ]
        return np.unique(np.concatenate(rows)) if rows else np.array([], np.int64)

    def reached_here(self, batches: Sequence[Publications]) -> Reached:
        """The local ones alone, without asking the subscriptions of others."""
        if self._matcher_here is None:
            self._matcher_here = self.matcher.another()
            self._enter_index_here({key: self._subscriptions[key] for key in self.matcher})
        return self._matcher_here.reached(batches)

    def _enter_index(self, entries: Mapping[str, Entry]) -> None:
        self.matcher.add_many([(key, entry.filter, entry.destination) for key, entry in entries.items()])
        self._enter_index_here(entries)
        for key, entry in entries.items():
            self._overlaps.add(key, entry.filter)
            self._destinations[entry.destination] += 1
            if entry.filter.terms == ANYTHING.terms:
                self._takes_all[entry.destination] += 1

    def _enter_index_here(self, entries: Mapping[str, Entry]) -> None:
        if self._matcher_here is not None:
            here = {key: each for key, each in entries.items() if self._neighbour(each.origin) is None}
            self._keys_here |= here.keys()
            self._matcher_here.add_many(
                [(key, entry.filter, entry.destination) for key, entry in here.items()]
            )

    def _leave_index(self, key: str, entry: Entry) -> None:
        self.matcher.remove(key)
        if self._matcher_here is not None and key in self._keys_here:
            self._keys_here.discard(key)
            self._matcher_here.remove(key)
        self._overlaps.remove(key)
        _count_off(self._destinations, entry.destination)
        if entry.filter.terms == ANYTHING.terms:
            _count_off(self._takes_all, entry.destination)

    def statistics(self) -> RoutingStatistics:
        """How much there is, and how much of it covering keeps from travelling."""
        return RoutingStatistics(
            len(self._subscriptions),
            len(self._advertisements),
            {link: neighbour.statistics() for link, neighbour in self._neighbours.items()},
        )

    def _known(self, entries: Entries, keys: Iterable[str], origin: Hashable) -> list[str]:
        """Those of the keys that are there, once each."""
        return [
            key
            for key in dict.fromkeys(keys)
            if (entry := entries.get(key)) is not None and origin in (None, entry.origin)
        ]

    def _neighbour(self, origin: Hashable) -> Neighbour | None:
        """The neighbour that an origin is; None for a local one."""
        return self._neighbours.get(origin) if isinstance(origin, str) else None

    def _require_link(self, link: str) -> str:
        if link not in self._neighbours:
            raise LocalProtocolError(f"there is no link to {link!r}; add_link comes first")
        return link

    def _require_origin(self, origin: Hashable, link: bool) -> None:
        if origin is None:
            raise LocalProtocolError(
                "an entry needs an origin: a link, or a local destination that is not None"
            )
        if link != (origin in self._neighbours):
            problem = "is not a link; add_link comes first" if link else "is a link, not a local destination"
            raise LocalProtocolError(f"the origin {origin!r} {problem}")


def _count_off(counter: Counter[Hashable], destination: Hashable) -> None:
    counter[destination] -= 1
    if not counter[destination]:
        del counter[destination]


def _news_first(tells: list[Tell]) -> list[Tell]:
    """The same with everything new, for any neighbour, before everything that is gone."""
    return sorted(tells, key=lambda tell: tell.verb in (Verb.UNSUBSCRIBE, Verb.UNADVERTISE))
