"""What goes wrong in a reliability run, and who comes amid it?"""

from __future__ import annotations

import asyncio
import random
import time
from typing import TYPE_CHECKING

from tests.reliability.choices import PLANS
from tests.reliability.plan import Subscriber, make_selection
from tests.reliability.processes import HOST, WorkerProcess
from tests.reliability.worker import ClientTask

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from tests.reliability.checker import Checker
    from tests.reliability.choices import Choices, Outcome
    from tests.reliability.plan import Plan
    from tests.reliability.processes import BrokerProcess
    from tests.reliability.proxy import Proxy

__all__ = ["Chaos"]

# Brokers that are dead at a time; more, and hardly anything would be published meanwhile.
DEAD_MAX = 2
# Subscribers that come amid the faults.
NEWCOMERS_MAX = 12
# How long a disk is full at most until the store has met it. A store goes on for a while in the room that its
# files have already.
UNNOTICED_S_MAX = 15.0
REFUSAL = "the store takes nothing and is tried again"


class Chaos:
    """The part of a run in which things go wrong; the rest of it is in `run`."""

    choices: Choices
    plan: Plan
    checker: Checker
    outcome: Outcome
    brokers: dict[str, BrokerProcess]
    proxies: dict[str, Proxy]
    workers: list[WorkerProcess]

    def __init__(self, seed: int) -> None:
        self._chance = random.Random(f"{seed}/chaos")
        self._later: set[asyncio.Task[None]] = set()
        self._copied: set[str] = set()
        """Brokers of whose data directories there are copies."""
        self._tasks: dict[WorkerProcess, tuple[bool, tuple[ClientTask, ...]]] = {}
        """Of each process with clients: whether they publish, and which they are."""
        self._newcomers: WorkerProcess

    def note(self, what: str) -> None:
        """Write something into the diary."""
        raise NotImplementedError

    def _start_worker(self, worker: WorkerProcess) -> None:
        raise NotImplementedError

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
        plan = dict(PLANS[self.choices.plan])
        if all(broker.disk is None for broker in self.brokers.values()):
            plan.pop("disk full", None)
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

        self._meanwhile(wait())

    def _meanwhile(self, work: Coroutine[None, None, None]) -> None:
        """Have something done that belongs to the faults and ends with them."""
        task = asyncio.get_running_loop().create_task(work)
        self._later.add(task)
        task.add_done_callback(self._later.discard)

    def _one_alive(self) -> BrokerProcess | None:
        """A broker that runs, unless too many do not."""
        victim = self._chance.choice(list(self.brokers.values()))
        away = sum(not broker.alive or broker.stopped for broker in self.brokers.values())
        fit = victim.alive and not victim.stopped and not victim.full
        return victim if away < DEAD_MAX and fit else None

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
        """Take all the room on the disk of the broker that has one of its own."""
        pause = self._chance.choice([1.0, 3.0, 6.0])
        victim = next(broker for broker in self.brokers.values() if broker.disk is not None)
        if victim.full or not victim.alive or victim.stopped or not victim.accepts:
            return None
        self._meanwhile(self._keep_full(victim, pause))
        return victim

    async def _keep_full(self, victim: BrokerProcess, seconds: float) -> None:
        """Leave no room until its store has been refused some for a while."""
        disk = victim.disk
        assert disk is not None
        since, noticed = victim.log.stat().st_size, False
        self.note(f"the disk of {victim.name} is full")
        end = time.monotonic() + UNNOTICED_S_MAX
        try:
            while time.monotonic() < end:
                disk.fill()
                if not noticed and victim.said(REFUSAL, since):
                    noticed, end = True, time.monotonic() + seconds
                    self.outcome.faults["store refused"] += 1
                    self.note(f"the store of {victim.name} finds no room; {seconds:g} s more")
                await asyncio.sleep(0.05)
        finally:
            disk.make_room()
        self.note(f"the disk of {victim.name} has room again: {disk.free_bytes} bytes")

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
