"""A broker that is also a peer: broker, peer and the link between them as one machine.

Clients and neighbours meet the broker; other peers meet the peer. A peer by itself (`braid peer`) is the same
with a broker that has no neighbours: its clients speak the same protocol everywhere. Publications cross with
the ids they have. What has crossed once, in either direction, is remembered for a while and does not cross
back; what comes by another gateway is told by its id, by brokers and by peers alike. So any number of
gateways make neither a loop nor a duplicate.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from braid.errors import LocalProtocolError
from braid.language import Filter
from braid.p2p.dmm.repeats import Repeats
from braid.protocol import PublicationBatch
from braid.protocol.batch import encode_record
from braid.protocol.codec import Frame
from braid.protocol.effects import Close, Delivery, Drained, Greeted, Note, Pause, Send
from braid.protocol.inputs import Closed, Drain, Heard, Malformed, Opened, Received, Tick
from braid.protocol.messages import Ping
from braid.protocol.publisher_names import whole_name

if TYPE_CHECKING:
    from collections.abc import Sequence

    from braid.broker.core import BrokerCore
    from braid.language import Publication
    from braid.p2p.dmm.application import Dmm
    from braid.p2p.gateway.link import PeersLink
    from braid.p2p.peer import Peer
    from braid.protocol.effects import Effect
    from braid.protocol.inputs import Input

__all__ = ["GatewaySettings", "PeeredBroker"]

# So many ids of what has crossed are remembered. A repeat comes within some seconds of the original.
CROSSED_MAX: Final = 65_536
# Broker and peers answer each other within a turn; more rounds than this mean that they never end.
ROUNDS_MAX: Final = 1_000
# A broker that is driven so late was not driven by anybody.
LATE_US: Final = 500_000
# How long after its end the link is opened again.
REOPEN_US: Final = 1_000_000
EVERYTHING: Final = "TRUE"
# Clients of a peer may not ask for these.
ACKNOWLEDGED: Final = (
    "peers do not acknowledge deliveries: publish with delivery='fast', or connect to a broker"
)


@dataclass(frozen=True, kw_only=True)
class GatewaySettings:
    """What may cross between brokers and peers."""

    to_peers: str = "TRUE"
    """Which publications of the brokers may go to peers: the text of a filter."""
    from_peers: str = "TRUE"
    """Which publications of peers may go to the brokers."""
    alone: bool = False
    """Whether there are no other brokers: a peer by itself, which does not acknowledge deliveries."""

    def __post_init__(self) -> None:
        for name in ("to_peers", "from_peers"):
            Filter(getattr(self, name))


class PeeredBroker:
    """One process of both worlds."""

    def __init__(
        self,
        broker: BrokerCore,
        peer: Peer,
        dmm: Dmm,
        link: PeersLink,
        settings: GatewaySettings | None = None,
    ) -> None:
        """
        Args:
            broker: the broker.
            peer: the peer, with `dmm` as its application.
            dmm: the application.
            link: what stands for the peers at the broker.
            settings: what may cross.
        """
        self.broker = broker
        self.peer = peer
        self.dmm = dmm
        self.link = link
        self.settings = settings or GatewaySettings()
        self.to_peers = 0
        """Publications that crossed so since the start."""
        self.from_peers = 0
        self.refused = 0
        """Publications that were not allowed to cross."""
        self._allowed_out = Filter(self.settings.to_peers)
        self._allowed_in = Filter(self.settings.from_peers)
        self._crossed = Repeats(CROSSED_MAX)
        self._connection = 0
        """Of the link: its numbers count down, a driver's up."""
        self._reopen_us: int | None = 0
        self._installing: dict[str, int] = {}
        """By key, the request of the broker that is answered when the peers have a subscription."""
        self._ending = False
        self._drained = False
        self._now_us = 0
        self._effects: list[Effect] = []
        self._of_link: deque[Effect] = deque()
        if self.settings.alone:
            link.want([self.settings.to_peers])
        else:
            dmm.gather()

    # The two doors.

    def handle(self, stimulus: Input, now_us: int) -> list[Effect]:
        """Take in what happened and say what is to be done, in order."""
        self._now_us = now_us
        due_us = self.broker.next_deadline_us()
        if self.link.up and due_us is not None and now_us > due_us + LATE_US:
            # The process has stood still. The broker must not take that for silence of its other half.
            word = Received(self._connection, [Frame(0, Ping(0))])
            self._broker_said(self.broker.handle(word, now_us))
        if isinstance(stimulus, Heard):
            self._peer_said(self.peer.handle(stimulus, now_us))
        elif isinstance(stimulus, Tick):
            self._tick(stimulus)
        elif isinstance(stimulus, Drain):
            # Brokers first: their last publications may be for peers.
            self._ending = True
            self._broker_said(self.broker.handle(stimulus, now_us))
        else:
            if self.settings.alone and isinstance(stimulus, Received) and _acknowledged(stimulus.frames):
                stimulus = Malformed(stimulus.connection, ACKNOWLEDGED)
            self._broker_said(self.broker.handle(stimulus, now_us))
        self._exchange()
        if self._drained:
            self._drained = False
            self._peer_said(self.peer.handle(Drain(), now_us))
        effects, self._effects = self._effects, []
        return effects

    def next_deadline_us(self) -> int | None:
        """When a `Tick` is due at the latest, if at all."""
        due = [self.broker.next_deadline_us(), self.peer.next_deadline_us(), self._reopen_us]
        return min((each for each in due if each is not None), default=None)

    def _tick(self, tick: Tick) -> None:
        now_us = self._now_us
        due_us = self.broker.next_deadline_us()
        if due_us is None or now_us >= due_us:
            self._broker_said(self.broker.handle(tick, now_us))
        due_us = self.peer.next_deadline_us()
        if due_us is not None and now_us >= due_us:
            self._peer_said(self.peer.handle(tick, now_us))
        if self._reopen_us is not None and now_us >= self._reopen_us and not self._ending:
            self._reopen_us = None
            self._connection -= 1
            self._broker_said(self.broker.handle(Opened(self._connection, "peers"), now_us))
            hello = Received(self._connection, self.link.hello())
            self._broker_said(self.broker.handle(hello, now_us))

    # Between the two.

    def _broker_said(self, effects: list[Effect]) -> None:
        for effect in effects:
            if isinstance(effect, Send | Close | Greeted | Pause) and effect.connection < 0:
                self._of_link.append(effect)
            elif isinstance(effect, Drained):
                self._drained = True
            else:
                self._effects.append(effect)

    def _peer_said(self, effects: list[Effect]) -> None:
        for effect in effects:
            if isinstance(effect, Delivery):
                self._delivered(effect.publication)
            else:
                self._effects.append(effect)

    def _exchange(self) -> None:
        """Hand to and fro what broker and peers say to each other, until neither has anything to say."""
        for _ in range(ROUNDS_MAX):
            while self._of_link:
                self._perform(self._of_link.popleft())
            self._peer_said(self.peer.complete(self._now_us))
            for key in self.dmm.take_installed():
                request = self._installing.pop(key, None)
                if request is not None:
                    self.link.installed(request)
            self._hand_on_wants()
            frames = self.link.take()
            if frames:
                self._broker_said(self.broker.handle(Received(self._connection, frames), self._now_us))
            elif not self._of_link:
                return
        raise LocalProtocolError("broker and peers do not come to an end with each other")

    def _hand_on_wants(self) -> None:
        """A gateway asks its brokers for what peers want, and says so when it is known everywhere there."""
        wanted = self.dmm.take_wanted()
        if wanted is not None:
            allowed = self.settings.to_peers
            self.link.want(
                [text if allowed == EVERYTHING else f"({text}) AND ({allowed})" for text in wanted]
            )
        if self.dmm.is_asked and self.link.is_told:
            self.dmm.answer_wanted(self._now_us)

    def _perform(self, effect: Effect) -> None:
        if isinstance(effect, Send):
            if effect.connection == self._connection:
                self.link.received(effect.frames, self)
        elif isinstance(effect, Close) and effect.connection == self._connection:
            if not self._ending:
                fields = {"reason": effect.reason}
                self._effects.append(Note("warning", "the link to peers has ended", fields))
            self.link.lost()
            self._reopen_us = None if self._ending else self._now_us + REOPEN_US
            closed = Closed(effect.connection, effect.reason)
            self._broker_said(self.broker.handle(closed, self._now_us))

    # What the link hears.

    def wanted(self, key: str, condition: Filter, request: int) -> None:
        """The brokers, or clients here, want this of peers."""
        self._installing[key] = request
        self.dmm.subscribe(key, condition, self._now_us, confirm=True)

    def unwanted(self, key: str) -> None:
        """They do not want it any more."""
        self._installing.pop(key, None)
        if key in self.dmm.subscriptions:
            self.dmm.unsubscribe(key, self._now_us)

    def publications(self, batch: PublicationBatch) -> None:
        """Publications that clients here, or the brokers, send to peers."""
        for publication in batch.publications():
            if not self._crossed.is_new(_id(publication)):
                continue
            if not self._allowed_out.matches(publication.attributes):
                self.refused += 1
                continue
            self.to_peers += 1
            self.dmm.publish(publication, self._now_us)

    def _delivered(self, publication: Publication) -> None:
        """A publication of peers for clients here, or for the brokers."""
        if not self._crossed.is_new(_id(publication)):
            return
        if not self._allowed_in.matches(publication.attributes):
            self.refused += 1
            return
        self.from_peers += 1
        record = encode_record(
            publication.attributes, publication.published_at_us, publication.body, publication.content_type
        )
        publisher = whole_name(publication.publisher, publication.epoch)
        self.link.publish(PublicationBatch.of(publisher, [publication.sequence], [record]))


def _id(publication: Publication) -> tuple[str, str, int]:
    return publication.publisher, publication.epoch, publication.sequence


def _acknowledged(frames: Sequence[Frame]) -> bool:
    return any(isinstance(frame.body, PublicationBatch) and frame.body.acknowledged for frame in frames)
