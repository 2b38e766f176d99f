"""Who is connected to whom, and what lies between?"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from braid.errors import ConfigurationError
from braid.protocol.effects import Lock
from braid.protocol.inputs import Closed, LockRefused, Opened, Probed
from braid.sim.host import Host
from braid.sim.loop import Loop, stream
from braid.sim.pipe import Pipe

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from braid.protocol.effects import Dial, Note, Probe, Progress, Unlock
    from braid.sim.checkers import Checkers
    from braid.sim.directory import LockDirectory
    from braid.sim.models import LinkModel
    from braid.sim.pipe import Endpoint
    from braid.sim.samples import Sampler

__all__ = ["DIAL_TIMEOUT_US", "Condition", "Network"]

# As long as `runtime` waits for somebody who does not answer.
DIAL_TIMEOUT_US = 5_000_000
# Warnings and errors of machines that are remembered, for the story of a failure.
NOTES_MAX = 1_000


class Condition:
    """What faults have done to the way between two endpoints."""

    __slots__ = ("bandwidth_bytes_per_s", "dials", "extra_us", "holds", "holes", "model", "partitions")

    def __init__(self) -> None:
        self.partitions = 0
        self.holds = 0
        self.holes = 0
        """Ways that lead nowhere, in either direction."""
        self.extra_us = 0
        self.bandwidth_bytes_per_s: int | None = None
        self.model: LinkModel | None = None
        self.dials: list[tuple[Host, int, Dial]] = []
        """Attempts to connect that wait for the release of a hold, each with the dialler's life."""


