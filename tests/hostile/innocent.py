"""What does somebody see who has nothing to do with the attack?

An innocent client publishes to itself, or to a client of the neighbouring broker, and asks whether the broker
is there; it writes down the longest it had to wait.
"""

from __future__ import annotations

import functools
import queue
import socket
import threading
import time
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

from braid.protocol import Frame, PublicationBatch
from braid.protocol.batch import encode_record
from braid.protocol.messages import Done, Failed, Message, Ping, Pong, Subscribe, Unsubscribe
from tests.hostile.attackers import PATIENCE_S, RawClient

if TYPE_CHECKING:
    from collections.abc import Callable

    from braid.protocol.codec import Body

__all__ = ["Innocent", "Seen"]


@dataclass
class Seen:
    """What an innocent client saw."""

    rounds: int = 0
    """How often publishing, asking and subscribing went through."""
    delivery_s: float = 0.0
    """The longest from publishing to delivery."""
    heartbeat_s: float = 0.0
    """The longest that a heartbeat took to be answered."""
    request_s: float = 0.0
    """The longest that a subscription took to be answered."""


class _Attentive:
    """A client that takes what comes and answers heartbeats at all times, whatever else is going on.

    As any client does: one that is silent while another broker starts would be sent away, and rightly.
    """

    def __init__(self, address: str, name: str, token: str | None = None) -> None:
        self._raw = RawClient(address, name, token)
        self.name = name
        self._sending = threading.Lock()
        self._frames: queue.SimpleQueue[Frame | None] = queue.SimpleQueue()
        """What has come; None when the connection has ended."""
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def say(self, body: Body) -> None:
        """Send this as part of the session."""
        with self._sending:
            self._raw.say(body)

    def tell_connection(self, message: Message) -> None:
        """Send a message that is no part of the session."""
        with self._sending:
            self._raw.tell_connection(message)

    def next_frame(self, patience_s: float) -> Frame:
        """What comes next."""
        try:
            frame = self._frames.get(timeout=patience_s)
        except queue.Empty:
            raise AssertionError(f"{self.name} has waited in vain") from None
        if frame is None:
            raise AssertionError(f"the broker has sent {self.name} away")
        return frame

    def close(self) -> None:
        """Go without a word."""
        with suppress(OSError):  # the broker was first
            self._raw.socket.shutdown(socket.SHUT_RDWR)
        self._reader.join()
        self._raw.close()

    def _read(self) -> None:
        channel = self._raw.channel
        with suppress(OSError):  # the end of the connection, which is told below
            for frame in self._raw.frames():
                if frame.sequence:
                    channel.accept(frame)
                    channel.settled = channel.received
                told = channel.acknowledgement()
                if told is not None:
                    self.tell_connection(told)
                if isinstance(frame.body, Ping):
                    self.tell_connection(Pong(frame.body.number))
                self._frames.put(frame)
        self._frames.put(None)


class Innocent:
    """A client that publishes to another one, which may be at another broker."""

    def __init__(
        self, here: str, there: str | None = None, *, partial: bool = False, token: str | None = None
    ) -> None:
        """
        Args:
            here: the broker where it publishes.
            there: the broker where it reads; None for the same.
            partial: be content with answers that hold for the part of the network that is there.
            token: what it shows to say who it is.
        """
        self._partial = partial
        self._writer = _Attentive(here, "innocent", token)
        self._publisher = f"{token}/innocent" if token is not None else "innocent"
        self._reader = _Attentive(there, "reader", token) if there is not None else self._writer
        self._published = 0
        self._requests = 1
        self.seen = Seen()
        self._reader.say(Subscribe(1, "mine", "innocent = TRUE", partial=partial))
        self._until(self._reader, lambda frame: isinstance(frame.body, Done))

    def _until(self, client: _Attentive, wanted: Callable[[Frame], bool]) -> float:
        begin = time.monotonic()
        while True:
            frame = client.next_frame(PATIENCE_S)
            if isinstance(frame.body, Failed):
                raise AssertionError(frame.body)
            if wanted(frame):
                return time.monotonic() - begin

    def round(self) -> None:
        """Publish once, ask once whether the broker is there, subscribe once and take it back."""
        seen = self.seen
        self._published += 1
        record = encode_record({"innocent": True, "number": self._published}, 0)
        self._writer.say(PublicationBatch.of(self._publisher, [self._published], [record]))
        took = self._until(self._reader, lambda frame: isinstance(frame.body, PublicationBatch))
        seen.delivery_s = max(seen.delivery_s, took)
        self._writer.tell_connection(Ping(self._published))
        took = self._until(self._writer, lambda frame: frame.body == Pong(self._published))
        seen.heartbeat_s = max(seen.heartbeat_s, took)
        for message in (
            Subscribe(self._requests + 1, "again", "innocent = FALSE", partial=self._partial),
            Unsubscribe(self._requests + 2, "again"),
        ):
            self._requests += 1
            self._writer.say(message)
            request = self._requests
            took = self._until(self._writer, functools.partial(_answers, request))
            seen.request_s = max(seen.request_s, took)
        seen.rounds += 1

    def close(self) -> None:
        """Go."""
        for client in {self._writer, self._reader}:
            client.close()


def _answers(request: int, frame: Frame) -> bool:
    return isinstance(frame.body, Done) and frame.body.request == request
