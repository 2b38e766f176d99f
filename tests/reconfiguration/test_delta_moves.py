"""Do delta-moves lead from any tree to any other, each broker moved once at most?"""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from braid.errors import ConfigurationError
from braid.reconfiguration import OverlayTree, delta_moved, delta_moves


def random_tree(chance: random.Random, names: list[str]) -> OverlayTree:
    mixed = chance.sample(names, len(names))
    return OverlayTree(
        [(name, chance.choice(mixed[:place])) for place, name in enumerate(mixed) if place], names
    )


@given(st.integers(min_value=1, max_value=60), st.integers())
def test_any_tree_leads_to_any_other(size: int, seed: int) -> None:
    chance = random.Random(seed)
    names = [f"B{number}" for number in range(size)]
    tree, goal = random_tree(chance, names), random_tree(chance, names)
    moved: list[str] = []
    for path in list(delta_moves(tree, goal)):
        tree = delta_moved(tree, path)  # refuses what is no path
        moved.append(path[0])
    assert tree == goal
    assert len(set(moved)) == len(moved) < size


def test_nothing_is_moved_where_nothing_is_to_change() -> None:
    line = OverlayTree([("A", "B"), ("B", "C")])
    assert list(delta_moves(line, line)) == []


@pytest.mark.parametrize("path", ["AC", "ACB", "ABX", "AB", "A", "CBAD"])
def test_a_move_goes_along_a_path_of_the_tree(path: str) -> None:
    line = OverlayTree([("A", "B"), ("B", "C"), ("C", "D")])
    with pytest.raises(ConfigurationError):
        delta_moved(line, path)


def test_trees_of_other_brokers_are_refused() -> None:
    with pytest.raises(ConfigurationError, match="same brokers"):
        list(delta_moves(OverlayTree([("A", "B")]), OverlayTree([("A", "C")])))
