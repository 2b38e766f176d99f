"""Does the core decide as a naive twin with plain lists would?"""

from __future__ import annotations

from collections import defaultdict

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, invariant, multiple, rule

from braid.embedded.core import Disconnected, Draft, Mailroom, Readable, Router, Settled, WaitGraph
from braid.embedded.mailbox import Mailbox, Offer, WhenFull
from braid.errors import BusClosedError
from braid.language import Filter

FILTERS = [
    Filter(text)
    for text in (
        "price > 2",
        "price <= 2",
        "symbol = 'A'",
        "symbol IN ('B', 'C') OR price = 0",
        "volume IS NULL",
    )
]
ATTRIBUTES = st.fixed_dictionaries(
    {"price": st.integers(0, 4)}, optional={"symbol": st.sampled_from("ABC"), "volume": st.integers(0, 1)}
)


class Twin:
    """What one subscriber should see, written the obvious way."""

    def __init__(self, mailbox: Mailbox) -> None:
        self.mailbox = mailbox
        self.queue: list[tuple[str, int]] = []
        self.line: list[tuple[int, tuple[str, int]]] = []
        self.open = True
        self.lost = 0
        self.taken = 0

    def put(self, call: int, identity: tuple[str, int]) -> None:
        if not self.open:
            self.lost += 1
        elif len(self.queue) < self.mailbox.capacity:
            self.queue.append(identity)
        elif self.mailbox.when_full is WhenFull.BLOCK:
            self.line.append((call, identity))
        elif self.mailbox.when_full is WhenFull.DROP_OLDEST:
            self.queue.pop(0)
            self.queue.append(identity)
            self.lost += 1
        else:
            self.open = False
            self.lost += 1

    def take(self) -> tuple[str, int] | None:
        if not self.queue:
            return None
        self.taken += 1
        if self.line:
            self.queue.append(self.line.pop(0)[1])
        return self.queue.pop(0)


class CoreAgainstTwin(RuleBasedStateMachine):
    """Any sequence of calls leaves the core's queues as the twins have them."""

    subscriptions = Bundle("subscriptions")
    offers = Bundle("offers")

    def __init__(self) -> None:
        super().__init__()
        self.router = Router("test")
        self.mailroom = Mailroom()
        self.twins: dict[int, Twin] = {}
        self.sequences: dict[str, int] = defaultdict(int)
        self.calls: dict[Offer, int] = {}
        self.published = 0
        self.read: dict[int, list[tuple[str, int]]] = defaultdict(list)

    @rule(
        target=subscriptions,
        condition=st.sampled_from(FILTERS),
        capacity=st.integers(1, 3),
        when_full=st.sampled_from(WhenFull),
    )
    def subscribe(self, condition: Filter, capacity: int, when_full: WhenFull) -> Mailbox:
        mailbox = self.mailroom.open(None, condition, capacity, when_full)
        self.router.add(mailbox.key, condition)
        self.twins[mailbox.key] = Twin(mailbox)
        return mailbox

    @rule(target=offers, publisher=st.sampled_from("xy"), batch=st.lists(ATTRIBUTES, max_size=6))
    def publish(self, publisher: str, batch: list[dict[str, int | str]]) -> Offer:
        drafts = [Draft(attributes, b"", "") for attributes in batch]
        first, routed = self.router.route(publisher, drafts, 0)
        assert first == self.sequences[publisher] + 1
        readable = {key for key in routed if not self.twins[key].queue}
        offer, effects = self.mailroom.offer(len(drafts), routed)
        call = self.calls[offer] = len(self.calls)
        self.published += len(batch)
        was_open = {key for key, twin in self.twins.items() if twin.open}
        for attributes in batch:
            self.sequences[publisher] += 1
            for key in was_open:
                if self.twins[key].mailbox.filter.matches(attributes):
                    self.twins[key].put(call, (publisher, self.sequences[publisher]))
        ended = {key for key in was_open if not self.twins[key].open}
        assert {effect.key for effect in effects if isinstance(effect, Readable)} == readable
        assert {effect.key for effect in effects if isinstance(effect, Disconnected)} == ended
        for key in ended:
            self.router.remove(key)
        return offer

    @rule(mailbox=subscriptions)
    def take(self, mailbox: Mailbox) -> None:
        twin = self.twins.get(mailbox.key)
        waiting_before = self.waiting_calls()
        publication, effects = self.mailroom.take(mailbox)
        identity = None if publication is None else (publication.publisher, publication.sequence)
        assert identity == (None if twin is None else twin.take())
        settled = {self.calls[effect.offer] for effect in effects if isinstance(effect, Settled)}
        assert settled == waiting_before - self.waiting_calls()
        if identity is not None:
            self.read[mailbox.key].append(identity)

    @rule(offer=consumes(offers))
    def withdraw(self, offer: Offer) -> None:
        call = self.calls[offer]
        undelivered, names = self.mailroom.withdraw(offer)
        taken_back = 0
        for twin in self.twins.values():
            kept = [entry for entry in twin.line if entry[0] != call]
            assert (twin.mailbox.name in names) == (len(kept) < len(twin.line))
            taken_back += len(twin.line) - len(kept)
            twin.lost += len(twin.line) - len(kept)
            twin.line = kept
        assert undelivered == taken_back

    @rule(mailbox=consumes(subscriptions))
    def unsubscribe(self, mailbox: Mailbox) -> None:
        waiting_before = self.waiting_calls()
        self.router.remove(mailbox.key)
        twin = self.twins.pop(mailbox.key)
        effects = self.mailroom.stop(mailbox)
        settled = {self.calls[effect.offer] for effect in effects if isinstance(effect, Settled)}
        assert settled == waiting_before - self.waiting_calls()
        assert mailbox.ended
        assert mailbox.discarded + mailbox.dropped == len(twin.queue) + len(twin.line) + twin.lost

    @rule(target=subscriptions, drained=st.lists(consumes(subscriptions), max_size=1))
    def read_to_the_end(self, drained: list[Mailbox]) -> object:
        for mailbox in drained:
            while mailbox.queue:
                self.take(mailbox)
        return multiple(*drained)

    def waiting_calls(self) -> set[int]:
        return {call for twin in self.twins.values() for call, _ in twin.line}

    @invariant()
    def queues_agree(self) -> None:
        for twin in self.twins.values():
            mailbox = twin.mailbox
            assert [(row.publisher, row.sequence) for row in mailbox.queue] == twin.queue
            assert mailbox.standing_in_line == len(twin.line)
            assert mailbox.open == twin.open
            assert len(mailbox.queue) <= mailbox.capacity
            assert mailbox.delivered == twin.taken
            assert mailbox.dropped + mailbox.discarded == twin.lost

    @invariant()
    def order_is_kept_and_nothing_comes_twice(self) -> None:
        for identities in self.read.values():
            for publisher in "xy":
                numbers = [sequence for sender, sequence in identities if sender == publisher]
                assert numbers == sorted(set(numbers))

    @invariant()
    def statistics_add_up(self) -> None:
        total = self.mailroom.statistics()
        assert total.published == self.published
        for entry in (total, *total.subscriptions):
            accounted = entry.delivered + entry.queued + entry.waiting + entry.dropped + entry.discarded
            assert entry.matched == accounted


