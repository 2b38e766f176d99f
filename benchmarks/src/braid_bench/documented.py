"""What is known about systems that cannot run here?

Figures measured earlier on a 2-core machine of the kind the project is developed on, with the same
workloads where they apply. They are context for a report, never part of a ratio.
"""

from __future__ import annotations

__all__ = ["DOCUMENTED", "LABEL"]

LABEL = "documented elsewhere, not measured here"


def _rates(system: str, workload: str, rates: dict[int, int], note: str = "") -> list[dict[str, object]]:
    return [
        {
            "system": system,
            "workload": workload,
            "filters": filters,
            "publications_per_cpu_second": rate,
            "note": note or LABEL,
        }
        for filters, rate in rates.items()
    ]


_EQUALITY = "equality conditions only"
_RETE = "20-62 us per publication at 1,000 filters, 251-581 us at 10,000; the slower end is shown"

DOCUMENTED: list[dict[str, object]] = [
    *_rates("PADRES 2.1 (Rete)", "its own", {1_000: 16_000, 10_000: 1_700}, f"{LABEL}: {_RETE}"),
    *_rates("event-ruler", "W1", {1_000: 2_900, 10_000: 150}),
    *_rates("event-ruler", "W2", {1_000: 17_700}),
    *_rates("event-ruler", _EQUALITY, {1_000: 210_000, 10_000: 61_000, 100_000: 5_700}),
    *_rates(
        "quamina", _EQUALITY, {1_000: 55_000, 10_000: 1_200, 100_000: 90}, f"{LABEL}: quamina has no ranges"
    ),
]
