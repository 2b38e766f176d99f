"""The network of the plan *maintenance*: many filters, publications of all kinds, and a broker to be patched.

A durable reader sits at every broker, also at the one that is patched. Watchers, whose plain subscriptions
live as long as their connections, sit at the others.
"""

from __future__ import annotations

import random

from tests.reliability.plan import Plan, Selection, Subscriber, Watcher, Writer, random_dials

__all__ = ["make_maintenance"]

WATCHERS = 10


def make_maintenance(seed: int, brokers: int, clients: int, filters: int) -> Plan:
    """A random network; half of the clients publish, a reader sits at every broker, the others watch."""
    chance = random.Random(f"{seed}/maintenance")
    names = tuple(f"B{number}" for number in range(1, brokers + 1))
    dials = random_dials(chance, names)
    ends = [*dials, *dials.values()]
    patched = chance.choice([name for name in names if ends.count(name) > 1])
    # Publications of every kind: fast or acknowledged, and each of them in order or not.
    writers = tuple(
        Writer(f"w{number}", chance.choice(names), number % 3 == 0, number % 2 == 0, number % 4 < 2)
        for number in range(clients // 2)
    )
    subscribers = tuple(
        Subscriber(f"s{number}", name, Selection(chance.randrange(70, 95)))
        for number, name in enumerate(names)
    )
    places = [name for name in names if name != patched]
    watchers = tuple(
        Watcher(f"v{number}", chance.choice(places), tuple(range(number, filters, WATCHERS)))
        for number in range(WATCHERS)
    )
    return Plan(names, dials, writers, subscribers, watchers, filters, patched)
