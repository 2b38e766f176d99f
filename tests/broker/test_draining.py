"""A broker that is to stop takes on nothing new, and hands over everything that it has taken on."""

from __future__ import annotations

from typing import Any

import pytest

from braid.broker.reports import overlay_of
from braid.protocol import ChannelSettings
from braid.protocol.inputs import Drain
from braid.protocol.messages import Refused, Subscribe
from tests.broker.wire import Network, WireClient

WINDOW_BYTES = 20_000


def accepted(network: Network) -> int:
    return int(network.cores["A"].statistics()["counters"]["received"])


@pytest.fixture
def small() -> tuple[Network, WireClient, WireClient]:
    """A broker with small queues, a reader that does not read, and a publisher that has been held up."""
    network = Network()
    network.start("A", client=ChannelSettings(window_bytes=WINDOW_BYTES), client_queue_bytes_max=10_000)
    reader = network.client("reader", "A", credit=2_000)
    reader.ask(Subscribe(1, "1", "n > 0"))
    network.run(us=100_000)
    reader.reads = False
    publisher = network.client("publisher", "A")
    for number in range(1, 16):
        publisher.publish({"n": number, "pad": "x" * 1_000}, acknowledged=True)
        network.run(us=50_000)
    assert network.cores["A"].statistics()["clients_behind"] == 1
    return network, reader, publisher


def test_a_reader_that_catches_up_does_not_let_publications_in_while_draining(
    small: tuple[Network, WireClient, WireClient],
) -> None:
    network, reader, publisher = small
    network.tell("A", Drain())
    network.run(us=50_000)
    credit = publisher.channel.credit
    before = accepted(network)
    reader.read()
    for number in range(16, 76):
        publisher.publish({"n": number, "pad": "x" * 1_000}, acknowledged=True)
    network.run(us=50_000)
    assert publisher.channel.credit == credit
    assert accepted(network) == before
    network.run(us=2_000_000)
    assert "A" in network.drained
    assert reader.values("n") == list(range(1, before + 1))
    assert publisher.cares == list(range(1, before + 1)), "what was taken on is handed over, and settled"


def test_what_a_publisher_had_credit_for_is_not_taken_on_while_draining() -> None:
    network = Network()
    network.start("A")
    reader = network.client("reader", "A")
    reader.ask(Subscribe(1, "1", "n > 0"))
    publisher = network.client("publisher", "A")
    publisher.publish({"n": 1}, acknowledged=True)
    reader.settles = False
    publisher.publish({"n": 2}, acknowledged=True)
    network.run(us=50_000)
    network.tell("A", Drain())
    network.run(us=50_000)
    received = publisher.channel.peer_received
    publisher.publish({"n": 3}, acknowledged=True)
    publisher.ask(Subscribe(2, "2", "TRUE"))
    publisher.publish({"n": 4})
    network.run(us=50_000)
    assert accepted(network) == 2
    assert publisher.channel.peer_received == received, "so its publisher keeps it for the next broker"
    assert reader.values("n") == [1, 2]
    assert publisher.open
    reader.settles = True
    reader.receive([])
    network.run(us=1_000_000)
    assert "A" in network.drained
    assert publisher.cares == [1, 2]


@pytest.mark.parametrize("leaves", [False, True], ids=["stays", "leaves"])
def test_draining_waits_for_what_was_published_before_the_broker_was_ready(leaves: bool) -> None:
    network = Network()
    network.start("A", neighbours=("B",), recovery_us_max=2_000_000)
    reader = network.client("reader", "A")
    reader.ask(Subscribe(1, "1", "n > 0"))
    publisher = network.client("publisher", "A")
    publisher.publish({"n": 1}, {"n": 2})
    network.run(us=50_000)
    assert publisher.channel.peer_received == 1, "the publisher has a receipt"
    assert reader.values("n") == []
    if leaves:
        network.leave(publisher)
    network.tell("A", Drain())
    network.run(us=1_000_000)
    assert "A" not in network.drained
    network.run(us=2_000_000)
    assert reader.values("n") == [1, 2]
    assert "A" in network.drained


@pytest.mark.parametrize("greeting", [True, False], ids=["greets late", "says nothing"])
def test_a_connection_that_was_there_before_does_not_become_a_client_while_draining(greeting: bool) -> None:
    network = Network()
    network.start("A")
    network.run(us=50_000)
    late = _Silent(network, "late", "A")
    network.run(us=50_000)
    network.tell("A", Drain())
    keeper = network.cores["A"]
    network._settle()
    if greeting:
        late.greet()
        network._settle()
        assert [refusal.code for refusal in late.answers(Refused)] == ["closing"]
    assert keeper.statistics()["clients"] == 0
    network.run(us=100_000)
    assert "A" in network.drained


class _Silent(WireClient):
    """A client that opens a connection and says hello later."""

    def _say(self, message: Any) -> None:
        self.hello = message

    def greet(self) -> None:
        super()._say(self.hello)


def test_a_neighbour_that_comes_while_draining_gets_no_further_credit() -> None:
    """It had been dialled before, and nobody else is let in."""
    network = Network()
    network.start("A", neighbours=("B",), client_queue_bytes_max=10_000, redial_us_max=200_000)
    reader = network.client("reader", "A", credit=2_000)
    reader.ask(Subscribe(1, "1", "n > 0", partial=True))
    network.run(us=11_000_000)
    reader.reads = False
    publisher = network.client("publisher", "A")
    for number in range(1, 8):
        publisher.publish({"n": number, "pad": "x" * 1_000}, acknowledged=True)
    network.run(us=50_000)
    network.tell("A", Drain())
    network.run(us=50_000)
    network.start("B")
    network.run(us=1_000_000)
    core = network.cores["A"]
    assert core._links.links["B"].connection is not None
    overlay = overlay_of(core.snapshot())
    assert overlay["links"][0]["withheld"] == ["draining"]
    assert overlay["withheld"]["draining"] == 3, "nobody gets credit, and operators see why"


def test_operators_see_why_credit_is_withheld(small: tuple[Network, WireClient, WireClient]) -> None:
    network, _, _ = small
    assert overlay_of(network.cores["A"].snapshot())["withheld"] == {"reader class 1 is behind": 1}
