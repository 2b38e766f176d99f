"""While regions are halved and joined and peers come and go, everybody gets every publication once."""

from __future__ import annotations

import random
from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from braid.language import Range, Value
from braid.p2p.dht.pastry_settings import PastrySettings
from braid.p2p.dmm import DmmSettings
from braid.p2p.dmm.regions import State
from braid.p2p.schema import NetworkSchema
from tests.language.strategies import Maker
from tests.p2p.networks import SCHEMA, Network
from tests.p2p.test_dmm_language import with_ranges

NUMBERS = NetworkSchema({name: {"kind": "integer", "low": 0, "high": 255} for name in "abc"})
SMALL = {"split_threshold": 12, "acknowledged": True}


class Story:
    """Publications all the time, and what of them must come."""

    def __init__(self, network: Network, seed: int = 3) -> None:
        self.network = network
        self.chance = random.Random(seed)
        self.expected: dict[tuple[str, int], list[tuple[str, str]]] = {}
        self.numbers: Counter[str] = Counter()

    def subscribe(self, count: int, prefix: str = "keep", widths: range = range(10, 160)) -> None:
        for number in range(count):
            low = {name: self.chance.randrange(256) for name in "abc"}
            names = self.chance.sample("abc", self.chance.randrange(1, 4))
            text = " AND ".join(
                f"{name} BETWEEN {low[name]} AND {low[name] + self.chance.choice(widths)}"
                for name in sorted(names)
            )
            self.network.subscribe(self.chance.choice(self.lasting), f"{prefix}{number}", text)

    @property
    def lasting(self) -> list[str]:
        """Peers that stay throughout: others may leave with what they have subscribed to."""
        return sorted(each for each in self.network.peers if not each.startswith("x"))

    def attributes(self) -> dict[str, Value]:
        found: dict[str, Value] = {
            name: self.chance.randrange(256) for name in "abc" if self.chance.random() < 0.8
        }
        if found and self.chance.random() < 0.2:
            low = self.chance.randrange(200)
            found[min(found)] = Range(low, low + 50)
        return found

    def publish(self, count: int, pause: float = 0.1) -> None:
        for _ in range(count):
            attributes = self.attributes()
            source = self.chance.choice(self.lasting)
            self.numbers[source] += 1
            self.expected[source, self.numbers[source]] = [
                each for each in self.network.interested(attributes) if each[1].startswith("keep")
            ]
            self.network.publish(source, attributes)
            self.network.run(pause)

    def check(self) -> None:
        self.network.run(60)
        found: dict[tuple[str, int], list[tuple[str, str]]] = {mark: [] for mark in self.expected}
        for address, key, publisher, number in self.network.delivered:
            if key.startswith("keep") and (publisher, number) in found:
                found[publisher, number].append((address, key))
        wrong = {
            mark: (sorted(found[mark]), expected)
            for mark, expected in self.expected.items()
            if sorted(found[mark]) != expected
        }
        assert not wrong, f"{len(wrong)} of {len(self.expected)}: {dict(list(wrong.items())[:3])}"
        assert sum(map(len, self.expected.values())) > 50


class WholeLanguage(Story):
    """The same with all that filters and publications can be."""

    def __init__(self, network: Network, seed: int = 3) -> None:
        super().__init__(network, seed)
        self.maker = Maker(self.chance)

    def subscribe(self, count: int, prefix: str = "keep", widths: range = range(0)) -> None:
        for number in range(count):
            self.network.subscribe(self.chance.choice(self.lasting), f"{prefix}{number}", self.maker.filter())

    def attributes(self) -> dict[str, Value]:
        return with_ranges(self.maker)


def network_of(dht: str, algorithm: str, count: int = 10, **changes: object) -> Network:
    choices = DmmSettings(**{"algorithm": algorithm, **SMALL, **changes})  # type: ignore[arg-type]
    return Network(count, choices, dht, NUMBERS, pastry=PastrySettings(leaf_set=4, acknowledged=True))


BOTH = pytest.mark.parametrize("algorithm", ["DMM", "DMM-AR"])
DHTS = pytest.mark.parametrize("dht", ["ring", "pastry"])


