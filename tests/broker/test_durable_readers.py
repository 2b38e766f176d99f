"""Who reads a durable subscription: the first who asked, until it goes or another one takes over."""

from __future__ import annotations

import pytest

from braid.protocol.messages import Done, Failed, SubscribeDurable
from tests.broker.wire import Network, WireClient


@pytest.fixture
def network() -> Network:
    network = Network()
    network.start("A", store=True)
    return network


def read(network: Network, client: WireClient, *, takeover: bool = False) -> list[str]:
    """Ask for the log; the codes of what was refused to this client so far."""
    client.ask(SubscribeDurable(1, "log", "n >= 0", takeover=takeover))
    network.run(us=100_000)
    return [answer.code for answer in client.answers(Failed)]


def test_a_client_that_comes_back_is_no_second_reader(network: Network) -> None:
    """Its former connection is dead, and the broker has not noticed that yet."""
    before = network.client("reader", "A")
    assert read(network, before) == []
    again = network.client("reader", "A")
    assert read(network, again) == []
    assert len(again.answers(Done)) == 1
    network.client("writer", "A").publish({"n": 1})
    network.run(us=100_000)
    assert (len(before.stored), len(again.stored)) == (0, 1)


def test_another_client_is_refused_also_under_the_same_name(network: Network) -> None:
    reader = network.client("reader", "A")
    assert read(network, reader) == []
    for second in (network.client("other", "A"), network.client("reader", "A", incarnation="another start")):
        assert read(network, second) == ["taken"]
    network.client("writer", "A").publish({"n": 1})
    network.run(us=100_000)
    assert len(reader.stored) == 1


def test_another_client_takes_over_by_its_own_choice_and_the_first_hears_of_it(network: Network) -> None:
    reader, other = network.client("reader", "A"), network.client("other", "A")
    assert read(network, reader) == []
    assert read(network, other, takeover=True) == []
    assert [answer.code for answer in reader.answers(Failed)] == ["taken"]
    network.client("writer", "A").publish({"n": 1})
    network.run(us=100_000)
    assert (len(reader.stored), len(other.stored)) == (0, 1)
