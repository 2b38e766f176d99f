"""What will a plan be felt like? Who pauses how often, and how many paths change.

A SHIFT pauses its three brokers. Everything between what hangs on the moving broker and the rest of the
network goes another way afterwards. Appending and detaching outer brokers disturbs nothing that was there.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

from braid.reconfiguration.primitives import Shift

if TYPE_CHECKING:
    from collections.abc import Mapping

    from braid.reconfiguration.plans import Plan
    from braid.reconfiguration.primitives import Step

__all__ = ["Disruption", "StepDisruption", "disruption_of"]


@dataclass(frozen=True, slots=True)
class StepDisruption:
    """What one step does."""

    step: Step
    brokers_moved: int
    """The moving broker and all that hang on it."""
    pairs_rerouted: int
    """Pairs of brokers whose path changes."""
    links_most: int
    """The most links that a broker has after it."""


@dataclass(frozen=True, slots=True)
class Disruption:
    """What a whole plan does."""

    steps: tuple[StepDisruption, ...]
    pauses: Mapping[str, int]
    """How often each broker takes part in a SHIFT, the most frequent first; others are not paused."""

    @property
    def links_most(self) -> int:
        """The most links that a broker has on the way."""
        return max((step.links_most for step in self.steps), default=0)


def disruption_of(plan: Plan) -> Disruption:
    """Look at each step where it stands."""
    steps = []
    pauses: Counter[str] = Counter()
    for step, before, after in zip(plan.steps, plan.trees, plan.trees[1:], strict=False):
        moved = pairs = 0
        if isinstance(step, Shift):
            pauses.update((step.moving, step.old, step.new))
            moved = len(before.behind(step.moving, step.old))
            pairs = moved * (len(before) - moved)
        most = max(after.degree(broker) for broker in after.brokers)
        steps.append(StepDisruption(step, moved, pairs, most))
    return Disruption(tuple(steps), dict(sorted(pauses.items(), key=lambda each: (-each[1], each[0]))))
