"""How does the load generator speak to Braid? In its own protocol, over raw sockets as with the rivals."""

from __future__ import annotations

import struct
import sys
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import msgspec

import braid
from braid.errors import ConnectionLostError, RemoteProtocolError
from braid.protocol import (
    Channel,
    ChannelSettings,
    Frame,
    FrameDecoder,
    PublicationBatch,
    encode_frames,
    encode_record,
)
from braid.protocol.messages import (
    PROTOCOL_VERSION,
    Acknowledge,
    Acknowledgement,
    Ask,
    Done,
    Failed,
    Hello,
    Ping,
    Pong,
    PublishDiscarded,
    PublishRefused,
    Refused,
    Settled,
    StoredPublications,
    Subscribe,
    SubscribeDurable,
    Welcome,
)
from braid_bench.brokers.clients.connection import MarkerCounter, SetUp
from braid_bench.brokers.server import HOST, ServerProcess, free_ports

if TYPE_CHECKING:
    import socket
    from collections.abc import Sequence

    from braid_bench.brokers.contender import Delivery, DeliveryUnit, FilterForm, Subscriber
    from braid_bench.brokers.server import RunningServer
    from braid_bench.brokers.workload import Interest, Message

__all__ = ["Braid", "BraidBrokers"]

_READ_BYTES = 1 << 18
_HEADER = struct.Struct("<IBQ")
# As Braid's own client: it acknowledges after so many frames, or so long after the first.
_ACKNOWLEDGE_FRAMES = ChannelSettings().acknowledge_after_frames
_ACKNOWLEDGE_SECONDS = ChannelSettings().acknowledge_delay_us / 1e6
_CREDIT = 1 << 40
_SUBSCRIBE_AT_ONCE = 500
_PING_BYTES_MAX = 64
_LOG = "log"
_READY_SECONDS_MAX = 30.0
# Files of a trace are made much sooner than by default: in every turn, and not only in some.
_TRACE_AGE_S_MAX = 1.5
_READY_PAUSE_SECONDS = 0.05

# Who dials whom, by place; the publisher's broker is the first, subscribers are at the last.
_TREES: dict[str, tuple[tuple[int | None, ...], tuple[int, ...]]] = {
    "one": ((None,), (0,)),
    "chain-of-3": ((None, 0, 1), (2,)),
    "tree-of-7": ((None, 0, 0, 1, 1, 2, 2), (3, 4, 5, 6)),
}


class BraidBrokers(ServerProcess):
    """One broker or a small network of them, each a process of its own."""

    program = sys.executable

    def __init__(self, topology: str, *, traced: bool = False, stored: bool = False) -> None:
        self._traced = traced
        self._stored = stored
        parents, leaves = _TREES[topology]
        self._parents = parents
        self._broker_ports = free_ports(len(parents))
        super().__init__()
        self.ports = [self._broker_ports[0], *(self._broker_ports[leaf] for leaf in leaves)]
        self.next_leaf = 0
        """Subscribers are spread over the leaves in turn."""
        try:
            for port in self.ports[1:]:
                _wait_ready(port)
        except BaseException:
            self.stop()
            raise

    def launch(self, port: int) -> None:
        """Start all brokers; a broker's parent is dialled until it is there."""
        self.ports = [self._broker_ports[-1]]
        for place, (own, parent) in enumerate(zip(self._broker_ports, self._parents, strict=True)):
            neighbour = [] if parent is None else ["--neighbor", f"{HOST}:{self._broker_ports[parent]}"]
            listen = ["--id", f"broker-{place}", "--listen", f"{HOST}:{own}", "--log-level", "error"]
            # The raw clients do not answer while others have their turn, so the broker must not mind.
            text = "[broker]\nheartbeat_us = 3_600_000_000\n"
            if self._traced:
                text += f'[trace]\ndirectory = "trace"\nage_s_max = {_TRACE_AGE_S_MAX}\n'
            patient = self.write(f"broker-{place}.toml", text)
            stored = ["--data-dir", str(self.directory / f"data-{place}")] if self._stored else []
            options = [*listen, "--config", str(patient), *stored, *neighbour]
            self.run(sys.executable, "-m", "braid.cli", "broker", *options)


