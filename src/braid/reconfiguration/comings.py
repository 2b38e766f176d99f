"""Who comes and who goes on the way from a tree to another, and where do they wait?

A planner of SHIFTs needs the same brokers at both ends. So newcomers are thought of as outer brokers of the
start, and those who leave as outer brokers of the goal, each where it costs the fewest SHIFTs. Such a way
becomes a plan by putting each APPEND right before the first step that needs the newcomer, and each DETACH
right after the last step that needs the leaver.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from braid.reconfiguration.primitives import Append, Detach, Shift, Step
from braid.reconfiguration.trees import OverlayTree

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

__all__ = ["Comings", "comings_between"]


@dataclass(frozen=True, slots=True)
class Comings:
    """Start and goal with the same brokers, and who is only thought of in which."""

    start: OverlayTree
    goal: OverlayTree
    appended: Mapping[str, str]
    """Newcomers, in an order in which they can be appended, and whom they are appended to."""
    leaving: Sequence[str]
    """Those who are detached, each after those that are thought of as hanging on it."""

    def plan_steps(self, shifts: Sequence[Shift]) -> list[Step]:
        """The steps from the real start to the real goal."""
        here = set(self.start.brokers) - set(self.appended)
        steps: list[Step] = []

        def bring(broker: str) -> None:
            if broker not in here:
                bring(self.appended[broker])
                here.add(broker)
                steps.append(Append(broker, self.appended[broker]))

        last = {
            broker: number
            for number, shift in enumerate(shifts)
            for broker in (shift.moving, shift.old, shift.new)
        }
        tree = self.start
        gone: set[str] = set()
        for number in range(-1, len(shifts)):
            if number >= 0:
                shift = shifts[number]
                for broker in (shift.moving, shift.old, shift.new):
                    bring(broker)
                steps.append(shift)
                tree = shift.apply(tree)
            for broker in self.leaving:
                if broker in gone or broker not in here or last.get(broker, -1) > number:
                    continue
                beside = [other for other in tree.neighbours(broker) if other in here and other not in gone]
                if len(beside) == 1 and all(other in here for other in tree.neighbours(broker)):
                    steps.append(Detach(broker, beside[0]))
                    gone.add(broker)
        for broker in self.appended:
            bring(broker)
        for broker in self.leaving:  # those on whom newcomers without a SHIFT of their own were to hang
            if broker not in gone:
                [neighbour] = (other for other in tree.neighbours(broker) if other not in gone)
                steps.append(Detach(broker, neighbour))
                gone.add(broker)
        return steps


def comings_between(start: OverlayTree, goal: OverlayTree, degrees_max: Mapping[str, int]) -> Comings:
    """Think of everybody as being there from the start to the end."""
    wider_start, appended = _with_outer(start, goal, degrees_max)
    wider_goal, detached = _with_outer(goal, start, degrees_max)
    return Comings(wider_start, wider_goal, appended, tuple(reversed(detached)))


def _with_outer(
    tree: OverlayTree, other: OverlayTree, degrees_max: Mapping[str, int]
) -> tuple[OverlayTree, dict[str, str]]:
    """The tree with the brokers of another one as outer ones, near those that they are beside there."""
    missing = [broker for broker in other.brokers if broker not in tree]
    links = list(tree.links)
    hosts: dict[str, str] = {}
    wider = tree
    while missing:
        # Whoever has most neighbours that are here is placed best; then the name decides.
        broker = max(missing, key=lambda each: sum(near in wider for near in other.neighbours(each)))
        missing.remove(broker)
        near = [each for each in other.neighbours(broker) if each in wider]
        choices = near or list(wider.brokers)
        roomy = [each for each in choices if wider.degree(each) < degrees_max.get(each, len(links) + 2)]
        if not roomy:
            choices = list(wider.brokers)
            roomy = [each for each in choices if wider.degree(each) < degrees_max.get(each, len(links) + 2)]
        host = min(roomy or choices, key=lambda each: (sum(wider.distance(each, one) for one in near), each))
        hosts[broker] = host
        links.append((broker, host))
        wider = OverlayTree(links, tree.brokers)
    return wider, hosts
