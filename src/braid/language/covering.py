"""Does one filter accept everything another accepts? Can a publication satisfy both?

Exact for boxes; with residuals `covers` never says yes wrongly and `intersects` never says no
wrongly. A union covers a box if cutting out one box after the other leaves nothing of it, which is
why no single box needs to cover it. In the worst case the pieces multiply, so there is a bound on
the work; beyond it the answer is the safe one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from braid.language.normal_form import Box, Term, box_covers, terms_intersect
from braid.language.value_sets import ANYTHING

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from braid.language.expressions import Condition
    from braid.language.value_sets import ValueSet

__all__ = ["STEPS_MAX", "Steps", "covers", "intersects", "remainder"]

# Comparisons of two small sets of values for one question: some tenths of a second. Filters written by
# people need a handful; two unions of some hundred boxes each stay within it.
STEPS_MAX = 100_000
# So many intervals of a large set cost as much as a small set.
_INTERVALS_PER_STEP = 8

_NOTHING_BEYOND: frozenset[Condition] = frozenset()


class _OutOfSteps(Exception):
    """The question is too large to be decided."""


class Steps:
    """What is left to spend on one question, or on several together."""

    def __init__(self, steps_max: int = STEPS_MAX) -> None:
        self._left = steps_max

    def spend(self, count: int) -> None:
        """Take so many of them; without any left the question cannot be decided."""
        self._left -= count
        if self._left < 0:
            raise _OutOfSteps


def covers(wider: Sequence[Term], narrower: Sequence[Term], steps: Steps | None = None) -> bool:
    """Whether every publication that satisfies a term of `narrower` satisfies one of `wider`.

    `steps` bounds the work; a question that is too large is answered with no.
    """
    if len(wider) == 1:
        box, residual = wider[0].box, _residual(wider[0])
        return all(box_covers(box, term.box) and residual <= _residual(term) for term in narrower)
    candidates, steps = _Candidates(wider), steps if steps is not None else Steps()
    try:
        return all(candidates.cover(term, steps) for term in narrower)
    except _OutOfSteps:
        return False


def intersects(first: Sequence[Term], second: Sequence[Term]) -> bool:
    """Whether some publication can satisfy both."""
    if len(first) == len(second) == 1:
        return terms_intersect(first[0], second[0])
    steps = Steps()
    sizes = [_size(term) for term in second]
    try:
        for left in first:
            size = _size(left)
            for right, other in zip(second, sizes, strict=True):
                steps.spend(1 + (size + other) // _INTERVALS_PER_STEP)
                if terms_intersect(left, right):
                    return True
    except _OutOfSteps:
        return True
    return False


def remainder(term: Term, wider: Iterable[Term]) -> list[Box] | None:
    """The boxes that remain of `term` outside all of `wider`; None when that is too much work.

    A term of `wider` counts only if its residual is part of the residual of `term`: then, within
    `term`, its residual always holds and it is as good as its box.
    """
    try:
        return _remainder(term.box, _residual(term), ((each, _residual(each)) for each in wider), Steps())
    except _OutOfSteps:
        return None


class _Candidates:
    """The terms of a union, arranged so that those which could cover a given one are found quickly."""

    def __init__(self, terms: Sequence[Term]) -> None:
        # With their residuals as sets: to find out anew what a large condition is costs its size.
        self._terms = [(term, _residual(term)) for term in terms]
        self._keys = {(frozenset(term.box.items()), residual) for term, residual in self._terms}
        # What covers a box constrains no attribute that the box leaves free.
        self._by_name: dict[str | None, list[tuple[Term, frozenset[Condition]]]] = {}
        for each in self._terms:
            self._by_name.setdefault(next(iter(each[0].box), None), []).append(each)

    def cover(self, term: Term, steps: Steps) -> bool:
        residual = _residual(term)
        if (frozenset(term.box.items()), residual) in self._keys:
            return True
        cost = 1 + _size(term) // _INTERVALS_PER_STEP
        for candidate, theirs in self._possible(term):
            steps.spend(cost)
            if theirs <= residual and box_covers(candidate.box, term.box):
                return True
        return not _remainder(term.box, residual, self._terms, steps)

    def _possible(self, term: Term) -> Iterator[tuple[Term, frozenset[Condition]]]:
        for name in (None, *term.box):
            yield from self._by_name.get(name, ())


def _residual(term: Term) -> frozenset[Condition]:
    return frozenset(term.residual) if term.residual else _NOTHING_BEYOND


def _size(term: Term) -> int:
    """What it takes to go through a term once."""
    return len(term.residual) + sum(1 + _intervals(values) for values in term.box.values())


def _intervals(values: ValueSet) -> int:
    return len(values.integers) + len(values.floats) + len(values.strings)


def _remainder(
    box: Box,
    residual: frozenset[Condition],
    wider: Iterable[tuple[Term, frozenset[Condition]]],
    steps: Steps,
) -> list[Box]:
    pieces: list[Box] = [box]
    for candidate, theirs in wider:
        if not pieces:
            break
        steps.spend(len(pieces))
        if theirs <= residual:
            pieces = [rest for piece in pieces for rest in _outside(piece, candidate.box, steps)]
    return pieces


def _outside(piece: Box, box: Box, steps: Steps) -> list[Box]:
    """Disjoint boxes that make up the part of `piece` outside `box`."""
    current = dict(piece)
    outside: list[Box] = []
    for name, values in box.items():
        present = current.get(name, ANYTHING)
        steps.spend(1 + (_intervals(present) + _intervals(values)) // _INTERVALS_PER_STEP)
        inside = present.intersection(values)
        if not inside:
            return [piece]
        beyond = present.difference(values)
        if beyond:
            outside.append({**current, name: beyond})
        current[name] = inside
    return outside
