"""What happens in a scenario, and what should everybody hear?

A scenario is a list of steps over a tree of brokers, made from a seed. Each step is complete before the next
one begins, so that what each subscription must receive can be said by matching publications one by one.
A `Driver` carries scenarios out; whoever writes another driver implements that class and is done.
"""

from __future__ import annotations

import random
from collections import defaultdict
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeAlias

from braid.language import Filter

__all__ = ["BARRIER", "Driver", "Heard", "Scenario", "Step", "made", "run"]

# A publication that every client wants. When an acknowledged one is settled, everything that its publisher
# sent before has arrived as well, because nothing overtakes.
BARRIER = "barrier = 1"

Heard: TypeAlias = dict[tuple[str, str], dict[str, list[int]]]
"""By client and subscription: for each publisher the numbers of what came, in the order in which it came."""


class Driver(Protocol):
    """Carries the steps of a scenario out. Every method returns when its work is done everywhere."""

    async def start(self, links: dict[str, str | None], clients: dict[str, str]) -> None:
        """Start brokers (each with the one it is linked to) and connect clients to theirs."""

    async def subscribe(self, client: str, key: str, text: str) -> None:
        """Subscribe, under a key of the client's own."""

    async def unsubscribe(self, client: str, key: str) -> None:
        """Take a subscription back."""

    async def advertise(self, client: str, key: str, text: str) -> None:
        """Announce what will be published."""

    async def unadvertise(self, client: str, key: str) -> None:
        """Take an announcement back."""

    async def read_durable(self, client: str, key: str, text: str) -> None:
        """Create a durable subscription with this filter, or go on reading it."""

    async def leave_durable(self, client: str, key: str, count: int) -> None:
        """Wait until so many publications have come in all, acknowledge them, and read no further."""

    async def publish(self, client: str, rows: list[dict[str, Any]], acknowledged: bool) -> None:
        """Publish all rows; the last one is a barrier and is to be waited for."""

    async def heard(self, counts: dict[tuple[str, str], int]) -> Heard:
        """Everything that came; durable subscriptions are waited for until these counts are reached."""

    async def close(self) -> None:
        """End everything."""


@dataclass(frozen=True)
class Step:
    """A method of `Driver`, and its arguments."""

    verb: str
    arguments: tuple[Any, ...]


@dataclass
class Scenario:
    """A tree, clients and steps, with everything that is to be heard."""

    links: dict[str, str | None] = field(default_factory=dict)
    clients: dict[str, str] = field(default_factory=dict)
    steps: list[Step] = field(default_factory=list)
    expected: Heard = field(default_factory=lambda: defaultdict(lambda: defaultdict(list)))

    def count(self, client: str, key: str) -> int:
        """How much one subscription must have received."""
        return sum(len(numbers) for numbers in self.expected[(client, key)].values())


def _filter(chance: random.Random) -> str:
    low = chance.randrange(100)
    return chance.choice(
        [
            f"price > {low}",
            f"price < {low}",
            f"price BETWEEN {low} AND {low + 20} AND kind = '{chance.choice('xyz')}'",
            f"kind IN ('x', 'y') OR price = {low}",
            f"kind LIKE '{chance.choice('xyz')}%'",
            f"price % 3 = {low % 3}",
            "TRUE",
        ]
    )


def made(seed: int, length: int = 50) -> Scenario:
    """The scenario of a seed."""
    chance = random.Random(f"parity/{seed}")
    scenario = Scenario()
    brokers = "ABCDE"[: chance.randrange(3, 6)]
    for place, name in enumerate(brokers):
        scenario.links[name] = chance.choice(brokers[:place]) if place else None
    scenario.clients = {f"client{number}": chance.choice(brokers) for number in range(4)}
    active: dict[tuple[str, str], Filter] = {}
    durables: dict[tuple[str, str], Filter] = {}
    read: set[tuple[str, str]] = set()
    advertised: list[tuple[str, str]] = []
    sequences: dict[str, int] = defaultdict(int)

    def step(verb: str, *arguments: Any) -> None:
        scenario.steps.append(Step(verb, arguments))

    for client in scenario.clients:
        step("subscribe", client, "barrier", BARRIER)
        active[(client, "barrier")] = Filter(BARRIER)
    for number in range(length):
        client = chance.choice(sorted(scenario.clients))
        fate = chance.random()
        ordinary = sorted(place for place in active if place[1] != "barrier")
        if fate < 0.25:
            text = _filter(chance)
            step("subscribe", client, f"s{number}", text)
            active[(client, f"s{number}")] = Filter(text)
        elif fate < 0.33 and ordinary:
            place = chance.choice(ordinary)
            step("unsubscribe", *place)
            del active[place]
        elif fate < 0.41:
            step("advertise", client, f"a{number}", _filter(chance))
            advertised.append((client, f"a{number}"))
        elif fate < 0.45 and advertised:
            step("unadvertise", *advertised.pop(chance.randrange(len(advertised))))
        elif fate < 0.53 and len(durables) < 2:
            place = (client, f"d{number}")
            text = _filter(chance)
            step("read_durable", *place, text)
            durables[place] = Filter(text)
            read.add(place)
        elif fate < 0.6 and read:
            place = chance.choice(sorted(read))
            read.discard(place)
            step("leave_durable", *place, scenario.count(*place))
        elif fate < 0.67 and set(durables) - read:
            place = chance.choice(sorted(set(durables) - read))
            read.add(place)
            step("read_durable", *place, durables[place].text)
        else:
            rows = [
                {"price": chance.randrange(100), "kind": chance.choice(["x", "y", "z", "xx"])}
                for _ in range(chance.randrange(1, 8))
            ]
            rows.append({"barrier": 1})
            step("publish", client, rows, chance.random() < 0.5)
            for row in rows:
                sequences[client] += 1
                for place, filter in (*active.items(), *durables.items()):
                    if filter.matches(row):
                        scenario.expected[place][client].append(sequences[client])
    for place in sorted(set(durables) - read):
        step("read_durable", *place, durables[place].text)
    return scenario


async def run(driver: Driver, scenario: Scenario) -> Heard:
    """Carry a scenario out, and say what was heard."""
    try:
        await driver.start(scenario.links, scenario.clients)
        for step in scenario.steps:
            await getattr(driver, step.verb)(*step.arguments)
        counts = {place: scenario.count(*place) for place in scenario.expected}
        return await driver.heard(counts)
    finally:
        await driver.close()
