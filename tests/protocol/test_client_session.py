"""Does a client's session keep its promises against a scripted broker, whatever happens in between?

`ScriptedBroker` is the other end of every connection, without sockets or time. Frames travel only when the
test says so, and a connection may break at any moment, with frames on their way in both directions.
"""

from __future__ import annotations

from collections import deque
from random import Random
from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from braid.errors import (
    AccessDeniedError,
    AuthenticationError,
    ConnectionLostError,
    PublicationError,
    SlowConsumerError,
)
from braid.language import Filter
from braid.protocol.batch import PublicationBatch, encode_record
from braid.protocol.channel import Channel, ChannelSettings
from braid.protocol.client_effects import (
    Answered,
    Arrived,
    ClientEffect,
    ClientSettings,
    Connected,
    Disconnected,
    Ended,
    Lost,
    Progressed,
    PublicationsRefused,
)
from braid.protocol.client_inbox import CLASSES, Interest, StoredPublication
from braid.protocol.client_outbox import ACKNOWLEDGED, BATCH_BYTES, ORDERED
from braid.protocol.client_session import ClientSession
from braid.protocol.codec import Frame, FrameDecoder, encode_frames
from braid.protocol.effects import Close, Dial, Send
from braid.protocol.inputs import Closed, Malformed, Opened, Received, Tick, Writable
from braid.protocol.messages import (
    Acknowledge,
    Acknowledgement,
    Advertise,
    Ask,
    Done,
    DropDurable,
    Failed,
    Goodbye,
    Hello,
    Ping,
    Pong,
    PublishRefused,
    Refused,
    Replay,
    StoredPublications,
    Subscribe,
    SubscribeDurable,
    Unadvertise,
    Unsubscribe,
    Welcome,
)

if TYPE_CHECKING:
    from braid.protocol.codec import Body

SECOND = 1_000_000
LOG_ROWS_MAX = 2


def record(number: int, padding: int = 0) -> bytes:
    return encode_record({"n": number}, 0, b"x" * padding)


class ScriptedBroker:
    """What a broker remembers beyond connections, and its end of the present one."""

    def __init__(self, frame_bytes_max: int = 0, window_bytes: int = 4096) -> None:
        self.frame_bytes_max = frame_bytes_max
        self.channel_settings = ChannelSettings(window_bytes=window_bytes)
        self.accepted: list[int] = []
        self.settled_by_all: set[int] = set()
        self.repeats = 0
        self.log: list[tuple[str, int, bytes]] = []
        self.acknowledged_offset = -1
        self.effective: dict[str, str] = {}
        self.hello: Hello | None = None
        self.renew()

    def renew(self) -> None:
        self.channel: Channel[int] = Channel(self.channel_settings)
        self.subscriptions: dict[str, Subscribe] = {}
        self.advertisements: dict[str, str] = {}
        self.reader = 0
        self.reading: int | None = None
        self.replays: list[list[int]] = []
        self.log_frame = 0
        self.outgoing: deque[Frame] = deque()
        self.bodies: list[Body] = []
        self.answers: deque[Body] = deque()

    def receive(self, frame: Frame) -> None:
        self.bodies.append(frame.body)
        body = frame.body
        if frame.sequence:
            assert self.channel.accept(frame), "nothing comes twice on one connection"
            self.sequenced(body)
            self.channel.settled = self.channel.received
        elif isinstance(body, Hello):
            self.hello = body
            self.channel.restart(body.credit)
            credit = self.channel.credit_to_grant
            self.outgoing.append(
                Frame(0, Welcome(1, "B", "i", credit=credit, frame_bytes_max=self.frame_bytes_max))
            )
        elif isinstance(body, Acknowledgement):
            self.channel.acknowledged(body)
            if self.log_frame <= body.settled:
                self.log_frame = 0
            self.feed()
        elif isinstance(body, Ping):
            self.outgoing.append(Frame(0, Pong(body.number)))

    def sequenced(self, body: Body) -> None:
        if isinstance(body, PublicationBatch):
            for sequence in body.sequences.tolist():
                if sequence in self.accepted:
                    self.repeats += 1
                else:
                    self.accepted.append(sequence)
        elif isinstance(body, Subscribe):
            self.subscriptions[body.key] = body
            self.answers.append(Done(body.request, self.effective.get(body.filter, body.filter)))
        elif isinstance(body, Unsubscribe):
            del self.subscriptions[body.key]
            self.answers.append(Done(body.request))
        elif isinstance(body, Advertise):
            self.advertisements[body.key] = body.filter
            self.answers.append(Done(body.request))
        elif isinstance(body, Unadvertise):
            del self.advertisements[body.key]
            self.answers.append(Done(body.request))
        elif isinstance(body, SubscribeDurable):
            self.acknowledged_offset = max(self.acknowledged_offset, body.resume_after)
            self.reading = self.acknowledged_offset + 1
            self.reader = body.request
            self.answers.append(Done(body.request, body.filter))
            self.feed()
        elif isinstance(body, Acknowledge):
            self.acknowledged_offset = max(self.acknowledged_offset, body.offset)
        elif isinstance(body, Replay):
            last = len(self.log) - 1 if body.last < 0 else body.last
            self.replays.append([body.request, body.first, last])
            self.feed()

    def feed(self) -> None:
        """The next rows of the log or of a replay, when those before are settled."""
        if self.log_frame:
            return
        if self.reading is not None and self.reading < len(self.log):
            rows = self.log[self.reading : self.reading + LOG_ROWS_MAX]
            self.offer(StoredPublications("log", self.reading, rows, reader=self.reader))
            self.reading += len(rows)
            self.log_frame = self.channel.sent
        elif self.replays:
            request, first, last = self.replays[0]
            rows = self.log[first : min(last + 1, first + LOG_ROWS_MAX)]
            if rows:
                self.replays[0][1] += len(rows)
                self.offer(StoredPublications("log", first, rows, request))
                self.log_frame = self.channel.sent
            else:
                self.replays.pop(0)
                self.offer(Done(request))

    def offer(self, body: Body) -> None:
        self.channel.offer(body)
        self.outgoing.extend(self.channel.take())

    def acknowledge(self) -> None:
        acknowledgement = self.channel.acknowledgement()
        if acknowledgement is not None:
            self.outgoing.append(Frame(0, acknowledgement))

    def deliver(self, target: int, first: int, *numbers: int, acknowledged: bool = False) -> None:
        """Send publications of somebody else to the client."""
        batch = PublicationBatch.of(
            "other",
            range(first, first + len(numbers)),
            [record(number) for number in numbers],
            acknowledged=acknowledged,
        )
        self.offer(batch.readdressed(target=target))


