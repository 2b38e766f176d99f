"""Whom to ask if a neighbour dies: the light-weight replication of section V-B.

A peer tells its nearest neighbours on the circle the addresses of its children, those who have told it what
it knows, and nothing else: they can tell it again. When a peer finds out that a neighbour is dead, because
the DHT says so or because a message comes to it that would have gone to the neighbour, it asks those
children to resend to whoever is responsible now.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from braid.p2p.dht.identifiers import closeness, contact_of, number_of
from braid.p2p.dmm.messages import Replica, Resend

if TYPE_CHECKING:
    from braid.p2p.dht.identifiers import Address, Key
    from braid.p2p.dmm.site import Site

__all__ = ["Replicas"]

# Changes are told together, this long after the first of them.
DELAY_US: Final = 2_000_000
# Of so many peers this one is a replica at most: a handful, but while neighbours come and go.
PRIMARIES_MAX: Final = 64
# So many addresses are kept for each.
ADDRESSES_MAX: Final = 10_000


class Replicas:
    """What this peer keeps for its neighbours, and they for it."""

    __slots__ = ("_failed", "_of", "_site", "_told", "due_us")

    def __init__(self, site: Site) -> None:
        self._site = site
        self._of: dict[Address, dict[Address, None]] = {}
        """By primary, its children."""
        self._failed: dict[Address, int] = {}
        """Primaries that have died, and until when their entries are expected to come back."""
        self._told: tuple[frozenset[Address], frozenset[Address]] = (frozenset(), frozenset())
        """Which children were told to which neighbours."""
        self.due_us: int | None = None
        """When neighbours are to be told."""

    def changed(self, now_us: int) -> None:
        """This peer has other children or other neighbours."""
        if self.due_us is None and self._site.settings.replicas:
            self.due_us = now_us + DELAY_US

    def tick(self, now_us: int) -> None:
        """Tell the neighbours what has changed."""
        if self.due_us is None or now_us < self.due_us:
            return
        self.due_us = None
        site = self._site
        children = frozenset(site.holding.children | site.multicasting.children) - {site.address}
        around = frozenset(each.address for each in site.dht.neighbours(site.settings.replicas))
        known, before = self._told
        self._told = (children, around)
        word = Replica(sorted(children)[:ADDRESSES_MAX])
        for address in sorted(around if children != known else around - before):
            site.dht.send(address, word, now_us)

    def on_replica(self, sender: Address, message: Replica, now_us: int) -> None:
        """A neighbour tells its children."""
        self._of.pop(sender, None)
        if len(self._of) >= PRIMARIES_MAX:
            del self._of[next(iter(self._of))]
        self._of[sender] = dict.fromkeys(message.addresses[:ADDRESSES_MAX])
        self._failed.pop(sender, None)

    def peer_failed(self, address: Address, now_us: int, *, polite: bool) -> None:
        """A peer has gone: if this one is its replica, what it knew is asked for."""
        children = self._of.pop(address, None)
        if children is None or polite:
            return
        self._failed[address] = now_us + self._site.settings.expiry_us
        if len(self._failed) > PRIMARIES_MAX:
            del self._failed[next(iter(self._failed))]
        self._site.turn.note("info", "recovering", failed=address, children=len(children))
        for child in children:
            if child != address:
                self._site.say(child, Resend(address), now_us)

    def passed_by(self, child: Address, key: Key, now_us: int) -> None:
        """A peer has sent here what belongs to a neighbour that it dealt with before: to its knowledge that
        is dead. So it is asked at once, even while nobody publishes."""
        owner = self._site.dht.owner(key)
        if owner is not None and child in self._of.get(owner.address, ()):
            self._site.dht.suspect(owner.address, now_us)

    def unexpected(self, key: Key, now_us: int) -> bool:
        """A message has come here for a region that is not here. Whether it was another peer's, which is
        dead.

        Any message will do: if a neighbour that is closer to the key were alive, it would have got it.
        """
        for primary in list(self._of):
            if self._is_closer(primary, key) and self._site.dht.responsible(key):
                self.peer_failed(primary, now_us, polite=False)
        return self.may_have_lost(key, now_us)

    def may_have_lost(self, key: Key, now_us: int) -> bool:
        """Whether a key belonged to a peer that died not long ago."""
        return any(
            until_us > now_us and self._is_closer(primary, key) for primary, until_us in self._failed.items()
        )

    def _is_closer(self, primary: Address, key: Key) -> bool:
        number = number_of(key)
        own = closeness(number_of(self._site.dht.own.id), number)
        return closeness(number_of(contact_of(primary).id), number) < own
