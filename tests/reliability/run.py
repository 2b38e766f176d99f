"""Does Braid keep its promises when brokers are killed and connections break?

    python -m tests.reliability.run --seconds 60 --brokers 7 --clients 20 --seed 1 --plan kills --strategy SB

Real brokers and clients in processes of their own, in a random tree on loopback. For the given time things go
wrong as a plan says (`PLANS`), and newcomers subscribe amid and right after it. Then everything is repaired,
publishers wait for their receipts, subscribers read what is left, and a checker compares what must have
arrived with what did. The seed decides the network, who wants what, and what is done in which order; the
moments depend on the machine. One line per plan, strategy and seed says what came of it.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import shutil
import signal
import sys
import tempfile
import time
from collections import Counter
from dataclasses import asdict, dataclass, field
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any

from braid.errors import BraidError
from braid.runtime.client import connect
from tests.reliability.checker import Checker, Verdict
from tests.reliability.plan import Subscriber, make_plan, make_selection
from tests.reliability.processes import HOST, BrokerProcess, WorkerProcess
from tests.reliability.proxy import Proxy
from tests.reliability.worker import ClientTask, Specification

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["Choices", "Outcome", "reliability_run"]

# Until everybody is connected at the start; a busy machine is slow.
READY_S_MAX = 90.0
# Until all receipts and all rows are there at the end. Recovery takes seconds; this is for a busy machine.
REPAIR_S_MAX = 120.0
# After everything has arrived: what comes twice may come late.
QUIET_S = 2.0
# Brokers that are dead at a time; more, and hardly anything would be published meanwhile.
DEAD_MAX = 2
PUBLISHERS_PER_PROCESS = 5
SUBSCRIBERS_PER_PROCESS = 2
# Subscribers that come amid the faults.
NEWCOMERS_MAX = 12
# In plans with large publications, the largest frame, and what a body may take of it.
FRAME_BYTES_MAX = 256 * 1024
BODY_BYTES_MAX = FRAME_BYTES_MAX - 1024

PLANS: dict[str, dict[str, int]] = {
    "kills": {"kill": 35, "reset": 50, "stall": 8, "kill clients": 6, "power cut": 1},
    "stops": {"stop": 30, "kill": 10, "reset": 20, "stall": 10},
    "holes": {"hole": 30, "kill": 10, "reset": 15, "stall": 10},
    "disks": {"old data": 12, "lost data": 8, "disk full": 14, "kill": 15, "reset": 20},
    "large": {"kill": 25, "reset": 30, "stall": 8, "hole": 5, "stop": 5},
}
"""What goes wrong in each plan, and how often in comparison:

- *kills*: `kill -9` of brokers and clients, broken and stalled connections, all brokers at once.
- *stops*: brokers that are stopped for up to 20 s and go on.
- *holes*: connections through which only one end is heard.
- *disks*: brokers that come back with an old data directory or with none, disks that are full for a while.
- *large*: publications up to the largest that a frame can hold, and a bit of everything.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Choices:
    """What a run is to be like."""

    seconds: float = 60.0
    brokers: int = 7
    clients: int = 20
    seed: int = 1
    rate: float = 2000.0
    """Publications per second that all publishers together aim at."""
    log_level: str = "info"
    strategy: str = "S0"
    """How brokers forward. With soft links, order is promised to those publishers only who ask for it."""
    plan: str = "kills"
    """What goes wrong."""

    @property
    def command(self) -> str:
        """What to type for the same run."""
        return (
            f"python -m tests.reliability.run --seconds {self.seconds:g} --brokers {self.brokers} "
            f"--clients {self.clients} --seed {self.seed} --rate {self.rate:g} --strategy {self.strategy} "
            f"--plan {self.plan}"
        )


