"""Who publishes and subscribes in a simulation?

A `Station` is a client that costs little: it speaks the real protocol through a `Channel`, but has no queues,
tasks or callbacks of its own. It stands next to its broker, so that what the broker sends it is there at once
(unless it is given a latency), and it comes back and subscribes again when its broker was away.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from braid.errors import ConfigurationError, LocalProtocolError
from braid.protocol import Channel, ChannelSettings, Frame, PublicationBatch, encode_record
from braid.protocol.inputs import Closed, Opened, Received
from braid.protocol.messages import (
    PROTOCOL_VERSION,
    Acknowledgement,
    Advertise,
    Done,
    Failed,
    Hello,
    Ping,
    Pong,
    PublishRefused,
    Refused,
    Settled,
    Subscribe,
    Unadvertise,
    Unsubscribe,
    Welcome,
)
from braid.sim.pipe import Endpoint

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from braid.protocol.inputs import Input
    from braid.protocol.messages import Message
    from braid.sim.host import Host
    from braid.sim.pipe import Pipe
    from braid.sim.world import World

__all__ = ["Station"]

# Between two attempts to reach a broker that is not there.
RECONNECT_US = 250_000


class Station(Endpoint):
    """A light client of one broker."""

    __slots__ = (
        "_acknowledge_at_us",
        "_advertisements",
        "_asked",
        "_attached",
        "_requests",
        "_upcoming",
        "_world",
        "acknowledged",
        "broker",
        "channel",
        "connected",
        "delivered",
        "latency_us",
        "left",
        "on_delivery",
        "on_message",
        "ordered",
        "published",
        "refused",
        "sequence",
        "sessions",
        "subscriptions",
    )

    def __init__(
        self,
        name: str,
        broker: str,
        *,
        subscriptions: Sequence[tuple[str, str]] = (),
        publications: Iterable[tuple[int, Mapping[str, Any] | bytes]] = (),
        advertise: Sequence[str] = (),
        acknowledged: bool = False,
        ordered: bool = False,
        latency_us: int | None = None,
        window_bytes: int = 4 * 1024 * 1024,
        acknowledge_delay_us: int = 20_000,
        on_delivery: Callable[[Station, PublicationBatch], None] | None = None,
        on_message: Callable[[Station, Message], None] | None = None,
    ) -> None:
        """
        Args:
            name: the client's name, which is also its publisher's.
            broker: the host it connects to.
            subscriptions: key and filter of each subscription it has from the start.
            publications: times and attributes (or encoded records) in the order of time; taken one by one.
            advertise: filters that say what it publishes; without any, whatever it publishes is announced by
                its broker when the first publication comes.
            acknowledged: publish with acknowledged delivery.
            ordered: publish with the demand for order.
            latency_us: the way to its broker; None for right beside it, which also costs the least.
            window_bytes: how much its broker may send ahead.
            acknowledge_delay_us: how long it may wait before it acknowledges what nobody waits for.
            on_delivery: told of every batch that arrives. It must not change the world at once: it is
                called in the middle of the broker's turn.
            on_message: told of every other sequenced message, likewise.
        """
        super().__init__(name, "station")
        self.broker = broker
        self.subscriptions: dict[str, str] = dict(subscriptions)
        """Filters by key, as it wants them to be."""
        self.acknowledged = acknowledged
        self.ordered = ordered
        self.latency_us = latency_us
        self.on_delivery = on_delivery
        self.on_message = on_message
        self.channel: Channel[PublicationBatch] = Channel(
            ChannelSettings(window_bytes=window_bytes, acknowledge_delay_us=acknowledge_delay_us)
        )
        self.connected = False
        """Whether its broker has welcomed it."""
        self.sessions = 0
        """How often it was."""
        self.sequence = 0
        """The number of its last publication."""
        self.published = 0
        self.delivered = 0
        """Publications that came."""
        self.refused: list[Failed | PublishRefused | Refused] = []
        """What its broker did not do for it."""
        self.left = False
        self._advertisements: dict[str, str] = {str(number): text for number, text in enumerate(advertise)}
        self._upcoming = iter(publications)
        self._asked: dict[int, Subscribe | Unsubscribe | Advertise | Unadvertise] = {}
        self._requests = 0
        self._acknowledge_at_us = 0
        self._attached = False
        self._world: World
        self.report = self._reported

    def __repr__(self) -> str:
        return f"<station {self.name!r} at {self.broker!r}>"

    # Coming and going.

    def begin(self, world: World) -> None:
        """Enter a world: `World.attach` calls this."""
        if self._attached:
            raise ConfigurationError(f"the station {self.name!r} is attached already")
        world.host(self.broker)
        self._attached = True
        self._world = world
        self.loop = world.loop
        self._connect(None)
        self._await_publication()

    def leave(self) -> None:
        """Disconnect for good; what it has not published stays unpublished."""
        self.left = True
        self._upcoming = iter(())
        for pipe in list(self.pipes.values()):
            pipe.close("the station leaves")

    def _connect(self, _: object) -> None:
        if self.left or self.pipes:
            return
        world = self._world
        host = world.host(self.broker)
        condition = world.known_condition(self.name, self.broker)
        blocked = condition is not None and (condition.partitions or condition.holds or condition.holes)
        if host.machine is None or blocked:
            self.loop.schedule(self.loop.now_us + RECONNECT_US, self._connect)
            return
        pipe = world.connect(self, host, self.latency_us or 0, direct=self.latency_us is None)
        arrival_us = self.loop.now_us + pipe.latency_us
        self.loop.schedule(arrival_us, self._opened, (pipe, host, host.lives))
        hello = Hello(
            PROTOCOL_VERSION,
            "client",
            self.name,
            f"{self.name}-{self.sessions + 1}",
            credit=self.channel.settings.window_bytes,
        )
        pipe.send((Frame(0, hello),))

    def _opened(self, opening: tuple[Pipe, Host, int]) -> None:
        pipe, host, life = opening
        if host.lives == life and pipe.open:
            host.report(Opened(pipe.number, self.name))

    def _reported(self, stimulus: Input) -> None:
        if isinstance(stimulus, Received):
            self.receive(stimulus.frames)
        elif isinstance(stimulus, Closed):
            self.connected = False
            self.channel.disconnect()
            self._asked.clear()
            if self._world.oracle is not None:
                self._world.oracle.disconnected(self)
            self.loop.schedule(self.loop.now_us + RECONNECT_US, self._connect)
        else:
            raise LocalProtocolError(f"a station makes nothing of {stimulus!r}")

    @property
    def endpoint(self) -> str:
        """The name by which faults know it."""
        return self.name

    @property
    def owes(self) -> bool:
        """Whether something that it published may not have left it."""
        return not self.connected and not self.channel.idle

    # What it asks for.

    def subscribe(self, key: str, text: str) -> None:
        """Subscribe, now or as soon as it is connected."""
        self.subscriptions[key] = text
        if self.connected:
            self._subscribe(key, text)
            self._flush()

    def _subscribe(self, key: str, text: str) -> None:
        self._ask(Subscribe(self._next_request(), key, text))
        trace = self._world.trace
        if trace is not None:
            trace.subscription(self.loop.now_us, self.broker, self.name, key, text, "subscribe")

    def unsubscribe(self, key: str) -> None:
        """Take a subscription back."""
        if self._world.oracle is not None:
            self._world.oracle.ended(self, key, self.subscriptions[key])
        del self.subscriptions[key]
        # Whoever takes a subscription back that is not answered yet waits for its answer no more.
        for request, asked in list(self._asked.items()):
            if isinstance(asked, Subscribe) and asked.key == key:
                del self._asked[request]
        trace = self._world.trace
        if trace is not None:
            trace.subscription(self.loop.now_us, self.broker, self.name, key, "", "unsubscribe")
        if self.connected:
            self._ask(Unsubscribe(self._next_request(), key))
            self._flush()

    def advertise(self, key: str, text: str) -> None:
        """Say what it is going to publish."""
        self._advertisements[key] = text
        if self.connected:
            self._ask(Advertise(self._next_request(), key, text))
            self._flush()

    def unadvertise(self, key: str) -> None:
        """Take that back."""
        del self._advertisements[key]
        if self.connected:
            self._ask(Unadvertise(self._next_request(), key))
            self._flush()

    def say(self, message: Message) -> None:
        """Send any sequenced message; answers come to `on_message`."""
        self.channel.offer(message)
        self._flush()

    def next_request(self) -> int:
        """A number for a request of one's own."""
        return self._next_request()

    def _next_request(self) -> int:
        self._requests += 1
        return self._requests

    def _ask(self, message: Subscribe | Unsubscribe | Advertise | Unadvertise) -> None:
        self._asked[message.request] = message
        self.channel.offer(message)

    @property
    def asking(self) -> int:
        """How many requests are not answered yet."""
        return len(self._asked)

    # Publishing.

    def _await_publication(self) -> None:
        upcoming = next(self._upcoming, None)
        if upcoming is not None:
            self._world.expect(upcoming[0], self._publish_upcoming, upcoming[1])

    def _publish_upcoming(self, content: Mapping[str, Any] | bytes) -> None:
        if not self.left:
            self.publish(content)
            self._await_publication()

    def publish(self, content: Mapping[str, Any] | bytes, *, acknowledged: bool | None = None) -> None:
        """Publish attributes, or a record that is encoded already, now or as soon as it is connected."""
        if isinstance(content, Mapping):
            content = encode_record(content, self.loop.now_us)
        if acknowledged is None:
            acknowledged = self.acknowledged
        self.sequence += 1
        self.published += 1
        batch = PublicationBatch.of(
            self.name,
            (self.sequence,),
            (content,),
            acknowledged=acknowledged,
            ordered=self.ordered,
        )
        if self._world.oracle is not None:
            self._world.oracle.published(self, batch)
        care = batch if acknowledged else None
        frame = self.channel.send(batch, care)
        if frame is None:
            self.channel.offer(batch, care)
            self._flush()
            return
        for pipe in self.pipes.values():
            pipe.send((frame,))

    def _flush(self) -> None:
        frames = self.channel.take()
        if frames:
            for pipe in self.pipes.values():
                pipe.send(frames)

    # Receiving.

    def receive(self, frames: Sequence[Frame]) -> None:
        """Take in what the broker says."""
        channel = self.channel
        spoken_to = False
        for sequence, body in frames:
            if type(body) is PublicationBatch:
                if not sequence or channel.accept_batch(sequence, body):
                    self._delivered(body)
                continue
            spoken_to = True
            if sequence and not channel.accept(Frame(sequence, body)):
                continue
            if isinstance(body, Acknowledgement):
                channel.acknowledged(body)
            else:
                self._heard(body)
        channel.settled = channel.received
        if channel.due and channel.acknowledgement_due():
            self._acknowledge()
        elif not self._acknowledge_at_us and channel.acknowledgement_waits:
            self._plan_acknowledgement()
        if spoken_to:  # publications lead to nothing that is to be sent
            self._flush()

    def _plan_acknowledgement(self) -> None:
        self._acknowledge_at_us = self.loop.now_us + self.channel.settings.acknowledge_delay_us
        self.loop.schedule(self._acknowledge_at_us, self._acknowledge_late)

    def _delivered(self, batch: PublicationBatch) -> None:
        self.delivered += batch.count
        world = self._world
        if world.trace is not None:
            world.trace.delivery(self.loop.now_us, self.broker, self.name, batch)
        if world.watcher is not None:
            world.watcher.delivered(self, batch)
        if self.on_delivery is not None:
            self.on_delivery(self, batch)

    def _acknowledge_late(self, _: object) -> None:
        self._acknowledge_at_us = 0
        if self.connected:
            self._acknowledge()

    def _acknowledge(self) -> None:
        told = self.channel.acknowledgement()
        if told is not None:
            self._aside(told)

    def _aside(self, message: Message) -> None:
        for pipe in self.pipes.values():
            pipe.send((Frame(0, message),))

    def _heard(self, message: Any) -> None:
        if isinstance(message, Ping):
            self._aside(Pong(message.number))
        elif isinstance(message, Welcome):
            self._welcomed(message)
        elif isinstance(message, Settled):
            self.channel.settled_apart(message.frames)
        elif isinstance(message, Done):
            asked = self._asked.pop(message.request, None)
            if isinstance(asked, Subscribe) and self.subscriptions.get(asked.key) == asked.filter:
                self._stands(asked)
        elif isinstance(message, Failed):
            self._asked.pop(message.request, None)
            self.refused.append(message)
        elif isinstance(message, PublishRefused):
            self.refused.append(message)
            if self._world.watcher is not None:
                self._world.watcher.refused(self, message.sequences)
        elif isinstance(message, Refused):
            self.refused.append(message)
        if self.on_message is not None:
            self.on_message(self, message)

    def _stands(self, subscribe: Subscribe) -> None:
        if self._world.oracle is not None:
            self._world.oracle.standing(self, subscribe.key, subscribe.filter)

    def _welcomed(self, welcome: Welcome) -> None:
        """A session begins: say what it wants, before what it has to publish again."""
        self.connected = True
        self.sessions += 1
        self.channel.restart(welcome.credit)
        for key, text in self._advertisements.items():
            self._ask(Advertise(self._next_request(), key, text))
        for key, text in self.subscriptions.items():
            self._subscribe(key, text)
        # All at once: brokers handle what comes together in a fraction of the time.
        self._flush()