class World:
    """A session, the broker, and the bytes between them."""

    def __init__(self, broker: ScriptedBroker | None = None, **changes: object) -> None:
        self.now_us = 0
        self.broker = broker or ScriptedBroker()
        arguments: dict[str, object] = {
            "addresses": ("a", "b"),
            "name": "c",
            "publisher": "c.1",
            "incarnation": "i",
            "channel": ChannelSettings(window_bytes=4096),
        }
        self.session = ClientSession(ClientSettings(**{**arguments, **changes}), Random(1))  # type: ignore[arg-type]
        self.dials: list[str] = []
        self.connection = 0
        self.open = False
        self.to_broker: deque[Frame] = deque()
        self.seen: list[ClientEffect] = []
        self.lost: Lost | None = None
        self.perform(self.session.start(0))

    def perform(self, effects: list[ClientEffect]) -> None:
        for effect in effects:
            if isinstance(effect, Send):
                if effect.connection == self.connection and self.open:
                    decoder = FrameDecoder()
                    self.to_broker.extend(decoder.feed(encode_frames(effect.frames)))
            elif isinstance(effect, Close):
                if effect.connection == self.connection:
                    self.open = False
            elif isinstance(effect, Dial):
                self.dials.append(effect.address)
            else:
                self.seen.append(effect)
                if isinstance(effect, Lost):
                    self.lost = effect

    def act(self) -> None:
        self.perform(self.session.take_effects())

    def handle(self, stimulus: object) -> None:
        self.perform(self.session.handle(stimulus, self.now_us))  # type: ignore[arg-type]

    def connect(self) -> None:
        """Answer the dial that is under way."""
        self.connection += 1
        self.open = True
        self.to_broker.clear()
        self.broker.renew()
        self.handle(Opened(self.connection, "there", self.dials[-1]))

    def break_connection(self) -> None:
        if self.open:
            self.open = False
            self.handle(Closed(self.connection, "broken"))

    def pass_time(self, us: int) -> None:
        self.now_us += us
        deadline = self.session.next_deadline_us()
        if deadline is not None and deadline <= self.now_us:
            self.handle(Tick())

    def broker_reads(self, frames_max: int = 1000) -> None:
        for _ in range(min(frames_max, len(self.to_broker))):
            self.broker.receive(self.to_broker.popleft())
        while self.broker.answers:
            self.broker.offer(self.broker.answers.popleft())

    def client_reads(self, frames_max: int = 1000) -> None:
        outgoing = self.broker.outgoing
        frames = [outgoing.popleft() for _ in range(min(frames_max, len(outgoing)))]
        if frames and self.open:
            decoder = FrameDecoder()
            self.handle(Received(self.connection, decoder.feed(encode_frames(frames))))

    def recover(self) -> None:
        """Have a connection, whatever happened before."""
        for _ in range(100):
            if self.open:
                return
            deadline = self.session.next_deadline_us()
            assert deadline is not None
            before = len(self.dials)
            self.pass_time(max(0, deadline - self.now_us))
            if len(self.dials) > before:
                self.connect()
        raise AssertionError("it does not dial again")

    def quiesce(self) -> None:
        """Everything that can be said is said."""
        for _ in range(500):
            self.session.flush()
            self.act()
            self.broker_reads()
            self.broker.acknowledge()
            self.client_reads()
            self.pass_time(20_000)
            if not self.to_broker and not self.broker.outgoing and self.session.outbox.kept_bytes == 0:
                return
        raise AssertionError("it does not come to rest")

    def take(self, interest: Interest, count_max: int = 1_000_000) -> list[int]:
        """Read from a subscription's queue."""
        numbers = []
        while interest.queue and len(numbers) < count_max:
            numbers.append(int(interest.queue.popleft()["n"]))  # type: ignore[arg-type]
            interest.delivered += 1
            if interest.crowded:
                self.session.made_room(interest)
                self.act()
        return numbers

    def answered(self, request: int) -> Answered | None:
        found = [each for each in self.seen if isinstance(each, Answered) and each.request == request]
        assert len(found) <= 1
        return found[0] if found else None


