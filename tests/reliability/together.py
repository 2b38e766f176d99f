"""All parts of Braid at once, under load: does anybody lose, double or reorder anything?

    python -m tests.reliability.run --plan together --strategy SB --brokers 12 --clients 24 --seconds 1200

Brokers forward by their shortcuts and exchange links by themselves; operators carry out random plans of
SHIFTs on the same tree; brokers are killed, and a guard gives their places to standbys; one broker is a
gateway to twenty peers; a Spark stream reads a log and its sink publishes every row again. The tree is
changed by two who do not know of each other, and brokers die meanwhile, so operators may be refused: they
look again and make another plan. What is counted wrong is only what clients notice.
"""

from __future__ import annotations

import asyncio
import random
import re
import subprocess
import sys
import time
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING

from braid.reconfiguration import OverlayTree, decode_tree, encode_tree
from braid.reconfiguration.trees import link_between
from braid.runtime.connecting import connect
from tests.reliability.copying import Copying
from tests.reliability.peering import PeersBeside
from tests.reliability.plan import Plan, Subscriber, Writer, make_selection, random_dials
from tests.reliability.processes import HOST, BrokerProcess
from tests.reliability.replacing import Replacing

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["Together", "make_together", "some_shifts", "together_settings"]

REPLACED = 3
# How long a broker is missed before the guard replaces it, and how long that may take in all.
PATIENCE_S = 4.0
REPLACED_S_MAX = 150.0
# Between two kills; the first comes after half of it.
KILL_EVERY_S = 150.0
# Until a network in which brokers exchange links is seen whole at one moment.
WHOLE_S_MAX = 120.0
# SHIFTs of one plan of operators, at most; long ones would be overtaken by exchanges before their end.
SHIFTS_MAX = 4
# Between two looks of brokers for a better tree.
INTERVAL_S = 10.0


