"""By which steps should one tree become another?

`find_plan` looks for as few SHIFTs as it can: exactly where the change is small, by a beam of the most
promising trees, from both ends, otherwise. The availability paper leaves open what a plan should spare; here
every tree on the way may be bound in its links per broker and in the length of paths that matter, and the
steps may be kept to a region.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from braid.errors import ConfigurationError
from braid.reconfiguration.comings import comings_between
from braid.reconfiguration.lines import LINKS_NEEDED, way_by_lines
from braid.reconfiguration.plans import Plan
from braid.reconfiguration.primitives import Shift
from braid.reconfiguration.search import beam, exact
from braid.reconfiguration.slides import Slides

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from braid.reconfiguration.slides import NumberedShift
    from braid.reconfiguration.trees import OverlayTree

__all__ = ["FoundPlan", "PlanOptions", "find_plan"]

# Beyond so many brokers the beam is narrower, so that a plan takes seconds and not minutes.
BROKERS_MANY = 40
# Where tight limits leave the beam without a way, it is tried again so much wider.
WIDENINGS = (1, 4)
# How much longer than without limits a way may become before it is given up.
DETOUR_MAX = 3
# How many links more than allowed are tried where brokers come and go, until the plan itself keeps to them.
ROOMS = (0, 1, 2, 3)
# How dear a SHIFT outside the preferred region is taken to be, in units of the lack; the best result counts.
REGION_PRICES = (0.0, 1.0, 4.0)


@dataclass(frozen=True, kw_only=True)
class PlanOptions:
    """What a plan has to keep to, and how long it may be looked for."""

    degree_max: int | None = None
    """Links that no broker may have more of at any step; one that has more at the start never gets others."""
    paths_max: Mapping[tuple[str, str], int] = field(default_factory=dict)
    """Hops that important pairs of brokers may be apart at any step; if they are further apart at the start,
    no further than there."""
    region: frozenset[str] = frozenset()
    """Brokers whose links should be the ones that change; empty if that does not matter."""
    trees_max: int = 20_000
    """Trees that the exact search looks at. More: longer plans are known to be the shortest, for more time
    (some 20,000 a second) and memory (about 1 kB each)."""
    width: int = 16
    """Trees that the beam keeps per step. More: perhaps a step less, for more time."""
    given_up: Callable[[], bool] | None = None
    """Asked before each tree is looked at; once it says yes, the search ends with a `ConfigurationError`. One
    among 120 brokers can take more than a minute, and whoever waits for it may leave."""

    def __post_init__(self) -> None:
        if self.degree_max is not None and self.degree_max < 2:
            raise ConfigurationError(f"degree_max is {self.degree_max}; a tree needs brokers with 2 links")
        if self.trees_max < 1 or self.width < 1:
            raise ConfigurationError("trees_max and width must be at least 1")


@dataclass(frozen=True, slots=True)
class FoundPlan:
    """A plan, and what is known of how good it is."""

    plan: Plan
    shifts_min: int
    """No plan that keeps to the options has fewer SHIFTs, newcomers and leavers left aside."""
    proved: bool
    """Whether no plan with the same brokers can have fewer SHIFTs."""


def find_plan(start: OverlayTree, goal: OverlayTree, options: PlanOptions | None = None) -> FoundPlan:
    """A plan from one tree to another, whichever brokers they have.

    Raises:
        ConfigurationError: the goal breaks a limit, or no plan was found that keeps to them.
    """
    options = options or PlanOptions()
    degrees_max = _degrees_max(start, goal, options)
    paths_max = _paths_max(start, goal, options)
    same_brokers = start.brokers == goal.brokers
    # Those who are only thought of take up links in the search, and none in the plan.
    for room in (0,) if same_brokers or not degrees_max else ROOMS:
        limits = {broker: limit + room for broker, limit in degrees_max.items()}
        found = _Search(start, goal, limits, paths_max, options).find()
        if found is not None and _keeps(found.plan, degrees_max):
            return found
    raise ConfigurationError(
        "no plan was found that keeps to the limits; allow one more link per broker, longer paths, or a "
        "wider search"
    )


class _Search:
    """One search for a plan, within limits for all that are thought of."""

    def __init__(
        self,
        start: OverlayTree,
        goal: OverlayTree,
        limits: Mapping[str, int],
        paths_max: Mapping[tuple[str, str], int],
        options: PlanOptions,
    ) -> None:
        self._start, self._goal = start, goal
        self._options = options
        self._comings = comings = comings_between(start, goal, limits)
        roomy = {
            broker: max(limit, comings.start.degree(broker), comings.goal.degree(broker))
            for broker, limit in limits.items()
        }
        self._lines = not paths_max and all(limit >= LINKS_NEEDED for limit in roomy.values())
        """Whether there is a way over lines, if there is no other."""
        self._forth = Slides(comings.goal, roomy or None, paths_max, options.given_up)
        self._back = Slides(comings.start, roomy or None, paths_max, options.given_up)
        self._free = Slides(comings.goal, given_up=options.given_up)
        self._here, self._there = self._forth.numbered(comings.start), self._forth.numbered(comings.goal)

    def find(self) -> FoundPlan | None:
        options = self._options
        same_brokers = self._start.brokers == self._goal.brokers
        found = exact(self._forth, self._here, self._there, trees_max=options.trees_max)
        outside = _outside(self._forth.names, options.region)
        if found.shifts is not None and outside is None:
            plan = self._plan(found.shifts)
            return FoundPlan(plan, plan.shifts if same_brokers else 0, same_brokers)
        ways = self._ways(outside)
        if found.shifts is not None:
            ways.append(found.shifts)
        if not ways:
            return None
        best = min(ways, key=lambda way: (sum(map(outside, way)) if outside is not None else 0, len(way)))
        plan = self._plan(best)
        shifts_min = max(found.shifts_min, _bound(self._start, self._goal)) if same_brokers else 0
        return FoundPlan(plan, shifts_min, same_brokers and plan.shifts == shifts_min)

    def _ways(self, outside: Callable[[NumberedShift], int] | None) -> list[Sequence[NumberedShift]]:
        """What the beam finds from both ends; wider, if it finds nothing."""
        brokers = len(self._here)
        width = self._options.width if brokers <= BROKERS_MANY else max(1, self._options.width // 4)
        free = beam(self._free, self._here, width=1, shifts_max=brokers * brokers)
        shifts_max = DETOUR_MAX * (len(free or ()) + brokers)
        ways: list[Sequence[NumberedShift]] = []
        for wider in WIDENINGS:
            for price in REGION_PRICES if outside is not None else (0.0,):
                paid = _priced(outside, price)
                way = beam(self._forth, self._here, width=width * wider, shifts_max=shifts_max, price=paid)
                if way is not None:
                    ways.append(way)
                way = beam(self._back, self._there, width=width * wider, shifts_max=shifts_max, price=paid)
                if way is not None:
                    ways.append([(moving, new, old) for moving, old, new in reversed(way)])
            if ways:
                break
        if not ways and self._lines:
            ways.append(way_by_lines(self._here, self._there))
        return ways

    def _plan(self, way: Sequence[NumberedShift]) -> Plan:
        names = self._forth.names
        shifts = [Shift(names[moving], names[old], names[new]) for moving, old, new in way]
        return Plan(self._start, self._comings.plan_steps(shifts), self._goal)


def _keeps(plan: Plan, degrees_max: Mapping[str, int]) -> bool:
    return all(
        tree.degree(broker) <= limit
        for tree in plan.trees
        for broker, limit in degrees_max.items()
        if broker in tree
    )


def _bound(start: OverlayTree, goal: OverlayTree) -> int:
    """Each SHIFT makes one link, and takes the ends of a link that is to be one hop nearer at most."""
    missing = goal.links - start.links
    return max([len(missing), *(start.distance(left, right) - 1 for left, right in missing)])


def _degrees_max(start: OverlayTree, goal: OverlayTree, options: PlanOptions) -> dict[str, int]:
    """How many links each broker may have; empty without a limit."""
    limit = options.degree_max
    if limit is None:
        return {}
    crowded = next((broker for broker in goal.brokers if goal.degree(broker) > limit), None)
    if crowded is not None:
        raise ConfigurationError(
            f"the goal itself gives {crowded!r} {goal.degree(crowded)} links, and at most {limit} are allowed"
        )
    return {
        broker: max(limit, start.degree(broker) if broker in start else 0)
        for broker in {*start.brokers, *goal.brokers}
    }


def _paths_max(start: OverlayTree, goal: OverlayTree, options: PlanOptions) -> dict[tuple[str, str], int]:
    found = {}
    for (left, right), hops in options.paths_max.items():
        for broker in (left, right):
            if broker not in start or broker not in goal:
                raise ConfigurationError(
                    f"the path from {left!r} to {right!r} cannot be kept short: {broker!r} is not in both"
                )
        if goal.distance(left, right) > hops:
            raise ConfigurationError(
                f"in the goal itself {left!r} and {right!r} are {goal.distance(left, right)} hops apart, "
                f"and at most {hops} are allowed"
            )
        found[left, right] = max(hops, start.distance(left, right))
    return found


def _outside(names: Sequence[str], region: frozenset[str]) -> Callable[[NumberedShift], int] | None:
    """How many brokers outside the region a SHIFT concerns."""
    if not region:
        return None
    beyond = [name not in region for name in names]
    return lambda shift: sum(beyond[each] for each in shift)


def _priced(
    outside: Callable[[NumberedShift], int] | None, price: float | None
) -> Callable[[NumberedShift], float] | None:
    if outside is None or not price:
        return None
    return lambda shift: price * outside(shift)