def connected(broker: ScriptedBroker | None = None, **changes: object) -> World:
    world = World(broker, **changes)
    world.connect()
    world.quiesce()
    assert world.session.live
    return world


# Publishing.

STEPS = st.lists(
    st.tuples(
        st.sampled_from(
            [
                "fast",
                "acknowledged",
                "ordered",
                "flush",
                "break",
                "recover",
                "broker",
                "client",
                "acknowledge",
            ]
        ),
        st.integers(1, 4),
    ),
    max_size=60,
)


@given(STEPS, st.sampled_from([0, 120, 400]), st.sampled_from([200, 4096]))
@settings(max_examples=300, deadline=None)
def test_every_publication_arrives_once_and_in_order(
    steps: list[tuple[str, int]], frame_bytes_max: int, window_bytes: int
) -> None:
    world = World(ScriptedBroker(frame_bytes_max, window_bytes))
    world.connect()
    published = 0
    manners = {"fast": 0, "acknowledged": ACKNOWLEDGED, "ordered": ORDERED}
    received = settled = 0
    for step, size in steps:
        if step in manners:
            for _ in range(size):
                published += 1
                assert world.session.publish(record(published, 7 * size), manners[step]) == published
        elif step == "flush":
            world.session.flush()
            world.act()
        elif step == "break":
            world.break_connection()
        elif step == "recover":
            world.recover()
        elif step == "broker":
            world.broker_reads(size)
        elif step == "client":
            world.client_reads(size)
        else:
            world.broker.acknowledge()
        outbox = world.session.outbox
        assert received <= outbox.received <= published
        assert settled <= outbox.settled <= published
        received, settled = outbox.received, outbox.settled
        # What counts as received has been received.
        assert set(range(1, received + 1)) <= set(world.broker.accepted)
    world.recover()
    world.quiesce()
    assert world.broker.accepted == list(range(1, published + 1))
    assert world.session.outbox.received == published
    assert world.session.outbox.settled == world.session.outbox.last_acknowledged_sequence


@given(st.lists(st.integers(0, 300), max_size=40), st.integers(400, 2000))
@settings(max_examples=100, deadline=None)
def test_no_frame_is_larger_than_the_broker_allows(paddings: list[int], frame_bytes_max: int) -> None:
    world = connected(ScriptedBroker(frame_bytes_max, 1 << 20))
    for number, padding in enumerate(paddings):
        world.session.publish(record(number, padding), 0)
    world.session.flush()
    world.act()
    sizes = [frame.body.size for frame in world.to_broker if isinstance(frame.body, PublicationBatch)]
    assert all(size <= frame_bytes_max for size in sizes)
    world.quiesce()
    assert world.broker.accepted == list(range(1, len(paddings) + 1))


