"""How many publications per CPU second can be matched against how many filters, and by whom?"""

from __future__ import annotations

import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from braid.bench.cell import BenchSettings, Projections, measure_cell
from braid.bench.documented import DOCUMENTED
from braid.bench.environment import describe_environment, on_one_core
from braid.bench.goals import decide_goals
from braid.bench.workloads import WORKLOADS, make_workload
from braid.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

__all__ = ["bench_matching", "settings_for"]

_METHOD = (
    "One core, CPU time of the process. All contenders get the publications as the same attribute mappings "
    "and take turns on the same data; the median of the turns counts. match_groups answers which of the "
    "destinations have a matching filter, match_batch lists every matching key, count_batch counts. Every "
    "contender's answers are compared with the naive loop's on a sample before anything is timed. Index "
    "memory is what building the index and matching a batch keeps allocated while filters, keys and "
    "destinations exist already. The cost of an add includes the time it adds to later matches."
)


def settings_for(
    *, workloads: Sequence[str] | None = None, sizes: str | None = None, quick: bool = False, seed: int = 1
) -> BenchSettings:
    """Settings from what a person typed; `quick` fits into a minute."""
    quicker = {"sizes": (1_000, 10_000), "repeats": 3, "turn_seconds": 0.05, "publications": 4096}
    chosen: dict[str, Any] = dict(quicker) if quick else {}
    if workloads:
        names = tuple(name.strip().upper() for each in workloads for name in each.split(","))
        for name in names:
            if name not in WORKLOADS:
                raise ConfigurationError(f"there is no workload {name!r}; choose from {', '.join(WORKLOADS)}")
        chosen["workloads"] = tuple(dict.fromkeys(names))
    if sizes is not None:
        try:
            numbers = sorted({int(each.replace("_", "")) for each in sizes.split(",")})
        except ValueError:
            raise ConfigurationError(f"sizes are whole numbers such as 1000,10000, not {sizes!r}") from None
        if numbers[0] < 1:
            raise ConfigurationError("a size must be at least 1")
        chosen["sizes"] = tuple(numbers)
    return BenchSettings(seed=seed, **chosen)


def bench_matching(settings: BenchSettings, progress: bool = False) -> dict[str, Any]:
    """Measure every workload at every size; the report is plain data, ready for JSON."""
    cells: list[dict[str, Any]] = []
    skipped: list[dict[str, str]] = []
    projections = Projections()
    with on_one_core() as alone, _progress(len(settings.workloads) * len(settings.sizes), progress) as begin:
        for name in settings.workloads:
            try:
                make_workload(name, 1, 1, settings.seed)
            except ConfigurationError as error:
                skipped.append({"workload": name, "reason": str(error)})
                for _ in settings.sizes:
                    begin(f"{name}: skipped")
                continue
            for filters in settings.sizes:
                notify = begin(f"{name}, {filters:,} filters")
                cells.append(measure_cell(name, filters, settings, projections, notify))
    return {
        "benchmark": "matching",
        "method": _METHOD,
        "environment": {**describe_environment(), "pinned_to_one_core": alone},
        "settings": {
            "seed": settings.seed,
            "destinations": settings.destinations,
            "batches": list(settings.batches),
            "main_batch": settings.batches[-1],
            "repeats": settings.repeats,
            "turn_seconds": settings.turn_seconds,
            "publications": settings.publications,
        },
        "goals": decide_goals(cells, settings.batches[-1]),
        "cells": cells,
        "skipped": skipped,
        "documented_elsewhere": DOCUMENTED,
    }


@contextmanager
def _progress(total: int, visible: bool) -> Iterator[Callable[[str], Callable[[str], None]]]:
    """A function that begins a cell and returns one that says what is being done in it."""
    if not visible:

        def begin_plainly(title: str) -> Callable[[str], None]:
            sys.stderr.write(f"{title}\n")
            return lambda _: None

        yield begin_plainly
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("", total=total)
        begun = 0

        def begin(title: str) -> Callable[[str], None]:
            nonlocal begun
            bar.update(task, completed=begun, description=title)
            begun += 1
            return lambda step: bar.update(task, description=f"{title}: {step}")

        yield begin
