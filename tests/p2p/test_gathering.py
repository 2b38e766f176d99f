"""A gateway hears of all that peers want together: at once, after failures, and never of less."""

from __future__ import annotations

import random

import pytest

from braid.language import Filter, Value
from braid.p2p.dht.identifiers import number_of
from braid.p2p.dmm import DmmSettings
from braid.p2p.dmm.gathering import EVERYTHING, FILTERS_MAX
from braid.p2p.dmm.messages import Gathered
from braid.p2p.space import GATHERED
from tests.language.strategies import Maker
from tests.p2p.networks import SCHEMA, Network
from tests.p2p.test_dmm_changes import BOTH, DHTS, network_of


class Gateway:
    """What a gateway does, with brokers that answer at once, or not at all."""

    def __init__(self, network: Network, address: str, *, answers: bool = True) -> None:
        self.network = network
        self.address = address
        self.answers = answers
        self.wanted: list[str] = []
        network.act(address, lambda peer: network.dmm(address).gather())

    def look(self) -> None:
        dmm = self.network.dmm(self.address)
        found = dmm.take_wanted()
        if found is not None:
            self.wanted = found
        if self.answers and dmm.is_asked:
            self.network.act(self.address, lambda peer: dmm.answer_wanted(self.network.now_us))

    def run(self, seconds: float) -> None:
        for _ in range(round(seconds * 20)):
            self.network.run(0.05)
            self.look()

    def asks_for(self, attributes: dict[str, Value]) -> bool:
        return any(Filter(text).matches(attributes) for text in self.wanted)

    def wait(self, address: str, key: str, seconds_max: float = 30) -> float:
        """Until a subscription is installed; how long that took."""
        for step in range(round(seconds_max * 20)):
            if key in self.network.dmm(address).take_installed():
                return step / 20
            self.run(0.05)
        raise AssertionError(f"{key} at {address} is not installed")


def quick(dht: str, algorithm: str, count: int = 8) -> Network:
    return network_of(dht, algorithm, count, gateways=True, beacon_us=5_000_000, expiry_us=10_000_000)


@BOTH
@DHTS
def test_whoever_matches_is_asked_for_from_the_answer_on(dht: str, algorithm: str) -> None:
    choices = DmmSettings(algorithm=algorithm, gateways=True, acknowledged=True)  # type: ignore[arg-type]
    network = Network(8, choices, dht, SCHEMA)
    maker = Maker(random.Random(4))
    network.subscribe("p2", "early", "i = 3")
    network.run(5)
    gateway = Gateway(network, "p1")
    gateway.run(5)
    assert gateway.asks_for({"i": 3})
    assert not gateway.asks_for({"i": 4})
    for number in range(25):
        address = f"p{number % 6 + 2}"
        wanted = maker.filter()
        network.subscribe(address, f"s{number}", wanted, confirm=True)
        gateway.wait(address, f"s{number}")
        for _ in range(20):
            attributes = dict(maker.publication())
            if network.interested(attributes):
                assert gateway.asks_for(attributes), (wanted, attributes)


@BOTH
@DHTS
def test_nothing_is_lost_when_the_collector_dies_and_what_ends_is_forgotten(dht: str, algorithm: str) -> None:
    network = quick(dht, algorithm)
    gateway = Gateway(network, "p1")
    for number in range(6):
        network.subscribe(f"p{number % 3 + 2}", f"s{number}", f"a = {number}")
    gateway.run(8)
    assert {f"a = {number}" for number in range(6)} == set(gateway.wanted)
    root = network.dmm("p1").site.interests.spaces.named(GATHERED).root_key
    collector = next(each for each in network.peers if network.dmm(each).site.dht.responsible(root))
    if collector in ("p1", "p2", "p3", "p4"):
        # One that may die takes its place: whoever is nearest to the key.
        network.add("x", ["p1"])
        gateway.run(8)
    else:
        network.kill(collector)
    for _ in range(40):
        gateway.run(1)
        assert {f"a = {number}" for number in range(6)} <= set(gateway.wanted), number_of(root)
    network.subscribe("p3", "late", "b = 7", confirm=True)
    gateway.wait("p3", "late")
    assert gateway.asks_for({"b": 7})
    for number in range(6):
        network.unsubscribe(f"p{number % 3 + 2}", f"s{number}")
    gateway.run(30)
    assert gateway.wanted == ["b = 7"]


def test_very_many_filters_become_one_for_everything_and_come_back() -> None:
    network = quick("pastry", "DMM-AR")
    gateway = Gateway(network, "p1")
    for number in range(3 * FILTERS_MAX):
        network.subscribe(f"p{number % 5 + 2}", f"s{number}", f"a = {number % 250} AND b > {number}")
    gateway.run(15)
    assert EVERYTHING in gateway.wanted
    assert len(gateway.wanted) <= 2 * FILTERS_MAX
    for number in range(3, 3 * FILTERS_MAX):
        network.unsubscribe(f"p{number % 5 + 2}", f"s{number}")
    gateway.run(40)
    assert gateway.wanted == [f"a = {number} AND b > {number}" for number in range(3)]


def test_brokers_that_do_not_answer_are_not_waited_for() -> None:
    network = quick("ring", "DMM-AR")
    gateway = Gateway(network, "p1", answers=False)
    gateway.run(6)
    network.subscribe("p3", "s", "a > 3", confirm=True)
    assert 4 < gateway.wait("p3", "s") < 8


def test_who_is_no_gateway_is_not_told_and_nonsense_is_left_out() -> None:
    network = quick("ring", "DMM-AR")
    gateway = Gateway(network, "p1")
    gateway.run(6)
    for address in ("p1", "p2"):
        for filters in (["a >"], ["a > 1"] * 1_000, [f"a = {number}" for number in range(1_000)]):
            network.act(
                address,
                lambda peer, at=address, texts=filters: network.dmm(at).received("p5", Gathered(texts), 0),
            )
    gateway.run(1)
    assert len(gateway.wanted) <= 2 * FILTERS_MAX
    assert network.dmm("p2").take_wanted() is None


@pytest.mark.parametrize("gateways", [False, True])
def test_it_costs_nothing_where_it_is_not_asked_for(gateways: bool) -> None:
    network = network_of("ring", "DMM-AR", gateways=gateways)
    network.subscribe("p2", "s", "a > 3")
    network.run(5)
    assert any(GATHERED in network.dmm(each).site.multicasting.trees for each in network.peers) == gateways
