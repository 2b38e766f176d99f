"""A network of broker cores in one process, driven step by step.

The third driver beside sockets and the simulator: what one side sends arrives at the other, in order,
through the real codec. Connections can be cut, brokers killed and started again.
"""

from __future__ import annotations

from collections import Counter, deque
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from braid.broker.core import BrokerCore
from braid.broker.settings import BrokerSettings
from braid.errors import RemoteProtocolError, StoreError
from braid.protocol import (
    FRAME_BYTES_MAX,
    Channel,
    ChannelSettings,
    Frame,
    FrameDecoder,
    PublicationBatch,
    encode_frames,
)
from braid.protocol.batch import decode_record, encode_record
from braid.protocol.effects import (
    Close,
    Dial,
    Drained,
    Granted,
    Greeted,
    Lock,
    Neighbours,
    Note,
    Pause,
    Persist,
    Probe,
    Progress,
    ReadLog,
    Replaced,
    Send,
    SweepStore,
    Unlock,
)
from braid.protocol.inputs import (
    Closed,
    Input,
    Locked,
    LogRead,
    Malformed,
    Opened,
    Persisted,
    Probed,
    Received,
    Swept,
    Tick,
)
from braid.protocol.memory_store import MemoryStore
from braid.protocol.messages import (
    PROTOCOL_VERSION,
    Acknowledgement,
    Hello,
    Message,
    Ping,
    Pong,
    Settled,
    StoredPublications,
    Welcome,
)
from braid.sim.lock_table import Claim, LockTable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from braid.broker.access import AccessPolicy
    from braid.language import Publication
    from braid.matching import SharedMatching
    from braid.protocol.log import KeepStanding

__all__ = ["Network", "WireClient"]

STEPS_MAX = 200_000
# What a probe of a broker that is there measures; the driver itself takes no time for anything.
ROUND_TRIP_US = 1_000


class WireClient:
    """A client that only speaks the protocol, and remembers what it hears."""

    def __init__(
        self,
        network: Network,
        name: str,
        broker: str,
        *,
        token: str | None = None,
        credit: int = 1 << 22,
        frame_bytes_max: int = 0,
        incarnation: str = "",
    ) -> None:
        self.name = name
        self.publisher = name
        self.broker = broker
        self.heard: list[Message] = []
        self.publications: list[Publication] = []
        self.stored: list[tuple[str, int, Publication]] = []
        self.settles = True
        self.reads = True
        """Whether it takes what arrives. Otherwise it waits in `unread`, and nothing is acknowledged."""
        self.unread: list[Frame] = []
        self.cares: list[Any] = []
        """What was published as acknowledged and is settled now, by sequence number."""
        self.channel: Channel[Any] = Channel(ChannelSettings(window_bytes=credit))
        self.connection = network.connect_client(self, broker)
        self.sequence = 0
        self.open = True
        self._network = network
        self.decoder = FrameDecoder(frame_bytes_max or FRAME_BYTES_MAX)
        self._say(
            Hello(
                PROTOCOL_VERSION,
                "client",
                name,
                incarnation or f"{name}-1",
                token,
                credit=credit,
                frame_bytes_max=frame_bytes_max,
            )
        )

    def _say(self, message: Message) -> None:
        self._network.from_client(self, [Frame(0, message)])

    def ask(self, message: Message) -> None:
        """Send a sequenced message."""
        self.channel.offer(message)
        self.flush()

    def flush(self) -> None:
        frames = self.channel.take()
        if frames:
            self._network.from_client(self, frames)

    def publish(
        self,
        *attributes: dict[str, Any],
        acknowledged: bool = False,
        ordered: bool = False,
        publisher: str = "",
        receipt: bool = True,
    ) -> None:
        """Publish these as one batch; with `receipt`, as one who waits for the acknowledgement."""
        first = self.sequence + 1
        self.sequence += len(attributes)
        records = [encode_record(values, 0) for values in attributes]
        numbers = range(first, self.sequence + 1)
        batch = PublicationBatch.of(
            publisher or self.publisher,
            numbers,
            records,
            acknowledged=acknowledged,
            ordered=ordered,
            receipt=receipt,
        )
        self.channel.offer(batch, numbers if acknowledged else None)
        self.flush()

    def read(self) -> None:
        """Take what has been waiting."""
        self.reads = True
        waiting, self.unread = self.unread, []
        self.receive(waiting)

    def receive(self, frames: Iterable[Frame]) -> None:
        if not self.reads:
            self.unread.extend(frames)
            return
        for frame in frames:
            body = frame.body
            if frame.sequence and not self.channel.accept(frame):
                continue
            if isinstance(body, PublicationBatch):
                self.publications.extend(body.publications())
            elif isinstance(body, Welcome):
                self.channel.restart(body.credit)
                if body.principal:
                    self.publisher = f"{body.principal}/{self.name}"
                self.heard.append(body)
            elif isinstance(body, Acknowledgement):
                for numbers in self.channel.acknowledged(body):
                    self.cares.extend(numbers)
            elif isinstance(body, Settled):
                for numbers in self.channel.settled_apart(body.frames):
                    self.cares.extend(numbers)
            elif isinstance(body, Ping):
                self._say(Pong(body.number))
            else:
                if isinstance(body, StoredPublications):
                    for offset, (publisher, sequence, record) in body.numbered():
                        self.stored.append((body.name, offset, decode_record(record, publisher, sequence)))
                self.heard.append(body)
        if self.settles:
            self.channel.settled = self.channel.received
        told = self.channel.acknowledgement()
        if told is not None:
            self._say(told)
        self.flush()

    def values(self, name: str) -> list[Any]:
        """One attribute of everything received, in order."""
        return [publication.attributes.get(name) for publication in self.publications]

    def answers(self, kind: type) -> list[Any]:
        return [message for message in self.heard if isinstance(message, kind)]


