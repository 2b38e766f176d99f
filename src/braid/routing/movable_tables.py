"""How do routing tables follow when a link takes the place of another?

The part of `RoutingTables` that operations need (availability paper, Table III): a neighbour that is renamed,
and one that is told nothing until it is known which entries are its own.

*Ahead of the change.* What will come from another neighbour is prepared while publications flow. Where it
will be one neighbour's, it is told apart to that one, so that it neither hides anything nor is hidden there
(`share`). Where it will come from a new neighbour, matching names that one for it already, and publications
are led to where it still is (`claim`). Then the change is a word about places (`succeed`, `give_over`,
`take_claim`), whatever the number of entries, and those follow some a turn.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from itertools import islice
from typing import TYPE_CHECKING

import numpy as np

from braid.language.filters import Filter
from braid.routing.anchored_entries import HERE, Anchor
from braid.routing.multipath import Anchored
from braid.routing.neighbour import Kind, Neighbour, Tell

if TYPE_CHECKING:
    from collections import Counter
    from collections.abc import Hashable, Iterable, Mapping, Sequence

    from braid.matching.columns import IntArray
    from braid.matching.matcher import Matcher, Reached
    from braid.routing.entries import Entries, Entry

__all__ = ["ANYTHING", "ENTRIES_PER_STEP", "LOOKED_AT_PER_STEP", "MovableTables", "take_some", "unanchored"]

ANYTHING = Filter("TRUE")
# Entries of which one step tells a neighbour: a few milliseconds.
ENTRIES_PER_STEP = 16
# And so many does it look at to find them; for most it takes a look into a dictionary to pass them by.
LOOKED_AT_PER_STEP = 256


class MovableTables(ABC):
    """What operations ask of routing tables."""

    _neighbours: dict[str, Neighbour]
    _agenda: dict[str, Neighbour]
    _subscriptions: Entries
    _advertisements: Entries
    _places: dict[str, str]
    matcher: Matcher
    _destinations: Counter[Hashable]
    _takes_all: Counter[Hashable]

    def rename_link(self, old: str, new: str) -> None:
        """Another neighbour has taken the place of one: what came from that one comes from this, and what
        that one was told this is to know. (Availability paper, Table III, first row.)
        """
        neighbour = self._neighbours.pop(old)
        neighbour.link = new
        self._neighbours[new] = neighbour
        if self._agenda.pop(old, None) is not None:
            self._agenda[new] = neighbour
        self._advertisements.rename(old, new)
        before = [(key, self._subscriptions[key]) for key in self._subscriptions.from_origin(old)]
        self._subscriptions.rename(old, new)
        self._regroup(before)  # nothing that was compared is compared anew

    def mute(self, link: str) -> None:
        """Tell a neighbour nothing new for now."""
        self._neighbours[link].muted = True

    def unmute(self, link: str) -> list[Tell]:
        """Tell a neighbour everything that did not come from it; many subscriptions are told step by step."""
        tells, keys = self.unmute_slowly(link)
        self.tell_later(link, keys)
        return tells

    def unmute_slowly(self, link: str) -> tuple[list[Tell], list[str]]:
        """The same; but which subscriptions it may have to be told of is returned, for `tell_later`.

        Whether one is for this neighbour at all is seen then: there may be very many.
        """
        neighbour = self._neighbours[link]
        if not neighbour.muted:
            return [], []
        neighbour.muted = False
        told = neighbour.entries(Kind.ADVERTISEMENT)
        fresh = [item for item in self._advertisements.items_elsewhere(link) if item[0] not in told]
        return neighbour.change(Kind.ADVERTISEMENT, [], unanchored(fresh)), self._subscriptions.keys()

    def tell_later(self, link: str, keys: Iterable[str]) -> None:
        """Tell a neighbour of these in one of the next steps, if it is to know them."""
        neighbour = self._neighbours.get(link)
        if neighbour is not None:
            neighbour.later(neighbour.postponed, keys)

    def settled(self, link: str) -> bool:
        """Whether nothing is left to be told to a neighbour, nor to be taken back."""
        neighbour = self._neighbours.get(link)
        return neighbour is None or not neighbour.unfinished

    def anchor_of(self, key: str) -> Anchor | None:
        """Where publications for a subscription can be sent to, if it has an anchor."""
        entry = self._subscriptions.get(key)
        return entry.anchor if entry is not None and entry.anchor.broker else None

    # What a neighbour knows.

    def tell_anew(self, link: str) -> list[Tell]:
        """Everything for a neighbour that has forgotten it all; many subscriptions are told step by step."""
        neighbour = self._neighbours[link]
        neighbour.again.clear()
        neighbour.later(neighbour.again, neighbour.entries(Kind.SUBSCRIPTION).perhaps_told())
        return self._told(neighbour, Kind.ADVERTISEMENT) + self._tell_again(neighbour)

    def perhaps_told(self, link: str) -> list[str]:
        """The keys of the subscriptions that a neighbour was told, and of those that are hidden from it."""
        return self._neighbours[link].entries(Kind.SUBSCRIPTION).perhaps_told()

    def told_entry(self, link: str, key: str) -> tuple[Filter, Anchor] | None:
        """Under which filter and anchor a neighbour knows a subscription; None if it does not."""
        return self._neighbours[link].entries(Kind.SUBSCRIPTION).told_entry(key)

    def told_version(self, link: str) -> int:
        """Rises with every change of what a neighbour knows of subscriptions."""
        return self._neighbours[link].entries(Kind.SUBSCRIPTION).version

    @staticmethod
    def _told(neighbour: Neighbour, kind: Kind) -> list[Tell]:
        return [
            Tell(neighbour.link, kind.news, key, filter, anchor)
            for key, filter, anchor in neighbour.entries(kind).told()
        ]

    @staticmethod
    def _tell_again(neighbour: Neighbour) -> list[Tell]:
        """Tell a neighbour some of what it has forgotten; what was hidden from it is passed by."""
        tells: list[Tell] = []
        looked_at = 0
        for key in neighbour.again:
            if len(tells) == ENTRIES_PER_STEP or looked_at == LOOKED_AT_PER_STEP:
                break
            looked_at += 1
            tells += neighbour.tell_again((key,))
        take_some(neighbour.again, looked_at)
        return tells

    # Ahead of a change.

    def share(self, origin: str, link: str) -> None:
        """What comes from `origin` will come from `link`, which is told it apart from now on."""
        self._neighbours[link].sharing = origin

    def tell_apart(
        self, link: str, subscriptions: Sequence[str], advertisements: Sequence[str]
    ) -> list[Tell]:
        """Tell a neighbour these entries of the one that it shares apart, and what they hid from it."""
        neighbour = self._neighbours[link]
        tells: list[Tell] = []
        here = self._still(self._advertisements, advertisements, neighbour.sharing)
        tells += neighbour.tell_apart(Kind.ADVERTISEMENT, unanchored(here.items()))
        if here:
            tells += self._hear_at(neighbour, here)
        here = self._still(self._subscriptions, subscriptions, neighbour.sharing)
        return tells + neighbour.tell_apart(Kind.SUBSCRIPTION, self._anchored(neighbour, here.items()))

    def newly_apart(self, link: str) -> list[str]:
        """What a neighbour was told apart since this was asked last."""
        neighbour = self._neighbours[link]
        keys, neighbour.newly_apart = neighbour.newly_apart, []
        return keys

    def rejoin(self, link: str) -> list[Tell]:
        """Nothing will change: what a neighbour was told apart is among the rest again, step by step."""
        neighbour = self._neighbours.get(link)
        if neighbour is None:
            return []
        origin, neighbour.sharing = neighbour.sharing, ""
        neighbour.newly_apart = []
        neighbour.later(neighbour.rejoining, sorted(neighbour.entries(Kind.SUBSCRIPTION).apart))
        keys = neighbour.entries(Kind.ADVERTISEMENT).apart
        apart = self._still(self._advertisements, sorted(keys), origin)
        keys.clear()
        for key in apart:
            neighbour.unhear(key)
        tells = neighbour.change(Kind.ADVERTISEMENT, list(apart), unanchored(apart.items()))
        return tells + self._forget_unwanted(neighbour, apart.values())

    def _rejoin(self, neighbour: Neighbour, keys: Sequence[str]) -> list[Tell]:
        known = neighbour.entries(Kind.SUBSCRIPTION)
        known.apart.difference_update(keys)
        wanted = []
        for key in keys:
            entry = self._subscriptions.get(key)
            if entry is not None and neighbour.asks(entry.filter, entry.origin):
                wanted.append((key, entry.filter))
        return neighbour.change(Kind.SUBSCRIPTION, keys, self._anchored(neighbour, wanted))

    def claim(self, link: str, place: str, keys: Iterable[str]) -> list[Tell]:
        """These entries, which come from `place`, will come from `link`, which need not be told of them."""
        neighbour = self._neighbours[link]
        tells: list[Tell] = []
        before: list[tuple[str, Entry]] = []
        for key in keys:
            entry = self._subscriptions.get(key)
            if entry is not None and entry.origin == place:
                before.append((key, entry))
                self._subscriptions.lead_to(key, link)
                neighbour.besides[key] = None
                tells += neighbour.change(Kind.SUBSCRIPTION, [key], [])
            entry = self._advertisements.get(key)
            if entry is not None and entry.origin == place:
                neighbour.besides[key] = None
                tells += self._hear_at(neighbour, {key: entry.filter})
                tells += neighbour.change(Kind.ADVERTISEMENT, [key], [])
        self._places[link] = place
        self._regroup(before)
        return tells

    def claimed(self, link: str) -> list[str]:
        """What will come from a neighbour."""
        neighbour = self._neighbours.get(link)
        return list(neighbour.besides) if neighbour is not None else []

    def disclaim(self, link: str, keys: Iterable[str]) -> None:
        """These entries go on coming from where they come from."""
        before: list[tuple[str, Entry]] = []
        for key in keys:
            entry = self._subscriptions.get(key)
            if entry is not None and entry.origin == self._places.get(link):
                before.append((key, entry))
                self._subscriptions.lead_to(key, entry.origin)
        self._regroup(before)

    def take_claim(self, link: str) -> None:
        """Publications for what a neighbour claims go to it from now on."""
        self._places.pop(link, None)

    # The change.

    def succeed(self, old: str, new: str) -> None:
        """A new neighbour has the place of an old one, and knows what that one was told. What came from the
        old one is to be moved."""
        neighbour = self._neighbours.pop(old)
        if self._agenda.pop(old, None) is not None:
            self._agenda[new] = neighbour
        neighbour.link, neighbour.also = new, old
        self._neighbours[new] = neighbour
        self._neighbours[old] = Neighbour(old, self._agenda)
        self._neighbours[old].muted = True
        self._places[old] = new

    def give_over(self, old: str, new: str) -> None:
        """What came from a neighbour that leaves comes from another one, and is to be moved."""
        neighbour = self._neighbours[new]
        neighbour.sharing, neighbour.also = "", old
        neighbour.newly_apart = []
        self._places[old] = new

    def moved(self, old: str, new: str) -> None:
        """Everything that came from the old neighbour was moved, or belongs to it."""
        self._places.pop(old, None)
        neighbour = self._neighbours.get(new)
        if neighbour is not None:
            neighbour.also = ""
            neighbour.besides.clear()

    def tell_once_more(self, link: str, keys: Iterable[str]) -> list[Tell]:
        """What a neighbour is to know of these subscriptions, whether it does or not."""
        neighbour = self._neighbours.get(link)
        return neighbour.tell_again(keys) if neighbour is not None else []

    def _in_place(self, reached: Reached) -> Reached:
        """The destinations that matching names, as they are to be reached now."""
        found: dict[Hashable, list[IntArray] | None] = {}
        for destination, rows in reached:
            place: Hashable = destination
            if isinstance(destination, Anchored):
                origin = self._places.get(destination.origin)
                place = destination._replace(origin=origin) if origin is not None else destination
            elif isinstance(destination, str):
                place = self._places.get(destination, destination)
            known = found.setdefault(place, [])
            if rows is None:
                found[place] = None
            elif known is not None:
                known.append(rows)
        return [
            (place, None if some is None else some[0] if len(some) == 1 else np.unique(np.concatenate(some)))
            for place, some in found.items()
        ]

    def _regroup(self, before: Iterable[tuple[str, Entry]]) -> None:
        """Matching is to name other destinations for entries than before."""
        moved: dict[Hashable, list[str]] = {}
        for key, former in before:
            entry = self._subscriptions[key]
            if entry.destination == former.destination:
                continue
            moved.setdefault(entry.destination, []).append(key)
            for counter in (
                self._destinations,
                *((self._takes_all,) if entry.filter.terms == ANYTHING.terms else ()),
            ):
                counter[entry.destination] += 1
                counter[former.destination] -= 1
                if not counter[former.destination]:
                    del counter[former.destination]
        for destination, keys in moved.items():
            self.matcher.regroup(keys, destination)

    def _still(self, entries: Entries, keys: Iterable[str], origin: str) -> dict[str, Filter]:
        """Those of the keys that come from there."""
        return {
            key: entry.filter
            for key in keys
            if (entry := entries.get(key)) is not None and entry.origin == origin
        }

    @abstractmethod
    def _hear_at(self, neighbour: Neighbour, filters: Mapping[str, Filter]) -> list[Tell]: ...

    @abstractmethod
    def _forget_unwanted(self, neighbour: Neighbour, gone: Iterable[Filter]) -> list[Tell]: ...

    @abstractmethod
    def _anchored(
        self, neighbour: Neighbour, items: Iterable[tuple[str, Filter]]
    ) -> list[tuple[str, Filter, Anchor]]: ...


def unanchored(items: Iterable[tuple[str, Filter]]) -> list[tuple[str, Filter, Anchor]]:
    """Advertisements have no anchor: they are told of wherever they come from."""
    return [(key, filter, HERE) for key, filter in items]


def take_some(line: dict[str, None], count: int = ENTRIES_PER_STEP) -> list[str]:
    """So many out of a line, as many as one step looks at."""
    keys = list(islice(line, count))
    for key in keys:
        del line[key]
    return keys
