"""What does one broker know of a better tree, and what does it propose?

The evaluation and consensus phases of the self-organising paper as one machine without sockets or clocks; who
drives it (a broker, a simulation, a faster model) carries messages and exchanges links. A broker knows its
own costs and what messages told it, nothing else.

    announce          every interval: news of this broker, for each neighbour, if it has any
    hear, onward      news of another: learn from it, pass it on
    candidate         is the direct link to its origin worth measuring?
    propose           with the cost of that link: a request, or nothing
    asked             a request comes by: this broker's part of it, or the end of it
    verdict           the request is at its target: the exchange, or nothing

What has not been heard of twice in a row is forgotten (second chance), because a broker that went out of the
neighbourhood sends no news any more.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import msgspec

from braid.adaptation.topology.cycle_traffic import Sample, TrafficWindow
from braid.adaptation.topology.estimates import mean_interest
from braid.adaptation.topology.interest import InterestCache, InterestFilter
from braid.adaptation.topology.policies import CyclePlace, PathView, is_cost, policy_named
from braid.errors import RemoteProtocolError
from braid.protocol.organising import LinkRequest, PathStep, RequestStep, TopologyNews

if TYPE_CHECKING:
    from collections.abc import Mapping

    from braid.adaptation.topology.interest import Hashes
    from braid.adaptation.topology.settings import TopologySettings

__all__ = ["LinkExchange", "Organiser"]

# Costs that change by less than this share are told with the next news only.
NOTICEABLE = 0.1
# A neighbourhood of more brokers than this is made up by somebody.
KNOWN_MAX = 10_000
# What is remembered of a broker is bounded: its name, and where it can be reached.
NAME_LENGTH_MAX = 64
ADDRESS_LENGTH_MAX = 255


@dataclass(frozen=True, slots=True)
class LinkExchange:
    """What brokers on a path have agreed on: link its ends, and take one of its links away."""

    path: tuple[str, ...]
    """From the requester to the target."""
    removed: int
    """The link between this broker of the path and the next one."""
    number: int = 0
    """Of the news that it goes back to."""

    @property
    def added_link(self) -> tuple[str, str]:
        """The new neighbours."""
        return self.path[0], self.path[-1]

    @property
    def removed_link(self) -> tuple[str, str]:
        """Those that are neighbours no more."""
        return self.path[self.removed], self.path[self.removed + 1]


@dataclass(slots=True)
class _Known:
    """What is known of another broker."""

    number: int
    interest: float
    path: tuple[PathStep, ...]
    """As its latest news came: the broker first, our neighbour last."""
    address: str
    false_positives: float = 0.0
    """How often its filter says yes to a publication that is not in it."""
    heard: bool = True
    """Since the last review."""
    examined: int = field(default=-1)
    """In which interval a link to it was looked into last."""


class Organiser:
    """One broker's part in improving the tree.

    Args:
        broker: its name.
        settings: the policy and its figures.
        address: where others can reach it.
        number: that of the last news that this broker has sent, under another policy.
    """

    def __init__(
        self, broker: str, settings: TopologySettings, address: str = "", *, number: int = 0
    ) -> None:
        self.broker = broker
        self.settings = settings
        self.policy = policy_named(settings)
        self.cache = InterestCache(settings.cache_entries, settings.filter_bits, settings.filter_hashes)
        """What local clients published or were given lately."""
        self.traffic = (
            TrafficWindow(settings.sample_entries, settings.window_us)
            if self.policy.samples_traffic
            else None
        )
        """A sample of all that passed, with policies that want one."""
        self.links: Mapping[str, float | None] = {}
        """The neighbours and what a message costs on the way to each, None while nobody knows: set by whoever
        drives this. What would have to be added up with an unknown cost ends."""
        self.processing = 0.0
        """What a message costs here: set likewise."""
        self._address = address
        self._known: dict[str, _Known] = {}
        self._interval = 0
        self.number = number
        """Of its latest news."""
        self._pause = 1
        self._next_news = 0
        self._told: tuple[float, Mapping[str, float | None]] = 0.0, {}
        """What it and its links cost when it last sent news."""
        self._taken = number - 1
        """The latest news of ours that an exchange went back to."""
        self._rests_until = 0
        self._examined_now = 0
        self._best: tuple[float, str, float] | None = None

    # What happens here.

    def took_part(self, publications: Hashes) -> None:
        """Local clients published these or were given them, each counted once."""
        self.cache.record(publications)

    def passed(self, publications: Hashes, concerns: frozenset[str], now_us: int) -> None:
        """These came by: neighbours they came from and went to, and "" if local clients had to do with it."""
        if self.traffic is not None:
            self.traffic.passed(publications, concerns, now_us)

    # News.

    def announce(self) -> TopologyNews | None:
        """An interval has passed: news of this broker, of which `onward` makes what each neighbour gets.

        None: nothing has changed around it for a while, so it lets an interval pass.
        """
        self._interval += 1
        self._examined_now = 0
        self._review()
        if self.policy.picks_best:
            if _differ(self._told, (self.processing, self.links)):
                self._stir()
            if self._interval < self._next_news:
                return None
            self._next_news = self._interval + self._pause
            self._pause = min(2 * self._pause, self.settings.pause_intervals_max)
            self._told = self.processing, dict(self.links)
        self.number += 1
        own = PathStep(self.broker, self.processing)
        data = self.cache.next_filter().encoded()
        return TopologyNews(self.number, self.settings.eta, data, (own,), self._address)

    def onward(self, news: TopologyNews, neighbour: str, now_us: int) -> TopologyNews:
        """Own or heard news as it goes to a neighbour."""
        if self.traffic is None:
            return news
        before = frozenset(step.broker for step in news.path[-2:-1])
        sample = self.traffic.beside(before | {neighbour}, now_us)
        last = msgspec.structs.replace(news.path[-1], traffic=sample.encoded())
        return msgspec.structs.replace(news, path=(*news.path[:-1], last))

    def hear(
        self, news: TopologyNews, neighbour: str, interest: InterestFilter | None = None
    ) -> TopologyNews | None:
        """Learn from news that a neighbour passed on.

        Args:
            news: as it came.
            neighbour: who sent it.
            interest: the filter in it, where somebody has decoded it already.

        Returns:
            the news with this broker on its path, to be passed on with `onward`; None if it ends here: it is
            old, has come far enough, or there is nobody left to tell.

        Raises:
            RemoteProtocolError: it breaks the rules.
        """
        link_cost = self.links.get(neighbour)
        self._check(news, neighbour)
        if link_cost is None or any(step.broker == self.broker for step in news.path):
            # From before an exchange: the path is no path any more. Or nobody knows yet what it costs.
            return None
        known = self._known.get(news.origin)
        if known is not None and news.number <= known.number:
            return None
        if known is None and len(self._known) >= KNOWN_MAX:
            return None
        interest = interest or InterestFilter.decoded(news.interest)
        shared = self.cache.in_common(interest)
        if known is None:
            known = self._known[news.origin] = _Known(news.number, shared, news.path, news.address)
        else:
            known.number, known.interest, known.path = news.number, shared, news.path
            known.address, known.heard = news.address, True
        known.false_positives = interest.false_positive_rate
        if news.hops_left <= 1 or len(self.links) < 2:
            return None
        beside = self._known.get(neighbour)
        step = PathStep(self.broker, self.processing, link_cost, beside.interest if beside else 0.0)
        return msgspec.structs.replace(news, hops_left=news.hops_left - 1, path=(*news.path, step))

    def _check(self, news: TopologyNews, neighbour: str) -> None:
        eta = self.settings.eta
        if not news.path or news.path[-1].broker != neighbour:
            raise RemoteProtocolError(f"news of the topology does not end at {neighbour!r}, who sent it")
        if len(news.path) > eta or not 0 <= news.hops_left <= eta:
            raise RemoteProtocolError(f"news of the topology has come further than {eta} links")
        if len(news.address) > ADDRESS_LENGTH_MAX:
            raise RemoteProtocolError(f"news of the topology: an address of {len(news.address)} characters")
        for step in news.path:
            if len(step.broker) > NAME_LENGTH_MAX or len(step.traffic) > 4 * (
                1 + self.settings.sample_entries
            ):
                raise RemoteProtocolError("news of the topology: a name or a sample that is too long")
            if not (is_cost(step.processing) and is_cost(step.link_cost) and is_cost(step.link_interest)):
                raise RemoteProtocolError(f"news of the topology: impossible costs at {step.broker!r}")

    def _stir(self) -> None:
        """Something has changed here: others should hear of it soon."""
        self._pause, self._next_news = 1, min(self._next_news, self._interval)

    def _review(self) -> None:
        """Second chance: what was not heard of since the last review but one goes."""
        if self.policy.picks_best and self._interval % self.settings.pause_intervals_max:
            return  # news may be so far apart
        self._known = {name: known for name, known in self._known.items() if known.heard}
        for known in self._known.values():
            known.heard = False

    @property
    def knows(self) -> frozenset[str]:
        """The brokers it has heard of lately."""
        return frozenset(self._known)

    def interest_in_common(self, broker: str) -> float | None:
        """How many publications it shares with another broker; None if it has not heard from it."""
        known = self._known.get(broker)
        return known.interest if known is not None else None

    def false_positive_rate(self, broker: str) -> float | None:
        """How often another broker's latest filter says yes to a publication that is not in it; estimates of
        common interest are corrected for that. None if it has not been heard from."""
        known = self._known.get(broker)
        return known.false_positives if known is not None else None

    def address_of(self, broker: str) -> str:
        """Where a broker it has heard of can be reached."""
        known = self._known.get(broker)
        return known.address if known is not None else ""

    @property
    def phi(self) -> float:
        """Eq. 6."""
        return mean_interest(known.interest for known in self._known.values())

    # Evaluation.

    def candidate(self, origin: str, now_us: int) -> PathView | None:
        """What there is to judge a direct link to an origin of news by; None if it is not worth measuring."""
        known = self._known.get(origin)
        if known is None or len(known.path) < 2 or self.resting:
            return None
        if self.policy.picks_best:
            # In turn, so that the work of an interval is bounded.
            turn = math.ceil(len(self._known) / self.settings.evaluations_max)
            if known.examined > self._interval - turn or self._examined_now >= self.settings.evaluations_max:
                return None
            known.examined = self._interval
            self._examined_now += 1
        view = self._view(known, now_us)
        return view if view is not None and self.policy.interested(view) else None

    def _view(self, known: _Known, now_us: int) -> PathView | None:
        own_link = self.links.get(known.path[-1].broker)
        if own_link is None:
            return None
        steps = known.path[::-1]
        beside = self.interest_in_common(steps[0].broker)
        samples: list[Sample] = []
        if self.traffic is not None:
            samples = [self.traffic.beside(frozenset({steps[0].broker}), now_us)]
            samples += [Sample.decoded(step.traffic, self.settings.sample_entries) for step in steps]
        return PathView(
            interests=[self.interest_in_common(step.broker) for step in steps],
            processing=[step.processing for step in steps],
            links=[own_link, *(step.link_cost for step in steps[:-1])],
            link_interests=[beside or 0.0, *(step.link_interest for step in steps[:-1])],
            phi=self.phi,
            own_processing=self.processing,
            samples=samples,
        )

    def propose(self, origin: str, view: PathView, direct: float, now_us: int) -> LinkRequest | None:
        """With the cost of the direct link known: ask for it, remember it for later, or leave it."""
        gain = self.policy.gain(view, direct) if math.isfinite(direct) else 0.0
        if gain <= 0:
            return None
        if self.policy.picks_best:
            if self._best is None or gain > self._best[0]:
                self._best = gain, origin, direct
            return None
        return self._request(origin, direct, now_us)

    def propose_best(self, now_us: int) -> LinkRequest | None:
        """Before new news: ask for the best that was heard of since the last, with policies that wait."""
        best, self._best = self._best, None
        return self._request(best[1], best[2], now_us) if best is not None else None

    def _request(self, origin: str, direct: float, now_us: int) -> LinkRequest | None:
        known = self._known.get(origin)
        own_link = self.links.get(known.path[-1].broker) if known is not None else None
        if known is None or own_link is None or self.resting:
            return None
        path = known.path[::-1]
        steps = [RequestStep(self.broker, self.processing, own_link)]
        steps += [RequestStep(step.broker, step.processing, step.link_cost) for step in path[:-1]]
        steps.append(RequestStep(path[-1].broker, path[-1].processing, direct))
        costs = (0.0,) * len(steps)
        request = LinkRequest(known.number, tuple(steps), costs, self._has_room, self.policy.name)
        return self.asked(request, None, now_us)

    # Consensus.

    def asked(self, request: LinkRequest, sender: str | None, now_us: int) -> LinkRequest | None:
        """The request with this broker's part; None if it ends here.

        Args:
            request: as it came.
            sender: the neighbour that sent it; None for one of our own.
            now_us: the time.

        Raises:
            RemoteProtocolError: it breaks the rules.
        """
        names = [step.broker for step in request.steps]
        place = self._place(request, names, sender)
        following = names[place + 1] if place + 1 < len(names) else None
        own_link = self.links.get(following) if following is not None else None
        if request.policy != self.policy.name:
            return None  # another policy is about to be chosen everywhere
        gone = (sender is not None and sender not in self.links) or (
            following is not None and own_link is None
        )
        if gone or self.resting or (following is None and not self._answers(request)):
            return None
        sample = None
        if self.traffic is not None:
            beside = frozenset(name for name in (sender, following) if name is not None)
            sample = self.traffic.beside(beside, now_us)
        here = CyclePlace(
            place, [self.interest_in_common(name) for name in names], self.phi, own_link, sample
        )
        return self.policy.asked(request, here)

    def _place(self, request: LinkRequest, names: list[str], sender: str | None) -> int:
        eta = self.settings.eta
        if not 3 <= len(names) <= eta + 1 or len(set(names)) != len(names):
            raise RemoteProtocolError(f"a request for a link about {len(names)} brokers: 3 to {eta + 1} are")
        if self.broker not in names:
            raise RemoteProtocolError("a request for a link came to a broker that is not on its path")
        place = names.index(self.broker)
        if (names[place - 1] if place else None) != sender:
            raise RemoteProtocolError("a request for a link did not come along its path")
        if len(request.costs) != len(names) or not all(map(math.isfinite, request.costs)):
            raise RemoteProtocolError("a request for a link: its costs do not fit its path")
        for step in request.steps:
            if not (is_cost(step.processing) and is_cost(step.link_cost)):
                raise RemoteProtocolError(f"a request for a link: impossible costs at {step.broker!r}")
        return place

    def _answers(self, request: LinkRequest) -> bool:
        """Whether the target goes into a request: its news must be the latest, and taken up by nobody yet.

        One exchange for each news serialises those that meet here: the next is judged by the new tree.
        """
        return request.number == self.number and self._taken < self.number

    def verdict(self, request: LinkRequest) -> LinkExchange | None:
        """At the target: what comes of a request that all have been asked about."""
        links = len(request.steps) - 1
        allowed = frozenset(range(links))
        if not request.has_room:
            allowed &= {0}
        if not self._has_room:
            allowed &= {links - 1}
        removed = self.policy.verdict(request, allowed)
        if removed is None:
            return None
        self._taken = self.number
        return LinkExchange(tuple(step.broker for step in request.steps), removed, request.number)

    def exchanged(self) -> None:
        """This broker was on the path of an exchange that was carried out."""
        self._rests_until = self._interval + self.settings.rest_intervals
        self._stir()

    @property
    def resting(self) -> bool:
        """Whether it takes part in nothing for a while, after an exchange."""
        return self._interval < self._rests_until

    @property
    def _has_room(self) -> bool:
        bound = self.settings.degree_max
        return not bound or len(self.links) < bound


def _differ(
    before: tuple[float, Mapping[str, float | None]], now: tuple[float, Mapping[str, float | None]]
) -> bool:
    """Whether costs have changed so much that others should know."""
    if before[1].keys() != now[1].keys():
        return True
    pairs = [(before[0], now[0]), *((before[1][name], cost) for name, cost in now[1].items())]
    return any(
        abs(later - earlier) > NOTICEABLE * max(earlier, later)
        if earlier is not None and later is not None
        else earlier is not later
        for earlier, later in pairs
    )
