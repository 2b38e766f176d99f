"""A run with crashes and cuts, watched by somebody who knows everything.

A random run over a random tree of small queues, watched by a checker that knows everything: from the answer
to a durable subscription on, every acknowledged publication that it matches reaches it exactly once and in
the publisher's order, whatever happens in between. At some moment two brokers at least are dead at once,
and subscriptions are made then.
"""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any

from braid.language import Filter
from braid.protocol import ChannelSettings
from braid.protocol.messages import Acknowledge, Done, SubscribeDurable
from tests.broker.wire import Network, WireClient

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

__all__ = ["run_with_faults"]

BROKERS = "ABCDEFG"
SMALL_QUEUES: dict[str, Any] = {
    "link_queue_bytes_max": 16 * 1024,
    "client_queue_bytes_max": 16 * 1024,
    "link": ChannelSettings(window_bytes=4 * 1024, resend_bytes_max=16 * 1024),
    "client": ChannelSettings(window_bytes=4 * 1024, resend_bytes_max=16 * 1024),
}
ROUNDS = 40
# In these, two brokers are killed and subscriptions are made at once.
ROUNDS_OF_TWO = (8, 24)


class Reader:
    """A durable subscriber that comes back whenever its connection breaks, and acknowledges what it has."""

    def __init__(
        self, network: Network, name: str, broker: str, text: str, writers: Sequence[Writer] = ()
    ) -> None:
        self.network = network
        self.name = name
        self.broker = broker
        self.writers = writers
        self.since: dict[str, int] | None = None
        """How much each writer had published when the subscription was answered for the first time."""
        self.text = text
        self.filter = Filter(text)
        self.seen: list[tuple[str, int]] = []
        self.values: list[dict[str, Any]] = []
        self.offset = -1
        self.client: WireClient | None = None

    def step(self) -> None:
        if (self.client is None or not self.client.open) and self.broker in self.network.cores:
            self.client = WireClient(self.network, self.name, self.broker)
            self.network.run()
            self.client.ask(SubscribeDurable(1, self.name, self.text, resume_after=self.offset))
            self.network.run()
        self.collect()

    def collect(self) -> None:
        if self.client is None:
            return
        if self.since is None and any(done.request == 1 for done in self.client.answers(Done)):
            self.since = {writer.name: len(writer.published) for writer in self.writers}
        for _, offset, publication in self.client.stored:
            assert offset == self.offset + 1, "offsets are consecutive and come once"
            self.offset = offset
            self.seen.append((publication.publisher, publication.sequence))
            self.values.append(dict(publication.attributes))
        if self.client.stored and self.client.open:
            self.client.stored.clear()
            self.client.ask(Acknowledge(self.name, self.offset))
        self.client.stored.clear()


class Writer:
    """A publisher that sends again what was not settled, as the client library does."""

    def __init__(self, network: Network, name: str, broker: str) -> None:
        self.network = network
        self.name = name
        self.broker = broker
        self.published: list[dict[str, Any]] = []
        self.client: WireClient | None = None

    def step(self, chance: random.Random) -> None:
        if (self.client is None or not self.client.open) and self.broker in self.network.cores:
            old = self.client
            self.client = WireClient(self.network, self.name, self.broker)
            if old is not None:
                self.client.channel = old.channel
                self.client.sequence = old.sequence
            self.network.run()
        if self.client is not None and self.client.open and chance.random() < 0.7:
            some = [
                {"price": chance.randrange(100), "kind": self.name} for _ in range(chance.randrange(1, 4))
            ]
            self.published.extend(some)
            self.client.publish(*some, acknowledged=True)


def random_network(
    network: Network, chance: random.Random, size: int, settings: Callable[[random.Random], dict[str, Any]]
) -> dict[str, str]:
    """A random tree; returns who dials whom."""
    dials = {}
    for place, name in enumerate(BROKERS[:size]):
        neighbours = ()
        if place:
            other = chance.choice(BROKERS[:place])
            neighbours = (other,)
            dials[name] = other
        network.start(name, neighbours=neighbours, store=True, **{**SMALL_QUEUES, **settings(chance)})
        network.run(us=300_000)
    return dials


