"""What do we know of one neighbour: what it offers, and what it has been told?"""

from __future__ import annotations

import enum
from typing import TYPE_CHECKING, NamedTuple

from braid.routing.anchored_entries import HERE, Anchor, AnchoredEntries
from braid.routing.covering_set import Change
from braid.routing.overlap import OverlapIndex

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterable, Sequence

    from braid.language.filters import Filter

__all__ = ["Kind", "LinkStatistics", "Neighbour", "Tell", "Verb"]


class Verb(enum.Enum):
    """What a neighbour is told about a key."""

    SUBSCRIBE = "subscribe"
    UNSUBSCRIBE = "unsubscribe"
    ADVERTISE = "advertise"
    UNADVERTISE = "unadvertise"


class Kind(enum.Enum):
    """Of what a neighbour is told; advertisements first, because subscriptions follow them."""

    ADVERTISEMENT = (Verb.ADVERTISE, Verb.UNADVERTISE)
    SUBSCRIPTION = (Verb.SUBSCRIBE, Verb.UNSUBSCRIBE)

    @property
    def news(self) -> Verb:
        """The verb for an entry that is new or has another filter."""
        return self.value[0]

    @property
    def farewell(self) -> Verb:
        """The verb for an entry that is gone."""
        return self.value[1]


class Tell(NamedTuple):
    """One sentence for one neighbour. A key it knows already, with another filter, is a replacement."""

    link: str
    verb: Verb
    key: str
    filter: Filter | None
    """None when something is taken back."""
    anchor: Anchor = HERE
    """Where the neighbour can send publications for a subscription."""

    def __str__(self) -> str:
        rest = "" if self.filter is None else f" to {self.filter}"
        where = f" at {self.anchor.broker}" if self.anchor.broker else ""
        return f"{self.link}: {self.verb.value} {self.key}{rest}{where}"


class LinkStatistics(NamedTuple):
    """How much one neighbour knows, and how much is hidden behind that."""

    subscriptions_told: int
    subscriptions_hidden: int
    advertisements_told: int
    advertisements_hidden: int

    @property
    def covering_ratio(self) -> float:
        """The share of the wanted subscriptions that did not have to travel."""
        wanted = self.subscriptions_told + self.subscriptions_hidden
        return self.subscriptions_hidden / wanted if wanted else 0.0


