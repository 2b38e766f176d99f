"""Random worlds for the real client: three brokers, programs that publish and read, and a fate for all.

    python -m tests.sim.client_worlds --runs 500 --seed 0

Clients' connections are cut, held and lost, and so are links; brokers and programs are killed and come back.
What an acknowledged publication is promised holds nevertheless: every durable subscription that was answered
when it was published has it in its log and its program reads it, never twice in one run of the program, and
in order. Ordinary subscriptions are watched by the checkers, as those of stations are.
"""

from __future__ import annotations

import argparse
import random
import sys
import time
from collections import defaultdict
from typing import Any

from braid.errors import InvariantViolated
from braid.language import Filter
from braid.sim import FullClient, LinkModel, NodeModel, World
from tests.sim.brokers import add_tree

__all__ = ["FAULTS", "ClientWorld"]

END_US = 40_000_000
# How often brokers are asked whether everything that must hold in them does.
VALIDATE_US = 370_003
# Longer than heartbeats, dials and recoveries take.
REST_S = 40
DURATIONS_US = (10_000, 400_000, 2_000_000, 6_000_000, 18_000_000)
FAULTS = ("lose", "partition", "hold", "duplicate", "delay", "freeze", "crash", "silent crash")
LINKS = {"A": None, "B": "A", "C": "B"}
SLOW_STORE = NodeModel(store_latency_us=60_000)
# Only a few rows are on their way to a reader, and none stay in memory.
SMALL_LOGS: dict[str, Any] = {"durable_window_bytes": 400, "durable_tail_bytes": 0}
FILTERS = ("n >= 0", "n % 2 = 0", "kind = 'a'", "kind = 'b' AND n > 20", "kind IN ('a', 'c') AND n < 200")


