"""What do the tests of the routing room share? Small filters, and every publication they can tell apart."""

from __future__ import annotations

from functools import cache
from itertools import product

from hypothesis import strategies as st

from braid.language import Filter

BOX_TEXTS = [
    "TRUE",
    "FALSE",
    *(f"a > {bound}" for bound in range(4)),
    *(f"a < {bound}" for bound in range(1, 5)),
    *(f"a BETWEEN {low} AND {high}" for low in range(4) for high in range(low, 5)),
    *(f"s = '{word}'" for word in "xy"),
    *(f"s = '{word}' AND a > {bound}" for word in "xy" for bound in range(3)),
    *(f"b = {value} AND a <= {bound}" for value in (1, 3) for bound in (2, 3)),
    "s IN ('x', 'y')",
    "a IS NULL OR a > 2",
    "a IS NULL",
    "b IS NOT NULL",
    "a = 1 OR b = 3",
    "a < 2 OR a > 3",
    "s LIKE 'x%'",
]
RESIDUAL_TEXTS = ["a < b", "a < b AND s = 'x'", "s LIKE '%x'", "s LIKE '%x' AND a > 1", "a + b > 4", "a <> b"]

# Parsed once: the canonical text and the boxes stay with the object.
BOX_FILTERS = [Filter(text) for text in BOX_TEXTS]
ALL_FILTERS = BOX_FILTERS + [Filter(text) for text in RESIDUAL_TEXTS]

PUBLICATIONS = [
    {name: value for name, value in (("a", a), ("b", b), ("s", s)) if value is not None}
    for a, b, s in product([None, 0, 1, 2, 3, 4], [None, 1, 3], [None, "x", "y"])
]
_ACCEPTED = {
    str(each): frozenset(row for row, attributes in enumerate(PUBLICATIONS) if each.matches(attributes))
    for each in ALL_FILTERS
}

box_filters = st.sampled_from(BOX_FILTERS)
all_filters = st.sampled_from(ALL_FILTERS)


def accepted(filter: Filter) -> frozenset[int]:
    """The rows of `PUBLICATIONS` that satisfy a filter."""
    return _ACCEPTED[str(filter)]


@cache
def covers(wider: Filter, narrower: Filter) -> bool:
    """The same as `wider.covers(narrower)`, asked once per pair."""
    return wider.covers(narrower)


@cache
def intersects(one: Filter, other: Filter) -> bool:
    """The same as `one.intersects(other)`, asked once per pair."""
    return one.intersects(other)


@cache
def has_residual(filter: Filter) -> bool:
    """Whether covering is decided with caution."""
    return any(term.residual for term in filter.terms)
