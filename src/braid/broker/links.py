"""How do two brokers become neighbours, and stay so?

A link's session outlives its connections. It has a name that both ends know it by: if the one who dials
names the session that the other one is in, they go on where they were. The one that is dialled decides that,
once; otherwise a session begins anew and both ends say everything they know.

*Complete.* A broker that has just started knows nothing. It tells a neighbour that its tables are complete
once all its other neighbours have told it so; in a tree that always ends. Until then the neighbour keeps
what it remembers of the time before, and the new broker keeps acknowledged publications for neighbours that
have not spoken yet. So no crash in the middle makes anybody forget a subscription behind it. A broker that
cannot ask a neighbour (a link is down when an advertisement comes) says that its tables are incomplete, and
complete again later.

*Open.* Publications cross a link when the neighbour says that its tables are complete and has confirmed the
advertisements it was told: then the interest of everybody behind it is known. Until then they are held.
While a link is down, others may subscribe behind it: acknowledged publications are kept for it whether they
match what is remembered or not, and both ends say again that they are complete when it is back.

`link_life.py` has the stages. The greeting (`handshake.py`) says who has come; the rest is decided here.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from braid.broker.confirmations import when_confirmed
from braid.broker.connections import replaces
from braid.broker.events import (
    CopyStranded,
    InterestKnown,
    LinkAbandoned,
    LinkBegun,
    LinkOpening,
    LinkRemoved,
    NeighbourGone,
    ReachChanged,
    TrackLost,
)
from braid.broker.link_life import LinkStage, LinkStep
from braid.broker.offers import Offer, welcome_to
from braid.broker.parties import Link
from braid.broker.waiters import Waiter, WaiterKind
from braid.errors import RemoteProtocolError, RequestRefusedError
from braid.protocol.codec import Frame
from braid.protocol.effects import Close, Neighbours, Send
from braid.protocol.messages import Goodbye, Hello, SyncBegin, TablesComplete, TablesIncomplete, Welcome

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Container, Iterable, Iterator, Mapping

    from braid.broker.access_review import Admission
    from braid.broker.completeness import Completeness
    from braid.broker.connections import Connections
    from braid.broker.dialling import Dialling
    from braid.broker.endings import Endings
    from braid.broker.events import Announced, Detached, Event, Events, LinkLost
    from braid.broker.reachability import Reachability
    from braid.broker.subscriptions import Subscriptions
    from braid.broker.turn import Turn
    from braid.broker.unknown_brokers import UnknownBrokers
    from braid.protocol import PublicationBatch
    from braid.protocol.messages import Reach, Refused
    from braid.routing import RoutingTables

__all__ = ["DOUBLE", "Links"]

DOUBLE = "there is a connection between us already"


class Links:
    """Keeps the links.

    Args:
        incarnation: of this broker.
        turn: where messages and effects go.
        connections: who is here.
        links: the neighbours by their names. Everybody reads them; only this adds and removes.
        dialling: the attempts at neighbours.
        unknown_brokers: says whether one that nobody has named is let in.
        reachability: who can be reached through whom.
        subscriptions: what neighbours are told, and what came from them.
        tables: where that is kept.
        completeness: what neighbours are told of how much we know.
        endings: ends connections.
        events: tells others what has happened.
        new_session: a name for a session that nobody can guess.
        came_from: behind which neighbours the sources of something lie that is not settled.
    """

    def __init__(
        self,
        incarnation: str,
        turn: Turn,
        connections: Connections,
        links: dict[str, Link],
        dialling: Dialling,
        unknown_brokers: UnknownBrokers,
        reachability: Reachability,
        subscriptions: Subscriptions,
        tables: RoutingTables,
        completeness: Completeness,
        endings: Endings,
        events: Events,
        new_session: Callable[[], str],
        came_from: Callable[[PublicationBatch], Container[str]],
    ) -> None:
        self.links = links
        self.holding = 0
        """How many links hold publications back."""
        self._settings = turn.settings
        self._incarnation = incarnation
        self._turn = turn
        self._connections = connections
        self._dialling = dialling
        self._unknown_brokers = unknown_brokers
        self._reachability = reachability
        self._subscriptions = subscriptions
        self._tables = tables
        self._completeness = completeness
        self._endings = endings
        self._events = events
        self._new_session = new_session
        self._came_from = came_from
        self._strangers: dict[str, Link] = {}
        """What is kept for neighbours that have not been met since the start, by their addresses."""

    def remember(self, known: Iterable[tuple[str, str]], met_at: Mapping[str, str] = {}) -> None:
        """Neighbours from before the last restart: what is theirs is kept until they speak, and those that we
        were told to dial while running are dialled again."""
        for broker_id, address in known:
            link = self._link(broker_id)
            link.address = met_at.get(broker_id, link.address)
            if address:
                self._dialling.remember(address, broker_id)

    def _link(self, name: str, *, provisional: bool = False) -> Link:
        link = self.links.get(name)
        if link is None:
            link = self.links[name] = self._new_link(name)
            link.provisional = provisional
            self._tables.add_link(name)
            if not provisional:
                self._names_changed()
        return link

    def _names_changed(self) -> None:
        """Tell the driver who the neighbours are."""
        names = [name for name, link in sorted(self.links.items()) if not link.provisional]
        self._turn.effect(Neighbours(tuple(names)))

    def _new_link(self, name: str) -> Link:
        link = Link(name, self._settings.link, self._turn.changed)
        link.since_us = self._turn.now_us
        self.holding += 1
        return link

    def _step(self, link: Link, step: LinkStep) -> None:
        """Something has happened to a link."""
        held, down = link.holding, link.down
        link.step(step)
        self.holding += link.holding - held
        if link.holding != held or link.down != down:
            link.since_us = self._turn.now_us
            link.channel.passing = False

    def begin(self, now_us: int) -> None:
        """The first moment of this life."""
        if self._completeness.begin(now_us):
            for link in self.links.values():
                link.since_us = now_us
            self.tell_reach()

    @property
    def ready(self) -> bool:
        """Clients' publications are accepted."""
        return self._completeness.ready

    # From greetings to sessions.

    def offer(self, address: str) -> Offer:
        """What to say to the broker that is dialled at an address."""
        link = self._dialling.resumable(address)
        reach, expected = self._reachability.reach(link), self._dialling.expected(address)
        going_on = (link.agreed, link.channel.received) if link is not None else ("", 0)
        return Offer(*going_on, reach, expected)

    def accept(
        self, connection: int, hello: Hello, admission: Admission, proofs: dict[str, str]
    ) -> tuple[Link, bool]:
        """A broker that was let in says hello; returns its link, and whether the session goes on.

        `proofs` show it that the answer is this broker's.

        Raises:
            RemoteProtocolError: it cannot be a neighbour.
            RequestRefusedError: there is to be no link, or no further connection to it.
        """
        self._unknown_brokers.require_other(hello.name)
        known = self.links.get(hello.name)
        if known is not None and known.connection is not None:
            if known.incarnation != hello.incarnation and hello.address != known.address and known.address:
                # One that was started again comes from where it was.
                raise RequestRefusedError(
                    f"there is a broker {hello.name!r} at {known.address} already; ids must differ", "taken"
                )
            if not replaces(known, self._settings.broker_id, dialled=False):
                raise RequestRefusedError(DOUBLE, "double")
            self._replace(known)
        self._require_tree(hello.name, hello.brokers)
        self._forget_gone(hello.name)
        link = self._link(hello.name, provisional=self._unknown_brokers.provisional(hello.name))
        resumed = bool(link.agreed) and hello.resumes == link.agreed
        link.address = hello.address or link.address
        if hello.resumes in (link.latest, link.named):
            link.named = hello.resumes
        # The dialler may never hear of a new one. Then it asks for another, and gets a newer one.
        self._begin(link, hello, "" if resumed else self._new_session())
        link.dialled = False
        self._connections.enter(connection, link, hello.frame_bytes_max, admission)
        reach = self._reachability.reach(link)
        welcome = welcome_to(
            link,
            self._settings,
            self._incarnation,
            self._turn.epoch,
            proofs,
            resumes=link.agreed if resumed else "",
            received=link.channel.received,
            brokers=sorted(reach),
            complete=self._completeness.beyond(link),
        )
        self._turn.tell_connection(link, welcome)
        self._begun(link, hello, resumed, reach)
        return link, resumed

    def welcomed(
        self, connection: int, address: str, welcome: Welcome, offer: Offer, admission: Admission
    ) -> tuple[Link, bool] | None:
        """A broker that we dialled says welcome; returns its link, and whether the session goes on.

        Args:
            connection: its connection.
            address: where it was dialled.
            welcome: what it says.
            offer: what our greeting said.
            admission: how it is known.

        Returns:
            None if there is to be no link, or not over this connection.

        Raises:
            RemoteProtocolError: it goes on with what was not offered, or cannot be a neighbour.
            RequestRefusedError: what we offered has been given up since, or the link would close a loop.
        """
        if not self._dialling.wanted(address, welcome.name):
            # We were detached while the connection was being made.
            self._turn.effect(Send(connection, [Frame(0, Goodbye("detached", detach=True))]))
            self._turn.effect(Close(connection, "detached"))
            return None
        self._unknown_brokers.require_other(welcome.name)
        known = self.links.get(welcome.name)
        self._dialling.met(address, welcome.name)
        if known is not None and known.connection is not None:
            same = known.incarnation == welcome.incarnation
            if same and not replaces(known, self._settings.broker_id, dialled=True):
                self.tell_reach()
                self._turn.effect(Close(connection, DOUBLE))
                return None
            self._replace(known)
        self._require_tree(welcome.name, welcome.brokers)
        resumed = bool(welcome.resumes)
        if resumed and welcome.resumes != offer.session:
            raise RemoteProtocolError(f"{welcome.name!r} goes on with a session that it was not asked for")
        if not resumed and not welcome.session:
            raise RemoteProtocolError(f"{welcome.name!r} does not say which session begins")
        known = self.links.get(welcome.name)
        if resumed and (known is None or known.agreed != offer.session):
            raise RequestRefusedError(
                "the session was given up meanwhile; another one is to begin", "session"
            )
        link = self._link(welcome.name)
        if address in self._dialling.neighbours:
            self._count(link)
        self._dialling.met(address, welcome.name, linked=True)
        link.address = welcome.address or address
        self._begin(link, welcome, "" if resumed else welcome.session)
        link.dialled = True
        self._connections.enter(connection, link, welcome.frame_bytes_max, admission)
        self._begun(link, welcome, resumed, offer.reach)
        return link, resumed

    def refused(self, address: str, refusal: Refused) -> None:
        """A broker that we dialled refuses the link."""
        if refusal.code in ("loop", "double"):
            self._dialling.met(address, refusal.name)
            refuser = self.links.get(refusal.name)
            if refuser is not None and self._dialling.is_at(address, refuser):
                self._moved(refusal.name)
            self.tell_reach()

    def _require_tree(self, name: str, brokers: Iterable[str]) -> None:
        try:
            self._require_no_loop(name, brokers)
        except RequestRefusedError:
            self._moved(name)
            self.tell_reach()
            raise

    def _require_no_loop(self, name: str, brokers: Iterable[str]) -> None:
        self._reachability.require_no_loop(name, brokers)

    def _replace(self, link: Link) -> None:
        """The connection a link has is given up for a new one."""
        if link.connection is not None:
            self._connections.leave(link.connection)
            self._turn.effect(Close(link.connection, "another connection has taken over"))
            self._disconnected(link)

    def _begin(self, link: Link, greeting: Hello | Welcome, session: str) -> None:
        """Go on with the session there is, or begin the one of this name."""
        link.epoch = max(link.epoch, greeting.epoch)
        if not session:
            link.again = link.channel.resume(greeting.received)
            self._step(link, LinkStep.RESUMED)
            self._turn.changed(link)
            return
        self._step(link, LinkStep.BEGUN)
        link.agreed = ""  # nothing is told before the new one has begun
        link.outstanding.session_lost()
        if link.channel.cares:
            # Their publishers may be gone, and their advertisements with them: so that everybody who
            # wants what is kept here says so, it is advertised in our own name.
            self._subscriptions.announce_anything()
        link.channel.restart(greeting.credit)
        link.line.clear()
        link.agreed = link.latest = session
        link.incarnation = greeting.incarnation
        link.resumption = greeting.resumption if isinstance(greeting, Hello) else ""
        link.informed = isinstance(greeting, Welcome) and greeting.complete
        link.session += 1
        self._turn.tell(link, SyncBegin())

    def _begun(
        self, link: Link, greeting: Hello | Welcome, resumed: bool, told_reach: frozenset[str]
    ) -> None:
        """The greeting is on its way; now say everything the neighbour should know."""
        link.elsewhere = False
        self._reachability.heard(link, greeting.brokers)
        # What is sent again of a session that goes on may be older than the greeting: say it once more.
        link.told_reach, link.told_missing = tuple(sorted(told_reach)), None
        self.tell_reach()
        if not resumed:
            self._events.tell(LinkBegun(link, greeting.delta))
        self._completeness.tell()

    def lost(self, event: LinkLost) -> None:
        """The connection of a link has ended; it is dialled again, if it is ours to dial."""
        link = event.link
        self._disconnected(link, LinkStep.STRAYED if event.strayed else LinkStep.DISCONNECTED)
        if event.strayed:
            link.agreed = ""
            link.outstanding.session_lost()
        self._dialling.lost(link.name)

    def _disconnected(self, link: Link, step: LinkStep = LinkStep.DISCONNECTED) -> None:
        """The connection has gone; the session may go on later."""
        gone = link.stage is LinkStage.GONE
        self._step(link, step)
        link.channel.disconnect()
        link.again = []
        if gone:
            return
        link.behind = frozenset()
        link.placed = False
        # Brokers behind it that subscribe now cannot say so.
        link.told_complete = False
        self.tell_reach()
        if link.outstanding.announces:
            # What it was told last may not have arrived: its interest in that is not known.
            self.track_lost(TrackLost(link))
        self._subscriptions.link_down(link)

    def retire(self, link: Link) -> None:
        """This broker has said goodbye; the driver says when the connection has ended."""
        self._step(link, LinkStep.GOODBYE)

    def review_waiting(self) -> None:
        """Give up sessions for which too many messages wait, and waiting for what does not come."""
        self._forget_gone()
        oldest_us = self._turn.now_us - self._settings.recovery_us_max
        for link in self.links.values():
            if link.stage is LinkStage.OPEN:
                continue
            overdue = link.since_us <= oldest_us
            if overdue and link.holding and not link.channel.passing:
                # Whatever is not acknowledged delivery waits no longer for those behind this neighbour
                # who are not there.
                link.channel.passing = True
                self._turn.changed(link)
            if overdue and link.down:
                link.outstanding.give_up_announcements()
            messages_max = self._settings.link_messages_max
            if link.stage is LinkStage.SUSPENDED and link.channel.waiting_messages > messages_max:
                self.forget_session(link)

    def forget_session(self, link: Link) -> None:
        """The session does not go on: the next one begins with everything anew."""
        if link.stage is LinkStage.SUSPENDED:
            self._step(link, LinkStep.FORGOTTEN)
        link.agreed = ""
        link.outstanding.session_lost()

    # Synchronising.

    def sync_begins(self, link: Link, _: SyncBegin | None = None) -> None:
        """The neighbour is about to say everything."""
        self._subscriptions.mark_stale(link)

    def tables_complete(self, link: Link, _: TablesComplete | None = None) -> None:
        """The neighbour has said everything."""
        current = link.current
        self._step(link, LinkStep.COMPLETE)
        if not current:
            link.outstanding.catch_up()
        if link.stage is LinkStage.HELD:
            # It opens once it has confirmed what it was told so far.
            waiter = Waiter(WaiterKind.OPEN_LINK, link, session=link.session)
            when_confirmed([link], waiter, self._events)
        if link.current and not current:
            self.tell_reach()

    def tables_incomplete(self, link: Link, _: TablesIncomplete | None = None) -> None:
        """The neighbour has lost track of a subscriber."""
        self._step(link, LinkStep.INCOMPLETE)
        self.tell_reach()
        self.track_lost(TrackLost(link))

    def track_lost(self, event: TrackLost) -> None:
        """A broker behind this link may be interested in what we have not heard of."""
        if not event.link.unknown:
            event.link.unknown = True
            self._completeness.tell()

    def announced(self, event: Announced) -> None:
        """A neighbour knows all advertisements: if it has said everything, publications may cross to it."""
        waiter, link = event.waiter, event.waiter.party
        if waiter.kind is not WaiterKind.OPEN_LINK or not isinstance(link, Link):
            return
        if link.session == waiter.session and link.stage is LinkStage.HELD:
            self._open(link)

    def _open(self, link: Link) -> None:
        """Its interest is known now: of what was kept for it, what it wants can go."""
        self._events.tell(LinkOpening(link))
        self._step(link, LinkStep.CONFIRMED)
        link.placed = False
        for care in link.channel.refilter(partial(self._wanted, link)):
            self._turn.settlement.settle(care, link)
        self._turn.caught_up(link)
        self._turn.changed(link)
        link.unknown = False
        if not link.met:
            link.met = True
            self._count(link)
            self._events.tell(InterestKnown(link))
        self._completeness.tell()

    def _count(self, link: Link) -> None:
        """From now on it is waited for."""
        if link.provisional:
            link.provisional = False
            self._names_changed()
            self.tell_reach()

    def _wanted(self, link: Link, batch: PublicationBatch) -> PublicationBatch | None:
        """What the brokers behind a link want of a batch that was kept whether they did or not."""
        if batch.route:
            return batch  # a broker that knew has decided that it is for brokers there
        rows = self._tables.wanted_behind(link.name, batch)
        if len(rows) == len(batch):
            return batch
        return batch.select(rows) if len(rows) else None

    # Neighbours that have not been met.

    @property
    def unknown(self) -> Iterator[Link]:
        """Those whose interest is not known, so that acknowledged publications are kept for them."""
        yield from (link for link in self.links.values() if link.holding)
        yield from self._strangers.values()

    @property
    def strangers(self) -> Collection[Link]:
        """What stands for neighbours that have not been met since the start."""
        return self._strangers.values()

    def _review_strangers(self) -> None:
        """Begin to keep publications for neighbours that are to be met, and hand over what was kept."""
        unmet = set(self._reachability.unmet())
        for address in sorted(unmet - self._strangers.keys()):
            self._strangers[address] = self._new_link(address)
        for address in sorted(self._strangers.keys() - unmet):
            stranger = self._strangers.pop(address)
            self._step(stranger, LinkStep.REMOVED)
            name = self._dialling.name_of(address)
            link = self.links.get(name)
            if link is None:
                self._route_again(stranger, name)
            else:
                for batch, care in stranger.channel.withdraw():
                    wanted = batch if link.holding else self._wanted(link, batch)
                    if name in self._came_from(batch):
                        # As a repetition it would be settled when its first copy is, and that one waits here.
                        wanted = None
                    if wanted is not None:
                        self._turn.pass_on((link,), [(wanted, care)], None)
                    self._turn.settlement.settle(care, stranger)
            self._turn.forget(stranger)

    # Reach.

    def reaches(self, link: Link, message: Reach) -> None:
        """A neighbour says whom it connects us to, and which links are missing there."""
        if link.behind != {link.name, *message.brokers}:  # often only what is missing has changed
            self._require_no_loop(link.name, message.brokers)
        self._reachability.heard(link, message.brokers, message.missing, message.neighbours)
        self.tell_reach()

    def _moved(self, name: str) -> None:
        """A neighbour itself, and no other, says that there is another way to it now."""
        link = self.links.get(name)
        if link is not None and link.connection is None and name in self._reachability.reach(link):
            self._turn.note(
                "info", "a neighbour has moved", neighbour=name, waiting_bytes=link.channel.backlog_bytes
            )
            self._forget(link)

    def tell_reach(self, _: Event | None = None) -> None:
        """Tell every neighbour whom we connect it to and whom not, if that has changed."""
        self._review_strangers()
        self._reachability.tell()
        self._events.tell(ReachChanged())

    # Joining and leaving.

    def left(self, event: Detached) -> None:
        """A neighbour says goodbye for good."""
        self.detach(event.link)

    def detach(self, link: Link) -> None:
        """The neighbour has left the network, or is given up."""
        if link.connection is not None:
            self._endings.end(link.connection)
        self._dialling.forget_broker(link.name)
        self._forget(link, for_good=not link.provisional)
        self._turn.note("info", "a neighbour has left the network", neighbour=link.name)

    def _forget_gone(self, but: str = "") -> None:
        """Those that nobody has named and that went before they had said everything have never been here."""
        for link in self._unknown_brokers.gone():
            if any(self._tables.from_link(link.name)):
                self._events.tell(LinkAbandoned(link))
            elif link.name != but:
                self._forget(link)

    def _forget(self, link: Link, *, for_good: bool = False) -> None:
        self.drop(link)
        self._events.tell(NeighbourGone(link, for_good=for_good))

    def drop(self, link: Link) -> None:
        """The link is no more: what is kept for it goes, and what came from it too."""
        del self.links[link.name]
        if not link.provisional:
            self._names_changed()
        self._step(link, LinkStep.REMOVED)
        self._events.tell(LinkRemoved(link))
        # Only now: what waited is routed at once, by tables and maps without the link.
        link.outstanding.give_up_announcements()
        self._route_again(link, link.name)
        self._turn.forget(link)
        self.tell_reach()
        self._completeness.tell()

    def _route_again(self, link: Link, name: str) -> None:
        """Send what waited for a broker and those behind it the way there is to it now, if there is one.

        Others on that way may have had it already.
        """
        toward = self._reachability.toward(name)
        for batch, care in link.channel.withdraw():
            if batch.route:
                self._events.tell(CopyStranded(batch, care))
            elif toward is not None:
                self._turn.pass_on((self.links[toward],), [(batch.repetition(), care)], None)
            self._turn.settlement.settle(care, link)
