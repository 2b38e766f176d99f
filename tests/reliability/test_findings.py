"""Do the mistakes stay away that runs with real processes have found? Each is told again in one process."""

from __future__ import annotations

import pytest

from braid.protocol.messages import Advertise, Subscribe, SubscribeDurable
from tests.broker.wire import Network, WireClient


@pytest.fixture
def network() -> Network:
    """Two brokers; everything that is published is wanted at B."""
    network = Network()
    network.start("A", store=True)
    network.start("B", neighbours=("A",), store=True)
    network.run(us=1_000_000)
    return network


def reader(network: Network, *, resume_after: int = -1) -> WireClient:
    client = network.client("reader", "B")
    client.ask(SubscribeDurable(1, "log", "price >= 0", resume_after=resume_after))
    network.run()
    return client


def offsets(client: WireClient) -> list[int]:
    return [offset for _, offset, _ in client.stored]


def test_what_is_published_right_after_an_advertisement_is_not_lost(network: Network) -> None:
    # As a client does that connects again: it does not wait for the answer.
    durable = reader(network)
    writer = network.client("writer", "A")
    writer.ask(Advertise(1, "1", "price >= 0"))
    writer.publish({"price": 1}, acknowledged=True)
    network.run(us=1_000_000)
    assert offsets(durable) == [0]
    assert writer.channel.idle


def test_an_advertisement_that_never_became_known_takes_no_publication_with_it(network: Network) -> None:
    durable = reader(network)
    network.kill("B")
    network.run(us=100_000)
    writer = network.client("writer", "A")
    writer.ask(Advertise(1, "1", "price >= 0"))
    writer.publish({"price": 1}, acknowledged=True)
    network.run(us=100_000)
    network.leave(writer)
    network.run(us=100_000)
    network.start("B")
    network.run(us=1_000_000)
    durable = reader(network)
    again = WireClient(network, "writer", "A")
    again.channel = writer.channel
    network.run(us=1_000_000)
    again.ask(Advertise(2, "1", "price >= 0"))
    network.run(us=1_000_000)
    assert again.channel.idle
    assert offsets(durable) == [0]


def test_what_a_client_leaves_behind_at_a_broker_that_is_not_ready_is_delivered(network: Network) -> None:
    network.kill("A")
    network.kill("B")
    network.start("A")  # which waits a while for B
    subscriber = network.client("subscriber", "A")
    subscriber.ask(Subscribe(1, "1", "price >= 0"))
    writer = network.client("writer", "A")
    writer.publish({"price": 1})
    network.run(us=50_000)
    assert writer.channel.idle, "it has heard that its publication was received"
    assert not network.cores["A"].ready
    network.leave(writer)
    network.run(us=10_000_000)
    assert subscriber.values("price") == [1]


def test_an_acknowledgement_that_is_repeated_with_a_new_connection_counts(network: Network) -> None:
    first = reader(network)
    network.client("writer", "A").publish({"price": 1}, {"price": 2}, acknowledged=True)
    network.run(us=1_000_000)
    assert offsets(first) == [0, 1]
    network.leave(first)  # its acknowledgement of both does not arrive
    second = reader(network, resume_after=1)
    network.leave(second)
    network.run()
    # The next process knows nothing of the one before.
    assert offsets(reader(network)) == []
