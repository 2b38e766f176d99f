"""How many broker messages per second of CPU does the simulator handle, and what does a broker weigh?"""

from __future__ import annotations

import random
import statistics
from contextlib import ExitStack, closing
from dataclasses import asdict, dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from time import process_time
from typing import TYPE_CHECKING, Any, TypeAlias

from braid.broker.core import BrokerCore
from braid.broker.settings import BrokerSettings
from braid.errors import LocalProtocolError
from braid.matching import SharedMatching
from braid.protocol import ChannelSettings, PublicationBatch, encode_record
from braid.sim import LinkModel, Station, World
from braid.sim.topologies.trees import random_tree
from braid.trace.writer import TraceWriter
from braid_bench.environment import describe_environment, on_one_core
from braid_bench.timing import settled_memory, significant, traced_memory

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from braid.protocol.effects import Effect
    from braid.protocol.inputs import Input
    from braid.sim import Birth

__all__ = ["SimulatorBenchSettings", "bench_simulator", "simulator_settings_for"]

_METHOD = (
    "One process on one core, CPU time. A tree of brokers with at most 3 links each and links of 1 ms; "
    "publishers and subscribers are stations beside their brokers. Every publication is a frame of its own "
    "and has a class; each class is wanted at so many of the subscriber brokers, by one filter for each. A "
    "message is one publication that crosses one link between brokers: it is received, matched, routed, "
    "sent on or delivered, and that is what the goals refer to. Acknowledgements and other frames that "
    "arrive at brokers are counted apart, and their time is part of the time. Acknowledgements wait up to a "
    "second for company, or for 64 frames. Publications are made, encoded and matched ahead in chunks within "
    "the time. Every delivery is counted, and a wrong count ends the run. The time until all tables are "
    "complete is not part of it; the median of the windows counts. The cases take turns, a window each, and "
    "what a case costs is the median of its ratios to everything off in the same round. Memory is what stays "
    "allocated, per machine: a peer that does nothing, a broker with its links, and a broker with routing "
    "tables and its share of the stations."
)
_ACKNOWLEDGE_DELAY_US = 1_000_000
_WARM_UP_US = 8_000_000
# Until everything that was published has arrived everywhere.
_DRAIN_US = 1_000_000
# Publications that one station has matched ahead.
_CHUNK = 256
_BODY = bytes(100)
_GOALS = {"the least": 60_000, "the goal": 150_000}

_Options: TypeAlias = "dict[str, bool]"
_PLAIN = "everything off"
_CASES: dict[str, _Options] = {
    _PLAIN: {},
    "checkers": {"checkers": True},
    "trace": {"trace": True},
    "codec": {"codec": True},
    "each broker matches for itself": {"own": True},
    "checkers, trace and codec": {"checkers": True, "trace": True, "codec": True},
}


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulatorBenchSettings:
    """What is simulated, and how often."""

    brokers: int = 120
    subscribers: int = 60
    publishers: int = 20
    classes: int = 60
    matches: tuple[int, ...] = (10, 29)
    """Subscriber brokers that want a publication, one workload for each: as DT1 and DT2 of the multipath
    paper."""
    publications: int = 2_000
    """In each window."""
    windows: int = 5
    gap_us: int = 500
    """Between two publications."""
    peers: int = 2_000
    """Trivial machines whose memory is measured."""
    seed: int = 1


def simulator_settings_for(*, quick: bool = False, seed: int = 1) -> SimulatorBenchSettings:
    """Settings from what a person typed; `quick` fits into a minute."""
    if quick:
        return SimulatorBenchSettings(matches=(10,), publications=300, windows=3, peers=500, seed=seed)
    return SimulatorBenchSettings(seed=seed)


def bench_simulator(
    settings: SimulatorBenchSettings, progress: Callable[[str], None] = lambda title: None
) -> dict[str, Any]:
    """Measure every case; the report is plain data, ready for JSON."""
    cells: list[dict[str, Any]] = []
    with on_one_core() as alone:
        for matches in settings.matches:
            cells += _measured(settings, matches, progress)
        progress("memory")
        memory = _memory(settings)
    return {
        "benchmark": "simulator",
        "method": _METHOD,
        "environment": {**describe_environment(), "pinned_to_one_core": alone},
        "settings": {**asdict(settings), "acknowledge_delay_us": _ACKNOWLEDGE_DELAY_US},
        "goals": _goals(cells),
        "cells": cells,
        "memory": memory,
    }


