"""Is anything lost, doubled or uninvited while subscriptions and advertisements come and go?

A random run over a random tree without crashes, watched by a checker that knows everything. Brokers take
their turns in a random order, links stop taking anything for a while, and in one variant their connections
break. Whatever was published after a subscription was answered arrives exactly once and in the publisher's
order, unless it was still on its way when the subscription was taken back; what was published after everybody
knew that it was taken back does not.
"""

from __future__ import annotations

import random
from typing import Any

import pytest

from braid.language import Filter
from braid.protocol.inputs import Writable
from braid.protocol.messages import Advertise, Done, Subscribe, Unadvertise, Unsubscribe
from tests.broker.wire import Network, WireClient

BROKERS = "ABCDEF"
FOREVER = 10**9


class ShuffledNetwork(Network):
    """Brokers take their turns in a random order; what reaches one broker stays in order."""

    def __init__(self, chance: random.Random) -> None:
        super().__init__()
        self.chance = chance

    def steps(self, count: int) -> None:
        """Let at most so many things happen."""
        for _ in range(count):
            if not self._queue:
                return
            self.shuffle()
            self.step()

    def shuffle(self) -> None:
        names = sorted({name for name, _ in self._queue})
        chosen = self.chance.choice(names)
        place = next(place for place, (name, _) in enumerate(self._queue) if name == chosen)
        self._queue.rotate(-place)
        first = self._queue.popleft()
        self._queue.rotate(place)
        self._queue.appendleft(first)


class Wish:
    """One subscription, from when to when it counts."""

    def __init__(self, key: str, text: str) -> None:
        self.key = key
        self.text = text
        self.filter = Filter(text)
        self.asked = False
        self.answered_at = FOREVER
        self.ended_at = FOREVER
        self.due_until = FOREVER
        """What was published later may have been on its way when it was taken back."""
        self.gone_at = FOREVER


class Subscriber:
    """Subscribes and unsubscribes as chance will have it."""

    def __init__(self, network: Network, name: str, broker: str, when_full: str) -> None:
        self.client = network.client(name, broker)
        self.when_full = when_full
        self.wishes: list[Wish] = []
        self.requests = 0

    def subscribe(self, text: str) -> None:
        self.requests += 1
        self.wishes.append(Wish(str(self.requests), text))
        self.client.ask(Subscribe(self.requests, str(self.requests), text, self.when_full))

    def unsubscribe(self, wish: Wish, now: int, rested_at: int) -> None:
        wish.ended_at, wish.due_until = now, rested_at
        self.client.ask(Unsubscribe(100_000 + int(wish.key), wish.key))

    def look(self, now: int) -> None:
        """Note which subscriptions have been answered."""
        done = {message.request for message in self.client.answers(Done)}
        for wish in self.wishes:
            if wish.answered_at == FOREVER and int(wish.key) in done:
                wish.answered_at = now


class Publisher:
    """Publishes, with and without saying so before; may leave and come again under another name."""

    def __init__(self, network: Network, name: str, broker: str) -> None:
        self.network = network
        self.name = name
        self.broker = broker
        self.comings = 0
        self.come()

    def come(self) -> None:
        self.comings += 1
        self.client: WireClient = self.network.client(f"{self.name}.{self.comings}", self.broker)
        self.advertised: dict[str, str] = {}
        self.requests = 0

    def change_advertisements(self, chance: random.Random) -> None:
        self.requests += 1
        if self.advertised and chance.random() < 0.5:
            key = chance.choice(sorted(self.advertised))
            del self.advertised[key]
            self.client.ask(Unadvertise(self.requests, key))
        else:
            key = str(self.requests % 3)
            if key not in self.advertised:
                self.advertised[key] = random_filter(chance)
                self.client.ask(Advertise(self.requests, key, self.advertised[key]))


def random_filter(chance: random.Random) -> str:
    low = chance.randrange(0, 90, 10)
    return chance.choice(
        [
            f"price >= {low}",
            f"price < {low + 20}",
            f"price >= {low} and price < {low + 30}",
            f"kind = 'k{chance.randrange(3)}'",
            "TRUE",
        ]
    )