def run_with_faults(
    seed: object,
    *,
    settings: Callable[[random.Random], dict[str, Any]] = lambda chance: {},
    in_order: bool = True,
    cuts_anywhere: bool = False,
) -> Network:
    """Raise if anything was lost or doubled.

    Args:
        seed: chooses everything by chance.
        settings: of each broker.
        in_order: also check that publications of one publisher arrive in order.
        cuts_anywhere: break connections between any two brokers, not only those of the tree.
    """
    chance = random.Random(f"faults/{seed}")
    network = Network()
    network.validate_every = 11
    size = chance.randrange(5, 8)
    dials = random_network(network, chance, size, settings)
    names = list(BROKERS[:size])
    writers = [Writer(network, f"writer{number}", chance.choice(names)) for number in range(3)]
    readers: list[Reader] = []

    def subscribe() -> None:
        text = f"price >= {chance.randrange(60)}"
        readers.append(Reader(network, f"reader{len(readers)}", chance.choice(names), text, writers))
        readers[-1].step()

    for _ in range(3):
        subscribe()
    network.run(us=500_000)

    dead: set[str] = set()
    for number in range(ROUNDS):
        for writer in writers:
            writer.step(chance)
        for reader in readers:
            reader.step()
        fate = chance.random()
        alive = sorted(set(names) - dead)
        if number in ROUNDS_OF_TWO:
            for victim in chance.sample(alive, min(2, len(alive))):
                network.kill(victim, committed=chance.randrange(3))
                dead.add(victim)
            subscribe()
        elif number - 1 in ROUNDS_OF_TWO:
            for back in sorted(dead):
                network.start(back)
            dead.clear()
            subscribe()  # before they have found each other
        elif fate < 0.15 and len(alive) > 1:
            victim = chance.choice(alive)
            network.kill(victim, committed=chance.randrange(3))
            dead.add(victim)
        elif fate < 0.18:
            # As when the power fails.
            for victim in alive:
                network.kill(victim, committed=chance.randrange(3))
            dead.update(alive)
        elif fate < 0.35 and dead:
            back = chance.choice(sorted(dead))
            dead.discard(back)
            network.start(back)
        elif fate < 0.5 and dials:
            left = chance.choice(sorted(dials))
            network.cut(left, dials[left] if not cuts_anywhere else chance.choice(names))
        elif fate < 0.6 and alive:
            # A disk that is slow: what it has not done is gone if its broker is killed.
            network.frozen_stores ^= {chance.choice(alive)}
        elif fate < 0.7:
            party = chance.choice([*readers, *writers])
            if party.client is not None and party.client.open:
                network.leave(party.client)
        if chance.random() < 0.5:
            network.run(us=chance.choice([1000, 50_000, 700_000]))

    network.frozen_stores.clear()
    for back in sorted(dead):
        network.start(back)
    for _ in range(20):
        network.run(us=1_000_000)
        for writer in writers:
            writer.step(random.Random(0)) if writer.client is None or not writer.client.open else None
        for reader in readers:
            reader.step()
    network.run(us=10_000_000)
    for reader in readers:
        reader.step()

    published = {
        (writer.name, number): values
        for writer in writers
        for number, values in enumerate(writer.published, 1)
    }
    for writer in writers:
        assert writer.client is None or writer.client.channel.idle, f"{writer.name} still waits"
    for reader in readers:
        assert reader.since is not None, f"{reader.name} was never answered"
        matching = {key for key, values in published.items() if reader.filter.matches(values)}
        expected = {(name, number) for name, number in matching if number > reader.since[name]}
        assert len(reader.seen) == len(set(reader.seen)), f"{reader.name} got something twice"
        assert set(reader.seen) <= matching, f"{reader.name} got what it does not want"
        assert set(reader.seen) >= expected, f"{reader.name} lost {sorted(expected - set(reader.seen))[:5]}"
        for writer in writers if in_order else ():
            # What is older than the answer may come by the way, when it is sent again after a crash.
            since = reader.since[writer.name]
            numbers = [number for name, number in reader.seen if name == writer.name and number > since]
            assert numbers == sorted(numbers), f"{writer.name} out of order at {reader.name}"
    return network
