"""What waits for a link or a client: does it keep its order, find its way, and stay bounded?"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

import pytest

from braid.protocol import Frame, PublicationBatch, encode_record
from braid.protocol.inputs import Writable
from braid.protocol.messages import (
    Acknowledgement,
    Advertise,
    Done,
    Failed,
    Replay,
    Subscribe,
    SubscribeDurable,
    Unadvertise,
)
from tests.broker.wire import Network, WireClient

if TYPE_CHECKING:
    from braid.broker.parties import Link


def link_of(network: Network, broker: str, neighbour: str) -> Link:
    return network.cores[broker]._links.links[neighbour]


def with_five_waiting(acknowledged: bool) -> tuple[Network, WireClient, WireClient, int]:
    """Five publications wait at A for the link to B, behind which they are wanted; also that connection."""
    network = Network()
    network.start("A")
    network.start("B", neighbours=("A",))
    network.start("C", neighbours=("B",))
    network.run(us=1_000_000)
    subscriber = network.client("s", "C")
    subscriber.ask(Subscribe(1, "1", "x > 0"))
    network.run(us=100_000)
    publisher = network.client("p", "A")
    publisher.ask(Advertise(1, "1", "x > 0"))
    network.run(us=100_000)
    connection = link_of(network, "A", "B").connection
    assert connection is not None
    network.tell("A", Writable(connection, False))
    network.run()
    for number in range(1, 6):
        publisher.publish({"x": number}, acknowledged=acknowledged)
    network.run()
    return network, subscriber, publisher, connection


@pytest.mark.parametrize("acknowledged", [False, True])
@pytest.mark.parametrize("leaves", [False, True])
def test_an_advertisement_is_not_taken_back_before_what_it_was_for(leaves: bool, acknowledged: bool) -> None:
    network, subscriber, publisher, connection = with_five_waiting(acknowledged)
    if leaves:
        network.leave(publisher)
    else:
        publisher.ask(Unadvertise(2, "1"))
    network.run()
    network.tell("A", Writable(connection, True))
    network.run(us=1_000_000)
    assert subscriber.values("x") == [1, 2, 3, 4, 5]


@pytest.mark.parametrize("in_one_read", [False, True])
def test_what_is_not_acknowledged_does_not_overtake_what_is_held(in_one_read: bool) -> None:
    """A log that saw the third would take the second for a repetition."""
    network = Network()
    network.start("A")
    network.start("B", neighbours=("A",), store=True)
    network.start("C", neighbours=("B",))
    network.run(us=1_000_000)
    network.client("d", "B").ask(SubscribeDurable(1, "log", "x > 0"))
    network.run(us=1_000_000)
    publisher = network.client("p", "A")
    publisher.publish({"x": 1})
    network.run(us=100_000)
    network.kill("C")
    network.kill("B")
    network.start("B")
    network.run(us=20_000_000)
    assert link_of(network, "A", "B").channel.holding
    if in_one_read:
        for number in (2, 3):
            record = encode_record({"x": number}, 0)
            publisher.channel.offer(PublicationBatch.of("p", [number], [record], acknowledged=number == 2))
        publisher.flush()
    else:
        publisher.publish({"x": 2}, acknowledged=True)
        network.run(us=1000)
        publisher.publish({"x": 3})
    network.run(us=1_000_000)
    network.start("C")
    network.run(us=20_000_000)
    reader = network.client("d", "B")
    reader.ask(SubscribeDurable(1, "log", "x > 0"))
    network.run(us=1_000_000)
    assert [row.attributes["x"] for _, _, row in reader.stored] == [1, 2, 3]


def test_a_client_that_does_not_read_what_it_publishes_is_bounded() -> None:
    network = Network()
    network.start("A", client_queue_bytes_max=100_000, stall_us_max=5_000_000)
    network.run(us=100_000)
    client = network.client("p", "A", credit=1000)
    client.ask(Subscribe(1, "1", "TRUE"))
    network.run(us=100_000)
    (party,) = network.cores["A"]._connections.clients

    def hears_only_how_far_it_got(frames: list[Frame]) -> None:
        for frame in frames:
            if isinstance(frame.body, Acknowledgement):
                client.channel.acknowledged(frame.body)
        client.flush()

    client.receive = hears_only_how_far_it_got  # type: ignore[assignment,method-assign]
    largest = 0
    for _ in range(150):
        client.publish({"x": "y" * 50_000})
        client._say(Acknowledgement(1, 1, 1000))  # says again what it said before
        network.run(us=200_000)
        largest = max(largest, party.channel.waiting_bytes)
    window = network.cores["A"].settings.client.window_bytes
    assert largest <= 100_000 + window + 60_000
    assert not client.open


def test_frames_whose_numbers_fall_back_are_not_joined() -> None:
    network = Network()
    network.start("A")
    network.run(us=100_000)
    publisher = network.client("p", "A")
    record = encode_record({"x": 1}, 0)
    for base, offset in ((100, 0), (50, 60)):
        table = struct.pack("<2I", offset, len(record))
        publisher.channel.offer(PublicationBatch("p", base, table, record))
    publisher.flush()
    network.run()
    assert publisher.open


def test_only_so_many_replays_run_at_a_time() -> None:
    network = Network()
    network.start("A", store=True)
    network.run(us=100_000)
    client = network.client("c", "A")
    client.ask(SubscribeDurable(1, "log", "x > 0"))
    network.run()
    client.publish({"x": 1})
    network.run(us=100_000)
    network.frozen_stores.add("A")
    for request in range(100, 120):
        client.ask(Replay(request, "log", 0))
    network.run()
    refused = client.answers(Failed)
    assert [answer.request for answer in refused] == [116, 117, 118, 119]
    assert {answer.code for answer in refused} == {"limit"}
    network.frozen_stores.clear()
    network.run(us=100_000)
    assert {answer.request for answer in client.answers(Done)} >= set(range(100, 116))


def test_a_reader_hears_that_another_connection_took_its_log_over() -> None:
    network = Network()
    network.start("A", store=True)
    network.run(us=100_000)
    first, second = network.client("one", "A"), network.client("two", "A")
    first.ask(SubscribeDurable(7, "log", "x > 0"))
    network.run(us=100_000)
    second.ask(SubscribeDurable(1, "log", "x > 0", takeover=True))
    network.run(us=100_000)
    assert [(answer.request, answer.code) for answer in first.answers(Failed)] == [(7, "taken")]
    second.publish({"x": 1})
    network.run(us=100_000)
    assert (len(first.stored), len(second.stored)) == (0, 1)


@pytest.mark.parametrize("taken_back", [False, True])
@pytest.mark.parametrize("acknowledged", [False, True])
def test_a_narrower_advertisement_does_not_overtake_what_the_wider_one_was_for(
    acknowledged: bool, taken_back: bool
) -> None:
    network, subscriber, publisher, connection = with_five_waiting(acknowledged)
    if taken_back:
        publisher.ask(Unadvertise(7, "1"))
        network.run()
    publisher.ask(Advertise(2, "1", "x < 0"))
    network.run(us=100_000)
    network.tell("A", Writable(connection, True))
    network.run(us=1_000_000)
    assert subscriber.values("x") == [1, 2, 3, 4, 5]
    publisher.ask(Advertise(3, "1", "x > 0"))
    network.run(us=1_000_000)
    publisher.publish({"x": 6}, acknowledged=acknowledged)
    network.run(us=1_000_000)
    assert subscriber.values("x") == [1, 2, 3, 4, 5, 6]
