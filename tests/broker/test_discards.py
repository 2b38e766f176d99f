"""Is whoever publishes told what was taken for a repetition, wherever that was?"""

from __future__ import annotations

from typing import Any

import pytest

from braid.adaptation import SoftLinkSettings
from braid.protocol.messages import PublishDiscarded, PublishRefused, Subscribe, SubscribeDurable
from tests.broker.wire import Network, WireClient

HUGE = 2**62


def line(*names: str) -> Network:
    network = Network()
    for place, name in enumerate(names):
        network.start(name, neighbours=names[place - 1 : place] if place else (), store=True)
    network.run(us=1_000_000)
    return network


def publisher(network: Network, broker: str, first: int) -> WireClient:
    """A program that has a fixed name and epoch, and numbers of its own choice."""
    client = network.client("p", broker)
    client.sequence = first - 1
    return client


def discarded(client: WireClient) -> list[int]:
    return [number for message in client.answers(PublishDiscarded) for number in message.sequences]


@pytest.mark.parametrize("names", ["AB", "ABC"])
def test_a_far_broker_that_cannot_tell_it_from_a_repetition_says_so(names: str) -> None:
    network = line(*names)
    reader = network.client("reader", names[-1])
    reader.ask(Subscribe(1, "1", "n >= 0"))
    network.run()
    first = publisher(network, "A", HUGE)
    first.publish({"n": 1}, acknowledged=True)
    network.run()
    assert reader.values("n") == [1]
    # Its own broker forgets all about it.
    network.kill("A")
    network.run(us=1_000_000)
    network.start("A")
    network.run(us=5_000_000)
    again = publisher(network, "A", 1)
    again.publish({"n": 2}, {"n": -1}, acknowledged=True)
    network.run(us=1_000_000)
    assert reader.values("n") == [1]
    assert again.cares == [1, 2]
    assert discarded(again) == [1]
    assert again.heard[-1].highest == HUGE  # type: ignore[union-attr]


@pytest.mark.parametrize("strategy", ["S2", "SB"])
def test_news_of_it_comes_back_over_a_soft_link(strategy: str) -> None:
    network = Network()
    names = "ABCD"
    for place, name in enumerate(names):
        network.start(
            name,
            neighbours=(names[place - 1],) if place else (),
            store=True,
            strategy=strategy,
            delta=0 if strategy == "SB" else 4,
            soft_links=SoftLinkSettings(fanout=6, review_us=100_000),
        )
    network.run(us=2_000_000)
    network.client("reader", "D").ask(SubscribeDurable(1, "log", "n >= 0"))
    network.run(us=1_000_000)
    publisher(network, "A", HUGE).publish({"n": 1}, acknowledged=True)
    network.run(us=1_000_000)
    network.kill("A")
    network.start("A")
    network.run(us=5_000_000)
    busy = network.client("busy", "A")
    for number in range(20):
        busy.publish({"n": number}, acknowledged=True)
        network.run(us=100_000)
    assert "D" in network.cores["A"]._mesh.outgoing
    again = publisher(network, "A", 1)
    again.publish({"n": 2}, acknowledged=True)
    network.run(us=1_000_000)
    assert again.cares == [1]
    assert discarded(again) == [1]


@pytest.mark.parametrize("names", ["A", "AB"])
def test_a_log_that_cannot_tell_it_from_a_repetition_says_so(names: str) -> None:
    network = line(*names)
    reader = network.client("reader", names[-1])
    reader.ask(SubscribeDurable(1, "log", "n >= 0"))
    network.run()
    publisher(network, "A", HUGE).publish({"n": 1}, acknowledged=True)
    network.run()
    for name in names:
        network.kill(name)
    for name in names:
        network.start(name)
    network.run(us=5_000_000)
    again = publisher(network, "A", 1)
    again.publish({"n": 2}, acknowledged=True)
    network.run(us=1_000_000)
    assert discarded(again) == [1]
    # What the log has, it has: that is no discarding.
    last = publisher(network, "A", HUGE)
    last.publish({"n": 1}, acknowledged=True)
    network.run(us=1_000_000)
    assert last.cares == [HUGE]
    assert not discarded(last)


def test_what_waits_to_be_routed_is_not_taken_for_delivered_meanwhile() -> None:
    """With fast delivery it is a receipt that something has arrived, also where it cannot be routed yet."""
    network = line("A", "B")
    reader = network.client("reader", "B")
    reader.ask(Subscribe(1, "1", "n >= 0"))
    network.run()
    publisher(network, "A", 1).publish({"n": 1}, {"n": 2})
    network.run()
    told: list[str] = []
    network.on_frames = lambda _, target, frames: told.extend(
        type(frame.body).__name__ for frame in frames if target == "p"
    )
    # At B nobody has published before, so that it has to announce it first.
    again = publisher(network, "B", 1)
    again.publish({"n": 1}, {"n": 2}, {"n": 3})
    network.run(us=1_000_000)
    assert discarded(again) == [1, 2]
    assert told.index("PublishDiscarded") < told.index("Acknowledgement")
    assert reader.values("n") == [1, 2, 3]


@pytest.mark.parametrize("strategy", ["S0", "SB"])
def test_what_has_crossed_too_many_links_has_no_receipt_of_delivery(strategy: str) -> None:
    network = Network()
    names = "ABCDE"
    for place, name in enumerate(names):
        neighbours = (names[place - 1],) if place else ()
        network.start(name, neighbours=neighbours, strategy=strategy, hops_max=3, **no_soft_links(strategy))
    network.run(us=2_000_000)
    readers = [network.client(f"reader {name}", name) for name in "CE"]
    for reader in readers:
        reader.ask(Subscribe(1, "1", "n >= 0"))
    network.run(us=1_000_000)
    sender = network.client("p", "A")
    sender.publish({"n": 1}, acknowledged=True)
    network.run(us=1_000_000)
    assert [reader.values("n") for reader in readers] == [[1], []]
    assert sender.cares == [1]
    assert [refused.sequences for refused in sender.answers(PublishRefused)] == [[1]]


def no_soft_links(strategy: str) -> dict[str, Any]:
    return {"soft_links": SoftLinkSettings(fanout=2)} if strategy == "SB" else {}


def test_a_neighbour_speaks_only_for_what_it_was_given() -> None:
    """Otherwise any neighbour could spoil the receipts of publications that have nothing to do with it."""
    network = line("A", "B", "C")
    network.start("D", neighbours=("A",))
    network.run(us=1_000_000)
    reader = network.client("reader", "C")
    reader.ask(Subscribe(1, "1", "n >= 0"))
    reader.settles = False
    network.run(us=1_000_000)
    sender = publisher(network, "A", 1)
    sender.publish({"n": 1}, {"n": 2}, acknowledged=True)
    network.run(us=1_000_000)
    liar = network.cores["D"]
    for message in (
        PublishRefused("p", [1, 2], "oversized", "made up"),
        PublishDiscarded("p", [1, 2], HUGE, known=False),
    ):
        liar._turn.tell(liar._links.links["A"], message)
    network.run(us=1_000_000)
    assert not sender.answers(PublishRefused)
    assert not sender.answers(PublishDiscarded)
    # The one that it went to may say so, of that and no more.
    on_the_way = network.cores["B"]
    told = PublishRefused("p", [2, 3], "oversized", "it is so")
    on_the_way._turn.tell(on_the_way._links.links["A"], told)
    network.run(us=1_000_000)
    assert [refused.sequences for refused in sender.answers(PublishRefused)] == [[2]]
