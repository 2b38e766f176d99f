"""How does every broker come to know the network around it?

Each broker tells every neighbour which brokers lie behind it as seen from there, as far as the neighbour
wants to see (its delta), with the link that leads to each. What a neighbour told is passed on one hop
further, so that a join or a leave is known within delta hops and no further (multipath paper, section 3).
Only changes are told.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from braid.errors import RemoteProtocolError
from braid.routing.overlay_map import OverlayMap

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = ["Place", "Surroundings", "SurroundingsChange"]

# Behind one neighbour; as many as a set of destinations may have. More is a mistake or an attack.
BROKERS_MAX = 16_384


class Place(NamedTuple):
    """A broker, the one before it on the way there, and where it can be dialled."""

    broker: str
    before: str
    address: str


class SurroundingsChange(NamedTuple):
    """What one neighbour has to hear."""

    added: list[Place]
    """New, or with another place or address; the nearer ones first."""
    removed: list[str]


class Surroundings:
    """What one broker knows of the network, by the neighbour it heard it from.

    A broker that several neighbours speak of is out of sight until only one of them does: nobody can tell
    which is right. Such a state passes, because the network is a tree.
    """

    def __init__(self, centre: str, address: str, delta: int) -> None:
        self.centre = centre
        self.address = address
        self.delta = delta
        """How far this broker wants to see."""
        self.version = 0
        """Rises with every change."""
        self._heard: dict[str, dict[str, Place]] = {}
        self._told: dict[str, dict[str, Place]] = {}
        self._wishes: dict[str, int] = {}
        self._stale: dict[str, set[str]] = {}
        self._map: OverlayMap | None = None
        self._addresses: dict[str, str] = {}

    # What neighbours say.

    def meet(self, neighbour: str, address: str, delta: int) -> None:
        """There is a link to a neighbour that wants to see so far; what it knows it says anew.

        One that has started again does not know yet what it knew before. Until it does, that stays in sight.
        """
        heard = self._heard.setdefault(neighbour, {})
        self._stale[neighbour] = set(heard) - {neighbour}
        heard[neighbour] = Place(neighbour, self.centre, address)
        self._told[neighbour] = {}
        self._wishes[neighbour] = delta
        self._changed()

    def complete(self, neighbour: str) -> None:
        """A neighbour has said everything: what it did not repeat is not there any more."""
        stale = self._stale.pop(neighbour, set())
        if stale:
            for broker in stale:
                self._heard[neighbour].pop(broker, None)
            self._changed()

    def lose(self, neighbour: str) -> None:
        """The link is no more, and everything behind it is out of sight."""
        if self._heard.pop(neighbour, None) is not None:
            for known in (self._told, self._wishes, self._stale):
                known.pop(neighbour, None)
            self._changed()

    def rehang(self, moving: str, old: str, new: str, address: str) -> None:
        """A broker, with what hangs on it, hangs on `new` instead of `old`, as an operation has decided.

        Neighbours say the same in a while. Until then what hangs there stays in sight.

        Args:
            moving: the broker; this one, or one that lies behind a neighbour.
            old: what it hung on.
            new: what it hangs on.
            address: where `new` can be dialled, or `moving` if this is `new`.
        """
        if self.centre == moving:
            heard = self._heard.pop(old, {})
            heard[new] = Place(new, self.centre, address)
            heard[old] = Place(old, new, heard[old].address if old in heard else "")
            self._heard.setdefault(new, {}).update(heard)
            for known in (self._told, self._wishes, self._stale):
                known.pop(old, None)
        else:
            before = next((each for each, heard in self._heard.items() if moving in heard), None)
            behind: dict[str, Place] = {}
            if before is not None:
                behind = _behind(self._heard[before], moving)
                for broker in behind:
                    del self._heard[before][broker]
                if before == moving:
                    self.lose(moving)
            if new == self.centre:
                behind[moving] = Place(moving, self.centre, address)
                self._heard[moving] = {**behind, **self._heard.get(moving, {})}
            else:
                toward = next((each for each, heard in self._heard.items() if new in heard), None)
                if toward is not None:
                    if moving in behind:
                        behind[moving] = behind[moving]._replace(before=new)
                    self._heard[toward].update(behind)
        self._changed()

    def hear(self, neighbour: str, added: Iterable[Place], removed: Iterable[str]) -> None:
        """A neighbour says what has changed behind it.

        Raises:
            RemoteProtocolError: no network is so large.
        """
        heard = self._heard.get(neighbour)
        if heard is None:
            return
        added = list(added)
        if len(heard.keys() | {place.broker for place in added}) > BROKERS_MAX:
            raise RemoteProtocolError(f"{neighbour!r} speaks of more than {BROKERS_MAX:,} brokers")
        stale = self._stale.get(neighbour, set())
        for broker in removed:
            if broker != neighbour:
                heard.pop(broker, None)
        for place in added:
            stale.discard(place.broker)
            if place.broker not in (neighbour, self.centre):
                heard[place.broker] = place
        self._changed()

    def _changed(self) -> None:
        self.version += 1
        self._map = None

    # What follows from it.

    def map(self) -> OverlayMap:
        """The master overlay map."""
        if self._map is None:
            parents: dict[str, str] = {}
            self._addresses = {}
            doubtful: set[str] = set()
            for neighbour in sorted(self._heard):
                own = self._heard[neighbour]
                for place in own.values():
                    if place.broker in self._heard:
                        continue  # a neighbour is where its link is
                    if place.before != neighbour and (place.before not in own or place.before in self._heard):
                        continue  # it can tell of those behind itself only
                    if place.broker in parents:
                        doubtful.add(place.broker)
                    parents[place.broker] = place.before
                    self._addresses[place.broker] = place.address
            for broker in doubtful:
                del parents[broker]
            for neighbour, heard in self._heard.items():
                parents[neighbour] = self.centre
                self._addresses[neighbour] = heard[neighbour].address
            self._map = OverlayMap(self.centre, parents).within(self.delta)
        return self._map

    def address_of(self, broker: str) -> str:
        """Where a broker of the map can be dialled; empty if nobody knows."""
        self.map()
        return self._addresses.get(broker, "")

    def wish_of(self, neighbour: str) -> int:
        """How far a neighbour wants to see."""
        return self._wishes.get(neighbour, 1)

    def news_for(self, neighbour: str) -> SurroundingsChange | None:
        """What a neighbour has to hear now; it counts as told. None if nothing has changed for it."""
        told = self._told.get(neighbour)
        if told is None:
            return None
        present: dict[str, Place] = {}
        # The neighbour itself sees us at distance 1, so what is at distance d here is at d + 1 there.
        farthest = self._wishes[neighbour] - 1
        if farthest > 0:
            overlay = self.map()
            for broker in overlay.brokers:
                if overlay.distance(broker) > farthest:
                    break
                before = overlay.parent(broker)
                # What is behind the neighbour itself it knows better.
                if broker != neighbour and (before in present or before == self.centre):
                    present[broker] = Place(broker, before, self._addresses[broker])
        added = [place for broker, place in present.items() if told.get(broker) != place]
        removed = sorted(told.keys() - present.keys())
        self._told[neighbour] = present
        return SurroundingsChange(added, removed) if added or removed else None


def _behind(heard: dict[str, Place], broker: str) -> dict[str, Place]:
    """A broker and those behind it, as one neighbour has told of them."""
    found = {broker: heard[broker]}
    for place in heard.values():  # the nearer ones come first, but not always
        chain = [place]
        while chain[-1].broker not in found and (before := heard.get(chain[-1].before)) is not None:
            if before in chain:
                break
            chain.append(before)
        if chain[-1].broker in found:
            found.update((each.broker, each) for each in chain)
    return found
