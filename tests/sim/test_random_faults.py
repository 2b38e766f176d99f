"""Does a network of brokers keep its promises, whatever happens to it?

A short form of `fault_runs.py`, which makes a thousand runs per strategy.
"""

from __future__ import annotations

import pytest

from tests.sim.fault_runs import fault_runs
from tests.sim.random_worlds import RandomWorld

SEEDS = range(12)


@pytest.mark.parametrize("strategy", ["S0", "S2", "SB"])
def test_acknowledged_publications_survive_everything(sim_seed: int, strategy: str) -> None:
    tally = fault_runs(strategy, range(sim_seed, sim_seed + 1))
    assert tally.failures == []
    assert tally.subscribed_amid
    assert tally.published_amid


def test_others_are_lost_only_within_reach_of_a_fault(sim_seed: int) -> None:
    assert fault_runs("S0", range(sim_seed, sim_seed + 1), acknowledged=False).failures == []


def test_every_world_has_five_brokers_small_queues_and_two_faults_at_a_time(sim_seed: int) -> None:
    world = RandomWorld(sim_seed)
    world.run()
    assert len(world.names) >= 5
    assert world.pairs
    for name in world.names:
        assert world.world.machine(name).settings.link_queue_bytes_max <= 64 * 1024
