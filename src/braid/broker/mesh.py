"""Which soft links does a broker open, and what does forwarding go by?

Besides its primary links a broker can have *soft links* (multipath paper, section 6): connections to brokers
further away, over which only publications go, both ways. Each broker decides alone which it opens, as long as
it and the other end have room (`soft_links.py`). Nothing depends on them: a soft link that goes takes nothing
with it, because what it had not delivered goes the primary way.

A planner chooses soft links by the map (`maps.py`) and by how busy brokers are (`loads.py`); what is chosen
is dialled, retired and closed here. From the map and the soft links that are up follows the working map,
which is what forwarding goes by.
"""

from __future__ import annotations

from collections import deque
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from braid.adaptation import DemandPlanner, ProfiledPlanner
from braid.broker.events import SoftLinkLost, SoftLinksChanged
from braid.broker.parties import SoftLink
from braid.broker.settings import checked_strategy
from braid.broker.snapshot import MeshSnapshot
from braid.errors import ConfigurationError, RequestRefusedError
from braid.protocol.codec import Frame
from braid.protocol.effects import Close, Dial, Send
from braid.protocol.messages import PROTOCOL_VERSION, Goodbye, Welcome
from braid.routing import PATHS, WorkingMap

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping

    from braid.adaptation import LinkPlanner
    from braid.broker.access_review import Admission
    from braid.broker.connections import Connections
    from braid.broker.events import DialFailed, Event, Events, SoftLinkEnded
    from braid.broker.link_states import LinkStates
    from braid.broker.loads import LoadReports
    from braid.broker.maps import Maps
    from braid.broker.parties import Link, Party
    from braid.broker.soft_links import SoftLinks
    from braid.broker.soft_words import SoftWords
    from braid.broker.turn import Turn
    from braid.protocol.messages import Hello, SoftWord
    from braid.routing import MultipathForwarding

__all__ = ["Mesh"]

# How many brokers may be asked for a soft link between two reviews, for each one that is planned at a time.
ASKED_PER_CANDIDATE = 4


