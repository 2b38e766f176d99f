"""A broker crashes for good and is replaced while publications flow, and something else goes wrong meanwhile.

A `Scenario` is a value: a tree, who publishes and subscribes where, how the replica resumes, and the fault
with the message of the protocol at which it strikes. Its seed makes all of it; a smaller one that still fails
is made by leaving things out (`smallest`). The same scenario always has the same run.
"""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, cast

import msgspec

from braid.broker.core import BrokerCore
from braid.broker.identities import granted_key
from braid.broker.resumptions import BASIC, IMMEDIATE, INCREMENTAL, SYNCHRONOUS
from braid.broker.settings import BrokerSettings
from braid.errors import InvariantViolated
from braid.pipeline.experiments.availability.delivery_properties import violations
from braid.pipeline.experiments.availability.held_rows import HeldRows
from braid.protocol import PublicationBatch
from braid.protocol.inputs import Received
from braid.protocol.kinds import kind_of
from braid.protocol.log import KeepStanding
from braid.protocol.messages import Ask, Done, Failed
from braid.reconfiguration import OverlayTree
from braid.sim import LinkModel, Station, World

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from braid.pipeline.experiments.availability.delivery_properties import Violation
    from braid.protocol import Machine
    from braid.protocol.messages import Message
    from braid.sim import Birth
    from braid.sim.host import Host
    from braid.trace.writer import TraceWriter

__all__ = [
    "FAULTS",
    "IN_FLIGHT_MIN",
    "MESSAGES",
    "PROTOCOLS",
    "Outcome",
    "Scenario",
    "run",
    "scenario",
    "smallest",
]

PROTOCOLS: Final = {
    "basic": (BASIC, False),
    "synchronous": (SYNCHRONOUS, False),
    "incremental": (INCREMENTAL, False),
    "immediate": (IMMEDIATE, False),
    "acknowledged": (SYNCHRONOUS, True),
}
"""How publications come back, and whether publishers want receipts."""
FAULTS: Final = ("delay", "cut", "freeze", "replica crashes", "neighbour crashes")
MESSAGES: Final = (
    "hello",
    "welcome",
    "sync_begin",
    "subscribe",
    "advertise",
    "done",
    "reach",
    "tables_complete",
)
"""What the replica and its neighbours say to each other until their links are open, by kind."""
IN_FLIGHT_MIN: Final = 200
"""Publications that are published between the crash and the last message of the protocol, at least."""
REPLICA: Final = "R"
KEY: Final = "the key of the replica"
CRASH_US: Final = 2_000_000
# From when to when publications flow, thickly until the replica begins.
BEFORE_US: Final = 30_000
THICK_US: Final = 60_000
FLOW_US: Final = 400_000
AFTER_US: Final = 6_000_000


class Reader(msgspec.Struct, frozen=True):
    """A subscriber, with one subscription for each lower bound of the price."""

    broker: str
    above: tuple[int, ...]


class Writing(msgspec.Struct, frozen=True):
    """A publication that is to be: when, by which writer, with which price."""

    at_us: int
    writer: int
    price: int


class Scenario(msgspec.Struct, frozen=True):
    """One run, before it has happened."""

    seed: int
    protocol: str
    links: tuple[tuple[str, str], ...]
    latency_us: dict[str, int]
    """Of every link, both ways, as `A-B`; of those of the replica by its neighbour."""
    gone: str
    """The broker that crashes for good."""
    readers: tuple[Reader, ...]
    writers: tuple[str, ...]
    """The broker of each."""
    publications: tuple[Writing, ...]
    fault: str
    message: str
    number: int
    """The fault strikes when so many of these have come."""

    @property
    def tree(self) -> OverlayTree:
        """The network."""
        return OverlayTree(self.links)

    def text(self) -> str:
        """What happens in it, for people."""
        return (
            f"{len(self.links) + 1} brokers ({', '.join(f'{a}-{b}' for a, b in self.links)}), {self.gone} "
            f"crashes; {len(self.readers)} readers, {len(self.publications)} publications; {self.fault} at "
            f"{self.message} {self.number} ({self.protocol}, seed {self.seed})"
        )


