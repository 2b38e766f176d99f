"""A random world: a tree of brokers, stations, and a fate, all from one seed.

Fate comes in *bouts*: two faults that overlap in time, each of a kind and a place that the seed chooses. Amid
a bout and right after it, stations come, subscribe and publish; what matches a subscription from its answer
on must arrive. Queues are small, so that publishers are held back as well.
"""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any

from braid.adaptation import SoftLinkSettings
from braid.protocol import ChannelSettings
from braid.sim import LinkModel, NodeModel, Station, World
from tests.sim.brokers import broker

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from braid.trace.writer import TraceWriter

__all__ = ["FAULTS", "QUEUE_BYTES_MAX", "SMALL_QUEUES", "WINDOW_BYTES", "RandomWorld"]

BROKERS = "ABCDEFGHI"
BEGIN_US = 2_000_000
END_US = 45_000_000
BOUTS_MAX = 3
STATIONS_MAX = 12
# Faults last from much less to more than heartbeats, dials and recoveries take.
DURATIONS_US = (10_000, 400_000, 2_000_000, 6_000_000, 11_000_000)
# All faults have ended for longer than anything waits for anybody.
REST_S = 40
# Soft links come and go within a run.
BUSY_MESH = SoftLinkSettings(fanout=5, review_us=150_000, rest_reviews=1)
QUEUE_BYTES_MAX = 64 * 1024
WINDOW_BYTES = 16 * 1024
SMALL_QUEUES: dict[str, Any] = {
    "link_queue_bytes_max": QUEUE_BYTES_MAX,
    "client_queue_bytes_max": QUEUE_BYTES_MAX,
    "link": ChannelSettings(window_bytes=WINDOW_BYTES, resend_bytes_max=QUEUE_BYTES_MAX),
    "client": ChannelSettings(window_bytes=WINDOW_BYTES, resend_bytes_max=QUEUE_BYTES_MAX),
}
"""Settings of brokers: whatever can wait is bounded by a queue, with a window of credit on each side."""
# Beside what a queue holds, each sender may have used up a window and sent one large publication more.
BOUND_BYTES = QUEUE_BYTES_MAX + (STATIONS_MAX + 8) * 2 * WINDOW_BYTES
# How often brokers are asked whether everything that must hold in them does.
VALIDATE_US = 370_003
# One in eight publications is about as large as a window.
LARGE_BYTES = 12 * 1024


