"""How are brokers of a network under load replaced by standbys?

One is killed, another one only stops for longer than its neighbours bear, and goes on when a standby has its
place: it has to end by itself. Their clients, who know the address of that one broker, find others.
"""

from __future__ import annotations

import asyncio
import random
import time
from typing import TYPE_CHECKING

from tests.reliability.changes import Changes
from tests.reliability.plan import Plan, Subscriber, Writer, make_selection, random_dials
from tests.reliability.processes import HOST, BrokerProcess

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["Replacing", "make_replacements"]

# Until neighbours may give a name away, and then some.
REPLACED_S_MAX = 120
# How a broker says that it could not go on.
REFUSED_CODE = 2


def make_replacements(seed: int, brokers: int, clients: int) -> Plan:
    """A random network; half of the clients publish, some at brokers that are replaced. No log is there."""
    chance = random.Random(f"{seed}/replacements")
    names = tuple(f"B{number}" for number in range(1, brokers + 1))
    dials = random_dials(chance, names)
    ends = [*dials, *dials.values()]
    replaced = tuple(chance.sample([name for name in names if ends.count(name) > 1], 2))
    others = [name for name in names if name not in replaced]
    writers = tuple(
        Writer(
            f"w{number}",
            replaced[number % 2] if number < 4 else chance.choice(others),
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


class Replacing(Changes):
    """The part of a run in which brokers are replaced."""

    directory: Path

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self._former: list[BrokerProcess] = []

    async def _changes(self) -> None:
        if self.choices.plan != "replacements":
            await super()._changes()
            return
        begun_s = time.monotonic()
        for number, (name, action) in enumerate(zip(self.plan.replaced, ("kill", "stop"), strict=True)):
            await self._let_pass()
            await self._whole()
            if self.outcome.problems:
                return
            await self._replace(name, f"X{number}", stops=action == "stop")
            self.outcome.faults[f"{action} and replace"] += 1
        await self._let_pass()
        await self._whole()
        self.outcome.load_s = time.monotonic() - begun_s

    async def _replace(self, name: str, standby: str, *, stops: bool) -> None:
        fresh = BrokerProcess(standby, self.directory, self.choices.log_level, self.choices.strategy)
        fresh.standby = True
        fresh.brokers_directory = self.brokers[name].brokers_directory
        fresh.start()
        gone = self.brokers.pop(name)
        self._former += [gone, fresh]
        await fresh.listening()
        if stops:
            gone.freeze(True)
        else:
            gone.kill()
        self.note(f"{name} is {'stopped' if stops else 'killed'}, {standby} gets its place")
        at = f"{HOST}:{fresh.port}"
        began_s = time.monotonic()
        await self._command("replicate", name, "--standby", at, "--within", str(REPLACED_S_MAX))
        self.brokers[name] = fresh
        self.outcome.faults[f"s until replaced after {'stop' if stops else 'kill'}"] = round(
            time.monotonic() - began_s
        )
        if stops:
            gone.freeze(False)
            if not await gone.ended() or gone.code != REFUSED_CODE:
                self.outcome.problems.append(f"{name} was replaced, and has not ended by itself: {gone.log}")

    async def _let_pass(self) -> None:
        """A third of the time; somebody subscribes meanwhile, where no broker is replaced."""
        await asyncio.sleep(self.choices.seconds / 3)
        kept = [name for name in self.plan.brokers if name not in self.plan.replaced]
        self._newcomer(self.brokers[self._choice.choice(kept)])
