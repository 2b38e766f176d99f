"""What happens to these machines, with this seed?

A `World` holds machines and stations, lets virtual time pass, does to them what it is told to (`Faults`), and
watches what comes of it (`checkers`). The same calls with the same seed lead to the same run, to the byte.
"""

from __future__ import annotations

import gc
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from braid.errors import ConfigurationError, InvariantViolated
from braid.protocol import FrameDecoder
from braid.protocol.codec import BROKER_VOCABULARY
from braid.protocol.inputs import Drain
from braid.sim.checkers import Checkers
from braid.sim.directory import LockDirectory
from braid.sim.faults import Faults
from braid.sim.host import Host
from braid.sim.loop import stream
from braid.sim.models import Birth, LinkModel, NodeModel
from braid.sim.oracle import Oracle
from braid.sim.samples import Sampler, load_of
from braid.sim.station import Station

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from braid.protocol import Machine
    from braid.protocol.codec import Vocabulary
    from braid.protocol.effects import Progress
    from braid.sim.full_client import FullClient
    from braid.sim.loop import Occurrence
    from braid.sim.samples import Load
    from braid.trace.writer import TraceWriter

__all__ = ["World"]

# Occurrences after which a world that does not come to rest is given up, unless told otherwise.
OCCURRENCES_MAX = 10_000_000
# Nothing of note must happen for so long before a world counts as quiet. Delayed acknowledgements and the
# steps of a recovery are less apart than this.
QUIET_US = 1_000_000
SAMPLE_US = 1_000_000
# As long as locks outlive a real broker by default.
LEASE_US = 10_000_000
# While time passes, cycles of garbage are looked for after so many new objects.
GARBAGE_MAX = 100_000

_LINK = LinkModel()
_NODE = NodeModel()


