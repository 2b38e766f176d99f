"""Does one large publication pass, or is it set aside, and never stop what comes behind it?"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from braid.adaptation import SoftLinkSettings
from braid.broker.access import AccessPolicy, Grant, Limits, Principal
from braid.protocol import Frame, PublicationBatch, encode_frames, encode_record
from braid.protocol.limits import FRAME_BYTES_MAX, HEAD_ROOM, carried_bytes
from braid.protocol.messages import (
    Advertise,
    Ask,
    Done,
    Failed,
    PublishRefused,
    Replay,
    Subscribe,
    SubscribeDurable,
    Unsubscribe,
    Welcome,
)
from braid.routing.surroundings import Place
from tests.broker.wire import Network, WireClient

if TYPE_CHECKING:
    from collections.abc import Sequence

KIB = 1024


def pair(left: int, right: int, **settings: Any) -> Network:
    """Two neighbours that read frames of so many bytes."""
    network = Network()
    network.start("A", frame_bytes_max=left, **settings)
    network.start("B", neighbours=("A",), frame_bytes_max=right, **settings)
    network.run(us=1_000_000)
    return network


def subscribed(network: Network, broker: str, filter: str = "n >= 0", **options: Any) -> WireClient:
    client = network.client(f"s at {broker}", broker, **options)
    client.ask(Subscribe(1, "1", filter))
    network.run(us=1_000_000)
    assert client.answers(Done)
    return client


def frame_of(client: WireClient, frame_bytes: int, number: int = 0) -> PublicationBatch:
    """A batch of one row whose frame has exactly so many bytes."""
    client.sequence += 1
    padding = frame_bytes
    while True:
        record = encode_record({"n": number}, 0, b"x" * padding, "application/octet-stream")
        batch = PublicationBatch.of(client.publisher, [client.sequence], [record], acknowledged=True)
        if batch.size <= frame_bytes:
            assert batch.size == frame_bytes
            return batch
        padding -= batch.size - frame_bytes


def publish(client: WireClient, *batches: PublicationBatch) -> None:
    for batch in batches:
        client.channel.offer(batch, batch.sequences.tolist())
    client.flush()


def link_ups(network: Network) -> int:
    return sum(note.what == "link up" for _, note in network.notes)


def refused(client: WireClient) -> list[int]:
    return [number for message in client.answers(PublishRefused) for number in message.sequences]


def counted(network: Network, broker: str) -> int:
    oversized: int = network.cores[broker].statistics()["counters"]["oversized"]
    return oversized


@pytest.mark.parametrize("small_side_dials", [False, True])
@pytest.mark.parametrize("acknowledged", [False, True])
def test_neighbours_that_read_frames_of_unlike_size(small_side_dials: bool, acknowledged: bool) -> None:
    sizes = (4 * KIB * KIB, 64 * KIB)
    network = pair(*(sizes if small_side_dials else reversed(sizes)))
    large, small = ("A", "B") if small_side_dials else ("B", "A")
    subscriber = subscribed(network, small)
    near = network.client("near", large)
    near.ask(Subscribe(1, "1", "n >= 0"))
    publisher = network.client("p", large)
    network.run(us=1_000_000)
    ups = link_ups(network)
    rows: list[dict[str, Any]] = [
        {"n": number, "s": "x" * (10 if number != 3 else 100 * KIB)} for number in range(8)
    ]
    publisher.publish(*rows, acknowledged=acknowledged)
    publisher.publish({"n": 8}, acknowledged=acknowledged)
    network.run(us=5_000_000)
    assert near.values("n") == list(range(9))
    assert subscriber.values("n") == [0, 1, 2, 4, 5, 6, 7, 8]
    assert link_ups(network) == ups
    assert counted(network, large) == 1
    (note,) = [note for _, note in network.notes if "too large" in note.what]
    assert note.fields["publisher"] == publisher.publisher
    assert note.fields["sequences"] == [4]
    if acknowledged:
        assert publisher.cares == list(range(1, 10))
        # Not everybody has it, so its receipt does not say so.
        assert refused(publisher) == [4]


@pytest.mark.parametrize("strategy", ["S0", "S2", "SB"])
def test_a_publisher_far_away_hears_that_not_everybody_has_it(strategy: str) -> None:
    """Also where the publications went over a soft link."""
    network = Network()
    names = "ABCDE"
    for place, name in enumerate(names):
        network.start(
            name,
            neighbours=(names[place - 1],) if place else (),
            frame_bytes_max=(64 if name == "E" else 1024) * KIB,
            strategy=strategy,
            delta=0 if strategy == "SB" else 4 if strategy == "S2" else 1,
            soft_links=SoftLinkSettings(fanout=6, review_us=100_000),
        )
    network.run(us=2_000_000)
    subscriber, near = subscribed(network, "E"), subscribed(network, "D")
    publisher = network.client("p", "A")
    for number in range(20):
        publisher.publish({"n": number}, acknowledged=True)
        network.run(us=100_000)
    assert strategy == "S0" or network.cores["A"]._mesh.outgoing
    publisher.publish({"n": 20, "s": "x" * 100 * KIB}, acknowledged=True)
    network.run(us=1_000_000)
    publisher.publish({"n": 21}, acknowledged=True)
    network.run(us=1_000_000)
    assert near.values("n") == list(range(22))
    assert subscriber.values("n") == [*range(20), 21]
    assert publisher.cares == list(range(1, 23))
    assert refused(publisher) == [21]


def test_a_batch_is_divided_where_each_of_its_rows_fits() -> None:
    network = pair(4 * KIB * KIB, 64 * KIB)
    subscriber = subscribed(network, "B")
    publisher = network.client("p", "A")
    publisher.publish(*({"n": number, "s": "x" * 20 * KIB} for number in range(20)), acknowledged=True)
    network.run(us=5_000_000)
    assert subscriber.values("n") == list(range(20))
    assert publisher.cares == list(range(1, 21))
    assert counted(network, "A") == 0


def test_what_waits_for_a_neighbour_is_divided_when_it_comes_back_with_a_smaller_limit() -> None:
    network = pair(4 * KIB * KIB, 4 * KIB * KIB)
    subscribed(network, "B")
    publisher = network.client("p", "A")
    network.kill("B")
    publisher.publish(*({"n": number, "s": "x" * 20 * KIB} for number in range(10)), acknowledged=True)
    publisher.publish({"n": 10, "s": "x" * 200 * KIB}, {"n": 11}, acknowledged=True)
    network.run(us=1_000_000)
    del network.settings["B"]
    network.start("B", neighbours=("A",), frame_bytes_max=64 * KIB)
    network.run(us=1_000)
    subscriber = network.client("s", "B")
    subscriber.ask(Subscribe(1, "1", "n >= 0"))
    network.run(us=20_000_000)
    publisher.publish({"n": 12}, acknowledged=True)
    network.run(us=1_000_000)
    assert subscriber.values("n")[-1] == 12
    assert 10 not in subscriber.values("n")
    assert publisher.cares == list(range(1, 14))


# Exact limits.


@pytest.mark.parametrize("beyond", [-1, 0, 1])
@pytest.mark.parametrize("strategy", ["S0", "S2", "SB"])
def test_a_frame_of_exactly_the_limit_crosses_a_network(strategy: str, beyond: int) -> None:
    frame_bytes_max = 64 * KIB
    network = Network()
    names = ("A", "B", "C", "D")
    for name, before in zip(names, ("", *names), strict=False):
        network.start(
            name,
            neighbours=(before,) if before else (),
            frame_bytes_max=frame_bytes_max,
            strategy=strategy,
        )
    network.run(us=2_000_000)
    # Filters that do not cover each other, so that each broker is a destination of its own.
    subscribers = [
        subscribed(network, name, f"n >= 0 AND n <> {place + 10}") for place, name in enumerate(names)
    ]
    routed: list[int] = []
    network.on_frames = lambda sender, to, frames: routed.extend(
        body.size for _, body in frames if isinstance(body, PublicationBatch) and body.route
    )
    publisher = network.client("p", "A")
    (welcome,) = publisher.answers(Welcome)
    assert welcome.frame_bytes_max == carried_bytes(frame_bytes_max) == frame_bytes_max - HEAD_ROOM
    publisher.publish({"n": 0}, acknowledged=True)
    network.run(us=2_000_000)
    ups = link_ups(network)
    publish(publisher, frame_of(publisher, welcome.frame_bytes_max + beyond, 1))
    network.run(us=2_000_000)
    if beyond <= 0:
        publisher.publish({"n": 2}, acknowledged=True)
        network.run(us=2_000_000)
        assert [subscriber.values("n") for subscriber in subscribers] == [[0, 1, 2]] * 4
        assert publisher.cares == [1, 2, 3]
        if strategy == "SB":
            assert max(routed) > welcome.frame_bytes_max + beyond
    else:
        # Its own connection is closed, with the reason; nobody else notices.
        assert not publisher.open
        assert [subscriber.values("n") for subscriber in subscribers] == [[0]] * 4
    assert link_ups(network) == ups
    assert all(counted(network, name) == 0 for name in names)


def test_a_principal_with_a_lower_limit_is_told_that() -> None:
    limits = Limits(frame_bytes_max=10 * KIB)
    network = Network()
    network.start("A", access=AccessPolicy(anonymous=Principal("anonymous", Grant.everything(), limits)))
    network.run(us=1_000_000)
    (welcome,) = network.client("c", "A").answers(Welcome)
    assert welcome.frame_bytes_max == 10 * KIB


@pytest.mark.parametrize("beyond", [-1, 0])
def test_a_stored_publication_of_the_largest_size_reaches_a_reader_with_a_long_name(beyond: int) -> None:
    network = Network()
    network.start("A", store=True)
    network.run(us=1_000_000)
    sent: list[int] = []

    def measure(sender: str, to: str, frames: Sequence[Frame]) -> None:
        sent.extend(len(encode_frames([frame])) for frame in frames)

    network.on_frames = measure
    name = "\U0001f600" * 200
    reader = network.client("r", "A", credit=1 << 24)
    reader.ask(SubscribeDurable(1, name, "n >= 0"))
    publisher = network.client("p" * 90, "A")
    limit = publisher.answers(Welcome)[0].frame_bytes_max
    publish(publisher, frame_of(publisher, limit + beyond, 1))
    publisher.publish({"n": 2}, acknowledged=True)
    network.run(us=2_000_000)
    assert [publication.attributes["n"] for _, _, publication in reader.stored] == [1, 2]
    reader.ask(Replay(2, name, 0))
    network.run(us=2_000_000)
    assert len(reader.stored) == 4
    assert max(sent) <= FRAME_BYTES_MAX


# Clients that read less.


def test_a_subscriber_that_reads_small_frames_only() -> None:
    network = Network()
    network.start("A")
    network.run(us=1_000_000)
    subscriber = subscribed(network, "A", frame_bytes_max=32 * KIB)
    publisher = network.client("p", "A")
    publisher.publish(*({"n": number, "s": "x" * 10 * KIB} for number in range(10)), acknowledged=True)
    publisher.publish({"n": 10, "s": "x" * 40 * KIB}, {"n": 11}, acknowledged=True)
    network.run(us=1_000_000)
    assert subscriber.open
    assert subscriber.values("n") == [*range(10), 11]
    assert counted(network, "A") == 1
    assert publisher.cares == list(range(1, 13))


def test_a_reader_that_reads_small_frames_only() -> None:
    network = Network()
    network.start("A", store=True)
    network.run(us=1_000_000)
    reader = network.client("r", "A", frame_bytes_max=32 * KIB)
    reader.ask(SubscribeDurable(1, "log", "n >= 0"))
    publisher = network.client("p", "A")
    publisher.publish(*({"n": number, "s": "x" * 10 * KIB} for number in range(10)), acknowledged=True)
    publisher.publish({"n": 10, "s": "x" * 40 * KIB}, {"n": 11}, acknowledged=True)
    network.run(us=1_000_000)
    assert reader.open
    assert [publication.attributes["n"] for _, _, publication in reader.stored] == [*range(10), 11]
    assert counted(network, "A") == 1
    reader.ask(Replay(2, "log", 10, 10))
    network.run(us=1_000_000)
    assert 2 in [done.request for done in reader.answers(Done)]
    assert counted(network, "A") == 2


def test_an_answer_that_is_too_large_for_its_asker_is_an_error() -> None:
    network = Network()
    network.start("A")
    network.run(us=1_000_000)
    asker = network.client("a", "A", frame_bytes_max=400)
    asker.ask(Ask(1, "statistics"))
    asker.ask(Subscribe(2, "1", "n >= 0"))
    network.run(us=1_000_000)
    assert asker.open
    (failed,) = asker.answers(Failed)
    assert (failed.request, failed.code) == (1, "limit")
    assert [done.request for done in asker.answers(Done)] == [2]


# Filters and neighbours.


def test_a_large_map_reaches_a_neighbour_that_reads_small_frames() -> None:
    """A hundred brokers with long names behind B, which A reads of in frames of 4 KiB."""
    network = Network()
    network.start("A", frame_bytes_max=4 * KIB, strategy="S1", delta=4)
    network.start("B", neighbours=("A",), strategy="S1", delta=4)
    network.run(us=1_000_000)
    surroundings = network.cores["B"]._maps.surroundings
    names = [f"{'n' * 55}{number:03}" for number in range(100)]
    surroundings.meet("far", "host:1", 4)
    surroundings.hear("far", [Place(name, "far", "host:1") for name in names], [])
    sizes: list[int] = []
    network.on_frames = lambda sender, to, frames: sizes.extend(
        len(encode_frames([frame])) for frame in frames
    )
    network.cores["B"]._maps.changed()
    network.run(us=20_000_000)
    assert max(sizes) <= 4 * KIB
    heard = network.cores["A"]._maps.surroundings._heard["B"]
    assert set(names) <= set(heard)


def test_a_filter_that_a_neighbour_cannot_be_told_is_refused() -> None:
    network = pair(4 * KIB * KIB, 40 * KIB)
    client = network.client("s", "A")
    client.ask(Subscribe(1, "1", "s = '" + "x" * 30 * KIB + "'"))
    client.ask(Subscribe(2, "2", "s = '" + "x" * 10 * KIB + "'"))
    network.run(us=1_000_000)
    (failed,) = client.answers(Failed)
    assert (failed.request, failed.code) == (1, "limit")
    assert [done.request for done in client.answers(Done)] == [2]


def test_instead_of_a_filter_from_before_that_does_not_fit_everything_is_told() -> None:
    network = Network()
    network.start("A", frame_bytes_max=4 * KIB * KIB)
    network.run(us=1_000_000)
    client = network.client("s", "A")
    client.ask(Subscribe(1, "1", "n = 3 OR s = '" + "x" * 60 * KIB + "'"))
    client.ask(Subscribe(2, "2", "n = 1"))
    network.run(us=1_000_000)
    network.start("B", neighbours=("A",), frame_bytes_max=40 * KIB)
    network.run(us=2_000_000)
    publisher = network.client("p", "B")
    publisher.publish({"n": 1}, {"n": 2}, {"n": 3}, acknowledged=True)
    network.run(us=2_000_000)
    assert client.values("n") == [1, 3]
    assert link_ups(network) == 2
    assert counted(network, "A") >= 1


def test_a_filter_that_does_not_fit_further_on_hides_nobody() -> None:
    """C reads small frames: what A asks for cannot be told to it, and covers what others at A ask for."""
    network = Network()
    network.start("A", neighbours=("B",))
    network.start("B", neighbours=("C",))
    network.start("C", frame_bytes_max=40 * KIB)
    network.run(us=2_000_000)
    wide = network.client("wide", "A")
    wide.ask(Subscribe(1, "1", "n > 0 OR s = '" + "x" * 60 * KIB + "'"))
    network.run(us=1_000_000)
    innocent = subscribed(network, "A", "n > 10")
    beside = subscribed(network, "B", "n > 20")
    assert wide.answers(Done)
    publisher = network.client("p", "C")
    publisher.publish(*({"n": number} for number in (0, 5, 15, 25)), acknowledged=True)
    network.run(us=2_000_000)
    assert wide.values("n") == [5, 15, 25]
    assert innocent.values("n") == [15, 25]
    assert beside.values("n") == [25]
    assert publisher.cares == [1, 2, 3, 4]
    assert counted(network, "B") >= 1
    # When it goes, nobody gets more than was asked for, and nobody less.
    wide.ask(Unsubscribe(2, "1"))
    network.run(us=1_000_000)
    publisher.publish({"n": 5}, {"n": 16}, acknowledged=True)
    network.run(us=1_000_000)
    assert innocent.values("n") == [15, 25, 16]


def test_an_advertisement_that_does_not_fit_further_on_narrows_no_subscription() -> None:
    network = Network()
    network.start("A", neighbours=("B",))
    network.start("B", neighbours=("C",))
    network.start("C", frame_bytes_max=40 * KIB)
    network.run(us=2_000_000)
    publisher = network.client("p", "A")
    publisher.ask(Advertise(1, "1", "n > 0 OR s = '" + "x" * 60 * KIB + "'"))
    second = network.client("q", "A")
    second.ask(Advertise(1, "1", "n > 10"))
    network.run(us=1_000_000)
    assert publisher.answers(Done)
    assert second.answers(Done)
    subscriber = subscribed(network, "C", "n > 20")
    for client in (publisher, second):
        client.publish({"n": 15}, {"n": 25}, acknowledged=True)
    network.run(us=2_000_000)
    assert subscriber.values("n") == [25, 25]
    assert publisher.cares == second.cares == [1, 2]
