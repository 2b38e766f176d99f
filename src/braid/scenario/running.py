"""How does one network carry one workload?

`simulate` puts brokers, links, clients and faults together, lets virtual time pass, and says what came of it:

    0 ............ brokers start and link up
    settled ...... clients connect and subscribe
    start ........ publishing begins: time 0 of the workload and of the plan of faults
    start + publish_us ... it ends
    ... + drain_us ....... what is under way arrives; the run ends

Brokers announce from the start that anything may be published (`flooding`), so that subscriptions reach all
of them and no publisher has to advertise. An acknowledgement waits up to a second for company: with little
traffic on a link every publication would otherwise be answered by a message of its own, which doubles what
has to be simulated and changes nothing that is measured.
"""

from __future__ import annotations

import time
from collections import Counter
from dataclasses import dataclass, field, fields, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from braid.adaptation import SoftLinkSettings
from braid.adaptation.topology import TopologySettings
from braid.broker.core import BrokerCore
from braid.broker.settings import STRATEGIES, BrokerSettings
from braid.errors import ConfigurationError
from braid.matching import SharedMatching
from braid.plugins import load_plugins
from braid.protocol import PublicationBatch
from braid.scenario.centring import Centring
from braid.scenario.faults import Fault, schedule_faults
from braid.scenario.tally import Tally, Untraced
from braid.scenario.workload import (
    AnyWorkload,
    ClientKey,
    PublicationFeed,
    SubscriptionRow,
    publication_plan,
    subscription_rows,
)
from braid.sim import LinkModel, NodeModel, Station, World
from braid.sim.topologies import Topology, topology

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from braid.matching import Matcher
    from braid.sim import Birth

__all__ = ["OWN_SETTINGS", "STRATEGIES", "SimulationSettings", "SimulationSummary", "simulate"]

OWN_SETTINGS: Final = frozenset({"broker_id", "address", "neighbours", "link_token"})
"""Settings of brokers that follow from the topology and cannot be chosen."""

# Brokers have so long to link up, and in addition so many times the longest latency of a link.
SETTLE_US: Final = 1_000_000
SETTLE_LATENCIES: Final = 10
# See the module.
ACKNOWLEDGE_DELAY_US: Final = 1_000_000
# Refusals that are told word by word.
REFUSED_SHOWN_MAX: Final = 5
# Progress is told so many times a run.
PROGRESS_STEPS: Final = 100


@dataclass(frozen=True, kw_only=True)
class SimulationSettings:
    """Everything about one run. The same settings give the same run, to the last byte of its trace."""

    topology: str | Topology
    """The network: one of the registry's names, or a value."""
    workload: str | Path | AnyWorkload
    """Who asks for what and who says what: a folder that holds a workload, or a workload."""
    strategy: str = "S0"
    """How publications are forwarded; one of `STRATEGIES`."""
    seed: int = 1
    """For whatever is left to chance: a network by name, the pauses of brokers, losses."""
    latency_us: int | None = None
    """Between any two brokers; None: as the topology has it."""
    warm_up_us: int = 10_000_000
    """From the start of clients to the start of publishing: subscriptions must have spread by then."""
    publish_us: int | None = None
    """How long publishing goes on; None: until the workload has nothing more."""
    drain_us: int = 10_000_000
    """How long the run goes on after that."""
    checkers: bool = True
    """Watch whether everybody gets what was promised. Costs time and memory for each delivery."""
    shared_matching: bool = True
    """Match each publication once for all brokers. The result is the same; False costs time."""
    codec: bool = False
    """Send every message through the wire format. The result is the same; True costs time."""
    brokers: Mapping[str, Any] = field(default_factory=dict)
    """Settings of all brokers by name; `link`, `client`, `soft_links` and `topology` are mappings of their
    settings."""
    own_brokers: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """The same for single brokers."""
    stores: frozenset[str] = frozenset()
    """Brokers with a store that outlives a crash."""
    link: LinkModel = field(default_factory=LinkModel)
    """Bandwidth and loss of links; latencies come from the topology."""
    node: NodeModel = field(default_factory=NodeModel)
    """What brokers run on."""
    own_nodes: Mapping[str, NodeModel] = field(default_factory=dict)
    """The same for single brokers."""
    faults: tuple[Fault, ...] = ()
    """What goes wrong, in times of the workload."""
    centre_at_us: int | None = None
    """When brokers that match often begin to move toward the middle of the tree by delta-moves, in the time
    of the workload; None: never."""
    centre_degree_max: int = 3
    """How many links of the tree a broker has at most when they have."""
    sample_us: int = 1_000_000
    """How often links and brokers are sampled."""

    def __post_init__(self) -> None:
        load_plugins(forwarding_strategies=self.strategy)
        if self.strategy not in STRATEGIES:
            raise ConfigurationError(f"the strategy is one of {', '.join(STRATEGIES)}, not {self.strategy!r}")
        for name in ("warm_up_us", "publish_us", "drain_us"):
            value = getattr(self, name)
            if value is not None and value < 0:
                raise ConfigurationError(f"{name} is at least 0, not {value}")


