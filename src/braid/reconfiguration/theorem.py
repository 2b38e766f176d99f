"""Is there always a plan? The proof of Theorem 1 of the availability paper, carried out.

From the start, brokers that the goal lacks are deleted and those that the start lacks are appended. Then, by
induction over the brokers in some order: the last one is moved out of the way (SEQUESTER), the others are
brought into the order of the goal without it, and it is spliced in where the goal has it (Lemma 1 and
Corollary 1). Written as a loop: all brokers but the first are sequestered, last to first, and spliced in
again, first to last. Such a plan is long; `planner` is measured by it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from braid.reconfiguration.composites import delete, sequester, splice
from braid.reconfiguration.plans import Plan
from braid.reconfiguration.primitives import Append, Step

if TYPE_CHECKING:
    from collections.abc import Iterable

    from braid.reconfiguration.trees import OverlayTree

__all__ = ["theorem_plan", "without"]


def theorem_plan(start: OverlayTree, goal: OverlayTree) -> Plan:
    """A plan from any tree to any other, as the proof constructs it."""
    steps: list[Step] = []
    tree = start

    def do(some: Iterable[Step]) -> None:
        nonlocal tree
        for step in some:
            tree = step.apply(tree)
            steps.append(step)

    common = [broker for broker in start.brokers if broker in goal]
    host = common[0] if common else start.brokers[0]
    newcomers = [broker for broker in goal.brokers if broker not in start]
    if not common:  # the last broker of the start can only go when there are others
        do(Append(broker, host) for broker in newcomers)
        newcomers = []
    for broker in start.brokers:
        if broker not in goal:
            do(delete(tree, broker))
    do(Append(broker, host) for broker in newcomers)

    # The goal's trees of the first k brokers, each without the last broker of the one before.
    order = goal.brokers
    smaller = [goal]
    for broker in reversed(order[1:]):
        smaller.append(without(smaller[-1], broker))
    for number in range(len(order) - 1, 0, -1):
        earlier = order[:number]
        near = next(other for other in tree.neighbours(order[number]) if other in earlier)
        do(sequester(tree, order[number], near))
    for number in range(1, len(order)):
        wanted = smaller[len(order) - 1 - number]
        do(splice(tree, order[number], wanted.neighbours(order[number])))
    return Plan(start, steps, goal)


def without(tree: OverlayTree, broker: str) -> OverlayTree:
    """The tree from which an INSERT of the broker makes this one (Lemma 1)."""
    for step in delete(tree, broker):
        tree = step.apply(tree)
    return tree
