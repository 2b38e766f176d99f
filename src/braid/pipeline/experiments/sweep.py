"""How are many simulations run at once, and each of them once?

A sweep is a list of points, each a set of settings and a seed. Every point is one Spark task, so that as many
simulations run at the same time as the session has cores, here or on a cluster whose machines share a folder:

    points = grid({"strategy": ["S0"], "dataset": ["DT1", "DT2"]}, seeds=5)
    report = sweep(spark, "package.module:function", points, Path("out"))

`function(RunTask) -> summary` is named by its import path, and settings and summary are JSON, so nothing has
to be pickled. A point's key is a hash of function, settings and seed; its finished run is
OUT/traces/run=<key>/ and is never repeated, neither by a retried or speculative task nor by the next sweep
(see `sweep_folder`).
"""

from __future__ import annotations

import hashlib
import importlib
import itertools
import json
import re
import sys
import time
import traceback
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from braid.errors import BraidError, ConfigurationError
from braid.pipeline.experiments.sweep_folder import (
    RUN_FORMAT,
    FinishedRun,
    RunFolder,
    clean_leftovers,
    finished_keys,
    read_run,
)
from braid.pipeline.experiments.sweep_progress import Watcher, watching

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    import pyarrow
    from pyspark.sql import SparkSession

__all__ = [
    "Failure",
    "Point",
    "RunTask",
    "SweepFailed",
    "SweepReport",
    "grid",
    "load_function",
    "run_point",
    "sweep",
    "traces_of",
]

# A second attempt cures what a busy disk or machine did; a third would only repeat a mistake of ours.
_ATTEMPTS = 2
_KEY_DIGITS = 20
_OUTCOME = "key string, error string"


class SweepFailed(BraidError):
    """Some points of a sweep have no run; the message says which, with their settings and errors."""


@dataclass(frozen=True, slots=True)
class Point:
    """One simulation to be run: JSON settings and a seed.

    `weight` is a guess of its cost relative to the others. Heavy points start first, so that no core is left
    alone with one of them at the end; it is no part of what the point is.
    """

    settings: Mapping[str, Any]
    seed: int
    weight: float = field(default=1.0, compare=False)

    def key(self, function: str) -> str:
        """The name of this point's run, the same in every process and on every machine."""
        text = json.dumps(
            {"format": RUN_FORMAT, "function": function, "settings": self.settings, "seed": self.seed},
            sort_keys=True,
            separators=(",", ":"),
            allow_nan=False,
        )
        # A letter first, because Spark takes a folder name of digits for a number.
        return "r" + hashlib.sha256(text.encode()).hexdigest()[:_KEY_DIGITS]

    def __str__(self) -> str:
        return ", ".join([*(f"{name}={value}" for name, value in self.settings.items()), f"seed={self.seed}"])


@dataclass(frozen=True, slots=True)
class RunTask:
    """What the function of a sweep is given."""

    settings: dict[str, Any]
    seed: int
    folder: Path
    """Where it writes its trace; committed when the function returns, removed when it raises."""
    shared: Path
    """The sweep's OUT, which holds what all runs read, such as workloads."""


@dataclass(frozen=True, slots=True)
class Failure:
    """A point without a run, and why."""

    point: Point
    error: str


@dataclass(frozen=True, slots=True)
class SweepReport:
    """What became of a sweep. `runs` are in the order of the points, without those that failed."""

    traces: Path
    runs: tuple[FinishedRun, ...]
    executed: int
    """How many of the runs this sweep did; the others had been there."""
    failures: tuple[Failure, ...]

    def checked(self) -> SweepReport:
        """Itself, if every point has a run.

        Raises:
            SweepFailed: with the settings and the error of each point that has none.
        """
        if not self.failures:
            return self
        lines = [f"{len(self.failures)} of {len(self.failures) + len(self.runs)} runs failed:"]
        for failure in self.failures:
            lines += [f"- {failure.point}", *(f"    {line}" for line in failure.error.splitlines())]
        lines.append("The other runs are kept; the same command goes on from there.")
        raise SweepFailed("\n".join(lines))


