"""Who gets what, in which order, and who waits for whom?

The decisions of the embedded bus, with no thread, clock or event loop in sight: the driver in
`engine.py` calls these methods one at a time and performs the effects they return.

- `Router` numbers publications and says which subscriptions they concern.
- `Mailroom` hands them to the mailboxes, and moves what stands in line as subscribers read.
- `WaitGraph` knows which callback waits for which, and so whether one more wait would never end.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from braid.embedded.attributes import ReadOnlyAttributes
from braid.embedded.mailbox import Mailbox, Offer, WhenFull
from braid.embedded.statistics import BusStatistics, SubscriptionStatistics
from braid.errors import BusClosedError
from braid.language import Filter, Publication, Value
from braid.matching import FilterIndex

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

__all__ = [
    "Disconnected",
    "Draft",
    "Effect",
    "Mailroom",
    "Readable",
    "Router",
    "Settled",
    "WaitGraph",
    "statistics_of",
]


@dataclass(frozen=True, slots=True)
class Readable:
    """A mailbox has something to read, or has ended: wake who reads it."""

    key: int


@dataclass(frozen=True, slots=True)
class Settled:
    """A publish call waits for nobody any more: wake its publisher."""

    offer: Offer


@dataclass(frozen=True, slots=True)
class Disconnected:
    """A subscription fell too far behind, as it had allowed for: route nothing to it any more."""

    key: int


Effect: TypeAlias = Readable | Settled | Disconnected


class Draft(NamedTuple):
    """A publication that has no number yet; its parts were checked."""

    attributes: dict[str, Value]
    body: bytes
    content_type: str


class Router:
    """Which subscriptions does a publication concern, and what is its number?"""

    def __init__(self, bus_name: str) -> None:
        self.closed = False
        self._bus_name = bus_name
        self._index: FilterIndex[int] = FilterIndex()
        # One number per publisher's name for as long as the bus lives: forgetting a name would
        # give its next publication an id that was used before.
        self._sequences: dict[str, int] = {}

    def add(self, key: int, condition: Filter) -> None:
        """From now on, publications that match concern this key."""
        self.require_open()
        self._index.add(key, condition)

    def remove(self, key: int) -> None:
        """From now on, nothing concerns this key; harmless when it is not there."""
        if key in self._index:
            self._index.remove(key)

    def route(
        self, publisher: str, drafts: list[Draft], now_us: int
    ) -> tuple[int, dict[int, list[Publication]]]:
        """Number a batch in its order; the first number, and each concerned key's rows in that order."""
        self.require_open()
        if len(drafts) == 1:
            matches = [self._index.match(drafts[0].attributes)]
        else:
            matches = self._index.match_batch([draft.attributes for draft in drafts])
        first = self._sequences.get(publisher, 0) + 1
        self._sequences[publisher] = first + len(drafts) - 1
        routed: dict[int, list[Publication]] = {}
        for sequence, (draft, keys) in enumerate(zip(drafts, matches, strict=True), first):
            if keys:
                # Subscribers share one object, made only when there is a subscriber.
                shared = ReadOnlyAttributes(draft.attributes)
                publication = Publication(shared, draft.body, draft.content_type, publisher, sequence, now_us)
                for key in keys:
                    routed.setdefault(key, []).append(publication)
        return first, routed

    def require_open(self) -> None:
        """Raise when the bus takes no more calls."""
        if self.closed:
            raise BusClosedError(f"the bus {self._bus_name!r} is closed")