def test_a_publication_that_no_frame_holds_is_refused_before_it_is_sent() -> None:
    world = connected(ScriptedBroker(1000))
    with pytest.raises(PublicationError, match="at most"):
        world.session.publish(record(1, 1000), 0)
    assert world.session.publish(record(1), 0) == 1


def test_a_new_broker_with_smaller_frames_gets_smaller_batches() -> None:
    world = connected(ScriptedBroker(0, 1 << 20))
    for number in range(1, 41):
        world.session.publish(record(number, 50), ACKNOWLEDGED if number % 2 else 0)
    world.session.publish(record(41, 3000), 0)
    world.session.flush()
    world.act()
    world.break_connection()
    world.session.publish(record(42, 3000), ACKNOWLEDGED)
    world.broker.frame_bytes_max = 500
    world.recover()
    world.quiesce()
    assert world.broker.accepted == list(range(1, 41))
    refused = [each for each in world.seen if isinstance(each, PublicationsRefused)]
    assert [sequence for each in refused for sequence in each.sequences] == [41, 42]
    assert world.session.outbox.received == 42
    assert world.session.outbox.settled == 42


def test_batches_stay_small_enough_to_let_messages_through() -> None:
    world = connected(ScriptedBroker(0, 1 << 22))
    for number in range(200):
        world.session.publish(record(number, 1000), 0)
    world.session.flush()
    world.act()
    sizes = [frame.body.size for frame in world.to_broker if isinstance(frame.body, PublicationBatch)]
    assert len(sizes) > 1
    assert max(sizes) <= BATCH_BYTES


def test_the_outgoing_buffer_is_bounded_and_empties_again() -> None:
    world = connected(ScriptedBroker(0, 500), outgoing_bytes_max=5000)
    published = 0
    while world.session.has_room:
        published += 1
        world.session.publish(record(published, 100), 0)
        world.session.flush()
        world.act()
    assert published < 100
    world.quiesce()
    assert world.session.has_room
    assert world.broker.accepted == list(range(1, published + 1))


def test_refused_publications_are_named_before_they_count_as_received() -> None:
    world = connected()
    world.session.publish(record(1), 0)
    world.session.flush()
    world.act()
    world.broker_reads()
    world.broker.offer(PublishRefused("c.1", [1], "denied", "not yours"))
    world.broker.acknowledge()
    world.client_reads()
    kinds = [type(each) for each in world.seen if isinstance(each, (PublicationsRefused, Progressed))]
    assert kinds == [PublicationsRefused, Progressed]
    refused = next(each for each in world.seen if isinstance(each, PublicationsRefused))
    assert isinstance(refused.error, AccessDeniedError)


def test_only_a_wanted_receipt_hurries_the_broker() -> None:
    world = connected()
    world.session.publish(record(1), 0)
    world.session.flush()
    world.session.publish(record(2), 0)
    world.session.outbox.receipt_wanted = True
    world.session.flush()
    world.session.publish(record(3), 0)
    world.session.flush()
    world.act()
    batches = [frame.body for frame in world.to_broker if isinstance(frame.body, PublicationBatch)]
    assert [batch.receipt for batch in batches] == [False, True, False]


# Subscribing.

DELIVERIES = st.lists(
    st.tuples(
        st.sampled_from(["deliver", "deliver", "take", "break", "broker", "client", "unsubscribe"]),
        st.sampled_from(sorted(CLASSES)),
        st.integers(1, 6),
    ),
    max_size=50,
)


