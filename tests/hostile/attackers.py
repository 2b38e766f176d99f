"""What would somebody do who wants to do harm, and what does it cost them?

An attacker speaks the protocol over a plain socket, as fast as it goes, and cares for nothing. Each attack is
a function that returns when all its bytes are with the system, or when it is told to stop.
"""

from __future__ import annotations

import socket
import threading
from contextlib import suppress
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from braid.protocol import Channel, ChannelSettings, Frame, FrameDecoder, encode_frames
from braid.protocol.codec import FRAME_BYTES_MAX
from braid.protocol.messages import (
    PROTOCOL_VERSION,
    Ask,
    Done,
    Hello,
    Message,
    Refused,
    Subscribe,
    Unsubscribe,
    Welcome,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from braid.protocol.codec import Body

__all__ = ["Attack", "RawClient", "ask_and_never_read", "subscribe_and_unsubscribe", "subscribe_at_once"]

# How long a peer that is expected to answer may take, on the slowest machine.
PATIENCE_S = 120.0
CREDIT = 1 << 22
# What an attack has sent when it counts as being under way.
UNDER_WAY_BYTES = 500_000


class RawClient:
    """A connection to a broker that says whatever it is told to."""

    def __init__(self, address: str, name: str, token: str | None = None) -> None:
        where = urlsplit(address)
        assert where.hostname is not None
        assert where.port is not None
        self.socket = socket.create_connection((where.hostname, where.port), timeout=PATIENCE_S)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.name = name
        self.channel: Channel[object] = Channel(ChannelSettings(window_bytes=CREDIT))
        self._decoder = FrameDecoder(FRAME_BYTES_MAX)
        self._sent = 0
        self.sent_bytes = 0
        """What was sent after the greeting."""
        self.socket.sendall(encode_frames([Frame(0, self.hello(token))]))
        for frame in self.frames():
            if isinstance(frame.body, Welcome):
                self.welcome = frame.body
                return
            if isinstance(frame.body, Refused):
                self.close()
                raise ConnectionRefusedError(frame.body.reason)
        self.close()
        raise ConnectionRefusedError("without a word")

    def hello(self, token: str | None) -> Hello:
        """The greeting."""
        return Hello(PROTOCOL_VERSION, "client", self.name, f"{self.name}-1", token, credit=CREDIT)

    def numbered(self, bodies: Iterable[Body]) -> bytes:
        """The bytes of these, with the numbers that come next."""
        frames = []
        for body in bodies:
            self._sent += 1
            frames.append(Frame(self._sent, body))
        return encode_frames(frames)

    def say(self, *bodies: Body) -> None:
        """Send these as part of the session."""
        data = self.numbered(bodies)
        self.sent_bytes += len(data)
        self.socket.sendall(data)

    def tell_connection(self, message: Message) -> None:
        """Send a message that is no part of the session."""
        self.socket.sendall(encode_frames([Frame(0, message)]))

    def frames(self) -> Iterator[Frame]:
        """What comes, as it comes, until the broker ends the connection."""
        while data := self.socket.recv(1 << 16):
            yield from self._decoder.feed(data)

    def close(self) -> None:
        """Go without a word."""
        self.socket.close()


class Attack:
    """Attackers at work in threads of their own, until `stop`."""

    def __init__(self) -> None:
        self.stopping = threading.Event()
        self.under_way = threading.Event()
        """Set when the broker has been sent enough to be busy for long."""
        self.clients: list[RawClient] = []
        self.bytes = 0
        """What the attackers have sent so far: their cost."""
        self.answers = 0
        """What they were answered."""
        self._threads: list[threading.Thread] = []

    def send(self, client: RawClient, data: bytes) -> None:
        """Send in pieces, so that stopping is noticed."""
        for start in range(0, len(data), 1 << 16):
            if self.stopping.is_set():
                return
            piece = data[start : start + (1 << 16)]
            client.socket.sendall(piece)
            self.bytes += len(piece)
            if self.bytes > UNDER_WAY_BYTES:
                self.under_way.set()

    def join(self, address: str, name: str, token: str | None = None) -> RawClient:
        """One attacker more."""
        client = RawClient(address, name, token)
        self.clients.append(client)
        return client

    def begin(self, *actions: object) -> None:
        """Let each of these run in a thread."""
        for action in actions:
            thread = threading.Thread(target=self._run, args=(action,), daemon=True)
            self._threads.append(thread)
            thread.start()

    def _run(self, action: object) -> None:
        assert callable(action)
        with suppress(OSError):  # sent away, or stopped
            action()

    def read_answers(self, client: RawClient) -> None:
        """Count what comes back, and acknowledge nothing but what the channel needs."""
        for frame in client.frames():
            if frame.sequence:
                client.channel.accept(frame)
            self.answers += isinstance(frame.body, Done)
            told = client.channel.acknowledgement() if client.channel.acknowledgement_due() else None
            if told is not None:
                client.tell_connection(told)

    def stop(self) -> None:
        """End everything."""
        self.stopping.set()
        for client in self.clients:
            with suppress(OSError):
                client.socket.shutdown(socket.SHUT_RDWR)
            client.close()
        for thread in self._threads:
            thread.join(PATIENCE_S)


def subscribe_and_unsubscribe(address: str, clients: int = 3, rounds: int = 50_000) -> Attack:
    """Clients that subscribe and take it back, over and over, each with filters nobody else has."""
    attack = Attack()
    joined = [attack.join(address, f"restless{number}") for number in range(clients)]
    for number, client in enumerate(joined):

        def storm(client: RawClient = client, number: int = number) -> None:
            for turn in range(0, rounds, 500):
                bodies: list[Body] = []
                for each in range(turn, turn + 500):
                    bodies.append(Subscribe(2 * each + 1, str(each), f"place = {each} AND cost > {number}"))
                    bodies.append(Unsubscribe(2 * each + 2, str(each)))
                attack.send(client, client.numbered(bodies))

        def read(client: RawClient = client) -> None:
            attack.read_answers(client)

        attack.begin(storm, read)
    return attack


def ask_and_never_read(address: str, questions: int = 369_000) -> Attack:
    """One who asks for reports and reads none of them."""
    attack = Attack()
    client = attack.join(address, "curious")

    def storm() -> None:
        for turn in range(0, questions, 1000):
            asked = [Ask(each, "statistics", {}) for each in range(turn, turn + 1000)]
            attack.send(client, client.numbered(asked))

    attack.begin(storm)
    return attack


def subscribe_at_once(address: str, subscriptions: int = 20_000) -> Attack:
    """One who subscribes so often in one go."""
    attack = Attack()
    client = attack.join(address, "collector")

    def storm() -> None:
        bodies = [
            Subscribe(each, str(each), f"place = {each} AND cost > 1") for each in range(1, subscriptions + 1)
        ]
        attack.send(client, client.numbered(bodies))

    def read() -> None:
        attack.read_answers(client)

    attack.begin(storm, read)
    return attack