CoreAgainstTwin.TestCase.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
TestCoreAgainstTwin = CoreAgainstTwin.TestCase


def drafts(count: int) -> list[Draft]:
    return [Draft({"price": 3}, b"", "") for _ in range(count)]


def test_closing_keeps_what_is_queued_and_refuses_what_stands_in_line() -> None:
    router, mailroom = Router("test"), Mailroom()
    mailbox = mailroom.open("slow", Filter("price > 0"), 2, WhenFull.BLOCK)
    router.add(mailbox.key, mailbox.filter)
    offer, _ = mailroom.offer(3, router.route("x", drafts(3), 0)[1])
    assert Settled(offer) in mailroom.close(drain=True)
    assert (offer.refused, offer.delivered, offer.undelivered) == (True, 2, 0)
    assert [mailroom.take(mailbox)[0].sequence for _ in range(2)] == [1, 2]
    assert mailroom.take(mailbox)[0] is None
    assert mailbox.ended
    assert mailroom.statistics().subscriptions[0].delivered == 2


def test_closing_without_draining_throws_everything_away() -> None:
    router, mailroom = Router("test"), Mailroom()
    mailbox = mailroom.open("slow", Filter("price > 0"), 2, WhenFull.DROP_OLDEST)
    router.add(mailbox.key, mailbox.filter)
    mailroom.offer(3, router.route("x", drafts(3), 0)[1])
    mailroom.close(drain=False)
    assert mailbox.ended
    assert (mailbox.dropped, mailbox.discarded) == (1, 2)


def test_a_closed_router_takes_nothing_more() -> None:
    router = Router("test")
    router.closed = True
    with pytest.raises(BusClosedError, match="test"):
        router.route("x", drafts(1), 0)
    with pytest.raises(BusClosedError):
        router.add(1, FILTERS[0])


def test_rings_of_waits_are_found() -> None:
    waits = WaitGraph()
    assert waits.closes_ring(1, [1])
    assert not waits.closes_ring(1, [2])
    waits.begin(2, {3, 4})
    waits.begin(4, {1})
    assert waits.closes_ring(1, [2])
    assert not waits.closes_ring(5, [2])
    waits.end(4)
    assert not waits.closes_ring(1, [2])