@given(DELIVERIES)
@settings(max_examples=300, deadline=None)
def test_each_subscription_gets_what_it_wants_once_and_in_order(steps: list[tuple[str, str, int]]) -> None:
    """Against a plain twin: what each subscription was sent, filtered, is what it reads, block by block."""
    world = connected()
    interests: list[Interest] = []
    for when_full in sorted(CLASSES):
        for text in ("n % 2 = 0", "n >= 5"):
            capacity = 3 if when_full == "block" else 1000
            interests.append(world.session.desk.subscribe(Filter(text), when_full, capacity))
    world.act()
    world.quiesce()
    wanted: dict[int, list[int]] = {interest.number: [] for interest in interests}
    got: dict[int, list[int]] = {interest.number: [] for interest in interests}
    gone: set[int] = set()
    sent = 0

    def deliver(when_full: str, count: int) -> None:
        nonlocal sent
        numbers = [(sent + row) % 10 for row in range(count)]
        batch = PublicationBatch.of(
            "other",
            range(sent + 1, sent + count + 1),
            [encode_record({"n": number, "serial": sent + row}, 0) for row, number in enumerate(numbers)],
        )
        members = [
            interest
            for interest in interests
            if interest.when_full == when_full and interest.number not in gone
        ]
        rows = [
            row
            for row, number in enumerate(numbers)
            if any(interest.filter and interest.filter.matches({"n": number}) for interest in members)
        ]
        sent += count
        if not rows:
            return
        world.broker.offer(batch.select(np.array(rows)).readdressed(target=CLASSES[when_full]))
        world.client_reads()
        for interest in members:
            assert interest.filter is not None
            chosen = [row for row in rows if interest.filter.matches({"n": numbers[row]})]
            wanted[interest.number] += [sent - count + row for row in chosen]

    def take(interest: Interest, count_max: int) -> None:
        taken = 0
        while interest.queue and taken < count_max:
            got[interest.number].append(int(interest.queue.popleft()["serial"]))  # type: ignore[arg-type]
            taken += 1
            if interest.crowded or (interest.line and not interest.queue):
                world.session.made_room(interest)
                world.act()

    for step, when_full, size in steps:
        if step == "deliver":
            # Only what has credit is sent at once; the twin knows nothing about waiting batches.
            if not world.broker.channel.waiting_bytes and world.broker.channel.connected:
                deliver(when_full, size)
        elif step == "take":
            take(interests[size - 1], size)
        elif step == "break":
            world.break_connection()
            for interest in interests:  # rows that wait must not keep it from dialling
                take(interest, 1000)
            world.recover()
            world.quiesce()
        elif step == "broker":
            world.broker_reads(size)
        elif step == "client":
            world.client_reads(size)
        elif size == 1 and interests[0].number not in gone:
            gone.add(interests[0].number)
            world.session.unsubscribe(interests[0])
            world.act()
            world.quiesce()
            interests[0].queue.clear()
            got[interests[0].number] = wanted[interests[0].number] = []
        assert len(interests[0].queue) <= interests[0].capacity
    for interest in interests:
        take(interest, 1_000_000)
    assert got == wanted


def test_rows_without_room_wait_and_hold_settlement_and_credit_back() -> None:
    world = connected()
    interest = world.session.desk.subscribe(Filter("TRUE"), "block", 2)
    world.act()
    world.quiesce()
    world.broker.deliver(CLASSES["block"], 1, 1, 2, 3, acknowledged=True)
    frame = world.broker.channel.sent
    world.client_reads()
    world.pass_time(20_000)
    world.broker_reads()
    assert [len(interest.queue), interest.waiting] == [2, 1]
    told = [body for body in world.broker.bodies if isinstance(body, Acknowledgement)]
    assert told[-1].received == frame
    assert told[-1].settled == frame - 1
    assert world.take(interest) == [1, 2, 3]
    world.broker_reads()
    told = [body for body in world.broker.bodies if isinstance(body, Acknowledgement)]
    assert told[-1].settled == frame


def test_a_queue_that_drops_keeps_the_newest_and_counts() -> None:
    world = connected()
    interest = world.session.desk.subscribe(Filter("TRUE"), "drop_oldest", 3)
    world.act()
    world.quiesce()
    world.broker.deliver(CLASSES["drop_oldest"], 1, 1, 2)
    world.broker.deliver(CLASSES["drop_oldest"], 3, 3, 4)
    world.broker.deliver(CLASSES["drop_oldest"], 5, 5, 6, 7, 8, 9)
    world.client_reads()
    assert interest.dropped == 6
    assert world.take(interest) == [7, 8, 9]


def test_a_slow_consumer_that_chose_so_is_ended_after_what_is_queued() -> None:
    world = connected()
    interest = world.session.desk.subscribe(Filter("TRUE"), "disconnect", 2)
    world.act()
    world.quiesce()
    world.broker.deliver(CLASSES["disconnect"], 1, 1, 2, 3)
    world.client_reads()
    assert Ended(interest) in world.seen
    assert isinstance(interest.failure, SlowConsumerError)
    assert world.take(interest) == [1, 2]
    world.quiesce()
    assert world.broker.subscriptions == {}


def test_a_broker_that_ends_slow_consumers_leaves_the_others_alone() -> None:
    world = connected()
    slow = world.session.desk.subscribe(Filter("n > 1"), "disconnect", 2)
    other = world.session.desk.subscribe(Filter("n > 2"), "block", 2)
    world.act()
    world.quiesce()
    world.broker.outgoing.append(Frame(0, Refused("slow", "too far behind")))
    world.client_reads()
    assert isinstance(slow.failure, SlowConsumerError)
    world.recover()
    world.quiesce()
    assert [each.filter for each in world.broker.subscriptions.values()] == ["n > 2"]
    assert other.open