class Braid:
    """Braid's brokers, with nothing stored but what durable delivery asks for; `traced`: and a trace."""

    filter_form: FilterForm | None = "sql"
    once_per: DeliveryUnit = "connection"
    topologies: tuple[str, ...] = tuple(_TREES)

    def __init__(self, *, traced: bool = False, delivery: Delivery = "fast") -> None:
        self.name = "braid with a trace" if traced else "braid"
        self._traced = traced
        self._delivery = delivery

    def delivering(self, delivery: Delivery) -> Braid:
        """The same with that guarantee."""
        return Braid(traced=self._traced, delivery=delivery)

    def missing(self) -> str | None:
        """It is always there."""
        return None

    def version(self) -> str | None:
        """The version of the package."""
        return braid.__version__

    def start(self, topology: str) -> RunningServer:
        """Start the brokers of a topology."""
        return BraidBrokers(topology, traced=self._traced, stored=self._delivery == "durable")

    def publisher(self, server: RunningServer) -> BraidPublisher:
        """Open the publishing connection."""
        session = _Session(server.ports[0], "publisher")
        return BraidPublisher(session) if self._delivery == "fast" else BraidReceiptPublisher(session)

    def publishers(self, server: RunningServer, count: int) -> BraidPublisher:
        """Open a connection on which so many publish in turn, as on a link behind which they are."""
        return BraidPublisher(_Session(server.ports[0], "publisher"), count)

    def subscriber(self, server: RunningServer, interests: Sequence[Interest] | None) -> Subscriber:
        """Open a subscribing connection at the next leaf."""
        if not isinstance(server, BraidBrokers):
            raise TypeError(f"{server!r} are not Braid's brokers")
        leaves = server.ports[1:]
        session = _Session(leaves[server.next_leaf % len(leaves)], f"subscriber-{server.next_leaf}")
        server.next_leaf += 1
        filters = ["TRUE"] if interests is None else [interest.sql() for interest in interests]
        if self._delivery == "durable":
            session.subscribe_durable(_LOG, " OR ".join(f"({text})" for text in filters))
            return BraidCarefulSubscriber(session)
        for start in range(0, len(filters), _SUBSCRIBE_AT_ONCE):
            session.subscribe(filters[start : start + _SUBSCRIBE_AT_ONCE], start)
        return BraidSubscriber(session) if self._delivery == "fast" else BraidCarefulSubscriber(session)


def _wait_ready(port: int) -> None:
    """Until a leaf is linked to everybody on its way to the publisher."""
    deadline = time.monotonic() + _READY_SECONDS_MAX
    while time.monotonic() < deadline:
        with suppress(ConnectionRefusedError):
            session = _Session(port, "starter")
            ready = session.ask("overlay")["ready"]
            session.connection.socket.close()
            if ready:
                return
        time.sleep(_READY_PAUSE_SECONDS)
    raise ConnectionLostError(f"the broker on port {port} has not found its neighbours")


class _Session:
    """A greeted connection while it is being set up."""

    def __init__(self, port: int, name: str) -> None:
        self.name = name
        self.connection = SetUp(port)
        self.channel: Channel[Any] = Channel(ChannelSettings())
        self._decoder = FrameDecoder()
        self._say(
            Frame(0, Hello(PROTOCOL_VERSION, "client", name, f"{name}-{time.time_ns()}", credit=_CREDIT))
        )
        welcome = self._hear(Welcome)
        if not isinstance(welcome, Welcome):
            raise RemoteProtocolError(f"the broker answered {welcome!r}")
        self.channel.restart(welcome.credit)

    def subscribe(self, filters: Sequence[str], first: int) -> None:
        """Subscribe, and wait until all of it is in force."""
        for number, text in enumerate(filters, first):
            self.channel.offer(Subscribe(number, str(number), text))
        self._say(*self.channel.take())
        for _ in filters:
            answer = self._hear(Done)
            if isinstance(answer, Failed):
                raise RemoteProtocolError(f"the broker refused a subscription: {answer.reason}")
        self._say(Frame(0, Acknowledgement(self.channel.received, self.channel.received, _CREDIT)))

    def subscribe_durable(self, name: str, text: str) -> None:
        """Have a log made, and read it."""
        self.channel.offer(SubscribeDurable(1, name, text, secret=self.name))
        self._say(*self.channel.take())
        answer = self._hear(Done)
        if isinstance(answer, Failed):
            raise RemoteProtocolError(f"the broker refused a durable subscription: {answer.reason}")

    def ask(self, topic: str) -> Any:
        """What the broker reports."""
        self.channel.offer(Ask(1, topic))
        self._say(*self.channel.take())
        answer = self._hear(Done)
        if not isinstance(answer, Done):
            raise RemoteProtocolError(f"the broker answered {answer!r}")
        return msgspec.json.decode(answer.text)

    def _say(self, *frames: Frame) -> None:
        self.connection.send(encode_frames(frames))

    def _hear(self, kind: type) -> Any:
        """The next message that is an answer."""
        while True:
            header = self.connection.read(_HEADER.size)
            length, _, _ = _HEADER.unpack(header)
            frames = self._decoder.feed(header + self.connection.read(length + 4 - _HEADER.size))
            for frame in frames:
                if frame.sequence:
                    self.channel.accept(frame)
                if isinstance(frame.body, kind | Failed | Refused):
                    return frame.body