@dataclass(frozen=True, kw_only=True)
class SimulationSummary:
    """What came of a run."""

    topology: str
    workload: str
    strategy: str
    seed: int
    brokers: int
    clients: int
    subscriptions: int
    publications: int
    deliveries: int
    """To clients; two of them at one broker count twice."""
    hops: int
    """Publications that crossed a link between brokers, each link counted."""
    matched_hops: int
    """Those of them that brought a publication to a broker with a client that wants it."""
    messages: Mapping[str, int]
    """What crossed links between brokers, by kind."""
    queue_bytes_max: int
    """The most that any broker kept for others, at the end of any second."""
    soft_links: Mapping[str, tuple[str, ...]]
    """The soft links that each broker had at the end; brokers without one are left out."""
    duplicates: int
    """Publications that came to a broker once more and were not passed on."""
    faults: int
    moved: int
    """Brokers that were moved toward the middle."""
    moved_us: int | None
    """When the last of them was, in time of the workload; None if not all of them were."""
    start_us: int
    """When publishing started, in the time of the trace."""
    virtual_s: float
    cpu_s: float
    occurrences: int
    violations: tuple[str, ...]
    """What the checkers found; empty for a good run, and for one that nobody checked."""
    warnings: tuple[str, ...]
    """What makes the figures doubtful, such as a warm-up that was too short."""

    @property
    def system_yield(self) -> float | None:
        """The share of hops that led to a broker with a client that wants the publication."""
        return self.matched_hops / self.hops if self.hops else None

    @property
    def pure_forwards(self) -> int:
        """Hops that led to a broker that only passes on."""
        return self.hops - self.matched_hops


def simulate(
    settings: SimulationSettings,
    trace_dir: Path | None = None,
    progress: Callable[[float], None] | None = None,
    *,
    repeat_command: str = "",
) -> SimulationSummary:
    """Run one simulation.

    Args:
        settings: what to run.
        trace_dir: where its trace is written; None for no trace.
        progress: told from time to time how far it is, from 0 to 1.
        repeat_command: what to type to run the same again; checkers name it when something is wrong.

    Raises:
        ConfigurationError: the settings do not fit together; it says which.
    """
    load_plugins(forwarding_strategies=settings.strategy)  # the settings may come from another process
    with Tally(trace_dir) if trace_dir is not None else Untraced() as trace:
        return _Run(settings, trace, repeat_command).go(progress)


