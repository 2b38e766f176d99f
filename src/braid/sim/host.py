"""How does a machine meet virtual time?

A `Host` does for one machine what `runtime.Node` does with real sockets: it reports what happens, performs
what the machine decides, and knows nothing of what it means. The turn is the hottest path of the simulator.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any

from braid.errors import StoreError
from braid.protocol.codec import BROKER_VOCABULARY
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
    Reload,
    Replaced,
    Send,
    SweepStore,
    Unlock,
)
from braid.protocol.inputs import LogRead, Persisted, Received, Reconfigured, Swept, Tick
from braid.protocol.memory_store import MemoryStore
from braid.sim.loop import NEVER_US
from braid.sim.pipe import Endpoint
from braid.sim.uplink import Uplink

if TYPE_CHECKING:
    from collections.abc import Callable

    from braid.protocol import Machine
    from braid.protocol.codec import Vocabulary
    from braid.protocol.effects import Effect
    from braid.protocol.inputs import Input
    from braid.sim.models import Birth, NodeModel
    from braid.sim.network import Network

__all__ = ["Host"]

_TICK = Tick()


class Host(Endpoint):
    """Drives one machine, through as many lives as it has."""

    __slots__ = (
        "_deadline",
        "_factory",
        "_handle",
        "_network",
        "_store_free_at_us",
        "_store_work",
        "_tick_at_us",
        "busy_until_us",
        "busy_us",
        "drained",
        "lives",
        "machine",
        "node",
        "replaced",
        "store",
    )

    _handle: Callable[[Input, int], list[Effect]]
    _deadline: Callable[[], int | None]

    def __init__(
        self,
        name: str,
        network: Network,
        factory: Callable[[Birth], Machine],
        node: NodeModel,
        *,
        kind: str,
        store: bool,
        vocabulary: Vocabulary = BROKER_VOCABULARY,
    ) -> None:
        super().__init__(name, kind, vocabulary)
        self.loop = network.loop
        self.node = node
        self.machine: Machine | None = None
        """What runs now; None while the host is down."""
        self.lives = 0
        """How often it has been started."""
        self.store = MemoryStore(retention=node.retention, secret=f"the secret of {name}") if store else None
        self.drained = False
        self.replaced = False
        """Whether its machine has given way to another one of the same name."""
        self.busy_us = 0
        """Processing time so far, where processing takes any."""
        self._network = network
        self._factory = factory
        self._tick_at_us = NEVER_US
        self.busy_until_us = 0
        """When its processor is free again."""
        self._store_free_at_us = 0
        self._store_work: deque[Persist | ReadLog | SweepStore] | None = None
        self.report = self._wait_turn if node.costs else self._turn
        if node.uplink_messages_per_s is not None or node.uplink_bytes_per_s is not None:
            self.uplink = Uplink(network.loop)
            self.uplink.limit(node.uplink_messages_per_s, node.uplink_bytes_per_s)

    # Lives.

    def start(self, birth: Birth) -> None:
        """Make the machine and let it begin."""
        machine = self._factory(birth)
        self.lives += 1
        self.machine = machine
        self.drained = self.replaced = False
        self._handle = machine.handle
        self._deadline = machine.next_deadline_us
        self._tick_at_us = NEVER_US
        self.busy_until_us = self._store_free_at_us = self.loop.now_us
        self._store_work = None
        self._turn(_TICK)

    def stop(self, committed: int) -> None:
        """Everything in memory is gone. Of the store work under way, the first pieces had been done."""
        for work in list(self._store_work or ())[:committed]:
            if isinstance(work, Persist) and self.store is not None:
                self.store.apply(work.operations)
        self._store_work = None
        self.machine = None
        self._tick_at_us = NEVER_US
        self.pipes.clear()
        if self.uplink is not None:
            self.uplink.clear()

    def lose_store(self) -> None:
        """Its disk is empty from now on."""
        secret = f"the secret of {self.name}'s life {self.lives}"
        self.store = MemoryStore(retention=self.node.retention, secret=secret)

    @property
    def store_work(self) -> int:
        """How many pieces of store work are under way."""
        return len(self._store_work or ())

    # Turns.

    def _turn(self, stimulus: Input) -> None:
        """One input and everything it leads to."""
        if self.machine is None:
            return
        loop = self.loop
        now_us = loop.now_us
        for effect in self._handle(stimulus, now_us):
            if type(effect) is Send:
                pipe = self.pipes.get(effect.connection)
                if pipe is None:
                    continue
                if pipe.plain:
                    # This is `pipe.send`, without the calls.
                    moment = loop.moments.get(now_us + pipe.latency_us)
                    if moment is not None:
                        moment.append((pipe.arrive, effect.frames))
                    else:
                        loop.schedule(now_us + pipe.latency_us, pipe.arrive, effect.frames)
                elif pipe.beside:
                    pipe.hand_over(effect.frames)
                else:
                    pipe.send(effect.frames)
            else:
                self._perform(effect)
        deadline_us = self._deadline()
        if deadline_us is not None and deadline_us < self._tick_at_us:
            if deadline_us <= now_us:
                deadline_us = now_us + 1
            self._tick_at_us = deadline_us
            loop.schedule(deadline_us, self._tick, deadline_us)

    def _tick(self, at_us: int) -> None:
        """A deadline was due now. It may have moved since; one that was superseded does nothing."""
        if at_us != self._tick_at_us:
            return
        self._tick_at_us = NEVER_US
        deadline_us = self._deadline()
        if deadline_us is None:
            return
        if deadline_us <= at_us:
            self.report(_TICK)
        else:
            self._tick_at_us = deadline_us
            self.loop.schedule(deadline_us, self._tick, deadline_us)

    def _wait_turn(self, stimulus: Input) -> None:
        """There is one processor, and it may be busy."""
        cost_us = 0
        if isinstance(stimulus, Received):
            cost_us = sum(map(self.node.cost_of, stimulus.frames))
        now_us = self.loop.now_us
        # At the very moment at which it is free again, others may still be before this in line.
        if not cost_us and self.busy_until_us < now_us:
            self._turn(stimulus)
            return
        self.busy_until_us = max(self.busy_until_us, now_us) + cost_us
        self.busy_us += cost_us
        self.loop.schedule(self.busy_until_us, self._late_turn, (self.lives, stimulus))

    def freeze(self, duration_us: int) -> None:
        """Do nothing for a while; what is reported meanwhile waits."""
        self.busy_until_us = max(self.busy_until_us, self.loop.now_us + duration_us)
        self.report = self._wait_turn

    def _late_turn(self, waited: tuple[int, Input]) -> None:
        life, stimulus = waited
        if life == self.lives:
            self._turn(stimulus)

    # Effects.

    def _perform(self, effect: Effect) -> None:
        if isinstance(effect, Note):
            self._network.noted(self, effect)
        elif isinstance(effect, Progress):
            self._network.progressed(self, effect)
        elif isinstance(effect, Persist | ReadLog | SweepStore):
            self._store_later(effect)
        elif isinstance(effect, Close):
            pipe = self.pipes.get(effect.connection)
            if pipe is not None:
                pipe.close(effect.reason)
        elif isinstance(effect, Dial):
            self._network.dial(self, effect)
        elif isinstance(effect, Greeted):
            pipe = self.pipes.get(effect.connection)
            if pipe is not None and pipe.back.shape is not None and pipe.back.shape.codec:
                pipe.back.shape.decoder.frame_bytes_max = effect.frame_bytes_max
            if pipe is not None and effect.kind == "soft" and self._network.sampler is not None:
                self._network.sampler.soft(pipe)
        elif isinstance(effect, Pause):
            pipe = self.pipes.get(effect.connection)
            if pipe is not None:
                pipe.back.pause(effect.duration_us)
        elif isinstance(effect, Drained):
            self.drained = True
        elif isinstance(effect, Replaced):
            self.replaced = True
        elif isinstance(effect, Reload):
            self.report(Reconfigured(effect.token, problem="there are no files to read again"))
        elif isinstance(effect, Lock | Unlock):
            self._network.lock(self, effect)
        elif isinstance(effect, Probe):
            self._network.probe(self, effect)
        elif isinstance(effect, Neighbours):
            if self._network.directory is not None:
                self._network.directory.tell(self, effect.names)
        elif not isinstance(effect, Granted):  # nothing is read beforehand here
            raise TypeError(f"{effect!r} is no effect")

    # The store.

    def _store_later(self, work: Persist | ReadLog | SweepStore) -> None:
        """The store does one thing after the other."""
        if self._store_work is None:
            self._store_work = deque()
        self._store_work.append(work)
        self._store_free_at_us = max(self._store_free_at_us, self.loop.now_us) + self.node.store_latency_us
        self.loop.schedule(self._store_free_at_us, self._store_done, self.lives)

    def _store_done(self, life: int) -> None:
        if life != self.lives or not self._store_work:
            return
        work = self._store_work.popleft()
        self.report(self._stored(work))

    def _stored(self, work: Persist | ReadLog | SweepStore) -> Persisted | LogRead | Swept:
        if isinstance(work, SweepStore):
            if self.store is None:
                return Swept()
            found = self.store.sweep(self.loop.now_us)
            return Swept(found.logs, found.finished)
        answer: Any = Persisted if isinstance(work, Persist) else LogRead
        if self.store is None:
            return answer(work.token, error="there is no store")  # type: ignore[no-any-return]
        try:
            if isinstance(work, Persist):
                self.store.apply(work.operations)
                return Persisted(work.token)
            wanted = (work.name, work.first, work.last, work.bytes_max)
            if work.packed:
                return LogRead(work.token, packed=self.store.read_packed(*wanted))
            return LogRead(work.token, self.store.read(*wanted))
        except StoreError as error:
            return answer(work.token, error=str(error))  # type: ignore[no-any-return]