class Network:
    """Endpoints by name, and the connections between them."""

    def __init__(
        self,
        seed: int,
        *,
        link: LinkModel,
        latency_us: Callable[[str, str], int] | None,
        codec: bool,
    ) -> None:
        self.seed = seed
        self.loop = Loop()
        self.endpoints: dict[str, Endpoint] = {}
        self.conditions: dict[tuple[str, str], Condition] = {}
        """By two names in order; only pairs that something was done to."""
        self.notes: deque[tuple[int, str, Note]] = deque(maxlen=NOTES_MAX)
        """The last warnings and errors of machines: when, whose, and what."""
        self.on_note: Callable[[int, str, Note], None] | None = None
        """Told of every note of every machine, as it is made."""
        self.on_progress: Callable[[int, str, Progress], None] | None = None
        """Told of every step of a change of the network, at each machine."""
        self.sampler: Sampler | None = None
        self.watcher: Checkers | None = None
        """The checkers, if they are to watch."""
        self.directory: LockDirectory | None = None
        """Where brokers keep locks and neighbour records, if anywhere."""
        self._link = link
        self._latency_us = latency_us
        self._codec = codec
        self._connections = 0

    # Finding.

    def endpoint(self, name: str) -> Endpoint:
        """The endpoint of a name.

        Raises:
            ConfigurationError: there is none.
        """
        found = self.endpoints.get(name)
        if found is None:
            raise ConfigurationError(f"there is no machine called {name!r} in this world")
        return found

    def host(self, name: str) -> Host:
        """The host of a name.

        Raises:
            ConfigurationError: there is none.
        """
        found = self.endpoint(name)
        if not isinstance(found, Host):
            raise ConfigurationError(f"{name!r} is a {found.kind}, not a machine's host")
        return found

    def condition(self, left: str, right: str) -> Condition:
        """What is between two endpoints; changing it does not change open connections by itself."""
        pair = (left, right) if left <= right else (right, left)
        found = self.conditions.get(pair)
        if found is None:
            found = self.conditions[pair] = Condition()
        return found

    def known_condition(self, left: str, right: str) -> Condition | None:
        """The same, or None if nothing was ever done to this pair."""
        if not self.conditions:
            return None
        return self.conditions.get((left, right) if left <= right else (right, left))

    def pipes_between(self, source: str, target: str) -> list[Pipe]:
        """The open pipes from one endpoint to another."""
        return [pipe for pipe in self.endpoint(source).pipes.values() if pipe.target.name == target]

    def pipes(self) -> Iterator[Pipe]:
        """All open pipes, in a fixed order."""
        for endpoint in self.endpoints.values():
            yield from endpoint.pipes.values()

    def model(self, source: str, target: str) -> LinkModel:
        """What connections between these two are like, faults left aside."""
        condition = self.known_condition(source, target)
        return condition.model if condition is not None and condition.model is not None else self._link

    def latency_us(self, source: str, target: str) -> int:
        """From one endpoint to the other."""
        condition = self.known_condition(source, target)
        if condition is not None and condition.model is not None:
            return condition.model.latency_us
        if self._latency_us is not None:
            return self._latency_us(source, target)
        return self._link.latency_us

    # Connecting.

    def connect(
        self, dialler: Endpoint, accepter: Endpoint, latency_us: int, *, direct: bool = False
    ) -> Pipe:
        """Join two endpoints; returns the dialler's pipe. Nobody is told yet.

        Args:
            dialler: who opens the connection.
            accepter: who accepts it.
            latency_us: from one end to the other.
            direct: the dialler takes what comes without a detour over the loop.
        """
        near = self._connections + 1
        far = self._connections = self._connections + 2
        there = Pipe(dialler, accepter, near, far, latency_us, None)
        back = Pipe(accepter, dialler, far, near, latency_us, accepter.name)
        there.back, back.back = back, there
        dialler.pipes[near] = there
        accepter.pipes[far] = back
        if direct and not self._codec:
            back.direct = True
        if self.watcher is not None and isinstance(dialler, Host):
            self.watcher.reach.linked(dialler.name, accepter.name)
        for pipe in (there, back):
            pipe.settle()
            self._shape(pipe)
            if self.sampler is not None:
                pipe.meter = self.sampler.meter(pipe)
        return there

    def _shape(self, pipe: Pipe) -> None:
        source, target = pipe.source.name, pipe.target.name
        model = self.model(source, target)
        condition = self.known_condition(source, target)
        near = pipe.direct or pipe.back.direct
        bandwidth = None if near else model.bandwidth_bytes_per_s
        if condition is not None and condition.bandwidth_bytes_per_s is not None:
            bandwidth = condition.bandwidth_bytes_per_s
        if bandwidth is not None:
            pipe.shaped().bandwidth_bytes_per_s = bandwidth
        if model.loss and not near:
            shape = pipe.shaped()
            shape.loss = model.loss
            shape.chance = stream(self.seed, f"loss/{source}/{target}/{pipe.number}")
        if self._codec:
            pipe.shaped().use_codec()
        if condition is not None:
            if condition.extra_us:
                pipe.shaped().extra_us = condition.extra_us
            if condition.partitions or condition.holds:
                pipe.shaped().blocked = condition.partitions + condition.holds

    def dial(self, dialler: Host, dial: Dial) -> None:
        """A machine wants a connection. It takes a round trip until it knows."""
        address = dial.address
        latency_us = self.latency_us(dialler.name, address) if address in self.endpoints else 0
        condition = self.known_condition(dialler.name, address)
        if condition is not None:
            latency_us += condition.extra_us
        self.loop.schedule(self.loop.now_us + latency_us, self._knock, (dialler, dialler.lives, dial))

    def _knock(self, attempt: tuple[Host, int, Dial]) -> None:
        dialler, life, dial = attempt
        address = dial.address
        if dialler.lives != life or dialler.machine is None:
            return
        accepter = self.endpoints.get(address)
        condition = self.known_condition(dialler.name, address)
        if condition is not None and (condition.partitions or condition.holes):
            self._fail(dialler, dial, f"{address} did not answer", DIAL_TIMEOUT_US)
        elif condition is not None and condition.holds:
            condition.dials.append(attempt)
        elif not isinstance(accepter, Host) or accepter.machine is None:
            latency_us = self.latency_us(dialler.name, address) if accepter is not None else 0
            self._fail(dialler, dial, f"no machine listens at {address}", latency_us)
        else:
            latency_us = self.latency_us(dialler.name, address)
            pipe = self.connect(dialler, accepter, latency_us)
            extra_us = condition.extra_us if condition is not None else 0
            answer = (pipe, life, dial)
            self.loop.schedule(self.loop.now_us + latency_us + extra_us, self._answered, answer)
            accepter.report(Opened(pipe.number, dialler.name))

    def _answered(self, answer: tuple[Pipe, int, Dial]) -> None:
        pipe, life, dial = answer
        dialler = pipe.source
        if not isinstance(dialler, Host) or dialler.lives != life:
            return
        if pipe.near_number in dialler.pipes:
            dialler.report(Opened(pipe.near_number, dial.address, dial.address, soft=dial.soft))
        else:
            reason = f"the connection to {dial.address} broke while it was made"
            dialler.report(Closed(None, reason, dial.address, dial.soft))

    def _fail(self, dialler: Host, dial: Dial, reason: str, after_us: int) -> None:
        failure = (dialler, dialler.lives, Closed(None, reason, dial.address, dial.soft))
        self.loop.schedule(self.loop.now_us + after_us, self._answer, failure)

    def _answer(self, answered: tuple[Host, int, Closed | LockRefused | Probed]) -> None:
        host, life, answer = answered
        if host.lives == life:
            host.report(answer)

    def probe(self, host: Host, probe: Probe) -> None:
        """A machine asks how far another one is: as far as the link model says, if it can be reached."""
        address = probe.address
        answer: int | None = None
        after_us = DIAL_TIMEOUT_US
        target = self.endpoints.get(address)
        condition = self.known_condition(host.name, address)
        cut = condition is not None and (condition.partitions or condition.holes or condition.holds)
        if isinstance(target, Host) and target.machine is not None and not cut:
            one_way_us = self.latency_us(host.name, address) + (condition.extra_us if condition else 0)
            answer = after_us = 2 * one_way_us
        self.loop.schedule(
            self.loop.now_us + after_us, self._answer, (host, host.lives, Probed(probe.broker, answer))
        )

    def release_dials(self, left: str, right: str) -> None:
        """Let attempts go on that a hold has kept waiting."""
        condition = self.condition(left, right)
        waiting, condition.dials = condition.dials, []
        for attempt in waiting:
            self.loop.schedule(0, self._knock, attempt)

    # What machines say.

    def lock(self, host: Host, effect: Lock | Unlock) -> None:
        """A machine wants locks, or gives some back."""
        if self.directory is not None:
            self.directory.perform(host, effect)
        elif isinstance(effect, Lock):
            refusal = LockRefused(effect.token, "there is no directory to keep locks in", temporary=False)
            self.loop.schedule(self.loop.now_us, self._answer, (host, host.lives, refusal))

    def progressed(self, host: Host, progress: Progress) -> None:
        """A change of the network has come to another phase at a machine."""
        if self.on_progress is not None:
            self.on_progress(self.loop.now_us, host.name, progress)

    def noted(self, host: Host, note: Note) -> None:
        """A machine has something worth a line."""
        if note.level in ("warning", "error"):
            self.notes.append((self.loop.now_us, host.name, note))
        if self.on_note is not None:
            self.on_note(self.loop.now_us, host.name, note)
