"""Runs that once broke a promise, as short as they can be told."""

from __future__ import annotations

from braid.sim import LinkModel, Station, World
from tests.sim.brokers import add_tree


def test_an_advertisement_waits_for_those_behind_a_broker_that_has_restarted() -> None:
    world = World(1, link=LinkModel(100))
    add_tree(world, {"E": None, "F": "E", "H": "F", "I": "H", "G": "E"}, store=True)
    reader = world.attach(Station("reader", "I", subscriptions=[("all", "TRUE")]))
    some = [(2_000_000, {"price": 1}), (3_000_000, {"price": 2})]
    writer = world.attach(
        Station("writer", "G", publications=some, advertise=["price >= 0"], acknowledged=True)
    )
    world.run_until(2_300_000)
    world.lose("writer", "G")  # its advertisement goes, and with it the subscriptions on the way
    world.run_until(2_301_000)
    with world.partition("E", "G"):
        world.run_until(12_500_000)
        with world.partition("H", "I"):
            world.run_until(19_000_000)
            world.restart("H")
            world.run_until(23_000_000)
    world.run_for(seconds=40)
    assert writer.channel.idle
    world.checkers.require()
    assert reader.delivered == 2
