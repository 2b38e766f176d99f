"""How long are plans, beside the shortest ones and those of the proof?

`python -m tests.reconfiguration.plan_lengths` prints a table of random pairs of trees, each tree as likely as
the others. The shortest plan is known where start and goal meet within `TREES_MAX` trees around both.
"""

from __future__ import annotations

import sys
from random import Random
from statistics import mean
from typing import NamedTuple

from braid.reconfiguration import PlanOptions, find_plan, theorem_plan
from braid.reconfiguration.search import exact
from braid.reconfiguration.slides import Slides
from tests.reconfiguration.random_trees import named, random_tree

__all__ = ["Lengths", "lengths", "table"]

TREES_MAX = 300_000


class Lengths(NamedTuple):
    """Mean SHIFTs of some random pairs of trees."""

    brokers: int
    pairs: int
    shortest: float | None
    """None where it is not known of all pairs."""
    found: float
    """By the beam alone, as for trees that are too large for an exact search."""
    theorem: float
    bound: float
    """Shown to be needed at least."""


def lengths(brokers: int, pairs: int, seed: int = 1, *, trees_max: int = TREES_MAX) -> Lengths:
    """Plan random pairs of trees in all ways."""
    chance = Random(f"{seed}/{brokers}")
    rows = []
    for _ in range(pairs):
        start, goal = (random_tree(chance, named(brokers)) for _ in range(2))
        slides = Slides(goal)
        known = exact(slides, slides.numbered(start), slides.numbered(goal), trees_max=trees_max)
        found = find_plan(start, goal, PlanOptions(trees_max=1))
        assert found.plan.start == start
        assert found.plan.goal == goal
        shortest = None if known.shifts is None else len(known.shifts)
        bound = max(known.shifts_min, found.shifts_min)
        rows.append((shortest, found.plan.shifts, theorem_plan(start, goal).shifts, bound))
    best = [row[0] for row in rows if row[0] is not None]
    return Lengths(
        brokers,
        pairs,
        mean(best) if len(best) == pairs else None,
        *(mean(row[column] for row in rows) for column in (1, 2, 3)),
    )


def table(sizes: list[tuple[int, int]]) -> str:
    """A Markdown table."""
    lines = [
        "| brokers | pairs | shortest plan | planner (beam alone) | proof of Theorem 1 | lower bound |",
        "|---|---|---|---|---|---|",
    ]
    for brokers, pairs in sizes:
        row = lengths(brokers, pairs)
        shortest = "not known" if row.shortest is None else f"{row.shortest:.2f}"
        lines.append(
            f"| {row.brokers} | {row.pairs} | {shortest} | {row.found:.2f} "
            f"| {row.theorem:.1f} | {row.bound:.1f} |"
        )
        print(lines[-1], file=sys.stderr)
    return "\n".join(lines)


if __name__ == "__main__":
    print(
        table(
            [(4, 100), (5, 100), (6, 100), (7, 100), (8, 50), (9, 30), (12, 30), (20, 20), (40, 10), (60, 10)]
        )
    )
