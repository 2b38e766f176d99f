"""Does a receipt hold for a publisher that has changed its broker, when the former one crashes?

What has no receipt yet is sent again, to the new broker. That one may have had it from the former broker; but
the former may not have stored it, and then a receipt would cover for something that is lost.
"""

from __future__ import annotations

import pytest

from braid.adaptation import SoftLinkSettings
from braid.sim import FullClient, NodeModel, World
from tests.sim.brokers import add_tree

STRATEGIES = ["S0", "S1", "S2", "SH", "SB"]
# With this one nothing of the store work under way is done when A crashes.
SEED = 3
# Nothing is on the disk before everybody else has it.
SLOW_STORE = NodeModel(store_latency_us=4_000_000)


def moving_world(
    strategy: str, tree: dict[str, str | None], second: str
) -> tuple[World, FullClient, FullClient]:
    """A tree with slow disks and a durable subscription at A, and a publisher that starts at A."""
    world = World(SEED)
    options = {
        "strategy": strategy,
        "delta": 0 if strategy == "SB" else 4,
        "soft_links": SoftLinkSettings(fanout=6, review_us=100_000),
    }
    if strategy == "S0":
        options = {}
    add_tree(world, tree, store=True, node=SLOW_STORE, **options)
    publisher = world.admit(FullClient("p", ("A", second)))
    reader = world.admit(FullClient("d", ("A",), durables={"log": "n >= 0"}))
    for broker in tree:
        if broker != "A":
            world.admit(FullClient(f"r{broker}", (broker,), subscriptions={"all": "n >= 0"}))
    world.run_for(seconds=20)
    return world, publisher, reader


@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize(
    ("tree", "second"),
    [({"A": None, "B": "A"}, "B"), ({"A": None, "B": "A", "C": "B", "D": "C"}, "D")],
    ids=["its neighbour", "three links away"],
)
def test_a_receipt_of_the_new_broker_covers_what_the_former_has_not_stored(
    strategy: str, tree: dict[str, str | None], second: str
) -> None:
    world, publisher, reader = moving_world(strategy, tree, second)
    publisher.publish({"n": 1})
    publisher.publish({"n": 2})
    world.run_for(us=500_000)  # everybody has them, but for the log
    assert not publisher.safe
    world.lose("p", "A")
    world.partition("p", "A")
    world.run_for(us=1_500_000)
    assert publisher.broker == second
    world.crash("A")
    world.run_for(seconds=1)
    safe = set(publisher.safe)
    world.restart("A")
    world.run_for(seconds=40)
    stored = {row.sequence for row in reader.rows["log"]}
    assert {sequence for _, sequence in safe} <= stored
    # And in the end all is well.
    assert {sequence for _, sequence in publisher.safe} == stored == {1, 2}
    assert [row.sequence for row in reader.rows["log"]] == [1, 2]
    world.checkers.require()