def _goals(cells: list[dict[str, Any]]) -> list[dict[str, Any]]:
    plain = [cell for cell in cells if cell["case"] == _PLAIN]
    return [
        {
            "goal": f"publications crossing links per CPU second, {cell['matches']} brokers want it: {what}",
            "target": f"at least {target:,}",
            "measured": cell["messages_per_second"]["median"],
            "met": cell["messages_per_second"]["median"] >= target,
        }
        for cell in plain
        for what, target in _GOALS.items()
    ]


class _Simulation:
    """One network with its clients, ready to publish."""

    def __init__(self, settings: SimulatorBenchSettings, matches: int, options: _Options) -> None:
        self.settings = settings
        self._stack = ExitStack()
        trace = None
        if options.get("trace"):
            directory = self._stack.enter_context(TemporaryDirectory(prefix="braid-bench-"))
            trace = self._stack.enter_context(TraceWriter(Path(directory), "bench"))
        self.shared = None if options.get("own") else SharedMatching()
        self.world = World(
            settings.seed,
            trace=trace,
            checkers=options.get("checkers", False),
            codec=options.get("codec", False),
            link=LinkModel(latency_us=1000),
        )
        self._chance = random.Random(f"{settings.seed}/simulator bench/{matches}")
        topology = random_tree(settings.brokers, 3, settings.seed)
        dials: dict[str, list[str]] = {name: [] for name in topology.brokers}
        for near, far in topology.links:
            dials[far].append(near)
        for name, neighbours in dials.items():
            self.world.add(name, self._maker(name, tuple(neighbours)))
        names = list(topology.brokers)
        homes = self._chance.sample(names, settings.subscribers)
        self._wanting = [self._chance.sample(homes, matches) for _ in range(settings.classes)]
        self._publishers = self._chance.sample(names, settings.publishers)

    def _maker(self, name: str, neighbours: tuple[str, ...]) -> Callable[[Birth], BrokerCore]:
        channel = ChannelSettings(acknowledge_delay_us=_ACKNOWLEDGE_DELAY_US)
        choices = BrokerSettings(
            broker_id=name, address=name, neighbours=neighbours, link=channel, client=channel
        )

        def make(birth: Birth) -> BrokerCore:
            return BrokerCore(
                choices,
                incarnation=birth.incarnation,
                seed=birth.seed,
                store=birth.store,
                matcher=self.shared.view(name) if self.shared is not None else None,
            )

        return make

    def warm_up(self) -> None:
        """Let the brokers meet, and subscriptions and advertisements travel."""
        self.world.run_for(us=_WARM_UP_US)
        wanted: dict[str, list[int]] = {}
        for number, homes in enumerate(self._wanting):
            for home in homes:
                wanted.setdefault(home, []).append(number)
        for home, classes in sorted(wanted.items()):
            texts = [(f"k{number}", f"class = {number}") for number in classes]
            self.world.attach(Station(f"subscriber.{home}", home, subscriptions=texts, **_patient()))
        self.world.run_for(us=_WARM_UP_US)
        for home in self._publishers:
            self.world.attach(Station(f"advertiser.{home}", home, advertise=["TRUE"], **_patient()))
        self.world.run_for(us=_WARM_UP_US)

    def window(self, number: int) -> dict[str, float]:
        """Publish a window's worth; what came of it, and the CPU seconds it took."""
        settings = self.settings
        each = settings.publications // settings.publishers
        start_us = self.world.now_us + 1000
        for place, home in enumerate(self._publishers):
            first_us = start_us + place * settings.gap_us
            publications = self._publications(f"{number}/{home}", first_us, each)
            name = f"publisher{number}.{home}"
            self.world.attach(Station(name, home, publications=publications, **_patient()))
        length_us = each * settings.publishers * settings.gap_us
        before = self._counted()
        with settled_memory():
            begin = process_time()
            self.world.run_for(us=length_us + _DRAIN_US)
            seconds = process_time() - begin
        after = self._counted()
        counted = {name: after[name] - before[name] for name in after}
        if counted["delivered"] != each * settings.publishers * len(self._wanting[0]):
            raise LocalProtocolError(f"{counted['delivered']:,} publications were delivered, which is wrong")
        return {**counted, "seconds": seconds}

    def _publications(self, purpose: str, first_us: int, count: int) -> Iterator[tuple[int, bytes]]:
        chance = random.Random(f"{self.settings.seed}/publications/{purpose}")
        step_us = self.settings.gap_us * self.settings.publishers
        for start in range(0, count, _CHUNK):
            times = [first_us + row * step_us for row in range(start, min(start + _CHUNK, count))]
            records = [
                encode_record(
                    {"class": chance.randrange(self.settings.classes), "price": chance.random()}, at_us, _BODY
                )
                for at_us in times
            ]
            if self.shared is not None:
                # The station's own batches are recognised by their records.
                self.shared.prepare([PublicationBatch.of(purpose, range(1, len(records) + 1), records)])
            yield from zip(times, records, strict=True)

    def _counted(self) -> dict[str, int]:
        statistics_now = self.world.statistics()
        counters = [
            self.world.machine(name).statistics()["counters"]
            for name in sorted(self.world.endpoints)
            if "." not in name
        ]
        received = sum(each["received"] for each in counters)
        published = sum(each["published"] for each in counters)
        return {
            "messages": received - published,
            "other_frames": statistics_now["frames"] - received,
            "published": published,
            "delivered": statistics_now["delivered"],
        }

    def close(self) -> None:
        """Let go of the trace."""
        self.world.close()
        self._stack.close()