@dataclass(slots=True)
class Outcome:
    """What a run came to."""

    choices: Choices
    directory: Path
    verdict: Verdict
    faults: Counter[str] = field(default_factory=Counter)
    newcomers: int = 0
    recovery_s: float = 0.0
    """From the last repair until everything had arrived."""
    problems: list[str] = field(default_factory=list)
    """Whatever is wrong apart from what the verdict counts."""

    @property
    def right(self) -> bool:
        return self.verdict.right and not self.problems

    @property
    def summary(self) -> str:
        verdict, choices = self.verdict, self.choices
        faults = ", ".join(f"{count} {kind}" for kind, count in sorted(self.faults.items()))
        return (
            f"reliability {choices.plan} {choices.strategy} seed {choices.seed}: "
            f"published {verdict.published:,}, receipts {verdict.settled:,}, lost {verdict.lost}, "
            f"doubled {verdict.doubled}, reordered {verdict.misordered}, "
            f"longest pause {verdict.pause_s:.1f} s "
            f"({choices.brokers} brokers, {choices.clients} clients, {self.newcomers} newcomers, "
            f"{verdict.delivered:,} delivered, repaired in {self.recovery_s:.1f} s; {faults})"
        )

    @property
    def explanation(self) -> str:
        """The summary, and if anything is wrong what, where to look, and how to do it again."""
        if self.right:
            return self.summary
        lines = [self.summary, *self.problems]
        for kind, examples in self.verdict.examples.items():
            lines += [f"{kind}: {sentence}" for sentence in examples]
        lines.append(f"logs, journals and reports: {self.directory}")
        lines.append(f"again: {self.choices.command}")
        return "\n".join(lines)


