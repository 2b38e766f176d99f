"""How do two brokers become neighbours, and stay so?

A link's session outlives its connections. It has a name that both ends know it by: if the one who dials
names the session that the other one is in, they go on where they were. Whoever is dialled decides that,
once; otherwise a session begins anew and both ends say everything they know.

*Complete.* A broker that has just started knows nothing. It tells a neighbour that its tables are complete
once all its other neighbours have told it so; in a tree that always ends. Until then the neighbour keeps
what it remembers of the time before, and the new broker keeps acknowledged publications for neighbours that
have not spoken yet. So no crash in the middle makes anybody forget a subscription behind it.

A broker that cannot ask somebody (a link is down when an advertisement comes) says that its tables are
incomplete, and complete again later.

*Open.* Publications cross a link when the neighbour says that its tables are complete and has confirmed the
advertisements it was told: then the interest of everybody behind it is known. Until then they are held.
While a link is down, others may subscribe behind it: acknowledged publications are kept for it whether they
match what is remembered or not, and both ends say again that they are complete when it is back.

`link_life.py` has the stages that this comes down to. The greeting (`reception.py`) says who has come; what
happens to the link then is decided here.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from braid.broker.dialling import Dialling
from braid.broker.link_life import LinkStage, LinkStep
from braid.broker.parties import Link
from braid.broker.reachability import Reachability
from braid.errors import RemoteProtocolError, RequestRefusedError
from braid.protocol.codec import Frame
from braid.protocol.destinations import digest_of, packed_destinations
from braid.protocol.effects import Close, Send
from braid.protocol.messages import (
    PROTOCOL_VERSION,
    Goodbye,
    SyncBegin,
    TablesComplete,
    TablesIncomplete,
    Welcome,
)

if TYPE_CHECKING:
    import random
    from collections.abc import Callable, Collection, Container, Iterable, Iterator, Mapping, Sequence

    from braid.broker.admission import Admission
    from braid.broker.connections import Connections
    from braid.broker.identities import Identities
    from braid.broker.on_subscribe import SubscriptionDesk
    from braid.broker.parties import Party, Release
    from braid.broker.postroom import Postroom
    from braid.broker.settings import BrokerSettings
    from braid.protocol import PublicationBatch
    from braid.protocol.messages import Hello, Refused

__all__ = ["NO_OFFER", "LinkDesk", "Offer"]


class Offer(NamedTuple):
    """What the greeting of a broker that dials says of a link that may be there already."""

    session: str = ""
    """The session that could go on."""
    received: int = 0
    """How far it has come here."""
    reach: frozenset[str] = frozenset()
    """The brokers that can be reached through us."""


NO_OFFER = Offer()


class LinkDesk:
    """Keeps the links."""

    def __init__(
        self,
        settings: BrokerSettings,
        incarnation: str,
        identities: Identities,
        postroom: Postroom,
        connections: Connections,
        random: random.Random,
        changed: Callable[[Party], None],
    ) -> None:
        self.links: dict[str, Link] = {}
        self.started_at_us: int | None = None
        self.holding = 0
        """How many links hold publications back."""
        self.ready = False
        """Clients' publications are accepted: the neighbours' tables are here, or waited for no more."""
        self._settings = settings
        self._incarnation = incarnation
        self.identities = identities
        self._postroom = postroom
        self._connections = connections
        self._changed = changed
        self.when_ready: Callable[[], None] = _nothing
        """Called once publications are accepted."""
        self.when_known: Callable[[Link], None] = _nothing_about
        """Called when a neighbour's interest becomes known."""
        self.when_begun: Callable[[Link, int], None] = _nothing_begun
        """Called with how far the neighbour wants to see, before it is told anything else."""
        self.when_complete: Callable[[Link], None] = _nothing_about
        """Called when a neighbour has said everything that it knows."""
        self.when_dropped: Callable[[Link], None] = _nothing_about
        """Called when a link is no more, whatever the reason."""
        self.when_stranded: Callable[[PublicationBatch, Release | None], None] = _nothing_stranded
        """Called with a copy for a set of brokers that waited for a link that is no more."""
        self.came_from: Callable[[PublicationBatch], Container[str]] = _nowhere
        """Asked behind which neighbours the sources of something lie that is not settled."""
        self.when_reach: Callable[[], None] = _nothing
        """Called when there may be a way to other brokers than before."""
        self.when_gone: Callable[[Link], None] = _nothing_about
        """Called when a neighbour is none any more."""
        self.dialling = Dialling(settings, postroom, random, self.links)
        self.reachability = Reachability(postroom, self.links, self.dialling)
        self._strangers: dict[str, Link] = {}
        """What is kept for neighbours that have not been met since the start, by their addresses."""

    def bind(self, subscriptions: SubscriptionDesk) -> None:
        """The desk that keeps the tables, which in turn needs the links."""
        self._subscriptions = subscriptions
        subscriptions.lose_track = self.lose_track
        subscriptions.missing = self.reachability.missing
        subscriptions.when_caught_up = lambda link: self.tell_reach()

    def remember(self, known: Iterable[tuple[str, str]], met_at: Mapping[str, str] = {}) -> None:
        """Neighbours from before the last restart: what is theirs is kept until they speak.

        Those that we were told to dial while running are dialled again.
        """
        for broker_id, address in known:
            link = self._link(broker_id)
            link.address = met_at.get(broker_id, link.address)
            if address:
                self.dialling.remember(address, broker_id)

    def _link(self, name: str) -> Link:
        link = self.links.get(name)
        if link is None:
            link = self.links[name] = self._new_link(name)
            self._subscriptions.tables.add_link(name)
        return link

    def _new_link(self, name: str) -> Link:
        link = Link(name, self._settings.link, self._changed)
        link.since_us = self._postroom.now_us
        self.holding += 1
        return link

    def _step(self, link: Link, step: LinkStep) -> None:
        """Something has happened to a link."""
        held, down = link.holding, link.down
        link.step(step)
        self.holding += link.holding - held
        if link.holding != held or link.down != down:
            link.since_us = self._postroom.now_us
            link.channel.passing = False

    def begin(self, now_us: int) -> None:
        """The first moment of this life."""
        if self.started_at_us is None:
            self.started_at_us = now_us
            for link in self.links.values():
                link.since_us = now_us
            self.tell_reach()

    # From greetings to sessions.

    def offer(self, address: str) -> Offer:
        """What to say to whoever is dialled at an address."""
        link = self.dialling.resumable(address)
        reach = self.reachability.reach(link)
        return Offer(link.agreed, link.channel.received, reach) if link is not None else Offer(reach=reach)

    def accept(self, connection: int, hello: Hello, admission: Admission) -> tuple[Link, bool]:
        """A broker that was let in says hello; returns its link, and whether the session goes on.

        Raises:
            RemoteProtocolError: it cannot be a neighbour.
            RequestRefusedError: there is to be no link, or no further connection to it.
        """
        self.require_other(hello.name)
        known = self.links.get(hello.name)
        if known is not None and known.connection is not None:
            if known.incarnation != hello.incarnation and hello.address != known.address and known.address:
                # One that was started again comes from where it was.
                raise RequestRefusedError(
                    f"there is a broker {hello.name!r} at {known.address} already; ids must differ", "taken"
                )
            if not self._prefer(known, dialled=False):
                raise RequestRefusedError("there is a connection between us already", "double")
            self._replace(known)
        try:
            self.reachability.require_no_loop(hello.name, hello.brokers)
        except RequestRefusedError:
            self._moved(hello.name)
            raise
        link = self._link(hello.name)
        resumed = bool(link.agreed) and hello.resumes == link.agreed
        link.address = hello.address or link.address
        if hello.resumes in (link.latest, link.named):
            link.named = hello.resumes
        # The dialler may never hear of a new one. Then it asks for another, and gets a newer one.
        self._begin(link, hello, "" if resumed else self.identities.new_session())
        link.dialled = False
        self._connections.enter(connection, link, hello.frame_bytes_max, admission)
        reach = self.reachability.reach(link)
        self._postroom.aside(
            link,
            Welcome(
                PROTOCOL_VERSION,
                self._settings.broker_id,
                self._incarnation,
                resumes=link.agreed if resumed else "",
                received=link.channel.received,
                credit=link.channel.credit_to_grant,
                frame_bytes_max=self._settings.frame_bytes_max,
                address=self._settings.address,
                brokers=sorted(reach),
                delta=self._settings.delta,
                session=link.agreed,
            ),
        )
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
        if not self.dialling.wanted(address, welcome.name):
            # We were detached while the connection was being made.
            self._postroom.effect(Send(connection, [Frame(0, Goodbye("detached", detach=True))]))
            self._postroom.effect(Close(connection, "detached"))
            return None
        self.require_other(welcome.name)
        known = self.links.get(welcome.name)
        self.dialling.met(address, welcome.name)
        if known is not None and known.connection is not None:
            same = known.incarnation == welcome.incarnation
            if same and not self._prefer(known, dialled=True):
                self.tell_reach()
                self._postroom.effect(Close(connection, "there is a connection between us already"))
                return None
            self._replace(known)
        try:
            self.reachability.require_no_loop(welcome.name, welcome.brokers)
        except RequestRefusedError:
            self._moved(welcome.name)
            self.tell_reach()
            raise
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
        self.dialling.met(address, welcome.name, linked=True)
        link.address = welcome.address or address
        self._begin(link, welcome, "" if resumed else welcome.session)
        link.dialled = True
        self._connections.enter(connection, link, welcome.frame_bytes_max, admission)
        self._begun(link, welcome, resumed, offer.reach)
        return link, resumed

    def refused(self, address: str, refusal: Refused) -> None:
        """A broker that we dialled refuses the link."""
        if refusal.code in ("loop", "double"):
            self.dialling.met(address, refusal.name)
            self._moved(refusal.name)
            self.tell_reach()

    def require_other(self, name: str) -> None:
        """Refuse to be our own neighbour."""
        if name == self._settings.broker_id:
            raise RemoteProtocolError(f"this broker is called {name!r} too; ids must differ")

    def _prefer(self, link: Link, dialled: bool) -> bool:
        """Two connections to one neighbour: whether the new one replaces the one that is there.

        A second one from the same side means that the first is dead and we have not noticed. If both
        sides dialled, the one from the broker with the smaller id stays.
        """
        if link.dialled == dialled:
            return True
        ours_is_kept = self._settings.broker_id < link.name
        return dialled == ours_is_kept

    def _replace(self, link: Link) -> None:
        """The connection a link has is given up for a new one."""
        if link.connection is not None:
            self._connections.leave(link.connection)
            self._postroom.effect(Close(link.connection, "another connection has taken over"))
            self.disconnected(link)

    def _begin(self, link: Link, greeting: Hello | Welcome, session: str) -> None:
        """Go on with the session there is, or begin the one of this name."""
        if not session:
            link.again = link.channel.resume(greeting.received)
            self._step(link, LinkStep.RESUMED)
            self._postroom.changed(link)
            return
        self._step(link, LinkStep.BEGUN)
        link.agreed = ""  # nothing is told before the new one has begun
        self._subscriptions.forget_session(link)
        if link.channel.cares:
            # Their publishers may be gone, and their advertisements with them: so that everybody who
            # wants what is kept here says so, it is advertised in our own name.
            self._subscriptions.announce_anything()
        link.channel.restart(greeting.credit)
        link.line.clear()
        link.agreed = link.latest = session
        link.incarnation = greeting.incarnation
        link.session += 1
        self._postroom.tell(link, SyncBegin())

    def _begun(
        self, link: Link, greeting: Hello | Welcome, resumed: bool, told_reach: frozenset[str]
    ) -> None:
        """The greeting is on its way; now say everything the neighbour should know."""
        link.elsewhere = False
        self.reachability.heard(link, greeting.brokers)
        # What is sent again of a session that goes on may be older than the greeting: say it once more.
        link.told_reach, link.told_missing = told_reach, None
        self.tell_reach()
        if not resumed:
            self.when_begun(link, greeting.delta)
            self._subscriptions.synchronise(link)
        self.tell_completeness()

    def disconnected(self, link: Link) -> None:
        """The connection has gone; the session may go on later."""
        gone = link.stage is LinkStage.GONE
        self._step(link, LinkStep.DISCONNECTED)
        link.channel.disconnect()
        link.again = []
        if gone:
            return
        link.behind = frozenset()
        # Whoever subscribes behind it now cannot say so.
        link.told_complete = False
        self.tell_reach()
        if link.outstanding.announces:
            # What it was told last may not have arrived: its interest in that is not known.
            self.lose_track(link)
        self._subscriptions.installations.again(link.outstanding.disconnected())

    def retire(self, link: Link) -> None:
        """This broker has said goodbye; the driver says when the connection has ended."""
        self._step(link, LinkStep.GOODBYE)

    def review_waiting(self) -> None:
        """Give up sessions for which too many messages wait, and waiting for what does not come."""
        oldest_us = self._postroom.now_us - self._settings.recovery_us_max
        for link in self.links.values():
            overdue = link.since_us <= oldest_us
            if overdue and link.holding and not link.channel.passing:
                # Whatever is not acknowledged delivery waits no longer for those behind this neighbour
                # who are not there.
                link.channel.passing = True
                self._postroom.changed(link)
            if overdue and link.down:
                self._subscriptions.stop_waiting(link)
            messages_max = self._settings.link_messages_max
            if link.stage is LinkStage.SUSPENDED and link.channel.waiting_messages > messages_max:
                self._step(link, LinkStep.FORGOTTEN)
                link.agreed = ""
                self._subscriptions.forget_session(link)

    # Synchronising.

    def sync_begins(self, link: Link) -> None:
        """The neighbour is about to say everything."""
        self._subscriptions.mark_stale(link)

    def tables_complete(self, link: Link) -> None:
        """The neighbour has said everything."""
        current = link.current
        self._step(link, LinkStep.COMPLETE)
        if not current:
            link.outstanding.catch_up()
        if link.stage is LinkStage.HELD:
            # It opens once it has confirmed what it was told so far.
            self._subscriptions.when_confirmed([link], partial(self._open, link, link.session))
        if link.current and not current:
            self.tell_reach()

    def tables_incomplete(self, link: Link) -> None:
        """The neighbour has lost track of somebody."""
        self._step(link, LinkStep.INCOMPLETE)
        self.tell_reach()
        self.lose_track(link)

    def lose_track(self, link: Link) -> None:
        """Somebody behind this link may be interested in what we have not heard of."""
        if not link.unknown:
            link.unknown = True
            self.tell_completeness()

    def _open(self, link: Link, session: int) -> None:
        """Its interest is known now: of what was kept for it, what it wants can go."""
        if link.session != session or link.stage is not LinkStage.HELD:
            return
        self._subscriptions.drop_stale(link)
        self.when_complete(link)
        self._step(link, LinkStep.CONFIRMED)
        for release in link.channel.refilter(partial(self._wanted, link)):
            release()
        self._postroom.caught_up(link)
        self._postroom.changed(link)
        link.unknown = False
        if not link.met:
            link.met = True
            self.when_known(link)
        self.tell_completeness()

    def _wanted(self, link: Link, batch: PublicationBatch) -> PublicationBatch | None:
        """What somebody behind a link wants of a batch that was kept whether they did or not."""
        if batch.route:
            return batch  # somebody who knew has decided that it is for brokers there
        rows = self._subscriptions.tables.wanted_behind(link.name, batch)
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
        unmet = set(self.reachability.unmet())
        for address in sorted(unmet - self._strangers.keys()):
            self._strangers[address] = self._new_link(address)
        for address in sorted(self._strangers.keys() - unmet):
            stranger = self._strangers.pop(address)
            self._step(stranger, LinkStep.REMOVED)
            name = self.dialling.name_of(address)
            link = self.links.get(name)
            if link is None:
                self._route_again(stranger, name)
            else:
                for batch, care in stranger.channel.withdraw():
                    wanted = batch if link.holding else self._wanted(link, batch)
                    if name in self.came_from(batch):
                        # As a repetition it would be settled when its first copy is, and that one waits here.
                        wanted = None
                    if wanted is not None:
                        self._postroom.pass_on(link, wanted, care, None)
                    elif care is not None:
                        care()
            self._postroom.forget(stranger)

    def tell_completeness(self) -> None:
        """Tell every neighbour whether we know of everybody behind all others."""
        unknown = sum(link.unknown for link in self.links.values())
        # Without limit, as for those whose names are known: a neighbour that hears that nobody is behind us
        # would forget those behind one that is away.
        unmet = bool(self.reachability.unmet())
        for link in self.links.values():
            complete = not unmet and unknown == link.unknown
            if complete and not link.told_complete and self._subscriptions.tables.telling(link.name):
                continue  # not everything has been said yet
            if link.agreed and link.channel.connected and complete != link.told_complete:
                link.told_complete = complete
                self._postroom.tell(link, TablesComplete() if complete else TablesIncomplete())
        self.review_readiness()

    def review_readiness(self) -> None:
        """Become ready once all neighbours have spoken, or have been waited for long enough."""
        if self.ready or self.started_at_us is None:
            return
        over = self._postroom.now_us >= self.started_at_us + self._settings.recovery_us_max
        if over or (not self.reachability.unmet() and all(link.met for link in self.links.values())):
            self.ready = True
            self._postroom.note("info", "ready", links=len(self.links), waited_for_all=not over)
            self.when_ready()

    # Reach.

    def reaches(self, link: Link, brokers: Iterable[str], missing: Sequence[str]) -> None:
        """A neighbour says whom it connects us to, and which links are missing there."""
        self.reachability.require_no_loop(link.name, brokers)
        self.reachability.heard(link, brokers, missing)
        self.tell_reach()

    def _moved(self, name: str) -> None:
        """A neighbour itself, and not somebody else, says that there is another way to it now."""
        link = self.links.get(name)
        if link is not None and link.connection is None and name in self.reachability.reach(link):
            self._postroom.note(
                "info", "a neighbour has moved", neighbour=name, waiting_bytes=link.channel.backlog_bytes
            )
            self.drop(link)
            self.when_gone(link)

    def tell_reach(self) -> None:
        """Tell every neighbour whom we connect it to and whom not, if that has changed."""
        self._review_strangers()
        self.reachability.tell()
        self._subscriptions.installations.links_changed()
        self.when_reach()

    # Joining and leaving.

    def append(self, address: str) -> None:
        """Link to one more broker."""
        self.dialling.remember(address)
        self.tell_reach()

    def forget_neighbours(self) -> None:
        """Dial nobody any more."""
        for address in list(self.dialling.neighbours):
            self.dialling.forget(address)
        self.tell_reach()

    def forget_address(self, address: str) -> bool:
        """Dial an address no more; False if there is no neighbour to be met there."""
        if address not in self.reachability.unmet():
            return False
        self.dialling.forget(address)
        self.tell_reach()
        return True

    def remove(self, link: Link) -> None:
        """The neighbour has left the network."""
        self.dialling.forget_broker(link.name)
        self.drop(link)

    def drop(self, link: Link) -> None:
        """The link is no more: what is kept for it goes, and what came from it too."""
        del self.links[link.name]
        self._step(link, LinkStep.REMOVED)
        self._subscriptions.remove_link(link)
        self.when_dropped(link)
        # Only now: what waited is routed at once, by tables and maps without the link.
        self._subscriptions.stop_waiting(link)
        self._route_again(link, link.name)
        self._postroom.forget(link)
        self.tell_reach()
        self.tell_completeness()

    def _route_again(self, link: Link, name: str) -> None:
        """Send what waited for a broker the way there is to it now, if there is one."""
        elsewhere = name in self.reachability.reach()
        for batch, care in link.channel.withdraw():
            if batch.route:
                self.when_stranded(batch, care)
            elif elsewhere:
                self.when_stranded(batch.readdressed(route=packed_destinations([digest_of(name)])), care)
            elif care is not None:
                care()


def _nothing() -> None:
    """Nobody wants to hear."""


def _nowhere(batch: PublicationBatch) -> Container[str]:
    """Nobody knows where it came from."""
    return ()


def _nothing_begun(link: Link, delta: int) -> None:
    """Nobody wants to hear."""


def _nothing_about(link: Link) -> None:
    """Nobody wants to hear."""


def _nothing_stranded(batch: PublicationBatch, care: Release | None) -> None:
    """Nobody takes care of it."""
    if care is not None:
        care()