def _patient() -> dict[str, Any]:
    return {"acknowledge_delay_us": _ACKNOWLEDGE_DELAY_US}


def _measured(
    settings: SimulatorBenchSettings, matches: int, progress: Callable[[str], None]
) -> list[dict[str, Any]]:
    """All cases of one workload, in rounds of one window for each."""
    with ExitStack() as stack:
        simulations: dict[str, _Simulation] = {}
        for name, options in _CASES.items():
            progress(f"{matches} brokers want a publication, {name}: making the network")
            simulations[name] = stack.enter_context(closing(_Simulation(settings, matches, options)))
            simulations[name].warm_up()
        rounds = []
        for number in range(settings.windows):
            progress(f"{matches} brokers want a publication, round {number + 1} of {settings.windows}")
            rounds.append({name: simulation.window(number) for name, simulation in simulations.items()})
    return [
        {"matches": matches, "case": name, **_summary([each[name] for each in rounds], rounds)}
        for name in _CASES
    ]


def _summary(windows: list[dict[str, float]], rounds: list[dict[str, dict[str, float]]]) -> dict[str, Any]:
    rates = [window["messages"] / window["seconds"] for window in windows]
    plain = [each[_PLAIN]["messages"] / each[_PLAIN]["seconds"] for each in rounds]
    totals = {name: sum(window[name] for window in windows) for name in windows[0]}
    return {
        "messages_per_second": {
            "median": significant(statistics.median(rates)),
            "best": significant(max(rates)),
            "worst": significant(min(rates)),
        },
        "cpu_relative_to_everything_off": significant(
            statistics.median(fastest / rate for fastest, rate in zip(plain, rates, strict=True))
        ),
        "messages": totals["messages"],
        "other_frames_at_brokers": totals["other_frames"],
        "published": totals["published"],
        "delivered": totals["delivered"],
        "messages_per_publication": significant(totals["messages"] / totals["published"]),
    }


class _Idler:
    """A machine that does nothing: what is left is what the simulator needs for one."""

    __slots__ = ()

    def handle(self, stimulus: Input, now_us: int) -> list[Effect]:
        """Nothing is to be done."""
        return []

    def next_deadline_us(self) -> int | None:
        """Nothing is due."""
        return None


def _memory(settings: SimulatorBenchSettings) -> dict[str, float]:
    """Bytes that are kept per machine, NumPy's arrays included."""
    with traced_memory() as allocated:
        before = allocated()
        world = World(settings.seed, checkers=False)
        for number in range(settings.peers):
            world.add(f"peer{number}", lambda birth: _Idler(), load=None)
        world.run_for(us=1000)
        peer_bytes = (allocated() - before) / settings.peers
    with traced_memory() as allocated:
        before = allocated()
        simulation = _Simulation(settings, settings.matches[0], {})
        simulation.world.run_for(us=_WARM_UP_US)
        linked_bytes = (allocated() - before) / settings.brokers
        simulation.warm_up()
        full_bytes = (allocated() - before) / settings.brokers
        simulation.close()
    return {
        "bytes_per_trivial_peer": significant(peer_bytes),
        "bytes_per_linked_broker": significant(linked_bytes),
        "bytes_per_broker_with_tables_and_stations": significant(full_bytes),
    }
