"""What crosses to a replica before it knows all tables, by each of the four resumptions?

A publisher at A, readers at B and C, and F between the three. F is replaced; what B says reaches the replica
late, so that it knows for a while what C wants and not what B does. What B wants covers what C does, so F had
told A of the one alone, and the replica tells it of the other first.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from braid.broker import replica_cache
from braid.broker.identities import granted_key
from braid.broker.replica_cache import ROWS_PER_TURN
from braid.broker.resumptions import BASIC, IMMEDIATE, INCREMENTAL, RESUMPTIONS, SYNCHRONOUS
from braid.protocol.log import KeepStanding
from braid.protocol.messages import Ask, Done, Subscribe
from braid.routing import RoutingTables
from tests.broker.wire import Network, WireClient

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from braid.matching.columns import IntArray
    from braid.matching.matcher import OwnMatching
    from braid.protocol import PublicationBatch

KEY = "the secret of the replica"
AROUND = ("A", "B", "C")
# What is published while F is gone, and what of it C wants; B wants all of it.
PUBLISHED = [{"x": 1}, {"x": 11}, {"x": 2}, {"x": 12}]
EACH = pytest.mark.parametrize("resumption", RESUMPTIONS)


class Star:
    """The network, until F has crashed and its place is granted."""

    def __init__(self, *, acknowledged: bool = False, **settings: object) -> None:
        self.network = network = Network()
        network.start("F")
        for name in AROUND:
            network.start(name, neighbours=("F",), **settings)
        network.run(us=3_000_000)
        self.at_b, self.at_c = self.reader("B", "x > 0"), self.reader("C", "x > 10")
        self.publisher = network.client("p", "A")
        self.publisher.publish({"x": 100}, acknowledged=acknowledged)
        network.run(us=1_000_000)
        assert (self.at_b.values("x"), self.at_c.values("x")) == ([100], [100])
        network.kill("F")
        self.publisher.publish(*PUBLISHED, acknowledged=acknowledged)
        network.run(us=1_000_000)
        for name in AROUND:
            operator = network.client(f"o at {name}", name)
            key = granted_key(KEY, name)
            operator.ask(Ask(1, "grant", {"name": "F", "address": "R", "epoch": "1", "key": key}))
            network.run(us=50_000)
            assert operator.answers(Done)

    def reader(self, broker: str, text: str) -> WireClient:
        reader = self.network.client(f"reader at {broker}", broker)
        reader.ask(Subscribe(1, "1", text))
        self.network.run(us=1_000_000)
        assert reader.answers(Done)
        return reader

    def replace(self, resumption: str, **settings: object) -> None:
        """Start the replica; what B says stays on its way to it."""
        self.network.hold("B", "R")
        standing = KeepStanding("F", 1, KEY, tuple((each, each) for each in AROUND), resumption)
        self.network.start(
            "R", broker_id="F", neighbours=AROUND, expected=AROUND, standing=standing, **settings
        )
        self.network.run(us=1_000_000)

    def release(self) -> None:
        """Let everything arrive that B has said."""
        self.network.release("B", "R")
        self.network.run(us=5_000_000)

    def got(self) -> tuple[list[int], list[int]]:
        """What came to the readers at B and C since F is gone."""
        return self.at_b.values("x")[1:], self.at_c.values("x")[1:]


@EACH
def test_who_gets_what_before_and_after_all_tables_are_known(resumption: str) -> None:
    star = Star()
    star.replace(resumption)
    before = {SYNCHRONOUS: [], BASIC: [], INCREMENTAL: [11, 12], IMMEDIATE: [11, 12]}
    assert star.got() == ([], before[resumption])
    star.release()
    after = {
        SYNCHRONOUS: [1, 11, 2, 12],
        BASIC: [],  # it came before the replica knew that anybody wants it
        INCREMENTAL: [11, 12, 1, 2],  # what C wants was at the replica before, the rest still waited at A
        IMMEDIATE: [1, 11, 2, 12],
    }
    at_c = [] if resumption == BASIC else [11, 12]
    assert star.got() == (after[resumption], at_c)
    if resumption != IMMEDIATE:  # where B, expected by name and dialled by address, is kept everything twice
        for name in ("R", *AROUND):
            assert star.network.cores[name].statistics()["counters"]["duplicates"] == 0, name
    star.publisher.publish({"x": 3}, {"x": 13})
    star.network.run(us=1_000_000)
    assert star.got() == ([*after[resumption], 3, 13], [*at_c, 13])


@EACH
def test_what_is_acknowledged_waits_for_the_tables_by_every_resumption(resumption: str) -> None:
    star = Star(acknowledged=True)
    star.replace(resumption)
    assert star.got() == ([], [])
    assert star.publisher.cares == [1]
    star.release()
    assert star.got() == ([1, 11, 2, 12], [11, 12])
    assert star.publisher.cares == [1, 2, 3, 4, 5]


@EACH
def test_what_is_published_meanwhile_goes_the_same_way(resumption: str) -> None:
    star = Star()
    star.replace(resumption)
    star.publisher.publish({"x": 20})
    star.publisher.publish({"x": 5}, {"x": 21})
    star.network.run(us=1_000_000)
    early = {SYNCHRONOUS: [], BASIC: [20, 21]}.get(resumption, [11, 12, 20, 21])
    assert star.got() == ([], early)
    star.release()
    at_b, at_c = star.got()
    assert at_c == (early or [11, 12, 20, 21])
    assert sorted(at_b) == ([] if resumption == BASIC else [1, 2, 5, 11, 12, 20, 21])
    if resumption == IMMEDIATE:
        assert at_b == [1, 11, 2, 12, 20, 5, 21]


@pytest.mark.parametrize("resumption", [each for each in RESUMPTIONS if each != BASIC])
def test_a_link_that_breaks_on_the_way_loses_nothing(resumption: str) -> None:
    star = Star()
    star.replace(resumption)
    star.network.cut("A", "R")
    star.publisher.publish({"x": 20}, {"x": 5})
    star.network.run(us=500_000)
    star.release()
    at_b, at_c = star.got()
    assert sorted(at_b) == [1, 2, 5, 11, 12, 20]
    assert at_c == [11, 12, 20]


def test_what_a_replica_keeps_for_late_subscriptions_is_bounded() -> None:
    star = Star()
    star.replace(INCREMENTAL, link_queue_bytes_max=2_000)
    for number in range(100):
        star.publisher.publish({"x": 100 + number, "text": "x" * 100})
        star.network.run(us=10_000)
    replica = star.network.cores["R"]
    assert replica.statistics()["counters"]["dropped"] > 0
    star.release()
    at_b, at_c = star.got()
    assert at_c == [11, 12, *range(100, 200)]
    assert set(range(195, 200)) < set(at_b), "the latest were kept"
    assert len(at_b) < len(at_c)


def test_what_is_kept_is_routed_again_only_where_a_new_subscription_meets_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Many subscriptions that come one after the other must not each cost as much as all that is kept."""
    star = Star()
    several = range(1, 61)
    everything = star.network.client("reader of all", "C")
    everything.ask(Subscribe(1, "1", "x < 0"))
    reader = star.network.client("reader of many", "B")
    for number in several:
        reader.ask(Subscribe(number, f"{number}", f"x = {-number}"))
    star.replace(INCREMENTAL)
    for number in several:
        star.publisher.publish({"x": -number})
        star.network.run(us=10_000)
    assert len(everything.values("x")) == len(several), "the replica has them and keeps them for B"
    routed = []
    usual = RoutingTables.wanted_behind

    def counted(tables: RoutingTables, link: str, publications: Any) -> Any:
        routed.append(link)
        return usual(tables, link, publications)

    monkeypatch.setattr(RoutingTables, "wanted_behind", counted)
    star.release()
    assert sorted(reader.values("x")) == sorted(-number for number in several)
    assert len(routed) <= 5 * len(several)


