"""How does a broker take part in looking for a better tree?

`Organiser` (self-organising paper, sections 4.1 to 4.3) decides; here are its eyes and its voice. What local
clients publish and are given, and what passes, is seen where the driver sees it: in the frames that come in
and in the effects that go out. So the cache of interest has exactly what a trace has.

News and requests belong to one connection: they are no frames of a channel, nothing waits for a link that is
down, and of the news of a broker only the newest waits for a link that cannot take more at the moment. What
brokers agree on is carried out by `exchanges.py`; operators see it as a proposal.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any

import numpy as np

from braid.adaptation.topology import LiveCosts, Organiser, publication_hashes
from braid.broker.parties import Client, Link
from braid.protocol import PublicationBatch
from braid.protocol.effects import Probe, Send
from braid.protocol.inputs import Received
from braid.protocol.messages import Ping, StoredPublications

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from braid.adaptation.topology import LinkExchange, TopologySettings
    from braid.adaptation.topology.interest import Hashes
    from braid.broker.parties import Party
    from braid.broker.turn import Turn
    from braid.protocol.codec import Frame
    from braid.protocol.effects import Effect
    from braid.protocol.inputs import Input, Probed
    from braid.protocol.organising import LinkRequest, TopologyNews

__all__ = ["Organising"]

PROPOSALS_MAX = 32
"""The latest proposals that are kept for operators."""

# News of so many brokers wait for one link at most; those of others wait for their next interval.
ORIGINS_MAX = 10_000


class Organising:
    """Takes part, if a policy is chosen; a broker without one has none of these.

    Args:
        turn: where messages go.
        parties: who is at which connection.
        links: the neighbours by their names.
        seed: brokers with different ones have their turns at different times.
        chosen: the policy and its figures.
        number: that of the last news that this broker has sent.
        busy: whether this broker takes part in an exchange of links.
        agreed: brokers have agreed on one, and it is up to this one to have it carried out.
    """

    def __init__(
        self,
        turn: Turn,
        parties: Mapping[int, Party],
        links: Mapping[str, Link],
        seed: int,
        chosen: TopologySettings,
        number: int,
        *,
        busy: Callable[[], bool],
        agreed: Callable[[LinkExchange], None],
    ) -> None:
        settings = turn.settings
        self.organiser = Organiser(settings.broker_id, chosen, settings.address, number=number)
        self._costs = LiveCosts(chosen.configured_processing, chosen.configured_links)
        self._turn = turn
        self._parties = parties
        self._links = links
        self._seed = seed
        self._busy = busy
        self._agreed = agreed
        self.due_us: int | None = None
        """When its next interval begins."""
        # Whoever publishes to several local clients counts once; by hash, the oldest first.
        self._recent: dict[int, None] = {}
        self._waiting: dict[str, dict[str, TopologyNews]] = {}
        """By neighbours that cannot take more at the moment: the newest news of each origin."""
        self.proposals: deque[tuple[int, LinkExchange]] = deque(maxlen=PROPOSALS_MAX)
        """What was agreed on lately, with its time."""
        self.proposed = 0
        self._measured = (0, 0)
        self._probed: set[str] = set()
        """The brokers that were probed in this interval."""

    # Eyes.

    def observe(self, stimulus: Input, effects: Sequence[Effect]) -> None:
        """Look at what came in and what goes out."""
        concerns: dict[int, set[str]] = {}
        if isinstance(stimulus, Received):
            self._see(stimulus.connection, stimulus.frames, concerns)
        for effect in effects:
            if type(effect) is Send:
                self._see(effect.connection, effect.frames, concerns)
        if concerns:
            self._passed(concerns)

    def _see(self, connection: int, frames: Iterable[Frame], concerns: dict[int, set[str]]) -> None:
        party, traffic = self._parties.get(connection), self.organiser.traffic
        if isinstance(party, Client):
            for hashes in _publications(frames):
                fresh = self._took_part(hashes)
                if traffic is not None:
                    for each in traffic.sampled(fresh).tolist():
                        concerns.setdefault(each, set()).add("")
        elif isinstance(party, Link) and traffic is not None:
            for hashes in _publications(frames):
                for each in traffic.sampled(hashes).tolist():
                    concerns.setdefault(each, set()).add(party.name)

    def _passed(self, concerns: Mapping[int, set[str]]) -> None:
        """A publication counts once, with all links that it came by or went to."""
        alike: dict[frozenset[str], list[int]] = {}
        for publication, links in concerns.items():
            alike.setdefault(frozenset(links), []).append(publication)
        for together, publications in alike.items():
            self.organiser.passed(np.array(publications, np.uint64), together, self._turn.now_us)

    def _took_part(self, hashes: Hashes) -> Hashes:
        """Local clients publish or get these; returns those that are new."""
        recent = self._recent
        fresh = [each for each in hashes.tolist() if each not in recent]
        new = np.array(fresh, np.uint64)
        if not fresh:
            return new
        recent.update(dict.fromkeys(fresh))
        for oldest in list(recent)[: len(recent) - 2 * self.organiser.settings.cache_entries]:
            del recent[oldest]
        self.organiser.took_part(new)
        return new

    # Time.

    def begin(self, now_us: int) -> None:
        """Intervals of different brokers begin at different times, so that not all speak at once."""
        interval_us = self.organiser.settings.interval_us
        share = int(publication_hashes(self.organiser.broker, [self._seed])[0]) % interval_us
        self.due_us = now_us + max(1, share)

    def on_time(self, now_us: int) -> None:
        """Say what waits, and when an interval is over, ask and tell."""
        for name in list(self._waiting):
            self._catch_up(name)
        if self.due_us is None:
            self.begin(now_us)
        elif now_us >= self.due_us:
            # One that slept over several does not make up for them.
            self.due_us = max(self.due_us + self.organiser.settings.interval_us, now_us + 1)
            self._interval(now_us)

    def _interval(self, now_us: int) -> None:
        self._probed.clear()
        for name, link in self._links.items():
            self._probe(name, link.address)
            if self._costs.link(name) is None and link.connection is not None:
                self._turn.tell_connection(link, Ping(now_us))
        self._know_costs()
        organiser = self.organiser
        best = organiser.propose_best(now_us)
        if best is not None and not self._busy():
            self._pass_on(best)
        news = organiser.announce()
        if news is not None:
            for name in self._links:
                self._tell(name, organiser.onward(news, name, now_us))

    def _know_costs(self) -> None:
        counters = self._turn.counters
        before, self._measured = self._measured, (counters.match_ns, counters.received)
        self._costs.worked((counters.match_ns - before[0]) // 1_000, counters.received - before[1])
        links = {}
        for name, link in self._links.items():
            if link.round_trip_us:
                self._costs.crossed(name, link.round_trip_us)
            links[name] = self._costs.present_link(name)
        self._costs.forget(self.organiser.knows | links.keys())
        self.organiser.processing = self._costs.processing
        self.organiser.links = links

    def _probe(self, name: str, address: str) -> None:
        """Measure what a message would cost on the way to a broker, at most once in an interval.

        The answer counts when its next news come. Where a cost is configured, or a link forbidden, there is
        nothing to measure.
        """
        if address and name not in self._probed and not self._costs.configured(name):
            self._probed.add(name)
            self._turn.effect(Probe(name, address))

    def probed(self, probed: Probed) -> None:
        """How far another broker is."""
        if probed.round_trip_us is not None:
            self._costs.answered(probed.broker, probed.round_trip_us)
        elif probed.broker not in self._links:
            self._costs.lost(probed.broker)

    def _know_links(self) -> None:
        """Links may have come and gone since the interval began."""
        if self.organiser.links.keys() != self._links.keys():
            self._know_costs()

    # Voice.

    def _tell(self, name: str, news: TopologyNews) -> None:
        link = self._links[name]
        if link.connection is None:
            self._waiting.pop(name, None)
        elif link.channel.writable:
            self._turn.tell_connection(link, news)
        else:
            waiting = self._waiting.setdefault(name, {})
            if news.origin in waiting or len(waiting) < ORIGINS_MAX:
                waiting[news.origin] = news

    def _catch_up(self, name: str) -> None:
        link = self._links.get(name)
        if link is None or link.connection is None:
            del self._waiting[name]
        elif link.channel.writable:
            for news in self._waiting.pop(name).values():
                self._turn.tell_connection(link, news)

    def heard(self, link: Link, news: TopologyNews) -> None:
        """News of another broker."""
        now_us = self._turn.now_us
        self._know_links()
        passed_on = self.organiser.hear(news, link.name)
        if passed_on is not None:
            for name in self._links:
                if name != link.name:
                    self._tell(name, self.organiser.onward(passed_on, name, now_us))
        view = self.organiser.candidate(news.origin, now_us)
        if view is not None:
            self._probe(news.origin, news.address)
        direct = self._costs.link(news.origin) if view is not None else None
        if view is not None and direct is not None and not self._busy():
            request = self.organiser.propose(news.origin, view, direct, now_us)
            if request is not None:
                self._pass_on(request)

    def asked(self, link: Link, request: LinkRequest) -> None:
        """A request for a link comes by. Whoever takes part in an exchange lets it end here."""
        if self._busy():
            return
        self._know_links()
        answered = self.organiser.asked(request, link.name, self._turn.now_us)
        if answered is None:
            return
        if answered.target != self.organiser.broker:
            self._pass_on(answered)
            return
        exchange = self.organiser.verdict(answered)
        if exchange is not None:
            self.proposed += 1
            self.proposals.append((self._turn.now_us, exchange))
            self._turn.note(
                "info",
                "a better tree is proposed",
                add=" - ".join(exchange.added_link),
                remove=" - ".join(exchange.removed_link),
                path=list(exchange.path),
            )
            self._agreed(exchange)

    def _pass_on(self, request: LinkRequest) -> None:
        names = [step.broker for step in request.steps]
        following = self._links.get(names[names.index(self.organiser.broker) + 1])
        # If it gets lost, nothing has happened: the next news lead to another one.
        if following is not None and following.connection is not None and following.channel.writable:
            self._turn.tell_connection(following, request)

    # For people.

    def report(self) -> dict[str, Any]:
        """What this broker knows and proposes."""
        organiser = self.organiser
        return {
            "cached": len(organiser.cache),
            "processing_cost": organiser.processing,
            "link_costs": dict(organiser.links),
            "interest_in_common": {
                name: organiser.interest_in_common(name) for name in sorted(organiser.knows)
            },
            "false_positive_rates": {
                name: organiser.false_positive_rate(name) for name in sorted(organiser.knows)
            },
            "proposed": self.proposed,
            "proposals": [
                {
                    "at_us": at_us,
                    "path": list(exchange.path),
                    "add": list(exchange.added_link),
                    "remove": list(exchange.removed_link),
                }
                for at_us, exchange in self.proposals
            ],
        }


def _publications(frames: Iterable[Frame]) -> Iterator[Hashes]:
    """The publications in frames that come from or go to somebody, as a trace counts them."""
    for frame in frames:
        body = frame.body
        if type(body) is PublicationBatch:
            yield publication_hashes(body.publisher, body.sequences)
        elif isinstance(body, StoredPublications) and not body.replay:
            for publisher, sequence, _ in body.rows:
                yield publication_hashes(publisher, [sequence])
