"""A random world: a tree of brokers, stations, and a fate, all from one seed."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any

from braid.adaptation import SoftLinkSettings
from braid.sim import LinkModel, NodeModel, Station, World
from tests.sim.brokers import broker

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from braid.trace.writer import TraceWriter

__all__ = ["RandomWorld"]

BROKERS = "ABCDEFGHI"
BEGIN_US = 2_000_000
END_US = 30_000_000
ROUNDS = 30
# All faults have ended for longer than anything waits for anybody.
REST_S = 40
# Soft links come and go within a run.
BUSY_MESH = SoftLinkSettings(fanout=5, review_us=150_000, rest_reviews=1)


class RandomWorld:
    """Made and run by its seed."""

    def __init__(
        self,
        seed: int,
        *,
        acknowledged: bool = True,
        amnesia: bool = False,
        strategy: str = "S0",
        trace: TraceWriter | None = None,
        where: Path | str = "tests/sim/test_random_faults.py",
    ) -> None:
        self.chance = chance = random.Random(f"random world/{seed}")
        self.amnesia = amnesia
        loss = chance.choice([0.0, 0.0, 0.02])
        bandwidth = chance.choice([None, None, 200_000])
        self.world = World(
            seed,
            trace=trace,
            codec=seed % 4 == 0,
            link=LinkModel(chance.choice([100, 1000, 20_000]), bandwidth, loss),
        )
        self.world.repeat_command = f"pytest {where} --sim-seed {seed}"
        self.names = list(BROKERS[: chance.randrange(3, 10)])
        self.links: list[tuple[str, str]] = []
        self.stations: list[Station] = []
        self.down: set[str] = set()
        node = NodeModel(
            cost_us=chance.choice([0, 0, {"publication": 50, "subscribe": 200}]),
            uplink_messages_per_s=chance.choice([None, None, 500]),
        )
        for place, name in enumerate(self.names):
            other = chance.choice(self.names[:place]) if place else None
            if other:
                self.links.append((name, other))
            self.world.add(
                name,
                broker(name, [other] if other else [], strategy=strategy, soft_links=BUSY_MESH),
                node=node,
                store=True,
                queue_bytes_max=64 * 1024 * 1024,
            )
        self.world.run_until(BEGIN_US - 1_000_000)
        self._stations(acknowledged)

    def _stations(self, acknowledged: bool) -> None:
        chance = self.chance
        for number in range(chance.randrange(2, 6)):
            filters = [(str(key), self._filter()) for key in range(chance.randrange(1, 4))]
            self._attach(Station(f"reader{number}", chance.choice(self.names), subscriptions=filters))
        for number in range(chance.randrange(1, 4)):
            self._attach(
                Station(
                    f"writer{number}",
                    chance.choice(self.names),
                    publications=self._publications(random.Random(f"{chance.random()}")),
                    advertise=chance.choice([(), ("price >= 0",), ("price >= 50",)]),
                    acknowledged=acknowledged,
                    latency_us=chance.choice([None, None, 500]),
                )
            )

    def _attach(self, station: Station) -> None:
        self.stations.append(self.world.attach(station))

    def _filter(self) -> str:
        low = self.chance.randrange(100)
        return self.chance.choice(
            [
                f"price > {low}",
                f"price < {low}",
                f"price BETWEEN {low} AND {low + 20} AND kind = 'x'",
                "kind IN ('x', 'y')",
                "TRUE",
            ]
        )

    def _publications(self, chance: random.Random) -> Iterator[tuple[int, dict[str, Any]]]:
        at_us = BEGIN_US
        while True:
            at_us += chance.choice([500, 20_000, 200_000, 900_000])
            if at_us > END_US:
                return
            yield at_us, {"price": chance.randrange(100), "kind": chance.choice("xyz")}

    # Fate.

    def run(self) -> None:
        """Let things go wrong for a while, mend everything, and let the world come to rest."""
        world, chance = self.world, self.chance
        for _ in range(ROUNDS):
            self._strike()
            world.run_for(us=chance.choice([1_000, 50_000, 400_000, 2_000_000]))
        world.repair()
        for left, right in self.links:
            world.release(left, right)
            world.delay(left, right, 0)
            world.throttle((left, right))
        for name in self.names:
            world.throttle(name)
        for name in sorted(self.down):
            world.restart(name)
        world.run_for(seconds=REST_S)
        world.run_until_quiet()

    def _strike(self) -> None:
        world, chance = self.world, self.chance
        left, right = chance.choice(self.links)
        if chance.random() < 0.5:
            left, right = right, left
        alive = sorted(set(self.names) - self.down)
        fate = chance.randrange(14)
        if fate == 0 and len(alive) > 1:
            victim = chance.choice(alive)
            world.crash(victim, silent=chance.random() < 0.3)
            self.down.add(victim)
        elif fate in (1, 2) and self.down:
            back = chance.choice(sorted(self.down))
            self.down.discard(back)
            world.restart(back, keep_store=not (self.amnesia and chance.random() < 0.5))
        elif fate == 3:
            world.restart(chance.choice(self.names)) if not self.down else None
        elif fate == 4:
            world.partition(left, right)
        elif fate == 5:
            world.repair(left, right)
        elif fate == 6:
            world.hold(left, right)
        elif fate == 7:
            world.release(left, right)
        elif fate == 8:
            world.lose(left, right, chance.randrange(4))
        elif fate == 9:
            world.delay(left, right, chance.choice([0, 5_000, 300_000]))
        elif fate == 10:
            world.duplicate(left, right, chance.randrange(1, 5))
        elif fate == 11:
            world.throttle((left, right), bytes_per_s=chance.choice([None, 20_000]))
        elif fate == 12:
            world.throttle(chance.choice(self.names), messages_per_s=chance.choice([None, 20, 200]))
        else:
            self._change()

    def _change(self) -> None:
        """A station changes its mind."""
        station = self.chance.choice(self.stations)
        if len(station.subscriptions) > 1 and self.chance.random() < 0.5:
            station.unsubscribe(self.chance.choice(sorted(station.subscriptions)))
        elif station.name.startswith("reader"):
            station.subscribe(f"n{self.world.now_us}", self._filter())
        else:
            self.world.lose(station.name, station.broker)