def test_nothing_is_looked_at_once_everything_is_known() -> None:
    star = Star()
    star.replace(INCREMENTAL)
    assert star.network.cores["R"]._ways.watched
    assert star.network.cores["A"]._ways.watched
    star.release()
    for name in ("R", *AROUND):
        assert not star.network.cores[name]._ways.watched, name


def test_late_subscriptions_alone_are_held_against_what_is_kept_some_of_it_a_turn(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Each portion of subscriptions had everything that is kept matched by the whole table, in one turn."""
    star = Star()
    star.replace(INCREMENTAL)
    for number in range(30):
        star.publisher.publish(*({"x": 11 + number % 9} for _ in range(200)))
        star.network.run(us=10_000)
    compared: list[int] = []
    wanted_by = replica_cache.wanted_by

    def counted(
        matching: OwnMatching,
    ) -> Callable[[Sequence[PublicationBatch]], Sequence[IntArray]]:
        def wanted(batches: Sequence[PublicationBatch]) -> Sequence[IntArray]:
            compared.append(sum(batch.count for batch in batches))
            return wanted_by(matching)(batches)

        return wanted

    def never(*arguments: object) -> None:
        raise AssertionError("what is kept is not matched by the tables again")

    monkeypatch.setattr(replica_cache, "wanted_by", counted)
    monkeypatch.setattr(RoutingTables, "wanted_behind", never)
    star.release()
    at_b, _ = star.got()
    assert len(at_b) == 4 + 6_000
    assert len(compared) > 5, "it takes more than one turn"
    assert max(compared) <= ROWS_PER_TURN + 200
    assert sum(compared) <= 6_100, "once for all of it, whatever was known before"
    assert not star.network.cores["R"]._ways.watched
    assert len(star.network.cores["R"]._resumptions.cache) == 0
