"""How does a broker know the network around it, and use shortcuts through it?

Besides its primary links a broker can have *soft links* (multipath paper, section 6): connections to brokers
further away, over which only publications go, both ways. Each broker decides alone which it opens, as long as
it and the other end have room (`soft_links.py`). Nothing depends on them: a soft link that goes takes nothing
with it, because what it had not delivered goes the primary way.

The desk keeps the overlay maps current, lets a planner choose soft links, and tells forwarding what to use.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any

from braid.adaptation import DemandPlanner, LoadRow, NeighbourhoodLoad, ProfiledPlanner, Uplink
from braid.broker.delegations import Delegations
from braid.broker.parties import Link, SoftLink
from braid.broker.settings import DELTA_MAX, checked_broker_id, checked_strategy
from braid.broker.soft_links import SoftLinks
from braid.errors import ConfigurationError, RemoteProtocolError, RequestRefusedError
from braid.protocol.codec import Frame
from braid.protocol.destinations import (
    DESTINATIONS_MAX,
    digest_of,
    packed_destinations,
    unpacked_destinations,
)
from braid.protocol.effects import Close, Dial, Send
from braid.protocol.fitting import portions
from braid.protocol.limits import carried_bytes
from braid.protocol.messages import Goodbye, LinkState, Loads, Nearby, Ping
from braid.routing import HERE, PATHS, Anchor, Place, Surroundings, WorkingMap

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from braid.adaptation import LinkPlanner
    from braid.broker.on_link import LinkDesk
    from braid.broker.parties import Party
    from braid.broker.postroom import Postroom
    from braid.broker.settings import BrokerSettings
    from braid.protocol.messages import Hello, Welcome
    from braid.routing import MultipathForwarding, OverlayMap

__all__ = ["MeshDesk"]

# What a place on the map and a load take in a message beside their names.
PLACE_BYTES = 16
LOAD_BYTES = 40
# An address is a host and a port.
ADDRESS_LENGTH_MAX = 300

# A soft link that is no longer wanted may take this many reviews to deliver what it has.
RETIRING_REVIEWS_MAX = 2

# How many brokers may be asked for a soft link between two reviews, for each one that is planned at a time.
ASKED_PER_CANDIDATE = 4

# One of each for all: every empty set that is made is another one.
_NO_BROKERS: frozenset[str] = frozenset()
_NO_DIGESTS: frozenset[int] = frozenset()


class MeshDesk:
    """Keeps maps and soft links."""

    def __init__(self, settings: BrokerSettings, postroom: Postroom, links: LinkDesk) -> None:
        self.strategy = settings.strategy
        self.surroundings = Surroundings(settings.broker_id, settings.address, settings.delta)
        self.uplink = Uplink(settings.uplink_messages_per_s, settings.uplink_threshold)
        self.soft = SoftLinks(settings.broker_id, settings.soft_links.fanout, links.links.keys())
        self.outgoing = self.soft.outgoing
        """The soft links of this broker that are up."""
        self.incoming = self.soft.incoming
        """Those that other brokers have to this one."""
        self._retiring = self.soft.retiring
        self._dialling = self.soft.dialling
        self.when_let_go: Callable[[int], None] = lambda connection: None
        """Called with the connection of a soft link that is closed at once."""
        self.when_lost: Callable[[SoftLink], None] = lambda soft: None
        """Called with a soft link whose publications must go another way."""
        self.when_seen: Callable[[], None] = lambda: None
        """Called when the map has changed."""
        self.when_reviewed: Callable[[], None] = lambda: None
        """Called every now and then."""
        self._settings = settings
        self._postroom = postroom
        self._links = links
        self._load = NeighbourhoodLoad(settings.broker_id)
        self.delegations = Delegations(settings.broker_id, self._usable, self._toward)
        links.when_reach = self._reach_changed
        self._planner = self._new_planner()
        self._candidates = self._wanted = _NO_BROKERS
        self._asks_left = 0
        """How many brokers may be asked in the place of others before the next review."""
        self._map_version = -1
        self._saving = False
        self.working: WorkingMap | None = None
        self._forwarding: MultipathForwarding | None = None
        self.review_at_us: int | None = None
        self._link_state_due = False
        """Whether others are to hear that our links have changed. Until then some may believe in links that
        are gone; they find other ways, which costs a hop or two."""

    @property
    def sees_far(self) -> bool:
        """Whether this broker knows more than its neighbours."""
        return self._settings.delta > 1

    def bind(self, forwarding: MultipathForwarding) -> None:
        """The forwarding that is to use the maps."""
        self._forwarding = forwarding
        self.rebuild()

    def sent(self, broker: str, publications: int) -> None:
        """So many publications were meant for a link, a candidate or a destination."""
        self._planner.sent(broker, publications)

    # Strategies.

    def _new_planner(self) -> LinkPlanner:
        kind = DemandPlanner if self.strategy == "SB" else ProfiledPlanner
        return kind(self._settings.soft_links)

    def use_strategy(self, strategy: str) -> None:
        """Forward by another strategy from now on."""
        try:
            checked = checked_strategy(strategy, self._settings.delta)
        except ConfigurationError as error:
            raise RequestRefusedError(str(error)) from None
        if checked == self.strategy:
            return
        like_before = {checked, self.strategy} <= {"S1", "S2", "SH"}
        self.strategy = checked
        if not like_before:
            self._planner = self._new_planner()
            self._candidates = frozenset()
            self._link_state_changed()
        self.review_at_us = None
        if checked == "S0":
            self._follow(frozenset())
        self.rebuild()
        self._postroom.note("info", "the strategy has changed", strategy=checked)

    @property
    def delegates(self) -> bool:
        """Whether publications that enter here are delegated."""
        return self.strategy == "SB"

    def rebuild(self) -> None:
        """Make the working map anew, after any change of links."""
        if self._forwarding is None:
            return
        overlay = self.surroundings.map()
        self._saving = self.uplink.saving
        # What SB cannot put into a set goes by S2.
        stand_ins = {"SH": "S1" if self._saving else "S2", "SB": "S2"}
        paths = PATHS.get(stand_ins.get(self.strategy, self.strategy))
        # While a neighbour has not said who is behind it, the tree is all there is.
        known = set(overlay.neighbours) == self._links.links.keys()
        if paths is None or not known:
            self.working = None
        else:
            real = {soft.name for soft in self.soft.usable(overlay)}
            # A broker that was tried may have become a neighbour since.
            candidates = self._candidates - real - set(overlay.neighbours)
            self.working = WorkingMap(overlay, {*overlay.neighbours, *real, *candidates}, candidates)
        self._forwarding.use(self.working, paths)
        self.delegations.forget()

    # The map.

    def met(self, link: Link, delta: int) -> None:
        """A session with a neighbour has begun: both say anew what lies behind them."""
        self.surroundings.meet(link.name, link.address, delta)
        self._load.forget(link.name)
        self._make_room()
        link.reaches = _NO_BROKERS
        link.reaches_digests = link.told_links = _NO_DIGESTS
        self._seen()
        if self.surroundings.wish_of(link.name) > 1:
            self._tell_link_state([link])
        self._link_state_changed()

    def complete(self, link: Link) -> None:
        """A neighbour has said everything that it knows."""
        version = self.surroundings.version
        self.surroundings.complete(link.name)
        if self.surroundings.version != version:
            self._seen()

    def gone(self, link: Link) -> None:
        """A neighbour is none any more."""
        self.surroundings.lose(link.name)
        self._seen()
        self._link_state_changed()

    def hear_nearby(self, link: Link, message: Nearby) -> None:
        """A neighbour says who is behind it.

        Raises:
            RemoteProtocolError: what it says cannot be.
        """
        places = [_checked_place(*place) for place in message.added]
        self.surroundings.hear(link.name, places, message.removed)
        self._seen()

    def _seen(self) -> None:
        """The map has changed: neighbours hear of it, and paths are computed anew."""
        overlay = self.surroundings.map()
        self.delegations.see(self._addressable)
        told_by: list[Link | SoftLink] = [*self._links.links.values(), *self.soft.all()]
        for party in told_by:
            party.reaches = self.delegations.named(party.reaches_digests)
        self._load.keep_only(overlay)
        for link in self._links.links.values():
            if link.agreed:
                self.tell_nearby(link)
        lost = [broker for broker in self.outgoing if broker not in overlay or broker in overlay.neighbours]
        for broker in lost:
            self._retire(broker)
        for soft in self.incoming.values():
            if soft.name not in overlay and soft.connection is not None:
                # It, or we, have left the network: what it asks us to pass on we cannot.
                self._postroom.effect(Close(soft.connection, "out of sight"))
        self.rebuild()
        self.when_seen()

    def _reach_changed(self) -> None:
        """There may be a way to other brokers than before, also to some that are out of sight."""
        self.delegations.see(self._addressable)
        self.when_seen()

    def _addressable(self) -> set[str]:
        return {*self.surroundings.map().brokers, *self._links.reach(None)} - {self._settings.broker_id}

    def _toward(self, broker: str) -> str | None:
        """The neighbour on the primary path to a broker."""
        overlay = self.surroundings.map()
        return overlay.toward(broker) if broker in overlay else self._links.toward(broker)

    def tell_nearby(self, link: Link) -> None:
        """Tell a neighbour what has changed behind us, as seen from there."""
        news = self.surroundings.news_for(link.name)
        if news is not None:
            # A message too large for the neighbour would be sent again for ever. The nearer ones go first.
            removed = news.removed
            costs = [sum(map(len, place)) + PLACE_BYTES for place in news.added]
            for added in portions(news.added, costs, _told_bytes(link)) or [[]]:
                self._postroom.tell(link, Nearby(list[tuple[str, str, str]](added), removed))
                removed = []

    def anchor_for(self, link: str, anchor: Anchor | None) -> Anchor:
        """How a neighbour is to know what has an anchor, or (None) is for somebody here.

        Only those who see everything put destinations into sets, so only they are told what is exact: it
        costs some covering.
        """
        wish = self.surroundings.wish_of(link)
        everything = wish >= DELTA_MAX
        if anchor is None:
            return Anchor("", everything)
        if wish < 2:
            return HERE
        moved = self.surroundings.map().anchor_for_neighbour(anchor.broker, wish)
        if moved == self._settings.broker_id:
            return HERE
        return Anchor(moved, everything and anchor.exact and moved == anchor.broker)

    def direction_of(self, party: Party | None) -> str | None:
        """The neighbour in whose direction somebody lies; None for clients and strangers."""
        if isinstance(party, Link):
            return party.name
        if isinstance(party, SoftLink):
            overlay = self.surroundings.map()
            if party.name in overlay:
                # While a neighbour begins anew, those behind it are out of sight, but where they were.
                party.direction = overlay.toward(party.name)
            return party.direction
        return None

    # Reviews.

    def review(self, now_us: int) -> None:
        """Look at the output; when it is time, choose soft links anew."""
        self.when_reviewed()
        if self._link_state_due:
            self._link_state_due = False
            self._tell_link_state()
        self.uplink.measure(self._postroom.counters.forwarded, now_us)
        if self.strategy == "SH" and self.uplink.saving != self._saving:
            self.rebuild()
        self._close_idle()
        if self.strategy == "S0" and not self.outgoing and not self._retiring:
            self.review_at_us = None
            return
        if self.review_at_us is None:
            self.review_at_us = now_us + self._settings.soft_links.review_us
        if now_us < self.review_at_us:
            return
        self.review_at_us = now_us + self._settings.soft_links.review_us
        self._review_retiring()
        if self.strategy == "S0":
            return
        overlay = self.surroundings.map()
        self._load.measured(round(self.uplink.rate), round(self._settings.uplink_messages_per_s))
        others = frozenset(name for name in self.incoming if name in overlay and name not in self.outgoing)
        plan = self._planner.review(overlay, self._load, others)
        self._candidates = plan.candidates
        self._asks_left = (ASKED_PER_CANDIDATE - 1) * self._settings.soft_links.candidates_max
        self._follow(plan.soft)
        self.rebuild()
        if not self.delegates:
            self._tell_loads(overlay)

    def _follow(self, wanted: frozenset[str]) -> None:
        self._wanted = wanted
        for broker in sorted(self.outgoing.keys() - wanted):
            self._retire(broker)
        self._ask()

    def _ask(self) -> None:
        """Ask those for a soft link that are wanted and have none, as far as there is room."""
        waiting = deque(sorted(self._wanted))
        while waiting:
            broker = waiting.popleft()
            linked = broker in self.outgoing or broker in self.incoming or broker in self._dialling.values()
            if linked or self._reinstated(broker):
                continue
            if not self.soft.free:
                return
            address = self.surroundings.address_of(broker)
            if address and address not in self._links.dialling.neighbours:
                self._dialling[address] = broker
                self._postroom.effect(
                    Dial(address, soft=True, frame_bytes_max=self._settings.frame_bytes_max)
                )
            elif (another := self._another_for(broker)) is not None:
                waiting.append(another)

    def _another_for(self, broker: str) -> str | None:
        """There will be no soft link to a broker: who has its place, if anybody is left to be asked."""
        self._planner.failed(broker)
        self._wanted -= {broker}
        if self._asks_left <= 0 or (another := self._planner.instead()) is None:
            return None
        self._asks_left -= 1
        self._wanted |= {another}
        return another

    def _tell_loads(self, overlay: OverlayMap) -> None:
        for link in self._links.links.values():
            if not link.channel.connected:
                continue
            wish = self.surroundings.wish_of(link.name)
            rows = self._load.news_for(link.name, overlay, wish) if wish > 1 else []
            costs = [len(row.broker) + LOAD_BYTES for row in rows]
            for some in portions(rows, costs, _told_bytes(link)):
                self._postroom.tell(link, Loads(list[tuple[str, int, int, int]](some)))
            self._postroom.aside(link, Ping(self._postroom.now_us))

    def hear_loads(self, link: Link, message: Loads) -> None:
        """A neighbour says how busy it and those behind it are."""
        overlay = self.surroundings.map()
        rows = [LoadRow(*row) for row in message.rows]
        known = [row for row in rows if row.broker in overlay and row.broker != overlay.centre]
        behind = [row for row in known if overlay.toward(row.broker) == link.name]
        self._load.hear(link.name, link.round_trip_us, behind)

    def answered(self, party: Party, sent_at_us: int) -> None:
        """A `Pong` says when its `Ping` was sent."""
        if isinstance(party, Link) and 0 < sent_at_us <= self._postroom.now_us:
            party.round_trip_us = max(1, self._postroom.now_us - sent_at_us)

    # Soft links: ours.

    def dial_failed(self, address: str) -> None:
        """The soft link that this address was dialled for is not to be: there is no way, or no room there."""
        broker = self._dialling.pop(address, None)
        if broker is not None and self._another_for(broker) is not None:
            self._ask()

    def awaits(self, address: str | None) -> bool:
        """Whether a soft link that this address was dialled for is still to be."""
        return address in self._dialling

    def welcomed(self, address: str, welcome: Welcome) -> SoftLink | None:
        """A broker welcomes a soft link; None if it is not wanted any more."""
        broker = self._dialling.pop(address, None)
        if broker is None or welcome.name != broker:
            if broker is not None and self._another_for(broker) is not None:
                self._ask()
            return None
        if broker not in self._wanted or broker in self.outgoing:
            return None
        soft = SoftLink(broker, self._settings.link, self._postroom.changed, outgoing=True)
        soft.channel.restart(welcome.credit)
        self.outgoing[broker] = soft
        self._has_come(soft)
        return soft

    def _has_come(self, soft: SoftLink) -> None:
        self.direction_of(soft)
        self.rebuild()
        self._link_state_changed()
        self._postroom.note("debug", "soft link up", broker=soft.name, opened_here=soft.outgoing)

    def _retire(self, broker: str) -> None:
        """Use a soft link no more, and close it once everything on it has arrived."""
        soft = self.outgoing.pop(broker, None)
        if soft is None:
            return
        self._retiring[soft] = RETIRING_REVIEWS_MAX
        self.rebuild()
        self._link_state_changed()

    def _reinstated(self, broker: str) -> bool:
        """Whether a soft link that was to be closed, and is wanted after all, is still there."""
        for soft in self._retiring:
            if soft.name == broker and soft.connection is not None:
                del self._retiring[soft]
                self.outgoing[broker] = soft
                self._has_come(soft)
                return True
        return False

    def _close_idle(self) -> None:
        """Close soft links that are not needed any more and have delivered everything."""
        for soft, reviews in list(self._retiring.items()):
            if soft.channel.idle or not reviews:
                self._close(soft, "not needed any more")

    def _review_retiring(self) -> None:
        for soft, reviews in self._retiring.items():
            self._retiring[soft] = max(0, reviews - 1)

    def _close(self, soft: SoftLink, reason: str) -> None:
        """Have a soft link no more: its place is free at once, and what it has goes another way."""
        if soft.connection is not None:
            # What has come, its other end need not send another way.
            told = soft.channel.acknowledgement()
            frames = [Frame(0, told)] if told is not None else []
            self._postroom.effect(Send(soft.connection, [*frames, Frame(0, Goodbye(reason))]))
            self._postroom.effect(Close(soft.connection, reason))
            self.when_let_go(soft.connection)
            self.disconnected(soft)

    def _make_room(self) -> None:
        """Primary links take the places of soft ones: first of those under way, then of the least useful."""
        while self.soft.too_many and self._dialling:
            _, broker = self._dialling.popitem()
            self._wanted -= {broker}
            self._planner.failed(broker)
        overlay = self.surroundings.map()
        while self.soft.too_many and (present := {soft.name: soft for soft in self.soft.all()}):
            retiring = next(iter(self._retiring), None)
            name = self._planner.least_useful(present, overlay, self._load)
            self._close(retiring or present[name], "a primary link takes its place")

    # Soft links: those of others.

    def accepted(self, hello: Hello) -> SoftLink:
        """Another broker opens a soft link to us.

        Raises:
            RequestRefusedError: we could not tell from where its publications come, or there is no room.
        """
        if not self._links.ready or hello.name not in self.surroundings.map():
            raise RequestRefusedError(f"{hello.name!r} is not in sight from here", "sight")
        before = self.soft.require_room_for(hello.name)
        if before is not None:
            # It would not open another one if it still had that.
            self._close(before, "another connection has taken over")
        soft = SoftLink(hello.name, self._settings.link, self._postroom.changed, outgoing=False)
        soft.channel.restart(hello.credit)
        self.incoming[hello.name] = soft
        self._has_come(soft)
        return soft

    def entered(self, soft: SoftLink) -> None:
        """The greeting of a soft link is on its way."""
        self._tell_link_state([soft])

    def disconnected(self, soft: SoftLink) -> None:
        """A soft link has gone."""
        soft.connection = None
        soft.channel.disconnect()
        soft.line.clear()
        self._postroom.forget(soft)
        mine = self.outgoing if soft.outgoing else self.incoming
        if self._retiring.pop(soft, None) is None and mine.get(soft.name) is soft:
            del mine[soft.name]
            self._planner.failed(soft.name)
            self._wanted -= {soft.name}
            self.rebuild()
            self._link_state_changed()
        self.when_lost(soft)
        self._ask()

    # Delegation.

    def hear_link_state(self, party: Party, message: LinkState) -> None:
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

    def _link_state_changed(self) -> None:
        """Tell it with the next review: several links change together, each in a turn of its own."""
        self._link_state_due = True

    def _tell_link_state(self, parties: Iterable[Link | SoftLink] | None = None) -> None:
        """Tell those who may delegate to us whom we can reach directly.

        Whoever hears it may ask us to find the way to anybody, so only those who see everybody say it.
        """
        if not self.delegates or self._settings.delta < DELTA_MAX:
            return
        usable = {soft.name for soft in self.soft.usable(self.surroundings.map())}
        links = frozenset(map(digest_of, {*self._links.links, *usable}))
        if parties is None:
            parties = [*self._links.links.values(), *self.soft.all()]
        for party in parties:
            news = links != party.told_links
            if news and (party.connection is not None or (isinstance(party, Link) and party.agreed)):
                added, gone = links - party.told_links, party.told_links - links
                self._postroom.tell(party, LinkState(packed_destinations(added), packed_destinations(gone)))
                party.told_links = links

    def _usable(self) -> dict[str, frozenset[str]]:
        """The direct links that are up, with what each of those brokers can reach directly."""
        links = {name: link.reaches for name, link in self._links.links.items() if link.channel.connected}
        for soft in self.soft.usable(self.surroundings.map()):
            links[soft.name] = soft.reaches
        return links

    def party(self, hop: str) -> Party:
        """Who gets what goes to a next hop: a soft link, or else a neighbour."""
        return self.outgoing.get(hop) or self._links.links.get(hop) or self.incoming[hop]

    def on_the_way_to(self, broker: str) -> Link | None:
        """The neighbour on the primary path to a broker of the map."""
        return self._links.links.get(self.surroundings.map().toward(broker))

    def way_back(self, soft: SoftLink) -> Link | None:
        """The neighbour on the primary path to where a soft link led."""
        direction = self.direction_of(soft)
        return self._links.links.get(direction) if direction is not None else None

    def overlay(self) -> dict[str, Any]:
        """For operators."""
        return {
            "strategy": self.strategy,
            "delta": self._settings.delta,
            "brokers_in_sight": len(self.surroundings.map()),
            "soft_links": sorted(self.outgoing),
            "soft_links_from": sorted(self.incoming),
            "links_in_all": self.soft.held - len(self._dialling),
            "fanout": self.soft.fanout,
            "candidates": sorted(self._candidates),
            "saving_uplink": self.uplink.saving,
        }


def _told_bytes(link: Link) -> int:
    """How much of a list is told in one message."""
    return carried_bytes(link.channel.frame_bytes_max) // 2


def _checked_place(broker: str, before: str, address: str) -> Place:
    try:
        checked_broker_id(broker)
        checked_broker_id(before)
    except ConfigurationError as error:
        raise RemoteProtocolError(str(error)) from None
    if len(address) > ADDRESS_LENGTH_MAX:
        raise RemoteProtocolError(f"an address of {len(address)} characters")
    return Place(broker, before, address)