class _Run:
    """One run, from the first broker to the verdict."""

    def __init__(self, choices: Choices, directory: Path) -> None:
        self.choices = choices
        self.directory = directory
        self._large = choices.plan == "large"
        self._settings = f"frame_bytes_max = {FRAME_BYTES_MAX}" if self._large else ""
        self.plan = make_plan(choices.seed, choices.brokers, choices.clients)
        self.checker = Checker(self.plan, directory, soft_links=choices.strategy != "S0")
        self.outcome = Outcome(choices, directory, self.checker.verdict)
        self.brokers = {
            name: BrokerProcess(name, directory, choices.log_level, choices.strategy, self._settings)
            for name in self.plan.brokers
        }
        self.proxies: dict[str, Proxy] = {}
        """By the name of the broker or client that connects through it."""
        self.workers: list[WorkerProcess] = []
        self._tasks: dict[WorkerProcess, tuple[bool, tuple[ClientTask, ...]]] = {}
        self._later: set[asyncio.Task[None]] = set()
        self._copied: set[str] = set()
        """Brokers of whose data directories there are copies."""
        self._chance = random.Random(f"{choices.seed}/chaos")
        self._began = time.monotonic()
        self._diary = (directory / "chaos.log").open("w")

    def note(self, what: str) -> None:
        wall = time.time()
        moment = time.strftime("%H:%M:%S", time.localtime(wall)) + f".{int(wall % 1 * 1000):03d}"
        print(f"{moment} {time.monotonic() - self._began:7.3f} {what}", file=self._diary, flush=True)

    async def go(self) -> Outcome:
        """Do everything; whatever happens, nothing is left running."""
        try:
            await self._start()
            await self._chaos()
            await self._repair()
            await self._finish()
        except (BraidError, RuntimeError, TimeoutError, OSError) as error:
            self.outcome.problems.append(f"the run broke off: {type(error).__name__}: {error}")
            await self._report()
        finally:
            await self._clean()
        self.checker.conclude()
        return self.outcome

    # The beginning.

    async def _start(self) -> None:
        await self._open_proxies()
        for broker in self.brokers.values():
            broker.start()
        for broker in self.brokers.values():
            await broker.listening()
        subscribers = [
            ClientTask(each.name, self.proxies[each.name].address, each.selection.text)
            for each in self.plan.subscribers
        ]
        writers = [
            ClientTask(
                each.name,
                self.proxies[each.name].address,
                f"writer = '{each.name}'" if each.advertises else "",
                each.ordered,
            )
            for each in self.plan.writers
        ]
        self._make_workers(False, subscribers, SUBSCRIBERS_PER_PROCESS)
        self._newcomers = WorkerProcess("newcomers", self.directory)
        self._tasks[self._newcomers] = (False, ())
        self.workers.append(self._newcomers)
        self._start_worker(self._newcomers)
        await self._ready()
        self._make_workers(True, writers, PUBLISHERS_PER_PROCESS)
        await self._ready()
        self.note("everybody is there")

    async def _open_proxies(self) -> None:
        ways = [(dialler, other) for dialler, other in self.plan.dials.items()]
        ways += [(writer.name, writer.broker) for writer in self.plan.writers]
        ways += [(subscriber.name, subscriber.broker) for subscriber in self.plan.subscribers]
        for who, broker in ways:
            self.proxies[who] = Proxy(f"{who}-{broker}", HOST, self.brokers[broker].port)
            await self.proxies[who].open()
        for dialler in self.plan.dials:
            self.brokers[dialler].neighbours.append(self.proxies[dialler].address)
        if self.choices.plan == "disks":
            # Who has lost its data directory knows only those neighbours that it is told to dial.
            for dialler, other in self.plan.dials.items():
                self.brokers[other].neighbours.append(f"{HOST}:{self.brokers[dialler].port}")
        if self.choices.strategy != "S0":
            # Soft links are dialled where brokers say that they are.
            for name, broker in self.brokers.items():
                proxy = self.proxies[f"soft-{name}"] = Proxy(f"soft-{name}", HOST, broker.port)
                await proxy.open()
                broker.address = proxy.address

    def _make_workers(self, publishes: bool, tasks: list[ClientTask], size: int) -> None:
        for first in range(0, len(tasks), size):
            name = f"{'publishers' if publishes else 'subscribers'}{first // size}"
            worker = WorkerProcess(name, self.directory)
            self._tasks[worker] = (publishes, tuple(tasks[first : first + size]))
            self.workers.append(worker)
            self._start_worker(worker)

    def _start_worker(self, worker: WorkerProcess) -> None:
        publishes, tasks = self._tasks[worker]
        worker.start(
            Specification(
                publishes=publishes,
                life=worker.starts + 1,
                seed=self.choices.seed,
                directory=str(self.directory),
                rate=self.choices.rate / max(1, len(self.plan.writers)),
                clients=tasks,
                body_bytes_max=BODY_BYTES_MAX if self._large else 0,
            )
        )

    async def _ready(self) -> None:
        """Wait until all clients of all processes that run have said what they want."""

        def everybody() -> bool:
            self.checker.read()
            return all(
                self.checker.ready_lives(client) > 0 for worker in self.workers for client in worker.clients
            )

        if not await _until(everybody, READY_S_MAX):
            raise RuntimeError(f"not all clients were ready within {READY_S_MAX:g} s")

    # The chaos.

    async def _chaos(self) -> None:
        end = time.monotonic() + self.choices.seconds
        actions: dict[str, Callable[[], BrokerProcess | None]] = {
            "kill": self._kill_broker,
            "power cut": self._kill_all_brokers,
            "reset": self._reset,
            "stall": self._stall,
            "stop": self._stop,
            "hole": self._hole,
            "kill clients": self._kill_worker,
            "old data": self._old_data,
            "lost data": self._lost_data,
            "disk full": self._disk_full,
        }
        plan = PLANS[self.choices.plan]
        while not self.outcome.problems:
            pause = self._chance.uniform(0.1, 0.9)
            action = self._chance.choices(list(plan), weights=list(plan.values()))[0]
            if time.monotonic() + pause >= end:
                await asyncio.sleep(max(0.0, end - time.monotonic()))
                return
            await asyncio.sleep(pause)
            struck = actions[action]()
            if struck is not None:
                self.outcome.faults[action] += 1
            if self._chance.random() < 0.4:
                self._newcomer(struck)
            self._look_after()

    def _newcomer(self, where: BrokerProcess | None) -> None:
        """Somebody subscribes, at a broker that something has just happened to or at any other."""
        if self.outcome.newcomers >= NEWCOMERS_MAX or not self._newcomers.alive:
            return
        self.outcome.newcomers += 1
        broker = where or self._chance.choice(list(self.brokers.values()))
        selection = make_selection(self._chance, [writer.name for writer in self.plan.writers])
        name = f"n{self.outcome.newcomers}"
        # Not through a proxy: it knocks as soon as the broker is there.
        task = ClientTask(name, f"{HOST}:{broker.port}", selection.text)
        self.checker.expect(Subscriber(name, broker.name, selection))
        self._tasks[self._newcomers] = (False, (*self._tasks[self._newcomers][1], task))
        self._newcomers.add(task)
        self.note(f"{name} subscribes at {broker.name}")

    def _look_after(self) -> None:
        """Nobody may end but by our hand."""
        for process in (*self.brokers.values(), *self.workers):
            if process.failure and process.failure not in self.outcome.problems:
                self.outcome.problems.append(process.failure)

    def _soon(self, pause: float, action: Callable[[], None]) -> None:
        async def wait() -> None:
            await asyncio.sleep(pause)
            action()

        task = asyncio.get_running_loop().create_task(wait())
        self._later.add(task)
        task.add_done_callback(self._later.discard)

    def _one_alive(self) -> BrokerProcess | None:
        """A broker that runs, unless too many do not."""
        victim = self._chance.choice(list(self.brokers.values()))
        away = sum(not broker.alive or broker.stopped for broker in self.brokers.values())
        return victim if away < DEAD_MAX and victim.alive and not victim.stopped else None

    def _kill_broker(self) -> BrokerProcess | None:
        victim = self._one_alive()
        pause = self._chance.choice([0.0, 0.5, 1.5, 4.0])
        if victim is not None:
            self._kill(victim, pause)
        return victim

    def _kill_all_brokers(self) -> BrokerProcess | None:
        """As when the power fails."""
        for broker in self.brokers.values():
            pause = self._chance.uniform(0.0, 1.0)
            if broker.alive and not broker.stopped:
                self._kill(broker, pause)
        return self._chance.choice(list(self.brokers.values()))

    def _kill(
        self, victim: BrokerProcess, pause: float, meanwhile: Callable[[], object] | None = None
    ) -> None:
        victim.kill()
        self.note(f"kill {victim.name}, back in {pause:.2f} s")
        if meanwhile is not None:
            meanwhile()

        def back() -> None:
            self.note(f"start {victim.name}")
            victim.start()

        self._soon(pause, back)

    def _reset(self) -> BrokerProcess | None:
        """Reset one proxy's connections, or once in a while those of several."""
        proxies = list(self.proxies.values())
        some = self._chance.sample(proxies, 6 if self._chance.random() < 0.1 else 1)
        for proxy in some:
            self.note(f"reset {proxy.name} ({proxy.reset()})")
        return self._before(some[0])

    def _before(self, proxy: Proxy) -> BrokerProcess:
        """The broker that a proxy stands before."""
        return self.brokers[proxy.name.rpartition("-")[2]]

    def _stall(self) -> BrokerProcess | None:
        proxy = self._chance.choice(list(self.proxies.values()))
        # Mostly short; sometimes longer than brokers wait for a sign of life.
        pause = self._chance.choice([0.3, 0.6, 1.5, 8.0])
        self.note(f"stall {proxy.name} for {pause:g} s")
        proxy.stall(True)
        self._soon(pause, lambda: proxy.stall(False))
        return self._before(proxy)

    def _hole(self) -> BrokerProcess | None:
        proxy = self._chance.choice(list(self.proxies.values()))
        hole = self._chance.choice(["there", "back"])
        pause = self._chance.choice([0.5, 2.0, 8.0, 15.0])
        if proxy.hole:
            return None
        self.note(f"hole in {proxy.name}, {hole}, for {pause:g} s")
        proxy.tear(hole)
        self._soon(pause, lambda: proxy.tear(""))
        return self._before(proxy)

    def _stop(self) -> BrokerProcess | None:
        victim = self._one_alive()
        pause = self._chance.choice([0.5, 2.0, 8.0, 20.0])
        if victim is None:
            return None
        self.note(f"stop {victim.name} for {pause:g} s")
        victim.freeze(True)
        life = victim.starts

        def go_on() -> None:
            if victim.starts == life:
                self.note(f"{victim.name} goes on")
                victim.freeze(False)

        self._soon(pause, go_on)
        return victim

    def _old_data(self) -> BrokerProcess | None:
        """Copy a broker's data directory, or put the copy that was made before in its place."""
        victim = self._one_alive()
        if victim is None:
            return None
        if victim.name not in self._copied:
            self._copied.add(victim.name)
            self._kill(victim, 0.2, victim.copy_data)
        else:
            self._kill(victim, 0.5, victim.restore_data)
            self.note(f"{victim.name} gets an old data directory")
            self.checker.broke(victim.name, time.monotonic_ns())
        return victim

    def _lost_data(self) -> BrokerProcess | None:
        victim = self._one_alive()
        if victim is not None:
            self._kill(victim, 0.5, victim.lose_data)
            self.note(f"{victim.name} loses its data directory")
            self.checker.broke(victim.name, time.monotonic_ns())
        return victim

    def _disk_full(self) -> BrokerProcess | None:
        victim = self._one_alive()
        pause = self._chance.choice([0.5, 2.0, 6.0])
        if victim is None:
            return None
        self.note(f"the disk of {victim.name} is full for {pause:g} s")
        victim.fill_disk(True)
        life = victim.starts

        def room() -> None:
            if victim.starts == life:
                self.note(f"{victim.name} has room again")
                victim.fill_disk(False)

        self._soon(pause, room)
        return victim

    def _kill_worker(self) -> BrokerProcess | None:
        worker = self._chance.choice(self.workers)
        pause = self._chance.uniform(0.0, 1.0)
        if not worker.kill():
            return None
        self.note(f"kill {worker.name} ({', '.join(worker.clients)}), back in {pause:.2f} s")

        def back() -> None:
            self.note(f"start {worker.name}")
            self._start_worker(worker)

        self._soon(pause, back)
        return self._chance.choice(list(self.brokers.values()))

    # The end.

    async def _repair(self) -> None:
        if self._later:
            await asyncio.wait(self._later)
        for proxy in self.proxies.values():
            proxy.stall(False)
        self._look_after()
        self.note("everything is repaired")

    async def _finish(self) -> None:
        """Publishers get their receipts, subscribers what is left."""
        repaired = time.monotonic()
        for worker in self.workers:
            if self._tasks[worker][0]:
                worker.end_input()

        def flushed() -> bool:
            self.checker.read()
            self._look_after()
            return bool(self.outcome.problems) or not self._unflushed()

        await _until(flushed, REPAIR_S_MAX)
        for publisher in self._unflushed():
            self.outcome.problems.append(
                f"{publisher} still waited for receipts after {REPAIR_S_MAX:g} s without disturbance"
            )
        self.note("publishers have their receipts" if not self.outcome.problems else "publishers still wait")

        def drained() -> bool:
            self.checker.read()
            return not self.checker.unanswered() and not self.checker.missing()

        if self.outcome.problems or not await _until(drained, REPAIR_S_MAX, 0.25):
            await self._report()
        self.outcome.recovery_s = time.monotonic() - repaired
        self.note("subscribers have what they should" if drained() else "subscribers lack something")
        await asyncio.sleep(QUIET_S)
        if self.outcome.problems:
            return  # nobody would come to an end in time
        for worker in self.workers:
            worker.end_input()
        for worker in self.workers:
            if not await worker.ended():
                self.outcome.problems.append(f"{worker.name} did not end: see {worker.log}")
        self._look_after()

    def _unflushed(self) -> list[str]:
        """Publishers of this life that wait for receipts."""
        return [
            f"{client}.{worker.starts}"
            for worker in self.workers
            if self._tasks[worker][0]
            for client in worker.clients
            if f"{client}.{worker.starts}" not in self.checker.writers[client].flushed
        ]

    async def _report(self) -> None:
        """Write down what the brokers say of themselves."""
        reports: dict[str, Any] = {}
        for broker in self.brokers.values():
            try:
                async with asyncio.timeout(10.0):
                    async with connect(f"{HOST}:{broker.port}", name="reporter", timeout_s=5.0) as client:
                        reports[broker.name] = {
                            topic: await client.ask(topic) for topic in ("statistics", "overlay")
                        }
            except (BraidError, TimeoutError) as error:
                reports[broker.name] = f"{type(error).__name__}: {error}"
        (self.directory / "report.json").write_text(json.dumps(reports, indent=2))
        missing = {name: lost[:20] for name, lost in self.checker.missing().items()}
        (self.directory / "missing.json").write_text(json.dumps(missing, indent=2))

    async def _clean(self) -> None:
        for task in list(self._later):
            task.cancel()
        for process in (*self.workers, *self.brokers.values()):
            process.kill()
        for proxy in self.proxies.values():
            await proxy.close()
        self._diary.close()


