"""Is anything acknowledged lost when a broker in the middle comes back without its data?

It has forgotten its neighbours then, and who is behind them. What it was told in its settings it still knows.
"""

from __future__ import annotations

import pytest

from braid.protocol.memory_store import MemoryStore
from braid.protocol.messages import Done, Subscribe, SubscribeDurable
from tests.broker.wire import Network, WireClient

TOLD = [
    pytest.param({"neighbours": ("A", "C")}, id="told whom to dial"),
    pytest.param({"expected": ("A", "C")}, id="told whom to expect"),
]


def line(**told: tuple[str, ...]) -> Network:
    """A, M and C in a line, and a log at C for what is published."""
    network = Network()
    network.start("M", store=True, **told)
    network.start("A", neighbours=("M",), store=True)
    network.start("C", neighbours=("M",), store=True)
    network.run(us=8_000_000)
    network.client("reader", "C").ask(SubscribeDurable(1, "log", "x > 0"))
    network.run(us=1_000_000)
    return network


def lose_data(network: Network) -> None:
    network.kill("M")
    network.stores["M"] = MemoryStore(secret="another")
    network.start("M")


def publish(network: Network, broker: str) -> WireClient:
    publisher = network.client("p", broker)
    for number in range(1, 21):
        publisher.publish({"x": number}, acknowledged=True)
    return publisher


def require_delivered(network: Network, publisher: WireClient) -> None:
    network.run(us=20_000_000)
    reader = network.client("reader", "C")
    reader.ask(SubscribeDurable(2, "log", ""))
    network.run(us=1_000_000)
    assert [row.attributes["x"] for _, _, row in reader.stored] == list(range(1, 21))
    assert publisher.cares == list(range(1, 21))


@pytest.mark.parametrize("told", TOLD)
@pytest.mark.parametrize("broker", ["A", "M"])
def test_what_is_published_while_a_forgotten_neighbour_is_down_is_kept_for_it(
    told: dict[str, tuple[str, ...]], broker: str
) -> None:
    network = line(**told)
    network.kill("C")
    lose_data(network)
    network.run(us=15_000_000)  # longer than anybody waits for tables
    publisher = publish(network, broker)
    network.run(us=5_000_000)
    assert publisher.cares == [], "nobody has it, so nobody gets a receipt"
    network.start("C")
    require_delivered(network, publisher)


@pytest.mark.parametrize("told", TOLD)
def test_what_is_published_before_the_neighbours_have_come_again_is_kept_for_them(
    told: dict[str, tuple[str, ...]],
) -> None:
    network = line(**told)
    lose_data(network)
    require_delivered(network, publish(network, "M"))


@pytest.mark.parametrize("told", TOLD)
def test_a_subscription_is_answered_when_the_neighbours_have_come_again(
    told: dict[str, tuple[str, ...]],
) -> None:
    network = line(**told)
    network.kill("C")
    lose_data(network)
    subscriber = network.client("s", "M")
    subscriber.ask(Subscribe(1, "1", "y > 0"))
    network.run(us=15_000_000)
    assert not subscriber.answers(Done)
    network.start("C")
    network.run(us=10_000_000)
    assert subscriber.answers(Done)
    publisher = network.client("q", "C")
    publisher.publish({"y": 1}, acknowledged=True)
    network.run(us=1_000_000)
    assert subscriber.values("y") == [1]


def test_what_came_from_a_neighbour_is_not_kept_for_it_under_another_address() -> None:
    """Sent back, it would be settled when its first copy is, and that one when this is: never."""
    network = Network()
    network.start("A", neighbours=("B",))
    network.start("B")
    network.run(us=8_000_000)
    for broker in ("A", "B"):
        network.client(f"s{broker}", broker).ask(Subscribe(1, "1", "x > 0"))
        network.client(f"p{broker}", broker).publish({"x": 0})
    network.run(us=1_000_000)
    publisher = network.client("p", "A")
    # B is told to dial A once more, and has not told A so when this comes.
    network.cores["B"]._dialling.remember("another way to A")
    network.cores["B"]._links.tell_reach()
    publisher.publish({"x": 1}, acknowledged=True)
    network.run(us=1_000_000)
    assert publisher.cares == [], "somebody else may be there"
    network.move("A", "another way to A")
    network.run(us=8_000_000)
    assert publisher.cares == [1]
