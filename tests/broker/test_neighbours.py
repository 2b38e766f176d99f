"""Does a broker say who its neighbours are whenever that changes, and only then?"""

from __future__ import annotations

from braid.protocol.messages import Ask
from tests.broker.wire import Network


def three(network: Network, *, store: bool = False) -> None:
    network.start("A", store=store)
    network.start("B", neighbours=("A",), store=store)
    network.start("C", neighbours=("B",), store=store)
    network.run(us=1_000_000)


def test_a_neighbour_is_told_when_it_comes_and_when_it_is_given_up() -> None:
    network = Network()
    three(network)
    assert network.neighbours == {"A": ("B",), "B": ("A", "C"), "C": ("B",)}
    network.neighbours.clear()
    network.kill("C")
    network.run(us=10_000_000)
    assert network.neighbours == {}, "a broker that is away is a neighbour still"
    network.client("o", "B").ask(Ask(1, "forget", {"neighbour": "C"}))
    network.run(us=1_000_000)
    assert network.neighbours == {"B": ("A",)}


def test_what_is_remembered_is_told_after_a_restart() -> None:
    network = Network()
    three(network, store=True)
    network.kill("B")
    network.run(us=1_000_000)
    network.neighbours.clear()
    network.start("B")
    network.run(us=1)
    assert network.neighbours["B"] == ("A", "C")
