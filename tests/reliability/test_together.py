"""Would the run in which everything happens notice what goes wrong beside the brokers?"""

from __future__ import annotations

import random
from collections import Counter
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.reconfiguration.random_trees import trees
from tests.reliability.copying import Copying
from tests.reliability.peering import MARGIN_US, PRICE_LOW, PeersBeside
from tests.reliability.plan import price_of
from tests.reliability.together import make_together, some_shifts, together_settings

if TYPE_CHECKING:
    from pathlib import Path

    from braid.reconfiguration import OverlayTree

WANTED = [number for number in range(1, 400) if price_of("w.1", number) >= PRICE_LOW]
UNWANTED = next(number for number in range(1, 400) if price_of("w.1", number) < PRICE_LOW)
S = 1_000_000


@given(trees(least=3, most=12), st.integers(0, 6), st.integers(0, 2**16))
def test_some_shifts_make_another_tree_of_the_same_brokers(tree: OverlayTree, count: int, seed: int) -> None:
    found = some_shifts(random.Random(seed), tree, count)
    assert found.brokers == tree.brokers
    assert len(set(found.links) - set(tree.links)) <= count
    assert count != 1 or found != tree


def test_costs_are_the_same_at_both_ends_and_one_broker_is_a_gateway() -> None:
    import tomllib

    plan = make_together(1, 12, 24)
    assert len(plan.replaced) == 3
    assert not {each.broker for each in plan.subscribers} & set(plan.replaced), "logs are at others"
    read = {
        name: tomllib.loads(together_settings(1, plan.brokers, name, gateway=name == "B1"))
        for name in plan.brokers
    }
    costs = {
        (name, other): cost
        for name, settings in read.items()
        for other, _, cost in (each.partition("=") for each in settings["topology"]["link_costs"])
    }
    assert len(costs) == 12 * 11
    assert all(costs[other, name] == cost for (name, other), cost in costs.items())
    assert [name for name, settings in read.items() if "peers" in settings] == ["B1"]


@pytest.mark.parametrize(
    ("rows", "mistakes"),
    [([2, 0, 1], set()), ([0, 2], {("lost", 1)}), ([0, 1, 2, 2, 1], {("doubled", 2)})],
)
def test_copies_are_counted(tmp_path: Path, rows: list[int], mistakes: set[Any]) -> None:
    copying = Copying(tmp_path, "127.0.0.1:1", "127.0.0.1:1", "127.0.0.1:1")
    copying._rows = 3
    found = copying.judge(rows, 1)
    assert {(kind, count) for kind, _, count in found.mistakes} == mistakes


def judged(
    tmp_path: Path, got: Counter[tuple[str, int]], gateway: list[int], elsewhere: list[int]
) -> set[tuple[str, int]]:
    """What is found wrong, where peers published three times and a broker was dead at the second."""
    peers = PeersBeside(tmp_path, "", "", ["w"], 1)
    peers._wanted, peers._got = ["w"], [got]
    peers._published_us = [0, 100 * S, 200 * S]
    peers.disturbed = [(100 * S + MARGIN_US, 101 * S)]
    peers._from_peers = {"gateway": Counter(gateway), "elsewhere": Counter(elsewhere)}
    peers._since_ns = 10
    # What was published before readers counted is owed to nobody.
    first = WANTED[0]
    writer = SimpleNamespace(
        settled={"w.1": WANTED[-1]}, published_at=lambda publisher, number: 5 if number == first else 50
    )
    checker: Any = SimpleNamespace(writers={"w": writer})
    return {(kind, count) for kind, _, count in peers.judge(checker).mistakes}


def test_what_peers_were_given_is_judged(tmp_path: Path) -> None:
    right = Counter({("w.1", number): 1 for number in WANTED[1:]})
    everything = [0, 1, 2]
    assert judged(tmp_path, right, everything, everything) == set()
    assert judged(tmp_path, right, everything, [0, 2]) == set(), "a broker was dead"
    assert judged(tmp_path, right, [0, 2], everything) == {("lost", 1)}, "which the gateway was not"
    assert judged(tmp_path, right, everything, [0, 1]) == {("lost", 1)}
    assert judged(tmp_path, right, [0, 1, 2, 2], everything) == {("doubled", 1)}
    assert judged(tmp_path, right - Counter([("w.1", WANTED[1])]), everything, everything) == {("lost", 1)}
    assert judged(tmp_path, right + Counter([("w.1", WANTED[1])]), everything, everything) == {("doubled", 1)}
    assert judged(tmp_path, right + Counter([("w.1", UNWANTED)]), everything, everything) == {("wrong", 1)}
