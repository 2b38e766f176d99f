"""Which brokers have direct links to which others, as they tell each other for delegation.

A broker that delegates a copy for a set of brokers shares the set out among its links by whom each of those
brokers can reach directly (`delegations.py`). So brokers that delegate tell those they have a link to,
primary or soft, which links they have.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from braid.broker.delegations import Delegations
from braid.broker.parties import Link, SoftLink
from braid.broker.settings import DELTA_MAX
from braid.errors import RemoteProtocolError
from braid.protocol.destinations import (
    DESTINATIONS_MAX,
    digest_of,
    packed_destinations,
    unpacked_destinations,
)
from braid.protocol.messages import LinkState

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from braid.broker.events import Event, LinkBegun
    from braid.broker.parties import Party
    from braid.broker.soft_links import SoftLinks
    from braid.broker.turn import Turn
    from braid.routing import Surroundings

__all__ = ["LinkStates"]


class LinkStates:
    """Hears and tells which direct links there are.

    Args:
        turn: where messages go.
        links: the neighbours by their names.
        soft: the soft links.
        surroundings: who is in sight.
        addressable: all brokers that copies can be sent to.
        toward: the neighbour on the primary path to one of them.
    """

    def __init__(
        self,
        turn: Turn,
        links: Mapping[str, Link],
        soft: SoftLinks,
        surroundings: Surroundings,
        addressable: Callable[[], set[str]],
        toward: Callable[[str], str | None],
    ) -> None:
        self._turn = turn
        self._links = links
        self._soft = soft
        self._surroundings = surroundings
        self._addressable = addressable
        self.delegations = Delegations(turn.settings.broker_id, self._usable, toward)
        """How sets of brokers are shared out among links."""
        self.delegates = turn.settings.strategy == "SB"
        """Whether publications that enter here are delegated."""
        self._due = False
        """Whether others are to hear that our links have changed. Until then some may believe in links that
        are gone; they find other ways, which costs a hop or two."""

    def use(self, *, delegates: bool) -> None:
        """Delegate from now on, or no more."""
        self.delegates = delegates
        self._due = True

    # What others say.

    def hear(self, party: Party, message: LinkState) -> None:
        """A broker we have a link to says what has changed of those it can reach directly.

        Raises:
            RemoteProtocolError: what it says cannot be.
        """
        if isinstance(party, Link | SoftLink):
            added, gone = unpacked_destinations(message.added), unpacked_destinations(message.gone)
            digests = party.reaches_digests - gone | added
            if len(digests) > DESTINATIONS_MAX:
                raise RemoteProtocolError(f"{party.name!r} says that it has {len(digests):,} direct links")
            party.reaches_digests = digests
            party.reaches = self.delegations.named(digests)
            self.delegations.forget()

    def begin_anew(self, event: LinkBegun) -> None:
        """A session with a neighbour has begun: both say anew which links they have."""
        link = event.link
        link.reaches = frozenset()
        link.reaches_digests = link.told_links = frozenset()

    def name_again(self, event: Event) -> None:
        """Other brokers may be in sight, or reached, than before."""
        self.look_again(event)
        for party in self._parties():
            party.reaches = self.delegations.named(party.reaches_digests)

    def look_again(self, _: Event) -> None:
        """There may be a way to other brokers than before, also to some that are out of sight."""
        self.delegations.see(self._addressable)

    # What others are told.

    def changed(self, _: Event) -> None:
        """Tell it with the next review: several links change together, each in a turn of its own."""
        self._due = True

    def review(self) -> None:
        """Time has passed."""
        if self._due:
            self._due = False
            self._tell(self._parties())

    def tell_neighbour(self, event: LinkBegun) -> None:
        """Tell a neighbour whose session has just begun."""
        if self._surroundings.wish_of(event.link.name) > 1:
            self._tell([event.link])
        self._due = True

    def tell_soft(self, soft: SoftLink) -> None:
        """Tell the other end of a soft link that has just come up."""
        self._tell([soft])

    def _tell(self, parties: Iterable[Link | SoftLink]) -> None:
        """Tell those who may delegate to us whom we can reach directly.

        A broker that hears it may ask us to find the way to any other, so only those say it that see all.
        """
        if not self.delegates or self._turn.settings.delta < DELTA_MAX:
            return
        usable = {soft.name for soft in self._soft.usable(self._surroundings.map())}
        links = frozenset(map(digest_of, {*self._links, *usable}))
        for party in parties:
            news = links != party.told_links
            if news and (party.connection is not None or (isinstance(party, Link) and party.agreed)):
                added, gone = links - party.told_links, party.told_links - links
                self._turn.tell(party, LinkState(packed_destinations(added), packed_destinations(gone)))
                party.told_links = links

    def _parties(self) -> list[Link | SoftLink]:
        return [*self._links.values(), *self._soft.all()]

    def _usable(self) -> dict[str, frozenset[str]]:
        """The direct links that are up, with what each of those brokers can reach directly."""
        links = {name: link.reaches for name, link in self._links.items() if link.channel.connected}
        for soft in self._soft.usable(self._surroundings.map()):
            links[soft.name] = soft.reaches
        return links
