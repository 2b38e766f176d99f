"""Which z-codes stand for a filter, and which for a publication?

After the infrastructure-free paper (Section III, Figures 2 and 3): every attribute is divided into cells by
halving it again and again, so that a cell is named by bits, and the codes of two attributes are joined. A
filter is covered by a few regions of one size (its level); a publication lies in exactly one region of every
level. So a filter can match only where one of its codes equals one of the publication's; since regions
are larger than filters, every candidate is then decided by the exact bounds (see the errata of that paper:
codes give no false negatives, but many false positives).

Numbers are taken by their ordinals (`braid.matching.columns.ordinals_of`), which order all doubles, and an
attribute is divided where the bounds of the filters are, so that cells are small where filters are.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from braid.matching.axis import plain_numbers
from braid.matching.columns import LARGE, NUMBER

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from braid.language import Filter
    from braid.matching.from_arrow import ArrowPublications
    from braid.pipeline.matching_join.shards import ReadFilters

__all__ = [
    "NO_BOUND",
    "NO_NUMBER",
    "Grid",
    "cover",
    "grid_from",
    "known_bounds",
    "publication_codes",
    "publication_ordinals",
    "space_of",
]

# An attribute has 2**BITS cells.
BITS = 8
# A filter is covered by at most so many regions.
REGIONS_MAX = 4
# Filters that speak about other attributes than the most frequent ones go another way.
ATTRIBUTES_MAX = 24

# Below every interval of ordinals: the attribute is absent or no number.
NO_NUMBER = int(np.iinfo(np.int64).min)
NO_BOUND = int(np.iinfo(np.int64).max)

Bounds = dict[str, tuple[int, int]]


@dataclass(frozen=True, slots=True)
class Grid:
    """Where each attribute is divided: the ordinals at which cells begin, without the first."""

    names: tuple[str, ...]
    starts: tuple[Any, ...]


def known_bounds(read: ReadFilters) -> list[Bounds | None]:
    """For each filter an interval of ordinals (the end excluded) per attribute; None where it is more."""
    found: list[Bounds | None] = [{} if plain else None for plain in read.boxes.plain.tolist()]
    names = read.boxes.names
    columns = (read.boxes.texts, read.boxes.attributes, read.boxes.lows, read.boxes.highs)
    for place, attribute, low, high in zip(*(column.tolist() for column in columns), strict=True):
        bounds = found[place]
        if bounds is not None:
            bounds[names[attribute]] = low, high
    # One that contradicts itself bounds nothing, and the index knows what to do with it.
    found = [bounds or None for bounds in found]
    for place in np.flatnonzero(~read.boxes.plain).tolist():
        found[place] = _bounds_of(read.filters[place])
    return found


def _bounds_of(filter: Filter) -> Bounds | None:
    if len(filter.terms) != 1 or filter.terms[0].residual or not filter.terms[0].box:
        return None
    bounds: Bounds = {}
    for name, values in filter.terms[0].box.items():
        plain = plain_numbers(values)
        if plain is None:
            return None
        bounds[name] = plain
    return bounds


def grid_from(sample: Sequence[Bounds]) -> Grid:
    """A grid for filters like these."""
    found: dict[str, list[int]] = {}
    for bounds in sample:
        for name, interval in bounds.items():
            found.setdefault(name, []).extend(interval)
    names = sorted(found, key=lambda name: (-len(found[name]), name))[:ATTRIBUTES_MAX]
    starts = []
    for name in names:
        ordinals = np.unique(np.array(found[name], np.int64))
        chosen = np.linspace(0, len(ordinals) - 1, min(len(ordinals), 2**BITS - 1)).astype(np.intp)
        starts.append(ordinals[np.unique(chosen)])
    return Grid(tuple(names), tuple(starts))


def cover(grid: Grid, bounds: Mapping[str, tuple[int, int]]) -> list[int] | None:
    """The codes of the regions that a filter lies in; None where it speaks about other attributes."""
    if not all(name in grid.names for name in bounds):
        return None
    spans = []
    for name, (low, high) in bounds.items():
        place = grid.names.index(name)
        first, last = np.searchsorted(grid.starts[place], [low, high - 1], side="right").tolist()
        spans.append((last - first, place, first, last))
    # The narrowest attributes tell most.
    chosen = sorted(sorted(spans)[:2], key=lambda span: span[1])
    level = BITS
    while _regions(chosen, level) > REGIONS_MAX:
        level -= 1
    shift = BITS - level
    sides = [range(first >> shift, (last >> shift) + 1) for _, _, first, last in chosen]
    places = [place for _, place, _, _ in chosen]
    if len(chosen) == 1:
        return [_code(places[0], -1, level, cell, 0) for cell in sides[0]]
    return [_code(places[0], places[1], level, cell, other) for cell in sides[0] for other in sides[1]]


def _regions(spans: Sequence[tuple[int, int, int, int]], level: int) -> int:
    shift = BITS - level
    count = 1
    for _, _, first, last in spans:
        count *= (last >> shift) - (first >> shift) + 1
    return count


def _code(first: int, second: int, level: int, cell: Any, other: Any) -> Any:
    """Attributes, level and cells in one number; arrays of cells give arrays."""
    space = first * (ATTRIBUTES_MAX + 1) + second + 1
    return ((space * (BITS + 1) + level) << 2 * BITS) | (cell << BITS) | other


def space_of(code: int) -> int:
    """The part of a code that says which attributes and which level, for `publication_codes`."""
    return code >> 2 * BITS


def publication_ordinals(grid: Grid, publications: ArrowPublications) -> Any:
    """One line per attribute of the grid, `NO_NUMBER` where a publication has none."""
    lines = []
    for name in grid.names:
        column = publications.column(name)
        numeric = (column.kinds == NUMBER) | (column.kinds == LARGE)
        lines.append(np.where(numeric, column.ordinals, NO_NUMBER))
    return np.array(lines, np.int64).reshape(len(grid.names), len(publications))


def publication_codes(grid: Grid, ordinals: Any, spaces: Sequence[int]) -> tuple[Any, Any]:
    """The codes of publications in these spaces, and -1 for each: two arrays, rows (ascending) and codes."""
    size = ordinals.shape[1]
    cells = [
        np.searchsorted(starts, line, side="right")
        for starts, line in zip(grid.starts, ordinals, strict=True)
    ]
    present = ordinals != NO_NUMBER
    codes = np.full((size, len(spaces) + 1), -2, np.int64)
    codes[:, 0] = -1
    for column, space in enumerate(spaces, 1):
        places, level = divmod(space, BITS + 1)
        first, second = divmod(places, ATTRIBUTES_MAX + 1)
        shift = BITS - level
        other = cells[second - 1] >> shift if second else 0
        found = _code(first, second - 1, level, cells[first] >> shift, other)
        both = present[first] & present[second - 1] if second else present[first]
        codes[:, column] = np.where(both, found, -2)
    rows, columns = np.nonzero(codes >= -1)
    return rows, codes[rows, columns]