class _Frames:
    """Walks over frames without decoding them, to know the number of the last whole one."""

    def __init__(self, received: int) -> None:
        self.last = received
        self._last_begun = received
        self._skip = 0
        self._head = b""

    def walk(self, data: bytes) -> None:
        """Take in the bytes of one read."""
        if self._skip >= len(data):
            self._skip -= len(data)
            return
        self.last = self._last_begun
        data = self._head + data[self._skip :]
        self._skip, self._head = 0, b""
        position = 0
        while position + _HEADER.size <= len(data):
            length, _, sequence = _HEADER.unpack_from(data, position)
            position += 4 + length
            self._last_begun = max(self._last_begun, sequence)
            if position <= len(data):
                self.last = self._last_begun
        if position <= len(data):
            self._head = data[position:]
        else:
            self._skip = position - len(data)


class BraidPublisher:
    """Puts messages into batches, as Braid's client does with what is published at once.

    With a number of publishers each message is a batch of its own, of the next of them.
    """

    def __init__(self, session: _Session, publishers: int = 0) -> None:
        self._channel = session.channel
        self._publisher = session.name
        self._publishers = publishers
        self._decoder = FrameDecoder()
        self._socket: socket.socket = session.connection.done()
        self._sequence = 0
        self._rest = memoryview(b"")

    def fileno(self) -> int:
        """The socket, for waiting."""
        return self._socket.fileno()

    def encode(self, message: Message) -> bytes:
        """The record of a message."""
        quote = message.quote
        values = (
            {} if quote is None else {"symbol": quote.symbol, "price": quote.price, "volume": quote.volume}
        )
        return encode_record(values, 0, message.body)

    def send(self, encoded: Sequence[bytes]) -> None:
        """Publish these now, as one batch for each publisher."""
        first = self._sequence + 1
        self._sequence += len(encoded)
        if not self._publishers:
            self._offer(first, encoded)
        else:
            for number, record in enumerate(encoded, first):
                name = f"{self._publisher}.{number % self._publishers}"
                self._channel.offer(PublicationBatch.of(name, (number,), (record,)))
        self.flush()

    def _offer(self, first: int, encoded: Sequence[bytes]) -> None:
        numbers = range(first, first + len(encoded))
        self._channel.offer(PublicationBatch.of(self._publisher, numbers, encoded))

    def flush(self) -> None:
        """Write more of what is kept."""
        if not self._rest:
            self._rest = memoryview(encode_frames(self._channel.take()))
        try:
            self._rest = self._rest[self._socket.send(self._rest) :]
        except BlockingIOError:
            return

    def pending(self) -> bool:
        """Whether something is kept."""
        return len(self._rest) > 0 or self._channel.waiting_bytes > 0

    def receive(self) -> None:
        """Take in acknowledgements."""
        data = self._socket.recv(_READ_BYTES)
        if not data:
            raise ConnectionLostError("the broker ended the publisher's connection")
        for frame in self._decoder.feed(data):
            if isinstance(frame.body, Acknowledgement):
                self._channel.acknowledged(frame.body)
            elif isinstance(frame.body, Ping):
                self._socket.sendall(encode_frames([Frame(0, Pong(frame.body.number))]))
            elif isinstance(frame.body, Refused):
                raise ConnectionLostError(f"the broker refused the publisher: {frame.body.reason}")

    def close(self) -> None:
        """End the connection."""
        self._socket.close()


