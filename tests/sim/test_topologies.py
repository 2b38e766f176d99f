"""Are networks what their recipes promise?"""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from braid.errors import ConfigurationError
from braid.sim.topologies import (
    NAMED,
    FlatLatency,
    Topology,
    broker_names,
    line,
    parameters_of,
    random_tree,
    star,
    topology,
)

seeds = st.integers(0, 2**32)
shapes = st.sampled_from(["balanced", "recursive", "uniform"])


def degrees(network: Topology) -> Counter[str]:
    return Counter(end for ends in network.links for end in ends)


def is_tree(network: Topology) -> bool:
    """By merging pieces: independent of the search that the value itself uses."""
    piece = {broker: {broker} for broker in network.brokers}
    for left, right in network.links:
        if piece[left] is piece[right]:
            return False
        merged = piece[left] | piece[right]
        for broker in merged:
            piece[broker] = merged
    return len(piece[network.brokers[0]]) == len(network.brokers)


@given(count=st.integers(1, 60), degree_max=st.integers(2, 6), seed=seeds, shape=shapes)
def test_a_random_tree_is_a_tree_within_its_bound(count: int, degree_max: int, seed: int, shape: str) -> None:
    bound = None if shape == "uniform" else degree_max
    network = random_tree(count, bound, seed, shape=shape)  # type: ignore[arg-type]
    assert network.brokers == broker_names(count)
    assert is_tree(network)
    if bound is not None:
        assert max(degrees(network).values(), default=0) <= bound
    assert network == random_tree(count, bound, seed, shape=shape)  # type: ignore[arg-type]


@given(count=st.integers(2, 200), degree_max=st.integers(3, 5), seed=seeds)
def test_a_balanced_tree_is_as_shallow_as_the_bound_allows(count: int, degree_max: int, seed: int) -> None:
    depth, room, level = 0, 1, 1
    while room < count:
        level *= degree_max if depth == 0 else degree_max - 1
        room += level
        depth += 1
    network = random_tree(count, degree_max, seed)
    assert min(max(network.hops_from(broker).values()) for broker in network.brokers) <= depth


def test_seeds_and_shapes_make_different_trees() -> None:
    trees = {random_tree(30, 3, seed).links for seed in range(20)}
    assert len(trees) == 20
    assert random_tree(30, 3, 1, shape="recursive").links != random_tree(30, 3, 1).links


def test_a_name_says_nothing_about_a_place() -> None:
    """Workloads give roles by number, so the inner brokers must not be the first ones."""
    of_first = [len(random_tree(21, 3, seed).neighbours["B000"]) for seed in range(200)]
    leaves = sum(degree == 1 for degree in of_first) / len(of_first)
    assert 0.4 < leaves < 0.7


def test_every_uniform_tree_of_four_brokers_turns_up() -> None:
    """There are 4^2 labelled trees on 4 nodes (Cayley)."""
    found = Counter(random_tree(4, None, seed, shape="uniform").links for seed in range(1_600))
    assert len(found) == 16
    assert min(found.values()) > 50


@pytest.mark.parametrize(("name", "count"), [("C1", 120), ("C2", 250), ("C3", 500), ("CPL", 21)])
def test_the_networks_of_the_multipath_paper(name: str, count: int) -> None:
    network = topology(name, seed=5)
    assert network.name == name
    assert len(network.brokers) == count
    assert is_tree(network)
    assert max(degrees(network).values()) == 3


def test_line_and_star() -> None:
    assert line(3).links == (("B000", "B001"), ("B001", "B002"))
    assert star(4).links == (("B000", "B001"), ("B000", "B002"), ("B000", "B003"))
    assert line(1).links == star(1).links == ()
    assert line(4, latency_us=7).latency_us("B000", "B003") == 7
    assert line(4).latency_us("B002", "B002") == 0


def test_hops_and_paths() -> None:
    network = line(5)
    assert network.hops_from("B001") == {"B001": 0, "B000": 1, "B002": 1, "B003": 2, "B004": 3}
    assert network.path("B003", "B001") == ("B003", "B002", "B001")
    assert network.path("B003", "B003") == ("B003",)
    assert network.neighbours["B001"] == ("B000", "B002")
    with pytest.raises(ConfigurationError, match="'B009' is no broker"):
        network.path("B000", "B009")


def test_a_topology_keeps_its_value_across_processes() -> None:
    network = topology("C1", seed=2)
    assert pickle.loads(pickle.dumps(network)) == network
    assert network.with_flat_latency(5).latencies == FlatLatency(5)


@pytest.mark.parametrize(
    ("brokers", "links", "message"),
    [
        ((), (), "has no brokers"),
        (("A", "A"), (("A", "A"),), "same name"),
        (("A", "B"), (), "has 1 links, not 0"),
        (("A", "B"), (("A", "C"),), "'C', which is no broker"),
        (("A", "B", "C", "D"), (("A", "B"), ("B", "C"), ("A", "C")), "form a loop"),
        (("A", "B"), (("A", "A"),), "form a loop"),
    ],
)
def test_what_is_no_tree_is_refused(
    brokers: tuple[str, ...], links: tuple[tuple[str, str], ...], message: str
) -> None:
    with pytest.raises(ConfigurationError, match=message):
        Topology.of("odd", brokers, links)


@pytest.mark.parametrize(
    ("name", "parameters", "message"),
    [
        ("C11", {}, "no topology 'C11'; did you mean 'C1'"),
        ("ring", {}, "known are C1, C2, C3, CPL"),
        ("line", {}, "needs the parameter 'count'"),
        ("line", {"cont": 3}, "did you mean 'count'"),
        ("zoo", {"size": 3}, "it takes network"),
        ("line", {"count": 0}, "at least 1 broker"),
        ("random-tree", {"count": 5, "degree_max": 1}, "needs degree_max of at least 2"),
        ("random-tree", {"count": 5, "shape": "round"}, "balanced, recursive, uniform; not 'round'"),
        ("random-tree", {"count": 5, "degree_max": 3, "shape": "uniform"}, "no bound on links"),
        ("star", {"count": 3, "latency_us": -1}, "at least 0 us"),
    ],
)
def test_a_wrong_request_says_what_there_is(name: str, parameters: dict[str, object], message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        topology(name, **parameters)  # type: ignore[arg-type]


def test_parameters_can_be_asked_for() -> None:
    assert set(parameters_of("random-tree")) == {"count", "degree_max", "shape", "latency_us"}
    assert "seed" not in parameters_of("C1")


PRINT_ALL = """
from braid.sim.topologies import *
for name in NAMED:
    network = topology(name, seed=3)
    last = network.brokers[-1]
    print(name, network.links, [network.latency_us(broker, last) for broker in network.brokers])
print(topology("random-tree", seed=3, count=40, shape="recursive").links)
"""


def test_hash_seeds_change_nothing() -> None:
    printed = {
        subprocess.run(
            [sys.executable, "-c", PRINT_ALL],
            env=os.environ | {"PYTHONHASHSEED": hash_seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for hash_seed in ("0", "1", "4711")
    }
    assert len(printed) == 1
    assert all(name in next(iter(printed)) for name in NAMED)