@BOTH
@DHTS
def test_during_splits_and_merges(dht: str, algorithm: str) -> None:
    network = network_of(dht, algorithm, merge_share=1.0)
    story = Story(network)
    story.subscribe(5, widths=range(100, 200))
    network.run(5)
    assert not network.regions(State.INNER)
    story.publish(10)
    story.subscribe(60, "more", range(1, 60))
    story.publish(60)
    assert network.regions(State.INNER)
    for number in range(60):
        for address in sorted(network.peers):
            if f"more{number}" in network.dmm(address).subscriptions:
                network.unsubscribe(address, f"more{number}")
    story.publish(200, 3.0)
    story.check()
    assert not network.regions(State.INNER)


@BOTH
@DHTS
def test_while_peers_join(dht: str, algorithm: str) -> None:
    network = network_of(dht, algorithm)
    story = Story(network)
    story.subscribe(40)
    network.run(5)
    for number in range(6):
        network.add(f"x{number}", [f"p{number}"])
        story.publish(40)
    story.check()


@BOTH
@DHTS
def test_while_peers_leave(dht: str, algorithm: str) -> None:
    network = network_of(dht, algorithm)
    for number in range(6):
        network.add(f"x{number}", [f"p{number}"])
        network.run(3)
    story = Story(network)
    story.subscribe(40)
    network.run(5)
    for number in range(6):
        story.publish(20)
        network.leave(f"x{number}")
        story.publish(20)
    story.check()
    assert not network.going


@BOTH
@DHTS
@pytest.mark.parametrize("seed", [0, 1])
def test_a_peer_leaves_amid_dense_traffic(dht: str, algorithm: str, seed: int) -> None:
    """Something is on its way to the peer, through it and from it whenever it is about to leave."""
    network = network_of(dht, algorithm)
    for number in range(4):
        network.add(f"x{number}", [f"p{number}"])
        network.run(3)
    story = Story(network, seed)
    story.subscribe(30)
    network.run(5)
    for number in range(4):
        story.publish(10, 0.002)
        network.leave(f"x{number}")
        story.publish(60, 0.002)
        network.run(4 if number % 2 else 0)  # two leave at the same time, then one after the other
    story.check()
    assert not network.going


@BOTH
@DHTS
def test_after_a_crash_everything_comes_again(dht: str, algorithm: str) -> None:
    network = network_of(dht, algorithm)
    for number in range(5):
        network.add(f"x{number}", [f"p{number}"])
        network.run(3)
    story = Story(network)
    story.subscribe(40)
    network.run(20)
    story.publish(20)
    network.run(5)
    for number in range(5):
        network.kill(f"x{number}")
    network.run(12 if dht == "ring" else 40)
    story.publish(100)
    story.check()


@BOTH
@DHTS
def test_lost_datagrams_lose_nothing_where_hops_are_confirmed(dht: str, algorithm: str) -> None:
    network = network_of(dht, algorithm)
    network.loss = 0.02
    story = Story(network)
    story.subscribe(40)
    network.run(90)
    story.publish(100)
    story.check()


def test_without_confirmations_lost_datagrams_do_lose_publications() -> None:
    choices = DmmSettings(split_threshold=12)
    network = Network(10, choices, "pastry", NUMBERS)
    network.loss = 0.05
    story = Story(network)
    story.subscribe(40)
    network.run(90)
    story.publish(100)
    with pytest.raises(AssertionError, match="of 100"):
        story.check()


@BOTH
@DHTS
@settings(max_examples=3, deadline=None)
@given(seed=st.integers(0, 10_000))
def test_the_whole_language_while_everything_changes(dht: str, algorithm: str, seed: int) -> None:
    choices = DmmSettings(
        algorithm=algorithm, acknowledged=True, split_threshold=40 if algorithm == "DMM" else 5
    )
    network = Network(8, choices, dht, SCHEMA, pastry=PastrySettings(leaf_set=4, acknowledged=True))
    story = WholeLanguage(network, seed)
    story.subscribe(40)
    network.run(5)
    story.subscribe(40, "more")
    story.publish(20)
    network.add("x0", ["p1"])
    story.publish(20)
    network.run(5)
    network.leave("x0")
    story.publish(20)
    story.check()