class Mailroom:
    """The mailboxes of all subscriptions; every method returns what the driver should do next."""

    def __init__(self) -> None:
        self.closed = False
        self._mailboxes: dict[int, Mailbox] = {}
        self._key_last = 0
        self._totals = BusStatistics()
        """Publications of the bus, and the counters of the mailboxes that are gone."""

    def __len__(self) -> int:
        return len(self._mailboxes)

    def open(self, name: str | None, condition: Filter, capacity: int, when_full: WhenFull) -> Mailbox:
        """A new, empty mailbox."""
        self._key_last += 1
        key = self._key_last
        mailbox = Mailbox(key, name or f"subscription-{key}", condition, capacity, when_full)
        self._mailboxes[key] = mailbox
        return mailbox

    def offer(self, published: int, routed: Mapping[int, list[Publication]]) -> tuple[Offer, list[Effect]]:
        """Hand a routed batch to its mailboxes; what found no room stands in line in the offer."""
        offer = Offer()
        effects: list[Effect] = []
        self._totals.published += published
        for key in sorted(routed):
            mailbox = self._mailboxes[key]
            was_empty = not mailbox.queue
            mailbox.put(routed[key], offer)
            if was_empty:
                effects.append(Readable(key))
            if mailbox.failure is not None:
                self._totals.disconnected += 1
                effects.append(Disconnected(key))
        return offer, effects

    def take(self, mailbox: Mailbox) -> tuple[Publication | None, list[Effect]]:
        """The next publication for this subscriber, or None: it must wait, or the mailbox has ended."""
        publication, settled = mailbox.take()
        if publication is None and mailbox.ended and not self.closed:
            self._retire(mailbox)
        return publication, [Settled(offer) for offer in settled]

    def withdraw(self, offer: Offer) -> tuple[int, tuple[str, ...]]:
        """Take back what still stands in line; how many hand-overs, and whose queues were full."""
        mailboxes = [self._mailboxes[key] for key in sorted(offer.waiting)]
        undelivered = sum(mailbox.withdraw(offer) for mailbox in mailboxes)
        return undelivered, tuple(mailbox.name for mailbox in mailboxes)

    def full(self, offer: Offer) -> tuple[str, ...]:
        """The names of the subscriptions that an offer still waits for."""
        return tuple(self._mailboxes[key].name for key in sorted(offer.waiting))

    def stop(self, mailbox: Mailbox) -> list[Effect]:
        """End one subscription and throw away what waits for it; harmless when done before."""
        settled = mailbox.stop(keep_queue=False, refuse=False)
        if not self.closed:
            self._retire(mailbox)
        return [Readable(mailbox.key), *map(Settled, settled)]

    def close(self, *, drain: bool) -> list[Effect]:
        """End all subscriptions; what is queued can still be read when `drain` says so.

        The mailboxes stay listed, so that statistics taken after the end show everything.
        """
        self.closed = True
        effects: list[Effect] = []
        for mailbox in self._mailboxes.values():
            settled = mailbox.stop(keep_queue=drain, refuse=True)
            effects += [Readable(mailbox.key), *map(Settled, settled)]
        return effects

    def count_error(self, mailbox: Mailbox) -> None:
        """A callback raised an exception."""
        mailbox.errors += 1
        if mailbox.key not in self._mailboxes:
            self._totals.errors += 1

    def statistics(self) -> BusStatistics:
        """A snapshot of all counters."""
        listed = tuple(statistics_of(mailbox) for mailbox in self._mailboxes.values())
        total = replace(self._totals, subscriptions=listed)
        for entry in listed:
            total.add(entry)
        return total

    def _retire(self, mailbox: Mailbox) -> None:
        if self._mailboxes.pop(mailbox.key, None) is not None:
            self._totals.add(statistics_of(mailbox))


def statistics_of(mailbox: Mailbox) -> SubscriptionStatistics:
    """A snapshot of one mailbox's counters."""
    return SubscriptionStatistics(
        name=mailbox.name,
        filter=mailbox.filter.text,
        matched=mailbox.matched,
        delivered=mailbox.delivered,
        queued=len(mailbox.queue),
        waiting=mailbox.standing_in_line,
        dropped=mailbox.dropped,
        discarded=mailbox.discarded,
        errors=mailbox.errors,
        open=mailbox.open,
    )


class WaitGraph:
    """Which subscription's callback waits until which others have made progress?

    A callback that publishes may wait for another callback's queue, and that callback may be
    publishing too. When such waits form a ring, none of them ever ends.
    """

    def __init__(self) -> None:
        self._waits: dict[int, Collection[int]] = {}

    def closes_ring(self, source: int, targets: Iterable[int]) -> bool:
        """Would `source`, waiting for `targets`, in the end wait for itself?"""
        pending = list(targets)
        seen: set[int] = set()
        while pending:
            key = pending.pop()
            if key == source:
                return True
            if key not in seen:
                seen.add(key)
                pending.extend(self._waits.get(key, ()))
        return False

    def begin(self, source: int, targets: Collection[int]) -> None:
        """`source` waits for all of `targets`; the collection may shrink meanwhile."""
        self._waits[source] = targets

    def end(self, source: int) -> None:
        """`source` goes on."""
        self._waits.pop(source, None)
