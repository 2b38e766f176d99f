"""What happens when somebody subscribes, advertises, or takes it back?

Tables say whom else to tell; the answer to a request waits until all of those have confirmed
(`confirmations`), so that a subscription that was answered is installed everywhere. For an advertisement a
link that is down is waited for a while. Then the answer is given without it, and what is behind it counts
as unknown until it comes up: acknowledged publications are kept for it, and its two ends synchronise before
any publication crosses it.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from braid.broker.access import ANONYMOUS
from braid.broker.confirmations import Countdown, Installation, Installations
from braid.broker.parties import Client, ClientDestination, Link, class_of
from braid.errors import FilterError, RequestRefusedError, UnreachedError
from braid.language import Filter
from braid.language.memory import Memory
from braid.matching import FilterIndex
from braid.protocol.limits import carried_bytes
from braid.protocol.messages import Advertise, Done, Failed, Subscribe, Unadvertise, Unsubscribe
from braid.routing import ANYTHING, Anchor, RoutingTables, Verb

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence

    from braid.broker.parties import Party
    from braid.broker.postroom import Postroom
    from braid.matching import Matcher
    from braid.protocol.codec import Body
    from braid.protocol.messages import Message, SubscribeDurable
    from braid.routing import Tell

__all__ = ["REASON_LENGTH_MAX", "SubscriptionDesk", "read_filter", "unreached"]

# An error may quote a filter; so many characters of it are told.
REASON_LENGTH_MAX = 4_096
# What a character takes at most.
UTF8_BYTES_MAX = 4

# Characters of a filter that the audit log shows.
FILTER_SHOWN_MAX = 300
# Subscriptions that are removed together when a client leaves: a few milliseconds.
LEAVING_PER_STEP = 16


class SubscriptionDesk:
    """Keeps the routing tables, and the neighbours informed."""

    def __init__(
        self,
        broker_id: str,
        postroom: Postroom,
        links: Mapping[str, Link],
        matcher: Matcher | None = None,
    ) -> None:
        self.tables = RoutingTables(matcher)
        self.missing: Callable[[], Sequence[str]] = tuple
        """The links of the network that are not there, as far as is known here."""
        self.when_caught_up: Callable[[Link], None] = _ignore
        """Called when a neighbour may have confirmed what it was told when it came up."""
        self.installations = Installations(self.tables, links, lambda: self.missing())
        self.universal = False
        """Everybody knows that anything may be published here."""
        self._universal_asked = False
        self._universal_key = f"{broker_id}/*"
        # What is ours nobody else can tell us about. A neighbour may try, when we were linked elsewhere
        # before and it remembers us from there.
        self._own = f"{broker_id}/"
        self._universal_waiting: list[Callable[[], None]] = []
        self.lose_track: Callable[[Link], None] = _ignore
        """Called for a link that could not be asked who is interested behind it."""
        self.when_advertised: Callable[[Client], None] = _ignore
        """Called when everybody knows what a client says it publishes."""
        self.when_told: Callable[[], None] = lambda: None
        """Called when neighbours know what they were to be told step by step."""
        self._postroom = postroom
        self._links = links
        self._requests = 0
        self._renamed = 0
        self._leaving: list[str] = []
        """Subscriptions of clients that have left, which are still in the tables."""
        self._leaving_advertisements: list[str] = []
        self._dropping: dict[Link, list[str]] = {}
        """What neighbours did not repeat, the first ones last."""
        self._until_told: dict[str, list[Callable[[], None]]] = {}
        """By neighbour: who waits until it knows what its advertisements meet."""
        self._far = postroom.settings.delta > 1
        """Whether this broker sees further than its neighbours, so that anchors mean something to it."""

    # From clients.

    def subscribe_client(self, client: Client, message: Subscribe) -> None:
        """A client subscribes; it hears `Done` with the filter that is in force."""
        number = class_of(message.when_full)
        try:
            if number is None:
                raise RequestRefusedError(
                    f"when_full is 'block', 'drop_oldest' or 'disconnect', not {message.when_full!r}"
                )
            if message.key not in client.subscriptions:
                self._postroom.quotas.require_subscription(client.principal)
            filter = client.principal.permitted_subscription(client.principal.asked_filter(message.filter))
            self.require_carried(filter)
        except (FilterError, RequestRefusedError) as error:
            self.fail(client, message.request, error)
            return
        self._granted(client, "subscription", filter)
        former = client.subscriptions.get(message.key)
        key = former or f"{client.key}/{message.key}"
        if self.tables.hides_many(key):
            # What it hides is revealed step by step, so the neighbours still need it under this name.
            self._renamed += 1
            key = f"{client.key}/{message.key}~{self._renamed}"
        client.subscriptions[message.key] = key
        if former is None:
            self._postroom.quotas.subscribed(client.principal)
        destination = client.destinations.get(number)
        if destination is None:
            destination = client.destinations[number] = ClientDestination(client, number)
        self.install(
            Installation(
                key,
                None,
                done=lambda missing: self._done(client, message.request, filter.text, missing),
                late=lambda missing: self._unreached(client, message, unreached(missing)),
                refused=lambda error: self._unreached(client, message, error),
                partial=message.partial,
                deadline_us=self.deadline_of(message),
            ),
            filter,
            destination,
        )
        if former is not None and former != key:
            self.withdraw(former)

    def deadline_of(self, message: Subscribe | SubscribeDurable) -> int | None:
        """When a client's patience ends."""
        return self._postroom.now_us + message.patience_us if message.patience_us > 0 else None

    def require_carried(self, filter: Filter) -> None:
        """Refuse a filter that does not fit into a message to a neighbour."""
        size = len(filter.text.encode())
        limits = (link.channel.frame_bytes_max for link in self._links.values())
        size_max = carried_bytes(min((self._postroom.settings.frame_bytes_max, *limits)))
        if size > size_max:
            raise RequestRefusedError(
                f"the filter in force takes {size:,} bytes, and no more than {size_max:,} can be told to "
                "other brokers: divide it into several",
                "limit",
            )

    def _unreached(self, client: Client, message: Subscribe, error: RequestRefusedError) -> None:
        key = client.subscriptions.pop(message.key, None)
        if key is not None:
            self._postroom.quotas.subscribed(client.principal, -1)
            self.withdraw(key)
        self.fail(client, message.request, error)

    def _granted(self, client: Client, what: str, filter: Filter) -> None:
        """For the audit log, where clients are somebody."""
        if client.principal.name != ANONYMOUS:
            self._postroom.audit(
                "debug",
                f"{what} granted",
                client=client.name,
                principal=client.principal.name,
                filter=filter.text[:FILTER_SHOWN_MAX],
            )

    def unsubscribe_client(self, client: Client, message: Unsubscribe) -> None:
        """A client unsubscribes."""
        key = client.subscriptions.pop(message.key, None)
        if key is None:
            error = RequestRefusedError(f"no subscription {message.key!r} on this connection", "unknown")
            self.fail(client, message.request, error)
            return
        self._postroom.quotas.subscribed(client.principal, -1)
        self.withdraw(key)
        self._done(client, message.request)

    def advertise_client(self, client: Client, message: Advertise) -> None:
        """A client says what it may publish."""
        try:
            filter = client.principal.permitted_advertisement(client.principal.asked_filter(message.filter))
            self.require_carried(filter)
            if client.advertised is None:
                client.advertised = FilterIndex()
            elif message.key in client.advertised:
                client.advertised.remove(message.key)
            client.principal.limits.require_subscription(len(client.advertised), "advertisements")
        except (FilterError, RequestRefusedError) as error:
            self.fail(client, message.request, error)
            return
        self._granted(client, "advertisement", filter)
        client.advertised.add(message.key, filter)
        client.advertising += 1
        tells = self.tables.advertise([(f"{client.key}/{message.key}", filter)], client, link=False)

        def known() -> None:
            client.advertising -= 1
            self._done(client, message.request, filter.text)
            self.when_advertised(client)

        self._answer_when_known(tells, known)

    def unadvertise_client(self, client: Client, message: Unadvertise) -> None:
        """A client takes an advertisement back."""
        if client.advertised is None or message.key not in client.advertised:
            error = RequestRefusedError(f"no advertisement {message.key!r} on this connection", "unknown")
            self.fail(client, message.request, error)
            return
        client.advertised.remove(message.key)
        self._inform(self.tables.unadvertise([f"{client.key}/{message.key}"]))
        self._done(client, message.request)

    def client_left(self, client: Client) -> None:
        """Everything of this client goes."""
        for key in client.subscriptions.values():
            self.installations.cancel(key, None)
        self._leaving += client.subscriptions.values()
        if client.advertised is not None:
            self._leaving_advertisements += [f"{client.key}/{key}" for key in client.advertised]
        self._let_leave()

    # Long work.

    @property
    def unfinished(self) -> bool:
        """Whether there is something left for `step`."""
        return bool(self._leaving or self._leaving_advertisements or self._dropping or self.tables.unfinished)

    def step(self) -> None:
        """Go on with what would have taken too long at once."""
        self._let_leave()
        for link in list(self._dropping):
            self._drop_some(link)
        if self.tables.unfinished:
            self._inform(self.tables.step())
            for name in [name for name in self._until_told if not self.tables.telling(name)]:
                for done in self._until_told.pop(name):
                    done()
            if not self.tables.unfinished:
                self.when_told()

    def _let_leave(self) -> None:
        """Remove some of what belonged to clients that have left.

        The latest go first: what was subscribed first hides others, which would have to be told for a moment.
        """
        leaving = self._leaving[-LEAVING_PER_STEP:]
        del self._leaving[-LEAVING_PER_STEP:]
        self._inform(self.tables.unsubscribe(leaving))
        if not leaving and self._leaving_advertisements:
            leaving = self._leaving_advertisements[-LEAVING_PER_STEP:]
            del self._leaving_advertisements[-LEAVING_PER_STEP:]
            self._inform(self.tables.unadvertise(leaving))

    def _when_told(self, link: Link, done: Callable[[], None]) -> None:
        """Call `done` once a neighbour knows all subscriptions that its advertisements meet."""
        if not self.tables.telling(link.name):
            done()
            return
        session = link.session

        def answer() -> None:
            if link.session == session:
                done()

        self._until_told.setdefault(link.name, []).append(answer)

    # From links.

    def subscribe_link(self, link: Link, messages: Sequence[Subscribe]) -> None:
        """A neighbour subscribes for whoever is behind it."""
        items: list[tuple[str, Filter]] = []
        for message in messages:
            if not message.key.startswith(self._own):
                filter = self._filter_of(link, message)
                if filter is not None:
                    items.append((message.key, filter))
        read = {key for key, _ in items}
        anchors = (
            {message.key: Anchor(message.anchor or link.name, message.exact) for message in messages}
            if self._far
            else None
        )
        tells = self.tables.subscribe(items, link.name, link=True, anchors=anchors)
        link.stale_subscriptions.difference_update(message.key for message in messages)
        self._inform(tells)
        for message in messages:
            if message.key.startswith(self._own):
                self._done(link, message.request)
            elif message.key in read:
                self.installations.begin(
                    Installation(
                        message.key,
                        link.name,
                        done=partial(self._installed_for, link, link.session, message.request),
                        refused=partial(self.fail, link, message.request),
                    )
                )

    def _installed_for(self, link: Link, session: int, request: int, missing: list[str]) -> None:
        if link.session == session:
            self._done(link, request)

    def unsubscribe_link(self, link: Link, message: Unsubscribe) -> None:
        """A neighbour takes a subscription back."""
        self.installations.cancel(message.key, link.name)
        self._inform(self.tables.unsubscribe([message.key], origin=link.name))
        self._done(link, message.request)

    def advertise_link(self, link: Link, message: Advertise) -> None:
        """A neighbour advertises for whoever is behind it."""
        if message.key.startswith(self._own):
            self._done(link, message.request)
            return
        filter = self._filter_of(link, message)
        if filter is None:
            return
        link.stale_advertisements.discard(message.key)
        tells = self.tables.advertise([(message.key, filter)], link.name, link=True)
        done = partial(self._done, link, message.request)
        self._answer_when_known(tells, partial(self._when_told, link, done), but=link)

    def unadvertise_link(self, link: Link, message: Unadvertise) -> None:
        """A neighbour takes an advertisement back."""
        self._inform(self.tables.unadvertise([message.key], origin=link.name))
        self._done(link, message.request)

    def confirmed(self, link: Link, request: int) -> None:
        """A neighbour has carried out what it was told."""
        self.installations.again(link.outstanding.confirmed(request))
        self.when_caught_up(link)

    def refused(self, link: Link, request: int, reason: str) -> None:
        """A neighbour cannot carry out what it was told: whoever asked for it hears so."""
        error = RequestRefusedError(f"the broker {link.name!r} refuses the filter: {reason}", "refused")
        self.installations.refuse(link.outstanding.refused(request), error)
        self.confirmed(link, request)

    def _filter_of(self, link: Link, message: Subscribe | Advertise) -> Filter | None:
        """What a neighbour's message is about; None for what cannot be read, which is answered so.

        One that keeps to the rules has read it before. Cutting the link would not make it readable, and
        everybody behind it would suffer.
        """
        try:
            return read_filter(message.filter)
        except FilterError as error:
            self._postroom.counters.unreadable += 1
            self._postroom.note(
                "error",
                "a filter from a neighbour cannot be read",
                neighbour=link.name,
                key=message.key,
                reason=str(error)[:REASON_LENGTH_MAX],
            )
            self.fail(link, message.request, error)
            return None

    def forget_session(self, link: Link) -> None:
        """The session is over: whoever waits for a confirmation waits for the next session."""
        link.outstanding.session_lost()

    def stop_waiting(self, link: Link) -> None:
        """The link is down too long: what was advertised does not wait for it any more."""
        link.outstanding.give_up_announcements()

    def synchronise(self, link: Link) -> None:
        """Tell a neighbour everything it should know, in a session that has just begun."""
        if self._far:
            # It may see further than in the last one, or less far.
            self.tables.reanchor(link.name)
        self._inform(self.tables.tell_anew(link.name))
        link.outstanding.session_begun()

    def mark_stale(self, link: Link) -> None:
        """The neighbour is about to say everything anew: what it does not repeat will be stale."""
        self._dropping.pop(link, None)
        subscriptions, advertisements = self.tables.from_link(link.name)
        link.stale_subscriptions = set(subscriptions)
        link.stale_advertisements = set(advertisements)

    def drop_stale(self, link: Link) -> None:
        """The neighbour has said everything: what it did not repeat goes."""
        for key in link.stale_subscriptions:
            self.installations.cancel(key, link.name)
        self._dropping[link] = sorted(link.stale_subscriptions, reverse=True)
        self._drop_some(link)
        self._inform(self.tables.unadvertise(sorted(link.stale_advertisements), origin=link.name))
        link.stale_advertisements = set()

    def _drop_some(self, link: Link) -> None:
        """Remove some of what a neighbour did not repeat; what it has repeated since stays."""
        keys = self._dropping[link]
        going = [key for key in reversed(keys[-LEAVING_PER_STEP:]) if key in link.stale_subscriptions]
        del keys[-LEAVING_PER_STEP:]
        link.stale_subscriptions.difference_update(going)
        self._inform(self.tables.unsubscribe(going, origin=link.name))
        if not keys:
            del self._dropping[link]

    def remove_link(self, link: Link) -> None:
        """The link is no more, and nothing comes from behind it."""
        self._dropping.pop(link, None)
        for key in self.tables.from_link(link.name)[0]:
            self.installations.cancel(key, link.name)
        self._inform(self.tables.remove_link(link.name))

    # For everybody.

    def install(self, installation: Installation, filter: Filter, destination: Hashable) -> None:
        """Add a subscription of somebody here."""
        self._inform(self.tables.subscribe([(installation.key, filter)], destination, link=False))
        self.installations.begin(installation)

    def retarget(self, key: str, filter: Filter, destination: Hashable) -> None:
        """Give what a subscription of somebody here gets to another destination."""
        self._inform(self.tables.subscribe([(key, filter)], destination, link=False))

    def withdraw(self, key: str) -> None:
        """Remove a subscription of somebody here."""
        self.installations.cancel(key, None)
        self._inform(self.tables.unsubscribe([key]))

    def announce_anything(self, then: Callable[[], None] | None = None) -> None:
        """Tell everybody, once, that anything may be published here; `then` is called when they know."""
        if self.universal:
            if then is not None:
                then()
            return
        if then is not None:
            self._universal_waiting.append(then)
        if not self._universal_asked:
            self._universal_asked = True
            tells = self.tables.advertise([(self._universal_key, ANYTHING)], self, link=False)
            self._answer_when_known(tells, self._universal_known)

    def _universal_known(self) -> None:
        self.universal = True
        waiting, self._universal_waiting = self._universal_waiting, []
        for then in waiting:
            then()

    def fail(self, party: Party, request: int, error: Exception) -> None:
        """Answer a request with what was wrong with it."""
        code = error.code if isinstance(error, RequestRefusedError) else "filter"
        self._postroom.tell(party, Failed(request, code, str(error)[:REASON_LENGTH_MAX]))
        if code in ("denied", "limit"):
            principal = party.principal.name if isinstance(party, Client) else party.name
            self._postroom.audit(
                "warning",
                "request refused",
                party=party.name,
                principal=principal,
                code=code,
                reason=str(error),
            )

    # Telling and waiting.

    def _done(self, party: Party, request: int, text: str = "", missing: Sequence[str] = ()) -> None:
        if party.connection is not None or isinstance(party, Link):
            self._postroom.tell(party, Done(request, text, list(missing)))

    def _inform(self, tells: Iterable[Tell]) -> None:
        moved: list[Installation] = []
        untold: dict[Link, None] = {}
        for tell in tells:
            link = self._links.get(tell.link)
            # Without a session it hears everything when the next one begins; one whose session may be
            # resumed hears it then, as long as not too much has come together.
            if link is None or not link.agreed:
                continue
            self._requests += 1
            message = _message_of(tell, self._requests)
            if tell.filter is not None and not self._fits(link, tell.filter.text):
                self._leave_out(link, tell.key)
                continue
            if tell.verb is Verb.SUBSCRIBE:
                link.outstanding.told_subscription(tell.key, self._requests)
            elif tell.verb is Verb.UNSUBSCRIBE:
                moved.extend(link.outstanding.untold_subscription(tell.key))
                untold[link] = None
            # What an advertisement was for may still wait for the link. If the advertisement went first, or
            # became narrower, the subscriptions on the way would go before it comes.
            in_line = tell.verb is Verb.UNADVERTISE
            if tell.verb is Verb.ADVERTISE:
                known = link.outstanding.told_advertisement(tell.key, self._requests)
                in_line = link.channel.retract(partial(_takes_back, tell.key)) or known
            elif tell.verb is Verb.UNADVERTISE:
                link.outstanding.untold_advertisement(tell.key)
            self._postroom.tell(link, message, in_line=in_line)
        self.installations.again(moved)
        for link in untold:
            self.when_caught_up(link)

    def _fits(self, link: Link, text: str) -> bool:
        """Whether a neighbour can be told of a filter."""
        bytes_max = carried_bytes(link.channel.frame_bytes_max)
        return len(text) * UTF8_BYTES_MAX <= bytes_max or len(text.encode()) <= bytes_max

    def _leave_out(self, link: Link, key: str) -> None:
        """A filter is too large for a neighbour that was met after it was accepted."""
        self._postroom.counters.oversized += 1
        self._postroom.note(
            "warning",
            "a filter is too large for a neighbour, which is not told of it",
            neighbour=link.name,
            key=key,
            frame_bytes_max=link.channel.frame_bytes_max,
        )

    def _answer_when_known(
        self, tells: Iterable[Tell], done: Callable[[], None], but: Link | None = None
    ) -> None:
        """Call `done` once every link knows all advertisements it was told so far."""
        self._inform(tells)
        links = [link for link in self._links.values() if link is not but]
        for link in links:
            # One that has begun anew and is not complete has not asked everybody behind it either.
            if not link.channel.connected or not link.said_complete:
                self.lose_track(link)
        self.when_confirmed([link for link in links if not self._given_up(link)], done)

    def when_confirmed(self, links: Iterable[Link], done: Callable[[], None]) -> None:
        """Call `done` once these links have confirmed all advertisements they were told so far."""
        countdown = Countdown(done)
        for link in links:
            link.outstanding.follow(countdown.one_more(), session=bool(link.agreed))
        countdown.one_less()

    def _given_up(self, link: Link) -> bool:
        """Whether a link is down for so long that nobody waits for it."""
        if link.down_since_us is None:
            return False
        return self._postroom.now_us - link.down_since_us >= self._postroom.settings.recovery_us_max


