"""The whole language on peers: what is delivered is what the plain loop says, for every algorithm and DHT."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from braid.language import Filter, Range
from braid.p2p.dmm import DmmSettings, Interests
from braid.p2p.dmm.interests import has_all
from braid.p2p.dmm.regions import State
from braid.p2p.space import boxes_meet
from tests.language.strategies import KINDS, Maker, filter_texts, makers
from tests.p2p.networks import SCHEMA, Network

ALGORITHMS = ("DMM", "DMM-AR")


def with_ranges(maker: Maker) -> dict[str, object]:
    """A publication, perhaps with ranges, perhaps empty."""
    if maker.random.randrange(20) == 0:
        return {}
    attributes = dict(maker.publication())
    for name, kind in KINDS.items():
        if kind in ("integer", "float") and maker.random.randrange(6) == 0:
            attributes[name] = maker.range()
    return attributes


@pytest.mark.parametrize("algorithm", ALGORITHMS)
@pytest.mark.parametrize("with_schema", [False, True])
@settings(max_examples=150)
@given(text=filter_texts(), maker=makers(), terms_max=st.sampled_from([1, 2, 16]))
def test_whoever_matches_lies_in_the_box_of_an_entry(
    algorithm: str, with_schema: bool, text: str, maker: Maker, terms_max: int
) -> None:
    interests = Interests(
        DmmSettings(algorithm=algorithm, terms_max=terms_max), SCHEMA if with_schema else None
    )
    interest = interests.of(text)
    for _ in range(5):
        attributes = with_ranges(maker)
        if Filter(text).matches(attributes):
            assert any(
                boxes_meet(place.box, place.space.box_of(attributes))
                and (algorithm == "DMM" or has_all(place.space, attributes))
                for place in interest.places
            )


def run_round(network: Network, maker: Maker, subscriptions: int, publications: int) -> None:
    addresses = sorted(network.peers)
    for number in range(subscriptions):
        network.subscribe(maker.random.choice(addresses), f"s{number}", maker.filter())
    network.run(5)
    for _ in range(publications):
        attributes = with_ranges(maker)
        network.publish(maker.random.choice(addresses), attributes)
        network.run(5)
        assert network.taken() == network.interested(attributes), attributes


@pytest.mark.parametrize("algorithm", ALGORITHMS)
@pytest.mark.parametrize("dht", ["ring", "pastry"])
def test_what_is_delivered_is_what_the_plain_loop_says(algorithm: str, dht: str) -> None:
    network = Network(12, DmmSettings(algorithm=algorithm), dht, SCHEMA if algorithm == "DMM" else None)
    run_round(network, Maker(random.Random(5)), 60, 40)


def test_one_who_unsubscribes_gets_nothing_more_and_leaves_nothing_behind() -> None:
    network = Network(8, DmmSettings(), "pastry")
    network.subscribe("p1", "wide", "a > 0")
    network.subscribe("p1", "narrow", "a > 5 AND b = 2")
    network.subscribe("p2", "other", "a > 3")
    network.run(5)
    network.unsubscribe("p1", "wide")
    network.publish("p3", {"a": 7, "b": 2})
    network.run(5)
    assert network.taken() == [("p1", "narrow"), ("p2", "other")]
    network.unsubscribe("p1", "narrow")
    network.unsubscribe("p2", "other")
    network.run(5)
    for address in network.peers:
        assert not network.dmm(address).site.multicasting.trees
        assert not network.dmm(address).site.holding.regions


def test_a_range_that_meets_many_is_delivered_once() -> None:
    network = Network(6, DmmSettings(), "ring")
    network.subscribe("p1", "a", "i = 1 OR i = 5 OR x > 3")
    network.subscribe("p1", "b", "i BETWEEN 4 AND 6")
    network.run(5)
    network.publish("p2", {"i": Range(0, 9), "x": 4.0})
    network.run(5)
    assert network.taken() == [("p1", "a"), ("p1", "b")]


@pytest.mark.parametrize(
    ("dht", "choices"),
    [
        ("ring", DmmSettings(algorithm="DMM", split_threshold=70, covering=False)),
        (
            "pastry",
            DmmSettings(
                algorithm="DMM", split_threshold=70, covering=False, lookup="climb", tree_cache="leaf-hop"
            ),
        ),
        ("ring", DmmSettings(split_threshold=3, lookup="climb", tree_cache=None, primary="first")),
        ("pastry", DmmSettings(split_threshold=4, tree_cache="path", attribute_root="primary")),
        ("ring", DmmSettings(split_threshold=5, attribute_root="names", primary="random", covering=False)),
        ("pastry", DmmSettings(split_threshold=3, covering=False, tree_cache="leaf-hop")),
    ],
    ids=lambda each: each if isinstance(each, str) else each.algorithm,
)
def test_trees_of_many_regions_deliver_the_same(dht: str, choices: DmmSettings) -> None:
    network = Network(10, choices, dht, SCHEMA)
    maker = Maker(random.Random(7))
    if choices.algorithm == "DMM":
        # Few filters of the language ask for something of each attribute; without others no region is halved.
        for number in range(60):
            text = f"i = {number % 17 - 8} AND x > {number % 7} AND s >= 'a'"
            network.subscribe(f"p{number % 10}", f"n{number}", text)
    run_round(network, maker, 60, 30)
    assert network.regions(State.INNER) >= 1
