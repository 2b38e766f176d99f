"""Who waits until the network has heard of something?

*Installations.* A subscription is answered when every broker that can be reached has confirmed it, and no
link of the network is missing: one that is down, or whose neighbour has not been met or brought up to date
since. What is published behind a missing link would pass the subscriber by, so the answer waits for it,
however long that takes. A client that does not want to wait can be told the names of the missing links.

Between brokers, a confirmation covers all brokers that can be reached; which links are missing they tell each
other beside that (`Links.missing`), before the confirmation that leaves them out.

*Announcements.* Whatever was advertised waits only until the neighbours have confirmed it, or are given up.

All of it is kept as records, one for each request and link: a session that is lost and begins anew moves
them and never copies them.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from heapq import heappop, heappush
from typing import TYPE_CHECKING

from braid.broker.events import Installed, NotInstalled
from braid.broker.snapshot import WaitSnapshot
from braid.broker.waiters import Announcement
from braid.errors import UnreachedError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from braid.broker.events import Events
    from braid.broker.parties import Link
    from braid.broker.waiters import Waiter
    from braid.errors import RequestRefusedError
    from braid.routing import RoutingTables

__all__ = ["Installation", "Installations", "Outstanding", "unreached", "when_confirmed"]


@dataclass(slots=True, eq=False)
class Installation:
    """A subscription on its way through the network, and whom to answer when it is there."""

    key: str
    origin: str | None
    """The neighbour it came from; None if it is of a client here."""
    waiter: Waiter
    """Who is answered, once: with the links that it does not cover (none, unless a partial answer is
    welcome), or with why it cannot be."""
    partial: bool = False
    """Whether an answer that covers only the part of the network that can be reached is welcome."""
    deadline_us: int | None = None
    waiting: set[str] = field(default_factory=set)
    """The neighbours that were told and have not confirmed it."""
    over: bool = False
    """Whether nobody waits for it any more."""


@dataclass(slots=True)
class _Told:
    """A subscription that a neighbour was told and has not confirmed."""

    request: int
    waiting: dict[Installation, None] = field(default_factory=dict)


class Outstanding:
    """What one neighbour was told in this session and has not confirmed, and who waits for that."""

    __slots__ = ("_advertised", "_advertisements", "_keys", "_line", "catching_up", "subscriptions")

    def __init__(self) -> None:
        self.subscriptions: dict[str, _Told] = {}
        self.catching_up: dict[str, None] = {}
        """Of what it had not confirmed when it had said everything, what it still has not."""
        self._keys: dict[int, str] = {}
        """The subscriptions by the requests that told them."""
        self._advertisements: dict[int, None] = {}
        """The requests that told advertisements, in order."""
        self._advertised: dict[str, None] = {}
        """The advertisements it was told in this session."""
        self._line: list[tuple[int | None, Announcement]] = []
        """Who waits until all advertisements up to a request are confirmed, in order; None stands for what
        the next session begins with."""

    @property
    def announces(self) -> bool:
        """Whether some advertisement is not confirmed."""
        return bool(self._advertisements)

    def told_subscription(self, key: str, request: int) -> None:
        """The neighbour is told of a subscription, or of its new filter."""
        told = self.subscriptions.get(key)
        if told is None:
            self.subscriptions[key] = _Told(request)
        else:
            del self._keys[told.request]  # only the latest confirmation counts
            told.request = request
        self._keys[request] = key

    def told_advertisement(self, key: str, request: int) -> bool:
        """The neighbour is told of an advertisement; returns whether it knows an earlier filter of it."""
        self._advertisements[request] = None
        known = key in self._advertised
        self._advertised[key] = None
        return known

    def untold_advertisement(self, key: str) -> None:
        """An advertisement is taken back."""
        self._advertised.pop(key, None)

    def untold_subscription(self, key: str) -> Iterable[Installation]:
        """The neighbour need not know it any more; returns who waited for that."""
        told = self.subscriptions.pop(key, None)
        if told is None:
            return ()
        del self._keys[told.request]
        self.catching_up.pop(key, None)
        return told.waiting

    def confirmed(self, request: int) -> Iterable[Installation]:
        """The neighbour has carried out a request; returns the installations to look at again."""
        if request in self._advertisements:
            del self._advertisements[request]
            self._release_line()
        key = self._keys.get(request)
        return self.untold_subscription(key) if key is not None else ()

    def refused(self, request: int) -> list[Installation]:
        """The neighbour refuses a request; returns the installations of this very subscription.

        Those of others that it stands for wait on: it will be taken back, and they told by themselves.
        """
        key = self._keys.get(request)
        told = self.subscriptions[key] if key is not None else None
        return [each for each in told.waiting if each.key == key] if told is not None else []

    def follow(self, announcement: Announcement, *, session: bool) -> None:
        """An announcement waits until all advertisements the neighbour was told so far are confirmed.

        Args:
            announcement: what waits.
            session: whether there is a session; otherwise it is about what the next one begins with.
        """
        if not session:
            self._line.append((None, announcement))
        elif self._advertisements:
            self._line.append((next(reversed(self._advertisements)), announcement))
        else:
            announcement.confirm()

    def inherit(self, other: Outstanding) -> None:
        """Who waits for another neighbour waits for this one, which has its place, and its first session."""
        line, other._line = other._line, []
        self._line = [(None, announcement) for _, announcement in line] + self._line

    def _release_line(self) -> None:
        # A party that is released may advertise more, and wait for that.
        while self._line and (until := self._line[0][0]) is not None:
            if next(iter(self._advertisements), until + 1) <= until:
                return
            self._line.pop(0)[1].confirm()

    def session_lost(self) -> None:
        """Nothing will be confirmed any more; who waits for advertisements waits for the next session."""
        self.subscriptions.clear()
        self.catching_up.clear()
        self._keys.clear()
        self._advertisements.clear()
        self._advertised.clear()
        self._line = [(None, announcement) for _, announcement in self._line]

    def session_begun(self) -> None:
        """Everything was told anew."""
        until = next(reversed(self._advertisements), 0)
        self._line = [(until, announcement) for _, announcement in self._line]
        self._release_line()

    def catch_up(self) -> None:
        """The neighbour has said everything: what it was told upon that, it has to confirm."""
        self.catching_up = dict.fromkeys(self.subscriptions)

    def disconnected(self) -> list[Installation]:
        """The connection has gone; returns who waited for confirmations."""
        waiting: dict[Installation, None] = {}
        self.catching_up.clear()
        for told in self.subscriptions.values():
            waiting.update(told.waiting)
            told.waiting = {}
        return list(waiting)

    def announcements(self) -> Iterator[Waiter]:
        """Who waits until advertisements are confirmed."""
        return (announcement.waiter for _, announcement in self._line)

    def awaited_by(self, installation: Installation) -> bool:
        """Whether an installation waits for something that the neighbour has to confirm."""
        return any(installation in told.waiting for told in self.subscriptions.values())

    def violations(self) -> Iterator[str]:
        """What is wrong with it; nothing if all is well."""
        told = {told.request: key for key, told in self.subscriptions.items()}
        if told != self._keys:
            yield f"subscriptions wait for the requests {sorted(told)}, {sorted(self._keys)} are known"
        if not self.catching_up.keys() <= self.subscriptions.keys():
            yield "it has to confirm what it was not told"
        numbers = [until for until, _ in self._line if until is not None]
        if numbers != sorted(numbers):
            yield "those who wait for advertisements stand out of order"
        for key, each in self.subscriptions.items():
            for installation in each.waiting:
                if installation.over:
                    yield f"{installation.key} is over and waits until {key} is confirmed"

    def give_up_announcements(self) -> None:
        """Nobody waits any more until the neighbour has heard of advertisements."""
        line, self._line = self._line, []
        for _, announcement in line:
            announcement.confirm()


class Installations:
    """The subscriptions that are not installed everywhere yet."""

    def __init__(
        self,
        tables: RoutingTables,
        links: Mapping[str, Link],
        missing: Callable[[], Sequence[str]],
        events: Events,
    ) -> None:
        """
        Args:
            tables: say which neighbour must know what.
            links: the neighbours by their names.
            missing: the links of the network that are not there, by what is known here.
            events: tells who is to be answered.
        """
        self._tables = tables
        self._events = events
        self._links = links
        self._missing = missing
        self._by_key: dict[str, list[Installation]] = {}
        self._parked: dict[Installation, None] = {}
        """Those that everybody who can be reached has confirmed, while links are missing."""
        self._deadlines: list[tuple[int, int, Installation]] = []
        """A heap of those whose patience ends, with a number that tells equal ones apart."""
        self._begun = 0

    def __len__(self) -> int:
        return sum(map(len, self._by_key.values()))

    def begin(self, installation: Installation) -> None:
        """Wait until a subscription, which the tables have and neighbours were told, is everywhere."""
        if installation.origin is not None:
            self.cancel(installation.key, installation.origin)  # it is asked for again
        self._by_key.setdefault(installation.key, []).append(installation)
        self._look(installation)
        if installation.deadline_us is not None and not installation.over:
            self._begun += 1
            heappush(self._deadlines, (installation.deadline_us, self._begun, installation))

    def cancel(self, key: str, origin: str | None) -> None:
        """The subscription has gone; nobody hears of it any more."""
        for installation in list(self._by_key.get(key, ())):
            if installation.origin == origin:
                self._finish(installation)

    def refuse(self, installations: Iterable[Installation], error: RequestRefusedError) -> None:
        """These cannot be installed everywhere."""
        for installation in installations:
            self._finish(installation)
            self._events.tell(NotInstalled(installation.waiter, error))

    def again(self, installations: Iterable[Installation]) -> None:
        """Something has changed for these."""
        for installation in list(installations):
            if not installation.over:
                self._look(installation)

    def look_again(self, keys: Iterable[str]) -> None:
        """Others have to confirm these by now."""
        for key in list(keys):
            self.again(self._by_key.get(key, ()))

    def review(self, now_us: int) -> None:
        """Time has passed."""
        while (deadline_us := self.next_deadline_us) is not None and now_us >= deadline_us:
            installation = heappop(self._deadlines)[2]
            missing = list(self._missing()) or [f"no answer from {name}" for name in installation.waiting]
            self._finish(installation)
            self._events.tell(NotInstalled(installation.waiter, unreached(missing)))

    def links_changed(self) -> None:
        """Links have come, or are waited for no more."""
        if self._parked and not self._missing():
            parked, self._parked = self._parked, {}
            self.again(parked)

    @property
    def next_deadline_us(self) -> int | None:
        """When the patience of a client ends next."""
        while self._deadlines and self._deadlines[0][2].over:
            heappop(self._deadlines)
        return self._deadlines[0][0] if self._deadlines else None

    def violations(self) -> Iterator[str]:
        """What is wrong with them; nothing if all is well."""
        for key, installations in self._by_key.items():
            for installation in installations:
                if installation.over or installation.key != key:
                    yield f"{installation.key}, which is over or another one, is kept as {key}"
                if not installation.waiting and installation not in self._parked:
                    yield f"{key} waits for nobody and is not answered"
                for name in installation.waiting:
                    link = self._links.get(name)
                    if link is None or not link.outstanding.awaited_by(installation):
                        yield f"{key} waits for {name}, which has nothing to confirm"
        for installation in self._parked:
            if installation.over:
                yield f"{installation.key} is over and waits for missing links"
        if self._parked and not self._missing():
            yield f"{len(self._parked)} subscriptions wait for missing links, and none is missing"

    def waiting(self) -> Iterator[WaitSnapshot]:
        """Who waits for the network to know something, and for which neighbours or missing links."""
        for installations in self._by_key.values():
            for each in installations:
                waits_for = tuple(sorted(each.waiting)) or tuple(self._missing())
                yield WaitSnapshot(who=str(each.waiter), waits_for=waits_for)
        for link in self._links.values():
            for waiter in link.outstanding.announcements():
                yield WaitSnapshot(who=str(waiter), waits_for=(link.name,))

    def _look(self, installation: Installation) -> None:
        """See who has not confirmed it, and answer if there is nobody to wait for."""
        installation.waiting = {
            name for name in self._links if name != installation.origin and self._waits(name, installation)
        }
        if installation.waiting:
            return
        missing = list(self._missing()) if installation.origin is None else []
        if missing and not installation.partial:
            self._parked[installation] = None
            return
        self._finish(installation)
        self._events.tell(Installed(installation.waiter, missing))

    def _waits(self, name: str, installation: Installation) -> bool:
        """Whether a neighbour that can be reached has yet to confirm a subscription, or what covers it."""
        link = self._links[name]
        if not link.channel.connected:
            return False
        representative = self._tables.representative(name, installation.key)
        told = link.outstanding.subscriptions.get(representative) if representative is not None else None
        if told is None:
            return False
        told.waiting[installation] = None
        return True

    def _finish(self, installation: Installation) -> None:
        """Wait for nothing any more."""
        installation.over = True
        siblings = self._by_key[installation.key]
        siblings.remove(installation)
        if not siblings:
            del self._by_key[installation.key]
        self._parked.pop(installation, None)
        for name in installation.waiting:
            link = self._links.get(name)
            representative = self._tables.representative(name, installation.key) if link else None
            if link is not None and representative in link.outstanding.subscriptions:
                link.outstanding.subscriptions[representative].waiting.pop(installation, None)


def when_confirmed(links: Iterable[Link], waiter: Waiter, events: Events) -> None:
    """Tell who waits once these links have confirmed all advertisements they were told so far."""
    announcement = Announcement(waiter, events)
    for link in links:
        announcement.left += 1
        link.outstanding.follow(announcement, session=bool(link.agreed))
    announcement.confirm()


def unreached(missing: Sequence[str]) -> UnreachedError:
    """The error for a subscription that could not be installed everywhere in time."""
    return UnreachedError(
        f"the subscription did not reach the whole network in time; missing: {', '.join(missing)}. "
        "Ask again with more time or with partial=True; 'braid overlay forget' gives up a broker for good"
    )
