"""How long does it take, and how much memory, on a machine that is never quite quiet?

Times are CPU seconds of this process. Everything that is compared is measured in turns, several
times, and the median counts: what disturbs one disturbs its rivals too.
"""

from __future__ import annotations

import gc
import os
import statistics
import tracemalloc
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from time import process_time
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

__all__ = ["Contest", "Rate", "resident_bytes", "settled_memory", "significant", "spent", "traced_memory"]


@dataclass(frozen=True, slots=True)
class Rate:
    """Publications per CPU second over several turns."""

    median: float
    best: float
    worst: float

    def to_json(self) -> dict[str, float]:
        """The three figures, rounded."""
        return {
            "median": significant(self.median),
            "best": significant(self.best),
            "worst": significant(self.worst),
        }


class Contest:
    """Runs that take turns, so that all of them meet the same disturbances."""

    def __init__(self) -> None:
        self._runs: dict[str, tuple[Callable[[Any], object], list[tuple[Any, int]]]] = {}

    def enter(self, name: str, run: Callable[[Any], object], batches: Sequence[tuple[Any, int]]) -> None:
        """`run` will be called with the first of each pair, which counts as that many publications."""
        self._runs[name] = run, list(batches)

    def hold(self, repeats: int, seconds: float) -> dict[str, Rate]:
        """Everyone runs for about `seconds`, `repeats` times over."""
        turns: dict[str, list[float]] = {name: [] for name in self._runs}
        for _ in range(repeats):
            for name, (run, batches) in self._runs.items():
                turns[name].append(_rate(run, batches, seconds))
        return {name: Rate(statistics.median(rates), max(rates), min(rates)) for name, rates in turns.items()}


def _rate(run: Callable[[Any], object], batches: list[tuple[Any, int]], seconds: float) -> float:
    done, time, position, step = 0, 0.0, 0, 1
    while time < seconds:
        turn = [batches[(position + offset) % len(batches)] for offset in range(step)]
        started = process_time()
        for batch, _ in turn:
            run(batch)
        time += process_time() - started
        done += sum(size for _, size in turn)
        position += step
        # Growing steps keep reading the clock out of what is measured.
        step = min(2 * step, len(batches))
    return done / time


def spent(action: Callable[[], Any]) -> tuple[float, Any]:
    """CPU seconds of one call, and its result."""
    started = process_time()
    result = action()
    return process_time() - started, result


@contextmanager
def settled_memory() -> Iterator[None]:
    """Let the garbage collector forget the long-lived objects while something is timed.

    A million filters would otherwise be visited again and again on behalf of whoever allocates.
    """
    gc.collect()
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()


@contextmanager
def traced_memory() -> Iterator[Callable[[], int]]:
    """A function that says how many bytes are allocated since here, NumPy's arrays included."""
    gc.collect()

    def allocated() -> int:
        gc.collect()
        return tracemalloc.get_traced_memory()[0]

    tracemalloc.start()
    try:
        yield allocated
    finally:
        tracemalloc.stop()


def resident_bytes() -> int | None:
    """Memory of this process that is in use, where the system says so."""
    try:
        pages = int(Path("/proc/self/statm").read_text().split()[1])
    except OSError:
        return None
    return pages * os.sysconf("SC_PAGE_SIZE")


def significant(value: float, digits: int = 4) -> float:
    """Rounded to what a measurement can mean."""
    return float(f"{value:.{digits}g}")