class RandomWorld:
    """Made and run by its seed."""

    def __init__(
        self,
        seed: int,
        *,
        acknowledged: bool = True,
        strategy: str = "S0",
        trace: TraceWriter | None = None,
        repeat: str = "",
    ) -> None:
        """
        Args:
            seed: decides everything.
            acknowledged: how most stations publish; now and then one publishes the other way.
            strategy: how brokers forward.
            trace: where to write what happens.
            repeat: what to type to see the same run again.
        """
        self.chance = chance = random.Random(f"random world/{seed}")
        self.strategy = strategy
        self.pairs: list[tuple[str, str]] = []
        """The kinds of faults that overlapped, two by two."""
        self.subscribed_amid = 0
        """Subscriptions that were asked for while something was wrong, or right after."""
        self.published_amid = 0
        """Publications likewise."""
        loss = chance.choice([0.0, 0.0, 0.02])
        bandwidth = chance.choice([None, None, 200_000])
        self.world = World(
            seed,
            trace=trace,
            codec=seed % 4 == 0,
            link=LinkModel(chance.choice([100, 1000, 20_000]), bandwidth, loss),
            validate_us=VALIDATE_US,
        )
        self.world.checkers.ordered = strategy == "S0"
        self.world.repeat_command = (
            repeat or f"python -m tests.sim.fault_runs --strategy {strategy} --seed {seed} --runs 1"
        )
        self.names = list(BROKERS[: chance.randrange(5, 10)])
        self.links: list[tuple[str, str]] = []
        self.stations: list[Station] = []
        self._acknowledged = acknowledged
        self._struck: list[str] = []
        """The brokers that the faults of this bout were about."""
        self._down: dict[str, int] = {}
        """How many faults want a broker to be down."""
        node = NodeModel(
            cost_us=chance.choice([0, 0, {"publication": 50, "subscribe": 200}]),
            uplink_messages_per_s=chance.choice([None, None, 500]),
        )
        for place, name in enumerate(self.names):
            other = chance.choice(self.names[:place]) if place else None
            if other:
                self.links.append((name, other))
            settings = {"strategy": strategy, "soft_links": BUSY_MESH, **SMALL_QUEUES}
            self.world.add(
                name,
                broker(name, [other] if other else [], **settings),
                node=node,
                store=True,
                queue_bytes_max=BOUND_BYTES,
            )
        self.world.run_until(BEGIN_US - 1_000_000)
        self._first_stations()

    # Stations.

    def _first_stations(self) -> None:
        chance = self.chance
        for _ in range(chance.randrange(2, 5)):
            self._reader(chance.randrange(1, 4))
        for _ in range(chance.randrange(2, 4)):
            self._writer(self._publications(random.Random(f"{chance.random()}")))

    def _reader(self, count: int = 1) -> None:
        filters = [(str(key), self._filter()) for key in range(count)]
        name = f"reader{len(self.stations)}"
        self._attach(Station(name, self._place(), subscriptions=filters))

    def _place(self) -> str:
        """A broker, most likely one that something has just happened to."""
        chance = self.chance
        return chance.choice(self._struck if self._struck and chance.random() < 0.7 else self.names)

    def _writer(self, publications: Iterator[tuple[int, dict[str, Any]]]) -> None:
        chance = self.chance
        self._attach(
            Station(
                f"writer{len(self.stations)}",
                self._place(),
                publications=publications,
                advertise=chance.choice([(), ("price >= 0",), ("price >= 50",)]),
                acknowledged=self._acknowledged,
                ordered=chance.random() < 0.3,
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

    def _content(self, chance: random.Random) -> dict[str, Any]:
        content: dict[str, Any] = {"price": chance.randrange(100), "kind": chance.choice("xyz")}
        if chance.random() < 0.125:
            content["text"] = "t" * LARGE_BYTES
        return content

    def _publications(self, chance: random.Random) -> Iterator[tuple[int, dict[str, Any]]]:
        at_us = BEGIN_US
        while True:
            at_us += chance.choice([500, 20_000, 200_000, 900_000])
            if at_us > END_US:
                return
            yield at_us, self._content(chance)

    # Fate.

    def run(self) -> None:
        """Let things go wrong for a while, mend everything, and let the world come to rest."""
        world, chance = self.world, self.chance
        for _ in range(chance.randrange(1, BOUTS_MAX + 1)):
            self._bout()
            world.run_for(us=chance.choice([1_000, 400_000, 6_000_000]))
        world.run_for(seconds=REST_S)
        world.run_until_quiet()

    def require(self) -> None:
        """Raise if any promise was broken, or if anybody still waits for anything."""
        self.world.checkers.require()
        for station in self.stations:
            if not (station.connected and station.channel.idle) or station.asking:
                state = f"{station.asking} questions, idle {station.channel.idle}, up {station.connected}"
                raise AssertionError(f"{station} still waits: {state}; {self.world.repeat_command}")

    def _bout(self) -> None:
        """Two faults that overlap, and what stations do meanwhile."""
        world, chance = self.world, self.chance
        self._struck = []
        kinds = [chance.choice(FAULTS) for _ in range(2)]
        self.pairs.append((min(kinds), max(kinds)))
        first_us, second_us = (chance.choice(DURATIONS_US) for _ in range(2))
        begin_us = world.now_us
        later_us = begin_us + chance.randrange(first_us)
        ends_us = sorted([begin_us + first_us, later_us + second_us])
        self._strike(kinds[0], first_us)
        world.at(later_us, lambda: self._strike(kinds[1], second_us))
        moments = [chance.randrange(begin_us, ends_us[1] + 1) for _ in range(8)]
        # Right after a fault, and a little later, when not everybody knows yet that it is over.
        moments += [end_us + after_us for end_us in ends_us for after_us in (1, 3_000, 200_000)]
        for at_us in sorted(moments):
            world.run_until(max(at_us, world.now_us))
            self._act()
        world.run_until(max(world.now_us, ends_us[1]))

    def _strike(self, kind: str, duration_us: int) -> None:
        """Begin a fault, and end it later."""
        world, chance = self.world, self.chance
        left, right = chance.choice(self._connected() if chance.random() < 0.5 else self.links)
        if chance.random() < 0.5:
            left, right = right, left
        self._struck += [left, right]
        end: Callable[[], object]
        if kind in ("crash", "power cut"):
            end = self._crash(left, silent=kind == "power cut")
        elif kind == "freeze":
            world.freeze(left, duration_us)
            return
        elif kind == "partition":
            end = world.partition(left, right)
        elif kind == "hold":
            end = world.hold(left, right)
        elif kind == "hole":
            end = world.hole(left, right)
        elif kind == "lose":
            world.lose(left, right, chance.randrange(4))
            return
        elif kind == "duplicate":
            world.duplicate(left, right, chance.randrange(1, 5))
            return
        elif kind == "delay":
            end = world.delay(left, right, chance.choice([5_000, 300_000]))
        elif kind == "slow link":
            end = world.throttle((left, right), bytes_per_s=20_000)
        elif kind == "slow uplink":
            end = world.throttle(left, messages_per_s=chance.choice([20, 200]))
        else:
            station = chance.choice(self.stations)
            world.lose(station.name, station.broker)
            return
        world.at(world.now_us + duration_us, end)

    def _connected(self) -> list[tuple[str, str]]:
        """Two brokers at a time that are connected now, over a link of the tree or a shortcut."""
        ends = ((pipe.source.name, pipe.target.name) for pipe in self.world.pipes())
        pairs = {(left, right) for left, right in ends if left < right}
        return sorted(pair for pair in pairs if set(pair) <= set(self.names)) or self.links

    def _crash(self, name: str, *, silent: bool) -> Callable[[], None]:
        """End a broker; returns what brings it back, once no other fault wants it to be down."""
        if not self._down.get(name):
            self.world.crash(name, silent=silent)
        self._down[name] = self._down.get(name, 0) + 1

        def back() -> None:
            self._down[name] -= 1
            if not self._down[name]:
                self.world.restart(name)

        return back

    def _act(self) -> None:
        """A station comes, changes its mind, or has much to say."""
        world, chance = self.world, self.chance
        fate = chance.random()
        near = [each for each in self.stations if each.broker in self._struck]
        station = chance.choice(near if near and chance.random() < 0.5 else self.stations)
        if fate < 0.2 and len(self.stations) < STATIONS_MAX:
            self.subscribed_amid += 1
            self._reader()
        elif fate < 0.6:
            key = f"n{world.now_us}"
            if len(station.subscriptions) > 2 and chance.random() < 0.3:
                station.unsubscribe(chance.choice(sorted(station.subscriptions)))
            else:
                self.subscribed_amid += 1
                station.subscribe(key, self._filter())
        elif fate < 0.65 and len(self.stations) < STATIONS_MAX:
            self._writer(iter(()))
        else:
            acknowledged = self._acknowledged != (chance.random() < 0.1)
            for _ in range(chance.choice([1, 3, 20])):
                self.published_amid += 1
                station.publish(self._content(chance), acknowledged=acknowledged)


FAULTS = (
    "crash",
    "power cut",
    "freeze",
    "partition",
    "hold",
    "hole",
    "lose",
    "duplicate",
    "delay",
    "slow link",
    "slow uplink",
    "client cut",
)
