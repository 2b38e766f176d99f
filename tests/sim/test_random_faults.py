"""Does a network of brokers keep its promises, whatever happens to it?"""

from __future__ import annotations

from tests.sim.random_worlds import RandomWorld

SEEDS = range(40)


def test_acknowledged_publications_survive_everything(sim_seed: int) -> None:
    random_world = RandomWorld(sim_seed)
    random_world.run()
    random_world.world.checkers.require()
    for station in random_world.stations:
        assert station.channel.idle, f"{station} still waits; repeat with {random_world.world.repeat_command}"
