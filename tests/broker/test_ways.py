"""Do publications go the same way in a turn of their own, and by a way that is remembered, as otherwise?"""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any

import pytest

from braid.adaptation import SoftLinkSettings
from braid.broker.access import AccessPolicy, Grant, Limits, Principal, hashed_token
from braid.broker.parties import Client
from braid.broker.publications import Publications
from braid.broker.turn import Turn
from braid.broker.ways import Source, Ways
from braid.language import Filter
from braid.matching import SharedMatching
from braid.protocol import PublicationBatch, encode_record
from braid.protocol.effects import Pause
from braid.protocol.inputs import Resources
from braid.protocol.messages import Refused, Subscribe, SubscribeDurable, Unsubscribe
from tests.broker.wire import Network, WireClient

if TYPE_CHECKING:
    from braid.protocol.effects import Effect

LINE = ("A", "B", "C")
TEXTS = ("price > 10", "price > 30", "kind = 'a'", "price BETWEEN 5 AND 25 OR kind = 'b'", "TRUE")


class Watched(Network):
    """Notes whose connection was to be read from later."""

    def __init__(self, shared: SharedMatching | None = None) -> None:
        super().__init__(shared, codec=shared is None)
        self.paused: list[int] = []

    def _perform(self, name: str, core: Any, effect: Effect) -> None:
        if isinstance(effect, Pause):
            self.paused.append(effect.duration_us)
        super()._perform(name, core, effect)


def line(network: Network, **settings: Any) -> None:
    for place, name in enumerate(LINE):
        network.start(name, neighbours=LINE[place - 1 : place] if place else (), store=True, **settings)
        network.run(us=300_000)
    network.run(us=500_000)


def came_of_it(seed: int, network: Network, strategy: str) -> object:
    """A random life without accidents: what every client got, and what the brokers counted."""
    chance = random.Random(f"ways/{seed}")
    soft_links = SoftLinkSettings(fanout=3, review_us=150_000, rest_reviews=1)
    line(network, strategy=strategy, soft_links=soft_links)
    clients = [network.client(f"c{number}", LINE[number % len(LINE)]) for number in range(6)]
    for request in range(1, 120):
        client = chance.choice(clients)
        fate = chance.random()
        if fate < 0.1:
            client.ask(Subscribe(request, f"k{chance.randrange(3)}", chance.choice(TEXTS)))
        elif fate < 0.13:
            client.ask(SubscribeDurable(request, f"d{client.name}", chance.choice(TEXTS)))
        elif fate < 0.17:
            client.ask(Unsubscribe(request, f"k{chance.randrange(3)}"))
        else:
            if fate < 0.25 and client.sequence:
                client.sequence -= 1  # one that was published before
            values = {"price": chance.randrange(50), "kind": chance.choice("abc")}
            client.publish(values, receipt=fate > 0.9, ordered=0.8 < fate < 0.9)
        network.run(us=chance.choice([0, 1000, 200_000]))
    network.run(us=5_000_000)
    counted = {}
    for name, core in network.cores.items():
        counters = dict(core.statistics()["counters"])
        del counters["match_ns"]
        counted[name] = counters
    got = {
        client.name: sorted((each.publisher, each.sequence) for each in client.publications)
        for client in clients
    }
    stored = {client.name: len(client.stored) for client in clients}
    return counted, got, stored


@pytest.mark.interpreted
@pytest.mark.parametrize("shared", [False, True], ids=["alone", "shared"])
@pytest.mark.parametrize("strategy", ["S0", "S2", "SB"])
@pytest.mark.parametrize("seed", range(3))
def test_what_is_remembered_is_what_would_be_found(
    monkeypatch: pytest.MonkeyPatch, seed: int, strategy: str, shared: bool
) -> None:
    taken: list[bool] = []
    usual = Publications.take_in

    def watched(self: Publications, source: Any, frames: Any, now_us: int) -> Any:
        effects = usual(self, source, frames, now_us)
        taken.append(effects is not None)
        return effects

    monkeypatch.setattr(Publications, "take_in", watched)
    quick = came_of_it(seed, Watched(SharedMatching() if shared else None), strategy)
    assert sum(taken) > 50, "hardly anything had a turn of its own"
    monkeypatch.setattr(Publications, "take_in", lambda self, source, frames, now_us: None)
    found = Ways.of

    def found_anew(self: Ways, source: Source, arrivals: Any, holding: int) -> Any:
        self.add_up()
        source.ways.clear()
        source.different.clear()
        return found(self, source, arrivals, holding)

    monkeypatch.setattr(Ways, "of", found_anew)
    assert came_of_it(seed, Watched(SharedMatching() if shared else None), strategy) == quick