# The same filters come again: after a reconnection, and at every broker of a simulation. A filter that was
# taken apart takes up to some hundred bytes for a character of its text.
read_filter = Memory(Filter, characters_max=1 << 19)
"""The filter of a text, remembered."""


def unreached(missing: Sequence[str]) -> UnreachedError:
    """The error for a subscription that could not be installed everywhere in time."""
    return UnreachedError(
        f"the subscription did not reach the whole network in time; missing: {', '.join(missing)}. "
        "Ask again with more time or with partial=True; 'braid overlay forget' gives up a broker for good"
    )


def _takes_back(key: str, message: Body) -> bool:
    return isinstance(message, Unadvertise) and message.key == key


def _message_of(tell: Tell, request: int) -> Message:
    if tell.verb is Verb.UNSUBSCRIBE:
        return Unsubscribe(request, tell.key)
    if tell.verb is Verb.UNADVERTISE:
        return Unadvertise(request, tell.key)
    # As it was written: whoever reads it has accepted as much before, and a canonical text may be longer.
    text = tell.filter.text if tell.filter is not None else ""
    if tell.verb is Verb.ADVERTISE:
        return Advertise(request, tell.key, text)
    return Subscribe(request, tell.key, text, anchor=tell.anchor.broker, exact=tell.anchor.exact)


def _ignore(party: Party) -> None:
    """Nobody wants to hear."""
