"""Which steps of a plan are done next, and which have been done already?

Steps on disjoint brokers change nothing for each other, so that some may run at a time. They are done in
*waves*: those of a wave are independent, and the next wave begins when all of them are done. So wherever a
run was interrupted, the network itself shows which steps are done: all of some waves, and some of the next.

This is a machine without a network: whoever carries a plan out asks `ready`, and tells what came of it.
"""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING, NamedTuple

from braid.errors import ConfigurationError, LocalProtocolError
from braid.reconfiguration.primitives import Append, Detach, Shift
from braid.reconfiguration.trees import difference

if TYPE_CHECKING:
    from collections.abc import Iterable

    from braid.reconfiguration.plans import Plan
    from braid.reconfiguration.primitives import Step
    from braid.reconfiguration.trees import OverlayTree

__all__ = ["PlanRun", "RunState", "Wave", "brokers_of", "waves_of"]


class Wave(NamedTuple):
    """Steps that are independent of each other, by their numbers in the plan."""

    numbers: tuple[int, ...]


class RunState(Enum):
    """Where a run is."""

    RUNNING = "running"
    PAUSED = "paused"
    STOPPED = "stopped"
    FAILED = "failed"
    FINISHED = "finished"


class PlanRun:
    """One attempt to carry out a plan from where the network is now.

    Args:
        plan: what is to be done.
        tree: the network as it is.
        parallel: how many steps may run at a time.
        anew: whether the network has to be where the plan starts; otherwise any place on its way will do.

    Raises:
        ConfigurationError: the network is elsewhere.
    """

    def __init__(self, plan: Plan, tree: OverlayTree, *, parallel: int = 1, anew: bool = True) -> None:
        if parallel < 1:
            raise ConfigurationError(f"at least one step runs at a time, not {parallel}")
        self.plan = plan
        self._waves = waves_of(plan, parallel)
        self.done = set(_done_at(plan, self._waves, tree))
        """The numbers of the steps that are done."""
        self.running: set[int] = set()
        self.problem = ""
        """Why it has failed."""
        self._paused = self._stopping = False
        if anew and tree != plan.start:
            raise ConfigurationError(
                f"the network is not where the plan starts: {difference(tree, plan.start)}"
                + (f"; {len(self.done)} of its {len(plan)} steps are done" if self.done else "")
            )

    @property
    def state(self) -> RunState:
        """Where it is; steps that run are waited for before it is anything but running."""
        if self.running:
            return RunState.RUNNING
        if self.problem:
            return RunState.FAILED
        if len(self.done) == len(self.plan):
            return RunState.FINISHED
        if self._stopping:
            return RunState.STOPPED
        return RunState.PAUSED if self._paused else RunState.RUNNING

    def ready(self) -> list[int]:
        """The numbers of steps that may begin now."""
        if self._paused or self._stopping or self.problem:
            return []
        for wave in self._waves:
            left = [number for number in wave.numbers if number not in self.done]
            if left:
                return [number for number in left if number not in self.running]
        return []

    def begun(self, number: int) -> None:
        """A step that was ready has begun."""
        if number not in self.ready():
            raise LocalProtocolError(f"step {number + 1} is not to begin now")
        self.running.add(number)

    def finished(self, number: int) -> None:
        """A step is done."""
        self.running.remove(number)
        self.done.add(number)

    def failed(self, number: int, problem: str) -> None:
        """A step was not done, and will not be; no other begins."""
        self.running.remove(number)
        self.problem = self.problem or f"step {number + 1}, {self.plan.steps[number]}: {problem}"

    def pause(self) -> None:
        """Begin no step until `resume`; between two steps the network is a tree."""
        self._paused = True

    def resume(self) -> None:
        """Go on."""
        self._paused = False

    def stop(self) -> None:
        """Begin no step any more."""
        self._stopping = True


def brokers_of(step: Step) -> tuple[str, ...]:
    """The brokers that a step concerns."""
    return (step.moving, step.old, step.new) if isinstance(step, Shift) else (step.broker, step.neighbour)


def waves_of(plan: Plan, parallel: int) -> tuple[Wave, ...]:
    """The steps of a plan in waves of independent ones, each broker's steps in their order."""
    if parallel == 1:
        return tuple(Wave((number,)) for number in range(len(plan)))
    busy: dict[str, int] = {}
    levels: list[list[int]] = []
    for number, step in enumerate(plan.steps):
        level = max(busy.get(broker, 0) for broker in brokers_of(step))
        if level == len(levels):
            levels.append([])
        levels[level].append(number)
        busy.update(dict.fromkeys(brokers_of(step), level + 1))
    return tuple(
        Wave(tuple(level[at : at + parallel])) for level in levels for at in range(0, len(level), parallel)
    )


def _done_at(plan: Plan, waves: tuple[Wave, ...], tree: OverlayTree) -> Iterable[int]:
    """The steps that have led to a tree; the most, if there are several ways.

    Raises:
        ConfigurationError: none have.
    """
    before: list[OverlayTree] = [plan.start]
    for wave in waves:
        at = before[-1]
        for number in wave.numbers:
            at = plan.steps[number].apply(at)
        before.append(at)
    for count in range(len(waves), -1, -1):
        at = before[count]
        some = (
            [n for n in waves[count].numbers if _is_done(plan.steps[n], tree)] if count < len(waves) else []
        )
        for number in some:
            at = plan.steps[number].apply(at)
        if at == tree:
            return [*(number for wave in waves[:count] for number in wave.numbers), *some]
    raise ConfigurationError(
        f"the network is on none of the plan's trees; beside its start {difference(tree, plan.start)}, "
        f"beside its goal {difference(tree, plan.goal)}"
    )


def _is_done(step: Step, tree: OverlayTree) -> bool:
    if isinstance(step, Append):
        return step.broker in tree
    if isinstance(step, Detach):
        return step.broker not in tree
    new, old = (other in tree and tree.has_link(step.moving, other) for other in (step.new, step.old))
    return new and not old