def guarded(**limits: int) -> tuple[Watched, WireClient, WireClient]:
    """A broker with access control, somebody who publishes, and somebody who gets everything."""
    everything = Filter("TRUE")
    principals = {
        "alice": Principal("alice", Grant(publish=everything), limits=Limits(**limits)),
        "carol": Principal("carol", Grant(publish=Filter("price < 10"))),
        "bob": Principal("bob", Grant(subscribe=everything)),
    }
    access = AccessPolicy(principals, {hashed_token(name): name for name in principals})
    network = Watched()
    network.start("A", access=access)
    network.run(us=300_000)
    reader = network.client("reader", "A", token="bob")
    reader.ask(Subscribe(1, "1", "TRUE"))
    writer = network.client("writer", "A", token="alice")
    network.run(us=100_000)
    return network, writer, reader


def test_a_client_that_exceeds_its_rate_is_read_from_later() -> None:
    network, writer, reader = guarded(publications_per_second_max=5)
    for number in range(8):
        writer.publish({"n": number}, receipt=False)
        network.run()
    assert reader.values("n") == list(range(8))
    assert network.paused == [200_000, 400_000, 600_000]


def test_nobody_publishes_in_the_name_of_another() -> None:
    network, writer, reader = guarded()
    writer.publish({"n": 1}, receipt=False)
    writer.publish({"n": 2}, receipt=False, publisher="bob.reader")
    network.run(us=100_000)
    assert reader.values("n") == [1]
    assert not writer.open
    assert "are called alice/..." in writer.answers(Refused)[0].reason


def test_what_a_client_may_not_publish_is_refused() -> None:
    network, _, reader = guarded()
    carol = network.client("carol", "A", token="carol")
    carol.publish({"price": 5}, receipt=False)
    carol.publish({"price": 50}, receipt=False)
    network.run(us=100_000)
    assert reader.values("price") == [5]
    assert network.cores["A"].statistics()["counters"]["refused"] == 1


def test_a_client_gets_no_credit_while_memory_is_short_whatever_it_publishes() -> None:
    network = Watched()
    network.start("A", memory_bytes_max=1_000_000)
    network.run(us=300_000)
    writer = network.client("writer", "A")
    for number in range(3):
        writer.publish({"n": number}, receipt=False)
        network.run(us=100_000)
    network.tell("A", Resources(memory_bytes=1_000_001))
    network.run(us=100_000)
    for number in range(3):
        writer.publish({"n": number}, receipt=False)
        network.run(us=100_000)
    assert writer.channel.told_to_wait


@pytest.mark.interpreted
@pytest.mark.parametrize("publishers", [1, 40])
def test_everybody_gets_what_one_read_brings_in_one_go(
    monkeypatch: pytest.MonkeyPatch, publishers: int
) -> None:
    """However many publishers it is from."""
    network = Watched()
    network.start("A")
    network.run(us=300_000)
    readers = [network.client(f"reader{number}", "A") for number in range(5)]
    for number, reader in enumerate(readers):
        reader.ask(Subscribe(1, "1", f"n >= {number}"))
    writer = network.client("writer", "A")
    network.run(us=100_000)
    names = [f"{writer.publisher}{number}" for number in range(publishers)]
    monkeypatch.setattr(Client, "owns", lambda self, publisher: publisher in names)
    for place in range(1, 41):
        name = names[place % publishers]
        writer.channel.offer(PublicationBatch.of(name, [place], [encode_record({"n": place}, 0)]))
    passed_on: list[int] = []
    usual = Turn.pass_on

    def counted(self: Turn, parties: Any, *arguments: Any) -> None:
        passed_on.append(len(parties))
        usual(self, parties, *arguments)

    monkeypatch.setattr(Turn, "pass_on", counted)
    writer.flush()
    network.run(us=100_000)
    assert [reader.values("n") for reader in readers] == [
        [each for each in range(1, 41) if each >= number] for number in range(5)
    ]
    assert sum(passed_on) == len(readers)
