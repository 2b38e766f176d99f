"""Does a publication reach exactly those who want it, in a tree of brokers that talk by tells?"""

from __future__ import annotations

from collections import Counter, deque
from typing import TYPE_CHECKING

from hypothesis import given, settings
from hypothesis import strategies as st

from braid.protocol import PublicationBatch
from braid.protocol.batch import encode_record
from braid.routing import RoutingTables, Tell, TreeForwarding, Verb
from tests.routing.helpers import PUBLICATIONS, accepted, all_filters

if TYPE_CHECKING:
    from random import Random

    from braid.language import Filter

BATCHES = [PublicationBatch.of("p", [1], [encode_record(each, 0)]) for each in PUBLICATIONS]


class Network:
    """Brokers on a tree; tells wait in a queue per direction and are delivered in any interleaving."""

    def __init__(self, random: Random, size: int) -> None:
        self.random = random
        self.brokers = {f"B{number}": RoutingTables() for number in range(size)}
        self.queues: dict[tuple[str, str], deque[Tell]] = {}
        names = list(self.brokers)
        for number in range(1, size):
            self.connect(names[random.randrange(number)], names[number])

    def connect(self, one: str, other: str) -> None:
        self.queues[one, other], self.queues[other, one] = deque(), deque()
        for source, target in ((one, other), (other, one)):
            self.send(source, self.brokers[source].add_link(target))

    def disconnect(self, one: str, other: str) -> None:
        del self.queues[one, other], self.queues[other, one]
        for source, target in ((one, other), (other, one)):
            self.send(source, self.brokers[source].remove_link(target))

    def send(self, source: str, tells: list[Tell]) -> None:
        for tell in tells:
            self.queues[source, tell.link].append(tell)

    def deliver(self, steps: int) -> bool:
        """Deliver some of what waits; False when nothing is left."""
        for _ in range(steps):
            waiting = sorted(pair for pair, queue in self.queues.items() if queue)
            if not waiting:
                return False
            source, target = self.random.choice(waiting)
            tell = self.queues[source, target].popleft()
            tables = self.brokers[target]
            if tell.filter is None:
                remove = tables.unsubscribe if tell.verb is Verb.UNSUBSCRIBE else tables.unadvertise
                self.send(target, remove([tell.key], origin=source))
            else:
                add = tables.subscribe if tell.verb is Verb.SUBSCRIBE else tables.advertise
                self.send(target, add([(tell.key, tell.filter)], source, link=True))
        return True

    def settle(self) -> None:
        # Each change crosses each link a few times at most.
        assert not self.deliver(10_000), "the network does not come to rest"

    def publish(self, broker: str, publication: int) -> Counter[object]:
        """The local destinations that a publication reaches."""
        reached: Counter[object] = Counter()
        pending: list[tuple[str, str | None]] = [(broker, None)]
        while pending:
            here, came_from = pending.pop()
            tables = self.brokers[here]
            hops = TreeForwarding(tables.links).next_hops(
                tables.reached([BATCHES[publication]]), came_from, ordered=True, rows=1
            )
            for destination, rows in hops:
                assert rows is None
                if destination in tables.links:
                    pending.append((str(destination), here))
                else:
                    reached[destination] += 1
        return reached


class Story:
    """What clients have asked for, kept beside the network as the oracle."""

    def __init__(self, network: Network, data: st.DataObject) -> None:
        self.network = network
        self.data = data
        self.subscriptions: dict[str, tuple[str, object, Filter]] = {}
        self.advertisements: dict[str, tuple[str, Filter]] = {}
        self.made = 0

    def step(self) -> None:
        choice = self.data.draw(st.sampled_from(["subscribe"] * 4 + ["advertise"] * 2 + ["withdraw"] * 3))
        broker = self.data.draw(st.sampled_from(list(self.network.brokers)))
        tables = self.network.brokers[broker]
        self.made += 1
        key = f"{broker}/{self.made}"
        if choice == "subscribe":
            filter = self.data.draw(all_filters)
            client = (broker, self.data.draw(st.integers(1, 2)))
            self.subscriptions[key] = (broker, client, filter)
            self.network.send(broker, tables.subscribe([(key, filter)], client, link=False))
        elif choice == "advertise":
            filter = self.data.draw(all_filters)
            self.advertisements[key] = (broker, filter)
            self.network.send(broker, tables.advertise([(key, filter)], (broker, 0), link=False))
        elif self.subscriptions or self.advertisements:
            key = self.data.draw(st.sampled_from([*self.subscriptions, *self.advertisements]))
            if key in self.subscriptions:
                broker = self.subscriptions.pop(key)[0]
                self.network.send(broker, self.network.brokers[broker].unsubscribe([key]))
            else:
                broker = self.advertisements.pop(key)[0]
                self.network.send(broker, self.network.brokers[broker].unadvertise([key]))

    def check(self) -> None:
        """Every advertised publication reaches every client that wants it, once, and nobody else."""
        for broker, advertised in self.advertisements.values():
            for publication in sorted(accepted(advertised))[::5]:
                clients = {
                    client
                    for _, client, filter in self.subscriptions.values()
                    if publication in accepted(filter)
                }
                assert self.network.publish(broker, publication) == Counter(clients)


@settings(max_examples=60)
@given(data=st.data(), random=st.randoms(use_true_random=False), size=st.integers(1, 6))
def test_publications_reach_exactly_those_who_want_them(
    data: st.DataObject, random: Random, size: int
) -> None:
    network = Network(random, size)
    story = Story(network, data)
    for _ in range(data.draw(st.integers(1, 15))):
        story.step()
        network.deliver(random.randrange(4))
    network.settle()
    story.check()


@settings(max_examples=60)
@given(data=st.data(), random=st.randoms(use_true_random=False), size=st.integers(2, 6))
def test_a_link_that_moves_takes_the_routes_along(data: st.DataObject, random: Random, size: int) -> None:
    network = Network(random, size)
    story = Story(network, data)
    for _ in range(data.draw(st.integers(1, 10))):
        story.step()
    network.settle()
    one, other = random.choice(sorted(network.queues))
    network.disconnect(one, other)
    for _ in range(data.draw(st.integers(0, 3))):
        story.step()
    network.settle()
    here = _component(network, one)
    network.connect(random.choice(here), random.choice(sorted(set(network.brokers) - set(here))))
    network.settle()
    story.check()


def _component(network: Network, start: str) -> list[str]:
    found = {start}
    pending = [start]
    while pending:
        here = pending.pop()
        for neighbour in network.brokers[here].links:
            if neighbour not in found:
                found.add(neighbour)
                pending.append(neighbour)
    return sorted(found)
