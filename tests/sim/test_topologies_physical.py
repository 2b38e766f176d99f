"""Are distances in Internet-like and real networks those of shortest ways?"""

from __future__ import annotations

import heapq
import itertools
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from braid.errors import ConfigurationError
from braid.sim.topologies import (
    INFRASTRUCTURE_FREE,
    SELF_ORGANISING,
    Topology,
    TransitStub,
    TransitStubSettings,
    topology,
    transit_stub,
    zoo,
    zoo_names,
)
from braid.sim.topologies.graphs import connected_edges, minimum_tree, shortest_paths
from braid.sim.topologies.zoo import great_circle_km, zoo_archive, zoo_from_gml

try:
    zoo_archive()
    zoo_is_missing = ""
except ConfigurationError as problem:
    zoo_is_missing = str(problem)
needs_zoo = pytest.mark.skipif(bool(zoo_is_missing), reason=zoo_is_missing)

SMALL = TransitStubSettings(transit_domains=3, transit_routers=2, stubs_per_router=2, stub_routers=4)


def plain_distances(edges: list[tuple[int, int, int]], source: int) -> dict[int, int]:
    """Dijkstra over one flat list of links, knowing nothing of domains."""
    links: dict[int, list[tuple[int, int]]] = {}
    for left, right, us in edges:
        links.setdefault(left, []).append((right, us))
        links.setdefault(right, []).append((left, us))
    found: dict[int, int] = {}
    waiting = [(0, source)]
    while waiting:
        us, node = heapq.heappop(waiting)
        if node not in found:
            found[node] = us
            for other, length in links.get(node, []):
                heapq.heappush(waiting, (us + length, other))
    return found


