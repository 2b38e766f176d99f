"""Does a peer's mistake, or malice, stay its own problem?"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np
import pytest

from braid.broker import liveness
from braid.broker.access import AccessPolicy, Grant, Principal, hashed_token
from braid.language import Filter
from braid.protocol import Frame, PublicationBatch, encode_record
from braid.protocol.inputs import Writable
from braid.protocol.messages import (
    PROTOCOL_VERSION,
    Acknowledgement,
    Advertise,
    Ask,
    Done,
    Failed,
    Hello,
    Ping,
    Pong,
    PublishRefused,
    Refused,
    StoredPublications,
    Subscribe,
    SubscribeDurable,
    Unsubscribe,
    Welcome,
)
from tests.broker.wire import Network, WireClient

if TYPE_CHECKING:
    from collections.abc import Sequence

# Values that msgpack can say and publications cannot have.
IMPOSSIBLE: list[Any] = [[1], {"b": 1}, b"bytes", 2**64 - 1]


def line(*names: str, **settings: Any) -> Network:
    """Brokers in a row, each linked to the one before."""
    network = Network()
    neighbours: tuple[str, ...] = ()
    for name in names:
        network.start(name, neighbours=neighbours, **settings)
        network.run(us=500_000)
        neighbours = (name,)
    network.run(us=500_000)
    return network


def offer(client: WireClient, *records: bytes, acknowledged: bool = False, first: int = 1) -> None:
    """Publish what an honest client would not."""
    numbers = range(first, first + len(records))
    batch = PublicationBatch.of(client.name, numbers, records, acknowledged=acknowledged, receipt=True)
    client.channel.offer(batch, numbers if acknowledged else None)
    client.flush()


def raw(values: dict[str, Any]) -> bytes:
    return msgspec.msgpack.encode((values, 0))


def require_served(network: Network, at: str, text: str = "served > 0") -> None:
    """A well-behaved pair is served."""
    subscriber, publisher = network.client("good-subscriber", at), network.client("good-publisher", at)
    subscriber.ask(Subscribe(1, "1", text))
    network.run(us=50_000)
    publisher.publish({"served": 1}, acknowledged=True)
    network.run(us=50_000)
    assert subscriber.values("served") == [1]
    assert publisher.channel.idle


@pytest.mark.parametrize("value", IMPOSSIBLE, ids=lambda value: type(value).__name__)
@pytest.mark.parametrize("acknowledged", [False, True])
@pytest.mark.parametrize("case", ["open", "granted", "many", "advertised"])
def test_a_value_that_cannot_be_is_refused_wherever_it_is_looked_at(
    value: Any, acknowledged: bool, case: str
) -> None:
    grant = Grant(Filter("TRUE" if case == "open" else "a >= 0 OR a < 0 OR b > 0"), Filter("TRUE"), link=True)
    access = AccessPolicy(anonymous=Principal("anonymous", grant))
    network = line("A", "B", access=access)
    subscriber = network.client("alice", "B")
    subscriber.ask(Subscribe(1, "1", "a > 0"))
    carol = network.client("carol", "A")
    if case == "advertised":
        carol.ask(Advertise(1, "1", "a > 0"))
    network.run(us=100_000)
    good = raw({"a": 1})
    rows = [good, raw({"a": value}), *([good] * (100 if case == "many" else 1))]
    offer(carol, *rows, acknowledged=acknowledged)
    network.run(us=200_000)
    assert [refused.sequences for refused in carol.answers(PublishRefused)] == [[2]]
    assert len(subscriber.publications) == len(rows) - 1
    assert carol.channel.idle
    assert carol.open


@pytest.mark.parametrize("subscribed_here", [False, True])
def test_a_value_that_cannot_be_is_not_kept_for_a_neighbour_that_is_away(subscribed_here: bool) -> None:
    network = line("A", "B", store=True)
    if subscribed_here:
        network.client("alice", "A").ask(Subscribe(1, "1", "a > 1"))
    reader = network.client("bob", "B")
    reader.ask(SubscribeDurable(1, "log", "a > 0"))
    network.run(us=100_000)
    network.kill("B")
    carol = network.client("carol", "A")
    offer(carol, raw({"a": [1]}), acknowledged=True)
    offer(carol, raw({"a": 2}), acknowledged=True, first=2)
    network.run(us=7_000_000)
    network.start("B")
    network.run(us=7_000_000)
    assert [refused.sequences for refused in carol.answers(PublishRefused)] == [[1]]
    assert carol.channel.idle
    reader = network.client("bob", "B")
    reader.ask(SubscribeDurable(1, "log", ""))
    network.run(us=100_000)
    assert [publication["a"] for _, _, publication in reader.stored] == [2]


def test_a_record_that_subscribers_could_not_read_ends_its_publishers_connection() -> None:
    network = line("A", store=True)
    alice = network.client("alice", "A")
    alice.ask(Subscribe(1, "1", "a > 0"))
    alice.ask(SubscribeDurable(2, "log", "a > 0"))
    carol = network.client("carol", "A")
    offer(carol, msgspec.msgpack.encode(({"a": 1}, "noon")))
    network.run(us=100_000)
    assert [refused.code for refused in carol.answers(Refused)] == ["protocol"]
    assert not carol.open
    assert alice.open
    assert not alice.publications
    assert not alice.stored


def test_sequence_numbers_far_apart_arrive_as_they_were() -> None:
    """Batches of one read are made one, whose rows say in 32 bits how far they are from the first."""
    network = line("A", "B")
    alice = network.client("alice", "B")
    alice.ask(Subscribe(1, "1", "a > 0"))
    carol = network.client("carol", "A")
    network.run(us=100_000)
    numbers = [1, 2**31, 2**32 - 5, 2**32 + 5, 2**33]
    for number in numbers:
        batch = PublicationBatch.of("carol", [number], [raw({"a": 1})], receipt=True)
        carol.channel.offer(batch)
    carol.flush()
    network.run(us=500_000)
    assert [publication.sequence for publication in alice.publications] == numbers


def test_several_batches_made_one_say_what_each_of_them_said() -> None:
    batches = [
        PublicationBatch.of("carol", [1, 2], [raw({"a": 1}), raw({"a": 2})]),
        PublicationBatch.of("carol", [5], [raw({"a": 5})], receipt=True),
    ]
    assert batches[1].continues(batches[0])
    assert not batches[0].continues(batches[1])
    joined = PublicationBatch.joined(batches)
    assert joined.sequences.tolist() == [1, 2, 5]
    assert joined.records() == [record for batch in batches for record in batch.records()]
    assert joined.receipt
    assert [values["a"] for values in joined.select(np.array([0, 2])).attributes()] == [1, 5]


def test_a_greeting_that_has_become_outdated_is_put_right() -> None:
    """A greets B as one who connects it to X; before B answers, X is gone."""
    network = line("B", "A")
    network.start("X", neighbours=("A",))
    network.kill("B")
    network.run(us=500_000)

    def crossed(source: str, target: str, frames: Sequence[Frame]) -> None:
        if (source, target) == ("A", "B") and any(isinstance(frame.body, Hello) for frame in frames):
            network.kill("X")

    network.on_frames = crossed
    network.start("B")
    network.run(us=3_000_000)
    assert "X" not in network.cores, "the moment did not come"
    assert network.cores["B"]._links.links["A"].behind == {"A"}


def test_nothing_is_lost_that_is_published_right_behind_an_advertisement() -> None:
    """A client that comes back says both in one go; subscribers must have been asked before it is routed."""
    network = line("A", "B", "C", store=True)
    reader = network.client("alice", "C")
    reader.ask(SubscribeDurable(1, "log", "a > 0"))
    network.run(us=100_000)
    carol = network.client("carol", "A")
    carol.channel.offer(Advertise(1, "1", "a > 0"))
    carol.publish({"a": 1}, acknowledged=True)
    carol.publish({"a": 2})
    network.run(us=500_000)
    assert [publication["a"] for _, _, publication in reader.stored] == [1, 2]
    assert carol.channel.idle
    assert not network.cores["A"]._subscriptions.universal, "the advertisement was enough"


def test_what_is_kept_until_a_broker_is_ready_stays_within_the_clients_window() -> None:
    network = Network()
    network.start("A", neighbours=("B",))
    network.run()
    carol = network.client("carol", "A")
    record = encode_record({"a": 1}, 0, b"x" * 100_000)
    for number in range(1, 101):
        offer(carol, record, first=number)
        network.run()
    (client,) = network.cores["A"]._connections.clients
    window = client.channel.settings.window_bytes
    assert sum(batch.size for batch, _ in client.unrouted) <= window + len(record) + 100
    network.start("B")
    network.run(us=1_000_000)
    alice = network.client("alice", "A")
    alice.ask(Subscribe(1, "1", "a > 0"))
    network.run(us=7_000_000)
    assert not client.unrouted
    assert carol.channel.idle, "it goes on where it had to wait"


def test_owners_with_slashes_in_their_names_have_logs_of_their_own() -> None:
    grant = Grant.everything()
    principals = {name: Principal(name, grant) for name in ("a", "a/b", "a%2Fb")}
    tokens = {hashed_token(name): name for name in principals}
    network = Network()
    network.start("A", access=AccessPolicy(principals=principals, tokens=tokens), store=True)
    network.run(us=100_000)
    for owner, name, text in (("a", "b/c", "n = 1"), ("a/b", "c", "n = 2"), ("a%2Fb", "c", "n = 3")):
        client = network.client(f"client of {owner}", "A", token=owner)
        client.ask(SubscribeDurable(1, name, text))
        network.run(us=50_000)
        assert client.answers(Done) == [Done(1, text)]
    assert len(network.cores["A"]._durables.logs) == 3
    network.kill("A")
    network.start("A")
    network.run(us=100_000)
    client = network.client("again", "A", token="a/b")
    client.ask(SubscribeDurable(1, "c", ""))
    network.run(us=50_000)
    assert client.answers(Done) == [Done(1, "n = 2")]


def test_stored_rows_travel_in_frames_that_are_not_larger_than_the_largest_row() -> None:
    network = line("A", store=True, durable_window_bytes=10_000, durable_tail_bytes=10_000_000)
    alice = network.client("alice", "A")
    alice.ask(SubscribeDurable(1, "log", "n > 0"))
    network.run(us=50_000)
    network.leave(alice)
    carol = network.client("carol", "A")
    for number, size in enumerate((6_000, 50_000, 100, 100, 50_000), 1):
        offer(carol, encode_record({"n": number}, 0, b"x" * size), first=number)
    network.run(us=50_000)
    alice = network.client("alice", "A")
    alice.ask(SubscribeDurable(1, "log", ""))
    network.run(us=500_000)
    stored = alice.answers(StoredPublications)
    assert [publication["n"] for _, _, publication in alice.stored] == [1, 2, 3, 4, 5]
    sizes = [sum(len(record) for _, _, record in each.rows) for each in stored]
    assert max(sizes) < 51_000, sizes


def test_one_who_takes_nothing_gets_no_pongs() -> None:
    network = line("A")
    mallory = network.client("mallory", "A")
    sent: list[Frame] = []
    network.on_frames = lambda source, target, frames: sent.extend(frames)
    network.tell("A", Writable(mallory.connection, False))
    network.from_client(mallory, [Frame(0, Ping(number)) for number in range(100)])
    network.run()
    assert not [frame for frame in sent if isinstance(frame.body, Pong)]
    network.tell("A", Writable(mallory.connection, True))
    network.from_client(mallory, [Frame(0, Ping(7))])
    network.run()
    assert [frame.body for frame in sent if isinstance(frame.body, Pong)] == [Pong(7)]


def test_one_who_asks_and_never_acknowledges_is_sent_away(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(liveness, "ANSWERS_MAX", 50)
    network = line("A")
    mallory = network.client("mallory", "A")
    mallory.reads = False
    for number in range(1, 100):
        mallory.ask(Unsubscribe(number, "nothing"))
        network.run()
    assert not mallory.open
    codes = [frame.body.code for frame in mallory.unread if isinstance(frame.body, Refused)]
    assert codes == ["protocol"]
    honest = network.client("alice", "A")
    for number in range(1, 200):
        honest.ask(Unsubscribe(number, "nothing"))
        network.run(us=30_000)
    assert len(honest.answers(Failed)) == 199
    assert honest.open


def test_a_broker_that_is_detached_while_it_dials_stays_detached() -> None:
    network = Network()
    network.start("A")
    network.start("B")
    network.run(us=100_000)
    operator = network.client("op", "B")
    operator.ask(Ask(1, "append", {"to": "A"}))
    operator.ask(Ask(2, "detach", {}))
    network.run(us=5_000_000)
    assert [type(answer) for answer in operator.heard] == [Welcome, Done, Done]
    assert network.cores["A"].statistics()["links"] == 0
    assert network.cores["B"].statistics()["links"] == 0


@pytest.mark.parametrize(
    ("frames", "code"),
    [
        ([Frame(0, Ping(1))], "protocol"),
        ([Frame(1, Subscribe(1, "1", "TRUE"))], "protocol"),
        ([Frame(1, PublicationBatch.of("eve", [1], [raw({})]))], "protocol"),
        ([Frame(0, Hello(99, "client", "eve", "eve-1"))], "version"),
        ([Frame(0, Hello(PROTOCOL_VERSION, "client", "", "eve-1"))], "protocol"),
        ([Frame(0, Hello(PROTOCOL_VERSION, "client", "e" * 201, "eve-1"))], "protocol"),
        ([Frame(0, Hello(PROTOCOL_VERSION, "client", "eve", ""))], "protocol"),
        ([Frame(0, Hello(PROTOCOL_VERSION, "spy", "eve", "eve-1"))], "authentication"),
        ([Frame(0, Hello(PROTOCOL_VERSION, "broker", "not an id", "eve-1"))], "protocol"),
        ([Frame(0, Hello(PROTOCOL_VERSION, "broker", "A", "eve-1"))], "protocol"),
        ([Frame(0, Welcome(PROTOCOL_VERSION, "eve", "eve-1"))], "protocol"),
    ],
)
def test_whoever_does_not_greet_properly_is_told_and_sent_away(frames: list[Frame], code: str) -> None:
    network = line("A")
    eve = Silent(network, "A")
    network.from_client(eve, frames)
    network.run(us=50_000)
    assert [refused.code for refused in eve.answers(Refused)] == [code]
    assert not eve.open
    require_served(network, "A")


def test_whoever_never_greets_is_sent_away_in_time() -> None:
    network = line("A", handshake_us_max=1_000_000)
    eve = Silent(network, "A")
    network.run(us=900_000)
    assert eve.open
    network.run(us=1_500_000)
    assert not eve.open
    assert [refused.code for refused in eve.answers(Refused)] == ["late"]


def test_a_neighbour_cannot_take_over_what_is_ours() -> None:
    """It may remember it from a time when we were linked elsewhere; our own tables know better."""
    network = line("A", store=True)
    alice, carol = network.client("alice", "A"), network.client("carol", "A")
    alice.ask(Subscribe(1, "1", "a > 0"))
    alice.ask(SubscribeDurable(2, "log", "a > 0"))
    network.run(us=50_000)
    tables = network.cores["A"]._subscriptions.tables
    neighbour = Silent(network, "A")
    network.from_client(neighbour, [Frame(0, Hello(PROTOCOL_VERSION, "broker", "B", "B-1", credit=1 << 22))])
    network.run(us=50_000)
    for number, key in enumerate(list(tables.matcher), 1):
        neighbour.ask(Subscribe(number, str(key), "TRUE"))
    neighbour.ask(Advertise(3, "A/*", "TRUE"))
    network.run(us=50_000)
    assert [done.request for done in neighbour.answers(Done)] == [1, 2, 3], "it is answered all the same"
    carol.publish({"a": 1})
    network.run(us=20_000_000)  # it never answers, and is waited for only so long
    assert alice.values("a") == [1]
    assert [publication["a"] for _, _, publication in alice.stored] == [1]


class Silent(WireClient):
    """A connection that has said nothing yet."""

    def __init__(self, network: Network, broker: str) -> None:
        self._silent = True
        super().__init__(network, "eve", broker)
        network.run()

    def _say(self, message: Any) -> None:
        if not self._silent:
            super()._say(message)


@pytest.mark.parametrize(
    "message",
    [
        Acknowledgement(99, 0, 1 << 22),
        Acknowledgement(0, 0, 1),
        Hello(PROTOCOL_VERSION, "client", "eve", "eve-1"),
        Welcome(PROTOCOL_VERSION, "eve", "eve-1"),
    ],
)
def test_nonsense_in_the_middle_of_a_session_ends_it(message: Any) -> None:
    network = line("A")
    eve = network.client("eve", "A")
    network.from_client(eve, [Frame(0, message)])
    network.run(us=50_000)
    assert [refused.code for refused in eve.answers(Refused)] == ["protocol"]
    assert not eve.open
    require_served(network, "A")


@pytest.mark.parametrize(
    "body",
    [
        PublicationBatch.of("somebody", [1], [raw({"a": 1})]),
        PublicationBatch.of("evelyn", [1], [raw({"a": 1})]),
        PublicationBatch.of("eve", [1], [raw({"a": 1})]).readdressed(further=True),
        Done(1),
        StoredPublications("log", 0, []),
    ],
)
def test_what_a_client_may_not_say_ends_its_connection(body: Any) -> None:
    network = line("A")
    alice = network.client("alice", "A")
    alice.ask(Subscribe(1, "1", "TRUE"))
    eve = network.client("eve", "A")
    eve.channel.offer(body)
    eve.flush()
    network.run(us=50_000)
    assert [refused.code for refused in eve.answers(Refused)] == ["protocol"]
    assert not alice.publications
    require_served(network, "A")


def test_a_client_cannot_touch_another_ones_subscriptions() -> None:
    network = line("A")
    alice, eve = network.client("alice", "A"), network.client("eve", "A")
    alice.ask(Subscribe(1, "1", "a > 0"))
    network.run()
    (key,) = network.cores["A"]._subscriptions.tables.matcher
    for guess in ("1", str(key), f"../{key}"):
        eve.ask(Unsubscribe(1, guess))
    network.run(us=50_000)
    assert [failed.code for failed in eve.answers(Failed)] == ["unknown"] * 3
    eve.publish({"a": 1})
    network.run(us=50_000)
    assert alice.values("a") == [1]
