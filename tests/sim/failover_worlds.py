"""Worlds in which a broker crashes for good and is replaced while publications flow; what must be so then.

Properties 3 and 4 of the availability paper (weak complete, weak ordered delivery) are read off what stations
published and got, without any leniency about faults: of all publications that have not been inside the broker
that crashed, each subscriber gets those it wants, once, and those of one publisher in order. What was
published after the crash has not been inside it, nor has what went between two brokers on one side of it.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from braid.language import Filter
from braid.reconfiguration import OverlayTree
from braid.sim import LinkModel, Station, World
from tests.sim.brokers import broker
from tests.sim.replica_worlds import Failover

if TYPE_CHECKING:
    from collections.abc import Iterator

    from braid.protocol import PublicationBatch

__all__ = ["FAULTS", "FailoverWorld"]

FAULTS = ("nothing", "cut", "delay", "replica crashes", "neighbour crashes")
BEFORE_US = 1_000_000
PUBLICATIONS_MIN = 200


@dataclass
class _Reader:
    """What one subscriber got."""

    station: Station
    filter: Filter
    got: list[tuple[str, int]] = field(default_factory=list)
    """Publisher and number, in order."""

    def take(self, _: Station, batch: PublicationBatch) -> None:
        self.got += [(batch.publisher, int(number)) for number in batch.sequences]


class FailoverWorld:
    """One world, made by its seed."""

    def __init__(
        self, seed: int, fault: str = "nothing", *, acknowledged: bool = False, resumption: str = ""
    ) -> None:
        self.chance = chance = random.Random(f"failover world/{seed}")
        self.fault, self.resumption = fault, resumption
        latency_us = chance.choice([200, 1_000, 5_000])
        self.world = World(seed, link=LinkModel(latency_us), validate_us=499_999)
        self.world.checkers.repeat_command = (
            f"FailoverWorld({seed}, {fault!r}, acknowledged={acknowledged}, {resumption!r})"
        )
        names = "ABCDEFGHI"[: chance.randrange(5, 10)]
        links = [(name, chance.choice(names[:place])) for place, name in enumerate(names) if place]
        self.tree = OverlayTree(links)
        self.names = list(names)
        for name in names:
            dialled = [other for each, other in links if each == name]
            self.world.add(name, broker(name, dialled), store=True)
        self.world.run_for(seconds=2)
        # One with something on two sides of it.
        inner = [name for name in names if len(self.tree.neighbours(name)) > 1]
        self.gone = chance.choice(inner)
        others = [name for name in names if name != self.gone]
        self.readers: list[_Reader] = []
        for number in range(6):
            text = f"price > {chance.randrange(80)}" if number else "TRUE"
            station = Station(f"reader {number}", chance.choice(others), subscriptions=[("1", text)])
            reader = _Reader(station, Filter(text))
            station.on_delivery = reader.take
            self.readers.append(reader)
            self.world.attach(station)
        self.published: dict[tuple[str, int], tuple[int, int]] = {}
        """By publisher and number: when, and the price."""
        self.begins_us = self.world.now_us + 500_000
        self.until_us = self.begins_us + 3_000_000
        self.writers = [
            self.world.attach(
                Station(
                    f"writer {number}",
                    chance.choice(others),
                    publications=self._publications(number),
                    advertise=["price >= 0"],
                    acknowledged=acknowledged,
                )
            )
            for number in range(3)
        ]
        self.crashed_us = 0

    def _publications(self, number: int) -> Iterator[tuple[int, dict[str, Any]]]:
        chance = random.Random(f"{self.chance.random()}/{number}")
        at_us, sequence = self.begins_us, 0
        while at_us < self.until_us:
            at_us += chance.choice([2_000, 10_000, 40_000])
            sequence += 1
            price = chance.randrange(100)
            self.published[f"writer {number}", sequence] = (at_us, price)
            yield at_us, {"price": price}

    def run(self) -> None:
        """Crash the broker, replace it, with a fault while that goes on, and wait until all is over."""
        world, chance = self.world, self.chance
        world.run_until(self.begins_us + BEFORE_US)
        world.crash(self.gone)
        self.crashed_us = world.now_us
        neighbours = sorted(self.tree.neighbours(self.gone))
        failover = Failover(world, self.gone, neighbours, "R")
        failover.grants()
        failover.start(store=True, resumption=self.resumption)
        world.run_for(us=chance.randrange(20_000))
        self._strike(chance.choice(neighbours))
        world.run_until(self.until_us + 500_000)
        world.run_for(seconds=20)

    def _strike(self, neighbour: str) -> None:
        world = self.world
        if self.fault == "cut":
            world.lose("R", neighbour)
        elif self.fault == "delay":
            with world.hold("R", neighbour):
                world.run_for(us=300_000)
        elif self.fault == "replica crashes":
            world.crash("R")
            world.run_for(us=100_000)
            world.restart("R")
        elif self.fault == "neighbour crashes":
            world.crash(neighbour)
            world.run_for(us=100_000)
            world.restart(neighbour)
            self.struck = neighbour

    struck = ""
    """The neighbour that crashed as well."""

    # What must be so.

    def violations(self) -> list[str]:
        """What breaks Property 3 or 4."""
        found = []
        for reader in self.readers:
            if self._cut_off(reader.station.broker):
                continue
            wanted = [
                place
                for place, (at_us, price) in self.published.items()
                if reader.filter.matches({"price": price}) and self._owed(place[0], at_us, reader)
            ]
            got = set(reader.got)
            missing = [place for place in wanted if place not in got]
            if missing:
                found.append(f"complete: {reader.station.name} lacks {len(missing)}, such as {missing[0]}")
            if len(reader.got) > len(got):
                found.append(f"once: {reader.station.name} got {len(reader.got) - len(got)} twice")
            last: dict[str, int] = {}
            owed = set(wanted)
            for publisher, number in reader.got:
                if (publisher, number) in owed and number < last.get(publisher, 0):
                    found.append(f"ordered: {reader.station.name} got {publisher}/{number} late")
                    break
                last[publisher] = max(number, last.get(publisher, 0))
        return found

    def _cut_off(self, name: str) -> bool:
        return name == self.struck

    def _owed(self, publisher: str, at_us: int, reader: _Reader) -> bool:
        """Whether a publication has not been inside a broker that crashed."""
        source = next(each.broker for each in self.writers if each.name == publisher)
        way = self.tree.path(source, reader.station.broker)
        if self.struck in way:
            return False
        return at_us > self.crashed_us or self.gone not in way
