"""The real client's session in a network of broker cores that is driven step by step."""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING

from braid.client.effects import ClientSettings
from braid.client.session import ClientSession
from braid.protocol import ChannelSettings, FrameDecoder
from braid.protocol.effects import Close, Dial, Send
from braid.protocol.inputs import Closed, Opened, Received, Tick
from tests.broker.wire import WireClient

if TYPE_CHECKING:
    from collections.abc import Iterable

    from braid.client.effects import ClientEffect
    from braid.client.inbox import Interest
    from braid.protocol import Frame
    from tests.broker.wire import Network

__all__ = ["SessionClient"]


class SessionClient(WireClient):
    """A client as programs have it, without their sockets and tasks; for the network it is one of its own."""

    def __init__(self, network: Network, name: str, broker: str, window_bytes: int) -> None:
        self.decoder = FrameDecoder()
        self.name = name
        self.broker = broker
        self.connection = 0
        self.open = False
        self.seen: list[ClientEffect] = []
        self._network = network
        settings = ClientSettings(
            addresses=(broker,),
            name=name,
            publisher=name,
            incarnation=f"{name}-1",
            channel=ChannelSettings(window_bytes=window_bytes),
        )
        self.session = ClientSession(settings, Random(1))
        self._perform(self.session.start(network.now_us))
        network.run()

    def act(self) -> None:
        """Do what calls of the session have asked for."""
        self._perform(self.session.take_effects())

    def receive(self, frames: Iterable[Frame]) -> None:
        """The broker has sent something."""
        self._perform(self.session.handle(Received(self.connection, list(frames)), self._network.now_us))

    def take(self, interest: Interest, count_max: int) -> list[int]:
        """Read from a subscription, as its consumer does; returns the numbers that were read."""
        found = []
        while interest.queue and len(found) < count_max:
            found.append(int(interest.queue.popleft()["n"]))  # type: ignore[arg-type]
            if interest.crowded or (interest.line and not interest.queue):
                self.session.made_room(interest)
                self.act()
        return found

    def tick(self) -> None:
        """Some time has passed; the connection may have broken meanwhile."""
        if not self.open and self.connection:
            gone, self.connection = self.connection, 0
            self._perform(self.session.handle(Closed(gone, "cut"), self._network.now_us))
        self._perform(self.session.handle(Tick(), self._network.now_us))

    def _perform(self, effects: list[ClientEffect]) -> None:
        for effect in effects:
            if isinstance(effect, Send):
                if self.open and effect.connection == self.connection:
                    self._network.from_client(self, list(effect.frames))
            elif isinstance(effect, Dial):
                self.connection = self._network.connect_client(self, self.broker)
                self.decoder = FrameDecoder()
                self.open = True
                self._perform(self.session.handle(Opened(self.connection, "broker", effect.address), 0))
            elif isinstance(effect, Close):
                self._network.leave(self)
            else:
                self.seen.append(effect)
