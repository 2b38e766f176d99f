"""Can anything that comes over a connection make a broker stumble, or reach somebody else?

Attackers say random things, in the right form and in wrong ones. The core never raises, honest clients hear
what honest clients published and nothing else, and afterwards they are served as before.
"""

from __future__ import annotations

import random
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from braid.broker.access import AccessPolicy, Grant, Principal, hashed_token
from braid.errors import RemoteProtocolError
from braid.language import Filter
from braid.protocol import Frame, FrameDecoder, PublicationBatch, encode_frames, encode_record
from braid.protocol.inputs import Closed, Malformed, Opened, Received
from braid.protocol.messages import (
    PROTOCOL_VERSION,
    UNSEQUENCED,
    Acknowledge,
    AcknowledgeDurable,
    Acknowledgement,
    Advertise,
    Ask,
    CreateDurable,
    DropDurable,
    Hello,
    LogStatus,
    Ping,
    PinLog,
    Replay,
    Subscribe,
    SubscribeDurable,
    SyncBegin,
    TablesComplete,
    Unadvertise,
    Unsubscribe,
)
from tests.broker.wire import Network, WireClient
from tests.fuzz.strategies import INT64, TEXT, batches, messages, values

PRINCIPALS = {
    "honest": Principal("honest", Grant.everything()),
    # What it may publish has no part in what the honest ones talk about.
    "eve": Principal("eve", Grant(Filter("evil = TRUE"), Filter("TRUE"))),
    "B": Principal("B", Grant.everything()),
    "link": Principal("link", Grant.everything()),
}


class Attacker:
    """A connection that says whatever it is told to."""

    def __init__(self, network: Network, broker: str) -> None:
        self.network = network
        self.broker = broker
        network._connections += 1
        self.connection = network._connections
        self.decoder = FrameDecoder()
        self.open = True
        self.sequence = 0
        network.tell(broker, Opened(self.connection, "somewhere"))

    def bytes(self, data: bytes) -> None:
        if not self.open:
            return
        try:
            frames = self.decoder.feed(data)
        except RemoteProtocolError as error:
            self.network.tell(self.broker, Malformed(self.connection, str(error)))
            self.open = False
            return
        if frames:
            self.network.tell(self.broker, Received(self.connection, frames))

    def say(self, body: Any, *, sequence: int | None = None) -> None:
        if isinstance(body, UNSEQUENCED):
            self.bytes(encode_frames([Frame(0, body)]))
            return
        if sequence is None:
            self.sequence += 1
            sequence = self.sequence
        self.bytes(encode_frames([Frame(sequence, body)]))

    def leave(self) -> None:
        self.network.tell(self.broker, Closed(self.connection, "gone"))
        self.open = False


class Scene:
    """Two brokers and an honest pair, who talk throughout."""

    def __init__(self) -> None:
        tokens = {hashed_token(name): name for name in PRINCIPALS}
        access = AccessPolicy(principals=PRINCIPALS, tokens=tokens)
        self.network = Network()
        for name, neighbours in (("A", ()), ("B", ("A",))):
            self.network.start(name, neighbours=neighbours, access=access, store=True, link_token="B")
            self.network.run(us=1_000_000)
        self.alice = self.network.client("alice", "A", token="honest")
        self.bob = self.network.client("bob", "B", token="honest")
        self.carol = self.network.client("carol", "A", token="honest")
        for subscriber in (self.alice, self.bob):
            subscriber.ask(Subscribe(1, "1", "honest > 0"))
            subscriber.ask(SubscribeDurable(2, subscriber.name, "honest > 0"))
        self.network.run(us=200_000)
        self.published = 0
        self.talk()

    def talk(self) -> None:
        self.published += 1
        self.carol.publish({"honest": self.published})
        self.network.run(us=100_000)

    def check(self) -> None:
        """The honest pair has heard everything that it said, and nothing else."""
        self.talk()
        expected = list(range(1, self.published + 1))
        for subscriber in (self.alice, self.bob):
            assert subscriber.open
            assert subscriber.values("honest") == expected
            assert {publication.publisher for publication in subscriber.publications} == {
                self.carol.publisher
            }
            assert [publication["honest"] for _, _, publication in subscriber.stored] == expected
        assert self.carol.open
        assert self.carol.channel.idle