def test_what_arrives_for_a_subscription_that_left_reaches_nobody_else() -> None:
    world = connected()
    low = world.session.desk.subscribe(Filter("n < 5"), "block", 10)
    high = world.session.desk.subscribe(Filter("n >= 5"), "block", 10)
    world.act()
    world.quiesce()
    world.broker.deliver(CLASSES["block"], 1, 1, 2, 7)
    world.session.unsubscribe(low)
    world.act()
    world.client_reads()
    assert world.take(high) == [7]


def test_the_effective_filter_decides_among_several() -> None:
    world = connected()
    world.broker.effective["n > 0"] = "n > 10"
    narrowed = world.session.desk.subscribe(Filter("n > 0"), "block", 10)
    other = world.session.desk.subscribe(Filter("n < 100"), "block", 10)
    world.act()
    world.quiesce()
    answer = world.answered(narrowed.request)
    assert answer is not None
    assert answer.text == "n > 10"
    world.broker.deliver(CLASSES["block"], 1, 5, 20)
    world.client_reads()
    assert world.take(narrowed) == [20]
    assert world.take(other) == [5, 20]


def test_a_batch_wakes_its_readers_once() -> None:
    world = connected()
    interest = world.session.desk.subscribe(Filter("TRUE"), "block", 100)
    world.act()
    world.quiesce()
    world.broker.deliver(CLASSES["block"], 1, *range(50))
    world.client_reads()
    assert world.seen.count(Arrived(interest)) == 1


# Durable subscriptions.

DURABLE_STEPS = st.lists(
    st.tuples(
        st.sampled_from(["store", "take", "acknowledge", "break", "recover", "broker", "client"]),
        st.integers(1, 5),
    ),
    max_size=60,
)


@given(DURABLE_STEPS)
@settings(max_examples=300, deadline=None)
def test_every_row_of_a_log_is_handed_over_once_and_in_order(steps: list[tuple[str, int]]) -> None:
    world = connected()
    interest = world.session.desk.subscribe_durable("log", Filter("TRUE"), "drop_oldest", 3)
    world.act()
    got: list[int] = []
    offsets: list[int] = []

    def take(count_max: int) -> None:
        for _ in range(count_max):
            if not interest.queue:
                return
            row = interest.queue.popleft()
            assert isinstance(row, StoredPublication)
            got.append(int(row["n"]))  # type: ignore[arg-type]
            offsets.append(row.offset)
            if interest.crowded or (interest.line and not interest.queue):
                world.session.made_room(interest)
                world.act()

    for step, size in steps:
        if step == "store":
            first = len(world.broker.log)
            world.broker.log += [("p", first + row + 1, record(first + row)) for row in range(size)]
            if world.open and world.broker.channel.connected:
                world.broker.feed()
        elif step == "take":
            take(size)
        elif step == "acknowledge":
            if offsets:
                world.session.desk.acknowledge(interest, offsets[-1])
                world.act()
        elif step == "break":
            world.break_connection()
        elif step == "recover":
            world.recover()
        elif step == "broker":
            world.broker_reads(size)
        else:
            world.client_reads(size)
        assert len(interest.queue) <= 3
    for _ in range(len(world.broker.log) + 1):
        world.recover()
        world.quiesce()
        take(1000)
    assert got == list(range(len(world.broker.log)))
    assert offsets == got
    if offsets:
        world.session.desk.acknowledge(interest, offsets[-1])
        world.act()
        world.quiesce()
        assert world.broker.acknowledged_offset == offsets[-1]


def test_a_replay_ends_after_its_last_row_and_survives_a_broken_connection() -> None:
    world = connected()
    world.broker.log = [("p", number + 1, record(number)) for number in range(10)]
    interest = world.session.desk.replay("log", 2, 7, 100)
    world.act()
    world.broker_reads()
    world.client_reads()
    world.break_connection()
    world.recover()
    world.quiesce()
    assert world.take(interest) == [2, 3, 4, 5, 6, 7]
    assert Ended(interest) in world.seen
    assert interest.failure is None


def test_a_log_that_is_dropped_ends_its_reader() -> None:
    world = connected()
    interest = world.session.desk.subscribe_durable("log", Filter("TRUE"), "drop_oldest", 3)
    world.act()
    world.quiesce()
    world.session.desk.drop_durable("log")
    world.act()
    assert Ended(interest) in world.seen
    assert any(isinstance(frame.body, DropDurable) for frame in world.to_broker)