class Mesh:
    """Plans soft links.

    Args:
        incarnation: of this broker.
        turn: where messages and effects go.
        connections: who is here.
        links: the neighbours by their names.
        dialled: the addresses that are dialled for primary links.
        soft: the soft links there are, and the room for more.
        maps: who is in sight.
        loads: how busy brokers are.
        link_states: who is told which links there are.
        words: prove that a soft link is this broker's.
        events: tells others what has changed.
        ready: whether this broker knows enough to be linked to.
        avoided: whether a shortcut to a broker must not be used while an operation runs.
    """

    def __init__(
        self,
        incarnation: str,
        turn: Turn,
        connections: Connections,
        links: Mapping[str, Link],
        dialled: Collection[str],
        soft: SoftLinks,
        maps: Maps,
        loads: LoadReports,
        link_states: LinkStates,
        words: SoftWords,
        events: Events,
        ready: Callable[[], bool],
        avoided: Callable[[str], bool],
    ) -> None:
        settings = turn.settings
        self.strategy = settings.strategy
        self.outgoing = soft.outgoing
        """The soft links of this broker that are up."""
        self.incoming = soft.incoming
        """Those that other brokers have to this one."""
        self.sees_far = maps.sees_far
        self.delegations = link_states.delegations
        self.direction_of = maps.direction_of
        self.on_the_way_to = maps.on_the_way_to
        self.way_back = maps.way_back
        self._surroundings = maps.surroundings
        self._settings = settings
        self._incarnation = incarnation
        self._turn = turn
        self._connections = connections
        self._links = links
        self._dialled = dialled
        self._soft = soft
        self._loads = loads
        self._link_states = link_states
        self._words = words
        self._events = events
        self._ready = ready
        self._avoided = avoided
        self._planner = self._new_planner()
        # One for both: every empty set that is made is another one.
        self._candidates = self._wanted = frozenset[str]()
        self._asks_left = 0
        """How many brokers may be asked in the place of others before the next review."""
        self._saving = False
        self.working: WorkingMap | None = None
        self._forwarding: MultipathForwarding | None = None
        self.review_at_us: int | None = None

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
            self._link_states.use(delegates=self.delegates)
        self.review_at_us = None
        if checked == "S0":
            self._follow(frozenset())
        self.rebuild()
        self._turn.note("info", "the strategy has changed", strategy=checked)

    def choose_strategy(self, arguments: Mapping[str, str]) -> dict[str, Any]:
        """Forward by another strategy from now on; without one, say which is in force."""
        if "strategy" in arguments:
            self.use_strategy(arguments["strategy"])
        return {"broker": self._settings.broker_id, **asdict(self.snapshot())}

    @property
    def delegates(self) -> bool:
        """Whether publications that enter here are delegated."""
        return self.strategy == "SB"

    def rebuild(self, _: Event | None = None) -> None:
        """Make the working map anew, after any change of links."""
        if self._forwarding is None:
            return
        overlay = self._surroundings.map()
        self._saving = self._loads.saving
        # What SB cannot put into a set goes by S2.
        stand_ins = {"SH": "S1" if self._saving else "S2", "SB": "S2"}
        paths = PATHS.get(stand_ins.get(self.strategy, self.strategy))
        # While a neighbour has not said who is behind it, the tree is all there is.
        known = set(overlay.neighbours) == self._links.keys()
        if paths is None or not known:
            self.working = None
        else:
            real = {soft.name for soft in self._soft.usable(overlay) if not self._avoided(soft.name)}
            # A broker that was tried may have become a neighbour since.
            candidates = self._candidates - real - set(overlay.neighbours)
            candidates -= {broker for broker in candidates if self._avoided(broker)}
            self.working = WorkingMap(overlay, {*overlay.neighbours, *real, *candidates}, candidates)
        self._forwarding.use(self.working, paths)
        self.delegations.forget()

    def map_changed(self, _: Event) -> None:
        """Soft links whose other ends are out of sight, or neighbours now, go."""
        overlay = self._surroundings.map()
        lost = [broker for broker in self.outgoing if broker not in overlay or broker in overlay.neighbours]
        for broker in lost:
            self._retire(broker)
        for soft in self.incoming.values():
            if soft.name not in overlay and soft.connection is not None:
                # It, or we, have left the network: what it asks us to pass on we cannot.
                self._turn.effect(Close(soft.connection, "out of sight"))

    # Reviews.

    def review(self, now_us: int) -> None:
        """Look at the output; when it is time, choose soft links anew."""
        self._link_states.review()
        self._loads.measure(now_us)
        if self.strategy == "SH" and self._loads.saving != self._saving:
            self.rebuild()
        self._close_idle()
        if self.strategy == "S0" and not self.outgoing and not self._soft.retiring:
            self.review_at_us = None
            return
        if self.review_at_us is None:
            self.review_at_us = now_us + self._settings.soft_links.review_us
        if now_us < self.review_at_us:
            return
        self.review_at_us = now_us + self._settings.soft_links.review_us
        self._soft.age()
        if self.strategy == "S0":
            return
        overlay = self._surroundings.map()
        self._loads.sum_up()
        others = frozenset(name for name in self.incoming if name in overlay and name not in self.outgoing)
        plan = self._planner.review(overlay, self._loads.known, others)
        self._candidates = plan.candidates
        self._asks_left = (ASKED_PER_CANDIDATE - 1) * self._settings.soft_links.candidates_max
        self._follow(plan.soft)
        self.rebuild()
        if not self.delegates:
            self._loads.tell()

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
            under_way = any(soft.name == broker for soft in self._soft.dialling.values())
            linked = broker in self.outgoing or broker in self.incoming or under_way
            if linked or self._reinstated(broker):
                continue
            if not self._soft.free:
                return
            address = self._surroundings.address_of(broker)
            if address and address not in self._dialled:
                self._soft.dialled(self._new_soft(broker, address))
                self._words.send(broker)
                self._turn.effect(Dial(address, soft=True, frame_bytes_max=self._settings.frame_bytes_max))
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

    # Soft links: ours.

    def _new_soft(self, broker: str, address: str | None) -> SoftLink:
        """One that is opened here, where an address is dialled, or there."""
        opened_here = address is not None
        changed = self._turn.changed
        return SoftLink(broker, self._settings.link, changed, outgoing=opened_here, address=address or "")

    def dial_failed(self, event: DialFailed) -> None:
        """A connection is not to be."""
        if event.soft:
            self.not_to_be(event.address)

    def not_to_be(self, address: str) -> None:
        """The soft link that this address was dialled for is not to be: there is no way, or no room there."""
        soft = self._soft.dialling.get(address)
        if soft is not None:
            self._soft.give_up(soft)
            if self._another_for(soft.name) is not None:
                self._ask()

    def awaits(self, address: str | None) -> bool:
        """Whether a soft link that this address was dialled for is still to be."""
        return address in self._soft.dialling

    def proofs(self, address: str) -> dict[str, str]:
        """What proves to the broker for which this address was dialled that the soft link is ours."""
        soft = self._soft.dialling.get(address)
        return self._words.given(soft.name) if soft is not None else {}

    def welcomed(
        self, connection: int, address: str, welcome: Welcome, admission: Admission
    ) -> SoftLink | None:
        """A broker welcomes a soft link; None if it is not wanted any more."""
        soft = self._soft.dialling.get(address)
        if soft is None or welcome.name != soft.name:
            self.not_to_be(address)
            return None
        if soft.name not in self._wanted or soft.name in self.outgoing:
            self._soft.give_up(soft)
            return None
        self._enter(connection, soft, welcome, admission)
        self._link_states.tell_soft(soft)
        return soft

    def _enter(
        self, connection: int, soft: SoftLink, greeting: Hello | Welcome, admission: Admission
    ) -> None:
        soft.channel.restart(greeting.credit)
        self._soft.enter(soft)
        self._has_come(soft)
        self._connections.enter(connection, soft, greeting.frame_bytes_max, admission)

    def _has_come(self, soft: SoftLink) -> None:
        self.direction_of(soft)
        self._events.tell(SoftLinksChanged())
        self._turn.note("debug", "soft link up", broker=soft.name, opened_here=soft.outgoing)

    def _retire(self, broker: str) -> None:
        """Use a soft link no more, and close it once everything on it has arrived."""
        if self._soft.retire(broker):
            self._events.tell(SoftLinksChanged())

    def _reinstated(self, broker: str) -> bool:
        """Whether a soft link that was to be closed, and is wanted after all, is still there."""
        soft = self._soft.reinstate(broker)
        if soft is not None:
            self._has_come(soft)
        return soft is not None

    def _close_idle(self) -> None:
        """Close soft links that are not needed any more and have delivered everything."""
        for soft, reviews in list(self._soft.retiring.items()):
            if soft.channel.idle or not reviews:
                self._close(soft, "not needed any more")

    def _close(self, soft: SoftLink, reason: str, *, replaced: bool = False) -> None:
        """Have a soft link no more: what it has goes another way, and its place is free at once unless it is
        replaced by another one with the same broker."""
        if soft.connection is not None:
            # What has come, its other end need not send another way.
            told = soft.channel.acknowledgement()
            frames = [Frame(0, told)] if told is not None else []
            self._turn.effect(Send(soft.connection, [*frames, Frame(0, Goodbye(reason))]))
            self._turn.effect(Close(soft.connection, reason))
            self._connections.leave(soft.connection)  # its end is no news any more
            self._disconnected(soft, replaced=replaced)

    def make_room(self, _: Event) -> None:
        """Primary links take the places of soft ones: first of those under way, then of the least useful."""
        while self._soft.too_many and self._soft.dialling:
            last = next(reversed(self._soft.dialling.values()))
            self._soft.give_up(last)
            self._wanted -= {last.name}
            self._planner.failed(last.name)
        overlay = self._surroundings.map()
        while self._soft.too_many and (present := {soft.name: soft for soft in self._soft.all()}):
            retiring = next(iter(self._soft.retiring), None)
            name = self._planner.least_useful(present, overlay, self._loads.known)
            self._close(retiring or present[name], "a primary link takes its place")

    # Soft links: those of others.

    def hear_word(self, link: Link, message: SoftWord) -> None:
        """A neighbour passes on that a broker is about to open a soft link."""
        self._words.hear(link, message)

    def accept(
        self, connection: int, hello: Hello, admission: Admission, *, by_word: bool
    ) -> SoftLink | None:
        """Another broker opens a soft link to us.

        Args:
            connection: its connection.
            hello: its greeting.
            admission: how it was let in.
            by_word: whether nothing else says who it is, so that the word that it sent ahead has to.

        Returns:
            None if that word is still to come.

        Raises:
            RequestRefusedError: we could not tell from where its publications come, or there is no room.
        """
        if not self._ready() or hello.name not in self._surroundings.map():
            raise RequestRefusedError(f"{hello.name!r} is not in sight from here", "sight")
        if by_word and not self._words.proved(hello):
            return None
        before = self._soft.require_room_for(hello.name)
        if before is not None:
            # It would not open another one if it still had that.
            self._close(before, "another connection has taken over", replaced=True)
        soft = self._new_soft(hello.name, None)
        self._enter(connection, soft, hello, admission)
        self._turn.tell_connection(
            soft,
            Welcome(
                PROTOCOL_VERSION,
                self._settings.broker_id,
                self._incarnation,
                credit=soft.channel.credit_to_grant,
                frame_bytes_max=self._settings.frame_bytes_max,
                address=self._settings.address,
                delta=self._settings.delta,
            ),
        )
        self._link_states.tell_soft(soft)
        return soft

    def ended(self, event: SoftLinkEnded) -> None:
        """The connection of a soft link is over."""
        self._disconnected(event.soft)

    def _disconnected(self, soft: SoftLink, *, replaced: bool = False) -> None:
        """A soft link has gone."""
        usable = self._soft.closed(soft)
        soft.channel.disconnect()
        soft.line.clear()
        self._turn.forget(soft)
        if usable:
            self._planner.failed(soft.name)
            self._wanted -= {soft.name}
            self._events.tell(SoftLinksChanged())
        self._events.tell(SoftLinkLost(soft))
        if not replaced:
            self._ask()

    # For forwarding, and for operators.

    def party(self, hop: str) -> Party:
        """Who gets what goes to a next hop: a soft link, or else a neighbour."""
        return self.outgoing.get(hop) or self._links.get(hop) or self.incoming[hop]

    def snapshot(self) -> MeshSnapshot:
        """For operators."""
        return MeshSnapshot(
            strategy=self.strategy,
            delta=self._settings.delta,
            brokers_in_sight=len(self._surroundings.map()),
            soft_links=tuple(sorted(self.outgoing)),
            soft_links_from=tuple(sorted(self.incoming)),
            links_in_all=self._soft.held - len(self._soft.dialling),
            fanout=self._soft.fanout,
            candidates=tuple(sorted(self._candidates)),
            saving_uplink=self._loads.saving,
        )