FILTERS = (
    st.sampled_from(["TRUE", "FALSE", "honest > 0", "honest % 2 = 0", "a = 'x' OR NOT b < 3", "a LIKE '%x'"])
    | TEXT
)
SMALL = st.integers(-2, 5)
NAMES = st.sampled_from(["1", "2", "alice", "log", "", "B/*", "A/A-1.1/1"]) | TEXT
LIKELY = st.one_of(
    st.builds(Subscribe, SMALL, NAMES, FILTERS, st.sampled_from(["block", "drop_oldest", "disconnect", "?"])),
    st.builds(Unsubscribe, SMALL, NAMES),
    st.builds(Advertise, SMALL, NAMES, FILTERS),
    st.builds(Unadvertise, SMALL, NAMES),
    st.builds(SubscribeDurable, SMALL, NAMES, FILTERS, st.just("drop_oldest"), SMALL | INT64),
    st.builds(Acknowledge, NAMES, SMALL | INT64),
    st.builds(Replay, SMALL, NAMES, SMALL | INT64, SMALL | INT64),
    st.builds(
        Replay,
        SMALL,
        NAMES,
        SMALL,
        SMALL,
        complete=st.booleans(),
        filter=FILTERS,
        columns=st.none() | st.lists(NAMES, max_size=3),
    ),
    st.builds(CreateDurable, SMALL, NAMES, FILTERS, st.sampled_from(["block", "drop_oldest", "?"])),
    st.builds(LogStatus, SMALL, NAMES),
    st.builds(AcknowledgeDurable, SMALL, NAMES, SMALL | INT64),
    st.builds(PinLog, SMALL, NAMES, NAMES, SMALL | INT64, SMALL | INT64),
    st.builds(DropDurable, SMALL, NAMES),
    st.builds(Ask, SMALL, st.sampled_from(["overlay", "append", "detach", "x"]), st.just({"to": "Z"})),
    st.builds(Ping, INT64),
    st.builds(Acknowledgement, SMALL, SMALL, st.just(1 << 22)),
)


@st.composite
def publications(draw: Any) -> PublicationBatch:
    """Batches in the attacker's own name, with anything in them."""
    count = draw(st.integers(1, 3))
    first = draw(st.integers(0, 3) | st.sampled_from([2**31, 2**40, 2**63 - 10]))
    rows = [
        encode_record(
            {
                "evil": True,
                **draw(st.dictionaries(st.sampled_from(["a", "b", "honest", ""]), values(), max_size=3)),
            },
            0,
        )
        for _ in range(count)
    ]
    if draw(st.integers(0, 9)) == 0:
        rows[0] = draw(st.binary(max_size=12))
    batch = PublicationBatch.of(
        draw(st.sampled_from(["eve/eve", "eve/x"])),
        range(first, first + count),
        rows,
        acknowledged=draw(st.booleans()),
        receipt=draw(st.booleans()),
        again=draw(st.booleans()),
    )
    batch.target = draw(st.integers(0, 4))
    return batch


def harmless(batch: PublicationBatch) -> PublicationBatch:
    """Without the attribute that the honest ones listen to: that is for them to hear."""
    try:
        rows = [
            encode_record({name: value for name, value in each.items() if name != "honest"}, 0)
            for each in batch.attributes()
        ]
    except RemoteProtocolError:
        return batch
    return PublicationBatch.of(
        batch.publisher,
        batch.sequences.tolist(),
        rows,
        acknowledged=batch.acknowledged,
        receipt=batch.receipt,
        again=batch.again,
    )


BODIES = LIKELY | publications().map(harmless) | messages() | batches(rows_max=2)
STEPS = st.lists(
    st.tuples(BODIES, st.none() | st.none() | st.none() | st.integers(0, 5), st.booleans()),
    min_size=1,
    max_size=12,
)
SLOW = settings(max_examples=100, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])


@SLOW
@given(STEPS, st.booleans())
def test_a_client_that_says_anything_stays_alone_with_it(
    steps: list[tuple[Any, int | None, bool]], leaves: bool
) -> None:
    scene = Scene()
    eve = Attacker(scene.network, "A")
    eve.say(Hello(PROTOCOL_VERSION, "client", "eve", "eve-1", "eve", credit=1 << 20))
    for body, sequence, pause in steps:
        eve.say(body, sequence=sequence)
        if pause:
            scene.network.run(us=50_000)
    if leaves:
        eve.leave()
    scene.network.run(us=100_000)
    scene.check()


@SLOW
@given(st.lists(st.tuples(messages() | LIKELY, st.booleans()), min_size=1, max_size=10))
def test_a_greeting_that_is_anything_lets_nobody_in(steps: list[tuple[Any, bool]]) -> None:
    scene = Scene()
    for body, more in steps:
        eve = Attacker(scene.network, "A")
        eve.say(body)
        if more:
            eve.say(Hello(PROTOCOL_VERSION, "client", "eve", "eve-1", "wrong"))
    scene.network.run(us=100_000)
    assert scene.network.cores["A"].statistics()["clients"] == 2
    scene.check()


