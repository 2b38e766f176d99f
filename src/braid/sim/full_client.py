"""A simulated client that is the one that programs use: session, inbox and outbox of `braid.client`.

A `Station` costs little and serves in tens of thousands; a `FullClient` is for runs in which clients are to
suffer, too. It survives broken connections as a program's client does. When its host crashes and starts
again, it is another run of the same program: it subscribes again and goes on with its durable subscriptions.
"""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any, NamedTuple

from braid.client import ClientMachine, ClientSession, ClientSettings, StoredPublication
from braid.client.effects import (
    Answered,
    Arrived,
    Connected,
    Disconnected,
    Ended,
    Lost,
    Progressed,
    PublicationsDiscarded,
    PublicationsRefused,
    SettledApart,
)
from braid.client.outbox import ACKNOWLEDGED
from braid.errors import ConfigurationError
from braid.language import Filter
from braid.protocol import ChannelSettings, PublicationBatch, encode_record
from braid.protocol.inputs import Tick
from braid.protocol.publisher_names import PublisherNames, whole_name

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from braid.client import Interest
    from braid.client.effects import ClientEffect
    from braid.errors import BraidError
    from braid.language import Publication
    from braid.sim.host import Host
    from braid.sim.loop import Loop
    from braid.sim.models import Birth
    from braid.sim.world import World

__all__ = ["FullClient", "Row"]

# Longer than any run: a simulated client never gives up.
PATIENCE_US = 10**12


class Row(NamedTuple):
    """A publication that a subscription was given."""

    life: int
    """Which run of the program read it, from 1."""
    publisher: str
    """With the epoch, as it is on the wire."""
    sequence: int
    offset: int
    """In its log; -1 for a subscription that is not durable."""


class _Reading:
    """One subscription, as the checkers watch it: order holds within it, not between two of a client."""

    def __init__(self, client: FullClient, key: str, text: str) -> None:
        self.name = f"{client.name}/{key}"
        self.loop = client.loop
        self.subscriptions = {key: text}
        self._client = client

    @property
    def endpoint(self) -> str:
        return self._client.name

    @property
    def broker(self) -> str:
        return self._client.broker

    @property
    def owes(self) -> bool:
        return False