async def _until(condition: Callable[[], bool], seconds_max: float, interval: float = 0.1) -> bool:
    """Look again and again until something is so; returns False if that takes too long."""
    deadline = time.monotonic() + seconds_max
    while not condition():
        if time.monotonic() >= deadline:
            return False
        await asyncio.sleep(interval)
    return True


def reliability_run(choices: Choices) -> Outcome:
    """Do one run. Its files are kept only if something is wrong."""
    directory = Path(tempfile.mkdtemp(prefix=f"braid-reliability-{choices.seed}-"))

    async def go() -> Outcome:
        return await _Run(choices, directory).go()

    outcome = asyncio.run(go())
    if outcome.right:
        shutil.rmtree(directory)
    return outcome


def main() -> None:
    """The command line."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # ends what was started first
    defaults = Choices()
    parser = argparse.ArgumentParser(description="Let things go wrong in a network; nothing may get lost.")
    parser.add_argument("--seconds", type=float, default=defaults.seconds, help="how long things break")
    parser.add_argument("--brokers", type=int, default=defaults.brokers)
    parser.add_argument("--clients", type=int, default=defaults.clients, help="half publish, half subscribe")
    parser.add_argument("--rate", type=float, default=defaults.rate, help="publications per second")
    parser.add_argument("--log-level", default=defaults.log_level, help="of the brokers")
    parser.add_argument("--json", action="store_true", help="print everything as JSON, a line per run")
    several = {"action": "append", "help": "may be given more than once"}
    parser.add_argument("--seed", type=int, **several)
    parser.add_argument("--plan", choices=sorted(PLANS), **several)
    parser.add_argument("--strategy", choices=["S0", "S1", "S2", "SH", "SB"], **several)
    arguments = vars(parser.parse_args())
    as_json = arguments.pop("json")
    seeds = arguments.pop("seed") or [defaults.seed]
    plans = arguments.pop("plan") or [defaults.plan]
    strategies = arguments.pop("strategy") or [defaults.strategy]
    right = True
    for plan, strategy, seed in product(plans, strategies, seeds):
        outcome = reliability_run(Choices(plan=plan, strategy=strategy, seed=seed, **arguments))
        right = right and outcome.right
        if as_json:
            values = asdict(outcome) | {"directory": str(outcome.directory), "right": outcome.right}
            print(json.dumps(values | {"summary": outcome.summary}), flush=True)
        else:
            print(outcome.explanation, flush=True)
    sys.exit(0 if right else 1)


if __name__ == "__main__":
    main()