def grid(axes: Mapping[str, Sequence[Any]], *, seeds: int, first_seed: int = 1) -> list[Point]:
    """Every combination of the values of all axes, with every seed; the last axis varies fastest."""
    combinations = itertools.product(*axes.values())
    settings = [dict(zip(axes, values, strict=True)) for values in combinations]
    return [Point(each, seed) for each in settings for seed in range(first_seed, first_seed + seeds)]


def traces_of(out: Path) -> Path:
    """Where a sweep keeps its runs."""
    return out / "traces"


def sweep(
    spark: SparkSession,
    function: str,
    points: Sequence[Point],
    out: Path,
    *,
    description: str = "simulating",
    watcher: Watcher | None = None,
) -> SweepReport:
    """Run whatever has not been run yet, one Spark task per point.

    Args:
        spark: the session; its cores are how many points run at once.
        function: `module:function`, importable by the workers; takes a `RunTask` and returns a mapping.
        points: what to run; the same point twice is run once.
        out: the folder of the sweep, which all workers can write to.
        description: what a progress bar says; it is shown when standard error is a terminal.
        watcher: called with (finished, all) whenever that changes, instead of the bar.
    """
    load_function(function)
    traces = traces_of(out.resolve())
    traces.mkdir(parents=True, exist_ok=True)
    clean_leftovers(traces)
    wanted = {point.key(function): point for point in points}
    before = finished_keys(traces)
    missing = {key: point for key, point in wanted.items() if key not in before}
    errors: dict[str, str] = {}
    if missing:
        count_finished = _finished_counter(traces, set(wanted))
        with watching(count_finished, len(wanted), description, watcher):
            heaviest_first = sorted(missing, key=lambda key: -missing[key].weight)
            errors = _run_all(spark, function, missing, heaviest_first, traces)
        clean_leftovers(traces)
    finished = finished_keys(traces)
    return SweepReport(
        traces=traces,
        runs=tuple(read_run(traces, key) for key in wanted if key in finished),
        executed=sum(key in finished for key in missing),
        failures=tuple(
            Failure(point, errors.get(key, "its task ended without a word"))
            for key, point in wanted.items()
            if key not in finished
        ),
    )


def load_function(function: str) -> Callable[[RunTask], Mapping[str, Any]]:
    """The function behind `module:function`."""
    module_name, colon, name = function.partition(":")
    if not colon:
        raise ConfigurationError(
            f"{function!r} does not name a function: write it as package.module:function"
        )
    try:
        found = getattr(importlib.import_module(module_name), name)
    except (ImportError, AttributeError) as problem:
        raise ConfigurationError(f"{function!r} cannot be imported: {problem}") from problem
    if not callable(found):
        raise ConfigurationError(f"{function!r} is not a function")
    return found  # type: ignore[no-any-return]


def run_point(function: str, point: Point, out: Path) -> bool:
    """Run one point here and now, without Spark; False if its run was there, or somebody else was faster."""
    traces = traces_of(out.resolve())
    key = point.key(function)
    if key in finished_keys(traces):
        return False
    run = load_function(function)
    settings = json.loads(json.dumps(point.settings))
    with RunFolder(traces, key) as folder:
        started = time.perf_counter()
        summary = run(RunTask(settings, point.seed, folder.path, out.resolve()))
        seconds = round(time.perf_counter() - started, 3)
        document = json.loads(json.dumps(dict(summary)))
        return folder.commit(FinishedRun(key, function, settings, point.seed, document, seconds))


def _finished_counter(traces: Path, wanted: set[str]) -> Callable[[], int]:
    return lambda: len(finished_keys(traces) & wanted)


