"""Which of the filters that are not in a segment yet does each publication satisfy?

One filter at a time. For a few publications a filter is simply evaluated; for more, each of its
bounds is held against the whole column at once.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from braid.language.evaluate import evaluate
from braid.matching.axis import plain_numbers
from braid.matching.columns import NUMBER, Batch, BoolArray, IntArray

if TYPE_CHECKING:
    from collections.abc import Iterable

    from braid.language.filters import Filter
    from braid.language.normal_form import Term
    from braid.language.value_sets import ValueSet
    from braid.matching.answers import Answer

__all__ = ["FEW_PUBLICATIONS", "match_waiting"]

# Up to so many publications plain evaluation is quicker than arrays.
FEW_PUBLICATIONS = 8


def match_waiting(waiting: Iterable[tuple[int, Filter]], batch: Batch, answer: Answer) -> None:
    """Find the matches of a batch without ranges among (slot, filter) pairs."""
    few = len(batch) <= FEW_PUBLICATIONS
    for slot, candidate in waiting:
        found: IntArray
        if few:
            rows = [row for row, each in enumerate(batch.publications) if candidate.matches(each)]
            found = np.array(rows, np.int64)
        else:
            found = np.flatnonzero(_satisfied(candidate, batch))
        if len(found):
            answer.add_pairs(found, np.full(len(found), slot), once=True)


def _satisfied(candidate: Filter, batch: Batch) -> BoolArray:
    satisfied = np.zeros(len(batch), np.bool_)
    for term in candidate.terms:
        satisfied |= _term_satisfied(term, batch)
    return satisfied


def _term_satisfied(term: Term, batch: Batch) -> BoolArray:
    satisfied = np.ones(len(batch), np.bool_)
    for name, values in term.box.items():
        satisfied &= _accepted(values, name, batch)
        if not satisfied.any():
            return satisfied
    for row in np.flatnonzero(satisfied).tolist() if term.residual else ():
        attributes: Any = batch.publications[row]
        satisfied[row] = all(evaluate(condition, attributes) is True for condition in term.residual)
    return satisfied


def _accepted(values: ValueSet, name: str, batch: Batch) -> BoolArray:
    column = batch.column(name)
    plain = plain_numbers(values)
    if plain is None or not column.uniform:
        return np.fromiter(map(values.accepts, column.values), np.bool_, len(batch))
    low, high = plain
    inside = (column.ordinals >= low) & (column.ordinals < high) & (column.kinds == NUMBER)
    return np.asarray(inside)
