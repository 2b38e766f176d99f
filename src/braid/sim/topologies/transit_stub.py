"""How far apart are two computers in an Internet-like network?

The transit-stub model has two levels. *Transit domains* are joined to each other; *stub domains* hang on one
transit router each, through one gateway, and carry no traffic of others. So the shortest way between routers
of different stubs is: to the gateway, up, across the transit routers, down, from the gateway. A distance is a
sum of numbers from small tables, and no table of all pairs is ever made: those of 5,050 routers take some 30
kilobytes, and the distances inside a stub are made when two of its nodes first ask.

Two sets of figures come from papers:

- `INFRASTRUCTURE_FREE` (the evaluation of the infrastructure-free paper): 10 transit domains of 5 routers, 10
  stub domains per transit router, 10 routers per stub, 5,050 routers in all; 50 ms on average inside domains,
  100 to 500 ms between domains, peers at random stub routers with 1 ms. The link from a stub to its transit
  router counts as one inside a domain: at 100 to 500 ms too, latencies come out half as high again.
- `SELF_ORGANISING` (the evaluation of the self-organising paper): 100 domains (4 transit, 96 stub) and 10,080
  nodes for 100 brokers. The paper gives no latencies; costs in it are relative, and the ratio of those here
  (between domains to inside a domain) is ten.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, get_args

import numpy as np

from braid.errors import ConfigurationError
from braid.sim.topologies.graphs import Edge, connected_edges, minimum_tree, shortest_paths
from braid.sim.topologies.topology import Topology, broker_names
from braid.sim.topologies.trees import tree_links

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

__all__ = [
    "INFRASTRUCTURE_FREE",
    "SELF_ORGANISING",
    "NumberedPlacement",
    "Overlay",
    "Placement",
    "TransitStub",
    "TransitStubSettings",
    "transit_stub",
]

Overlay = Literal["minimum", "uniform", "recursive", "balanced"]
"""How brokers are linked: `minimum` is the tree of smallest total latency, the others are random trees."""


@dataclass(frozen=True, kw_only=True)
class TransitStubSettings:
    """The size and the distances of a network."""

    transit_domains: int = 10
    """Domains of the upper level."""
    transit_routers: int = 5
    """Routers in each of them."""
    stubs_per_router: int = 10
    """Stub domains that hang on each transit router."""
    stub_routers: int = 10
    """Routers in each stub domain."""
    degree_mean: float = 3.0
    """Links a router has on average inside its domain, and a domain to other transit domains."""
    inside_us: tuple[int, int] = (25_000, 75_000)
    """The latency of a link inside a domain is drawn between these, and that from a stub to its router."""
    between_us: tuple[int, int] = (100_000, 500_000)
    """The same between transit domains."""
    access_us: int = 1_000
    """From a computer to its router."""

    def __post_init__(self) -> None:
        for name in ("transit_domains", "transit_routers", "stubs_per_router", "stub_routers"):
            if getattr(self, name) < 1:
                raise ConfigurationError(f"transit-stub: {name} is at least 1, not {getattr(self, name)}")
        for name in ("inside_us", "between_us"):
            low, high = getattr(self, name)
            if not 0 <= low <= high:
                raise ConfigurationError(f"transit-stub: {name} goes from low to high, not {low} to {high}")
        if self.access_us < 0:
            raise ConfigurationError(f"transit-stub: access_us is at least 0, not {self.access_us}")

    @property
    def routers(self) -> int:
        """Routers in the whole network."""
        return self.transit_domains * self.transit_routers * (1 + self.stubs_per_router * self.stub_routers)


INFRASTRUCTURE_FREE = TransitStubSettings()
SELF_ORGANISING = TransitStubSettings(
    transit_domains=4,
    transit_routers=24,
    stubs_per_router=1,
    stub_routers=104,
    inside_us=(1_000, 10_000),
    between_us=(10_000, 100_000),
)


@dataclass(eq=False)
class TransitStub:
    """A physical network. Routers are numbers: transit routers first, then stub by stub."""

    settings: TransitStubSettings
    transit: NDArray[np.int32]
    """Distances between transit routers."""
    climb: NDArray[np.int32]
    """From each stub router to the transit router its stub hangs on."""
    stub_edges: list[list[Edge]] = field(repr=False)
    """The links of each stub, from which its own distances are made when they are asked for."""
    _inside: dict[int, NDArray[np.int32]] = field(default_factory=dict, init=False, repr=False)

    @classmethod
    def generate(cls, settings: TransitStubSettings = INFRASTRUCTURE_FREE, seed: int = 1) -> TransitStub:
        """A network of these sizes; the same seed gives the same one."""
        chance = random.Random(f"{seed}/transit")
        count = settings.transit_domains * settings.transit_routers
        edges: list[Edge] = []
        for domain in range(settings.transit_domains):
            first = domain * settings.transit_routers
            for left, right, us in _domain(settings.transit_routers, settings, chance):
                edges.append((first + left, first + right, us))
        wanted = round(settings.transit_domains * settings.degree_mean / 2)
        joined = connected_edges(
            settings.transit_domains, wanted, chance, lambda: chance.randint(*settings.between_us)
        )
        for left, right, us in joined:
            ends = [
                domain * settings.transit_routers + chance.randrange(settings.transit_routers)
                for domain in (left, right)
            ]
            edges.append((ends[0], ends[1], us))

        stub_edges: list[list[Edge]] = []
        climb: list[NDArray[np.int32]] = []
        for stub in range(count * settings.stubs_per_router):
            # A stream for each, so that a change of one stub never moves another.
            chance = random.Random(f"{seed}/stub/{stub}")
            inside = _domain(settings.stub_routers, settings, chance)
            gateway = chance.randrange(settings.stub_routers)
            up = chance.randint(*settings.inside_us)
            stub_edges.append(inside)
            climb.append(shortest_paths(settings.stub_routers, inside)[gateway] + up)
        return cls(settings, shortest_paths(count, edges), np.concatenate(climb), stub_edges)

    @property
    def transit_count(self) -> int:
        """How many routers are transit routers."""
        return len(self.transit)

    @property
    def domains(self) -> int:
        """Transit and stub domains together."""
        return self.settings.transit_domains + len(self.stub_edges)

    def latency_us(self, source: int, target: int) -> int:
        """The shortest way between two routers."""
        if source == target:
            return 0
        size, first = self.settings.stub_routers, len(self.transit)
        up, source_top, source_stub = 0, source, -1
        if source >= first:
            source_stub = (source - first) // size
            source_top = source_stub // self.settings.stubs_per_router
            up = int(self.climb[source - first])
        down, target_top = 0, target
        if target >= first:
            target_stub = (target - first) // size
            if target_stub == source_stub:
                # The way out and back would pass the gateway twice, so it is never shorter.
                return int(self._inside_of(source_stub)[(source - first) % size, (target - first) % size])
            target_top = target_stub // self.settings.stubs_per_router
            down = int(self.climb[target - first])
        return up + int(self.transit[source_top, target_top]) + down

    def _inside_of(self, stub: int) -> NDArray[np.int32]:
        found = self._inside.get(stub)
        if found is None:
            found = self._inside[stub] = shortest_paths(self.settings.stub_routers, self.stub_edges[stub])
        return found

    def place(self, names: Sequence[str], seed: int = 1) -> Placement:
        """Put computers at random stub routers; several may share one."""
        chance = random.Random(f"{seed}/placement")
        first, total = len(self.transit), len(self.transit) + len(self.climb)
        return Placement(self, {name: chance.randrange(first, total) for name in names})


@dataclass(frozen=True, eq=False)
class Placement:
    """Computers, such as brokers or peers, at routers of a physical network."""

    network: TransitStub
    routers: dict[str, int]
    """The router of each computer, by name."""

    def latency_us(self, source: str, target: str) -> int:
        """From one computer to another, over both access links."""
        if source == target:
            return 0
        routers = self.routers
        return self.network.latency_us(routers[source], routers[target]) + 2 * self.network.settings.access_us


class NumberedPlacement:
    """Very many computers, by numbers, at random stub routers: one latency in a fraction of a microsecond.

    The latencies are those of a `Placement`; what is kept is three small numbers per computer.
    """

    def __init__(self, network: TransitStub, count: int, seed: int = 1) -> None:
        """Place `count` computers; the same seed gives the same places."""
        self._network = network
        first, settings = network.transit_count, network.settings
        chance = np.random.default_rng([seed, count])
        self.routers = chance.integers(first, first + len(network.climb), count)
        """The router of each computer."""
        stubs = (self.routers - first) // settings.stub_routers
        tops = stubs // settings.stubs_per_router
        ups = network.climb[self.routers - first] + settings.access_us
        self._top_array, self._up_array = tops, ups
        self._stubs, self._tops, self._ups = stubs.tolist(), tops.tolist(), ups.tolist()
        self._transit: list[list[int]] = network.transit.tolist()

    def latency_us(self, source: int, target: int) -> int:
        """From one computer to another, over both access links."""
        if self._stubs[source] == self._stubs[target]:
            if source == target:
                return 0
            routers = self.routers
            inside_us = self._network.latency_us(int(routers[source]), int(routers[target]))
            return inside_us + 2 * self._network.settings.access_us
        tops, ups = self._tops, self._ups
        across_us: int = ups[source] + self._transit[tops[source]][tops[target]] + ups[target]
        return across_us

    def latencies_us(self, sources: NDArray[np.int64], targets: NDArray[np.int64]) -> NDArray[np.int64]:
        """The same for many pairs; computers of one stub count as if the way led over its transit router."""
        tops, ups = self._top_array, self._up_array
        across = self._network.transit[tops[sources], tops[targets]].astype(np.int64)
        return np.asarray(ups[sources] + across + ups[targets])


def transit_stub(
    count: int = 100,
    seed: int = 1,
    *,
    settings: TransitStubSettings = SELF_ORGANISING,
    overlay: Overlay = "minimum",
    degree_max: int | None = None,
    name: str | None = None,
) -> Topology:
    """Brokers at random routers of a transit-stub network, linked to a tree.

    Latencies, also between brokers that are not linked, are those of the shortest way between their routers.

    Args:
        count: how many brokers.
        seed: for the network, the places and the tree.
        settings: the physical network.
        overlay: how brokers are linked; see `Overlay`.
        degree_max: links a broker has at most, for random overlays that take a bound.
        name: for reports.
    """
    if count < 1:
        raise ConfigurationError(f"a network has at least 1 broker, not {count}")
    if overlay not in get_args(Overlay):
        raise ConfigurationError(f"an overlay is {', '.join(get_args(Overlay))}; not {overlay!r}")
    if overlay == "minimum" and degree_max is not None:
        raise ConfigurationError("the minimum overlay has no bound on links: degree_max must be left out")
    brokers = broker_names(count)
    placement = TransitStub.generate(settings, seed).place(brokers, seed)
    if overlay == "minimum":
        links = minimum_tree(brokers, placement.latency_us)
    else:
        links = tree_links(brokers, degree_max, random.Random(f"{seed}/tree/{overlay}"), overlay)
    return Topology.of(name or f"transit-stub-{count}", brokers, links, placement)


def _domain(count: int, settings: TransitStubSettings, chance: random.Random) -> list[Edge]:
    wanted = round(count * settings.degree_mean / 2)
    return connected_edges(count, wanted, chance, lambda: chance.randint(*settings.inside_us))