LINK = st.one_of(
    st.builds(Subscribe, SMALL, NAMES, FILTERS),
    st.builds(Unsubscribe, SMALL, NAMES),
    st.builds(Advertise, SMALL, NAMES, FILTERS),
    st.builds(Unadvertise, SMALL, NAMES),
    st.builds(SyncBegin),
    st.builds(TablesComplete),
    messages(),
    batches(rows_max=2),
    publications().map(harmless),
)


@SLOW
@given(st.lists(st.tuples(LINK, st.booleans()), min_size=1, max_size=10), st.booleans())
def test_a_neighbour_that_says_anything_does_not_stop_a_broker(
    steps: list[tuple[Any, bool]], again: bool
) -> None:
    """A neighbour is trusted with what it carries, so that others may hear it; but nothing breaks."""
    scene = Scene()
    for _ in range(1 + again):
        evil = Attacker(scene.network, "A")
        evil.say(Hello(PROTOCOL_VERSION, "broker", "link", "link-1", "link", credit=1 << 20))
        for body, pause in steps:
            evil.say(body)
            if pause:
                scene.network.run(us=50_000)
        evil.leave()
    scene.network.run(us=7_000_000)
    before = len(scene.alice.publications), len(scene.bob.publications)
    scene.talk()
    assert scene.alice.values("honest")[before[0] :] == [scene.published]
    assert scene.bob.values("honest")[before[1] :] == [scene.published]


def recorded() -> list[bytes]:
    """What a client says in a good long conversation, frame by frame."""
    said: list[Any] = [
        Hello(PROTOCOL_VERSION, "client", "eve", "eve-1", "eve", credit=1 << 20),
        Subscribe(1, "1", "a > 10 AND b LIKE 'x%'"),
        Subscribe(2, "2", "TRUE", "drop_oldest"),
        Advertise(3, "1", "evil = TRUE AND a < 100"),
        SubscribeDurable(4, "log", "a > 0"),
        PublicationBatch.of("eve/eve", [1, 2], [encode_record({"evil": True, "a": n}, 0) for n in (5, 50)]),
        Ping(1),
        Acknowledgement(0, 0, 1 << 21),
        Acknowledge("log", 0),
        Replay(5, "log", 0, -1),
        PublicationBatch.of(
            "eve/eve", [3], [encode_record({"evil": True, "b": "xy"}, 0, b"body")], acknowledged=True
        ),
        Unsubscribe(6, "2"),
        Unadvertise(7, "1"),
        Ask(8, "overlay", {}),
        DropDurable(9, "log"),
    ]
    frames: list[bytes] = []
    number = 0
    for body in said:
        sequenced = not isinstance(body, UNSEQUENCED)
        number += sequenced
        frames.append(encode_frames([Frame(number if sequenced else 0, body)]))
    return frames


def mutated(frames: list[bytes], chance: random.Random) -> bytes:
    """The conversation with something wrong in it."""
    frames = list(frames)
    for _ in range(chance.randrange(1, 4)):
        at = chance.randrange(len(frames))
        frame = bytearray(frames[at])
        if not frame:
            continue  # it was taken out before
        match chance.randrange(7):
            case 0:
                frame[chance.randrange(len(frame))] = chance.randrange(256)
            case 1:
                frame[chance.randrange(len(frame))] ^= 1 << chance.randrange(8)
            case 2:
                del frame[chance.randrange(len(frame))]
            case 3:
                frame.insert(chance.randrange(len(frame) + 1), chance.randrange(256))
            case 4:
                frames.insert(chance.randrange(len(frames) + 1), bytes(frame))
            case 5:
                frames[at], frames[-1] = frames[-1], frames[at]
                continue
            case _:
                frame = bytearray()
        frames[at] = bytes(frame)
    return b"".join(frames)


def test_the_conversation_itself_is_understood() -> None:
    scene = Scene()
    eve = Attacker(scene.network, "A")
    eve.bytes(b"".join(recorded()))
    scene.network.run(us=200_000)
    assert not [note for _, note in scene.network.notes if note.what == "connection refused"]
    scene.check()


@pytest.mark.parametrize("seed", range(4))
def test_a_conversation_with_something_wrong_in_it_stays_its_own_problem(seed: int) -> None:
    chance = random.Random(f"mutated/{seed}")
    scene = Scene()
    frames = recorded()
    for _ in range(100):
        eve = Attacker(scene.network, chance.choice("AB"))
        data = mutated(frames, chance)
        cut = chance.randrange(len(data) + 1)
        eve.bytes(data[:cut])
        if chance.random() < 0.5:
            scene.network.run(us=30_000)
        eve.bytes(data[cut:])
        scene.network.run(us=30_000)
        eve.leave()
    scene.network.run(us=200_000)
    scene.check()
    assert isinstance(scene.alice, WireClient)
