"""Which experiments are there, and what is one made of?

An experiment is a value. A module in a paper's package (`experiments/<paper>/`) that has a name `EXPERIMENT`
is one more experiment; nothing else has to be told. A package that has a name `PAPER` is one more paper.

    points    which simulations to run, at a scale and with a number of seeds
    prepare   what all of them read, such as workloads, made by Spark before the first of them
    function  the import path of what one Spark task does for one point (see `sweep`)
    measure   what the traces of all runs say together: samples and charts
"""

from __future__ import annotations

import difflib
import importlib
import pkgutil
from dataclasses import dataclass, field
from functools import cache
from typing import TYPE_CHECKING, Any, Literal

from braid.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

    from braid.pipeline.experiments.figures import Chart
    from braid.pipeline.experiments.rows import PaperValue, Row, Sample
    from braid.pipeline.experiments.sweep import Point
    from braid.pipeline.experiments.sweep_folder import FinishedRun
    from braid.pipeline.traces import Traces

__all__ = [
    "SCALES",
    "Evidence",
    "Experiment",
    "Findings",
    "Paper",
    "Plan",
    "Scale",
    "experiments_named",
    "papers",
    "registered",
]

Scale = Literal["quick", "paper"]
SCALES: tuple[Scale, ...] = ("quick", "paper")


@dataclass(frozen=True, slots=True)
class Paper:
    """A paper that is reproduced, with the short name that the documents use."""

    name: str
    title: str


@dataclass(frozen=True, slots=True)
class Plan:
    """How an experiment is to be run this time."""

    scale: Scale
    seeds: int
    out: Path


@dataclass(frozen=True, slots=True)
class Evidence:
    """What is there to be measured once all runs are finished."""

    spark: SparkSession
    plan: Plan
    runs: Mapping[str, FinishedRun]
    """The experiment's runs by key, which the column `run` of every table names."""
    traces: Traces
    """The tables of these runs only, whatever else the folder holds."""

    def by_run(self, table: DataFrame) -> list[tuple[FinishedRun, dict[str, Any]]]:
        """The rows of a small table, each with the run it is about, in the order of the runs."""
        place = {key: number for number, key in enumerate(self.runs)}
        found = [row.asDict() for row in table.collect()]
        return [(self.runs[row["run"]], row) for row in sorted(found, key=lambda row: place[row["run"]])]


@dataclass(frozen=True, slots=True)
class Findings:
    """What the runs say: a sample per run and quantity, and charts made of the rows that follow from them."""

    samples: Sequence[Sample]
    charts: Callable[[Sequence[Row]], Sequence[Chart]] = field(default=lambda rows: ())


@dataclass(frozen=True, slots=True)
class Experiment:
    """One claim of a paper, and how to look into it."""

    paper: str
    name: str
    title: str
    shows: str
    """A paragraph for the report: what the paper did, and how that is done here."""
    function: str
    points: Callable[[Plan], Sequence[Point]]
    measure: Callable[[Evidence], Findings]
    paper_values: Sequence[PaperValue] = ()
    seeds: Mapping[Scale, int] = field(default_factory=lambda: {"quick": 2, "paper": 5})
    prepare: Callable[[SparkSession, Plan, Sequence[Point]], None] | None = None
    shown: Sequence[str] = ()
    """Metrics that its page shows in any case, also where there are more rows than fit."""
    notes: Sequence[str] = ()
    """What a reader of the figures should know in any case."""
    differences: Mapping[str, str] = field(default_factory=dict)
    """For a metric: why it may come out more than 15 % away from the paper."""

    @property
    def full_name(self) -> str:
        """As `braid reproduce` takes it."""
        return f"{self.paper}.{self.name}"


@cache
def _discovered() -> tuple[dict[str, Paper], dict[str, Experiment]]:
    package = importlib.import_module("braid.pipeline.experiments")
    papers_found: dict[str, Paper] = {}
    experiments: dict[str, Experiment] = {}
    for entry in pkgutil.iter_modules(package.__path__, f"{package.__name__}."):
        if not entry.ispkg:
            continue
        folder = importlib.import_module(entry.name)
        paper = getattr(folder, "PAPER", None)
        if not isinstance(paper, Paper):
            continue
        papers_found[paper.name] = paper
        for module in pkgutil.iter_modules(folder.__path__, f"{folder.__name__}."):
            experiment = getattr(importlib.import_module(module.name), "EXPERIMENT", None)
            if isinstance(experiment, Experiment):
                experiments[experiment.full_name] = experiment
    return papers_found, experiments


def papers() -> dict[str, Paper]:
    """Every paper that has an experiment, by its short name."""
    return dict(_discovered()[0])


def registered() -> dict[str, Experiment]:
    """Every experiment, by its full name."""
    return dict(_discovered()[1])


def experiments_named(name: str) -> list[Experiment]:
    """The experiment of that full name, or all of a paper.

    Raises:
        ConfigurationError: there is none; the message has the names that were probably meant.
    """
    known = registered()
    if name in known:
        return [known[name]]
    chosen = [experiment for experiment in known.values() if experiment.paper == name]
    if chosen:
        return chosen
    candidates = [*papers(), *known]
    # People forget the paper, or mistype one half: compare with whole names and with last halves.
    halves = {candidate.rpartition(".")[2]: candidate for candidate in candidates}
    close = [*difflib.get_close_matches(name, candidates, n=2)]
    close += [halves[half] for half in difflib.get_close_matches(name, halves, n=2)]
    hint = " or ".join(dict.fromkeys(close))
    meant = f"did you mean {hint}? " if hint else ""
    raise ConfigurationError(
        f"no paper or experiment is called {name!r}; {meant}`braid reproduce list` shows them all"
    )