class _Run:
    """One simulation, from its settings to its summary."""

    def __init__(self, settings: SimulationSettings, trace: Tally, repeat_command: str) -> None:
        self.settings = settings
        self.trace = trace
        self.network = network = _network(settings)
        self.work = _opened(settings.workload)
        self.subscriptions = list(subscription_rows(self.work))
        counts, last_us = publication_plan(self.work, settings.publish_us)
        longest_us = max((network.latency_us(*ends) for ends in network.links), default=0)
        self.settled_us = SETTLE_US + SETTLE_LATENCIES * longest_us
        self.start_us = self.settled_us + settings.warm_up_us
        self.publish_us = settings.publish_us if settings.publish_us is not None else last_us
        self.clients = _client_names(self.subscriptions, counts, network)
        self.world = World(
            settings.seed,
            trace=trace,
            checkers=settings.checkers,
            codec=settings.codec,
            link=settings.link,
            latency_us=network.latency_us,
            expected=not isinstance(trace, Untraced),
            sample_us=settings.sample_us,
        )
        self.world.repeat_command = repeat_command
        self.shared = SharedMatching() if settings.shared_matching else None
        self.feed = PublicationFeed(
            self.work, counts, self.start_us, self._prepare if self.shared is not None else None
        )
        self.stations: dict[ClientKey, Station] = {}
        self.centring = Centring(
            self.world,
            network,
            settings.centre_degree_max,
            lambda: {each.broker: float(each.delivered) for each in self.stations.values()},
        )
        self.clients_late = self.brokers_late = 0
        self.matched_hops = self.duplicates = 0
        self.soft_links: dict[str, tuple[str, ...]] = {}
        self._seen: dict[str, set[tuple[str, int]]] = {}

    def go(self, progress: Callable[[float], None] | None) -> SimulationSummary:
        settings, world = self.settings, self.world
        begun_s = time.process_time()
        self._add_brokers()
        world.run_until(self.settled_us)
        self._attach_stations()
        faults = schedule_faults(world, settings.faults, self.start_us)
        world.at(self.start_us - 1, self._before_publishing)
        if settings.centre_at_us is not None:
            world.at(self.start_us + settings.centre_at_us, self.centring.begin)
        end_us = self.start_us + self.publish_us + settings.drain_us
        for step in range(1, PROGRESS_STEPS + 1):
            world.run_until(self.settled_us + (end_us - self.settled_us) * step // PROGRESS_STEPS)
            if progress is not None:
                progress(step / PROGRESS_STEPS)
        self._at_the_end()
        world.close()
        return self._summary(faults, time.process_time() - begun_s)

    # Brokers.

    def _add_brokers(self) -> None:
        settings = self.settings
        for name in [*settings.own_brokers, *settings.own_nodes, *settings.stores]:
            if name not in self.network.neighbours:
                raise ConfigurationError(f"settings for {name!r}, which is no broker of {self.network.name}")
        for name in self.network.brokers:
            own = _broker_settings(settings, self.network, name)
            if own.strategy != "S0":
                # On several ways publications may overtake each other, unless their publisher forbids it.
                self.world.checkers.ordered = False
            self.world.add(
                name,
                self._factory(own),
                node=settings.own_nodes.get(name, settings.node),
                store=name in settings.stores,
                queue_bytes_max=_queue_bytes_max(own),
            )

    def _factory(self, settings: BrokerSettings) -> Callable[[Birth], BrokerCore]:
        shared = self.shared

        def born(birth: Birth) -> BrokerCore:
            matcher: Matcher | None = shared.view(settings.broker_id) if shared is not None else None
            return BrokerCore(
                settings, incarnation=birth.incarnation, seed=birth.seed, store=birth.store, matcher=matcher
            )

        return born

    def _prepare(self, records: list[bytes]) -> None:
        """Match many publications at once. The shared answers are found again by the bytes of a record."""
        if self.shared is not None and records:
            self.shared.prepare([PublicationBatch.of("-", range(1, len(records) + 1), records)])

    # Clients.

    def _attach_stations(self) -> None:
        start_us = self.start_us
        first: dict[ClientKey, dict[str, str]] = {client: {} for client in self.clients}
        later: list[SubscriptionRow] = []
        for row in self.subscriptions:
            if row.at_us > 0:
                later.append(row)
            else:
                first[row.broker, row.client][row.key] = row.filter
        at_broker = Counter(broker for broker, _ in self.clients)
        for client, name in self.clients.items():
            broker = client[0]
            self.stations[client] = station = Station(
                name,
                broker,
                subscriptions=list(first[client].items()),
                publications=self.feed.of(client),
                acknowledge_delay_us=ACKNOWLEDGE_DELAY_US,
                on_delivery=self._count_one if at_broker[broker] == 1 else self._count_several,
            )
            self.world.attach(station)
        for row in later:
            station = self.stations[row.broker, row.client]
            self.world.at(start_us + row.at_us, partial(station.subscribe, row.key, row.filter))
        for row in self.subscriptions:
            if row.until_us is not None:
                station = self.stations[row.broker, row.client]
                self.world.at(start_us + row.until_us, partial(station.unsubscribe, row.key))

    def _count_one(self, station: Station, batch: PublicationBatch) -> None:
        if batch.hops:
            self.matched_hops += len(batch)

    def _count_several(self, station: Station, batch: PublicationBatch) -> None:
        """Of several clients at one broker only the first counts: the publication came once."""
        if batch.hops:
            seen = self._seen.setdefault(station.broker, set())
            before = len(seen)
            seen.update((batch.publisher, sequence) for sequence in batch.sequences.tolist())
            self.matched_hops += len(seen) - before

    def _before_publishing(self) -> None:
        for station in self.stations.values():
            self.clients_late += bool(station.asking or not station.connected)
        for name, linked in self.network.neighbours.items():
            machine = self.world.host(name).machine
            if isinstance(machine, BrokerCore):
                state = machine.statistics()
                self.brokers_late += not state["ready"] or state["links_up"] < len(linked)
        self.feed.prepare_waiting()

    # The end.

    def _at_the_end(self) -> None:
        for name in self.network.brokers:
            machine = self.world.host(name).machine
            if isinstance(machine, BrokerCore):
                state = machine.statistics()
                self.duplicates += state["counters"]["duplicates"]
                if state["mesh"]["soft_links"]:
                    self.soft_links[name] = tuple(state["mesh"]["soft_links"])

    def _summary(self, faults: int, cpu_s: float) -> SimulationSummary:
        settings, world = self.settings, self.world
        statistics = world.statistics()
        messages = dict(sorted(self.trace.messages.items()))
        return SimulationSummary(
            topology=self.network.name,
            workload=self.work.name,
            strategy=settings.strategy,
            seed=settings.seed,
            brokers=len(self.network.brokers),
            clients=len(self.stations),
            subscriptions=len(self.subscriptions),
            publications=statistics["published"],
            deliveries=statistics["delivered"],
            hops=messages.get("publication", 0),
            matched_hops=self.matched_hops,
            messages=messages,
            queue_bytes_max=self.trace.queue_bytes_max,
            soft_links=self.soft_links,
            duplicates=self.duplicates,
            faults=faults,
            moved=self.centring.moved,
            moved_us=done_us - self.start_us if (done_us := self.centring.done_us) is not None else None,
            start_us=self.start_us,
            virtual_s=world.now_us / 1e6,
            cpu_s=round(cpu_s, 3),
            occurrences=statistics["occurrences"],
            violations=tuple(world.checkers.report()),
            warnings=tuple(self._warnings()),
        )

    def _warnings(self) -> Iterator[str]:
        for late, count, what in (
            (self.brokers_late, len(self.network.brokers), "brokers were not linked"),
            (self.clients_late, len(self.stations), "clients were not connected and subscribed"),
        ):
            if late:
                yield f"{late:,} of {count:,} {what} when publishing started: a longer warm-up is needed"
        for reason in self.centring.refusals:
            yield f"a broker was not moved toward the middle: {reason}"
        refused = [(station, each) for station in self.stations.values() for each in station.refused]
        for station, each in refused[:REFUSED_SHOWN_MAX]:
            yield f"{station.broker} refused something to {station.name}: {each.reason}"
        if len(refused) > REFUSED_SHOWN_MAX:
            yield f"and {len(refused) - REFUSED_SHOWN_MAX:,} more refusals"


def _network(settings: SimulationSettings) -> Topology:
    made = settings.topology
    network = topology(made, settings.seed) if isinstance(made, str) else made
    return network if settings.latency_us is None else network.with_flat_latency(settings.latency_us)


def _opened(workload: str | Path | AnyWorkload) -> AnyWorkload:
    if isinstance(workload, str | Path):
        from braid.workloads import load

        return load(workload)
    return workload


def _client_names(
    subscriptions: Iterable[SubscriptionRow], counts: Iterable[ClientKey], network: Topology
) -> dict[ClientKey, str]:
    """What each client is called, in order: its own name, with its broker's where two share it.

    A publisher is known by its name in the whole network, so two must not have the same.
    """
    clients = sorted({*((row.broker, row.client) for row in subscriptions), *counts})
    for broker, client in clients:
        if broker not in network.neighbours:
            raise ConfigurationError(
                f"the workload has a client {client!r} at {broker!r}, which is no broker of {network.name} "
                f"({len(network.brokers)} brokers, {network.brokers[0]} to {network.brokers[-1]})"
            )
    sharing = Counter(client for _, client in clients)
    # A broker's name is taken too: both are ends of connections.
    return {
        (broker, client): client
        if sharing[client] == 1 and client not in network.neighbours
        else f"{client}@{broker}"
        for broker, client in clients
    }


def _broker_settings(settings: SimulationSettings, network: Topology, name: str) -> BrokerSettings:
    chosen = {**settings.brokers, **settings.own_brokers.get(name, {})}
    groups = {
        group: {**settings.brokers.get(group, {}), **settings.own_brokers.get(name, {}).get(group, {})}
        for group in ("link", "client", "soft_links", "topology")
    }
    for key in sorted(OWN_SETTINGS & chosen.keys()):
        raise ConfigurationError(f"{key!r} of a broker follows from the topology and cannot be chosen")
    known = {each.name for each in fields(BrokerSettings)}
    for key in chosen:
        if key not in known:
            raise ConfigurationError(f"a broker has no setting {key!r}; it has {', '.join(sorted(known))}")
    for group, kind in (("soft_links", SoftLinkSettings), ("topology", TopologySettings)):
        own = {each.name for each in fields(kind)}
        for key in groups[group]:
            if key not in own:
                raise ConfigurationError(f"{group} has no setting {key!r}; it has {', '.join(sorted(own))}")
    place = network.brokers.index(name)
    made = BrokerSettings(
        **{
            "flooding": True,
            "strategy": settings.strategy,
            # Longer than any path, as far as the protocol allows.
            "hops_max": min(255, max(64, len(network.brokers))),
            **{key: value for key, value in chosen.items() if key not in groups},
            "soft_links": SoftLinkSettings(**groups["soft_links"]),
            "topology": TopologySettings(**groups["topology"]),
        },
        broker_id=name,
        address=name,
        # Of two neighbours the later one dials.
        neighbours=tuple(
            neighbour for neighbour in network.neighbours[name] if network.brokers.index(neighbour) < place
        ),
    )
    return replace(
        made,
        link=replace(made.link, **{"acknowledge_delay_us": ACKNOWLEDGE_DELAY_US, **groups["link"]}),
        client=replace(made.client, **groups["client"]),
    )


def _queue_bytes_max(settings: BrokerSettings) -> int:
    """What may wait for one neighbour or client: the bound itself, and what was granted before it was met."""
    links = settings.link_queue_bytes_max + 2 * settings.link.window_bytes
    clients = settings.client_queue_bytes_max + 2 * settings.client.window_bytes
    return max(links, clients)
