"""Does one filter accept everything another accepts? Can a publication satisfy both?

Exact for boxes; with residuals `covers` never says yes wrongly and `intersects` never says no
wrongly. A union covers a box if cutting out one box after the other leaves nothing of it, which is
why no single box needs to cover it. In the worst case the pieces multiply, so there is a bound on
the work; beyond it the answer is the safe one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from braid.language.normal_form import Box, Term, term_covers, terms_intersection
from braid.language.value_sets import ANYTHING

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

__all__ = ["STEPS_MAX", "covers", "intersects", "remainder"]

# Comparisons of two boxes for one question: well below a second. Filters written by people need a
# handful; two unions of some hundred boxes each stay within it.
STEPS_MAX = 200_000


class _OutOfSteps(Exception):
    """The question is too large to be decided."""


class _Steps:
    """What is left to spend on one question."""

    def __init__(self) -> None:
        self._left = STEPS_MAX

    def spend(self, count: int) -> None:
        self._left -= count
        if self._left < 0:
            raise _OutOfSteps


def covers(wider: Sequence[Term], narrower: Sequence[Term]) -> bool:
    """Whether every publication that satisfies a term of `narrower` satisfies one of `wider`."""
    if len(wider) == 1:
        return all(term_covers(wider[0], term) for term in narrower)
    candidates, steps = _Candidates(wider), _Steps()
    try:
        return all(candidates.cover(term, steps) for term in narrower)
    except _OutOfSteps:
        return False


def intersects(first: Sequence[Term], second: Sequence[Term]) -> bool:
    """Whether some publication can satisfy both."""
    for left in first:
        for right in second:
            if terms_intersection(left, right) is not None:
                return True
        if len(first) * len(second) > STEPS_MAX:
            return True
    return False


def remainder(term: Term, wider: Iterable[Term]) -> list[Box] | None:
    """The boxes that remain of `term` outside all of `wider`; None when that is too much work.

    A term of `wider` counts only if its residual is part of the residual of `term`: then, within
    `term`, its residual always holds and it is as good as its box.
    """
    try:
        return _remainder(term, wider, _Steps())
    except _OutOfSteps:
        return None


class _Candidates:
    """The terms of a union, arranged so that those which could cover a given one are found quickly."""

    def __init__(self, terms: Sequence[Term]) -> None:
        self._terms = terms
        self._keys = {_key(term) for term in terms}
        # What covers a box constrains no attribute that the box leaves free.
        self._by_name: dict[str | None, list[Term]] = {}
        for term in terms:
            self._by_name.setdefault(next(iter(term.box), None), []).append(term)

    def cover(self, term: Term, steps: _Steps) -> bool:
        if _key(term) in self._keys:
            return True
        for candidate in self._possible(term):
            steps.spend(1 + len(candidate.residual) * len(term.residual))
            if term_covers(candidate, term):
                return True
        return not _remainder(term, self._terms, steps)

    def _possible(self, term: Term) -> Iterator[Term]:
        for name in (None, *term.box):
            yield from self._by_name.get(name, ())


def _key(term: Term) -> object:
    return (frozenset(term.box.items()), term.residual)


def _remainder(term: Term, wider: Iterable[Term], steps: _Steps) -> list[Box]:
    residual = set(term.residual)
    pieces: list[Box] = [term.box]
    for candidate in wider:
        if not pieces:
            break
        steps.spend(len(pieces))
        if residual.issuperset(candidate.residual):
            pieces = [rest for piece in pieces for rest in _outside(piece, candidate.box)]
    return pieces


def _outside(piece: Box, box: Box) -> list[Box]:
    """Disjoint boxes that make up the part of `piece` outside `box`."""
    current = dict(piece)
    outside: list[Box] = []
    for name, values in box.items():
        present = current.get(name, ANYTHING)
        inside = present.intersection(values)
        if not inside:
            return [piece]
        beyond = present.difference(values)
        if beyond:
            outside.append({**current, name: beyond})
        current[name] = inside
    return outside