def _run_all(
    spark: SparkSession, function: str, missing: Mapping[str, Point], keys: Sequence[str], traces: Path
) -> dict[str, str]:
    """Run points as one job; returns the errors of those that failed, by key.

    A worker that dies again and again (out of memory, say) makes Spark give up the whole job. Then the halves
    of what is left are tried on their own, until the point that kills its worker is alone.
    """
    try:
        return dict(_run_job(spark, function, [missing[key] for key in keys], traces.parent))
    except Exception as problem:
        finished = finished_keys(traces)
        left = [key for key in keys if key not in finished]
        if not left:
            return {}
        if len(keys) == 1:
            return {left[0]: f"its worker did not survive: {_first_lines(problem)}"}
        if not _answers(spark):
            raise
        middle = (len(left) + 1) // 2
        errors = _run_all(spark, function, missing, left[:middle], traces)
        return errors | (_run_all(spark, function, missing, left[middle:], traces) if left[middle:] else {})


def _run_job(
    spark: SparkSession, function: str, points: Sequence[Point], out: Path
) -> Iterator[tuple[str, str]]:
    """One Spark job with a task per point; yields key and error of each that failed."""
    tasks = [(dict(point.settings), point.seed) for point in points]
    master = _master_of(spark)
    attempts = min(_ATTEMPTS, _attempts_allowed(spark, master))
    # Workers of a local session may import whatever this process can; a cluster has its own installation.
    search_path = [path for path in sys.path if path] if master.startswith("local") else []
    folder = str(out)

    def work(batches: Iterable[pyarrow.RecordBatch]) -> Iterator[pyarrow.RecordBatch]:
        import pyarrow

        for batch in batches:
            for number in batch.column(0).to_pylist():
                settings, seed = tasks[number]
                point = Point(settings, seed)
                error = _attempt(function, point, Path(folder), attempts, search_path)
                yield pyarrow.RecordBatch.from_pydict(
                    {"key": [point.key(function)], "error": [error]},
                    schema=pyarrow.schema([("key", pyarrow.string()), ("error", pyarrow.string())]),
                )

    # Exactly one number per partition, without a shuffle that adaptive execution could squeeze together.
    numbers = spark.range(0, len(tasks), 1, len(tasks))
    for key, error in numbers.mapInArrow(work, _OUTCOME).collect():
        if error is not None:
            yield key, error


def _attempt(function: str, point: Point, out: Path, attempts: int, search_path: Sequence[str]) -> str | None:
    """In a worker: run a point and say what went wrong, or raise so that Spark tries again."""
    import pyarrow
    from pyspark import TaskContext

    sys.path += [path for path in search_path if path not in sys.path]
    # A task has one core. Arrow would start a thread for each core of the machine, in every worker.
    pyarrow.set_cpu_count(1)
    try:
        run_point(function, point, out)
    except Exception as problem:
        context = TaskContext.get()
        attempt = context.attemptNumber() if context is not None else attempts
        if attempt + 1 < attempts and not isinstance(problem, ConfigurationError):
            raise
        return _told(problem)
    return None


def _told(problem: Exception) -> str:
    """An error as people want to read it: what, and where in our code."""
    what = f"{type(problem).__name__}: {problem}"
    if isinstance(problem, BraidError):
        return what
    places = traceback.extract_tb(problem.__traceback__)[-3:]
    return "\n".join([what, *(f"at {place.filename}:{place.lineno} in {place.name}" for place in places)])


def _first_lines(problem: Exception) -> str:
    return "\n".join(str(problem).splitlines()[:3])


def _answers(spark: SparkSession) -> bool:
    """Whether the session still works; if it does not, trying the points one by one is in vain."""
    try:
        return spark.range(1).count() == 1
    except Exception:
        return False


def _master_of(spark: SparkSession) -> str:
    try:
        return str(spark.conf.get("spark.master", ""))
    except Exception:  # a Spark Connect server may keep it to itself
        return ""


def _attempts_allowed(spark: SparkSession, master: str) -> int:
    """How often Spark runs a task before it gives up the job; more than that must never be hoped for."""
    if master.startswith("local"):
        told = re.fullmatch(r"local\[[^,\]]+,\s*(\d+)\s*\]", master)
        return int(told[1]) if told else 1
    try:
        return int(spark.conf.get("spark.task.maxFailures", "4") or 4) if master else 1
    except Exception:
        return 1