def make_together(seed: int, brokers: int, clients: int) -> Plan:
    """A random network; half of the clients publish, some at brokers that are replaced, where no log is."""
    chance = random.Random(f"{seed}/together")
    names = tuple(f"B{number}" for number in range(1, brokers + 1))
    dials = random_dials(chance, names)
    replaced = tuple(chance.sample(names, REPLACED))
    others = [name for name in names if name not in replaced]
    writers = tuple(
        Writer(
            f"w{number}",
            replaced[number] if number < REPLACED else chance.choice(others),
            number % 3 == 0,
            number % 2 == 0,
        )
        for number in range(clients // 2)
    )
    everybody = [writer.name for writer in writers]
    subscribers = tuple(
        Subscriber(f"s{number}", chance.choice(others), make_selection(chance, everybody))
        for number in range(clients - len(writers))
    )
    return Plan(names, dials, writers, subscribers, replaced=replaced)


def together_settings(seed: int, names: tuple[str, ...], name: str, *, gateway: bool) -> str:
    """The configuration of one broker: links cost what the seed says, the same at both ends."""
    costs = [
        f'"{other}={random.Random(f"{seed}/{min(name, other)}/{max(name, other)}").uniform(1, 10):.3f}"'
        for other in names
        if other != name
    ]
    topology = (
        f'[topology]\npolicy = "ci"\ninterval_us = {round(INTERVAL_S * 1e6)}\nprocessing_cost = 1.0\n'
        f"degree_max = 5\nlink_costs = [{', '.join(costs)}]\n"
    )
    return topology + (PeersBeside.SETTINGS if gateway else "")


def some_shifts(chance: random.Random, tree: OverlayTree, count: int) -> OverlayTree:
    """The tree after so many SHIFTs by chance."""
    for _ in range(count):
        inner = [broker for broker in tree.brokers if tree.degree(broker) > 1]
        old = chance.choice(inner)
        moving, new = chance.sample(tree.neighbours(old), 2)
        links = tree.links - {link_between(moving, old)} | {link_between(moving, new)}
        tree = OverlayTree(links, tree.brokers)
    return tree


class Together(Replacing):
    """The part of a run in which everything happens."""

    directory: Path

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self._guard: subprocess.Popen[bytes] | None = None
        self._standbys: list[BrokerProcess] = []

    @property
    def _gateway(self) -> str:
        return min(name for name in self.plan.brokers if name not in self.plan.replaced)

    async def _changes(self) -> None:
        if self.choices.plan != "together":
            await super()._changes()
            return
        kept = [name for name in self.plan.brokers if name not in self.plan.replaced]
        gateway, source, target = self._gateway, kept[1], kept[-1]
        peers = PeersBeside(
            self.directory,
            self._address(gateway),
            self._address(kept[2]),
            [each.name for each in self.plan.writers],
            self.choices.seed,
        )
        copying = Copying(
            self.directory, self._address(source), self._address(target), self._address(kept[2])
        )
        try:
            async with AsyncExitStack() as stack:
                await peers.begin(stack)
                self.note(f"{len(peers.addresses)} peers are there, with {gateway} as their gateway")
                await copying.begin()
                self.note("Spark is at work")
                await self._all_at_once(peers, copying)
                self.note("everything has happened; peers and Spark finish")
                await self._finish_parts(peers, copying)
        finally:
            await asyncio.gather(peers.end(), copying.end())
            if self._guard is not None and self._guard.poll() is None:
                self._guard.kill()
                self._guard.wait()

    async def _all_at_once(self, peers: PeersBeside, copying: Copying) -> None:
        begun_s = time.monotonic()
        end_s = begun_s + self.choices.seconds
        kills = max(1, round(self.choices.seconds / KILL_EVERY_S))
        await self._begin_guard(kills)
        parts = [
            asyncio.create_task(part)
            for part in (
                self._operate(end_s),
                self._kill_and_wait(kills, self.choices.seconds / kills, peers),
                self._come(end_s),
                peers.publish(end_s),
                copying.publish(end_s),
            )
        ]
        try:
            await asyncio.gather(*parts)
        finally:
            for part in parts:
                part.cancel()
            await asyncio.gather(*parts, return_exceptions=True)
        self.outcome.load_s = time.monotonic() - begun_s

    async def _finish_parts(self, peers: PeersBeside, copying: Copying) -> None:
        await self._whole_at_last()
        await self._count_exchanges()
        for found in (await copying.finish(), await peers.finish(self.checker)):
            self.outcome.faults.update(found.counts)
            for kind, sentence, count in found.mistakes:
                self.checker.verdict.blame(kind, sentence, count)

    def _address(self, name: str) -> str:
        return f"{HOST}:{self.brokers[name].port}"

    # Operators.

    async def _operate(self, end_s: float) -> None:
        """Random plans of SHIFTs, one after the other, as far as the network lets them."""
        while time.monotonic() < end_s and not self.outcome.problems:
            content = await self._tree_now()
            if content is None:
                await asyncio.sleep(1.0)
                continue
            goal = some_shifts(self._choice, content, self._choice.randint(1, SHIFTS_MAX))
            target, plan = self._file("tree"), self._file("plan")
            (self.directory / target).write_bytes(encode_tree(goal))
            left_s = end_s - time.monotonic()
            if goal == content:
                continue
            if left_s <= 0 or not await self._try("plan", "--to", target, "--out", plan):
                continue
            done = await self._try(
                *("apply", plan, "--parallel", str(self._choice.choice([1, 3]))), stopped_after_s=left_s + 20
            )
            self.outcome.faults["plans carried out" if done else "plans overtaken"] += 1
            await asyncio.sleep(self._choice.uniform(0.5, 3.0))

    async def _tree_now(self) -> OverlayTree | None:
        code, tree, _ = await self._run_command("show", "--tree")
        return decode_tree(tree.encode(), "show --tree")[0] if code == 0 else None

    async def _try(self, *arguments: str, stopped_after_s: float = 60.0) -> bool:
        """Run a command that may be refused, because others change the tree too; whether it was done."""
        self.note(f"braid overlay {' '.join(arguments)}")
        code, out, problem = await self._run_command(*arguments, killed_after_s=stopped_after_s)
        self.note(f"ended with code {code}: {(problem or out).strip()[-200:]}")
        return code == 0

    async def _whole_at_last(self) -> None:
        deadline_s = time.monotonic() + WHOLE_S_MAX
        while (tree := await self._tree_now()) is None or set(tree.brokers) != set(self.plan.brokers):
            if time.monotonic() > deadline_s:
                _, _, problem = await self._run_command("show", "--tree")
                self.outcome.problems.append(
                    f"the network was not whole after {WHOLE_S_MAX:g} s: {problem.strip() or tree}"
                )
                return
            await asyncio.sleep(0.5)

    async def _count_exchanges(self) -> None:
        for name in self.brokers:
            async with connect(self._address(name), name="counter", timeout_s=10.0) as client:
                shown = await client.ask("topology")
            self.outcome.faults["exchanges"] += int(shown["exchanges_done"])

    # Deaths.

    async def _begin_guard(self, kills: int) -> None:
        for number in range(kills):
            standby = BrokerProcess(
                f"X{number}",
                self.directory,
                self.choices.log_level,
                self.choices.strategy,
                together_settings(
                    self.choices.seed,
                    self.plan.brokers,
                    self.plan.replaced[number % len(self.plan.replaced)],
                    gateway=False,
                ),
            )
            standby.standby = True
            standby.brokers_directory = next(iter(self.brokers.values())).brokers_directory
            standby.start()
            self._standbys.append(standby)
            self._former.append(standby)
        await asyncio.gather(*(standby.listening() for standby in self._standbys))
        self._start_guard()

    def _start_guard(self) -> None:
        known = [name for name in self.plan.brokers if name not in self.plan.replaced]
        with (self.directory / "guard.log").open("wb") as log:
            self._guard = subprocess.Popen(
                [
                    *(sys.executable, "-c", "from braid.cli import main; main()", "overlay", "guard"),
                    *(word for name in known for word in ("--broker", self._address(name))),
                    *(word for each in self._standbys for word in ("--standby", f"{HOST}:{each.port}")),
                    *("--patience", str(PATIENCE_S), "--interval", "0.5"),
                ],
                stdout=log,
                stderr=log,
                stdin=subprocess.DEVNULL,
            )

    async def _kill_and_wait(self, kills: int, every_s: float, peers: PeersBeside) -> None:
        begun_s = time.monotonic()
        for number in range(kills):
            name = self.plan.replaced[number % len(self.plan.replaced)]
            await asyncio.sleep(max(0.0, begun_s + (number + 0.4) * every_s - time.monotonic()))
            gone = self.brokers.pop(name)
            self._former.append(gone)
            killed_s, killed_us = time.monotonic(), time.time_ns() // 1000
            gone.kill()
            self.note(f"{name} is killed")
            fresh = await self._replaced(name, number)
            if fresh is None:
                self.outcome.problems.append(
                    f"{name} was not replaced within {REPLACED_S_MAX:g} s: see {self.directory / 'guard.log'}"
                )
                return
            peers.disturbed.append((killed_us, time.time_ns() // 1000))
            self.brokers[name] = fresh
            took_s = time.monotonic() - killed_s
            self.outcome.faults["kill"] += 1
            self.outcome.faults["s until replaced at most"] = max(
                self.outcome.faults["s until replaced at most"], round(took_s)
            )
            self.note(f"{name} is replaced after {took_s:.1f} s")

    async def _replaced(self, name: str, number: int) -> BrokerProcess | None:
        """The standby that has the place, as the guard says."""
        deadline_s = time.monotonic() + REPLACED_S_MAX
        while time.monotonic() < deadline_s and not self.outcome.problems:
            said = (self.directory / "guard.log").read_text(errors="replace")
            places = re.findall(r"(B\d+) is at (\S+) now", said)
            if len(places) > number and places[number][0] == name:
                port = int(places[number][1].rpartition(":")[2])
                return next(each for each in self._standbys if each.port == port)
            await asyncio.sleep(0.2)
        return None

    async def _come(self, end_s: float) -> None:
        """Somebody subscribes from time to time, where no broker is replaced."""
        kept = [name for name in self.plan.brokers if name not in self.plan.replaced]
        while (left_s := end_s - time.monotonic()) > 0:
            await asyncio.sleep(min(left_s, self.choices.seconds / 8))
            self._newcomer(self.brokers[self._choice.choice(kept)])
            self._look_after()
