"""Do shortcuts, sets of destinations, joins and leaves keep every promise, whatever happens meanwhile?

Random worlds of eight to twenty brokers with all kinds of strategies. In *calm* ones nothing breaks; only
soft links come and go, brokers join and leave and change their strategies: there, not even a publication that
nobody acknowledges may be lost. In *rough* ones everything breaks that the simulator can break, two things at
a time.
"""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any

import pytest

from braid.adaptation import SoftLinkSettings
from braid.protocol.messages import Ask
from braid.sim import LinkModel, Station, World
from tests.sim.brokers import broker
from tests.sim.random_worlds import BEGIN_US, BOUND_BYTES, REST_S, SMALL_QUEUES, RandomWorld

if TYPE_CHECKING:
    from collections.abc import Iterator

SEEDS = range(6)
STRATEGIES = ("S1", "S2", "SH", "SB", "mixed")
ROUNDS = 40
END_US = 40_000_000
BOUTS_MAX = 4


class MeshWorld(RandomWorld):
    """A random world whose brokers use shortcuts."""

    def __init__(self, seed: int, strategy: str, *, rough: bool) -> None:
        # Not that of `RandomWorld`: other brokers, and more of them.
        self.chance = chance = random.Random(f"mesh world/{strategy}/{rough}/{seed}")
        self.rough = rough
        self.strategy = strategy
        self.world = World(
            seed,
            codec=seed % 4 == 0,
            link=LinkModel(chance.choice([100, 1000, 20_000]), None, chance.choice([0.0, 0.0, 0.02])),
        )
        self.world.checkers.ordered = False
        self.world.repeat_command = f"pytest tests/sim/test_mesh_worlds.py --sim-seed {seed} -k {strategy}"
        self.names = [f"B{number:02d}" for number in range(chance.randrange(8, 21))]
        self.links: list[tuple[str, str]] = []
        self.stations: list[Station] = []
        self.pairs = []
        self.subscribed_amid = self.published_amid = 0
        self._acknowledged = rough
        self._struck: list[str] = []
        self._down: dict[str, int] = {}
        self.guests: dict[str, Station] = {}
        """Brokers that come and go, each with a station there."""
        for place, name in enumerate(self.names):
            other = chance.choice(self.names[:place]) if place else None
            if other:
                self.links.append((name, other))
            self.world.add(
                name,
                broker(name, [other] if other else [], **self._settings()),
                store=True,
                queue_bytes_max=BOUND_BYTES,
            )
        self.world.run_until(BEGIN_US - 1_000_000)
        self._first_stations()
        for station in self.stations:
            if station.name.startswith("writer") and chance.random() < 0.3:
                station.ordered = True

    def _settings(self) -> dict[str, Any]:
        chance = self.chance
        strategy = self.strategy
        delta = 0
        if strategy == "mixed":
            strategy = chance.choice(["S0", "S1", "S2", "SH", "SB"])
            # Who puts destinations into sets, and asks others for their help, sees everything.
            delta = 0 if strategy == "SB" else chance.choice([0, 255])
        return {
            "strategy": strategy,
            "delta": delta,
            "soft_links": SoftLinkSettings(
                fanout=chance.choice([3, 5, 8]), review_us=chance.choice([200_000, 900_000]), rest_reviews=1
            ),
            "uplink_messages_per_s": chance.choice([0.0, 20.0]),
            **SMALL_QUEUES,
        }

    def _publications(self, chance: random.Random) -> Iterator[tuple[int, dict[str, Any]]]:
        at_us = BEGIN_US
        while (at_us := at_us + chance.choice([500, 20_000, 100_000, 400_000])) < END_US:
            yield at_us, self._content(chance)

    # Fate.

    def run(self) -> None:
        world, chance = self.world, self.chance
        for number in range(ROUNDS):
            fate = chance.random()
            if fate < 0.35:
                self._visit(number)
            elif self.rough and fate < 0.5 and len(self.pairs) < BOUTS_MAX:
                self._bout()
            elif not self.rough and fate < 0.6:
                self._change()
            world.run_for(us=chance.choice([1_000, 50_000, 400_000, 2_000_000]))
        world.run_for(seconds=REST_S / 2)
        self._forget_guests()
        world.run_for(seconds=REST_S)
        world.run_until_quiet()

    def _forget_guests(self) -> None:
        """Operators give up neighbours that left while nobody could hear their goodbye."""
        for name in self.names:
            left = [
                link.name
                for link in self.world.machine(name)._links.links.values()
                if link.connection is None and link.name.startswith("G") and link.name not in self.guests
            ]
            if left:
                operator = self.world.attach(Station(f"operator-{name}", name))
                self.world.run_for(seconds=1)
                for guest in left:
                    operator.say(Ask(operator.next_request(), "forget", {"neighbour": guest}))

    def _change(self) -> None:
        """A reader changes its mind."""
        chance = self.chance
        station = chance.choice([each for each in self.stations if each.name.startswith("reader")])
        if len(station.subscriptions) > 1 and chance.random() < 0.5:
            station.unsubscribe(chance.choice(sorted(station.subscriptions)))
        else:
            station.subscribe(f"n{self.world.now_us}", self._filter())

    def _visit(self, number: int) -> None:
        """A guest comes, or one leaves again, or a broker changes its strategy."""
        chance, world = self.chance, self.world
        fate = chance.random()
        if fate < 0.5 and len(self.guests) < 4:
            name = f"G{number:02d}"
            self.world.add(name, broker(name, [chance.choice(self.names)], **self._settings()), store=True)
            station = world.attach(
                Station(f"visitor{number}", name, subscriptions=[("1", self._filter())], acknowledged=True)
            )
            self.guests[name] = station
        elif fate < 0.8 and self.guests:
            name = chance.choice(sorted(self.guests))
            station = self.guests.pop(name)
            for key in list(station.subscriptions):
                station.unsubscribe(key)
            station.say(Ask(station.next_request(), "detach"))
        elif self.strategy == "mixed":
            station = chance.choice(self.stations)
            wanted = chance.choice(["S0", "S1", "S2", "SH"])
            if station.connected:
                station.say(Ask(station.next_request(), "strategy", {"strategy": wanted}))


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_nothing_is_lost_where_nothing_breaks(sim_seed: int, strategy: str) -> None:
    mesh_world = MeshWorld(sim_seed, strategy, rough=False)
    mesh_world.run()
    mesh_world.require()


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_acknowledged_publications_survive_everything(sim_seed: int, strategy: str) -> None:
    mesh_world = MeshWorld(sim_seed, strategy, rough=True)
    mesh_world.run()
    mesh_world.require()
