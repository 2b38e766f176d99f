"""Are old rows removed in virtual time as in real time, and does everybody hear of it who must?"""

from __future__ import annotations

from braid.broker.core import BrokerCore
from braid.protocol.log import Retention
from braid.sim import FullClient, NodeModel, World
from tests.sim.brokers import add_tree

ROWS = 100
# Twenty rows or so.
SMALL = Retention(bytes_max=600)


def small_world(retention: Retention) -> tuple[World, FullClient, FullClient]:
    """A broker that keeps little, a publisher, and a reader of a log."""
    world = World(1)
    add_tree(world, {"A": None}, store=True, node=NodeModel(retention=retention))
    publisher = world.admit(FullClient("p", ("A",)))
    reader = world.admit(FullClient("r", ("A",), durables={"log": "n >= 0"}))
    world.run_for(seconds=1)
    return world, publisher, reader


def first_offset(world: World) -> int:
    """The oldest row that the store has."""
    store = world.host("A").store
    assert store is not None
    (log,) = store.state().logs
    return log.first_offset


def offsets(client: FullClient) -> list[int]:
    return [row.offset for row in client.rows["log"]]


def test_what_is_too_much_goes_when_its_reader_has_it() -> None:
    """A log that holds its publishers back keeps what was not read, however much that is."""
    world, publisher, reader = small_world(SMALL)
    world.crash("r")
    for number in range(ROWS):
        publisher.publish({"n": number})
    world.run_for(seconds=30)
    assert first_offset(world) == 0
    world.restart("r")
    world.run_for(seconds=30)
    assert offsets(reader) == list(range(ROWS))
    first = first_offset(world)
    assert 0 < first < ROWS
    core = world.host("A").machine
    assert isinstance(core, BrokerCore)
    (log,) = core.snapshot().store.logs
    assert log.first_offset == first
    publisher.publish({"n": ROWS})
    world.run_for(seconds=1)
    assert offsets(reader) == list(range(ROWS + 1))
    world.checkers.require()


def test_rows_that_were_acknowledged_go_with_age_and_others_stay() -> None:
    world, publisher, reader = small_world(Retention(age_s_max=5))
    for number in range(10):
        publisher.publish({"n": number})
    world.run_for(seconds=2)
    world.crash("r")
    for number in range(10, 15):
        publisher.publish({"n": number})
    world.run_for(seconds=30)
    assert first_offset(world) == 10
    world.restart("r")
    world.run_for(seconds=5)
    assert offsets(reader) == list(range(15))
