"""Small machines that show what the engine does to any machine."""

from __future__ import annotations

from typing import TYPE_CHECKING

from braid.protocol import Frame, PublicationBatch, encode_record
from braid.protocol.effects import Close, Dial, Persist, ReadLog, Send, Unlock
from braid.protocol.inputs import Closed, Opened, Received, Tick, Writable

if TYPE_CHECKING:
    from braid.protocol.effects import Effect
    from braid.protocol.inputs import Input

__all__ = ["Toy", "publication"]


def publication(number: int, body_bytes: int = 0) -> Frame:
    """A frame with one publication."""
    record = encode_record({"number": number}, 0, b"x" * body_bytes)
    return Frame(number, PublicationBatch.of("toy", (number,), (record,)))


class Toy:
    """Dials whom it is told to, remembers what happens and when, and does what was put into `orders`."""

    def __init__(self, dial: str = "", *, every_us: int = 0) -> None:
        self.dial = dial
        self.every_us = every_us
        self.happened: list[tuple[int, Input]] = []
        self.connection = 0
        self.orders: list[Effect] = []
        self.ticks: list[int] = []
        self.unlocked: list[int] = []
        self.deadline_us: int | None = every_us or None
        self._dialled = False

    def handle(self, stimulus: Input, now_us: int) -> list[Effect]:
        if isinstance(stimulus, Tick):
            self.ticks.append(now_us)
        else:
            self.happened.append((now_us, stimulus))
        if isinstance(stimulus, Opened):
            self.connection = stimulus.connection
        effects, self.orders = self.orders, []
        self.unlocked += [each.token for each in effects if isinstance(each, Unlock)]
        if self.dial and not self._dialled:
            self._dialled = True
            effects.append(Dial(self.dial))
        if self.every_us:
            self.deadline_us = now_us + self.every_us
        return effects

    def next_deadline_us(self) -> int | None:
        return self.deadline_us if not self.orders else 0

    # What was heard.

    def received(self) -> list[tuple[int, int]]:
        """When frames arrived, and their numbers."""
        return [
            (at_us, frame.sequence)
            for at_us, stimulus in self.happened
            if isinstance(stimulus, Received)
            for frame in stimulus.frames
        ]

    def numbers(self) -> list[int]:
        return [number for _, number in self.received()]

    def closed(self) -> list[tuple[int, str]]:
        return [(at_us, each.reason) for at_us, each in self.happened if isinstance(each, Closed)]

    def writable(self) -> list[tuple[int, bool]]:
        return [(at_us, each.writable) for at_us, each in self.happened if isinstance(each, Writable)]

    # What it is to do, at its next turn.

    def send(self, *frames: Frame) -> None:
        self.orders.append(Send(self.connection, list(frames)))

    def close(self, reason: str = "enough") -> None:
        self.orders.append(Close(self.connection, reason))

    def persist(self, effect: Persist | ReadLog) -> None:
        self.orders.append(effect)
