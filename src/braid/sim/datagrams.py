"""Many machines that send datagrams, in virtual time.

For networks of tens of thousands of peers: there are no connections, so nothing exists for a pair of
machines. A datagram takes as long as the latency function says, computed when it is sent; the loss here
*loses* it. Each machine has one timer. All times are rounded up to the resolution, so that much happens at
the same moment and the heap of the loop stays small: it is the timer wheel for datagrams and deadlines
alike.
"""

from __future__ import annotations

import gc
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from braid.errors import ConfigurationError
from braid.protocol.codec import Frame, FrameDecoder, encode_frames
from braid.protocol.effects import Drained, SendTo
from braid.protocol.inputs import Drain, Heard, Tick
from braid.sim.loop import NEVER_US, Loop, stream

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    import msgspec

    from braid.protocol import Machine
    from braid.protocol.codec import Vocabulary
    from braid.protocol.effects import Effect

__all__ = ["DatagramWorld"]

# While time passes, cycles of garbage are looked for after so many new objects.
GARBAGE_MAX = 1_000_000

_TICK = Tick()


class DatagramWorld:
    """Machines, the datagrams between them, and time. The same calls with the same seed give the same run."""

    def __init__(
        self,
        seed: int,
        latency_us: Callable[[int, int], int],
        *,
        loss: float = 0.0,
        resolution_us: int = 1_000,
        vocabulary: Vocabulary | None = None,
        kind_of: Callable[[msgspec.Struct], type] = type,
        on_effect: Callable[[str, Effect], None] | None = None,
    ) -> None:
        """
        Args:
            seed: decides which datagrams are lost.
            latency_us: how long from the machine of one number to that of another. Machines are numbered
                in the order in which they are added.
            loss: the share of datagrams that are lost.
            resolution_us: what times are rounded up to.
            vocabulary: have every datagram encoded and decoded.
            kind_of: which kind a message counts as.
            on_effect: is told every effect that is not a datagram, with the name of the machine.
        """
        if not 0 <= loss <= 1:
            raise ConfigurationError(f"loss is a share from 0 to 1, not {loss}")
        if resolution_us < 1:
            raise ConfigurationError(f"resolution_us is at least 1, not {resolution_us}")
        self.loop = Loop()
        self.loss = loss
        self.on_effect = on_effect
        self.on_heard: Callable[[int, Sequence[msgspec.Struct]], None] | None = None
        """Is told what comes to a machine, by its number."""
        self.cut: Callable[[int, int], bool] | None = None
        """Which datagrams, by the numbers of source and target, are lost on purpose."""
        self.names: list[str] = []
        self.machines: list[Machine | None] = []
        """By number; None for those that have crashed or left."""
        self.numbers: dict[str, int] = {}
        self.sent: list[dict[type, int]] | None = None
        """Messages sent by each machine, by kind, since `count_by_machine` was asked for."""
        self.depth = 0
        """How many datagrams, one because of the other, have led to what happens now; a timer begins anew."""
        self.datagrams = 0
        self.lost = 0
        self.occurrences = 0
        self._latency_us = latency_us
        self._resolution_us = resolution_us
        self._vocabulary = vocabulary
        self._kind_of = kind_of
        self._chance = stream(seed, "datagram loss")
        self._counts: dict[type, int] = {}
        """Messages sent while they were not counted by machine."""
        self._armed: list[int] = []
        """When the timer of each machine goes off."""

    @property
    def now_us(self) -> int:
        """Virtual time."""
        return self.loop.now_us

    def count_by_machine(self) -> None:
        """From now on, count messages for each machine."""
        self.sent = [{} for _ in self.names]

    @property
    def messages(self) -> dict[type, int]:
        """Messages sent, by kind."""
        found = dict(self._counts)
        for counts in self.sent or ():
            for kind, count in counts.items():
                found[kind] = found.get(kind, 0) + count
        return found

    # Who is there.

    def add(self, name: str, machine: Machine) -> int:
        """Add a machine, or another one in the place of one that has crashed; returns its number."""
        number = self.numbers.get(name)
        if number is None:
            number = self.numbers[name] = len(self.names)
            self.names.append(name)
            self.machines.append(machine)
            self._armed.append(NEVER_US)
            if self.sent is not None:
                self.sent.append({})
        elif self.machines[number] is not None:
            raise ConfigurationError(f"there is a machine {name!r} already")
        else:
            self.machines[number] = machine
            self._armed[number] = NEVER_US
        self._rearm(number, machine)
        return number

    def crash(self, names: Iterable[str]) -> None:
        """End machines without a word."""
        for name in names:
            self.machines[self._number(name)] = None

    def leave(self, name: str) -> None:
        """Have a machine leave. It is gone when it says that it is done (`Drained`), some time later."""
        number = self._number(name)
        machine = self._living(number)
        self._perform(number, machine.handle(Drain(), self.loop.now_us))
        if self.machines[number] is machine:
            self._rearm(number, machine)

    def call(self, name: str, function: Callable[[Any, int], list[Effect]]) -> None:
        """Do something with a machine from outside: `function(machine, now_us)` returns the effects."""
        number = self._number(name)
        machine = self._living(number)
        self.depth = 0
        self._perform(number, function(machine, self.loop.now_us))
        self._rearm(number, machine)

    def schedule(self, at_us: int, function: Callable[[Any], None], argument: Any = None) -> None:
        """Have `function(argument)` called at a time."""
        self.loop.schedule(self._rounded(at_us), function, argument)

    def _number(self, name: str) -> int:
        try:
            return self.numbers[name]
        except KeyError:
            raise ConfigurationError(f"there is no machine {name!r}") from None

    def _living(self, number: int) -> Machine:
        machine = self.machines[number]
        if machine is None:
            raise ConfigurationError(f"the machine {self.names[number]!r} is not running")
        return machine

    # Time.

    def run_until(self, until_us: int) -> None:
        """Let time pass."""
        with _little_garbage_collection():
            self.occurrences += self.loop.run_until(until_us)

    def run_for(self, seconds: float) -> None:
        """Let so much time pass."""
        self.run_until(self.loop.now_us + round(seconds * 1_000_000))

    def _rounded(self, at_us: int) -> int:
        resolution_us = self._resolution_us
        return -(-at_us // resolution_us) * resolution_us

    def _rearm(self, number: int, machine: Machine) -> None:
        deadline_us = machine.next_deadline_us()
        if deadline_us is not None and deadline_us < self._armed[number]:
            at_us = self._rounded(max(deadline_us, self.loop.now_us))
            if at_us < self._armed[number]:
                self._armed[number] = at_us
                self.loop.schedule(at_us, self._fire, number)

    def _fire(self, number: int) -> None:
        # A timer that was set anew has left an older one in the loop, which is passed over here.
        now_us = self.loop.now_us
        if self._armed[number] != now_us:
            return
        self._armed[number] = NEVER_US
        machine = self.machines[number]
        if machine is not None:
            self.depth = 0
            self._perform(number, machine.handle(_TICK, now_us))
            self._rearm(number, machine)

    # Datagrams.

    def _arrive(self, datagram: tuple[int, Heard, int]) -> None:
        number, heard, self.depth = datagram
        machine = self.machines[number]
        if machine is None:
            return
        if self.on_heard is not None:
            self.on_heard(number, heard.messages)
        effects = machine.handle(heard, self.loop.now_us)
        if effects:
            self._perform(number, effects)
        deadline_us = machine.next_deadline_us()
        if deadline_us is not None and deadline_us < self._armed[number]:
            self._rearm(number, machine)

    def _perform(self, source: int, effects: list[Effect]) -> None:
        for effect in effects:
            if type(effect) is SendTo:
                self._send(source, effect)
                continue
            if type(effect) is Drained:
                self.machines[source] = None
            if self.on_effect is not None:
                self.on_effect(self.names[source], effect)

    def _send(self, source: int, effect: SendTo) -> None:
        messages = effect.messages
        counts = self._counts if self.sent is None else self.sent[source]
        for message in messages:
            kind = self._kind_of(message)
            counts[kind] = counts.get(kind, 0) + 1
        self.datagrams += 1
        target = self.numbers.get(effect.address)
        if (
            target is None
            or (self.loss and self._chance.random() < self.loss)
            or (self.cut is not None and self.cut(source, target))
        ):
            self.lost += 1
            return
        if self._vocabulary is not None:
            data = encode_frames(Frame(0, each) for each in messages)  # type: ignore[arg-type]
            decoded = FrameDecoder(vocabulary=self._vocabulary).feed(data)
            messages = [frame.body for frame in decoded]
        resolution_us = self._resolution_us
        at_us = self.loop.now_us + self._latency_us(source, target)
        at_us = -(-at_us // resolution_us) * resolution_us
        self.loop.schedule(at_us, self._arrive, (target, Heard(self.names[source], messages), self.depth + 1))


@contextmanager
def _little_garbage_collection() -> Iterator[None]:
    """What exists already is not looked through, and new objects only now and then."""
    before = gc.get_threshold()
    gc.freeze()
    gc.set_threshold(GARBAGE_MAX, before[1], before[2])
    try:
        yield
    finally:
        gc.set_threshold(*before)
        gc.unfreeze()
