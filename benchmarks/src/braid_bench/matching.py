"""How many publications per CPU second can be matched against how many filters, and by whom?"""

from __future__ import annotations

import os
import sys
from contextlib import contextmanager
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from braid.errors import ConfigurationError
from braid_bench.cell import BenchSettings, Projections, measure_cell, measure_cell_apart
from braid_bench.documented import DOCUMENTED
from braid_bench.environment import describe_environment, on_one_core
from braid_bench.goals import decide_goals
from braid_bench.workloads import WORKLOADS, require_data

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

__all__ = ["bench_matching", "settings_for"]

_METHOD = (
    "One core, CPU time of the process. All contenders get the publications as the same attribute mappings "
    "and take turns on the same data; the median of the turns counts. group_matrix and match_groups answer "
    "which of the destinations have a matching filter, as one matrix and as sets; match_batch lists every "
    "matching key, count_batch counts. Every contender's answers are compared with the naive loop's on a "
    "sample before anything is timed. Each workload and size has a process of its own, in which rivals are "
    "built first, on a clean heap. Index memory is what building the index and matching a batch keeps "
    "allocated beside the keys, destinations and filters with their normal form, whose size is shown too. "
    "The mean of an add includes all merging; amortised adds what it leaves for later matches to do, such as "
    "making the bitmaps of a new segment."
)


def settings_for(
    *, workloads: Sequence[str] | None = None, sizes: str | None = None, quick: bool = False, seed: int = 1
) -> BenchSettings:
    """Settings from what a person typed; `quick` fits into a minute."""
    quicker = {
        "sizes": (1_000, 10_000),
        "repeats": 3,
        "turn_seconds": 0.015,
        "batches": (1, 1024),
        "changes": 500,
    }
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


def bench_matching(
    settings: BenchSettings, progress: bool = False, store: Callable[[dict[str, Any]], None] | None = None
) -> dict[str, Any]:
    """Measure every workload at every size; the report is plain data, ready for JSON.

    `store` gets the report so far after every cell, so that a run cut short is not lost.
    """
    cells: list[dict[str, Any]] = []
    skipped: list[dict[str, str]] = []
    measure = measure_cell_apart if settings.apart else measure_cell
    cells_total = len(settings.workloads) * len(settings.sizes)
    with on_one_core() as alone, _kernels_compiled_once(), _progress(cells_total, progress) as begin:
        for name in settings.workloads:
            try:
                require_data(name)
            except ConfigurationError as error:
                skipped.append({"workload": name, "reason": str(error)})
                for _ in settings.sizes:
                    begin(f"{name}: skipped")
                continue
            projections: Projections = {}
            for filters in settings.sizes:
                begin(f"{name}, {filters:,} filters")
                cell, projections = measure(name, filters, settings, projections)
                cells.append(cell)
                if store is not None:
                    store(_report(settings, cells, skipped, alone))
    return _report(settings, cells, skipped, alone)


def _report(
    settings: BenchSettings, cells: list[dict[str, Any]], skipped: list[dict[str, str]], alone: bool
) -> dict[str, Any]:
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
def _kernels_compiled_once() -> Iterator[None]:
    """A place where the processes of one run share what numba compiles."""
    if "NUMBA_CACHE_DIR" in os.environ:
        yield
        return
    with TemporaryDirectory(prefix="braid-bench-") as directory:
        os.environ["NUMBA_CACHE_DIR"] = directory
        try:
            yield
        finally:
            del os.environ["NUMBA_CACHE_DIR"]


@contextmanager
def _progress(total: int, visible: bool) -> Iterator[Callable[[str], None]]:
    """A function that says which cell begins: on a bar, or as a line where nobody sees a bar."""
    if not visible:
        yield lambda title: print(title, file=sys.stderr, flush=True)
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("", total=total)
        begun = 0

        def begin(title: str) -> None:
            nonlocal begun
            bar.update(task, completed=begun, description=title)
            begun += 1

        yield begin