# Requests and connections.


def test_what_was_made_is_made_again_on_a_new_connection_before_anything_is_published() -> None:
    world = connected()
    world.session.desk.subscribe(Filter("n > 1"), "block", 10)
    number, _ = world.session.desk.advertise(Filter("n > 5"))
    world.session.desk.advertise(Filter("n > 6"))
    world.act()
    world.quiesce()
    world.session.desk.unadvertise(number)
    world.act()
    world.quiesce()
    answers = [each for each in world.seen if isinstance(each, Answered)]
    assert len(answers) == 4
    assert all(answer.error is None for answer in answers)
    world.break_connection()
    world.session.publish(record(1), 0)
    world.recover()
    world.broker_reads()
    world.client_reads()
    world.broker_reads()
    kinds = [type(body) for body in world.broker.bodies]
    assert kinds == [Hello, Advertise, Subscribe, PublicationBatch]
    world.quiesce()
    assert list(world.broker.advertisements.values()) == ["n > 6"]
    assert len([each for each in world.seen if isinstance(each, Answered)]) == 4


def test_a_request_that_was_not_answered_is_asked_again_and_answered_once() -> None:
    world = connected()
    interest = world.session.desk.subscribe(Filter("n > 1"), "block", 10)
    world.act()
    world.break_connection()
    assert world.answered(interest.request) is None
    world.recover()
    world.quiesce()
    answer = world.answered(interest.request)
    assert answer is not None
    assert answer.error is None


def test_an_operation_that_may_have_been_done_is_not_asked_for_twice() -> None:
    world = connected()
    request = world.session.desk.ask("shift", {})
    world.act()
    world.break_connection()
    answer = world.answered(request)
    assert answer is not None
    assert isinstance(answer.error, ConnectionLostError)
    later = world.session.desk.ask("status", {"of": "B"})
    world.recover()
    world.quiesce()
    asked = [body for body in world.broker.bodies if isinstance(body, Ask)]
    assert [(body.request, body.topic) for body in asked] == [(later, "status")]


def test_a_failed_request_carries_the_brokers_reason() -> None:
    world = connected()
    interest = world.session.desk.subscribe(Filter("n > 1"), "block", 10)
    world.act()
    world.to_broker.clear()
    world.broker.offer(Failed(interest.request, "denied", "not for you"))
    world.client_reads()
    answer = world.answered(interest.request)
    assert answer is not None
    assert isinstance(answer.error, AccessDeniedError)
    assert not interest.open


def test_a_subscription_that_is_not_granted_again_ends() -> None:
    world = connected()
    interest = world.session.desk.subscribe(Filter("n > 1"), "block", 10)
    world.act()
    world.quiesce()
    world.break_connection()
    world.recover()
    world.broker_reads()
    world.client_reads()
    again = next(frame.body for frame in world.to_broker if isinstance(frame.body, Subscribe))
    world.broker.offer(Failed(again.request, "denied", "not any more"))
    world.client_reads()
    assert Ended(interest) in world.seen
    assert isinstance(interest.failure, AccessDeniedError)


def test_attempts_to_connect_again_are_spread_bounded_and_take_turns() -> None:
    world = connected(reconnect_for_us=60 * SECOND)
    world.break_connection()
    pauses = []
    while world.lost is None:
        deadline = world.session.next_deadline_us()
        assert deadline is not None
        pauses.append(deadline - world.now_us)
        before = len(world.dials)
        world.pass_time(deadline - world.now_us)
        if len(world.dials) > before:
            world.handle(Closed(None, "refused", world.dials[-1]))
    assert all(pause <= 5 * SECOND for pause in pauses)
    assert 50_000 <= pauses[0] <= 100_000
    assert pauses[6] > pauses[0]
    assert world.now_us <= 61 * SECOND
    assert world.dials[1:5] == ["b", "a", "b", "a"]
    assert isinstance(world.lost.error, ConnectionLostError)
    assert "refused" in str(world.lost.error)
    assert world.session.next_deadline_us() is None


def test_without_patience_a_broken_connection_is_the_end() -> None:
    world = connected(reconnect_for_us=0)
    world.break_connection()
    assert world.lost is not None


def test_a_wrong_token_is_final_and_a_full_broker_is_not() -> None:
    world = World()
    world.connect()
    world.handle(Received(1, [Frame(0, Refused("limit", "full"))]))
    assert world.lost is None
    world.recover()
    world.handle(Received(2, [Frame(0, Refused("authentication", "who are you?"))]))
    assert world.lost is not None
    assert isinstance(world.lost.error, AuthenticationError)


