"""The neighbour that stands for all peers, as the broker of a gateway sees it.

To its broker a network of peers looks like one more broker at the edge of the tree: it advertises whatever
peers may publish, subscribes to what they want, hears what the brokers want, and publications cross the link
in both directions with the ids they have. So everything that holds for links holds here: subscriptions are
answered when they are installed, credit bounds what is under way, and repeats are told by their ids.

This is that neighbour's side of the link, without the peers: what it hears is handed to `Peers`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Protocol

from braid.errors import FilterError
from braid.language import Filter
from braid.protocol import PublicationBatch
from braid.protocol.changes import AvoidShortcuts, ShortcutsAvoided
from braid.protocol.channel import Channel, ChannelSettings
from braid.protocol.codec import Frame
from braid.protocol.messages import (
    PROTOCOL_VERSION,
    UNSEQUENCED,
    Acknowledgement,
    Advertise,
    Done,
    Failed,
    Hello,
    Ping,
    Pong,
    Subscribe,
    SyncBegin,
    TablesComplete,
    Unadvertise,
    Unsubscribe,
    Welcome,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from braid.protocol.messages import Message

__all__ = ["Peers", "PeersLink"]

# Publications of peers that wait for the broker. Beyond it the oldest are dropped, as datagrams may be.
WAITING_BYTES_MAX: Final = 16 * 1024 * 1024
# What is settled and received is told after each turn: nothing here takes time.
_SETTINGS: Final = ChannelSettings(acknowledge_after_frames=1)


class Peers(Protocol):
    """Who is behind the link."""

    def wanted(self, key: str, condition: Filter, request: int) -> None:
        """The brokers want this; `PeersLink.installed` answers."""
        ...

    def unwanted(self, key: str) -> None:
        """They do not want it any more."""
        ...

    def publications(self, batch: PublicationBatch) -> None:
        """Publications of the brokers that peers may want."""
        ...


class PeersLink:
    """One end of a link between a broker and its peers. Frames go in and out; the driver is a machine."""

    def __init__(self, name: str, incarnation: str, token: str | None, frame_bytes_max: int) -> None:
        """
        Args:
            name: what the broker calls the peers.
            incarnation: another one for every start of the process.
            token: what is shown to the broker.
            frame_bytes_max: the largest frame that the broker reads.
        """
        self.name = name
        self.up = False
        """Whether the broker has welcomed us."""
        self.dropped = 0
        """Publications of peers that found no room."""
        self._incarnation = incarnation
        self._token = token
        self._frame_bytes_max = frame_bytes_max
        self._channel: Channel[None] = Channel(_SETTINGS)
        self._unsequenced: list[Message] = []
        self._requests = 0
        self._interests: dict[str, str] = {}
        """What the broker was told that peers want: keys by the texts of filters."""
        self._untold: dict[int, str] = {}
        """By request, the keys of those that the broker has not answered."""
        self._keys = 0
        self._wanted: dict[str, str] = {}
        """What the brokers want, by their keys."""

    # The connection.

    def hello(self) -> list[Frame]:
        """The first frames of a new connection."""
        self.up = False
        hello = Hello(
            PROTOCOL_VERSION,
            "broker",
            self.name,
            self._incarnation,
            self._token,
            credit=_SETTINGS.window_bytes,
            brokers=[self.name],
            frame_bytes_max=self._frame_bytes_max,
        )
        return [Frame(0, hello)]

    def lost(self) -> None:
        """The connection has ended."""
        self.up = False
        self._channel.disconnect()

    def take(self) -> list[Frame]:
        """What is to be written now."""
        frames = self._channel.take() if self.up else []
        frames = [*(Frame(0, message) for message in self._unsequenced), *frames]
        self._unsequenced.clear()
        if self.up and self._channel.acknowledgement_waits:
            told = self._channel.acknowledgement()
            if told is not None:
                frames.append(Frame(0, told))
        return frames

    def received(self, frames: Sequence[Frame], peers: Peers) -> None:
        """Take in what the broker says."""
        for frame in frames:
            body = frame.body
            if isinstance(body, PublicationBatch):
                if self._channel.accept(frame):
                    peers.publications(body)
            elif isinstance(body, UNSEQUENCED):
                self._heard(body, peers)
            elif self._channel.accept(frame):
                self._asked(body, peers)
        # Whatever came is with the peers now, as far as anybody can say.
        self._channel.settled = self._channel.received

    def _heard(self, message: Message, peers: Peers) -> None:
        if isinstance(message, Welcome):
            self._welcomed(message, peers)
        elif isinstance(message, Acknowledgement):
            self._channel.acknowledged(message)
        elif isinstance(message, Ping):
            self._unsequenced.append(Pong(message.number))

    def _welcomed(self, welcome: Welcome, peers: Peers) -> None:
        self.up = True
        self._channel.restart(welcome.credit)
        self._channel.frame_bytes_max = welcome.frame_bytes_max
        # It says everything anew, so what it does not repeat it does not want.
        for key in list(self._wanted):
            del self._wanted[key]
            peers.unwanted(key)
        self._tell(SyncBegin())
        self._tell(Advertise(self._request(), f"{self.name}/*", "TRUE"))
        interests = list(self._interests)
        self._interests.clear()
        self._untold.clear()
        self.want(interests)
        self._tell(TablesComplete())

    def _asked(self, message: object, peers: Peers) -> None:
        if isinstance(message, Subscribe):
            try:
                condition = Filter(message.filter)
            except FilterError as error:
                self._tell(Failed(message.request, "refused", str(error)))
                return
            self._wanted[message.key] = message.filter
            peers.wanted(message.key, condition, message.request)
        elif isinstance(message, Unsubscribe):
            if self._wanted.pop(message.key, None) is not None:
                peers.unwanted(message.key)
            self._tell(Done(message.request))
        elif isinstance(message, Done | Failed):
            self._untold.pop(message.request, None)
        elif isinstance(message, Advertise | Unadvertise):
            # Whatever is published, what peers want has been told.
            self._tell(Done(message.request))
        elif isinstance(message, AvoidShortcuts):
            # There are none here; an operation waits until everybody in sight has said so.
            self._tell(ShortcutsAvoided(message.operation))

    # The peers.

    def installed(self, request: int) -> None:
        """Peers know of a subscription."""
        if self.up:
            self._tell(Done(request))

    def want(self, interests: Sequence[str]) -> None:
        """Tell the broker what peers want, all of it: the texts of filters."""
        for text in interests:
            if text not in self._interests:
                self._keys += 1
                key = self._interests[text] = f"{self.name}/wanted{self._keys}"
                if self.up:
                    request = self._request()
                    self._untold[request] = key
                    self._tell(Subscribe(request, key, text))
        for text in [each for each in self._interests if each not in interests]:
            key = self._interests.pop(text)
            if self.up:
                self._tell(Unsubscribe(self._request(), key))

    @property
    def is_told(self) -> bool:
        """Whether the broker and all behind it know what peers want."""
        return self.up and not self._untold

    def publish(self, batch: PublicationBatch) -> None:
        """Hand publications of peers to the broker."""
        self._channel.offer(batch)
        if self._channel.waiting_bytes > WAITING_BYTES_MAX:
            self.dropped += self._channel.drop_oldest(WAITING_BYTES_MAX, 0)

    def _request(self) -> int:
        self._requests += 1
        return self._requests

    def _tell(self, message: Message) -> None:
        self._channel.offer(message)
