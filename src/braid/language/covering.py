"""Does one filter accept everything another accepts? Can a publication satisfy both?

Exact for boxes; with residuals `covers` never says yes wrongly and `intersects` never says no
wrongly. A union covers a box if cutting out one box after the other leaves nothing of it, which is
why no single box needs to cover it. In the worst case the pieces multiply, so there is a bound
beyond which the answer is a safe no.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from braid.language.normal_form import Box, Term, term_covers, terms_intersection
from braid.language.value_sets import ANYTHING

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["PIECES_MAX", "covers", "intersects", "remainder"]

# A few hundred milliseconds of work at most; filters written by people need a handful of pieces.
PIECES_MAX = 20_000


def covers(wider: Sequence[Term], narrower: Sequence[Term]) -> bool:
    """Whether every publication that satisfies a term of `narrower` satisfies one of `wider`."""
    return all(
        any(term_covers(candidate, term) for candidate in wider) or remainder(term, wider) == []
        for term in narrower
    )


def intersects(first: Sequence[Term], second: Sequence[Term]) -> bool:
    """Whether some publication can satisfy both."""
    return any(terms_intersection(left, right) is not None for left in first for right in second)


def remainder(term: Term, wider: Sequence[Term]) -> list[Box] | None:
    """The boxes that remain of `term` outside all of `wider`; None when there were too many pieces.

    A term of `wider` counts only if its residual is part of the residual of `term`: then, within
    `term`, its residual always holds and it is as good as its box.
    """
    residual = set(term.residual)
    pieces: list[Box] = [term.box]
    made = 0
    for candidate in wider:
        if not residual.issuperset(candidate.residual):
            continue
        pieces = [rest for piece in pieces for rest in _outside(piece, candidate.box)]
        made += len(pieces)
        if not pieces:
            return []
        if made > PIECES_MAX:
            return None
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
