"""The neighbours of a peer on the circle: those that are nearest before it and after it.

Distances are kept instead of places, in one sorted list for each side, so that the owner of a key is found
by one search. In a network of few peers the same ones stand on both sides.

In a small network a leaf set may be wider, so that everybody is in it and a message takes one hop: protocols
for many peers do not scale down by themselves. A peer tells by its own leaf set: as long as both sides reach
round the circle, it knows everybody. When they do not any more, the network has grown, and it goes back to
its usual width; when that reaches round the circle, the network has shrunk.
"""

from __future__ import annotations

from bisect import bisect_left
from typing import TYPE_CHECKING

from braid.p2p.dht.identifiers import CIRCLE, closeness, number_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from braid.p2p.dht.identifiers import Address, Contact

__all__ = ["LeafSet"]

_MASK = CIRCLE - 1


class LeafSet:
    """Up to `half` peers on each side of this one."""

    __slots__ = (
        "_arc_first",
        "_arc_length",
        "after",
        "before",
        "changes",
        "distances_after",
        "distances_before",
        "half",
        "half_large",
        "half_small",
        "number",
        "own",
    )

    def __init__(self, own: Contact, number: int, half: int, half_small: int = 0) -> None:
        self.own = own
        self.number = number
        self.half_large = half
        """The usual width of each side."""
        self.half_small = max(half, half_small)
        """The width in a small network."""
        self.half = self.half_small
        """The present width."""
        self.before: list[Contact] = []
        """Nearest first."""
        self.after: list[Contact] = []
        self.distances_before: list[int] = []
        self.distances_after: list[int] = []
        self.changes = 0
        """How often it has changed."""
        self._arc_first = 0
        self._arc_length = CIRCLE

    def fill(
        self,
        before: list[Contact],
        distances_before: list[int],
        after: list[Contact],
        distances_after: list[int],
    ) -> None:
        """Take over both sides at once, nearest first."""
        self.half = self.half_large
        self.before, self.distances_before = before, distances_before
        self.after, self.distances_after = after, distances_after
        self._measure()

    def __contains__(self, contact: Contact) -> bool:
        return contact in self.before or contact in self.after

    def __iter__(self) -> Iterator[Contact]:
        """Every neighbour once, nearest first, taken from both sides in turns."""
        return iter(self.nearest(self.half))

    def nearest(self, count: int) -> list[Contact]:
        """The `count` nearest of each side in turns (before, after, ...), each once."""
        found: dict[Contact, None] = {}
        for place in range(min(count, self.half)):
            if place < len(self.before):
                found[self.before[place]] = None
            if place < len(self.after):
                found[self.after[place]] = None
        return list(found)

    def wants(self, number: int) -> bool:
        """Whether a peer at this place, if it is alive, belongs here and is not here yet."""
        if number == self.number:
            return False
        return _room(self.distances_after, (number - self.number) & _MASK, self.half) or _room(
            self.distances_before, (self.number - number) & _MASK, self.half
        )

    def add(self, contact: Contact, number: int) -> bool:
        """Take in a peer where it is near enough; whether it is new here."""
        if number == self.number:
            return False
        after = _insert(self.after, self.distances_after, contact, (number - self.number) & _MASK, self.half)
        before = _insert(
            self.before, self.distances_before, contact, (self.number - number) & _MASK, self.half
        )
        if after or before:
            self._fit()
            self._measure()
        return after or before

    def _fit(self) -> None:
        """Be as wide as the size of the network asks for."""
        if self.half_small == self.half_large:
            return
        after, before = self.distances_after, self.distances_before
        if not after or not before or after[-1] + before[-1] >= CIRCLE:
            self.half = self.half_small
        elif self.half > self.half_large and min(len(after), len(before)) >= self.half:
            self.half = self.half_large
            for side in (self.before, self.after, before, after):
                del side[self.half :]

    def remove(self, address: Address) -> bool:
        """Strike out a peer; whether it was here."""
        found = False
        for contacts, distances in (
            (self.before, self.distances_before),
            (self.after, self.distances_after),
        ):
            for place, contact in enumerate(contacts):
                if contact.address == address:
                    del contacts[place], distances[place]
                    found = True
                    break
        if found:
            self._fit()
            self._measure()
        return found

    def responsible(self, number: int) -> bool:
        """Whether this peer is closest to a key."""
        return ((number - self._arc_first) & _MASK) < self._arc_length

    def owner(self, number: int) -> Contact | None:
        """The closest to a key of these and this peer itself; None if the key lies outside of them."""
        if ((number - self._arc_first) & _MASK) < self._arc_length:
            return self.own
        ahead = (number - self.number) & _MASK
        distances = self.distances_after
        if ahead <= distances[-1]:
            place = bisect_left(distances, ahead)
            behind = ahead - (distances[place - 1] if place else 0)
            if behind <= distances[place] - ahead:
                return self.after[place - 1] if place else self.own
            return self.after[place]
        back = CIRCLE - ahead
        distances = self.distances_before
        if back <= distances[-1]:
            place = bisect_left(distances, back)
            if distances[place] - back <= back - (distances[place - 1] if place else 0):
                return self.before[place]
            return self.before[place - 1] if place else self.own
        return None

    def heir(self, number: int) -> Contact | None:
        """Who is closest to a key without this peer, if anybody is here."""
        return min(self.nearest(1), key=lambda each: closeness(number_of(each.id), number), default=None)

    def _measure(self) -> None:
        """The keys that this peer is closest to; see `identifiers.closeness` for those halfway."""
        self.changes += 1
        if not self.before or not self.after:
            self._arc_first, self._arc_length = 0, CIRCLE
            return
        back, ahead = self.distances_before[0], self.distances_after[0]
        self._arc_first = (self.number - back + back // 2 + 1) & _MASK
        self._arc_length = (back - back // 2) + ahead // 2


def _room(distances: list[int], distance: int, half: int) -> bool:
    place = bisect_left(distances, distance)
    if place < len(distances) and distances[place] == distance:
        return False
    return place < half


def _insert(
    contacts: list[Contact], distances: list[int], contact: Contact, distance: int, half: int
) -> bool:
    if not _room(distances, distance, half):
        return False
    place = bisect_left(distances, distance)
    distances.insert(place, distance)
    contacts.insert(place, contact)
    del distances[half:], contacts[half:]
    return True
