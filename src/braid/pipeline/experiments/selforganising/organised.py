"""How does a network organise itself, if messages take no time?

This drives the proposals that brokers ship (`braid.adaptation.topology`), one `Organiser` per broker, over a
model of the network: publications are priced by their delivery trees instead of being sent one by one, news
and requests cross links at once, and an exchange of links is done when it is agreed on. So a run of 75,000
ticks with 100 brokers takes a minute or two. What it leaves out is what only a network can do: delays, lost
links, brokers that fail, and exchanges that meet half-way.

Brokers have their turns to send news at different times of an interval, so that the network is never asked to
change everywhere at once. Costs are known from tables, so that no link has to be probed.
"""

from __future__ import annotations

from collections import Counter, deque
from dataclasses import dataclass, field
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np

from braid.adaptation.topology import InterestFilter, Organiser
from braid.adaptation.topology.pricing import NumberedTree
from braid.pipeline.experiments.selforganising.demand import members_matrix
from braid.protocol.codec import Frame, encode_frames
from braid.reconfiguration.exchanges import exchange_steps

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from braid.adaptation.topology import LinkExchange, TopologySettings
    from braid.pipeline.experiments.selforganising.demand import Demand, DemandRow
    from braid.protocol.organising import LinkRequest, TopologyNews
    from braid.trace.writer import TraceWriter
    from braid.workloads.selforganising_costs import CostSchedule

__all__ = ["Exchange", "OrganisedNetwork"]

NEWS, REQUEST, SHIFT, PUBLICATION = "topology_news", "link_request", "shift", "publication"
"""Kinds of messages, as traces name them."""

SLOTS = 10
"""Turns in an interval, if nothing else is said."""

SHIFT_BYTES = 100
"""A message of a SHIFT, about; the states that it hands over are not counted."""


@dataclass(frozen=True, slots=True)
class Exchange:
    """An exchange of links that was carried out."""

    at_us: int
    path: tuple[str, ...]
    removed: int


@dataclass(slots=True)
class _Counts:
    """What has crossed the links since the last sample."""

    messages: Counter[tuple[int, int, str]] = field(default_factory=Counter)
    bytes: Counter[tuple[int, int, str]] = field(default_factory=Counter)
    published: Counter[int] = field(default_factory=Counter)

    def sent(self, source: int, target: int, kind: str, size: int, messages: int = 1) -> None:
        key = source, target, kind
        self.messages[key] += messages
        self.bytes[key] += messages * size