class World(Faults):
    """Machines, what lies between them, and time."""

    def __init__(
        self,
        seed: int,
        *,
        trace: TraceWriter | None = None,
        checkers: bool = True,
        codec: bool = False,
        link: LinkModel = _LINK,
        latency_us: Callable[[str, str], int] | None = None,
        sample_us: int = SAMPLE_US,
        expected: bool = True,
        validate_us: int = 0,
    ) -> None:
        """
        Args:
            seed: decides everything that is left to chance.
            trace: where to write what happens.
            checkers: watch every publication, see `braid.sim.checkers`.
            codec: turn everything that crosses a connection into bytes and back.
            link: what all connections between machines are like.
            latency_us: latency by source and target instead of one for all.
            sample_us: how often links and nodes are sampled.
            expected: say in the trace at how many brokers each publication is expected.
            validate_us: how often all machines are asked whether everything that must hold in them does;
                0: never.
        """
        super().__init__(seed, link=link, latency_us=latency_us, codec=codec)
        self.trace = trace
        self._unnoticed = {}
        self.checkers = Checkers()
        """What they have to say; nothing if they were told not to watch."""
        if checkers:
            self.watcher = self.checkers
        self.oracle: Oracle | None = None
        """Knows whom each publication concerns; only there if somebody wants to know."""
        if checkers or trace is not None:
            self.oracle = Oracle(trace, self.watcher, lookups=checkers or expected)
            self.checkers.look_up = self.oracle.look_up
        if trace is not None:
            self.sampler = Sampler(trace)
            self.on_progress = self._trace_progress
        self._sample_us = sample_us
        self._sampled_at_us = 0
        self._sampling = False
        self._expected = 0
        self._occurrences = 0
        self._bounds: dict[Host, int] = {}
        self._loads: dict[Host, Callable[[Machine], Load | None]] = {}
        self._validate_us = validate_us
        if validate_us:
            self.loop.schedule(validate_us, self._validate)

    # Who is there.

    def add(
        self,
        name: str,
        factory: Callable[[Birth], Machine],
        *,
        node: NodeModel = _NODE,
        store: bool = False,
        at_us: int = 0,
        kind: str = "broker",
        load: Callable[[Machine], Load | None] | None = load_of,
        queue_bytes_max: int | None = None,
        vocabulary: Vocabulary = BROKER_VOCABULARY,
    ) -> Host:
        """Add a machine. Its address, for whoever dials it, is its name.

        Args:
            name: its own; no other host or client has it.
            factory: makes the machine, at its start and at every restart.
            node: what it runs on.
            store: give it a store that outlives it.
            at_us: when it starts.
            kind: what it is, for people.
            load: asks it how much it has done; None if it cannot be asked.
            queue_bytes_max: what may wait in it for any one neighbour, or for its clients; checked with every
                sample.
            vocabulary: the messages that it understands.
        """
        host = Host(self._new_name(name), self, factory, node, kind=kind, store=store, vocabulary=vocabulary)
        self.endpoints[name] = host
        if load is not None and (self.trace is not None or queue_bytes_max is not None):
            self._loads[host] = load
            if queue_bytes_max is not None and self.watcher is not None:
                self._bounds[host] = queue_bytes_max
            self._start_sampling()
        if at_us <= self.now_us:
            self.begin(host)
        else:
            self.expect(at_us, self._begin_first, host)
        return host

    def _begin_first(self, host: Host) -> None:
        if not host.lives:
            self.begin(host)

    def begin(self, host: Host) -> None:
        """Start a host's machine, for the first time or again."""
        life = host.lives + 1
        seed = stream(self.seed, f"machine/{host.name}/{life}").getrandbits(32)
        state = host.store.state() if host.store is not None else None
        # The number comes first: whoever shortens an incarnation still tells two of them apart.
        host.start(Birth(f"{life}.{host.name}", seed, state))

    def attach(self, station: Station) -> Station:
        """Add a light client, which connects at once."""
        self._new_name(station.name)
        self.endpoints[station.name] = station
        station.begin(self)
        return station

    def admit(self, client: FullClient) -> FullClient:
        """Add a client as programs have it; its name is that of a host, to which faults happen."""
        client.enter(self)
        return client

    def add_directory(
        self, name: str = "directory", *, lease_us: int = LEASE_US, latency_us: int = 1_000
    ) -> LockDirectory:
        """Add the directory of this world, for locks and neighbour records.

        Args:
            name: what faults call it.
            lease_us: how long locks stay with a host that is silent.
            latency_us: between it and every host.
        """
        if self.directory is not None:
            raise ConfigurationError(f"this world has a directory already, {self.directory.name!r}")
        found = LockDirectory(self._new_name(name), self, lease_us=lease_us, latency_us=latency_us)
        self.endpoints[name] = self.directory = found
        return found

    def _new_name(self, name: str) -> str:
        if name in self.endpoints:
            raise ConfigurationError(f"there is a {self.endpoints[name].kind} {name!r} in this world already")
        return name

    def machine(self, name: str) -> Any:
        """The machine that runs under a name.

        Raises:
            ConfigurationError: there is none, or it is down.
        """
        machine = self.host(name).machine
        if machine is None:
            raise ConfigurationError(f"{name!r} is down")
        return machine

    def station(self, name: str) -> Station:
        """The station of a name.

        Raises:
            ConfigurationError: there is none.
        """
        found = self.endpoint(name)
        if not isinstance(found, Station):
            raise ConfigurationError(f"{name!r} is a {found.kind}, not a station")
        return found

    def set_link(self, left: str, right: str, model: LinkModel) -> None:
        """Make the connections between two endpoints, from the next one on, like this."""
        self.condition(left, right).model = model

    def drain(self, name: str) -> None:
        """Ask a machine to finish what it does; its host's `drained` says when it has."""
        self.host(name).report(Drain())

    # Time.

    @property
    def now_us(self) -> int:
        """Virtual microseconds since the beginning."""
        return self.loop.now_us

    def at(self, at_us: int, action: Callable[[], object]) -> None:
        """Have something done at a time."""
        self.expect(at_us, _call, action)

    def expect(self, at_us: int, function: Callable[[Any], None], argument: Any) -> None:
        """Schedule something without which the world is not at rest."""
        self._expected += 1
        self.loop.schedule(at_us, self._happens, (function, argument))

    def _happens(self, what: tuple[Callable[[Any], None], Any]) -> None:
        self._expected -= 1
        what[0](what[1])

    def run_until(self, until_us: int) -> None:
        """Let everything happen up to a time."""
        with _collecting_rarely():
            self._occurrences += self.loop.run_until(until_us)

    def run_for(self, *, seconds: float = 0.0, us: int = 0) -> None:
        """Let time pass."""
        self.run_until(self.now_us + round(seconds * 1_000_000) + us)

    def run_until_quiet(self, *, occurrences_max: int = OCCURRENCES_MAX, quiet_us: int = QUIET_US) -> None:
        """Let time pass until nothing but heartbeats has crossed a connection for a while.

        What stations are going to publish and what `at` is going to do is waited for.

        Raises:
            InvariantViolated: that takes more occurrences than it may.
        """
        quiet_at_us = self.now_us + quiet_us
        for _ in range(occurrences_max):
            times = self.loop.times
            if not self._expected and (not times or times[0] > quiet_at_us):
                self.loop.run_until(quiet_at_us)
                return
            self._occurrences += 1
            if _of_note(self.loop.step()):
                quiet_at_us = self.now_us + quiet_us
        repeat = self.checkers.repeat_command
        raise InvariantViolated(
            f"the world does not come to rest within {occurrences_max:,} occurrences",
            (f"repeat with: {repeat}",) if repeat else (),
        )

    # What came of it.

    @property
    def repeat_command(self) -> str:
        """What to type to see this run again; failures name it."""
        return self.checkers.repeat_command

    @repeat_command.setter
    def repeat_command(self, text: str) -> None:
        self.checkers.repeat_command = text

    def statistics(self) -> dict[str, int]:
        """How much has happened so far."""
        hosts = [each for each in self.endpoints.values() if isinstance(each, Host)]
        stations = [each for each in self.endpoints.values() if isinstance(each, Station)]
        return {
            "now_us": self.now_us,
            "occurrences": self._occurrences,
            "machines": len(hosts),
            "machines_up": sum(host.machine is not None for host in hosts),
            "stations": len(stations),
            "frames": sum(host.frames for host in hosts),
            "published": sum(station.published for station in stations),
            "delivered": sum(station.delivered for station in stations),
        }

    def close(self) -> None:
        """Write what the trace still lacks; the trace itself stays open."""
        if self.oracle is not None:
            self.oracle.look_up()
        if self._sampling:
            self._take_samples()

    def _trace_progress(self, at_us: int, name: str, progress: Progress) -> None:
        if self.trace is not None:
            self.trace.reconfiguration(
                at_us, progress.operation, progress.id, progress.phase, name, progress.detail
            )

    def _validate(self, _: object) -> None:
        for endpoint in self.endpoints.values():
            validate = getattr(endpoint.machine, "validate", None) if isinstance(endpoint, Host) else None
            if validate is not None:
                validate()
        self.loop.schedule(self.now_us + self._validate_us, self._validate)

    def _start_sampling(self) -> None:
        if not self._sampling:
            self._sampling = True
            self._sampled_at_us = self.now_us
            self.loop.schedule(self.now_us + self._sample_us, self._sample)

    def _sample(self, _: object) -> None:
        self._take_samples()
        self.loop.schedule(self.now_us + self._sample_us, self._sample)

    def _take_samples(self) -> None:
        period_us = self.now_us - self._sampled_at_us
        if not period_us:
            return
        self._sampled_at_us = self.now_us
        loads: dict[Host, Load] = {}
        for host, ask in self._loads.items():
            load = ask(host.machine) if host.machine is not None else None
            if load is not None:
                loads[host] = load
        for host, bytes_max in self._bounds.items():
            if host in loads and self.watcher is not None:
                self.watcher.bounded(self.now_us, host.name, loads[host], bytes_max)
        if self.sampler is not None:
            self.sampler.sample(loads, self.now_us, period_us)


@contextmanager
def _collecting_rarely() -> Iterator[None]:
    """Look for cycles of garbage less often: what crosses the network is in none, and there is much of it."""
    usual = gc.get_threshold()
    if usual[0]:
        gc.set_threshold(max(usual[0], GARBAGE_MAX), *usual[1:])
    try:
        yield
    finally:
        gc.set_threshold(*usual)


def _call(action: Callable[[], object]) -> None:
    action()


def _of_note(occurrence: Occurrence) -> bool:
    """Whether it was the arrival of something other than heartbeats, acknowledgements and greetings."""
    argument = occurrence[1]
    if type(argument) is tuple and len(argument) == 2 and type(argument[0]) is int:
        argument = argument[1]  # frames that came another way than plainly, behind the time they were sent
    if type(argument) is bytes:
        argument = FrameDecoder().feed(argument)
    return type(argument) in (list, tuple) and any(getattr(frame, "sequence", 0) for frame in argument)
