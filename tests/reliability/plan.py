"""What is one run of the reliability test about?

Everything that is decided before anything starts: the tree of brokers, who is connected to which, who wants
what. What a publication contains follows from its id, so nobody has to write it down.
"""

from __future__ import annotations

import random
import zlib
from dataclasses import dataclass

__all__ = [
    "Plan",
    "Selection",
    "Subscriber",
    "Watcher",
    "Writer",
    "body_bytes",
    "id_of",
    "make_plan",
    "make_selection",
    "price_of",
    "random_dials",
]


def price_of(publisher: str, sequence: int) -> int:
    """The price in a publication, from 0 to 99."""
    return zlib.crc32(f"{publisher}/{sequence}".encode()) % 100


def id_of(publisher: str, sequence: int, filters: int) -> int:
    """What a publication is about: one of so many things, each of which a filter of its own asks for."""
    return zlib.crc32(f"id/{publisher}/{sequence}".encode()) % filters


def body_bytes(publisher: str, sequence: int, bytes_max: int) -> int:
    """How large the body of a publication is: mostly nothing, sometimes as large as it may be."""
    draw = zlib.crc32(f"body/{publisher}/{sequence}".encode())
    if not bytes_max or draw % 16:
        return 0
    return bytes_max if draw % 64 == 0 else draw // 64 % (bytes_max + 1)


@dataclass(frozen=True, slots=True)
class Selection:
    """What a subscriber wants, said twice: as a filter, and in plain Python for the checker."""

    low: int
    writers: tuple[str, ...] = ()
    """Only from these; from everybody if there are none."""

    @property
    def text(self) -> str:
        price = f"price >= {self.low}"
        if not self.writers:
            return price
        names = ", ".join(f"'{name}'" for name in self.writers)
        return f"{price} AND writer IN ({names})"

    def wants(self, publisher: str, sequence: int) -> bool:
        writer = publisher.partition(".")[0]
        return price_of(publisher, sequence) >= self.low and (not self.writers or writer in self.writers)


@dataclass(frozen=True, slots=True)
class Writer:
    """A client that publishes."""

    name: str
    broker: str
    advertises: bool
    """Says first what it will publish; the others publish without a word."""
    ordered: bool = False
    """Asks for order. Without it publications may overtake each other where there are soft links."""
    fast: bool = False
    """Publishes without acknowledgements: only for plans in which nothing breaks."""


@dataclass(frozen=True, slots=True)
class Subscriber:
    """A client with a durable subscription."""

    name: str
    broker: str
    selection: Selection


@dataclass(frozen=True, slots=True)
class Watcher:
    """A client with many plain subscriptions, each for one thing."""

    name: str
    broker: str
    ids: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Plan:
    """A network and its clients."""

    brokers: tuple[str, ...]
    dials: dict[str, str]
    """Who dials whom. The links make a tree."""
    writers: tuple[Writer, ...]
    subscribers: tuple[Subscriber, ...]
    watchers: tuple[Watcher, ...] = ()
    filters: int = 0
    """How many different things publications are about; 0 if nobody asks for that."""
    patched: str = ""
    """The broker that is stopped and started again, if that is known before."""
    replaced: tuple[str, ...] = ()
    """The brokers that are replaced, if that is known before."""


def make_plan(seed: int, brokers: int, clients: int) -> Plan:
    """A random network; half of the clients publish, the others subscribe."""
    chance = random.Random(f"{seed}/plan")
    names = tuple(f"B{number}" for number in range(1, brokers + 1))
    dials = random_dials(chance, names)
    writers = tuple(
        Writer(f"w{number}", chance.choice(names), chance.random() < 0.5, number % 2 == 0)
        for number in range(clients // 2)
    )
    everybody = [writer.name for writer in writers]
    subscribers = [
        Subscriber(f"s{number}", chance.choice(names), make_selection(chance, everybody))
        for number in range(clients - len(writers))
    ]
    return Plan(names, dials, writers, tuple(subscribers))


def random_dials(chance: random.Random, names: tuple[str, ...]) -> dict[str, str]:
    """Who dials whom, so that it makes a tree."""
    dials: dict[str, str] = {}
    for place in range(1, len(names)):
        ends = [names[place], chance.choice(names[:place])]
        chance.shuffle(ends)
        # A broker dials at most one here, so that it has one proxy; the other one of a new pair is free.
        dialler, other = ends if ends[0] not in dials else reversed(ends)
        dials[dialler] = other
    return dials


def make_selection(chance: random.Random, writers: list[str]) -> Selection:
    """What somebody wants."""
    some = tuple(sorted(chance.sample(writers, chance.randrange(1, len(writers) + 1))))
    return Selection(chance.randrange(60), some if chance.random() < 0.5 else ())