class World:
    """The network, those who use it, and everything that was published."""

    def __init__(self, seed: str) -> None:
        self.chance = random.Random(seed)
        self.network = ShuffledNetwork(self.chance)
        self.dials: dict[str, str] = {}
        size = self.chance.randrange(2, len(BROKERS) + 1)
        for place, name in enumerate(BROKERS[:size]):
            neighbours = ()
            if place:
                self.dials[name] = self.chance.choice(BROKERS[:place])
                neighbours = (self.dials[name],)
            self.network.start(name, neighbours=neighbours, redial_us_max=500_000)
        self.network.run(us=2_000_000)
        names = BROKERS[:size]
        self.subscribers = [
            Subscriber(
                self.network,
                f"s{number}",
                self.chance.choice(names),
                self.chance.choice(["block", "drop_oldest", "disconnect"]),
            )
            for number in range(3)
        ]
        self.publishers = [
            Publisher(self.network, f"p{number}", self.chance.choice(names)) for number in range(3)
        ]
        self.published: dict[tuple[str, int], tuple[int, dict[str, Any]]] = {}
        self.now = 0
        self.rested_at = 0
        """Whatever was published before then has arrived."""
        self.stopped: set[tuple[str, str]] = set()

    def look(self) -> None:
        self.now += 1
        for subscriber in self.subscribers:
            subscriber.look(self.now)

    def rest(self, us: int) -> None:
        """Until nothing moves; if nothing is stopped either, what was taken back is gone everywhere."""
        self.network.run(us=us)
        self.look()
        if not self.stopped and us >= 1_000_000:
            self.rested_at = self.now
            for subscriber in self.subscribers:
                for wish in subscriber.wishes:
                    if wish.ended_at < self.now and wish.gone_at == FOREVER:
                        wish.gone_at = self.now

    def publish(self) -> None:
        publisher = self.chance.choice(self.publishers)
        values = [
            {"price": self.chance.randrange(100), "kind": f"k{self.chance.randrange(3)}"}
            for _ in range(self.chance.randrange(1, 4))
        ]
        client = publisher.client
        for number, each in enumerate(values, client.sequence + 1):
            self.published[(client.publisher, number)] = (self.now, each)
        client.publish(*values, acknowledged=self.chance.random() < 0.3)

    def stop_or_start_link(self) -> None:
        """A link takes no publications for a while."""
        side, other = self.chance.choice(sorted(self.dials.items()))
        if self.chance.random() < 0.5:
            side, other = other, side
        self.stopped ^= {(side, other)}
        self.tell_writable(side, other)

    def tell_writable(self, side: str, other: str) -> None:
        connection = self.network.cores[side]._links.links[other].connection
        if connection is not None:
            self.network.tell(side, Writable(connection, (side, other) not in self.stopped))

    def turn(self, cuts: bool) -> None:
        chance = self.chance
        fate = chance.random()
        subscriber = chance.choice(self.subscribers)
        wishes = [wish for wish in subscriber.wishes if wish.ended_at == FOREVER]
        if fate < 0.15:
            subscriber.subscribe(random_filter(chance))
        elif fate < 0.27 and wishes:
            subscriber.unsubscribe(chance.choice(wishes), self.now, self.rested_at)
        elif fate < 0.37:
            chance.choice(self.publishers).change_advertisements(chance)
        elif fate < 0.4:
            publisher = chance.choice(self.publishers)
            self.network.leave(publisher.client)
            publisher.come()
        elif fate < 0.48:
            self.stop_or_start_link()
        elif fate < 0.52 and cuts:
            self.network.cut(*chance.choice(sorted(self.dials.items())))
        else:
            self.publish()
        self.network.steps(chance.choice([0, 1, 3, 10]))
        self.look()
        if chance.random() < 0.1:
            self.rest(chance.choice([0, 1000, 300_000, 1_000_000]))

    def check(self) -> None:
        for subscriber in self.subscribers:
            client = subscriber.client
            assert client.open
            seen = [(each.publisher, each.sequence) for each in client.publications]
            assert len(seen) == len(set(seen)), f"{client.name} got something twice"
            for publisher in {name for name, _ in seen}:
                numbers = [number for name, number in seen if name == publisher]
                assert numbers == sorted(numbers), f"{publisher} out of order at {client.name}"
            for wish in subscriber.wishes:
                assert wish.answered_at < FOREVER or wish.ended_at < FOREVER, f"{wish.text} was not answered"
                due = {
                    key
                    for key, (at, values) in self.published.items()
                    if wish.answered_at <= at < wish.due_until and wish.filter.matches(values)
                }
                lost = sorted(due - set(seen))
                assert not lost, f"{client.name} at {client.broker} lost {lost[:5]} of {wish.text}"
            for key in seen:
                at, values = self.published[key]
                assert any(at < wish.gone_at and wish.filter.matches(values) for wish in subscriber.wishes), (
                    f"{client.name} got {key} uninvited"
                )
        for publisher in self.publishers:
            assert publisher.client.channel.idle, f"{publisher.name} still waits"


@pytest.mark.parametrize("cuts", [False, True], ids=["steady", "cuts"])
@pytest.mark.parametrize("seed", range(20))
def test_everything_arrives_once_while_interest_changes(seed: int, cuts: bool) -> None:
    world = World(f"changes/{seed}/{cuts}")
    for _ in range(120):
        world.turn(cuts)
    for side, other in sorted(world.stopped):
        world.stopped.discard((side, other))
        world.tell_writable(side, other)
    world.rest(5_000_000)
    world.check()
