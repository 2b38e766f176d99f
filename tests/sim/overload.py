"""Worlds with small queues in which more is published than can be carried, and what is left of it at rest."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any

from braid.adaptation import SoftLinkSettings
from braid.protocol import ChannelSettings
from braid.protocol.inputs import Tick
from braid.sim import LinkModel, NodeModel, Station, World
from braid.sim.host import Host
from tests.sim.brokers import add_tree

if TYPE_CHECKING:
    from collections.abc import Iterator

    from braid.broker.parties import Party

__all__ = ["Circle", "RandomTree", "Star", "left_over"]

# How often brokers are asked whether everything that must hold in them does.
VALIDATE_US = 770_003

# No review of soft links within a run: they stay as the test has made them.
NEVER_US = 3_600_000_000


def left_over(world: World) -> list[str]:
    """Everything that a network at rest should not have: what waits, and credit that was not given back."""
    found: list[str] = []
    hosts = [name for name, endpoint in sorted(world.endpoints.items()) if isinstance(endpoint, Host)]
    for host in hosts:
        machine = world.machine(host)
        parties: list[Party] = [
            *machine._connections.clients,
            *machine._links.links.values(),
            *machine._mesh.outgoing.values(),
            *machine._mesh.incoming.values(),
        ]
        for party in parties:
            channel = party.channel
            if not channel.idle:
                found.append(f"{host}: {channel.backlog_bytes} bytes wait for {party.name}")
            if channel.withheld:
                reasons = ", ".join(sorted(map(str, channel.credit_holds)))
                found.append(f"{host}: {party.name} gets no credit: {reasons}")
            if party.behind_since_us is not None:
                found.append(f"{host}: {party.name} counts as behind")
            found += [
                f"{host}: {party.name} has given back {sending.room} of {sending.window} bytes "
                f"of credit for class {number}"
                for number, sending in channel._sending.items()
                if channel.connected and sending.room < sending.window
            ]
    for name, station in sorted(world.endpoints.items()):
        if isinstance(station, Station) and not station.channel.idle:
            found.append(f"{name}: {station.channel.backlog_bytes} bytes were not taken")
    return found


class _Overload:
    """What both kinds of worlds share."""

    world: World
    writers: list[Station]
    published: int
    """So much they are to publish."""

    def _settings(self, strategy: str, queue_bytes: int, review_us: int, fanout: int) -> dict[str, Any]:
        window = ChannelSettings(window_bytes=max(queue_bytes // 4, 8192))
        return {
            "strategy": strategy,
            "link_queue_bytes_max": queue_bytes,
            "client_queue_bytes_max": queue_bytes,
            "link": window,
            "client": window,
            "soft_links": SoftLinkSettings(fanout=fanout, review_us=review_us, rest_reviews=1),
            "flooding": True,
        }

    def run(self, rest_s: float) -> None:
        """Publish everything, and then so much rest."""
        while sum(writer.published for writer in self.writers) < self.published:
            self.world.run_for(seconds=1)
        self.world.run_for(seconds=rest_s)

    def require(self) -> None:
        """Nothing is lost, and nothing is left."""
        assert left_over(self.world) == []
        self.world.checkers.require()


class Circle(_Overload):
    """A star around H with a circle of soft links V-W-X-Y-Z-V, and a reader and a writer at each but H."""

    RING = "VWXYZ"

    def __init__(
        self,
        *,
        acknowledged: bool,
        rate: int,
        seconds: float,
        uplink_messages_per_s: int | None = None,
        uplink_bytes_per_s: int | None = None,
        queue_bytes: int = 16_384,
        body_bytes: int = 200,
        strategy: str = "SB",
    ) -> None:
        self.world = world = World(1, link=LinkModel(5000), validate_us=VALIDATE_US)
        world.checkers.ordered = False
        node = NodeModel(uplink_messages_per_s=uplink_messages_per_s, uplink_bytes_per_s=uplink_bytes_per_s)
        settings = self._settings(strategy, queue_bytes, NEVER_US, 8)
        add_tree(world, {"H": None, **dict.fromkeys(self.RING, "H")}, node=node, **settings)
        world.run_for(seconds=2)
        ring = list(zip(self.RING, self.RING[1:] + self.RING[:1], strict=True))
        for name, other in ring:
            world.machine(name)._mesh._follow(frozenset({other}))
            world.host(name).report(Tick())
        world.run_for(seconds=2)
        for name, other in ring:
            assert set(world.machine(name)._mesh.outgoing) == {other}
            world.attach(Station(f"reader-{name}", name, subscriptions=[("1", "TRUE")]))
        world.run_for(seconds=1)
        self.count = round(rate * seconds)
        self.writers = [
            world.attach(
                Station(
                    f"writer-{name}",
                    name,
                    acknowledged=acknowledged,
                    publications=self._publications(world.now_us + 7 * place, rate, body_bytes),
                )
            )
            for place, name in enumerate(self.RING)
        ]
        self.published = len(self.RING) * self.count

    def _publications(
        self, begin_us: int, rate: int, body_bytes: int
    ) -> Iterator[tuple[int, dict[str, object]]]:
        for number in range(self.count):
            yield begin_us + number * 1_000_000 // rate, {"n": number, "pad": "x" * body_bytes}


class Star(_Overload):
    """Four brokers around H, each with a reader of everything, two of them with a writer; the uplink of each
    is full for as long as they publish and for minutes after."""

    def __init__(self, *, acknowledged: bool, rate: int, seconds: int, uplink_messages_per_s: int) -> None:
        self.world = world = World(1, link=LinkModel(5000), validate_us=VALIDATE_US)
        world.checkers.ordered = False
        node = NodeModel(uplink_messages_per_s=uplink_messages_per_s)
        settings = self._settings("S0", 256 * 1024, NEVER_US, 8)
        add_tree(world, {"H": None, **dict.fromkeys("ABCD", "H")}, node=node, **settings)
        world.run_for(seconds=3)
        for name in "ABCD":
            world.attach(Station(f"reader-{name}", name, subscriptions=[("1", "TRUE")]))
        world.run_for(seconds=2)
        self.published = 2 * rate * seconds
        self.writers = [
            world.attach(
                Station(
                    f"writer-{name}",
                    name,
                    acknowledged=acknowledged,
                    publications=[
                        (world.now_us + place + number * 1_000_000 // rate, {"n": number, "pad": "x" * 200})
                        for number in range(1, rate * seconds + 1)
                    ],
                )
            )
            for place, name in enumerate("AB")
        ]


class RandomTree(_Overload):
    """A random tree of twenty brokers with soft links, on which more is published than uplinks carry."""

    def __init__(self, seed: int, strategy: str, *, acknowledged: bool, queue_bytes: int) -> None:
        chance = random.Random(f"overload/{seed}/{strategy}/{acknowledged}/{queue_bytes}")
        self.world = world = World(
            seed, link=LinkModel(chance.choice([500, 5000, 20_000])), validate_us=VALIDATE_US
        )
        world.checkers.ordered = False
        world.repeat_command = f"pytest tests/sim/test_overload_worlds.py --sim-seed {seed} -k {strategy}"
        names = [f"B{number:02d}" for number in range(20)]
        tree = {name: chance.choice(names[:place]) if place else None for place, name in enumerate(names)}
        settings = self._settings(strategy, queue_bytes, 500_000, chance.choice([3, 5, 8]))
        if strategy == "SH":
            settings["uplink_messages_per_s"] = 200.0
        node = NodeModel(uplink_messages_per_s=200)
        add_tree(world, tree, node=node, **settings)
        world.run_for(seconds=3)
        for place, name in enumerate(names):
            kinds = chance.sample(range(6), 3)
            text = " OR ".join(f"kind = {kind}" for kind in kinds)
            world.attach(Station(f"reader{place:02d}", name, subscriptions=[("1", text)]))
        world.run_for(seconds=3)
        begin_us = world.now_us
        self.writers = []
        self.published = 0
        for place, name in enumerate(chance.sample(names, 8)):
            rate, seconds, body_bytes = chance.choice([(20, 8, 300), (60, 3, 1500), (150, 1, 3000)])
            times = [begin_us + place + number * 1_000_000 // rate for number in range(rate * seconds)]
            publications = [
                (at_us, {"kind": chance.randrange(6), "pad": "x" * chance.randrange(body_bytes)})
                for at_us in times
            ]
            self.published += len(publications)
            station = Station(f"writer{place}", name, acknowledged=acknowledged, publications=publications)
            self.writers.append(world.attach(station))
