"""Which SHIFTs lead from a tree to another with the same brokers, and how few can they be?

`exact` looks at all trees around start and goal at once, one SHIFT further at a time, until the two meet:
that is the shortest way, and where the search has to stop, it has at least shown how long every way is.
`beam` keeps the trees that lack least and goes on from those; it looks at as many trees for every step.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

from braid.reconfiguration.slides import shifted

if TYPE_CHECKING:
    from collections.abc import Callable

    from braid.reconfiguration.slides import Beside, NumberedShift, Slides

__all__ = ["Exact", "beam", "exact"]

_Trail: TypeAlias = "tuple[_Trail, NumberedShift] | None"
"""The SHIFTs that led somewhere, the last one first."""
_Found: TypeAlias = "dict[int, tuple[Beside, _Trail]]"
"""Trees by their keys, and how they were reached."""


@dataclass(frozen=True, slots=True)
class Exact:
    """What looking at everything has shown."""

    shifts: tuple[NumberedShift, ...] | None
    """A way as short as any; None if it was not found."""
    shifts_min: int
    """No way is shorter."""


def exact(slides: Slides, start: Beside, goal: Beside, *, trees_max: int) -> Exact:
    """The shortest way, if fewer trees than `trees_max` lie within reach of it."""
    sides: list[_Found] = [{slides.key(start): (start, None)}, {slides.key(goal): (goal, None)}]
    seen: list[_Found] = [dict(side) for side in sides]
    depth = 0
    while True:
        met = seen[0].keys() & seen[1].keys()
        if met:
            key = min(met)
            forth, back = (_trail(side[key][1]) for side in seen)
            return Exact((*forth, *((moving, new, old) for moving, old, new in reversed(back))), depth)
        side = 0 if len(sides[0]) <= len(sides[1]) else 1
        front: _Found = {}
        for key, (beside, trail) in sides[side].items():
            for _, shift in slides.shifts(beside):
                after = slides.key_after(key, shift)
                if after in seen[side] or after in front:
                    continue
                tree = shifted(beside, shift)
                if slides.allows(tree):
                    front[after] = (tree, (trail, shift))
            if len(seen[0]) + len(seen[1]) + len(front) > trees_max:
                return Exact(None, depth + 1)
        if not front:
            return Exact(None, depth + 1)  # the limits leave no way
        seen[side].update(front)
        sides[side] = front
        depth += 1


def beam(
    slides: Slides,
    start: Beside,
    *,
    width: int,
    shifts_max: int,
    price: Callable[[NumberedShift], float] | None = None,
) -> tuple[NumberedShift, ...] | None:
    """A way that keeps the `width` most promising trees after each SHIFT; None if they lead nowhere.

    Args:
        slides: knows the goal and the limits.
        start: the tree to begin with.
        width: how many trees are kept.
        shifts_max: how long the way may be.
        price: what a SHIFT costs beside the step itself, in units of the lack.
    """
    key = slides.key(start)
    trees: list[tuple[float, int, Beside, int, _Trail]] = [(0.0, slides.lack(start), start, key, None)]
    seen = {key}
    for _ in range(shifts_max + 1):
        for _, lack, _, _, trail in trees:
            if not lack:
                return _trail(trail)
        wishes = []
        for number, (paid, lack, beside, _, _) in enumerate(trees):
            for change, shift in slides.shifts(beside):
                cost = paid + price(shift) if price is not None else paid
                wishes.append((lack + change + cost, number, shift, lack + change, cost))
        wishes.sort()
        kept: list[tuple[float, int, Beside, int, _Trail]] = []
        for _, number, shift, lack, cost in wishes:
            _, _, beside, key, trail = trees[number]
            after = slides.key_after(key, shift)
            if after in seen:
                continue
            seen.add(after)
            tree = shifted(beside, shift)
            if slides.allows(tree):
                kept.append((cost, lack, tree, after, (trail, shift)))
                if len(kept) == width:
                    break
        trees = kept
    return None


def _trail(trail: _Trail) -> tuple[NumberedShift, ...]:
    found = []
    while trail is not None:
        trail, shift = trail
        found.append(shift)
    return tuple(reversed(found))
