"""The other end of a client's connections, without sockets or time.

Frames travel only when a test says so, and a connection may break at any moment, with frames on their way in
both directions.
"""

from __future__ import annotations

from collections import deque
from random import Random
from typing import TYPE_CHECKING

from braid.client.effects import (
    Answered,
    ClientEffect,
    ClientSettings,
    Lost,
)
from braid.client.session import ClientSession
from braid.protocol.batch import PublicationBatch, encode_record
from braid.protocol.channel import Channel, ChannelSettings
from braid.protocol.codec import Frame, FrameDecoder, encode_frames
from braid.protocol.effects import Close, Dial, Send
from braid.protocol.inputs import Closed, Opened, Received, Tick
from braid.protocol.messages import (
    PROTOCOL_VERSION,
    Acknowledge,
    Acknowledgement,
    Advertise,
    Done,
    Hello,
    Ping,
    Pong,
    Replay,
    StoredPublications,
    Subscribe,
    SubscribeDurable,
    Unadvertise,
    Unsubscribe,
    Welcome,
)

if TYPE_CHECKING:
    from braid.client.inbox import Interest
    from braid.protocol.codec import Body

__all__ = ["LOG_ROWS_MAX", "SECOND", "ScriptedBroker", "World", "connected", "record"]

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
                Frame(
                    0,
                    Welcome(PROTOCOL_VERSION, "B", "i", credit=credit, frame_bytes_max=self.frame_bytes_max),
                )
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