@dataclass(slots=True)
class Outcome:
    """What came of a scenario."""

    struck: str = ""
    """In which stage the link was where the fault struck; empty if the message never came."""
    in_flight: int = 0
    violations: list[Violation] = field(default_factory=list)
    said: Counter[str] = field(default_factory=Counter)
    """Messages of the protocol, by kind."""

    @property
    def broken(self) -> set[str]:
        """The properties that were broken."""
        return {each.property for each in self.violations}


def scenario(protocol: str, seed: int) -> Scenario:
    """The scenario of a seed: seeds take every message with every fault in turn."""
    chance = random.Random(f"fault scenario/{seed}")
    message, fault = MESSAGES[seed % len(MESSAGES)], FAULTS[seed // len(MESSAGES) % len(FAULTS)]
    names = "ABCDEFG"[: chance.randrange(5, 8)]
    while True:
        links = tuple((name, chance.choice(names[:place])) for place, name in enumerate(names) if place)
        tree = OverlayTree(links)
        inner = [name for name in names if len(tree.neighbours(name)) > 1]
        gone = chance.choice(inner)
        if len(tree.neighbours(gone)) > 2 or chance.random() < 0.3:
            break
    others = [name for name in names if name != gone]
    latencies = [1_000, 3_000, 10_000, 25_000]
    latency_us = {f"{a}-{b}": chance.choice(latencies) for a, b in links}
    latency_us |= {each: chance.choice(latencies) for each in sorted(tree.neighbours(gone))}
    around = sorted(tree.neighbours(gone))
    # Somebody everywhere around the broker that crashes; others anywhere.
    homes = [*around, *(chance.choice(others) for _ in range(3))]
    readers = tuple(
        Reader(home, tuple(chance.randrange(90) for _ in range(chance.randrange(1, 5)))) for home in homes
    )
    writers = (chance.choice(around), *(chance.choice(others) for _ in range(3)))
    publications = []
    for writer in range(len(writers)):
        at_us = CRASH_US - BEFORE_US
        while at_us < CRASH_US + FLOW_US:
            thick = CRASH_US <= at_us < CRASH_US + THICK_US
            at_us += chance.choice((500, 900, 1_400) if thick else (5_000, 12_000, 30_000))
            publications.append(Writing(at_us, writer, chance.randrange(100)))
    publications.sort(key=lambda each: (each.at_us, each.writer))
    return Scenario(
        seed,
        protocol,
        links,
        latency_us,
        gone,
        readers,
        writers,
        tuple(publications),
        fault,
        message,
        chance.randrange(1, 4) if message != "hello" else 1,
    )


class _Operator(Station):
    """Asks a neighbour for the name, until it is granted."""

    __slots__ = ("arguments", "granted")

    def __init__(self, name: str, broker: str, arguments: dict[str, str]) -> None:
        super().__init__(name, broker, on_message=_operator_heard)
        self.arguments = arguments
        self.granted = False

    def ask(self) -> None:
        self.say(Ask(self.next_request(), "grant", self.arguments))


def _operator_heard(station: Station, message: Message) -> None:
    if isinstance(station, _Operator):
        if isinstance(message, Done):
            station.granted = True
        elif isinstance(message, Failed) and message.code in ("lease", "up"):
            station.loop.schedule(station.loop.now_us + 50_000, lambda _: station.ask(), None)


class _Run:
    """One scenario while it happens."""

    def __init__(self, scenario: Scenario) -> None:
        self.scenario = scenario
        self.outcome = Outcome()
        self.rows = HeldRows()
        self.tree = scenario.tree
        self.around = sorted(self.tree.neighbours(scenario.gone))
        self.resumption, self.acknowledged = PROTOCOLS[scenario.protocol]
        self.ended_us = 0
        """When the last message of the protocol came before all links were open."""
        self.chance = random.Random(f"{scenario.seed}/fault")
        self.world = World(
            scenario.seed,
            checkers=False,
            trace=cast("TraceWriter", self.rows),
            latency_us=self._latency_us,
            link=LinkModel(1_000),
        )

    def _latency_us(self, source: str, target: str) -> int:
        known = self.scenario.latency_us
        if REPLICA in (source, target):
            return known.get(target if source == REPLICA else source, 1_000)
        return known.get(f"{source}-{target}") or known.get(f"{target}-{source}", 1_000)

    def run(self) -> Outcome:
        """Let it happen."""
        scenario, world = self.scenario, self.world
        for name in "ABCDEFG":
            dialled = tuple(other for each, other in scenario.links if each == name)
            if name == "A" or dialled:
                world.add(name, _broker(name, dialled), store=True, load=None)
        world.run_until(800_000)
        for number, reader in enumerate(scenario.readers):
            wanted = [(str(place), f"price > {above}") for place, above in enumerate(reader.above)]
            world.attach(Station(f"reader {number}", reader.broker, subscriptions=wanted))
        for number, home in enumerate(scenario.writers):
            station = Station(
                f"writer {number}",
                home,
                publications=self._publications(number),
                advertise=["price >= 0"],
                acknowledged=self.acknowledged,
            )
            world.attach(station)
        operators = []
        for each in self.around:
            granted = {
                "name": scenario.gone,
                "address": REPLICA,
                "epoch": "1",
                "key": granted_key(KEY, each),
            }
            operators.append(_Operator(f"operator at {each}", each, granted))
            world.attach(operators[-1])
        for each in self.around:
            self._listen(world.host(each))
        world.run_until(CRASH_US)
        world.crash(scenario.gone)
        world.run_for(us=THICK_US)  # until everybody has heard of it
        for operator in operators:
            operator.ask()
        while not all(operator.granted for operator in operators):
            world.run_for(us=1_000)
            if world.now_us > CRASH_US + 20_000_000:
                raise InvariantViolated("the name was not granted", (scenario.text(),))
        self._listen(world.add(REPLICA, self._replica(), store=True, load=None))
        world.run_until(max(CRASH_US + FLOW_US, world.now_us) + AFTER_US)
        self.outcome.in_flight = self._in_flight()
        self.outcome.violations = violations(self.rows, self._attributes(), self._path)
        return self.outcome

    def _path(self, source: str, target: str) -> list[str]:
        """The machines on the way: the replica is where the broker was that it replaces."""
        path = list(self.tree.path(source, target))
        return [*path, REPLICA] if self.scenario.gone in path else path

    def _publications(self, writer: int) -> Iterator[tuple[int, dict[str, Any]]]:
        for each in self.scenario.publications:
            if each.writer == writer:
                yield each.at_us, {"price": each.price}

    def _attributes(self) -> dict[tuple[str, int], dict[str, Any]]:
        numbers: Counter[int] = Counter()
        found = {}
        for each in self.scenario.publications:
            numbers[each.writer] += 1
            found[f"writer {each.writer}", numbers[each.writer]] = {"price": each.price}
        return found

    def _in_flight(self) -> int:
        """Publications that were published between the crash and the last message of the protocol."""
        return sum(CRASH_US <= row.at_us <= self.ended_us for row in self.rows.published)

    def _replica(self) -> Callable[[Birth], Machine]:
        around = tuple(self.around)
        standing = KeepStanding(
            self.scenario.gone, 1, KEY, tuple((each, each) for each in around), self.resumption
        )
        settings = BrokerSettings(
            broker_id=self.scenario.gone, address=REPLICA, neighbours=around, expected=around
        )

        def make(birth: Birth) -> Machine:
            return BrokerCore(
                settings, incarnation=birth.incarnation, seed=birth.seed, store=birth.store, standing=standing
            )

        return make

    # The fault.

    def _listen(self, host: Host) -> None:
        """Hear what comes to a host, and strike when it is time."""
        usual = host.report

        def report(stimulus: Any) -> None:
            heard = self._heard(host, stimulus) if isinstance(stimulus, Received) else ""
            usual(stimulus)
            if heard:
                self._strike(host, heard)

        host.report = report

    def _heard(self, host: Host, stimulus: Received) -> str:
        """The neighbour by which the fault is to strike now, if it is."""
        pipe = host.pipes.get(stimulus.connection)
        if pipe is None or REPLICA not in (host.name, pipe.target.name):
            return ""
        neighbour = pipe.target.name if host.name == REPLICA else host.name
        if neighbour not in self.around or self._open():
            return ""
        scenario, said = self.scenario, self.outcome.said
        for frame in stimulus.frames:
            if isinstance(frame.body, PublicationBatch):
                continue
            kind = kind_of(frame.body)
            said[kind] += 1
            self.ended_us = self.world.now_us
            if kind == scenario.message and said[kind] == scenario.number:
                return neighbour
        return ""

    def _open(self) -> bool:
        """Whether all links of the replica are open."""
        machine = self.world.host(REPLICA).machine if REPLICA in self.world.endpoints else None
        if not isinstance(machine, BrokerCore):
            return False
        if machine.ready:
            links = machine.snapshot().links
            return len(links) == len(self.around) and all(link.stage == "open" for link in links)
        return False

    def _strike(self, host: Host, neighbour: str) -> None:
        if self.outcome.struck:
            return
        self.outcome.struck = self._stage(host, neighbour)
        world, fault = self.world, self.scenario.fault
        after_us = self.chance.choice((40_000, 150_000, 400_000))
        if fault == "delay":
            undo = world.hold(REPLICA, neighbour)
            world.at(world.now_us + after_us, undo)
        elif fault == "cut":
            world.at(world.now_us, lambda: world.lose(REPLICA, neighbour))
        elif fault == "freeze":
            world.freeze(self.chance.choice((REPLICA, neighbour)), after_us)
        else:
            name = REPLICA if fault == "replica crashes" else neighbour
            world.at(world.now_us, lambda: world.crash(name))
            world.at(world.now_us + after_us, lambda: world.restart(name))

    def _stage(self, host: Host, neighbour: str) -> str:
        """In which stage of its life the link is at the host that has heard the message."""
        other = neighbour if host.name == REPLICA else self.scenario.gone
        machine = host.machine
        links = machine.snapshot().links if isinstance(machine, BrokerCore) else ()
        return next((link.stage for link in links if link.name == other), "greeting")


def _broker(name: str, neighbours: Sequence[str]) -> Callable[[Birth], Machine]:
    settings = BrokerSettings(broker_id=name, address=name, neighbours=tuple(neighbours))

    def make(birth: Birth) -> Machine:
        return BrokerCore(settings, incarnation=birth.incarnation, seed=birth.seed, store=birth.store)

    return make


def run(scenario: Scenario) -> Outcome:
    """What comes of a scenario."""
    return _Run(scenario).run()


# Smaller ones.


def smallest(scenario: Scenario, property: str, *, runs_max: int = 120) -> Scenario:
    """Leave out readers and publications as long as the property stays broken."""
    runs = 0

    def broken(candidate: Scenario) -> bool:
        nonlocal runs
        runs += 1
        return runs <= runs_max and property in run(candidate).broken

    violation = next(each for each in run(scenario).violations if each.property == property)
    kept = scenario.readers[int(violation.subscriber.rpartition(" ")[2])]
    alone = msgspec.structs.replace(scenario, readers=(kept,))
    if broken(alone):
        scenario = alone
    else:
        # Order is a matter between two of them; the others follow the one that is kept.
        for other in scenario.readers:
            pair = msgspec.structs.replace(scenario, readers=(kept, other))
            if other is not kept and broken(pair):
                scenario = pair
                break
    # Those that were lost or displaced may do without the others.
    writer = int(violation.publisher.rpartition(" ")[2])
    own = [each for each in scenario.publications if each.writer == writer]
    named = {violation.sequence, violation.before}
    few = [each for number, each in enumerate(own, 1) if number in named]
    for publications in (few, own[violation.sequence - 1 :], own):
        candidate = msgspec.structs.replace(scenario, publications=tuple(publications))
        if len(publications) < len(scenario.publications) and broken(candidate):
            scenario = candidate
            break
    size = len(scenario.publications) // 2
    while size and runs < runs_max:
        place = 0
        while place < len(scenario.publications):
            fewer = scenario.publications[:place] + scenario.publications[place + size :]
            candidate = msgspec.structs.replace(scenario, publications=fewer)
            if fewer and broken(candidate):
                scenario = candidate
            else:
                place += size
        size //= 2
    return scenario