class BraidReceiptPublisher(BraidPublisher):
    """Publishes with acknowledged delivery, and counts what no receipt has come for."""

    def __init__(self, session: _Session) -> None:
        super().__init__(session)
        self._unsettled = 0

    def unsettled(self) -> int:
        """How many messages were sent of which no receipt has come."""
        return self._unsettled

    def _offer(self, first: int, encoded: Sequence[bytes]) -> None:
        numbers = range(first, first + len(encoded))
        batch = PublicationBatch.of(self._publisher, numbers, encoded, acknowledged=True, receipt=True)
        self._unsettled += len(encoded)
        self._channel.offer(batch, len(encoded))

    def receive(self) -> None:
        """Take in receipts."""
        data = self._socket.recv(_READ_BYTES)
        if not data:
            raise ConnectionLostError("the broker ended the publisher's connection")
        for frame in self._decoder.feed(data):
            body = frame.body
            if frame.sequence:
                self._channel.accept(frame)
            if isinstance(body, Acknowledgement):
                self._unsettled -= sum(self._channel.acknowledged(body))
            elif isinstance(body, Settled):
                self._unsettled -= sum(self._channel.settled_apart(body.frames))
            elif isinstance(body, Ping):
                self._socket.sendall(encode_frames([Frame(0, Pong(body.number))]))
            elif isinstance(body, Refused | PublishRefused | PublishDiscarded):
                raise RemoteProtocolError(f"the broker did not take what was published: {body!r:.200}")


class BraidSubscriber:
    """Counts deliveries, and acknowledges frames as Braid's client does."""

    def __init__(self, session: _Session) -> None:
        self._frames = _Frames(session.channel.received)
        self._acknowledged = session.channel.received
        self._acknowledge_at = 0.0
        self._socket: socket.socket = session.connection.done()
        self._counter = MarkerCounter()
        self._bytes = 0

    def fileno(self) -> int:
        """The socket, for waiting."""
        return self._socket.fileno()

    def receive(self) -> int:
        """Read what is there and say how many deliveries it began."""
        try:
            data = self._socket.recv(_READ_BYTES)
        except BlockingIOError:
            return 0
        if not data:
            raise ConnectionLostError("the broker closed a subscriber's connection")
        self._bytes += len(data)
        self._frames.walk(data)
        self._acknowledge()
        return self._counter.count(data)

    def _acknowledge(self) -> None:
        last = self._frames.last
        if last == self._acknowledged:
            if self._bytes < _PING_BYTES_MAX:
                # Nothing but a question whether we are there.
                self._socket.send(encode_frames([Frame(0, Pong(0))]))
            return
        now = time.monotonic()
        if not self._acknowledge_at:
            self._acknowledge_at = now + _ACKNOWLEDGE_SECONDS
        many = last - self._acknowledged >= _ACKNOWLEDGE_FRAMES or self._bytes > 1 << 20
        if many or now >= self._acknowledge_at:
            self._acknowledged, self._acknowledge_at, self._bytes = last, 0.0, 0
            told = Acknowledgement(last, last, _CREDIT)
            self._socket.send(encode_frames([Frame(0, told)]))

    def close(self) -> None:
        """End the connection."""
        self._socket.close()


class BraidCarefulSubscriber:
    """Says at once what it has, as Braid's client does where a publisher waits for a receipt.

    Of a log it also says how far it has read.
    """

    def __init__(self, session: _Session) -> None:
        self._channel = session.channel
        self._decoder = FrameDecoder()
        self._socket: socket.socket = session.connection.done()

    def fileno(self) -> int:
        """The socket, for waiting."""
        return self._socket.fileno()

    def receive(self) -> int:
        """Read what is there and say how many deliveries it completed."""
        try:
            data = self._socket.recv(_READ_BYTES)
        except BlockingIOError:
            return 0
        if not data:
            raise ConnectionLostError("the broker closed a subscriber's connection")
        channel, count = self._channel, 0
        for frame in self._decoder.feed(data):
            body = frame.body
            if frame.sequence:
                channel.accept(frame)
            if isinstance(body, PublicationBatch):
                count += len(body)
            elif isinstance(body, StoredPublications):
                count += len(body.rows)
                last = body.offsets[-1] if body.offsets else body.first_offset + len(body.rows) - 1
                channel.offer(Acknowledge(body.name, last, body.epoch))
            elif isinstance(body, Ping):
                self._socket.send(encode_frames([Frame(0, Pong(body.number))]))
        told = Frame(0, Acknowledgement(channel.received, channel.received, _CREDIT))
        self._socket.send(encode_frames([told, *channel.take()]))
        return count

    def close(self) -> None:
        """End the connection."""
        self._socket.close()