class Neighbour:
    """A link's share of the routing tables."""

    def __init__(self, link: str, agenda: dict[str, Neighbour] | None = None) -> None:
        """`agenda` lists those neighbours that `step` is to be called for."""
        self.link = link
        self._agenda = agenda if agenda is not None else {}
        self._entries = {kind: AnchoredEntries() for kind in Kind}
        # The universal advertisement is by far the most common one, so those are only counted.
        self._universal: set[str] = set()
        self._heard = OverlapIndex()
        self.postponed: dict[str, None] = {}
        """Subscriptions that its advertisements meet and that it has not been told of yet."""
        self.unwanted: dict[str, None] = {}
        """Subscriptions that it was told for the sake of advertisements that are gone."""
        self.again: dict[str, None] = {}
        """Subscriptions that it was told in an earlier session and has to be told in this one."""
        self.rejoining: dict[str, None] = {}
        """Subscriptions that are not told apart any more."""
        self.muted = False
        """Whether it is to hear of nothing that is new, until it is known which entries are its own."""
        self.sharing = ""
        """Another neighbour whose entries this one is told apart, because they will come from it."""
        self.also = ""
        """Another neighbour whose entries come from this one by now."""
        self.besides: dict[str, None] = {}
        """Entries that are not its own yet, and will be."""
        self.newly_apart: list[str] = []
        """What it was told apart since somebody asked."""

    def owns(self, origin: Hashable) -> bool:
        """Whether what has this origin comes from it."""
        return origin == self.link or (origin == self.also and bool(self.also))

    # What it offers.

    @property
    def wants_everything(self) -> bool:
        """Whether it has advertised TRUE."""
        return bool(self._universal)

    def asks(self, filter: Filter, origin: Hashable) -> bool:
        """Whether it is to be told of a subscription that came from somewhere else."""
        if self.sharing and origin == self.sharing:
            return filter.satisfiable
        return not self.owns(origin) and self.wants(filter)

    def wants(self, filter: Filter) -> bool:
        """Whether an advertisement from there meets a subscription."""
        if self._universal:
            return filter.satisfiable
        return any(True for _ in self._heard.find(filter))

    def hear(self, key: str, filter: Filter) -> None:
        """An advertisement came from there."""
        self.unhear(key)
        if str(filter) == "TRUE":
            self._universal.add(key)
        else:
            self._heard.add(key, filter)

    def unhear(self, key: str) -> None:
        """An advertisement from there is gone."""
        if key in self._universal:
            self._universal.remove(key)
        elif key in self._heard:
            self._heard.remove(key)

    # What it has been told.

    def entries(self, kind: Kind) -> AnchoredEntries:
        """What it was told, and what is hidden behind that."""
        return self._entries[kind]

    def change(
        self, kind: Kind, removed: Iterable[str], added: Sequence[tuple[str, Filter, Anchor]]
    ) -> list[Tell]:
        """Remove what is there of `removed`, and add (with anchors); the answer is what it must hear."""
        entries = self._entries[kind]
        gone = [key for key in removed if key in entries]
        if self.muted:
            added = ()
        elif self.besides:
            added = [item for item in added if item[0] not in self.besides]
        if not gone and not added:
            return []
        # What it has from elsewhere by now it need not forget.
        kept = {key for key in gone if key in entries.apart} if self.also else set[str]()
        entries.apart -= kept
        change = entries.change(gone, added)
        if kept:
            change = Change(change.told, [key for key in change.untold if key not in kept])
        if entries.unfinished:
            self._agenda[self.link] = self
        return self._tells(kind, change)

    def disclaim(self, keys: Iterable[str]) -> None:
        """These entries are no more."""
        if self.besides:
            for key in keys:
                self.besides.pop(key, None)

    def place(self, kind: Kind, key: str, origin: Hashable) -> None:
        """Before it is told of an entry: see whether that is told apart."""
        apart = self._entries[kind].apart
        if self.sharing and origin == self.sharing:
            apart.add(key)
            self.newly_apart.append(key)
        elif apart and not self.also:
            apart.discard(key)

    def tell_apart(self, kind: Kind, items: Sequence[tuple[str, Filter, Anchor]]) -> list[Tell]:
        """Tell these apart from now on, also those that it knows or that were hidden from it."""
        self.newly_apart += [key for key, _, _ in items]
        change = self._entries[kind].set_apart(items)
        if self._entries[kind].unfinished:
            self._agenda[self.link] = self
        return self._tells(kind, change)

    def later(self, line: dict[str, None], keys: Iterable[str]) -> None:
        """Do something about these subscriptions in one of the next steps."""
        line.update(dict.fromkeys(keys))
        if line:
            self._agenda[self.link] = self

    @property
    def telling(self) -> bool:
        """Whether it has not been told of all that it must know."""
        return bool(self.postponed or self.again)

    @property
    def unfinished(self) -> bool:
        """Whether there is something left to do for it."""
        lines = self.postponed or self.again or self.unwanted or self.rejoining
        return bool(lines) or any(each.unfinished for each in self._entries.values())

    def tell_again(self, keys: Iterable[str]) -> list[Tell]:
        """Those of these subscriptions that it is still to know, in a session that has begun anew."""
        kind = Kind.SUBSCRIPTION
        told = [(key, self._entries[kind].told_entry(key)) for key in keys]
        return [Tell(self.link, kind.news, key, *entry) for key, entry in told if entry is not None]

    def step(self, entries_max: int) -> list[Tell]:
        """Go on with what a change has left, so many entries at most."""
        for kind, entries in self._entries.items():
            if entries.unfinished:
                return self._tells(kind, entries.step(entries_max))
        return []

    def _tells(self, kind: Kind, change: Change) -> list[Tell]:
        entries = self._entries[kind]
        replaced = set(change.told)
        tells = [
            Tell(self.link, kind.news, key, entries.filter_of(key), entries.anchor_of(key))
            for key in change.told
        ]
        tells += [Tell(self.link, kind.farewell, key, None) for key in change.untold if key not in replaced]
        return tells

    def replace(
        self, kind: Kind, key: str, filter: Filter, wanted: bool, equal: bool, anchor: Anchor = HERE
    ) -> list[Tell]:
        """A key's filter or anchor, or whether it is wanted, may have changed."""
        entries = self._entries[kind]
        if wanted and equal and entries.is_in_place(key, anchor):
            return []
        return self.change(kind, [key], [(key, filter, anchor)] if wanted else [])

    def statistics(self) -> LinkStatistics:
        """What it knows, in numbers."""
        subscriptions = self._entries[Kind.SUBSCRIPTION]
        advertisements = self._entries[Kind.ADVERTISEMENT]
        return LinkStatistics(
            subscriptions.told_count,
            len(subscriptions) - subscriptions.told_count,
            advertisements.told_count,
            len(advertisements) - advertisements.told_count,
        )
