"""Publish/subscribe on a DHT, without brokers: DMM and DMM-AR as an application of a peer.

    turn = Turn()
    dht = Ring(turn, "10.0.0.1:7000")              # or Pastry(...)
    dmm = Dmm(turn, dht, DmmSettings())
    peer = Peer(turn, dht, dmm, bootstrap=[...])   # its vocabulary: peer_vocabulary(DMM_MESSAGES)

    dmm.subscribe("my key", Filter("price > 10"), now_us)
    dmm.publish(Publication({"price": 12}), now_us)
    dmm.unsubscribe("my key", now_us)
    effects = peer.complete(now_us)                # after calls from outside

What subscribers are to be given comes as an effect `Delivery(subscriptions, publication)`, once for each
publication, with the keys of all subscriptions of this peer that it satisfies. Order is not promised.

A *space* has some attributes as axes; its *regions* are halved as they fill up. Every term of a filter is an
*entry* in one space. An entry goes to the owner of the space's root region hop by hop, and every peer on the
way keeps in a table from whom it came: together these tables are a multicast tree. A publication looks for
the active region that it lies in, is matched there, and goes back along the tables. In DMM-AR the region of
an entry asks in turn for the publications of one of its attributes, in the space of that attribute alone.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from braid.errors import BraidError, ConfigurationError
from braid.language.publication import Publication, checked_attributes
from braid.language.values import Range
from braid.p2p.dmm.confirming import Confirming
from braid.p2p.dmm.finding import Finding
from braid.p2p.dmm.gathering import Gathering
from braid.p2p.dmm.holding import Holding
from braid.p2p.dmm.interests import CATCH_ALL, Interests
from braid.p2p.dmm.messages import (
    Active,
    Arrived,
    Beacon,
    Content,
    Enter,
    Find,
    Gateway,
    Gathered,
    Gone,
    Idle,
    Installed,
    InUse,
    Load,
    Merge,
    Multicast,
    Replica,
    Resend,
    Retire,
    Table,
    Taken,
    Update,
    Wanted,
)
from braid.p2p.dmm.multicasting import OWN, Multicasting
from braid.p2p.dmm.parting import Parting
from braid.p2p.dmm.regions import State
from braid.p2p.dmm.replicas import Replicas
from braid.p2p.dmm.settings import DmmSettings
from braid.p2p.dmm.site import Site
from braid.p2p.dmm.subscribing import Subscribing
from braid.protocol.effects import Delivery
from braid.protocol.publisher_names import EPOCH_FIRST, publisher_and_epoch, whole_name

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    import msgspec

    from braid.language.filters import Filter
    from braid.p2p.dht.identifiers import Address, Key
    from braid.p2p.dht.interface import Dht
    from braid.p2p.dmm.arrivals import Arrival
    from braid.p2p.turn import Turn

__all__ = ["Dmm"]

# How often tables on their way are looked at.
MOVE_US: Final = 1_000_000


class Dmm:
    """The application of one peer."""

    __slots__ = (
        "_beacon_us",
        "_confirm_us",
        "_epoch",
        "_move_us",
        "_own",
        "_parting",
        "_sequence",
        "_subscribing",
        "site",
    )

    def __init__(
        self,
        turn: Turn,
        dht: Dht,
        settings: DmmSettings | None = None,
        interests: Interests | None = None,
        *,
        epoch: str = EPOCH_FIRST,
    ) -> None:
        """
        Args:
            turn: the one that the DHT was made with.
            dht: the substrate.
            settings: how to match and deliver.
            interests: reads filters, made with the same settings and the network's schema; peers of one
                process may share one.
            epoch: which run of this peer it is, part of the ids of what it publishes: another one after each
                start.
        """
        settings = settings or DmmSettings()
        self.site = site = Site(turn, dht, settings, interests or Interests(settings))
        site.confirming = Confirming(site)
        site.multicasting = Multicasting(site)
        site.holding = Holding(site)
        site.finding = Finding(site)
        site.replicas = Replicas(site)
        site.gathering = Gathering(site)
        site.give = self._give
        self._epoch = epoch
        self._sequence = 0
        self._own: dict[str, Filter] = {}
        self._parting = Parting(site)
        self._subscribing = Subscribing(site)
        self._beacon_us: int | None = None
        """When bundles are to be confirmed."""
        self._confirm_us: int | None = None
        """When active regions are to be confirmed, and what is remembered of them is to be looked through."""
        self._move_us: int | None = None
        """When tables on their way are to be looked at."""

    # For the user of this peer.

    def subscribe(self, key: str, wanted: Filter, now_us: int, *, confirm: bool = False) -> None:
        """From now on, ask for what satisfies a filter. A subscription of this key is replaced.

        With `confirm`, `take_installed` names the key once every publication that satisfies the filter comes
        here, whoever publishes it from then on. It costs an answer for each message on the way.
        """
        before = self._own.get(key)
        if before is not None and before.text != wanted.text:
            self.unsubscribe(key, now_us)
        self._own[key] = wanted
        if confirm:
            self._subscribing.begin(key, wanted, now_us)
        else:
            self._subscribing.ask(key, wanted, None, now_us)
        self._wake(now_us)

    def take_installed(self) -> list[str]:
        """The keys of subscriptions that are installed since the last call, and were to be confirmed."""
        return self._subscribing.take_installed()

    def unsubscribe(self, key: str, now_us: int) -> None:
        """Ask for it no more; from now on there is no delivery for this key.

        Raises:
            ConfigurationError: there is no subscription of this key.
        """
        wanted = self._own.pop(key, None)
        if wanted is None:
            raise ConfigurationError(f"there is no subscription {key!r} at {self.site.address}")
        self._subscribing.forget(key)
        for number, place in enumerate(self.site.interests.of(wanted.text).places):
            name = f"{self.site.address}/{key}#{number}"
            self.site.multicasting.want(place.space, OWN, (), (name,), now_us)
        self.site.gathering.withdraw(key, wanted, now_us)

    @property
    def subscriptions(self) -> Mapping[str, Filter]:
        """The subscriptions of this peer, by their keys."""
        return self._own

    def publish(self, publication: Publication, now_us: int) -> Content:
        """Publish. Without a publisher it gets this peer's address and the next number.

        Returns:
            What travels: with the publisher's name and the number that are its id.

        Raises:
            PublicationError: it has a value that no publication can have.
        """
        site = self.site
        attributes = checked_attributes(publication.attributes)
        if publication.publisher:
            publisher, sequence = whole_name(publication.publisher, publication.epoch), publication.sequence
        else:
            self._sequence += 1
            publisher, sequence = whole_name(site.address, self._epoch), self._sequence
        content = Content(
            publisher,
            sequence,
            {
                name: (value.low, value.high) if type(value) is Range else value  # type: ignore[misc]
                for name, value in attributes.items()
            },
            publication.published_at_us or now_us,
            publication.body,
            publication.content_type,
        )
        arrival = site.arrive(content)
        spaces = site.interests.spaces_of(arrival.attributes)
        if site.settings.algorithm == "DMM-AR":
            spaces.append(site.interests.spaces.named(CATCH_ALL))
        site.finding.publish(arrival, spaces, now_us)
        self._wake(now_us)
        return content

    # For a gateway.

    def gather(self) -> None:
        """Be told what all peers together subscribe to."""
        self.site.gathering.begin()

    def take_wanted(self) -> list[str] | None:
        """That, as texts of filters; None if it has not changed since the last call."""
        return self.site.gathering.take_wanted()

    @property
    def is_asked(self) -> bool:
        """Whether somebody waits until the brokers know of it (`answer_wanted`)."""
        return self.site.gathering.is_asked

    def answer_wanted(self, now_us: int) -> None:
        """The brokers know."""
        self.site.gathering.answer_all(now_us)

    def statistics(self) -> dict[str, int]:
        """What this peer holds: entries on the way of others, and entries in regions."""
        holding, trees = self.site.holding, self.site.multicasting.trees
        return {
            "subscriptions": len(self._own),
            "tree_entries": sum(tree.size for tree in trees.values()),
            "leaf_entries": sum(region.size for region in holding.regions.values()),
            "trees": len(trees),
            "regions": len(holding.regions),
            "matched": holding.matched,
        }

    def indexed(self) -> set[str]:
        """The names of the entries that this peer matches publications with."""
        return {
            name
            for region in self.site.holding.regions.values()
            if region.state is State.LEAF
            for bundle in region.bundles.values()
            for name in bundle.entries
        }

    # Upcalls of the DHT.

    def deliver(self, key: Key, message: msgspec.Struct, sender: Address, now_us: int) -> None:
        """A routed message has come to its end."""
        if type(message) is Find and key:
            self._guarded(sender, message, now_us, routed=True)
        else:
            self.received(sender, message, now_us)

    def forward(
        self, key: Key, message: msgspec.Struct, sender: Address, following: Address, now_us: int
    ) -> msgspec.Struct | None:
        """A routed message passes through."""
        return self.site.finding.forward(message, now_us) if type(message) is Find else message

    def received(self, sender: Address, message: msgspec.Struct, now_us: int) -> None:
        """A message has come to this peer. One that makes no sense is left out, with a note."""
        if type(message) is Find:
            self._guarded(sender, message, now_us, routed=False)
            return
        handler = _HANDLERS.get(type(message))
        if handler is None or (self._parting.has_parted and type(message) in _FOR_MEMBERS):
            return
        try:
            if type(message) in _WITH_REGIONS:
                self._require_regions(message)
            handler(self.site, sender, message, now_us)
        except BraidError as error:
            self._leave_out(sender, error)
        self._wake(now_us)

    def _guarded(self, sender: Address, find: Find, now_us: int, *, routed: bool) -> None:
        try:
            self._require_regions(find)
            self.site.finding.on_find(sender, find, now_us, routed=routed)
        except BraidError as error:
            self._leave_out(sender, error)
        self._wake(now_us)

    def _require_regions(self, message: msgspec.Struct) -> None:
        """Raise a `RemoteProtocolError` if a message names a region that there cannot be."""
        kind = type(message)
        if kind in _NAMES_ONE:
            space = self.site.interests.spaces.named(message.space)  # type: ignore[attr-defined]
            space.require_code(getattr(message, _NAMES_ONE[kind]))
        elif kind in (Active, Gone, Wanted):
            for name, code in message.names:  # type: ignore[attr-defined]
                self.site.interests.spaces.named(name).require_code(code)
        elif kind is Beacon:
            for name, code, _ in message.digests:  # type: ignore[attr-defined]
                if code:
                    self.site.interests.spaces.named(name).require_code(code)

    def _leave_out(self, sender: Address, error: BraidError) -> None:
        self.site.turn.note("warning", "message left out", sender=sender, error=str(error))

    def undelivered(self, address: Address, message: msgspec.Struct, now_us: int) -> None:
        """A peer did not get what was sent directly to it, and will not."""
        if type(message) is Multicast:
            self.site.holding.match_again(message, now_us)
            self.site.multicasting.multicast_again(message, now_us)
        elif type(message) is Find:
            self.site.finding.forget_all_at(address)
            self.site.finding.find_again(message, now_us)

    def joined(self, now_us: int) -> None:
        """This peer has its place: what was asked for before goes out now."""
        self.site.holding.moving.joined(now_us)
        self.site.gathering.joined(now_us)
        self.site.multicasting.tell_again(now_us)
        self._wake(now_us)

    def ownership_changed(self, now_us: int) -> None:
        """Other keys than before belong to this peer."""
        site = self.site
        if self._parting.has_parted:
            return
        site.holding.moving.ownership_changed(now_us)
        site.multicasting.tell_again(now_us)
        site.finding.break_promises(now_us)
        site.replicas.changed(now_us)
        self._wake(now_us)

    def peer_failed(self, address: Address, now_us: int, *, polite: bool) -> None:
        """A peer has gone; a polite one is still there for a while, and takes back what it has asked for
        itself."""
        site = self.site
        if not polite:
            for region in list(site.holding.regions.values()):
                site.holding.drop(region, address, now_us)
        site.holding.moving.peer_failed(address, now_us)
        site.finding.forget_all_at(address)
        site.gathering.forget(address)
        site.replicas.peer_failed(address, now_us, polite=polite)
        if not self._parting.has_parted:
            site.multicasting.peer_failed(address, now_us, polite=polite)
        self._wake(now_us)

    def leaving(self, now_us: int) -> bool:
        """This peer is to leave: what it has goes to those who will own it. Whether that is done."""
        for key in list(self._own):
            self.unsubscribe(key, now_us)
        done = self._parting.hand_over(now_us)
        self._wake(now_us)
        return done

    def parting(self, now_us: int) -> bool:
        """This peer has said goodbye; those who asked it ask others. Whether nobody needs it any more."""
        done = self._parting.part(now_us)
        self._wake(now_us)
        return done

    # Time.

    def tick(self, now_us: int) -> None:
        """Time has passed."""
        site = self.site
        if self._move_us is not None and now_us >= self._move_us:
            self._move_us = None
            site.holding.moving.tick(now_us)
        if self._confirm_us is not None and now_us >= self._confirm_us:
            self._confirm_us = None
            site.holding.confirm(now_us)
            site.multicasting.forget_links(now_us)
            site.finding.forget_old(now_us)
        if self._beacon_us is not None and now_us >= self._beacon_us:
            self._beacon_us = None
            if not self._parting.has_parted:
                site.gathering.summarise(now_us)
                site.multicasting.beacon(now_us)
                site.holding.beacon(now_us)
        if self._parting.has_parted:
            # Its neighbours need nothing of it any more.
            site.replicas.due_us = site.gathering.due_us = site.multicasting.due_us = None
        site.replicas.tick(now_us)
        site.finding.tick(now_us)
        site.multicasting.tick(now_us)
        site.gathering.tick(now_us)
        self._subscribing.tick(now_us)
        self._wake(now_us)

    def next_deadline_us(self) -> int | None:
        """When something is due."""
        due_us = self._beacon_us
        replicas, finding = self.site.replicas, self.site.finding
        for other_us in (
            self._confirm_us, self._move_us, replicas.due_us, finding.due_us, self.site.multicasting.due_us,
            self._parting.due_us, self._subscribing.due_us, self.site.gathering.due_us,
        ):  # fmt: skip
            if other_us is not None and (due_us is None or other_us < due_us):
                due_us = other_us
        return due_us

    def _take_answers(self, now_us: int) -> None:
        """Requests of this peer itself have been answered."""
        answered = self.site.confirming.settled
        while answered:
            request = answered.pop()
            if request.key:
                self._subscribing.settled(request.number, request.key, not request.failed, now_us)
            else:
                self._parting.settled(request.number, not request.failed, now_us)

    def _wake(self, now_us: int) -> None:
        """Set the alarms that are needed and not set."""
        site, settings = self.site, self.site.settings
        if site.confirming.settled:
            self._take_answers(now_us)
        if self._beacon_us is None and (site.multicasting.trees or site.holding.regions):
            self._beacon_us = now_us + settings.beacon_us
        if self._confirm_us is None and (site.holding.regions or site.finding.remembers):
            self._confirm_us = now_us + settings.cache_beacon_us
        if self._move_us is None and site.holding.moving.busy:
            self._move_us = now_us + MOVE_US

    def _give(self, arrival: Arrival, now_us: int) -> None:
        """Deliver a publication to all subscriptions of this peer that it satisfies, once."""
        content = arrival.content
        if not self.site.delivered.is_new(arrival.mark(None), now_us):
            return
        of, attributes = self.site.interests.of, arrival.attributes
        keys = tuple(
            key
            for key, wanted in self._own.items()
            if of(wanted.text).is_satisfied(attributes, ranged=arrival.ranged)
        )
        if keys:
            publisher, epoch = publisher_and_epoch(content.publisher)
            publication = Publication(
                arrival.attributes,
                content.body,
                content.content_type,
                publisher,
                content.sequence,
                content.published_at_us,
                epoch,
            )
            self.site.turn.emit(Delivery(keys, publication))


def _on_resend(site: Site, sender: Address, message: Resend, now_us: int) -> None:
    """A peer that this one told something has died or is leaving."""
    if message.address == site.address:
        return
    polite = message.address == sender
    site.multicasting.peer_failed(message.address, now_us, polite=polite)
    site.finding.forget_all_at(message.address)
    if polite:
        request = site.confirming.begin(sender, message.request)
        site.multicasting.are_installed(message.spaces, request, now_us)
        site.confirming.end(request, now_us)
    else:
        # What is told again must not go to the dead.
        site.dht.suspect(message.address, now_us)
        site.holding.report_to(message.address, now_us)


_NAMES_ONE: Final = {
    Arrived: "code",
    Enter: "code",
    Find: "target",
    Load: "code",
    Merge: "code",
    Retire: "code",
    Table: "code",
    Taken: "code",
    Update: "code",
}
"""Messages that name a region, and the field that has its code."""

_WITH_REGIONS: Final = frozenset((*_NAMES_ONE, Active, Gone, Wanted, Beacon))

_HANDLERS: dict[type, Callable[[Site, Address, Any, int], None]] = {
    Update: lambda site, *rest: site.multicasting.on_update(*rest),
    Beacon: lambda site, *rest: site.multicasting.on_beacon(*rest),
    Wanted: lambda site, *rest: site.multicasting.on_wanted(*rest),
    Active: lambda site, *rest: site.multicasting.on_active(*rest),
    Gone: lambda site, *rest: site.multicasting.on_gone(*rest),
    Multicast: lambda site, *rest: site.multicasting.on_multicast(*rest),
    Enter: lambda site, *rest: site.holding.on_enter(*rest),
    Table: lambda site, *rest: site.holding.moving.on_table(*rest),
    Taken: lambda site, *rest: site.holding.moving.on_taken(*rest),
    Load: lambda site, *rest: site.holding.moving.on_load(*rest),
    Merge: lambda site, *rest: site.holding.moving.on_merge(*rest),
    Retire: lambda site, *rest: site.holding.moving.on_retire(*rest),
    Idle: lambda site, *rest: site.finding.on_idle(*rest),
    InUse: lambda site, *rest: site.finding.on_in_use(*rest),
    Arrived: lambda site, *rest: site.finding.on_arrived(*rest),
    Replica: lambda site, *rest: site.replicas.on_replica(*rest),
    Resend: _on_resend,
    Installed: lambda site, *rest: site.confirming.on_installed(*rest),
    Gateway: lambda site, *rest: site.gathering.on_gateway(*rest),
    Gathered: lambda site, *rest: site.gathering.on_gathered(*rest),
}

_FOR_MEMBERS: Final = frozenset(
    (Active, Beacon, Enter, Load, Merge, Replica, Resend, Retire, Table, Update, Wanted)
)
"""What a peer that has said goodbye does not take in any more; who says it hears the goodbye in turn."""