@given(count=st.integers(1, 12), extra=st.integers(0, 10), seed=st.integers(0, 1_000))
def test_all_shortest_paths_agree_with_one_source_at_a_time(count: int, extra: int, seed: int) -> None:
    chance = random.Random(seed)
    edges = connected_edges(count, count - 1 + extra, chance, lambda: chance.randint(1, 100))
    assert len({frozenset(edge[:2]) for edge in edges}) == len(edges)
    assert len(edges) == min(count - 1 + extra, count * (count - 1) // 2)
    far = shortest_paths(count, edges)
    for source in range(count):
        assert dict(enumerate(far[source].tolist())) == (plain_distances(edges, source) or {0: 0})


@given(seed=st.integers(0, 10_000))
@settings(max_examples=25)
def test_distances_by_domain_are_distances_in_the_whole_network(seed: int) -> None:
    """The tables are taken apart into one flat network again, and compared with a plain search in it."""
    network = TransitStub.generate(SMALL, seed)
    routers, first = SMALL.routers, network.transit_count
    assert routers == 6 + 12 * 4
    edges = [
        (left, right, int(network.transit[left, right]))
        for left, right in itertools.combinations(range(first), 2)
    ]
    for stub, inside in enumerate(network.stub_edges):
        base = first + stub * SMALL.stub_routers
        edges += [(base + left, base + right, us) for left, right, us in inside]
        climbs = network.climb[base - first : base - first + SMALL.stub_routers].tolist()
        gateway = climbs.index(min(climbs))
        edges.append((base + gateway, stub // SMALL.stubs_per_router, min(climbs)))
    for source in range(routers):
        far = plain_distances(edges, source)
        for target in range(routers):
            assert network.latency_us(source, target) == far[target]


@given(seed=st.integers(0, 10_000), routers=st.tuples(*[st.integers(0, 53)] * 3))
@settings(max_examples=50)
def test_ways_are_symmetric_and_no_detour_is_shorter(seed: int, routers: tuple[int, int, int]) -> None:
    network = TransitStub.generate(SMALL, seed)
    one, two, three = routers
    assert network.latency_us(one, two) == network.latency_us(two, one)
    assert network.latency_us(one, three) <= network.latency_us(one, two) + network.latency_us(two, three)


def test_the_sizes_of_the_papers() -> None:
    assert INFRASTRUCTURE_FREE.routers == 5_050
    network = TransitStub.generate(SELF_ORGANISING)
    assert network.domains == 100
    assert SELF_ORGANISING.routers == 10_080


def test_latencies_are_in_the_ranges_asked_for() -> None:
    network = TransitStub.generate(INFRASTRUCTURE_FREE, seed=3)
    lengths = [us for inside in network.stub_edges for _, _, us in inside]
    assert min(lengths) >= 25_000
    assert max(lengths) <= 75_000
    assert abs(sum(lengths) / len(lengths) - 50_000) < 500
    far_domains = network.transit[:5, 5:]
    assert far_domains.min() >= 100_000


def test_many_peers_are_placed_and_asked_at_little_cost() -> None:
    peers = [f"P{number}" for number in range(50_000)]
    network = TransitStub.generate(INFRASTRUCTURE_FREE)
    placement = network.place(peers, seed=1)
    assert len(set(placement.routers.values())) > 4_900
    assert min(placement.routers.values()) >= network.transit_count
    assert placement.latency_us("P1", "P1") == 0
    chance = random.Random(1)
    for _ in range(2_000):
        one, two = chance.sample(peers, 2)
        assert placement.latency_us(one, two) == placement.latency_us(two, one) >= 2_000
    assert placement.routers == network.place(peers, seed=1).routers
    tables = network.transit.nbytes + network.climb.nbytes
    assert tables < 100_000


def test_brokers_on_a_transit_stub_network() -> None:
    network = transit_stub(40, seed=4)
    assert len(network.links) == 39
    total = sum(network.latency_us(*ends) for ends in network.links)
    rival = topology("transit-stub", seed=4, count=40, overlay="uniform")
    # The places are the same, so the latencies are; only the tree differs.
    pairs = list(itertools.combinations(network.brokers, 2))
    assert [network.latency_us(*pair) for pair in pairs] == [rival.latency_us(*pair) for pair in pairs]
    assert total < sum(network.latency_us(*ends) for ends in rival.links)


@given(st.lists(st.tuples(st.integers(0, 20), st.integers(0, 20)), min_size=1, max_size=6))
def test_the_minimum_tree_is_the_cheapest_of_all(points: list[tuple[int, int]]) -> None:
    nodes = [str(number) for number in range(len(points))]

    def length(left: str, right: str) -> int:
        (one, two), (three, four) = points[int(left)], points[int(right)]
        return abs(one - three) + abs(two - four)

    tree = minimum_tree(nodes, length)
    cheapest = min(
        sum(length(*link) for link in links)
        for links in itertools.combinations(itertools.combinations(nodes, 2), len(nodes) - 1)
        if _connects(nodes, links)
    )
    assert _connects(nodes, tree)
    assert sum(length(*link) for link in tree) == cheapest


def _connects(nodes: list[str], links: object) -> bool:
    try:
        Topology.of("try", nodes, links)  # type: ignore[arg-type]
    except ConfigurationError:
        return False
    return True


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"stub_routers": 0}, "stub_routers is at least 1"),
        ({"inside_us": (5, 2)}, "inside_us goes from low to high"),
        ({"access_us": -1}, "access_us is at least 0"),
    ],
)
def test_impossible_networks_are_refused(changes: dict[str, object], message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        TransitStubSettings(**changes)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"overlay": "ring"}, "minimum, uniform"),
        ({"degree_max": 3}, "must be left out"),
        ({"count": 0}, "at least 1 broker"),
    ],
)
def test_impossible_overlays_are_refused(parameters: dict[str, object], message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        topology("transit-stub", **parameters)  # type: ignore[arg-type]


# Real networks.

GAPS = """
graph [
  node [ id 0 label "Rome" Latitude 41.9 Longitude 12.5 ]
  node [ id 1 label "somewhere" ]
  node [ id 2 label "Rome" Latitude 41.9 Longitude 16.5 ]
  node [ id 3 label "alone" Latitude 0.0 Longitude 0.0 ]
  node [ id 4 label "far away" Latitude 52.5 Longitude 13.4 ]
  edge [ source 0 target 1 ]
  edge [ source 1 target 0 ]
  edge [ source 1 target 2 ]
  edge [ source 2 target 2 ]
  edge [ source 0 target 4 ]
  edge [ source 2 target 4 ]
]
"""


def test_gaps_in_a_map_are_closed() -> None:
    network = zoo_from_gml(GAPS, "gaps")
    assert network.labels == ("Rome", "somewhere", "Rome", "far away")
    assert network.brokers == ("B000", "B001", "B002", "B003")
    # Node 1 is half-way between its neighbours; both halves take some 0.83 ms (166 km).
    half = network.latency_us("B000", "B001")
    assert half == pytest.approx(100 + great_circle_km(41.9, 12.5, 41.9, 16.5) / 2 / 0.2, abs=2)
    assert network.latency_us("B000", "B002") == pytest.approx(2 * half, abs=1)
    assert ("B000", "B003") in network.links
    assert ("B002", "B003") not in network.links


def test_a_network_without_any_place() -> None:
    network = zoo_from_gml("graph [ node [ id 7 ] node [ id 9 ] edge [ source 7 target 9 ] ]", "plain")
    assert network.latency_us("B000", "B001") == 1_000
    assert network.labels == ("7", "9")


@pytest.mark.parametrize(
    ("text", "message"),
    [("graph [", "not readable GML"), ("nonsense", "not readable"), ("graph [ ]", "no nodes")],
)
def test_what_is_no_network_is_refused(text: str, message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        zoo_from_gml(text, "broken")


def test_missing_data_says_what_to_do(monkeypatch: pytest.MonkeyPatch, tmp_path: object) -> None:
    monkeypatch.setenv("BRAID_DATA", str(tmp_path))
    with pytest.raises(ConfigurationError, match="set BRAID_DATA"):
        zoo("Abilene")


def test_a_quarter_of_the_equator() -> None:
    assert great_circle_km(0, 0, 0, 90) == pytest.approx(10_007.5, abs=1)
    assert great_circle_km(0, 179.5, 0, -179.5) == pytest.approx(111.2, abs=0.1)


@needs_zoo
def test_a_real_network() -> None:
    network = zoo("Abilene")
    place = dict(zip(network.labels, network.brokers, strict=True))
    assert len(network.brokers) == 11
    coast_to_coast_us = network.latency_us(place["New York"], place["Seattle"])
    assert 19_000 < coast_to_coast_us < 26_000
    for one, two, three in itertools.permutations(network.brokers, 3):
        assert network.latency_us(one, two) == network.latency_us(two, one)
        assert network.latency_us(one, three) <= network.latency_us(one, two) + network.latency_us(two, three)
    with pytest.raises(ConfigurationError, match="did you mean 'Abilene'"):
        zoo("Abeline")
    with pytest.raises(ConfigurationError, match="such as"):
        zoo("Qqqqqqq")


@needs_zoo
def test_every_real_network_becomes_a_tree() -> None:
    names = zoo_names()
    assert len(names) > 250
    for name in names:
        network = zoo(name)  # which is checked when it is made
        assert all(network.latency_us(*ends) >= 100 for ends in network.links)
