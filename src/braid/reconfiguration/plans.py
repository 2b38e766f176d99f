"""By which steps does one tree become another?

A `Plan` is a start, steps and a goal. Every step is tried when it is made, so that a plan which exists is
*safe* (availability paper, section III-A): each step leads from a tree to a tree, and the last to the goal.
"""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

from braid.errors import ConfigurationError
from braid.reconfiguration.primitives import Shift, Step
from braid.reconfiguration.trees import OverlayTree, difference

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = ["Plan"]


class Plan:
    """Steps from a start to a goal.

    Args:
        start: the tree before the first step.
        steps: what is done, in order.
        goal: the tree after the last one; left out, it is whatever comes of the steps.

    Raises:
        ConfigurationError: a step cannot be done where it stands, or the last leads elsewhere.
    """

    __slots__ = ("__dict__", "steps", "trees")

    def __init__(self, start: OverlayTree, steps: Iterable[Step], goal: OverlayTree | None = None) -> None:
        self.steps = tuple(steps)
        """What is done, in order."""
        trees = [start]
        for number, step in enumerate(self.steps, 1):
            try:
                trees.append(step.apply(trees[-1]))
            except ConfigurationError as error:
                raise ConfigurationError(f"step {number}, {error}") from None
        self.trees = tuple(trees)
        """The start, and the tree after each step."""
        if goal is not None and trees[-1] != goal:
            raise ConfigurationError(
                f"the steps do not lead to the goal: {difference(trees[-1], goal)} after the last one"
            )

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Plan):
            return NotImplemented
        return self.start == other.start and self.steps == other.steps

    def __hash__(self) -> int:
        return hash((self.start, self.steps))

    def __len__(self) -> int:
        return len(self.steps)

    def __repr__(self) -> str:
        return f"<plan of {len(self)} steps, {self.shifts} of them SHIFT>"

    @property
    def start(self) -> OverlayTree:
        """The tree before the first step."""
        return self.trees[0]

    @property
    def goal(self) -> OverlayTree:
        """The tree after the last step."""
        return self.trees[-1]

    @cached_property
    def shifts(self) -> int:
        """How many of its steps are SHIFTs: the ones that pause brokers."""
        return sum(isinstance(step, Shift) for step in self.steps)

    @property
    def undo(self) -> Plan:
        """The way back, step by step."""
        return Plan(self.goal, [step.undo for step in reversed(self.steps)], self.start)

    def done_at(self, tree: OverlayTree) -> int | None:
        """How many steps have been done where the network looks like this; the most, if it looks so twice.

        None: the network is on none of the plan's trees.
        """
        return next((number for number in range(len(self), -1, -1) if self.trees[number] == tree), None)
