"""Is every neighbour told what it needs, nothing else, and never with a gap?

A model recomputes from scratch what must hold after each step, and a simulated neighbour per link
replays what it is told.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from braid.errors import LocalProtocolError
from braid.language import Filter
from braid.matching.shared import SharedMatching
from braid.routing import RoutingTables, Tell, Verb
from tests.routing.helpers import PUBLICATIONS, accepted, all_filters, covers, has_residual, intersects

if TYPE_CHECKING:
    from collections.abc import Hashable

LINKS = ["east", "north", "west"]
LOCALS: list[Hashable] = [("client", 1), ("client", 2)]
Known = dict[str, Filter]
Entries = dict[str, tuple[Filter, "Hashable"]]

keys = st.integers(0, 9).map("k{}".format)
items = st.lists(st.tuples(keys, all_filters), max_size=5)
origins = st.sampled_from([*LINKS, *LOCALS])


class Receiver:
    """What a neighbour knows after it has heard some tells."""

    def __init__(self) -> None:
        self.subscriptions: Known = {}
        self.advertisements: Known = {}

    def hear(self, tell: Tell) -> None:
        about_subscriptions = tell.verb in (Verb.SUBSCRIBE, Verb.UNSUBSCRIBE)
        known = self.subscriptions if about_subscriptions else self.advertisements
        if tell.verb in (Verb.SUBSCRIBE, Verb.ADVERTISE):
            assert tell.filter is not None
            assert known.get(tell.key) != tell.filter, "told twice"
            known[tell.key] = tell.filter
        else:
            assert tell.filter is None
            del known[tell.key]  # only what is known is taken back


class Batch:
    """All publications of these tests, on their way."""

    memo = None

    def __len__(self) -> int:
        return len(PUBLICATIONS)

    def attributes(self) -> list[dict[str, Any]]:
        return list(PUBLICATIONS)

    def records(self) -> list[bytes]:
        return [repr(sorted(values.items())).encode() for values in PUBLICATIONS]


def rows(known: Known) -> set[int]:
    return set().union(*(accepted(filter) for filter in known.values()))


class TablesMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.tables = RoutingTables()
        self.asks_here = False
        self.receivers: dict[str, Receiver] = {}
        self.subscriptions: Entries = {}
        self.advertisements: Entries = {}

    # The model.

    def wanted(self, link: str) -> Known:
        offered = [filter for filter, origin in self.advertisements.values() if origin == link]
        return {
            key: filter
            for key, (filter, origin) in self.subscriptions.items()
            if origin != link and any(intersects(offer, filter) for offer in offered)
        }

    def offered(self, link: str) -> Known:
        return {key: filter for key, (filter, origin) in self.advertisements.items() if origin != link}

    def before(self) -> dict[str, tuple[Known, Known, Known, Known]]:
        return {
            link: (
                self.wanted(link),
                self.offered(link),
                dict(receiver.subscriptions),
                dict(receiver.advertisements),
            )
            for link, receiver in self.receivers.items()
        }

    def check(self, tells: list[Tell], before: dict[str, tuple[Known, Known, Known, Known]]) -> None:
        """Replay, and look at every moment between two tells."""
        lasting = {}
        for link, (wanted, offered, _, _) in before.items():
            if link in self.receivers:
                lasting[link] = (_lasting(wanted, self.wanted(link)), _lasting(offered, self.offered(link)))
        for tell in tells:
            receiver = self.receivers[tell.link]
            receiver.hear(tell)
            if tell.link in lasting:
                assert lasting[tell.link][0] <= rows(receiver.subscriptions)
                assert lasting[tell.link][1] <= rows(receiver.advertisements)
        for link, receiver in self.receivers.items():
            if link in before:
                _check_new(before[link][2], receiver.subscriptions)
                _check_new(before[link][3], receiver.advertisements)

    # What can happen.

    @initialize(links=st.sets(st.sampled_from(LINKS), min_size=1), shared=st.booleans())
    def start(self, links: set[str], shared: bool) -> None:
        if shared:
            self.tables = RoutingTables(SharedMatching().view("here"))
        for link in sorted(links):
            self.add_link(link)

    @rule()
    def somebody_asks_for_local_ones_alone(self) -> None:
        self.asks_here = True

    @rule(link=st.sampled_from(LINKS))
    def add_link(self, link: str) -> None:
        before = self.before()
        tells = self.tables.add_link(link)
        self.receivers.setdefault(link, Receiver())
        self.check(tells, before)

    @rule(link=st.sampled_from(LINKS))
    def remove_link(self, link: str) -> None:
        before = self.before()
        tells = self.tables.remove_link(link)
        self.receivers.pop(link, None)
        for entries in (self.subscriptions, self.advertisements):
            for key in [key for key, (_, origin) in entries.items() if origin == link]:
                del entries[key]
        self.check(tells, before)

    @rule(items=items, origin=origins)
    def subscribe(self, items: list[tuple[str, Filter]], origin: Hashable) -> None:
        if origin in self.receivers or origin in LOCALS:
            for item in _steps(items, self.subscriptions):
                before = self.before()
                tells = self.tables.subscribe(item, origin, link=origin in self.receivers)
                self.subscriptions.update({key: (filter, origin) for key, filter in item})
                self.check(tells, before)

    @rule(items=items, origin=origins)
    def advertise(self, items: list[tuple[str, Filter]], origin: Hashable) -> None:
        if origin in self.receivers or origin in LOCALS:
            for item in _steps(items, self.advertisements):
                before = self.before()
                tells = self.tables.advertise(item, origin, link=origin in self.receivers)
                self.advertisements.update({key: (filter, origin) for key, filter in item})
                self.check(tells, before)
                verbs = [tell.verb for tell in tells]
                if len(item) > 1 and Verb.SUBSCRIBE in verbs:
                    assert verbs == sorted(verbs, key=lambda verb: verb is not Verb.SUBSCRIBE)

    @rule(chosen=st.lists(keys, max_size=4), origin=st.none() | origins)
    def unsubscribe(self, chosen: list[str], origin: Hashable) -> None:
        before = self.before()
        tells = self.tables.unsubscribe(chosen, origin=origin)
        _remove(self.subscriptions, chosen, origin)
        self.check(tells, before)

    @rule(chosen=st.lists(keys, max_size=4), origin=st.none() | origins)
    def unadvertise(self, chosen: list[str], origin: Hashable) -> None:
        before = self.before()
        tells = self.tables.unadvertise(chosen, origin=origin)
        _remove(self.advertisements, chosen, origin)
        self.check(tells, before)

    # What must hold.

    @invariant()
    def neighbours_know_enough_and_nothing_unwanted(self) -> None:
        assert set(self.tables.links) == set(self.receivers)
        for link, receiver in self.receivers.items():
            for known, needed in (
                (receiver.subscriptions, self.wanted(link)),
                (receiver.advertisements, self.offered(link)),
            ):
                assert known.items() <= needed.items()
                assert all(any(covers(told, filter) for told in known.values()) for filter in needed.values())

    @invariant()
    def questions_are_answered(self) -> None:
        statistics = self.tables.statistics()
        assert statistics.subscriptions == len(self.subscriptions)
        assert statistics.advertisements == len(self.advertisements)
        for link, receiver in self.receivers.items():
            told = self.tables.told_to(link)
            replayed = Receiver()
            for tell in told:
                replayed.hear(tell)
            assert replayed.subscriptions == receiver.subscriptions
            assert replayed.advertisements == receiver.advertisements
            assert [tell.verb is Verb.SUBSCRIBE for tell in told] == sorted(
                tell.verb is Verb.SUBSCRIBE for tell in told
            )
            wanted = self.wanted(link)
            for key, (filter, _) in self.subscriptions.items():
                representative = self.tables.representative(link, key)
                assert (representative is None) == (key not in wanted)
                if representative is not None:
                    assert covers(receiver.subscriptions[representative], filter)
                    assert representative == key or key not in receiver.subscriptions
            assert [set(some) for some in self.tables.from_link(link)] == [
                {key for key, (_, origin) in entries.items() if origin == link}
                for entries in (self.subscriptions, self.advertisements)
            ]
            numbers = statistics.links[link]
            assert numbers.subscriptions_told == len(receiver.subscriptions)
            assert numbers.subscriptions_told + numbers.subscriptions_hidden == len(wanted)
            assert 0 <= numbers.covering_ratio <= 1

    @invariant()
    def publications_find_their_destinations(self) -> None:
        found = self.tables.destinations(PUBLICATIONS)
        columns = {group: set(np.flatnonzero(found.matrix[:, n])) for n, group in enumerate(found.groups)}
        for origin in [*LINKS, *LOCALS]:
            known = {key: filter for key, (filter, theirs) in self.subscriptions.items() if theirs == origin}
            assert columns.get(origin, set()) == rows(known)
        if self.asks_here:
            here = {
                origin: set(range(len(PUBLICATIONS))) if wanted is None else set(wanted.tolist())
                for origin, wanted in self.tables.reached_here([Batch()])
            }
            assert here == {origin: columns[origin] for origin in LOCALS if columns.get(origin)}


def _lasting(before: Known, after: Known) -> set[int]:
    """The publications that some entry asks for before and after."""
    both = before.keys() & after.keys()
    return set().union(*(accepted(before[key]) & accepted(after[key]) for key in both))


def _check_new(before: Known, after: Known) -> None:
    """Nothing was told that a filter covers which was known before and still is."""
    stayed = [filter for key, filter in before.items() if after.get(key) == filter]
    for key, filter in after.items():
        if before.get(key) != filter and not has_residual(filter) and filter.satisfiable:
            assert not any(covers(other, filter) for other in stayed)


def _steps(items: list[tuple[str, Filter]], entries: Entries) -> list[list[tuple[str, Filter]]]:
    """New keys go in together; each replacement is a step that is looked at by itself."""
    fresh = {key: filter for key, filter in items if key not in entries}
    return [list(fresh.items()), *([item] for item in items if item[0] in entries)]


def _remove(entries: Entries, chosen: list[str], origin: Hashable) -> None:
    for key in chosen:
        if key in entries and origin in (None, entries[key][1]):
            del entries[key]


TestTables = TablesMachine.TestCase
TestTables.settings = settings(max_examples=60, stateful_step_count=20)


def texts(tells: list[Tell]) -> list[str]:
    return [str(tell) for tell in tells]


def star() -> RoutingTables:
    """A broker with two neighbours, of which the east wants everything."""
    tables = RoutingTables()
    tables.add_link("east")
    tables.add_link("west")
    tables.advertise([("a", Filter("TRUE"))], "east", link=True)
    return tables


def test_a_revealed_subscription_is_told_before_its_coverer_is_gone() -> None:
    tables = star()
    tables.subscribe([("wide", Filter("x > 1")), ("narrow", Filter("x > 2"))], "alice", link=False)
    assert tables.representative("east", "narrow") == "wide"
    assert texts(tables.unsubscribe(["wide"])) == [
        "east: subscribe narrow to x > 2",
        "east: unsubscribe wide",
    ]


def test_a_mixed_batch_equals_its_parts() -> None:
    together, apart = star(), star()
    batch = [("k", Filter("x > 1")), ("n", Filter("y = 1")), ("k", Filter("x > 3")), ("m", Filter("x > 2"))]
    expected = [tell for item in batch for tell in apart.subscribe([item], "alice", link=False)]
    assert together.subscribe(batch, "alice", link=False) == expected
    batch = [("k", Filter("x > 1")), ("n", Filter("y = 1")), ("k", Filter("x > 3"))]
    expected = [tell for item in batch for tell in apart.advertise([item], "west", link=True)]
    assert set(together.advertise(batch, "west", link=True)) == set(expected)


def test_a_repeated_entry_changes_nothing() -> None:
    tables = star()
    tables.subscribe([("k", Filter("x > 1"))], "alice", link=False)
    assert tables.subscribe([("k", Filter("NOT x <= 1"))], "alice", link=False) == []
    assert tables.advertise([("a", Filter("TRUE"))], "east", link=True) == []
    assert tables.unsubscribe(["unknown"]) == []
    assert tables.unadvertise(["unknown"]) == []


def test_a_moved_subscription_is_told_where_it_was_before() -> None:
    tables = star()
    tables.advertise([("b", Filter("TRUE"))], "west", link=True)
    assert texts(tables.subscribe([("k", Filter("x > 1"))], "west", link=True)) == [
        "east: subscribe k to x > 1"
    ]
    assert texts(tables.subscribe([("k", Filter("x > 1"))], "east", link=True)) == [
        "west: subscribe k to x > 1",
        "east: unsubscribe k",
    ]
    assert tables.origin_of("k") == "east"
    # The late farewell of the former origin does not concern the entry any more.
    assert tables.unsubscribe(["k"], origin="west") == []
    assert tables.origin_of("k") == "east"
    assert tables.origin_of("b") == "west"
    assert tables.origin_of("unknown") is None


def test_mistakes_are_named() -> None:
    tables = star()
    with pytest.raises(LocalProtocolError, match="'north' is not a link"):
        tables.subscribe([], "north", link=True)
    with pytest.raises(LocalProtocolError, match="'east' is a link"):
        tables.advertise([], "east", link=False)
    with pytest.raises(LocalProtocolError, match="not None"):
        tables.subscribe([], None, link=False)
    with pytest.raises(LocalProtocolError, match="no link to 'north'"):
        tables.told_to("north")
    tables.subscribe([("k", Filter("x > 1"))], "alice", link=False)
    with pytest.raises(LocalProtocolError, match="'alice' is a local destination"):
        tables.add_link("alice")
