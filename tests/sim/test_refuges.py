"""Do clients find another broker when theirs is gone, and their own again when it has a replica?"""

from __future__ import annotations

from typing import Any

from braid.sim import FullClient, World
from tests.sim.brokers import add_tree
from tests.sim.replica_worlds import Failover


def world_of_three(seed: int = 1, **settings: Any) -> World:
    """A, F and B in a line."""
    world = World(seed, validate_us=100_000)
    add_tree(world, {"F": None, "A": "F", "B": "F"}, store=True, **settings)
    world.run_for(seconds=2)
    return world


def numbers(client: FullClient, key: str) -> list[int]:
    return [row.sequence for row in client.rows[key]]


def test_clients_of_a_broker_that_is_gone_go_to_its_neighbours_and_lose_nothing() -> None:
    world = world_of_three()
    reader = world.admit(FullClient("reader", ["B"], subscriptions={"all": "x >= 0"}))
    writer = world.admit(FullClient("writer", ["F"], advertise=["x >= 0"]))
    world.run_for(seconds=1)
    for number in range(20):
        writer.publish({"x": number})
        world.run_for(us=5_000)
    world.crash("F")
    for number in range(20, 40):
        writer.publish({"x": number})
        world.run_for(us=5_000)
    world.run_for(seconds=3)
    assert writer.broker in ("A", "B")
    failover = Failover(world, "F", ["A", "B"], "R")
    failover.grants()
    failover.start()
    for number in range(40, 60):
        writer.publish({"x": number})
        world.run_for(us=5_000)
    world.run_for(seconds=5)
    assert numbers(reader, "all") == list(range(1, 61))
    assert len(writer.safe) == 60
    assert (reader.problems, writer.problems) == ([], [])
    world.checkers.require()


def test_a_plain_subscription_is_made_again_at_a_neighbour() -> None:
    world = world_of_three()
    reader = world.admit(FullClient("reader", ["F"], subscriptions={"all": "x >= 0"}))
    writer = world.admit(FullClient("writer", ["A"], advertise=["x >= 0"]))
    world.run_for(seconds=1)
    world.crash("F")
    world.run_for(seconds=5)
    assert reader.connected
    assert reader.broker in ("A", "B")
    failover = Failover(world, "F", ["A", "B"], "R")
    failover.grants()
    failover.start()
    world.run_for(seconds=3)
    assert reader.broker in ("A", "B"), "it stays where it is: to go again would cost it publications"
    for number in range(10):
        writer.publish({"x": number})
    world.run_for(seconds=2)
    assert numbers(reader, "all") == list(range(1, 11))


def test_a_reader_of_a_log_waits_for_the_replica_and_makes_no_other_log() -> None:
    world = world_of_three()
    reader = world.admit(FullClient("reader", ["F"], durables={"log": "x >= 0"}))
    world.run_for(seconds=1)
    assert "log" in reader.answered
    world.crash("F")
    world.run_for(seconds=5)
    assert reader.broker in ("A", "B")
    assert all(not world.machine(name).snapshot().store.logs for name in ("A", "B"))
    failover = Failover(world, "F", ["A", "B"], "R")
    failover.grants()
    failover.start(store=True)
    world.run_for(seconds=5)
    assert (reader.broker, reader.connected) == ("F", True)


def test_a_reader_whose_rows_are_gone_hears_so_with_the_last_offset_that_it_knows() -> None:
    """Not one offset 0 in silence."""
    world = world_of_three()
    reader = world.admit(FullClient("reader", ["F"], durables={"log": "x >= 0"}))
    writer = world.admit(FullClient("writer", ["A"], advertise=["x >= 0"]))
    world.run_for(seconds=1)
    for number in range(10):
        writer.publish({"x": number})
    world.run_for(seconds=1)
    assert [row.offset for row in reader.rows["log"]] == list(range(10))
    world.crash("F")
    failover = Failover(world, "F", ["A", "B"], "R")
    failover.grants()
    failover.start(store=True)
    for number in range(10):
        writer.publish({"x": number})
    world.run_for(seconds=10)
    assert len(reader.rows["log"]) == 10
    assert [getattr(problem, "code", "") for problem in reader.problems] == ["lost"]
    assert "offset 9" in str(reader.problems[0])
    assert not world.machine("R").snapshot().store.logs


def test_a_client_goes_home_when_its_broker_is_back_where_it_was() -> None:
    world = world_of_three()
    reader = world.admit(FullClient("reader", ["F"], durables={"log": "x >= 0"}))
    writer = world.admit(FullClient("writer", ["A"], advertise=["x >= 0"]))
    world.run_for(seconds=1)
    world.crash("F")
    for number in range(10):
        writer.publish({"x": number})
    world.run_for(seconds=5)
    assert reader.broker in ("A", "B")
    world.restart("F")
    world.run_for(seconds=10)
    assert reader.broker == "F"
    assert numbers(reader, "log") == list(range(1, 11))
    assert len(writer.safe) == 10


def test_a_client_whose_refuge_does_not_know_its_broker_finds_it_again() -> None:
    world = World(1, validate_us=100_000)
    add_tree(world, {"F": None, "A": "F", "B": "A"}, store=True)
    world.run_for(seconds=2)
    reader = world.admit(FullClient("reader", ["F"], durables={"log": "x >= 0"}))
    writer = world.admit(FullClient("writer", ["B"], advertise=["x >= 0"]))
    world.run_for(seconds=1)
    world.crash("F")
    world.run_for(seconds=5)
    assert reader.broker == "A"
    world.crash("A")
    world.run_for(seconds=5)
    assert reader.broker == "B"
    world.restart("A")
    world.restart("F")
    for number in range(10):
        writer.publish({"x": number})
    world.run_for(seconds=60)
    assert reader.broker == "F"
    assert numbers(reader, "log") == list(range(1, 11))


def test_a_short_absence_sends_nobody_away() -> None:
    world = world_of_three()
    reader = world.admit(FullClient("reader", ["F"], subscriptions={"all": "x >= 0"}))
    world.run_for(seconds=1)
    world.crash("F")
    world.run_for(us=50_000)
    world.restart("F")
    world.run_for(seconds=3)
    assert reader.broker == "F"