def test_a_broker_that_objects_again_and_again_is_believed() -> None:
    world = connected()
    world.session.publish(record(1), 0)
    for _ in range(5):
        assert world.lost is None
        world.recover()
        world.broker_reads()
        world.client_reads()
        world.handle(Received(world.connection, [Frame(0, Refused("protocol", "no such row"))]))
    assert world.lost is not None
    assert "no such row" in str(world.lost.error)


def test_another_version_of_the_protocol_is_named() -> None:
    world = World()
    world.connect()
    world.handle(Received(1, [Frame(0, Welcome(9, "B", "i"))]))
    assert world.lost is not None
    assert "version 9" in str(world.lost.error)


def test_a_silent_broker_is_asked_and_then_given_up() -> None:
    world = connected(heartbeat_us=SECOND)
    world.pass_time(SECOND)
    assert [frame.body for frame in world.to_broker] == [Ping(1)]
    world.broker_reads()
    world.client_reads()
    world.to_broker.clear()
    for _ in range(3):
        assert world.open
        world.pass_time(SECOND)
    assert not world.open
    assert any(isinstance(each, Disconnected) and "silent" in each.reason for each in world.seen)


def test_a_broker_that_pings_is_answered() -> None:
    world = connected()
    world.broker.outgoing.append(Frame(0, Ping(7)))
    world.client_reads()
    assert [frame.body for frame in world.to_broker] == [Pong(7)]


def test_a_broker_that_says_goodbye_is_left_for_another() -> None:
    world = connected()
    world.broker.outgoing.append(Frame(0, Goodbye("draining")))
    world.client_reads()
    assert not world.open
    world.recover()
    world.quiesce()
    assert world.dials == ["a", "b"]
    assert world.seen.count(Connected("B")) == 2


@pytest.mark.parametrize(
    "stimulus",
    [
        Malformed(1, "a frame of the unknown kind 9"),
        Received(1, [Frame(9, Done(1))]),
        Received(1, [Frame(0, Acknowledgement(99, 0, 0))]),
        Received(1, [Frame(0, Welcome(1, "B", "i"))]),
        Received(1, [Frame(1, Advertise(1, "1", "TRUE"))]),
    ],
)
def test_a_broker_that_breaks_the_rules_loses_the_connection(stimulus: object) -> None:
    world = connected()
    world.handle(stimulus)
    assert not world.open
    assert world.lost is None
    world.recover()
    world.quiesce()
    assert world.session.live


def test_what_cannot_be_written_waits() -> None:
    world = connected()
    world.handle(Writable(1, False))
    world.session.publish(record(1), 0)
    world.session.flush()
    world.act()
    assert not world.to_broker
    world.handle(Writable(1, True))
    assert len(world.to_broker) == 1


def test_closing_sends_what_is_left_and_says_goodbye() -> None:
    world = connected()
    world.session.publish(record(1), 0)
    world.session.close("enough")
    world.act()
    world.broker_reads()
    assert [type(body) for body in world.broker.bodies[-2:]] == [PublicationBatch, Goodbye]
    assert world.session.next_deadline_us() is None
    world.handle(Opened(5, "late"))
    assert world.session.handle(Closed(1, "closed"), 0) == []


def test_a_client_that_does_not_read_opens_no_further_connection() -> None:
    world = connected(channel=ChannelSettings(window_bytes=300))
    interest = world.session.desk.subscribe(Filter("TRUE"), "block", 1)
    world.act()
    world.quiesce()
    sent = 0
    for _ in range(3):
        while world.broker.channel.waiting_bytes == 0:
            world.broker.deliver(CLASSES["block"], sent + 1, *range(sent, sent + 5))
            sent += 5
            world.client_reads()
        world.break_connection()
        for _ in range(20):
            deadline = world.session.next_deadline_us()
            assert deadline is not None
            before = len(world.dials)
            world.pass_time(max(0, deadline - world.now_us))
            if len(world.dials) > before:
                world.connect()
                world.broker_reads()
                world.client_reads()
                world.broker_reads()
                world.client_reads()
                break
    assert world.session.inbox.waiting_bytes <= 3 * 300
    assert world.lost is None
    while interest.queue:
        world.take(interest, 1)
        world.session.made_room(interest)
    world.act()
    world.recover()
    world.quiesce()
    assert world.session.live
