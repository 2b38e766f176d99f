"""Did it reach what it was meant to reach?

Each goal is decided from the cells of a report; a goal whose cells were not measured in this run is
neither met nor missed.
"""

from __future__ import annotations

import operator
from typing import TYPE_CHECKING, Any

from braid_bench.timing import significant

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["decide_goals"]

Cells = dict[tuple[str, int], dict[str, Any]]
Measured = float | None
_RELATIONS: dict[str, Callable[[float, float], bool]] = {
    "at least": operator.ge,
    "at most": operator.le,
    "below": operator.lt,
}


def decide_goals(cells: list[dict[str, Any]], batch: int) -> list[dict[str, Any]]:
    """A row per goal: what was asked, what was measured, whether it was met (None: not measured)."""
    by_place: Cells = {(cell["workload"], cell["filters"]): cell for cell in cells}

    def groups(workload: str, filters: int) -> Measured:
        """Destinations as routers take them: one matrix per batch."""
        return _at(by_place, workload, filters, "braid", "rates", "group_matrix", str(batch), "median")

    def worst(*path: str) -> Measured:
        """The highest over all workloads at 100,000 filters: a bound has to hold for each of them."""
        values = [_at(by_place, workload, 100_000, *path) for workload in ("W1", "W2", "W3", "W4")]
        measured = [value for value in values if value is not None]
        return max(measured) if measured else None

    naive = next(
        (
            rival["rate"]["median"]
            for rival in by_place.get(("W1", 100_000), {}).get("rivals", [])
            if rival["name"] == "naive" and rival["rate"] is not None
        ),
        None,
    )
    rows: list[tuple[str, str, float, Measured]] = [
        (
            "W1 at 100,000 filters, 64 destinations: times the naive loop",
            "at least", 500, _ratio(groups("W1", 100_000), naive),
        ),
        (
            "W1 at 10,000 filters: publications per CPU second (destinations)",
            "at least", 300_000, groups("W1", 10_000),
        ),
        (
            "W2 at 10,000 filters: publications per CPU second (destinations)",
            "at least", 300_000, groups("W2", 10_000),
        ),
        (
            "W3 at 10,000 filters: share of W1's publications per CPU second (destinations)",
            "at least", 0.5, _ratio(groups("W3", 10_000), groups("W1", 10_000)),
        ),
        (
            "W2 from 10,000 to 100,000 filters: growth of the time per publication (linear would be 10)",
            "below", 10, _ratio(groups("W2", 10_000), groups("W2", 100_000)),
        ),
        (
            "index bytes per filter at 100,000 filters beside the filter objects, the largest workload",
            "at most", 400, worst("braid", "memory", "bytes_per_filter"),
        ),
        (
            "one add at 100,000 filters in microseconds, amortised, the largest over all workloads",
            "at most", 100, worst("braid", "add", "amortised_us"),
        ),
    ]  # fmt: skip
    return [
        {
            "goal": goal,
            "target": f"{relation} {target:,}",
            "measured": None if measured is None else significant(measured),
            "met": None if measured is None else _RELATIONS[relation](measured, target),
        }
        for goal, relation, target, measured in rows
    ]


def _ratio(above: Measured, below: Measured) -> Measured:
    return above / below if above is not None and below else None


def _at(cells: Cells, workload: str, filters: int, *path: str) -> Measured:
    place: Any = cells.get((workload, filters))
    for key in path:
        if not isinstance(place, dict):
            return None
        place = place.get(key)
    return place if isinstance(place, (int, float)) else None
