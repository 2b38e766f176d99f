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

*Missing.* A link that is down or not up to date is missing to everybody: brokers pass its name on
(`Reach`), and subscriptions are not answered until it is there again or given up.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from braid.broker.dialling import Dialling
from braid.broker.parties import Link
from braid.errors import RemoteProtocolError, RequestRefusedError
from braid.protocol.destinations import digest_of, packed_destinations
from braid.protocol.messages import Reach, SyncBegin, TablesComplete, TablesIncomplete

if TYPE_CHECKING:
    import random
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from braid.broker.on_subscribe import SubscriptionDesk
    from braid.broker.parties import Party
    from braid.broker.postroom import Postroom
    from braid.broker.settings import BrokerSettings
    from braid.broker.settling import Pending
    from braid.protocol import PublicationBatch
    from braid.protocol.messages import Hello, Welcome

__all__ = ["LinkDesk"]

# A link that is down collects at most so many messages; then its next session begins anew.
WAITING_MESSAGES_MAX = 10_000

# Names of missing links that are told. More would say no more to people, and the first are enough to wait.
MISSING_MAX = 16


class LinkDesk:
    """Keeps the links."""

    def __init__(
        self,
        settings: BrokerSettings,
        incarnation: str,
        postroom: Postroom,
        random: random.Random,
        changed: Callable[[Party], None],
    ) -> None:
        self.links: dict[str, Link] = {}
        self._sessions = 0
        self.started_at_us: int | None = None
        self.holding = 0
        """How many links hold publications back."""
        self.ready = False
        """Clients' publications are accepted: the neighbours' tables are here, or waited for no more."""
        self._settings = settings
        self._incarnation = incarnation
        self._postroom = postroom
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
        self.when_stranded: Callable[[PublicationBatch, Pending | None], None] = _nothing_stranded
        """Called with a copy for a set of brokers that waited for a link that is no more."""
        self.when_reach: Callable[[], None] = _nothing
        """Called when there may be a way to other brokers than before."""
        self.when_gone: Callable[[Link], None] = _nothing_about
        """Called when a neighbour is none any more."""
        self.dialling = Dialling(settings, postroom, random, self.links, lambda: self.reach(None))
        self._strangers: dict[str, Link] = {}
        """What is kept for neighbours that have not been met since the start, by their addresses."""

    def bind(self, subscriptions: SubscriptionDesk) -> None:
        """The desk that keeps the tables, which in turn needs the links."""
        self._subscriptions = subscriptions
        subscriptions.lose_track = self.lose_track
        subscriptions.missing = self.missing
        subscriptions.when_caught_up = self._review_current

    def remember(self, known: Iterable[tuple[str, str]], met_at: Mapping[str, str] = {}) -> None:
        """Neighbours from before the last restart: what is theirs is kept until they speak.

        Those that we were told to dial while running are dialled again.
        """
        for broker_id, address in known:
            link = self._link(broker_id)
            link.address = met_at.get(broker_id, link.address)
            self._hold(link)
            if address:
                self.dialling.remember(address, broker_id)

    def _link(self, name: str) -> Link:
        link = self.links.get(name)
        if link is None:
            link = self.links[name] = Link(name, self._settings.link, self._changed)
            link.down_since_us = self._postroom.now_us
            self._subscriptions.tables.add_link(name)
        return link

    def begin(self, now_us: int) -> None:
        """The first moment of this life."""
        if self.started_at_us is None:
            self.started_at_us = now_us
            for link in self.links.values():
                link.down_since_us = now_us
            self.tell_reach()

    # Sessions.

    def accepted(self, hello: Hello) -> tuple[Link, bool]:
        """A broker says hello; returns its link, and whether the session goes on."""
        link = self._link(hello.name)
        resumed = bool(link.agreed) and hello.resumes == link.agreed
        link.address = hello.address or link.address
        # The dialler may never hear of a new one. Then it asks for another, and gets a newer one.
        self._sessions += 1
        self._begin(link, hello, "" if resumed else f"{self._incarnation}/{self._sessions}")
        return link, resumed

    def welcomed(self, address: str, welcome: Welcome, offered: str) -> tuple[Link, bool]:
        """A broker that we dialled says welcome; returns its link, and whether the session goes on.

        Args:
            address: where it was dialled.
            welcome: what it says.
            offered: the session that our greeting asked to go on with.

        Raises:
            RemoteProtocolError: it goes on with what was not offered.
            RequestRefusedError: what we offered has been given up since.
        """
        resumed = bool(welcome.resumes)
        if resumed and welcome.resumes != offered:
            raise RemoteProtocolError(f"{welcome.name!r} goes on with a session that it was not asked for")
        if not resumed and not welcome.session:
            raise RemoteProtocolError(f"{welcome.name!r} does not say which session begins")
        known = self.links.get(welcome.name)
        if resumed and (known is None or known.agreed != offered):
            raise RequestRefusedError(
                "the session was given up meanwhile; another one is to begin", "session"
            )
        link = self._link(welcome.name)
        self.dialling.met(address, welcome.name, linked=True)
        link.address = welcome.address or address
        self._begin(link, welcome, "" if resumed else welcome.session)
        return link, resumed

    def _begin(self, link: Link, greeting: Hello | Welcome, session: str) -> None:
        """Go on with the session there is, or begin the one of this name."""
        resumed = not session
        if resumed:
            link.again = link.channel.resume(greeting.received)
        link.down_since_us = None
        link.behind = frozenset({link.name, *greeting.brokers})
        self._hold(link)
        link.channel.passing, link.holding_since_us = False, self._postroom.now_us
        if resumed:
            self._postroom.changed(link)
            return
        link.agreed = ""  # nothing is told before the new one has begun
        self._subscriptions.forget_session(link)
        if link.channel.cares:
            # Their publishers may be gone, and their advertisements with them: so that everybody who
            # wants what is kept here says so, it is advertised in our own name.
            self._subscriptions.announce_anything()
        link.channel.restart(greeting.credit)
        link.line.clear()
        link.agreed, link.incarnation = session, greeting.incarnation
        link.session += 1
        self._postroom.tell(link, SyncBegin())

    def begun(self, link: Link, resumed: bool, delta: int) -> None:
        """The greeting is on its way; now say everything the neighbour should know."""
        self._notice_moved(link.behind)
        # What is sent again of a session that goes on may be older than the greeting: say it once more.
        link.told_missing, link.missing = None, ()
        self.tell_reach()
        if not resumed:
            self.when_begun(link, delta)
            self._subscriptions.synchronise(link)
        self.tell_completeness()

    def disconnected(self, link: Link) -> None:
        """The connection has gone; the session may go on later."""
        link.channel.disconnect()
        link.connection = None
        link.again = []
        link.behind = frozenset()
        link.down_since_us = self._postroom.now_us
        # Whoever subscribes behind it now cannot say so.
        link.said_complete = link.told_complete = link.current = False
        self.tell_reach()
        self._hold(link)
        if link.outstanding.announces:
            # What it was told last may not have arrived: its interest in that is not known.
            self.lose_track(link)
        self._subscriptions.installations.again(link.outstanding.disconnected())

    def review_waiting(self) -> None:
        """Give up sessions for which too many messages wait, and waiting for what does not come."""
        oldest_us = self._postroom.now_us - self._settings.recovery_us_max
        for link in self.links.values():
            if link.channel.holding and not link.channel.passing and link.holding_since_us <= oldest_us:
                # Whatever is not acknowledged delivery waits no longer for those behind this neighbour
                # who are not there.
                link.channel.passing = True
                self._postroom.changed(link)
            if link.down_since_us is not None:
                if link.down_since_us <= oldest_us:
                    self._subscriptions.stop_waiting(link)
                if link.agreed and link.channel.waiting_messages > WAITING_MESSAGES_MAX:
                    link.agreed = ""
                    self._subscriptions.forget_session(link)

    # Synchronising.

    def sync_begins(self, link: Link) -> None:
        """The neighbour is about to say everything."""
        self._subscriptions.mark_stale(link)

    def tables_complete(self, link: Link) -> None:
        """The neighbour has said everything."""
        link.said_complete = True
        link.outstanding.catch_up()
        self._review_open(link)
        self._review_current(link)

    def tables_incomplete(self, link: Link) -> None:
        """The neighbour has lost track of somebody."""
        link.said_complete = link.current = False
        self.tell_reach()
        self.lose_track(link)

    def lose_track(self, link: Link) -> None:
        """Somebody behind this link may be interested in what we have not heard of."""
        self._hold(link)
        if not link.unknown:
            link.unknown = True
            self.tell_completeness()

    def _hold(self, link: Link) -> None:
        if not link.channel.holding:
            self.holding += 1
            link.channel.holding, link.channel.passing = True, False
            link.holding_since_us = self._postroom.now_us

    def _review_open(self, link: Link) -> None:
        """Open the link once it has confirmed what it was told so far, if its tables are complete."""
        if link.said_complete and link.channel.holding and link.channel.connected:
            self._subscriptions.when_confirmed([link], partial(self._open, link, link.session))

    def _open(self, link: Link, session: int) -> None:
        """Its interest is known now: of what was kept for it, what it wants can go."""
        current = link.session == session and link.channel.connected
        if not (current and link.said_complete and link.channel.holding):
            return
        self._subscriptions.drop_stale(link)
        self.when_complete(link)
        self.holding -= 1
        link.channel.holding = link.channel.passing = False
        for care in link.channel.refilter(partial(self._wanted, link)):
            self._postroom.settlement.settle(care)
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
        yield from (link for link in self.links.values() if link.channel.holding)
        yield from self._strangers.values()

    def _review_strangers(self) -> None:
        """Begin to keep publications for neighbours that are to be met, and hand over what was kept."""
        unmet = set(self.dialling.unmet())
        for address in sorted(unmet - self._strangers.keys()):
            stranger = self._strangers[address] = Link(address, self._settings.link, self._changed)
            self._hold(stranger)
        for address in sorted(self._strangers.keys() - unmet):
            stranger = self._strangers.pop(address)
            self.holding -= 1
            name = self.dialling.name_of(address)
            link = self.links.get(name)
            if link is None:
                self._route_again(stranger, name)
            else:
                for batch, care in stranger.channel.withdraw():
                    wanted = batch if link.channel.holding else self._wanted(link, batch)
                    if wanted is not None:
                        self._postroom.pass_on((link,), [(wanted, care)], None)
                    self._postroom.settlement.settle(care)
            self._postroom.forget(stranger)

    def tell_completeness(self) -> None:
        """Tell every neighbour whether we know of everybody behind all others."""
        unknown = sum(link.unknown for link in self.links.values())
        unmet = self._unmet()
        for link in self.links.values():
            complete = not unmet and unknown == link.unknown
            if complete and not link.told_complete and self._subscriptions.tables.telling(link.name):
                continue  # not everything has been said yet
            if link.agreed and link.channel.connected and complete != link.told_complete:
                link.told_complete = complete
                self._postroom.tell(link, TablesComplete() if complete else TablesIncomplete())
        self.review_readiness()

    def _unmet(self) -> bool:
        """Whether there are neighbours to dial that have not been met, and there is time to wait for them."""
        if self.started_at_us is None:
            return bool(self.dialling.neighbours)
        if self._postroom.now_us >= self.started_at_us + self._settings.recovery_us_max:
            return False
        return bool(self.dialling.unmet())

    def review_readiness(self) -> None:
        """Become ready once all neighbours have spoken, or have been waited for long enough."""
        if self.ready or self.started_at_us is None:
            return
        over = self._postroom.now_us >= self.started_at_us + self._settings.recovery_us_max
        if over or (not self._unmet() and all(link.met for link in self.links.values())):
            self.ready = True
            self._postroom.note("info", "ready", links=len(self.links), waited_for_all=not over)
            self.when_ready()

    # Loops.

    def reach(self, besides: Link | None) -> frozenset[str]:
        """The brokers that can be reached through us, without those behind one link."""
        others = [link.behind for link in self.links.values() if link is not besides]
        return frozenset({self._settings.broker_id}).union(*others)

    def require_no_loop(self, name: str, brokers: Iterable[str]) -> None:
        """Refuse a link that would connect what is connected already: the network must stay a tree.

        Raises:
            RequestRefusedError: which brokers there is a way to already.
        """
        behind = frozenset({name, *brokers})
        common = behind & self.reach(self.links.get(name))
        if common:
            raise RequestRefusedError(
                f"a link between {self._settings.broker_id} and {name} would close a loop: "
                f"there is a way to {', '.join(sorted(common)[:5])} already",
                "loop",
            )

    def reaches(self, link: Link, brokers: Iterable[str], missing: Sequence[str]) -> None:
        """A neighbour says whom it connects us to, and which links are missing there."""
        self.require_no_loop(link.name, brokers)
        link.behind = frozenset({link.name, *brokers})
        link.missing = tuple(missing[:MISSING_MAX])
        self._notice_moved(link.behind)
        self.tell_reach()

    def _notice_moved(self, reached: frozenset[str]) -> None:
        """Others say that former neighbours are behind them now. That is hearsay: what waits for such a one
        stays until it says so itself, or an operator does."""
        for name in sorted(reached & self.links.keys()):
            moved = self.links[name]
            if moved.connection is None and not moved.elsewhere:
                moved.elsewhere = True
                self._postroom.note(
                    "warning",
                    "a neighbour that is missing is said to be elsewhere; 'braid overlay forget' sends there "
                    "what waits for it here",
                    neighbour=name,
                    waiting_bytes=moved.channel.backlog_bytes,
                )

    def moved(self, name: str) -> None:
        """A neighbour itself, and not somebody else, says that there is another way to it now."""
        link = self.links.get(name)
        if link is not None and link.connection is None and name in self.reach(link):
            self._postroom.note(
                "info", "a neighbour has moved", neighbour=name, waiting_bytes=link.channel.backlog_bytes
            )
            self.drop(link)
            self.when_gone(link)

    def tell_reach(self) -> None:
        """Tell every neighbour whom we connect it to and whom not, if that has changed."""
        self._review_strangers()
        for link in self.links.values():
            if not link.channel.connected:
                continue
            reach, missing = self.reach(link), self.missing(link)
            if reach != link.told_reach or missing != link.told_missing:
                link.told_reach, link.told_missing = reach, missing
                self._postroom.tell(link, Reach(sorted(reach), list(missing)))
        self._subscriptions.installations.links_changed()
        self.when_reach()

    def toward(self, broker: str) -> str | None:
        """The neighbour behind which a broker is; None if there is no way to it."""
        return next((name for name, link in self.links.items() if broker in link.behind), None)

    def missing(self, besides: Link | None = None) -> tuple[str, ...]:
        """The links that are not there, or not up to date yet, without those behind one link."""
        names: dict[str, None] = {}
        for link in self.links.values():
            if link is besides:
                continue
            names.update(dict.fromkeys(link.missing))
            if not link.channel.connected or not (link.current or link.missing):
                names[f"{self._settings.broker_id} to {link.name}"] = None
        names.update((f"{self._settings.broker_id} to {address}", None) for address in self.dialling.unmet())
        return tuple(sorted(names)[:MISSING_MAX])

    def _review_current(self, link: Link) -> None:
        """A neighbour that knows everything, and of which everything is known, is missing no more."""
        if link.said_complete and not link.outstanding.catching_up and not link.current:
            link.current = True
            self.tell_reach()

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
        if address not in self.dialling.unmet():
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
        self.holding -= link.channel.holding
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
        elsewhere = name in self.reach(None)
        for batch, care in link.channel.withdraw():
            if batch.route:
                self.when_stranded(batch, care)
            elif elsewhere:
                self.when_stranded(batch.readdressed(route=packed_destinations([digest_of(name)])), care)
            self._postroom.settlement.settle(care)

    def prefer(self, link: Link, dialled: bool) -> bool:
        """Two connections to one neighbour: whether the new one replaces the one that is there.

        A second one from the same side means that the first is dead and we have not noticed. If both
        sides dialled, the one from the broker with the smaller id stays.
        """
        if link.connection is None or link.dialled == dialled:
            return True
        ours_is_kept = self._settings.broker_id < link.name
        return dialled == ours_is_kept

    def require_other(self, name: str) -> None:
        """Refuse to be our own neighbour."""
        if name == self._settings.broker_id:
            raise RemoteProtocolError(f"this broker is called {name!r} too; ids must differ")


def _nothing() -> None:
    """Nobody wants to hear."""


def _nothing_begun(link: Link, delta: int) -> None:
    """Nobody wants to hear."""


def _nothing_about(link: Link) -> None:
    """Nobody wants to hear."""


def _nothing_stranded(batch: PublicationBatch, care: Pending | None) -> None:
    """Nobody takes care of it."""
