"""Peer machines in one process, step by step: a plain network with chosen latency, loss and deaths."""

from __future__ import annotations

import random
from heapq import heappop, heappush
from typing import TYPE_CHECKING, Any

import msgspec

from braid.p2p.dht.identifiers import closeness, contact_of, number_of
from braid.protocol.codec import Frame, FrameDecoder, encode_frames
from braid.protocol.effects import Drained, SendTo
from braid.protocol.inputs import Drain, Heard, Tick

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from braid.p2p.dht.interface import Dht
    from braid.p2p.peer import Peer
    from braid.protocol.codec import Vocabulary
    from braid.protocol.effects import Effect

__all__ = ["Recorder", "Wire", "Word", "owner_among"]


class Word(msgspec.Struct, array_like=True, tag=200, frozen=True):
    """What the test application says."""

    text: str


class Recorder:
    """An application that writes down every upcall."""

    def __init__(self, dht: Dht) -> None:
        self.dht = dht
        self.delivered: list[tuple[bytes, str]] = []
        self.forwarded: list[tuple[str, str]] = []
        self.direct: list[tuple[str, str]] = []
        self.returned: list[tuple[str, str]] = []
        self.failed: list[str] = []
        self.goodbyes: list[str] = []
        self.ownership_changes = 0
        self.is_joined = False
        self.stops: set[str] = set()

    def deliver(self, key: bytes, message: Any, sender: str, now_us: int) -> None:
        self.delivered.append((key, message.text))

    def forward(self, key: bytes, message: Any, sender: str, following: str, now_us: int) -> Any:
        self.forwarded.append((sender, following))
        return None if message.text in self.stops else message

    def received(self, sender: str, message: Any, now_us: int) -> None:
        self.direct.append((sender, message.text))

    def undelivered(self, address: str, message: Any, now_us: int) -> None:
        self.returned.append((address, message.text))

    def joined(self, now_us: int) -> None:
        assert not self.is_joined, "joined is called once"
        self.is_joined = True

    def ownership_changed(self, now_us: int) -> None:
        self.ownership_changes += 1

    def peer_failed(self, address: str, now_us: int, *, polite: bool) -> None:
        (self.goodbyes if polite else self.failed).append(address)

    def leaving(self, now_us: int) -> bool:
        for contact in self.dht.neighbours(2):
            self.dht.send(contact.address, Word("handed over"), now_us)
        return True

    def parting(self, now_us: int) -> bool:
        return True

    def tick(self, now_us: int) -> None:
        pass

    def next_deadline_us(self) -> int | None:
        return None


class Wire:
    """Drives peers. What it knows of them, who is alive, no peer is told."""

    def __init__(self, make: Callable[[str, list[str]], Peer], seed: int = 1, loss: float = 0.0) -> None:
        self._make = make
        self.chance = random.Random(seed)
        self.loss = loss
        self.now_us = 0
        self.peers: dict[str, Peer] = {}
        self.going: dict[str, Peer] = {}
        """Those who are leaving."""
        self.cut: Callable[[str, str], bool] = lambda source, target: False
        self.sent = 0
        self.vocabulary: Vocabulary | None = None
        """Set to have every datagram encoded and decoded."""
        self._heap: list[tuple[int, int, str, Any]] = []
        self._serial = 0
        self._due: dict[str, int] = {}

    def add(self, address: str, bootstrap: Iterable[str] = ()) -> Peer:
        peer = self.peers[address] = self._make(address, list(bootstrap))
        self._rearm(address)
        return peer

    def kill(self, address: str) -> None:
        """It is gone without a word."""
        del self.peers[address]

    def leave(self, address: str) -> None:
        """It says goodbye; from then on it is none of `peers`, but goes on until it is done."""
        peer = self.peers.pop(address)
        self.going[address] = peer
        self._perform(address, peer.handle(Drain(), self.now_us))
        self._rearm(address)

    def act(self, address: str, action: Callable[[Peer], None]) -> None:
        """Call the application from outside."""
        peer = self.peers[address]
        action(peer)
        self._perform(address, peer.complete(self.now_us))
        self._rearm(address)

    def run(self, seconds: float) -> None:
        until_us = self.now_us + int(seconds * 1e6)
        while self._heap and self._heap[0][0] <= until_us:
            self.now_us, _, address, stimulus = heappop(self._heap)
            peer = self._at(address)
            if peer is None or (isinstance(stimulus, Tick) and self._due.get(address) != self.now_us):
                continue
            if isinstance(stimulus, Tick):
                del self._due[address]
            self._perform(address, peer.handle(stimulus, self.now_us))
            self._rearm(address)
        self.now_us = until_us

    def _at(self, address: str) -> Peer | None:
        return self.peers.get(address) or self.going.get(address)

    def _perform(self, source: str, effects: list[Effect]) -> None:
        for effect in effects:
            if isinstance(effect, Drained):
                del self.going[source]
            if not isinstance(effect, SendTo):
                continue
            self.sent += 1
            messages = effect.messages
            if self.vocabulary is not None:
                data = encode_frames(Frame(0, each) for each in messages)  # type: ignore[arg-type]
                decoded = FrameDecoder(vocabulary=self.vocabulary).feed(data)
                messages = [frame.body for frame in decoded]
                # Compared as bytes: a NaN is not equal to itself.
                assert data == encode_frames(Frame(0, each) for each in messages)
            if self.chance.random() < self.loss or self.cut(source, effect.address):
                continue
            self._push(
                self.now_us + self.latency_us(source, effect.address), effect.address, Heard(source, messages)
            )

    def latency_us(self, source: str, target: str) -> int:
        return 5_000 + (hash_of(source) ^ hash_of(target)) % 40_000

    def _push(self, at_us: int, address: str, stimulus: Any) -> None:
        self._serial += 1
        heappush(self._heap, (at_us, self._serial, address, stimulus))

    def _rearm(self, address: str) -> None:
        peer = self._at(address)
        deadline_us = peer.next_deadline_us() if peer is not None else None
        if deadline_us is None:
            return
        deadline_us = max(deadline_us, self.now_us)
        if self._due.get(address) != deadline_us:
            self._due[address] = deadline_us
            self._push(deadline_us, address, Tick())


def hash_of(address: str) -> int:
    return number_of(contact_of(address).id)


def owner_among(addresses: Iterable[str], key: bytes) -> str:
    """The owner by the rule, from knowing everybody: the plainest way to say it."""
    return min(addresses, key=lambda each: closeness(hash_of(each), number_of(key)))
