"""Does Braid keep its promises when brokers are killed and connections break?

    python -m tests.reliability.run --seconds 60 --brokers 7 --clients 20 --seed 1 --plan kills --strategy SB

Real brokers and clients in processes of their own, in a random tree on loopback. For the given time things go
wrong as a plan says (`choices.PLANS`), or operators change the tree (`choices.CHANGES`), and newcomers
subscribe amid and right after it. Then everything is repaired, publishers wait for their receipts,
subscribers read what is left, and a checker compares what must have arrived with what did. The seed decides
the network, who wants what, and what is done in which order; the moments depend on the machine. One line per
plan, strategy and seed says what came of it.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import shutil
import signal
import sys
import tempfile
import time
from collections import Counter
from contextlib import ExitStack
from dataclasses import asdict
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any

from braid.errors import BraidError
from braid.protocol.limits import carried_bytes
from braid.runtime.connecting import connect
from tests.reliability.checker import Checker
from tests.reliability.choices import CHANGES, PLANS, Choices, Outcome
from tests.reliability.disk import MountError, SmallDisk, small_disk
from tests.reliability.maintenance import make_maintenance
from tests.reliability.plan import make_plan
from tests.reliability.processes import HOST, BrokerProcess, WorkerProcess
from tests.reliability.proxy import Proxy
from tests.reliability.replacing import make_replacements
from tests.reliability.together import Together, make_together, together_settings
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
PUBLISHERS_PER_PROCESS = 5
SUBSCRIBERS_PER_PROCESS = 2
WATCHERS_PER_PROCESS = 5
# In plans with large publications, the largest frame, and what a body may take of it: what is around it,
# such as the publisher's name and the attributes, takes no more than the rest.
FRAME_BYTES_MAX = 256 * 1024
BODY_BYTES_MAX = carried_bytes(FRAME_BYTES_MAX) - 256
# With a small disk, from how much free room on clients wait: little, so that the rest of it is used.
SMALL_DISK_SETTINGS = "[broker]\ndisk_low_bytes = 262_144\ndisk_high_bytes = 524_288"


class _Run(Together):
    """One run, from the first broker to the verdict."""

    def __init__(self, choices: Choices, directory: Path, disk: SmallDisk | None) -> None:
        super().__init__(choices.seed)
        self.choices = choices
        self.directory = directory
        self._large = choices.plan == "large"
        settings = f"[broker]\nframe_bytes_max = {FRAME_BYTES_MAX}" if self._large else ""
        if disk is not None:
            settings = SMALL_DISK_SETTINGS
        self.plan = (
            make_maintenance(choices.seed, choices.brokers, choices.clients, choices.filters)
            if choices.plan == "maintenance"
            else make_replacements(choices.seed, choices.brokers, choices.clients)
            if choices.plan == "replacements"
            else make_together(choices.seed, choices.brokers, choices.clients)
            if choices.plan == "together"
            else make_plan(choices.seed, choices.brokers, choices.clients)
        )
        self.checker = Checker(self.plan, directory, soft_links=choices.strategy != "S0")
        self.outcome = Outcome(choices, directory, self.checker.verdict)
        # The small disk is for the broker with the most logs: it writes the most.
        logs = Counter(subscriber.broker for subscriber in self.plan.subscribers)
        writer = max(self.plan.brokers, key=logs.__getitem__)
        self.brokers = {
            name: BrokerProcess(
                name,
                directory,
                choices.log_level,
                choices.strategy,
                together_settings(choices.seed, self.plan.brokers, name, gateway=name == self._gateway)
                if choices.plan == "together"
                else settings,
                disk if name == writer else None,
            )
            for name in self.plan.brokers
        }
        self.proxies: dict[str, Proxy] = {}
        """By the name of the broker or client that connects through it."""
        self.workers: list[WorkerProcess] = []
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
            await (self._changes() if self.choices.plan in CHANGES else self._chaos())
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
                each.fast,
            )
            for each in self.plan.writers
        ]
        watchers = [
            ClientTask(each.name, f"{HOST}:{self.brokers[each.broker].port}", "price >= 0", ids=each.ids)
            for each in self.plan.watchers
        ]
        self._make_workers(False, subscribers, SUBSCRIBERS_PER_PROCESS)
        self._make_workers(False, watchers, WATCHERS_PER_PROCESS, "watchers")
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
        if self.choices.plan in CHANGES:
            for broker in self.brokers.values():
                broker.brokers_directory = str(self.directory / "brokers.db")
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

    def _make_workers(self, publishes: bool, tasks: list[ClientTask], size: int, kind: str = "") -> None:
        for first in range(0, len(tasks), size):
            name = f"{kind or ('publishers' if publishes else 'subscribers')}{first // size}"
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
                filters=self.plan.filters,
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
        for process in (*self.workers, *self.brokers.values(), *self._former):
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
    disk, left_out = None, ""

    async def go() -> Outcome:
        return await _Run(choices, directory, disk).go()

    with ExitStack() as mounted:
        if "disk full" in PLANS.get(choices.plan, ()):
            try:
                disk = mounted.enter_context(small_disk(directory / "small-disk"))
            except MountError as problem:
                left_out = f"reliability {choices.plan}: disk full is left out: {problem}"
        outcome = asyncio.run(go())
        if disk is not None and not outcome.right:
            disk.make_room()
            shutil.copytree(disk.directory, directory / "kept-disk")
    outcome.left_out = left_out
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
    parser.add_argument("--filters", type=int, default=defaults.filters, help="of watchers; maintenance only")
    parser.add_argument("--log-level", default=defaults.log_level, help="of the brokers")
    parser.add_argument("--json", action="store_true", help="print everything as JSON, a line per run")
    several = {"action": "append", "help": "may be given more than once"}
    parser.add_argument("--seed", type=int, **several)
    parser.add_argument("--plan", choices=sorted({**PLANS, **CHANGES}), **several)
    parser.add_argument("--strategy", choices=["S0", "S1", "S2", "SH", "SB"], **several)
    parser.add_argument("--move-by", choices=["shift", "delta"], dest="moves", **several)
    arguments = vars(parser.parse_args())
    arguments["moves"] = tuple(arguments["moves"] or defaults.moves)
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