class ClientWorld:
    """Made and run by its seed."""

    def __init__(self, seed: int, *, faults: int = 6, repeat: str = "", slow_stores: bool = False) -> None:
        """`slow_stores`: readers of logs are always some rows behind, and those have to be read."""
        self.chance = chance = random.Random(f"client world/{seed}")
        self.world = world = World(
            seed,
            codec=chance.random() < 0.3,
            link=LinkModel(latency_us=2_000),
            validate_us=VALIDATE_US,
        )
        world.repeat_command = repeat
        if slow_stores:
            add_tree(world, LINKS, store=True, node=SLOW_STORE, **SMALL_LOGS)
        else:
            add_tree(world, LINKS, store=True)
        small = {"window_bytes": chance.choice([4 * 1024 * 1024, 8 * 1024])}
        self.publishers = [
            world.admit(FullClient("p1", ("A", "B"), **small)),
            world.admit(FullClient("p2", ("C",), advertise=("n >= 0",), **small)),
        ]
        self.readers = [
            world.admit(
                FullClient(
                    f"r{number}",
                    chance.sample(list(LINKS), chance.randint(1, 3)),
                    subscriptions={str(key): chance.choice(FILTERS) for key in range(chance.randint(1, 3))},
                    queue_size=chance.choice([2, 1000]),
                    **small,
                )
            )
            for number in range(2)
        ]
        self.durables = [
            world.admit(
                FullClient(
                    f"d{number}",
                    (chance.choice(list(LINKS)),),
                    durables={f"log{number}": chance.choice(FILTERS)},
                    queue_size=chance.choice([2, 1000]),
                    acknowledge_every=chance.choice([1, 3, 10]),
                    **small,
                )
            )
            for number in range(2)
        ]
        self.clients = [*self.publishers, *self.readers, *self.durables]
        self.counts: dict[str, int] = defaultdict(int)
        self._published: dict[tuple[str, int], tuple[int, dict[str, object]]] = {}
        for publisher in self.publishers:
            self._plan(publisher, world.now_us + chance.randint(0, 2_000_000))
        at_us = 3_000_000
        for _ in range(chance.randint(1, faults)):
            at_us = min(at_us + chance.randint(0, 6_000_000), END_US)
            world.at(at_us, self._strike)

    def _plan(self, publisher: FullClient, at_us: int) -> None:
        if at_us < END_US:
            self.world.at(at_us, lambda: self._publish(publisher))

    def _publish(self, publisher: FullClient) -> None:
        attributes = {"n": len(self._published), "kind": self.chance.choice("abc")}
        careful = self.chance.random() < 0.8
        if publisher.host.machine is not None and publisher.session.has_room:
            publisher.publish(attributes, acknowledged=careful)
            place = (publisher.publisher, publisher.session.outbox.last_sequence)
            self._published[place] = (self.world.now_us, attributes)
        self._plan(publisher, self.world.now_us + self.chance.choice([0, 1_000, 50_000, 400_000]))

    def _strike(self) -> None:
        """One fault, whose end is planned with it."""
        chance, world = self.chance, self.world
        kind = chance.choice(FAULTS)
        client = chance.choice(self.clients)
        ways = [(client.name, client.broker), (client.broker, client.name), ("A", "B"), ("B", "C")]
        left, right = chance.choice([ways[0], ways[0], *ways])
        until_us = world.now_us + chance.choice(DURATIONS_US)
        self.counts[kind] += 1
        if kind == "lose":
            world.lose(left, right, chance.choice([0, 1, 3]))
        elif kind == "duplicate":
            world.duplicate(left, right, chance.randint(1, 5))
        elif kind == "partition":
            world.at(until_us, world.partition(left, right))
        elif kind == "hold":
            world.at(until_us, world.hold(left, right))
        elif kind == "delay":
            world.at(until_us, world.delay(left, right, 200_000))
        elif kind == "freeze":
            world.freeze(chance.choice([client.name, *LINKS]), until_us - world.now_us)
        else:
            victim = chance.choice([client.name, client.name, *LINKS])
            if world.host(victim).machine is not None:
                world.crash(victim, silent=kind == "silent crash")
                world.at(until_us, lambda: self._revive(victim))

    def _revive(self, victim: str) -> None:
        if self.world.host(victim).machine is None:
            self.world.restart(victim)

    def run(self) -> None:
        """Let everything happen, and then come to rest."""
        self.world.run_until(END_US + max(DURATIONS_US))
        self.world.run_for(seconds=REST_S)
        self.world.run_until_quiet()

    def require(self) -> None:
        """Raise `InvariantViolated` with everything that is not as it must be."""
        watcher = self.world.checkers
        for client in self.clients:
            if client.problems:
                watcher.violated(self.world.now_us, f"{client.name} was told {client.problems[:3]}")
            if not client.connected:
                watcher.violated(self.world.now_us, f"{client.name} has no connection")
            if client.session.outbox.kept_bytes:
                watcher.violated(self.world.now_us, f"{client.name} never heard what it published arrived")
        for client in self.durables:
            self._require_log(client)
        watcher.require()

    def _require_log(self, client: FullClient) -> None:
        """Everything for which somebody has a receipt was read, in its publisher's order."""
        watcher, ((name, text),) = self.world.checkers, client.durables.items()
        rows = client.rows[name]
        filter, read = Filter(text), {(row.publisher, row.sequence) for row in rows}
        if name not in client.answered:
            watcher.violated(self.world.now_us, f"{client.name} never got an answer")
            return
        for publisher in self.publishers:
            for place in sorted(publisher.safe):
                at_us, attributes = self._published[place]
                if at_us > client.answered[name] and filter.matches(attributes) and place not in read:
                    watcher.violated(at_us, f"{place} has a receipt, and {client.name} never read it")
        for place in read:
            if not filter.matches(self._published[place][1]):
                watcher.violated(self.world.now_us, f"{client.name} read {place} uninvited")
        for life in range(1, client.lives + 1):
            lived = [row for row in rows if row.life == life]
            offsets = [row.offset for row in lived]
            if offsets != sorted(set(offsets)):
                watcher.violated(self.world.now_us, f"{client.name} read {name} out of order in life {life}")


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description="Random worlds for the real client; no promise may break.")
    parser.add_argument("--runs", type=int, default=500)
    parser.add_argument("--seed", type=int, default=0, help="of the first world")
    parser.add_argument("--slow-stores", action="store_true", help="readers of logs are always behind")
    arguments = parser.parse_args()
    failed = published = read = connections = 0
    counts: dict[str, int] = defaultdict(int)
    began = time.monotonic()
    for seed in range(arguments.seed, arguments.seed + arguments.runs):
        slow = " --slow-stores" if arguments.slow_stores else ""
        repeat = f"python -m tests.sim.client_worlds --runs 1 --seed {seed}{slow}"
        world = ClientWorld(seed, repeat=repeat, slow_stores=arguments.slow_stores)
        try:
            world.run()
            world.require()
        except (InvariantViolated, AssertionError) as error:
            failed += 1
            print("\n".join(str(error).split("\n")[:6]), f"(seed {seed})", flush=True)
        published += sum(client.published for client in world.clients)
        read += sum(len(rows) for client in world.clients for rows in client.rows.values())
        connections += sum(client.connections for client in world.clients)
        for kind, count in world.counts.items():
            counts[kind] += count
    struck = ", ".join(f"{count} {kind}" for kind, count in sorted(counts.items()))
    print(
        f"client worlds: {arguments.runs:,} runs, {failed} failed; {published:,} published, {read:,} read, "
        f"{connections:,} connections; faults: {struck}; {time.monotonic() - began:.0f} s"
    )
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