class Network:
    """Brokers by id; a broker's address is its id."""

    def __init__(self, shared: SharedMatching | None = None, *, codec: bool = True) -> None:
        """
        Args:
            shared: what all brokers match with; otherwise each has an index of its own.
            codec: whether what is sent crosses as bytes, or as the objects that it is.
        """
        self._codec = codec
        self.now_us = 1_000_000
        self._shared = shared
        self.cores: dict[str, BrokerCore] = {}
        self.stores: dict[str, MemoryStore] = {}
        self.settings: dict[str, BrokerSettings] = {}
        self.notes: list[tuple[str, Note]] = []
        self.drained: set[str] = set()
        self.frozen: dict[str, tuple[BrokerCore, list[Input]]] = {}
        """Brokers that stand still, as by `kill -STOP`, with what has come to them meanwhile."""
        self.replaced: set[str] = set()
        """Those whose names others have."""
        self.neighbours: dict[str, tuple[str, ...]] = {}
        self.locks = LockTable()
        """The directory's locks: it never fails, and waits as long as it takes."""
        self._claims: dict[tuple[str, int], Claim] = {}
        """By broker, as it said last."""
        self.frozen_stores: set[str] = set()
        self._moved: dict[str, str] = {}
        """Where brokers are that are not at the address that is their name."""
        self.holes: set[tuple[str, str]] = set()
        """Pairs of brokers: what the first sends to the second vanishes, and nobody notices."""
        self.full_stores: set[str] = set()
        """Those whose disk is full: they can be read, and refuse all work."""
        self.refused_work: Counter[str] = Counter()
        self.change: Callable[[str, str, Frame], Frame | None] | None = None
        """What becomes of a frame between brokers, from whom and to whom; None: it is lost."""
        self.held: dict[tuple[str, str], deque[tuple[tuple[str, int], Frame]]] = {}
        """What one broker has sent to another and has not arrived, frame by frame with the end that each is
        for; only for those pairs whose messages are held."""
        self.on_frames: Callable[[str, str, Sequence[Frame]], None] | None = None
        """Told of everything that a broker sends: from whom, to whom, and what."""
        self._access: dict[str, AccessPolicy | None] = {}
        self._starts = 0
        self._connections = 0
        # A connection at a broker: (broker, number) to the other end, another broker's or a client.
        self._ends: dict[tuple[str, int], tuple[str, int] | WireClient] = {}
        self._decoders: dict[tuple[str, int], FrameDecoder] = {}
        self._queue: deque[tuple[str, Input]] = deque()
        self.validate_every = 1
        """After how many turns a broker is asked whether everything that must hold does."""
        self._turns = 0
        self._store_queue: deque[tuple[str, BrokerCore, Persist | ReadLog | SweepStore]] = deque()

    # Building.

    def start(
        self,
        name: str,
        *,
        neighbours: tuple[str, ...] = (),
        access: AccessPolicy | None = None,
        store: bool = False,
        standing: KeepStanding | None = None,
        **settings: Any,
    ) -> BrokerCore:
        """Start a broker, or start it again (with the store it had), perhaps in the place of another one."""
        self._starts += 1
        if name not in self.settings:
            usual = {"broker_id": name, "address": name, "neighbours": neighbours}
            self.settings[name] = BrokerSettings(**{**usual, **settings})
            self._access[name] = access
            if store:
                self.stores[name] = MemoryStore(secret=f"the secret of {name}")
        kept = self.stores.get(name)
        core = BrokerCore(
            self.settings[name],
            incarnation=f"{name}-{self._starts}",
            seed=self._starts,
            access=self._access[name],
            store=kept.state() if kept is not None else None,
            matcher=self._shared.view(name) if self._shared is not None else None,
            standing=standing,
        )
        self.cores[name] = core
        self._queue.append((name, Tick()))
        return core

    def kill(self, name: str, *, committed: int = 0) -> None:
        """As `kill -9`: what is in memory is gone, and so are the connections.

        Of the store work under way, the first `committed` pieces have reached the disk.
        """
        core = self.cores.pop(name)
        for owner, token in [key for key in self._claims if key[0] == name]:
            self._lock(owner, Unlock(token))
        for owner, asker, effect in list(self._store_queue):
            if owner == name and asker is core and isinstance(effect, Persist) and committed > 0:
                committed -= 1
                self.stores[name].apply(effect.operations)
        self._store_queue = deque(work for work in self._store_queue if work[0] != name)
        for end in [end for end in self._ends if end[0] == name]:
            self._cut(end)

    def freeze(self, name: str) -> None:
        """A broker stands still until it is thawed; its peers notice only that it is silent."""
        self.frozen[name] = (self.cores.pop(name), [])

    def thaw(self, name: str, first: int = 0) -> None:
        """It goes on. What has come over the connection `first` is read before anything else."""
        self.cores[name], waiting = self.frozen.pop(name)
        ahead = [each for each in waiting if first and getattr(each, "connection", 0) == first]
        self._queue.extend((name, each) for each in ahead)
        self._queue.extend((name, each) for each in waiting if each not in ahead)
        self._queue.append((name, Tick()))

    def cut(self, left: str, right: str) -> None:
        """Break the connection between two brokers; both notice."""
        for end, other in list(self._ends.items()):
            if end[0] == left and isinstance(other, tuple) and other[0] == right:
                self._cut(end)

    def move(self, name: str, address: str) -> None:
        """From its next start on, a broker is at another address."""
        self._moved[name] = address
        self.settings[name] = replace(self.settings[name], address=address)

    def hole(self, left: str, right: str) -> None:
        """From now on nothing crosses between two brokers, and neither is told."""
        self.holes |= {(left, right), (right, left)}

    def mend(self, left: str, right: str) -> None:
        """What they send from now on arrives again; what vanished has broken the connections there were."""
        self.holes -= {(left, right), (right, left)}
        self.cut(left, right)
        self.cut(right, left)

    # Message by message.

    def hold(self, source: str, target: str) -> None:
        """From now on, what one broker sends to another waits until it is delivered or dropped."""
        self.held.setdefault((source, target), deque())

    def deliver(self, source: str, target: str, count: int) -> None:
        """The first so many of the messages that are held arrive, each by itself."""
        for _ in range(count):
            end, frame = self.held[source, target].popleft()
            if end in self._ends:  # otherwise its connection has gone
                self._arrive(end, [frame])

    def release(self, source: str, target: str) -> None:
        """Everything that is held arrives, and nothing is held any more."""
        self.deliver(source, target, len(self.held[source, target]))
        del self.held[source, target]

    def _cut(self, end: tuple[str, int]) -> None:
        other = self._ends.pop(end, None)
        self._queue.append((end[0], Closed(end[1], "cut")))
        if isinstance(other, WireClient):
            other.open = False
        elif other is not None and self._ends.pop(other, None) is not None:
            self._queue.append((other[0], Closed(other[1], "cut")))

    def client(
        self,
        name: str,
        broker: str,
        *,
        token: str | None = None,
        credit: int = 1 << 22,
        frame_bytes_max: int = 0,
        incarnation: str = "",
    ) -> WireClient:
        client = WireClient(
            self,
            name,
            broker,
            token=token,
            credit=credit,
            frame_bytes_max=frame_bytes_max,
            incarnation=incarnation,
        )
        self.run()
        return client

    def connect_client(self, client: WireClient, broker: str) -> int:
        self._connections += 1
        self._ends[(broker, self._connections)] = client
        self._decoders[(broker, self._connections)] = FrameDecoder()
        self._queue.append((broker, Opened(self._connections, client.name)))
        return self._connections

    def leave(self, client: WireClient) -> None:
        """A client's connection breaks."""
        self._cut((client.broker, client.connection))

    # Running.

    def from_client(self, client: WireClient, frames: list[Frame]) -> None:
        end = (client.broker, client.connection)
        if end in self._ends:
            self._arrive(end, frames)

    def tell(self, broker: str, stimulus: Input) -> None:
        """Something happens at a broker."""
        self._queue.append((broker, stimulus))

    def run(self, *, us: int = 0) -> None:
        """Until nothing moves; then let so much time pass, in steps."""
        self._settle()
        end_us = self.now_us + us
        while self.now_us < end_us:
            deadlines = [core.next_deadline_us() for core in self.cores.values()]
            due = min((time for time in deadlines if time is not None), default=end_us)
            self.now_us = min(max(due, self.now_us + 1000), end_us)
            for name in sorted(self.cores):
                self._queue.append((name, Tick()))
            self._settle()

    def step(self) -> None:
        """Let the first thing that waits happen."""
        name, stimulus = self._queue.popleft()
        core = self.cores.get(name)
        if name in self.frozen:
            self.frozen[name][1].append(stimulus)
        if core is not None:
            for effect in core.handle(stimulus, self.now_us):
                self._perform(name, core, effect)
            if self._turns % self.validate_every == 0:
                core.validate()
            self._turns += 1

    def _settle(self) -> None:
        for _ in range(STEPS_MAX):
            if self._queue:
                self.step()
            elif not self._store_step():
                return
        raise AssertionError("the network does not come to rest")

    def sweep(self, name: str) -> None:
        """The store removes what need not be kept, earlier than the broker would ask for it."""
        self._queue.append((name, self._swept(name)))
        self._settle()

    def _swept(self, name: str) -> Swept:
        found = self.stores[name].sweep(self.now_us)
        return Swept(found.logs, found.finished)

    def _store_step(self) -> bool:
        for index, (name, core, effect) in enumerate(self._store_queue):
            if name in self.frozen_stores:
                continue
            del self._store_queue[index]
            store = self.stores[name]
            if isinstance(effect, SweepStore):
                answer: Input = self._swept(name)
            elif isinstance(effect, Persist) and name in self.full_stores:
                self.refused_work[name] += 1
                answer = Persisted(effect.token, "the disk is full", temporary=True)
            elif isinstance(effect, Persist):
                try:
                    store.apply(effect.operations)
                    answer = Persisted(effect.token)
                except StoreError as error:
                    answer = Persisted(effect.token, str(error))
            else:
                try:
                    wanted = (effect.name, effect.first, effect.last, effect.bytes_max)
                    if effect.packed:
                        answer = LogRead(effect.token, packed=store.read_packed(*wanted))
                    else:
                        answer = LogRead(effect.token, store.read(*wanted))
                except StoreError as error:
                    answer = LogRead(effect.token, error=str(error))
            if self.cores.get(name) is core:
                self._queue.append((name, answer))
            return True
        return False

    def _perform(self, name: str, core: BrokerCore, effect: Any) -> None:
        if isinstance(effect, Send):
            other = self._ends.get((name, effect.connection))
            if other is None:
                return
            if self.on_frames is not None:
                self.on_frames(name, other.name if isinstance(other, WireClient) else other[0], effect.frames)
            if isinstance(other, WireClient):
                other.receive(self._crossed(other.decoder, effect.frames))
            elif (name, other[0]) not in self.holes:
                sent = effect.frames
                if self.change is not None:
                    changed = [self.change(name, other[0], frame) for frame in sent]
                    sent = [frame for frame in changed if frame is not None]
                waiting = self.held.get((name, other[0]))
                if waiting is not None:
                    waiting.extend((other, frame) for frame in sent)
                else:
                    self._arrive(other, sent)
        elif isinstance(effect, Close):
            self._cut((name, effect.connection))
        elif isinstance(effect, Dial):
            self._dial(name, effect)
        elif isinstance(effect, Persist | ReadLog | SweepStore):
            self._store_queue.append((name, core, effect))
        elif isinstance(effect, Note):
            self.notes.append((name, effect))
        elif isinstance(effect, Drained):
            self.drained.add(name)
        elif isinstance(effect, Greeted):
            decoder = self._decoders.get((name, effect.connection))
            if decoder is not None:  # a test may play the peer by itself
                decoder.frame_bytes_max = effect.frame_bytes_max
        elif isinstance(effect, Replaced):
            self.replaced.add(name)
        elif isinstance(effect, Neighbours):
            self.neighbours[name] = effect.names
        elif isinstance(effect, Lock | Unlock):
            self._lock(name, effect)
        elif isinstance(effect, Probe):
            there = {self._moved.get(each, each) for each in self.cores}
            found = effect.address in there
            self._queue.append((name, Probed(effect.broker, ROUND_TRIP_US if found else None)))
        elif not isinstance(effect, Granted | Pause | Progress):
            raise TypeError(effect)

    def _lock(self, name: str, effect: Lock | Unlock) -> None:
        key = (name, effect.token)
        if isinstance(effect, Lock):
            claim = self._claims[key] = Claim(key, effect.token, effect.brokers)
            granted = self.locks.enter(claim)
        else:
            found = self._claims.pop(key, None)
            granted = [] if found is None else self.locks.leave(found)
        for claim in granted:
            owner = next(each for each, held in self._claims.items() if held is claim)[0]
            self._queue.append((owner, Locked(claim.token, claim.names, claim.epoch)))

    def _arrive(self, end: tuple[str, int], frames: Sequence[Frame]) -> None:
        try:
            self._queue.append((end[0], Received(end[1], self._crossed(self._decoders[end], frames))))
        except RemoteProtocolError as error:
            self._queue.append((end[0], Malformed(end[1], str(error))))

    def _crossed(self, decoder: FrameDecoder, frames: Sequence[Frame]) -> Sequence[Frame]:
        return decoder.feed(encode_frames(frames)) if self._codec else frames

    def _dial(self, name: str, dial: Dial) -> None:
        there = {self._moved.get(each, each): each for each in (*self.cores, *self.frozen)}
        address = there.get(dial.address, "")
        if (not address) or (name, address) in self.holes or (address, name) in self.holes:
            self._queue.append((name, Closed(None, "nobody there", dial.address, dial.soft)))
            return
        self._connections += 2
        mine, theirs = (name, self._connections - 1), (address, self._connections)
        self._ends[mine], self._ends[theirs] = theirs, mine
        self._decoders[mine], self._decoders[theirs] = FrameDecoder(), FrameDecoder()
        self._queue.append((address, Opened(theirs[1], name)))
        self._queue.append((name, Opened(mine[1], dial.address, dial.address, soft=dial.soft)))
