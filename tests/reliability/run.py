"""Does Braid keep its promises when brokers are killed and connections break?

    python -m tests.reliability.run --seconds 60 --brokers 7 --clients 20 --seed 1

Real brokers and clients in processes of their own, in a random tree on loopback. For the given time brokers
are killed with `kill -9` and started again, connections are reset and stalled, and processes with clients
are killed too. Then everything is repaired, publishers wait for their receipts, subscribers read what is
left, and a checker compares what must have arrived with what did. The seed decides the network, who wants
what, and what is done in which order; the moments depend on the machine.
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
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from braid.errors import BraidError
from braid.runtime.client import connect
from tests.reliability.checker import Checker, Verdict
from tests.reliability.plan import make_plan
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

    @property
    def command(self) -> str:
        """What to type for the same run."""
        return (
            f"python -m tests.reliability.run --seconds {self.seconds:g} --brokers {self.brokers} "
            f"--clients {self.clients} --seed {self.seed} --rate {self.rate:g} --strategy {self.strategy}"
        )


@dataclass(slots=True)
class Outcome:
    """What a run came to."""

    choices: Choices
    directory: Path
    verdict: Verdict
    kills: int = 0
    resets: int = 0
    stalls: int = 0
    client_kills: int = 0
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
        return (
            f"reliability: {choices.strategy}, {choices.brokers} brokers, {choices.clients} clients, "
            f"{choices.seconds:g} s, seed {choices.seed}: {self.kills} kills, {self.resets} resets, "
            f"{self.stalls} stalls, {self.client_kills} client kills; {verdict.published:,} published "
            f"({verdict.settled:,} with a receipt), {verdict.delivered:,} delivered, "
            f"{verdict.lost} lost, {verdict.doubled} doubled, {verdict.misordered} out of order, "
            f"repaired in {self.recovery_s:.1f} s"
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
        self.plan = make_plan(choices.seed, choices.brokers, choices.clients)
        self.checker = Checker(self.plan, directory, soft_links=choices.strategy != "S0")
        self.outcome = Outcome(choices, directory, self.checker.verdict)
        self.brokers = {
            name: BrokerProcess(name, directory, choices.log_level, choices.strategy)
            for name in self.plan.brokers
        }
        self.proxies: dict[str, Proxy] = {}
        """By the name of the broker or client that connects through it."""
        self.workers: list[WorkerProcess] = []
        self._tasks: dict[WorkerProcess, tuple[bool, tuple[ClientTask, ...]]] = {}
        self._later: set[asyncio.Task[None]] = set()
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
            self.brokers[dialler].neighbour = self.proxies[dialler].address
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
        actions = [self._kill_broker, self._reset, self._stall, self._kill_worker, self._kill_all_brokers]
        while not self.outcome.problems:
            pause = self._chance.uniform(0.1, 0.9)
            action = self._chance.choices(actions, weights=[35, 50, 8, 6, 1])[0]
            if time.monotonic() + pause >= end:
                await asyncio.sleep(max(0.0, end - time.monotonic()))
                return
            await asyncio.sleep(pause)
            action()
            self._look_after()

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

    def _kill_broker(self) -> None:
        victim = self._chance.choice(list(self.brokers.values()))
        pause = self._chance.uniform(0.0, 1.5)
        dead = sum(not broker.alive for broker in self.brokers.values())
        if dead < DEAD_MAX and victim.alive:
            self._kill(victim, pause)

    def _kill_all_brokers(self) -> None:
        """As when the power fails."""
        for broker in self.brokers.values():
            pause = self._chance.uniform(0.0, 1.0)
            if broker.alive:
                self._kill(broker, pause)

    def _kill(self, victim: BrokerProcess, pause: float) -> None:
        if victim.kill():
            self.outcome.kills += 1
        self.note(f"kill {victim.name}, back in {pause:.2f} s")

        def back() -> None:
            self.note(f"start {victim.name}")
            victim.start()

        self._soon(pause, back)

    def _reset(self) -> None:
        """Reset one proxy's connections, or once in a while those of several."""
        proxies = list(self.proxies.values())
        some = self._chance.sample(proxies, 6 if self._chance.random() < 0.1 else 1)
        for proxy in some:
            count = proxy.reset()
            self.outcome.resets += count
            self.note(f"reset {proxy.name} ({count})")

    def _stall(self) -> None:
        proxy = self._chance.choice(list(self.proxies.values()))
        # Mostly short; sometimes longer than brokers wait for a sign of life.
        pause = self._chance.choice([0.3, 0.6, 1.5, 8.0])
        self.outcome.stalls += 1
        self.note(f"stall {proxy.name} for {pause:g} s")
        proxy.stall(True)
        self._soon(pause, lambda: proxy.stall(False))

    def _kill_worker(self) -> None:
        worker = self._chance.choice(self.workers)
        pause = self._chance.uniform(0.0, 1.0)
        if not worker.kill():
            return
        self.outcome.client_kills += len(worker.clients)
        self.note(f"kill {worker.name} ({', '.join(worker.clients)}), back in {pause:.2f} s")

        def back() -> None:
            self.note(f"start {worker.name}")
            self._start_worker(worker)

        self._soon(pause, back)

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
            return not self.checker.missing()

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
    parser = argparse.ArgumentParser(description="Kill brokers and break connections; nothing may get lost.")
    parser.add_argument("--seconds", type=float, default=defaults.seconds, help="how long things break")
    parser.add_argument("--brokers", type=int, default=defaults.brokers)
    parser.add_argument("--clients", type=int, default=defaults.clients, help="half publish, half subscribe")
    parser.add_argument("--seed", type=int, default=defaults.seed)
    parser.add_argument("--rate", type=float, default=defaults.rate, help="publications per second")
    parser.add_argument("--strategy", default=defaults.strategy, choices=["S0", "S1", "S2", "SH", "SB"])
    parser.add_argument("--log-level", default=defaults.log_level, help="of the brokers")
    parser.add_argument("--json", action="store_true", help="print everything as JSON")
    arguments = vars(parser.parse_args())
    as_json = arguments.pop("json")
    outcome = reliability_run(Choices(**arguments))
    if as_json:
        values = asdict(outcome) | {"directory": str(outcome.directory), "right": outcome.right}
        print(json.dumps(values | {"summary": outcome.summary}))
    else:
        print(outcome.explanation)
    sys.exit(0 if outcome.right else 1)


if __name__ == "__main__":
    main()
