"""What happens when a client or a neighbour subscribes, advertises, or takes it back?

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
from braid.broker.confirmations import Installation, Installations, when_confirmed
from braid.broker.events import Advertised, AnythingExpected, CaughtUp, NeighboursTold, TrackLost
from braid.broker.parties import Client, ClientDestination, Link, class_of
from braid.broker.tells import carried, message_of, takes_back
from braid.broker.turn import REASON_LENGTH_MAX
from braid.broker.waiters import Waiter, WaiterKind
from braid.errors import FilterError, RequestRefusedError
from braid.language.reading import read_filter
from braid.matching import FilterIndex
from braid.protocol.limits import carried_bytes
from braid.protocol.messages import Advertise, Done, Failed, Subscribe, Unadvertise, Unsubscribe
from braid.routing import ANYTHING, Anchor, Verb

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence

    from braid.broker.events import (
        Announced,
        ClientLeft,
        Events,
        Installed,
        LinkAbandoned,
        LinkBegun,
        LinkOpening,
        LinkRemoved,
        NotInstalled,
        ReachChanged,
    )
    from braid.broker.parties import Party
    from braid.broker.turn import Turn
    from braid.language import Filter
    from braid.protocol.messages import SubscribeDurable
    from braid.routing import RoutingTables, Tell

__all__ = ["Subscriptions"]

# Characters of a filter that the audit log shows.
FILTER_SHOWN_MAX = 300
# Subscriptions that are removed together when a client leaves: a few milliseconds.
LEAVING_PER_STEP = 16


class Subscriptions:
    """Keeps the routing tables, and the neighbours informed."""

    def __init__(
        self,
        broker_id: str,
        turn: Turn,
        links: Mapping[str, Link],
        tables: RoutingTables,
        events: Events,
        missing: Callable[[], Sequence[str]],
    ) -> None:
        """
        Args:
            broker_id: this broker.
            turn: where answers go, and what neighbours are told.
            links: the neighbours by their names.
            tables: say whom to tell what.
            events: tells others what has changed.
            missing: the links of the network that are not there, as far as is known here.
        """
        self.tables = tables
        self.installations = Installations(tables, links, missing, events)
        self.universal = False
        """Everybody knows that anything may be published here."""
        self._universal_asked = False
        self._universal_key = f"{broker_id}/*"
        # What is ours nobody else can tell us about. A neighbour may try, when we were linked elsewhere
        # before and it remembers us from there.
        self._own = f"{broker_id}/"
        self._universal_waiting: list[Client] = []
        """Clients whose publications go their way when everybody knows that."""
        self._turn = turn
        self._events = events
        self._links = links
        self._requests = 0
        self._renamed = 0
        self._leaving: list[str] = []
        """Subscriptions of clients that have left, which are still in the tables."""
        self._leaving_advertisements: list[str] = []
        self._dropping: dict[Link, list[str]] = {}
        """What neighbours did not repeat, the first ones last."""
        self._until_told: dict[str, list[Waiter]] = {}
        """By neighbour: who waits until it knows what its advertisements meet."""
        self.ahead: dict[str, Link] = {}
        """Links that an operation makes, and whose other ends are told everything beforehand."""
        self._far = turn.settings.delta > 1
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
                self._turn.quotas.require_subscription(client.principal)
            filter = client.principal.permitted_subscription(client.principal.asked_filter(message.filter))
            self.require_carried(filter)
        except (FilterError, RequestRefusedError) as error:
            self._turn.fail(client, message.request, error)
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
            self._turn.quotas.subscribed(client.principal)
        destination = client.destinations.get(number)
        if destination is None:
            destination = client.destinations[number] = ClientDestination(client, number)
        self.install(
            Installation(
                key,
                None,
                Waiter(
                    WaiterKind.CLIENT_SUBSCRIPTION, client, message.key, message.request, text=filter.text
                ),
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
        return self._turn.now_us + message.patience_us if message.patience_us > 0 else None

    def require_carried(self, filter: Filter) -> None:
        """Refuse a filter that does not fit into a message to a neighbour."""
        size = len(filter.text.encode())
        limits = (link.channel.frame_bytes_max for link in self._links.values())
        size_max = carried_bytes(min((self._turn.settings.frame_bytes_max, *limits)))
        if size > size_max:
            raise RequestRefusedError(
                f"the filter in force takes {size:,} bytes, and no more than {size_max:,} can be told to "
                "other brokers: divide it into several",
                "limit",
            )

    def _unreached(self, client: Client, name: str, request: int, error: RequestRefusedError) -> None:
        key = client.subscriptions.pop(name, None)
        if key is not None:
            self._turn.quotas.subscribed(client.principal, -1)
            self.withdraw(key)
        self._turn.fail(client, request, error)

    def _granted(self, client: Client, what: str, filter: Filter) -> None:
        """For the audit log, where clients have names."""
        if client.principal.name != ANONYMOUS:
            self._turn.audit(
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
            self._turn.fail(client, message.request, error)
            return
        self._turn.quotas.subscribed(client.principal, -1)
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
            self._turn.fail(client, message.request, error)
            return
        self._granted(client, "advertisement", filter)
        client.advertised.add(message.key, filter)
        client.advertising += 1
        tells = self.tables.advertise([(f"{client.key}/{message.key}", filter)], client, link=False)
        waiter = Waiter(
            WaiterKind.CLIENT_ADVERTISEMENT, client, message.key, message.request, text=filter.text
        )
        self._answer_when_known(tells, waiter)

    def unadvertise_client(self, client: Client, message: Unadvertise) -> None:
        """A client takes an advertisement back."""
        if client.advertised is None or message.key not in client.advertised:
            error = RequestRefusedError(f"no advertisement {message.key!r} on this connection", "unknown")
            self._turn.fail(client, message.request, error)
            return
        client.advertised.remove(message.key)
        self.inform(self.tables.unadvertise([f"{client.key}/{message.key}"]))
        self._done(client, message.request)

    def client_left(self, event: ClientLeft) -> None:
        """Everything of this client goes."""
        client = event.client
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
            self.inform(self.tables.step())
            for name in [name for name in self._until_told if not self.tables.telling(name)]:
                for waiter in self._until_told.pop(name):
                    self._answer_neighbour(waiter)
            if not self.tables.unfinished:
                self._events.tell(NeighboursTold())

    def _let_leave(self) -> None:
        """Remove some of what belonged to clients that have left.

        The latest go first: what was subscribed first hides others, which would have to be told for a moment.
        """
        leaving = self._leaving[-LEAVING_PER_STEP:]
        del self._leaving[-LEAVING_PER_STEP:]
        self.inform(self.tables.unsubscribe(leaving))
        if not leaving and self._leaving_advertisements:
            leaving = self._leaving_advertisements[-LEAVING_PER_STEP:]
            del self._leaving_advertisements[-LEAVING_PER_STEP:]
            self.inform(self.tables.unadvertise(leaving))

    # Those who waited.

    def installed(self, event: Installed) -> None:
        """A subscription is known everywhere: who asked for it is answered."""
        waiter = event.waiter
        if waiter.kind is WaiterKind.CLIENT_SUBSCRIPTION and waiter.party is not None:
            self._done(waiter.party, waiter.request, waiter.text, event.missing)
        elif waiter.kind is WaiterKind.NEIGHBOUR_SUBSCRIPTION:
            self._answer_neighbour(waiter)

    def not_installed(self, event: NotInstalled) -> None:
        """A subscription cannot be known everywhere: who asked for it hears why."""
        waiter, party = event.waiter, event.waiter.party
        if waiter.kind is WaiterKind.CLIENT_SUBSCRIPTION and isinstance(party, Client):
            self._unreached(party, waiter.key, waiter.request, event.error)
        elif waiter.kind is WaiterKind.NEIGHBOUR_SUBSCRIPTION:
            link = _asker(waiter)
            if link is not None:
                self._turn.fail(link, waiter.request, event.error)

    def announced(self, event: Announced) -> None:
        """All neighbours concerned know the advertisements they were told."""
        waiter, party = event.waiter, event.waiter.party
        if waiter.kind is WaiterKind.CLIENT_ADVERTISEMENT and isinstance(party, Client):
            party.advertising -= 1
            self._done(party, waiter.request, waiter.text)
            self._events.tell(Advertised(party))
        elif waiter.kind is WaiterKind.NEIGHBOUR_ADVERTISEMENT and party is not None:
            # It has to know all subscriptions that its advertisements meet, too.
            if self.tables.telling(party.name):
                self._until_told.setdefault(party.name, []).append(waiter)
            else:
                self._answer_neighbour(waiter)
        elif waiter.kind is WaiterKind.UNIVERSAL_ADVERTISEMENT:
            self.universal = True
            waiting, self._universal_waiting = self._universal_waiting, []
            for client in waiting:
                self._events.tell(AnythingExpected(client))

    def _answer_neighbour(self, waiter: Waiter) -> None:
        link = _asker(waiter)
        if link is not None:
            self._done(link, waiter.request)

    # From links.

    def subscribe_link(self, link: Link, messages: Sequence[Subscribe], origin: str = "") -> None:
        """A neighbour subscribes for the brokers behind it, or (`origin`) in the name of another one."""
        origin = origin or link.name
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
        tells = self.tables.subscribe(items, origin, link=True, anchors=anchors)
        link.stale_subscriptions.difference_update(message.key for message in messages)
        self.inform(tells)
        kind = WaiterKind.NEIGHBOUR_SUBSCRIPTION
        for message in messages:
            if message.key.startswith(self._own):
                self._done(link, message.request)
            elif message.key in read:
                self.installations.begin(
                    Installation(
                        message.key,
                        origin,
                        Waiter(kind, link, message.key, message.request, link.session),
                    )
                )

    def unsubscribe_link(self, link: Link, message: Unsubscribe, origin: str = "") -> None:
        """A neighbour takes a subscription back."""
        self.installations.cancel(message.key, origin or link.name)
        self.inform(self.tables.unsubscribe([message.key], origin=origin or link.name))
        self._done(link, message.request)

    def advertise_link(self, link: Link, message: Advertise, origin: str = "") -> None:
        """A neighbour advertises for the brokers behind it, or (`origin`) in the name of another one."""
        if message.key.startswith(self._own):
            self._done(link, message.request)
            return
        filter = self._filter_of(link, message)
        if filter is None:
            return
        link.stale_advertisements.discard(message.key)
        tells = self.tables.advertise([(message.key, filter)], origin or link.name, link=True)
        waiter = Waiter(WaiterKind.NEIGHBOUR_ADVERTISEMENT, link, message.key, message.request, link.session)
        self._answer_when_known(tells, waiter, but=link)

    def unadvertise_link(self, link: Link, message: Unadvertise, origin: str = "") -> None:
        """A neighbour takes an advertisement back."""
        self.inform(self.tables.unadvertise([message.key], origin=origin or link.name))
        self._done(link, message.request)

    def done(self, link: Link, message: Done) -> None:
        """A neighbour has carried out what it was told."""
        self._confirmed(link, message.request)

    def _confirmed(self, link: Link, request: int) -> None:
        current = link.current
        self.installations.again(link.outstanding.confirmed(request))
        if link.current and not current:
            self._events.tell(CaughtUp(link))

    def failed(self, link: Link, message: Failed) -> None:
        """A neighbour cannot carry out what it was told: the party that asked for it hears so."""
        self._turn.note(
            "error", "a neighbour refused", neighbour=link.name, code=message.code, reason=message.reason
        )
        reason = f"the broker {link.name!r} refuses the filter: {message.reason}"
        error = RequestRefusedError(reason, "refused")
        self.installations.refuse(link.outstanding.refused(message.request), error)
        self._confirmed(link, message.request)

    def _filter_of(self, link: Link, message: Subscribe | Advertise) -> Filter | None:
        """What a neighbour's message is about; None for what cannot be read, which is answered so.

        One that keeps to the rules has read it before. Cutting the link would not make it readable, and
        everybody behind it would suffer.
        """
        try:
            return read_filter(message.filter)
        except FilterError as error:
            self._turn.counters.unreadable += 1
            self._turn.note(
                "error",
                "a filter from a neighbour cannot be read",
                neighbour=link.name,
                key=message.key,
                reason=str(error)[:REASON_LENGTH_MAX],
            )
            self._turn.fail(link, message.request, error)
            return None

    def link_down(self, link: Link) -> None:
        """The connection of a link has gone: those that waited for its confirmations are looked at again."""
        self.installations.again(link.outstanding.disconnected())

    def links_changed(self, _: ReachChanged) -> None:
        """Links have come, or are waited for no more."""
        self.installations.links_changed()

    def synchronise(self, event: LinkBegun) -> None:
        """Tell a neighbour everything it should know, in a session that has just begun."""
        link = event.link
        if event.ahead:  # it was told everything before
            link.outstanding.session_begun()
            return
        if self._far:
            # It may see further than in the last one, or less far.
            self.tables.reanchor(link.name)
        self.inform(self.tables.tell_anew(link.name))
        link.outstanding.session_begun()

    def mark_stale(self, link: Link) -> None:
        """The neighbour is about to say everything anew: what it does not repeat will be stale."""
        self._dropping.pop(link, None)
        subscriptions, advertisements = self.tables.from_link(link.name)
        link.stale_subscriptions = set(subscriptions)
        link.stale_advertisements = set(advertisements)

    def drop_stale(self, event: LinkOpening) -> None:
        """The neighbour has said everything: what it did not repeat goes."""
        self._drop_stale(event.link)

    def abandon(self, event: LinkAbandoned) -> None:
        """Remove all that came from a link that is down, step by step."""
        if event.link not in self._dropping:
            self.mark_stale(event.link)
            self._drop_stale(event.link)

    def _drop_stale(self, link: Link) -> None:
        for key in link.stale_subscriptions:
            self.installations.cancel(key, link.name)
        self._dropping[link] = sorted(link.stale_subscriptions, reverse=True)
        self._drop_some(link)
        self.inform(self.tables.unadvertise(sorted(link.stale_advertisements), origin=link.name))
        link.stale_advertisements = set()

    def _drop_some(self, link: Link) -> None:
        """Remove some of what a neighbour did not repeat; what it has repeated since stays."""
        keys = self._dropping[link]
        going = [key for key in reversed(keys[-LEAVING_PER_STEP:]) if key in link.stale_subscriptions]
        del keys[-LEAVING_PER_STEP:]
        link.stale_subscriptions.difference_update(going)
        self.inform(self.tables.unsubscribe(going, origin=link.name))
        if not keys:
            del self._dropping[link]

    def remove_link(self, event: LinkRemoved) -> None:
        """The link is no more, and nothing comes from behind it."""
        link = event.link
        self._dropping.pop(link, None)
        for key in self.tables.from_link(link.name)[0]:
            self.installations.cancel(key, link.name)
        self.inform(self.tables.remove_link(link.name))

    # For everybody.

    def install(self, installation: Installation, filter: Filter, destination: Hashable) -> None:
        """Add a subscription of a client here."""
        self.inform(self.tables.subscribe([(installation.key, filter)], destination, link=False))
        self.installations.begin(installation)

    def retarget(self, key: str, filter: Filter, destination: Hashable) -> None:
        """Give what a subscription of a client here gets to another destination."""
        self.inform(self.tables.subscribe([(key, filter)], destination, link=False))

    def withdraw(self, key: str) -> None:
        """Remove a subscription of a client here."""
        self.installations.cancel(key, None)
        self.inform(self.tables.unsubscribe([key]))

    def announce_anything(self, client: Client | None = None) -> None:
        """Tell everybody, once, that anything may be published here; a client may wait for that."""
        if self.universal:
            if client is not None:
                self._events.tell(AnythingExpected(client))
            return
        if client is not None:
            self._universal_waiting.append(client)
        if not self._universal_asked:
            self._universal_asked = True
            tells = self.tables.advertise([(self._universal_key, ANYTHING)], self, link=False)
            self._answer_when_known(tells, Waiter(WaiterKind.UNIVERSAL_ADVERTISEMENT))

    # Telling and waiting.

    def _done(self, party: Party, request: int, text: str = "", missing: Sequence[str] = ()) -> None:
        if party.connection is not None or isinstance(party, Link):
            self._turn.tell(party, Done(request, text, list(missing)))

    def inform(self, tells: Iterable[Tell]) -> None:
        """Tell neighbours what they have to know."""
        moved: list[Installation] = []
        current: dict[Link, bool] = {}
        for tell in tells:
            link = self._links.get(tell.link) or self.ahead.get(tell.link)
            # Without a session it hears everything when the next one begins; one whose session may be
            # resumed hears it then, as long as not too much has come together.
            if link is None or not link.agreed:
                continue
            self._requests += 1
            message = message_of(carried(link, tell, self._turn), self._requests)
            if tell.verb is Verb.SUBSCRIBE:
                link.outstanding.told_subscription(tell.key, self._requests)
            elif tell.verb is Verb.UNSUBSCRIBE:
                current.setdefault(link, link.current)
                moved.extend(link.outstanding.untold_subscription(tell.key))
            # What an advertisement was for may still wait for the link. If the advertisement went first, or
            # became narrower, the subscriptions on the way would go before it comes.
            in_line = tell.verb is Verb.UNADVERTISE
            if tell.verb is Verb.ADVERTISE:
                known = link.outstanding.told_advertisement(tell.key, self._requests)
                in_line = link.channel.retract(partial(takes_back, tell.key)) or known
            elif tell.verb is Verb.UNADVERTISE:
                link.outstanding.untold_advertisement(tell.key)
            self._turn.tell(link, message, in_line=in_line)
        self.installations.again(moved)
        for link, before in current.items():
            if link.current and not before:
                self._events.tell(CaughtUp(link))

    def _answer_when_known(self, tells: Iterable[Tell], waiter: Waiter, but: Link | None = None) -> None:
        """Tell who waits once every link knows all advertisements it was told so far."""
        self.inform(tells)
        links = [link for link in self._links.values() if link is not but]
        for link in links:
            # One that has begun anew and is not complete has not asked everybody behind it either.
            if not (link.complete or link.placed):
                self._events.tell(TrackLost(link))
        when_confirmed([link for link in links if not self._given_up(link)], waiter, self._events)

    def _given_up(self, link: Link) -> bool:
        """Whether a link is down for so long that nobody waits for it."""
        return link.down and self._turn.now_us - link.since_us >= self._turn.settings.recovery_us_max


def _asker(waiter: Waiter) -> Link | None:
    """The neighbour that waits, if it is still in the session in which it asked."""
    party = waiter.party
    return party if isinstance(party, Link) and party.session == waiter.session else None
