"""Do stations and brokers meet in a world as clients and brokers do elsewhere?"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from braid.errors import ConfigurationError, InvariantViolated
from braid.protocol import encode_record
from braid.sim import LinkModel, NodeModel, Station, World
from tests.sim.brokers import add_tree

if TYPE_CHECKING:
    from collections.abc import Iterator

    from braid.protocol import PublicationBatch

LINE = {"A": None, "B": "A", "C": "B"}


class Listener:
    """Remembers what a station got, and when."""

    def __init__(self) -> None:
        self.heard: list[tuple[int, str, int]] = []

    def __call__(self, station: Station, batch: PublicationBatch) -> None:
        for sequence in batch.sequences.tolist():
            self.heard.append((station.loop.now_us, batch.publisher, sequence))


def prices(
    count: int, begin_us: int = 2_000_000, pause_us: int = 1000
) -> Iterator[tuple[int, dict[str, Any]]]:
    return ((begin_us + pause_us * number, {"price": number}) for number in range(count))


@pytest.mark.parametrize("codec", [False, True])
def test_publications_cross_the_network_with_its_latency(codec: bool) -> None:
    world = World(1, codec=codec, link=LinkModel(700))
    add_tree(world, LINE)
    listener = Listener()
    world.attach(Station("reader", "C", subscriptions=[("low", "price < 3")], on_delivery=listener))
    world.attach(Station("writer", "A", publications=prices(10), advertise=["price >= 0"]))
    world.run_until_quiet()
    assert listener.heard == [(2_001_400 + 1000 * number, "writer", number + 1) for number in range(3)]
    assert world.checkers.report() == []
    statistics = world.statistics()
    assert (statistics["published"], statistics["delivered"]) == (10, 3)


def test_publications_are_taken_one_by_one() -> None:
    taken = []

    def endless() -> Iterator[tuple[int, dict[str, Any]]]:
        number = 0
        while True:
            taken.append(number)
            yield 1_000_000 + 1000 * number, {"price": number}
            number += 1

    world = World(1)
    add_tree(world, LINE)
    world.attach(Station("writer", "A", publications=endless()))
    world.run_until(1_010_500)
    assert len(taken) == 12
    with pytest.raises(InvariantViolated, match="does not come to rest"):
        world.run_until_quiet(occurrences_max=1000)


def test_subscriptions_come_and_go() -> None:
    world = World(1)
    add_tree(world, LINE)
    listener = Listener()
    reader = world.attach(Station("reader", "C", on_delivery=listener))
    world.attach(Station("writer", "A", publications=prices(30, pause_us=100_000)))
    world.at(2_950_000, lambda: reader.subscribe("all", "TRUE"))
    world.at(3_950_000, lambda: reader.unsubscribe("all"))
    world.run_until_quiet()
    assert [sequence for _, _, sequence in listener.heard] == list(range(11, 21))
    assert world.checkers.report() == []


def test_records_can_be_given_encoded_and_a_station_can_be_far_away() -> None:
    world = World(1)
    add_tree(world, LINE)
    listener = Listener()
    record = encode_record({"price": 1}, 5)
    world.attach(
        Station("reader", "A", subscriptions=[("1", "price = 1")], latency_us=250, on_delivery=listener)
    )
    world.attach(Station("writer", "A", publications=[(2_000_000, record)], latency_us=250))
    world.run_until_quiet()
    assert listener.heard[0][1:] == ("writer", 1)
    assert listener.heard[0][0] >= 2_000_500


def test_a_station_comes_back_when_its_broker_does() -> None:
    world = World(1)
    add_tree(world, LINE, store=True)
    listener = Listener()
    reader = world.attach(Station("reader", "C", subscriptions=[("1", "TRUE")], on_delivery=listener))
    writer = world.attach(
        Station("writer", "A", publications=prices(200, pause_us=100_000), acknowledged=True)
    )
    world.run_until(5_050_000)  # between two publications
    world.crash("C")
    world.crash("A")
    world.run_until(6_000_000)
    assert not reader.connected
    world.restart("C")
    world.restart("A")
    world.run_until_quiet()
    world.run_for(seconds=10)
    assert (reader.sessions, writer.sessions) == (2, 2)
    assert writer.channel.idle
    assert {sequence for _, _, sequence in listener.heard} == set(range(1, 201))
    world.checkers.require()


def test_a_station_that_leaves_publishes_no_more() -> None:
    world = World(1)
    add_tree(world, LINE)
    writer = world.attach(Station("writer", "A", publications=prices(100, pause_us=100_000)))
    world.run_until(3_050_000)
    writer.leave()
    world.run_until_quiet()
    assert writer.published == 11
    assert world.checkers.report() == []


def test_what_a_broker_refuses_is_remembered() -> None:
    world = World(1)
    add_tree(world, LINE)
    station = world.attach(Station("reader", "C", subscriptions=[("1", "price >")]))
    world.run_for(seconds=1)
    assert len(station.refused) == 1
    assert not station.asking


def test_a_capped_uplink_makes_publications_wait_in_the_broker() -> None:
    world = World(1)
    add_tree(world, LINE, node=NodeModel(uplink_messages_per_s=100))
    listener = Listener()
    world.attach(Station("reader", "C", subscriptions=[("1", "TRUE")], on_delivery=listener))
    world.attach(Station("writer", "A", publications=prices(1500), advertise=["TRUE"]))
    world.run_until(3_000_000)
    assert len(listener.heard) == pytest.approx(100, abs=3)
    assert world.machine("A").statistics()["link_waiting_bytes"]["B"] > 5000
    world.run_until_quiet()
    assert len(listener.heard) == 1500
    assert world.checkers.report() == []


def test_stations_need_a_broker_and_one_world() -> None:
    world = World(1)
    add_tree(world, {"A": None})
    with pytest.raises(ConfigurationError, match="no machine called 'Z'"):
        world.attach(Station("reader", "Z"))
    station = world.attach(Station("other", "A"))
    with pytest.raises(ConfigurationError, match="already"):
        world.attach(station)
