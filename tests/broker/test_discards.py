"""Is whoever publishes told what was taken for a repetition, wherever that was?"""

from __future__ import annotations

import pytest

from braid.protocol.messages import PublishDiscarded, Subscribe, SubscribeDurable
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