class OrganisedNetwork:
    """A network of brokers, and the tree it makes of itself.

    Args:
        demand: who wants what.
        costs: what links and brokers cost, and when that changes.
        settings: of all brokers.
        links: the tree at the start, by numbers.
        turns_us: when in an interval each broker has its turn; by default in ten slots, broker by broker.
        apply: whether exchanges are carried out; otherwise they are only agreed on.
        latency_us: which of two requests comes first where several answer the same news; without it, the one
            that has fewer links to cross.
        body_bytes: what a publication weighs in samples.
    """

    def __init__(
        self,
        demand: Demand,
        costs: CostSchedule,
        settings: TopologySettings,
        links: Iterable[tuple[int, int]],
        *,
        turns_us: Sequence[int] | None = None,
        apply: bool = True,
        latency_us: Callable[[str, str], int] | None = None,
        body_bytes: int = 100,
    ) -> None:
        self._demand = demand
        self._schedule = costs
        self._settings = settings
        self._apply = apply
        self._latency_us = latency_us
        self._body_bytes = body_bytes
        count = demand.brokers
        slot_us = settings.interval_us // SLOTS
        self._turns_us = turns_us or [(number % SLOTS + 1) * slot_us for number in range(count)]
        from braid.workloads.tables import broker_name  # which needs Arrow; a list of experiments does not

        self.names = [broker_name(each) for each in range(count)]
        self._number = {name: number for number, name in enumerate(self.names)}
        self.beside: list[set[int]] = [set() for _ in range(count)]
        """The neighbours of each broker."""
        for left, right in links:
            self.beside[left].add(right)
            self.beside[right].add(left)
        self.exchanges: list[Exchange] = []
        """All that were agreed on, in order."""
        self._agreed: list[tuple[LinkExchange, list[int]]] = []
        """What is to be carried out at the end of this turn, with the numbers of the brokers."""
        self._organisers = [Organiser(name, settings) for name in self.names]
        self._counts = _Counts()
        self._rates = [0.0, 0]
        """The chances that filters say yes to what is not in them, added up, and how many were sent."""
        self._ways: dict[tuple[int, ...], list[tuple[int, frozenset[str]]]] = {}
        self._link_costs, self._processing = costs.links[0][1], costs.processing[0][1]
        self._retree()
        self._reprice(0)

    # The tree.

    def _retree(self) -> None:
        links = [
            (left, right) for left in range(len(self.beside)) for right in self.beside[left] if left < right
        ]
        self.tree = NumberedTree.of_links(len(self.beside), links)
        """The tree as it is now."""
        self._ways.clear()

    def _reprice(self, now_us: int) -> None:
        """Tell every broker what it and its links cost now."""
        self._link_costs = _latest(self._schedule.links, now_us)
        self._processing = _latest(self._schedule.processing, now_us)
        for number in range(len(self.beside)):
            self._tell_costs(number)

    def _tell_costs(self, number: int) -> None:
        organiser = self._organisers[number]
        costs = self._link_costs[number]
        organiser.processing = float(self._processing[number])
        organiser.links = {self.names[other]: float(costs[other]) for other in sorted(self.beside[number])}

    # Time.

    def run(
        self, duration_us: int, sample_us: int, trace: TraceWriter | None = None, *, warm_up_us: int = 0
    ) -> None:
        """Play the whole demand; a sample of the links goes into the trace from time to time.

        Args:
            duration_us: the end.
            sample_us: between two samples.
            trace: where they go.
            warm_up_us: how long brokers send news before the first publication.
        """
        changes = {at_us for at_us, _ in (*self._schedule.links, *self._schedule.processing)} - {0}
        organised = self._settings.policy != "static"
        for now_us, turns in self._moments(-warm_up_us, duration_us, sample_us, changes):
            self._publish(list(self._demand.until(now_us)), now_us)
            if organised:
                for number in turns:
                    self._turn(number, now_us)
            if trace is not None and now_us > 0 and (now_us % sample_us == 0 or now_us == duration_us):
                self._sample(trace, now_us, sample_us)
            if now_us in changes:
                self._reprice(now_us)

    def _moments(
        self, begin_us: int, end_us: int, sample_us: int, changes: Iterable[int]
    ) -> Iterator[tuple[int, list[int]]]:
        """Every time at which something is to be done, and whose turn it is then."""
        interval_us = self._settings.interval_us
        turns: dict[int, list[int]] = {at_us: [] for at_us in changes if at_us < end_us}
        turns.update((at_us, []) for at_us in range(sample_us, end_us, sample_us))
        turns[end_us] = []
        for number, turn_us in enumerate(self._turns_us):
            first_us = turn_us - (turn_us - begin_us) // interval_us * interval_us
            for at_us in range(first_us, end_us + 1, interval_us):
                if at_us > begin_us:
                    turns.setdefault(at_us, []).append(number)
        yield from sorted(turns.items())

    def _publish(self, rows: list[DemandRow], now_us: int) -> None:
        if not rows:
            return
        entered: dict[int, list[np.ndarray]] = {}
        for row in rows:
            self._counts.published[row.publisher] += len(row.hashes)
            if self._settings.policy != "static":
                for member in row.members:
                    entered.setdefault(member, []).append(row.hashes)
        self._count_crossings(rows)
        for member, hashes in entered.items():
            self._organisers[member].took_part(np.concatenate(hashes))
        if self._organisers[0].traffic is not None:
            for row in rows:
                for broker, concerns in self._way(row.members):
                    self._organisers[broker].passed(row.hashes, concerns, now_us)

    def _count_crossings(self, rows: list[DemandRow]) -> None:
        """Count the links of each delivery tree, in the direction away from the publisher."""
        tree = self.tree
        used, _ = tree.crossed(members_matrix([row.members for row in rows], len(self.beside)))
        publishers = [row.publisher for row in rows]
        from_below = tree.below[publishers] > 0
        times = np.array([len(row.hashes) for row in rows])
        upward, downward = times @ (used & from_below), times @ (used & ~from_below)
        for lower in np.flatnonzero(upward + downward).tolist():
            upper = int(tree.parents[lower])
            for source, target, count in ((upper, lower, downward), (lower, upper, upward)):
                if count[lower]:
                    self._counts.sent(source, target, PUBLICATION, self._body_bytes, int(count[lower]))

    def _way(self, members: tuple[int, ...]) -> list[tuple[int, frozenset[str]]]:
        """Each broker on the delivery tree of a set, and what such a publication means to it."""
        found = self._ways.get(members)
        if found is None:
            used, _ = self.tree.crossed(members_matrix([members], len(self.beside)))
            concerns: dict[int, set[str]] = {member: {""} for member in members}
            for lower in np.flatnonzero(used[0]).tolist():
                upper = int(self.tree.parents[lower])
                concerns.setdefault(lower, set()).add(self.names[upper])
                concerns.setdefault(upper, set()).add(self.names[lower])
            found = self._ways[members] = [(each, frozenset(links)) for each, links in concerns.items()]
        return found

    # News and requests.

    def _turn(self, number: int, now_us: int) -> None:
        organiser = self._organisers[number]
        waiting = organiser.propose_best(now_us)
        if waiting is not None:
            self._carry(waiting, now_us)
        news = organiser.announce()
        if news is not None:
            self._spread(number, news, now_us)
        # News and requests are faster than SHIFTs: what was agreed on in this turn is carried out behind it.
        agreed, self._agreed = self._agreed, []
        for exchange, path in agreed:
            self._exchange(exchange, path)

    def _spread(self, origin: int, news: TopologyNews, now_us: int) -> None:
        """Let news travel as far as it goes; then those it came to think about it, the nearest first."""
        interest = InterestFilter.decoded(news.interest)
        self._rates[0] += interest.false_positive_rate
        self._rates[1] += 1
        size = 0 if self._organisers[origin].traffic is not None else _size(news)
        line: deque[tuple[int, int, TopologyNews]] = deque()
        reached: list[int] = []
        for neighbour in sorted(self.beside[origin]):
            line.append(
                (origin, neighbour, self._organisers[origin].onward(news, self.names[neighbour], now_us))
            )
        while line:
            source, target, arrived = line.popleft()
            self._counts.sent(source, target, NEWS, size or _size(arrived))
            organiser = self._organisers[target]
            passed_on = organiser.hear(arrived, self.names[source], interest)
            reached.append(target)
            if passed_on is not None:
                for neighbour in sorted(self.beside[target] - {source}):
                    following = organiser.onward(passed_on, self.names[neighbour], now_us)
                    line.append((target, neighbour, following))
        if self._latency_us is not None:
            reached.sort(key=lambda number: self._way_us(origin, number))
        for number in reached:
            organiser = self._organisers[number]
            view = organiser.candidate(self.names[origin], now_us)
            if view is not None:
                direct = float(self._link_costs[number, origin])
                request = organiser.propose(self.names[origin], view, direct, now_us)
                if request is not None:
                    self._carry(request, now_us)

    def _way_us(self, source: int, target: int) -> int:
        """How long a message takes from one broker to another along the tree."""
        path = [self.names[each] for each in self.tree.path(source, target)]
        return sum(self._latency_us(left, right) for left, right in pairwise(path)) if self._latency_us else 0

    def _carry(self, request: LinkRequest, now_us: int) -> None:
        """Take a request along its path to a verdict, and carry that out."""
        path = [self._number[step.broker] for step in request.steps]
        asked: LinkRequest | None = request
        for source, target in pairwise(path):
            if asked is None or target not in self.beside[source]:
                return
            self._counts.sent(source, target, REQUEST, _size(asked))
            asked = self._organisers[target].asked(asked, self.names[source], now_us)
        exchange = self._organisers[path[-1]].verdict(asked) if asked is not None else None
        # Of two that meet one gives way.
        if exchange is not None and not any(set(path) & set(other) for _, other in self._agreed):
            self.exchanges.append(Exchange(now_us, exchange.path, exchange.removed))
            if self._apply:
                self._agreed.append((exchange, path))

    def _exchange(self, exchange: LinkExchange, path: list[int]) -> None:
        for step in exchange_steps(exchange.path, exchange.removed):
            moving, old, new = (self._number[name] for name in (step.moving, step.old, step.new))
            for source, target in ((moving, old), (old, new), (moving, new), (moving, old)):
                self._counts.sent(source, target, SHIFT, SHIFT_BYTES)
                self._counts.sent(target, source, SHIFT, SHIFT_BYTES)
            self.beside[moving] = (self.beside[moving] - {old}) | {new}
            self.beside[old] -= {moving}
            self.beside[new] |= {moving}
        for number in path:
            self._tell_costs(number)
            self._organisers[number].exchanged()
        self._retree()

    @property
    def false_positive_rate(self) -> float:
        """The mean chance that a filter said yes to a publication that was not in it."""
        return self._rates[0] / self._rates[1] if self._rates[1] else 0.0

    # Samples.

    def _sample(self, trace: TraceWriter, now_us: int, sample_us: int) -> None:
        counts, names = self._counts, self.names
        # A sample belongs to the period that it ends; the last one may be shorter.
        period_us = sample_us if now_us % sample_us == 0 else now_us % sample_us
        for (source, target, kind), messages in sorted(counts.messages.items()):
            size = counts.bytes[source, target, kind]
            trace.link_sample(
                now_us, period_us, names[source], names[target], "primary", kind, messages, size, 0
            )
        for number, published in sorted(counts.published.items()):
            links = len(self.beside[number])
            trace.broker_load(
                now_us, period_us, names[number], 0, published, 0, 0, 0, 0, 0, 0, 0, links=links
            )
        self._counts = _Counts()


def _latest(epochs: Iterable[tuple[int, np.ndarray]], now_us: int) -> np.ndarray:
    found = None
    for at_us, costs in epochs:
        if at_us <= now_us:
            found = costs
    if found is None:
        raise ValueError("the first epoch of costs begins at 0")
    return found


def _size(message: TopologyNews | LinkRequest) -> int:
    return len(encode_frames((Frame(0, message),)))
