"""How much faster is a sweep of simulations on more cores?

The same points, real simulations of a small network, run on one core and on several, in turns. Each turn has
a Spark session of its own and begins with a short sweep that nobody times, so that Java and its workers
are there. This is the one benchmark of wall time: a busy machine spoils it, so the report has the load.

    python -m braid_bench.sweep --output benchmarks/sweep.json
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from braid_bench.environment import describe_environment
from braid_bench.timing import significant

__all__ = ["SPEEDUP_GOAL", "main", "sweep_speedup"]

SPEEDUP_GOAL = 1.7
"""On two cores, against one."""


def sweep_speedup(
    *, points: int = 8, repeats: int = 3, cores: int = 2, duration_s: float = 60.0
) -> dict[str, Any]:
    """Measure a sweep on one core and on `cores`.

    Args:
        points: simulations in the sweep; a multiple of `cores`, or the last one has a core to itself.
        repeats: turns, of which the median counts.
        cores: how many against one.
        duration_s: how long each simulated network publishes, which decides how long a run takes.
    """
    load_before = os.getloadavg()[0] if hasattr(os, "getloadavg") else None
    seconds: dict[int, list[float]] = {1: [], cores: []}
    run_seconds: dict[int, list[float]] = {1: [], cores: []}
    for _ in range(repeats):
        for count in (1, cores):
            taken, of_runs = _timed(count, points, duration_s)
            seconds[count].append(taken)
            run_seconds[count] += of_runs
    speedup = statistics.median(seconds[1]) / statistics.median(seconds[cores])
    return {
        "environment": describe_environment(),
        "load_average_before": load_before,
        "settings": {"points": points, "repeats": repeats, "cores": cores, "duration_s": duration_s},
        "seconds": {str(count): [significant(each) for each in taken] for count, taken in seconds.items()},
        "seconds_per_run": {
            str(count): significant(statistics.median(taken)) for count, taken in run_seconds.items()
        },
        "speedup": significant(speedup, 3),
        "goal": SPEEDUP_GOAL,
        "reached": speedup >= SPEEDUP_GOAL,
    }


def _timed(cores: int, points: int, duration_s: float) -> tuple[float, list[float]]:
    """Seconds that a sweep takes on so many cores, and that each of its runs took."""
    from braid.pipeline.experiments.multipath.network import FUNCTION, prepare_workloads
    from braid.pipeline.experiments.registry import Plan
    from braid.pipeline.experiments.sweep import Point, sweep
    from braid.pipeline.session import spark_session

    workload = {"duration_s": duration_s}
    settings = {"configuration": "CPL", "dataset": "DT4", "strategy": "S0", "workload": workload}
    measured = [Point(settings, 1 + number) for number in range(points)]
    warm_up = [Point(settings, 1 + points + number) for number in range(cores)]
    with (
        tempfile.TemporaryDirectory(prefix="braid-bench-") as folder,
        spark_session("braid bench sweep", master=f"local[{cores}]") as spark,
    ):
        out = Path(folder)
        prepare_workloads(spark, Plan("quick", points, out), [*measured, *warm_up])
        sweep(spark, FUNCTION, warm_up, out).checked()
        started = time.perf_counter()
        report = sweep(spark, FUNCTION, measured, out).checked()
        return time.perf_counter() - started, [run.seconds for run in report.runs]


def main(arguments: list[str] | None = None) -> None:
    """Measure, print the report as JSON and, if asked to, store it."""
    parser = argparse.ArgumentParser(prog="python -m braid_bench.sweep", description=__doc__)
    parser.add_argument("--points", type=int, default=8, help="simulations in the sweep")
    parser.add_argument("--repeats", type=int, default=3, help="turns, of which the median counts")
    parser.add_argument("--duration", type=float, default=60.0, help="virtual seconds of each simulation")
    parser.add_argument("--output", type=Path, help="also store the report there")
    chosen = parser.parse_args(arguments)
    report = sweep_speedup(points=chosen.points, repeats=chosen.repeats, duration_s=chosen.duration)
    text = json.dumps(report, indent=2) + "\n"
    if chosen.output is not None:
        chosen.output.write_text(text, encoding="utf-8")
    sys.stdout.write(text)


if __name__ == "__main__":
    main()
