"""How does the name of an experiment become rows, figures and a report?

    OUT/workloads/   what was published and subscribed to, made by Spark
    OUT/traces/      what happened, one folder per finished run
    OUT/results/     rows and figures of each experiment
    OUT/report.html  all of it on one page

Everything that is there already is used again, so an interrupted reproduction goes on where it stopped.
"""

from __future__ import annotations

import json
import tempfile
import time
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyspark.sql import functions as F

from braid.errors import ConfigurationError
from braid.pipeline.experiments.figures import draw
from braid.pipeline.experiments.registry import Evidence, Plan
from braid.pipeline.experiments.rows import rows_of
from braid.pipeline.experiments.sweep import sweep, traces_of
from braid.pipeline.traces import Traces

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Sequence

    from pyspark.sql import DataFrame, SparkSession

    from braid.pipeline.experiments.figures import Chart, Drawing
    from braid.pipeline.experiments.registry import Experiment, Scale
    from braid.pipeline.experiments.rows import Row

__all__ = ["Result", "SelectedTraces", "output_folder", "reproduce", "store"]


@dataclass(frozen=True, slots=True)
class Result:
    """What became of one experiment."""

    experiment: Experiment
    plan: Plan
    rows: Sequence[Row]
    charts: Sequence[Chart]
    runs: int
    executed: int
    settings: Sequence[dict[str, Any]]
    """The settings of its points, each once."""
    seconds: float
    simulation_seconds: float
    """What all its runs took together, whenever they were done."""


class SelectedTraces(Traces):
    """The tables of some runs of a folder that many experiments share."""

    def __init__(self, spark: SparkSession, root: Path | str, runs: Collection[str]) -> None:
        super().__init__(spark, root)
        self._runs = sorted(runs)

    def table(self, kind: str) -> DataFrame:
        """One table; `run` is a folder's name, so files of other runs are not even opened."""
        return super().table(kind).where(F.col("run").isin(self._runs))


def reproduce(
    spark: SparkSession,
    experiment: Experiment,
    *,
    scale: Scale = "quick",
    seeds: int | None = None,
    out: Path,
    say: Callable[[str], None] = lambda stage: None,
) -> Result:
    """Run an experiment and measure it.

    Args:
        spark: the session, which runs simulations and metrics.
        experiment: which one.
        scale: `paper` for the paper's own sizes, `quick` for fewer seeds and shorter runs.
        seeds: independent runs per setting; by default what the experiment asks for at that scale.
        out: where workloads and traces are kept.
        say: told what is being done.

    Raises:
        SweepFailed: a simulation failed; the others are kept.
        ConfigurationError: what was asked for is not possible.
    """
    if seeds is not None and seeds < 1:
        raise ConfigurationError(f"{seeds} seeds: at least one run per setting is needed")
    started = time.monotonic()
    plan = Plan(scale, experiment.seeds[scale] if seeds is None else seeds, out.resolve())
    plan.out.mkdir(parents=True, exist_ok=True)
    points = experiment.points(plan)
    if experiment.prepare is not None:
        say("making workloads")
        experiment.prepare(spark, plan, points)
    report = sweep(spark, experiment.function, points, plan.out, description="simulating").checked()
    say("computing metrics")
    # A run that was only watched has shown what it could by not failing.
    runs = {run.key: run for run in report.runs if not run.settings.get("watched")}
    evidence = Evidence(spark, plan, runs, SelectedTraces(spark, traces_of(plan.out), runs))
    findings = experiment.measure(evidence)
    rows = rows_of(experiment.paper, experiment.name, findings.samples, experiment.paper_values)
    settings = [json.loads(text) for text in dict.fromkeys(json.dumps(dict(p.settings)) for p in points)]
    return Result(
        experiment=experiment,
        plan=plan,
        rows=rows,
        charts=findings.charts(rows),
        runs=len(report.runs),
        executed=report.executed,
        settings=settings,
        seconds=round(time.monotonic() - started, 1),
        simulation_seconds=round(sum(run.seconds for run in report.runs), 1),
    )


def store(results: Sequence[Result], out: Path) -> Path:
    """Write rows, figures and a report of each result, and one report about all; returns the path of that.

    The next command in the same folder replaces the report about all, and leaves those of other experiments.
    """
    from braid.pipeline.experiments.report import report_page

    drawings: dict[str, list[Drawing]] = {}
    for result in results:
        name = result.experiment.full_name
        drawings[name] = [draw(chart) for chart in result.charts]
        folder = out / "results" / f"{name}-{result.plan.scale}"
        folder.mkdir(parents=True, exist_ok=True)
        rows = [row.to_json() for row in result.rows]
        _write(folder / "rows.json", (json.dumps(rows, indent=2, ensure_ascii=False) + "\n").encode())
        for drawing in drawings[name]:
            _write(folder / f"{drawing.chart.name}.svg", drawing.svg.encode())
            _write(folder / f"{drawing.chart.name}.png", drawing.png)
        _write(folder / "report.html", report_page([result], drawings).encode())
    path = out / "report.html"
    _write(path, report_page(results, drawings).encode())
    return path


def _write(path: Path, content: bytes) -> None:
    """A reader sees the old file or the new one, never a part."""
    temporary = path.with_name(f".{path.name}.tmp")
    temporary.write_bytes(content)
    temporary.replace(path)


@contextmanager
def output_folder(out: Path | None) -> Iterator[Path]:
    """The folder that was asked for, or a temporary one that is removed at the end."""
    if out is not None:
        if out.exists() and not out.is_dir():
            raise ConfigurationError(f"{out} is a file; results need a folder")
        out.mkdir(parents=True, exist_ok=True)
        yield out
        return
    with tempfile.TemporaryDirectory(prefix="braid-reproduce-", ignore_cleanup_errors=True) as folder:
        yield Path(folder)