class FullClient:
    """A program with the real client, in a simulated world."""

    def __init__(
        self,
        name: str,
        brokers: Sequence[str],
        *,
        subscriptions: Mapping[str, str] | None = None,
        durables: Mapping[str, str] | None = None,
        advertise: Sequence[str] = (),
        queue_size: int = 1000,
        acknowledge_every: int = 1,
        window_bytes: int = 4 * 1024 * 1024,
    ) -> None:
        """
        Args:
            name: the client's name, which is also its publisher's.
            brokers: the hosts it connects to, in turn.
            subscriptions: filters by a key of one's own.
            durables: filters of durable subscriptions by their names.
            advertise: filters that say what it publishes.
            queue_size: of each subscription.
            acknowledge_every: rows of a durable subscription after which it says that it is done with them.
            window_bytes: how much its broker may send ahead.
        """
        self.name = name
        self.brokers = tuple(brokers)
        self.subscriptions: dict[str, str] = dict(subscriptions or {})
        """Filters by key, as it wants them to be."""
        self.durables: dict[str, str] = dict(durables or {})
        self.reads = True
        """Whether it reads what arrives; otherwise its queues fill up."""
        self.rows: dict[str, list[Row]] = {key: [] for key in (*self.subscriptions, *self.durables)}
        """By key or name, everything that was read, over all its lives."""
        self.published = 0
        self.safe: set[tuple[str, int]] = set()
        """Ids of acknowledged publications for which it has a receipt."""
        self.answered: dict[str, int] = {}
        """By key or name: when it first heard that the subscription is installed."""
        self.problems: list[BraidError | str] = []
        """What was refused, discarded or ended."""
        self.lives = 0
        self.connections = 0
        self.host: Host
        self.loop: Loop
        self.session: ClientSession
        self._world: World
        self._advertise = tuple(advertise)
        self._queue_size = queue_size
        self._acknowledge_every = acknowledge_every
        self._window_bytes = window_bytes
        self._interests: dict[str, Interest] = {}
        self._keys: dict[int, str] = {}
        self._careful: set[int] = set()
        self._standing: set[str] = set()
        self._readings: dict[str, _Reading] = {}
        self._seen: dict[str, set[tuple[str, int]]] = {}

    def __repr__(self) -> str:
        return f"<client {self.name!r} at {self.broker!r}>"

    # Coming and going.

    def enter(self, world: World) -> None:
        """Begin in a world: `World.admit` calls this."""
        self._world = world
        self.loop = world.loop
        self.host = world.add(self.name, self._born, kind="client", load=None)

    def _born(self, birth: Birth) -> ClientMachine:
        """A run of the program begins."""
        self._over()
        self._readings = {key: _Reading(self, key, text) for key, text in self.subscriptions.items()}
        self.lives += 1
        settings = ClientSettings(
            addresses=self.brokers,
            name=self.name,
            publisher=self.name,
            incarnation=birth.incarnation,
            epoch=str(self.lives),
            connect_for_us=PATIENCE_US,
            reconnect_for_us=PATIENCE_US,
            channel=ChannelSettings(window_bytes=self._window_bytes),
        )
        self.session = session = ClientSession(settings, random.Random(birth.seed))
        self._interests, self._keys, self._careful = {}, {}, set()
        self._seen = {key: set() for key in self.rows}
        for text in self._advertise:
            session.requests.advertise(Filter(text))
        for key, text in self.subscriptions.items():
            self._ask(key, text)
        for name, text in self.durables.items():
            self._ask(name, text)
        return ClientMachine(session, self._concern, self._after_turn)

    def _ask(self, key: str, text: str) -> None:
        requests = self.session.requests
        if key in self.durables:
            # A run of the program that was killed may still be known as the reader.
            interest = requests.subscribe_durable(key, Filter(text), "block", self._queue_size, takeover=True)
        else:
            interest = requests.subscribe(Filter(text), "block", self._queue_size)
        self._interests[key] = interest
        self._keys[interest.number] = key

    def _over(self) -> None:
        """What stood on a connection stands no more."""
        self._standing = set()
        if self._world.oracle is not None:
            for reading in self._readings.values():
                self._world.oracle.disconnected(reading)

    # What the checkers ask.

    @property
    def endpoint(self) -> str:
        """The name by which faults know it."""
        return self.name

    @property
    def broker(self) -> str:
        """The broker it is or was connected to, or the one it tries first."""
        return self.session.broker or self.brokers[0]

    @property
    def connected(self) -> bool:
        """Whether a broker has welcomed it."""
        return self.host.machine is not None and self.session.live

    @property
    def owes(self) -> bool:
        """Whether something that it published may not have left it."""
        return not self.connected and self.session.outbox.kept_bytes > 0

    @property
    def publisher(self) -> str:
        """The name of its publications on the wire, in this life."""
        return PublisherNames("", "").name(self.name, str(self.lives))

    # What the program does.

    def publish(self, attributes: Mapping[str, Any], *, acknowledged: bool = True) -> None:
        """Publish, now or as soon as it is connected; a program that is down publishes nothing.

        Raises:
            ConfigurationError: too much is on its way; publish more slowly.
        """
        if self.host.machine is None:
            return
        if not self.session.has_room:
            raise ConfigurationError(f"{self.name!r} has too much on its way")
        record = encode_record(attributes, self.loop.now_us)
        sequence = self.session.publish(record, ACKNOWLEDGED if acknowledged else 0)
        self.published += 1
        if acknowledged:
            self._careful.add(sequence)
        if self._world.oracle is not None:
            batch = PublicationBatch.of(self.publisher, (sequence,), (record,), acknowledged=acknowledged)
            self._world.oracle.published(self, batch)
        self.act()

    def subscribe(self, key: str, text: str, *, durable: bool = False) -> None:
        """Subscribe, now or as soon as it is connected; `key` is the name of a durable subscription."""
        (self.durables if durable else self.subscriptions)[key] = text
        self.rows.setdefault(key, [])
        self._seen.setdefault(key, set())
        if not durable:
            self._readings[key] = _Reading(self, key, text)
        self._ask(key, text)
        self.act()

    def unsubscribe(self, key: str, *, through: int = -1) -> None:
        """Read no more; of a durable subscription, say before that all up to an offset is done with."""
        interest = self._interests.pop(key)
        self._standing.discard(key)
        if interest.durable:
            self.session.requests.acknowledge(interest, through)
            del self.durables[key]
        else:
            if self._world.oracle is not None:
                self._world.oracle.ended(self._readings.pop(key), key, self.subscriptions[key])
            del self.subscriptions[key]
        self.session.unsubscribe(interest)
        self.act()

    def act(self) -> None:
        """Have done what calls of the session have asked for."""
        self.host.report(Tick())

    def read(self) -> None:
        """Read whatever waits, and go on reading."""
        self.reads = True
        for interest in self._interests.values():
            self._read(interest)
        self.act()

    def _read(self, interest: Interest) -> None:
        key = self._keys[interest.number]
        while interest.queue or interest.line:
            if not interest.queue:
                self.session.made_room(interest)
                continue
            self._take(key, interest, interest.queue.popleft())
            interest.delivered += 1
            if interest.crowded:
                self.session.made_room(interest)

    def _take(self, key: str, interest: Interest, publication: Publication) -> None:
        publisher = whole_name(publication.publisher, publication.epoch)
        place = (publisher, publication.sequence)
        offset = publication.offset if isinstance(publication, StoredPublication) else -1
        self.rows[key].append(Row(self.lives, publisher, publication.sequence, offset))
        watcher = self._world.watcher
        if place in self._seen[key] and watcher is not None:
            what = f"{self.name} read {publisher}/{publication.sequence} twice from {key!r} in one life"
            watcher.violated(self.loop.now_us, what)
        self._seen[key].add(place)
        if interest.durable:
            if len(self.rows[key]) % self._acknowledge_every == 0:
                self.session.requests.acknowledge(interest, offset)
        elif watcher is not None:
            record = encode_record(publication.attributes, publication.published_at_us)
            batch = PublicationBatch.of(publisher, (publication.sequence,), (record,))
            watcher.delivered(self._readings[key], batch)

    # What the session says.

    def _concern(self, effect: ClientEffect) -> None:
        if isinstance(effect, Arrived):
            if self.reads:
                self._read(effect.interest)
        elif isinstance(effect, Progressed):
            self._settled(sequence for sequence in self._careful if sequence <= effect.settled)
        elif isinstance(effect, SettledApart):
            self._settled(effect.sequences)
        elif isinstance(effect, Connected):
            self.connections += 1
        elif isinstance(effect, Disconnected):
            self._over()
        elif isinstance(effect, PublicationsRefused | Lost):
            self.problems.append(effect.error)
        elif isinstance(effect, PublicationsDiscarded):
            self.problems.append(f"{len(effect.sequences)} publications were discarded: {effect.reason}")
        elif isinstance(effect, Ended):
            self.problems.append(effect.interest.failure or "a subscription ended")
        elif isinstance(effect, Answered) and effect.error is not None:
            self.problems.append(effect.error)

    def _settled(self, sequences: Any) -> None:
        known = self._careful.intersection(sequences)
        self._careful -= known
        self.safe.update((self.publisher, sequence) for sequence in known)

    def _after_turn(self) -> None:
        """Tell the oracle what stands now."""
        if len(self._standing) == len(self._interests) or not self.session.live:
            return
        for key, interest in self._interests.items():
            if key not in self._standing and self.session.requests.stands(interest):
                self._standing.add(key)
                self.answered.setdefault(key, self.loop.now_us)
                if not interest.durable and self._world.oracle is not None:
                    self._world.oracle.standing(self._readings[key], key, self.subscriptions[key])
