"""Exchanges of two links by SHIFTs: a tree after every step, and the right one at the end."""

from __future__ import annotations

import random

import pytest

from braid.errors import ConfigurationError
from braid.reconfiguration import OverlayTree, Plan
from braid.reconfiguration.exchanges import exchange_steps
from braid.reconfiguration.trees import link_between


def test_any_link_of_any_path_can_be_exchanged() -> None:
    for seed in range(300):
        chance = random.Random(seed)
        names = [f"B{number}" for number in range(chance.randint(3, 20))]
        tree = OverlayTree([(names[each], names[chance.randrange(each)]) for each in range(1, len(names))])
        source, target = chance.sample(names, 2)
        path = tree.path(source, target)
        if len(path) < 3:
            continue
        removed = chance.randrange(len(path) - 1)
        gone = link_between(path[removed], path[removed + 1])
        goal = OverlayTree([*(tree.links - {gone}), (source, target)])
        plan = Plan(tree, exchange_steps(path, removed), goal)
        # |R| - 2, where the cycle R has one link more than the path.
        assert len(plan) == len(path) - 2
        touched = {broker for step in plan.steps for broker in (step.moving, step.old, step.new)}
        assert touched <= set(path)


@pytest.mark.parametrize(("path", "removed"), [("ab", 0), ("abc", 2), ("abc", -1), ("", 0)])
def test_what_cannot_be_exchanged_is_refused(path: str, removed: int) -> None:
    with pytest.raises(ConfigurationError, match="no link"):
        exchange_steps(path, removed)
