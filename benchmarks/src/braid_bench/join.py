"""How much CPU does the matching join take, compared with Spark's own join?

CPU seconds are those of the whole tree of processes below this one: Java, the Python workers, and those that
have ended meanwhile. Every run pays for everything: reading the tables, parsing the filters, indexing,
matching, and handing the rows to a sink that drops them.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, NamedTuple

from braid.errors import ConfigurationError
from braid_bench.environment import describe_environment
from braid_bench.join_tables import DESTINATIONS, WHOLE, WORKLOADS, cross_join_condition, write_tables
from braid_bench.timing import significant

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import DataFrame, SparkSession

__all__ = ["JoinBenchSettings", "TreeClock", "bench_join", "decide_join_goals", "print_join_report"]

_METHOD = (
    "CPU seconds of the driver, the Java process and all Python workers together, from the system's own "
    "accounts; wall time depends on who else uses the machine. Each run reads Parquet files and writes to a "
    "sink that drops its rows. Braid gets filters as SQL text, which it parses and indexes within the "
    "measured time. Spark's own join gets them as a table of a low and a high number per attribute, "
    "broadcast, and compares numbers only, without NULL; it parses nothing. A small run of everything "
    "comes first and is not counted, so that neither pays for the start of Java and of the workers. "
    "Where destinations are asked for, the ratio is to Spark's counts, which cost it less than collecting "
    "destinations would."
)


@dataclass(frozen=True, kw_only=True)
class JoinBenchSettings:
    """What is measured."""

    publications: int = 200_000
    few_publications: int = 50_000
    """From these to `publications` the growth is taken."""
    filters: int = 50_000
    many_filters: int = 500_000
    """Filters of the largest runs."""
    rival_publications: int = 200_000
    """Publications for Spark's own join, which takes them times the filters."""
    pairs_publications: int = 20_000
    """The same, for both, where every pair is listed: half a hundred million of them."""
    warm_publications: int = 20_000
    """Publications of the runs that are not counted, enough for Java to have compiled what it will run."""
    workloads: tuple[str, ...] = (*WORKLOADS, WHOLE)
    seed: int = 1
    quick: bool = False

    @classmethod
    def quickly(cls, seed: int = 1) -> JoinBenchSettings:
        """Two minutes instead of eight; too small for the goals that speak of a ratio."""
        return cls(
            publications=50_000,
            few_publications=12_500,
            filters=10_000,
            many_filters=50_000,
            rival_publications=20_000,
            pairs_publications=10_000,
            warm_publications=2_000,
            seed=seed,
            quick=True,
        )


def bench_join(
    settings: JoinBenchSettings,
    spark: SparkSession,
    *,
    say: Callable[[str], None] | None = None,
    store: Callable[[dict[str, Any]], None] | None = None,
) -> dict[str, Any]:
    """Measure everything; the report is plain data, ready for JSON. `store` gets it after every run."""
    with TemporaryDirectory(prefix="braid-bench-") as directory, TreeClock() as clock:
        bench = _Bench(settings, spark, clock, say or _say, store)
        bench.measure(Path(directory))
    return bench.report()


class _Bench:
    def __init__(
        self,
        settings: JoinBenchSettings,
        spark: SparkSession,
        clock: TreeClock,
        say: Callable[[str], None],
        store: Callable[[dict[str, Any]], None] | None,
    ) -> None:
        self._settings = settings
        self._spark = spark
        self._clock = clock
        self._say = say
        self._store = store
        self._runs: list[dict[str, Any]] = []

    def report(self) -> dict[str, Any]:
        chosen = self._settings
        return {
            "benchmark": "join",
            "method": _METHOD,
            "environment": {**describe_environment(), "master": self._spark.sparkContext.master},
            "settings": {
                "publications": chosen.publications,
                "rival_publications": chosen.rival_publications,
                "pairs_publications": chosen.pairs_publications,
                "filters": chosen.filters,
                "many_filters": chosen.many_filters,
                "destinations": DESTINATIONS,
                "seed": chosen.seed,
                "quick": chosen.quick,
            },
            "goals": decide_join_goals(self._runs),
            "runs": self._runs,
        }

    def measure(self, directory: Path) -> None:
        """All runs, those that the goals need first."""
        chosen = self._settings
        self._warm_up(directory)
        workloads = [workload for workload in WORKLOADS if workload in chosen.workloads]
        for workload in workloads:
            main = self._tables(directory / workload, workload, chosen.publications, chosen.filters)
            self._run(workload, _first(main, chosen.few_publications), "counts", "index")
            for how in ("counts", "destinations"):
                self._run(workload, main, how, "index")
            small = _first(main, chosen.pairs_publications)
            self._run(workload, small, "pairs", "index")
            self._run(workload, small, "pairs", "spark")
            self._run(workload, _first(main, chosen.rival_publications), "counts", "spark")
        if WHOLE in chosen.workloads:
            whole = self._tables(directory / WHOLE, WHOLE, chosen.publications, chosen.filters)
            for strategy in ("index", "spark", "index"):  # in turns, since others use the machine too
                self._run(WHOLE, _first(whole, chosen.rival_publications), "counts", strategy)
        for workload in workloads:
            main = self._read(directory / workload, chosen.publications, chosen.filters)
            many = self._tables(
                directory / f"many {workload}", workload, chosen.publications, chosen.many_filters
            )
            for tables in (main, many):
                if tables is many:
                    self._run(workload, tables, "counts", "index")
                self._run(workload, tables, "counts", "split")
                if workload == "narrow":
                    self._run(workload, tables, "counts", "zcode")

    def _warm_up(self, directory: Path) -> None:
        warm = self._tables(directory / "warm", "narrow", self._settings.warm_publications, 1_000)
        for strategy in ("index", "split", "zcode"):
            for how in ("counts", "destinations", "pairs"):
                if strategy == "index" or how == "counts":
                    self._braid(warm, how, strategy).write.format("noop").mode("overwrite").save()
        for how in ("counts", "pairs"):
            self._rival(warm, how).write.format("noop").mode("overwrite").save()

    def _tables(self, directory: Path, workload: str, publications: int, filters: int) -> _Tables:
        write_tables(workload, publications, filters, self._settings.seed, directory)
        return self._read(directory, publications, filters)

    def _read(self, directory: Path, publications: int, filters: int) -> _Tables:
        read = self._spark.read.parquet
        return _Tables(
            read(str(directory / "publications")), read(str(directory / "filters")), publications, filters
        )

    def _run(self, workload: str, tables: _Tables, how: str, strategy: str) -> None:
        title = f"{workload}: {tables.publications:,} x {tables.filters:,}, {how} by {strategy}"
        self._say(title)
        cpu, wall = self._clock.seconds(), time.perf_counter()
        joined = self._rival(tables, how) if strategy == "spark" else self._braid(tables, how, strategy)
        joined.write.format("noop").mode("overwrite").save()
        self._runs.append(
            {
                "workload": workload,
                "publications": tables.publications,
                "filters": tables.filters,
                "how": how,
                "strategy": strategy,
                "cpu_seconds": significant(self._clock.seconds() - cpu),
                "wall_seconds": significant(time.perf_counter() - wall),
                "load": significant(os.getloadavg()[0]),
            }
        )
        if self._store is not None:
            self._store(self.report())

    def _braid(self, tables: _Tables, how: Any, strategy: Any) -> DataFrame:
        from braid.pipeline.matching_join import JoinSettings, match_join

        # A quarter of the filters fits, so that a split has something to split.
        fits = max(1, tables.filters * 3_000 // 4)
        return match_join(
            tables.publication_rows,
            tables.filter_rows,
            how=how,
            destination_column="destination",
            strategy=strategy,
            settings=JoinSettings(filters_bytes_max=fits) if strategy == "split" else None,
        )

    def _rival(self, tables: _Tables, how: str) -> DataFrame:
        tables.publication_rows.createOrReplaceTempView("p")
        tables.filter_rows.createOrReplaceTempView("f")
        if how == "pairs":
            columns, grouping = "p.id AS publication, f.id AS filter", ""
        else:
            columns, grouping = "p.id AS publication, count(*) AS count", "GROUP BY p.id"
        return self._spark.sql(
            f"SELECT /*+ BROADCAST(f) */ {columns} FROM p JOIN f ON {cross_join_condition()} {grouping}"
        )


@dataclass(frozen=True, slots=True)
class _Tables:
    publication_rows: DataFrame
    filter_rows: DataFrame
    publications: int
    filters: int


def _first(tables: _Tables, publications: int) -> _Tables:
    rows = tables.publication_rows.where(f"id < {publications}")
    return _Tables(rows, tables.filter_rows, min(publications, tables.publications), tables.filters)


def decide_join_goals(runs: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """A row per goal: what was asked, what was measured, whether it was met (None: not measured)."""

    def cpu(workload: str, how: str, strategy: str, publications: int | None = None) -> dict[str, Any] | None:
        found = [
            run
            for run in runs
            if (run["workload"], run["how"], run["strategy"]) == (workload, how, strategy)
            and publications in (None, run["publications"])
        ]
        return max(found, key=lambda run: (-run["filters"], run["publications"])) if found else None

    def ratio(workload: str, how: str, rival_how: str) -> float | None:
        rival = cpu(workload, rival_how, "spark")
        ours = None if rival is None else cpu(workload, how, "index", rival["publications"])
        if rival is None or ours is None or rival["filters"] != ours["filters"]:
            return None
        return float(rival["cpu_seconds"] / ours["cpu_seconds"])

    def growth(workload: str) -> float | None:
        """CPU of four times the publications, as a multiple of four times the CPU."""
        whole = cpu(workload, "counts", "index")
        few = None if whole is None else cpu(workload, "counts", "index", whole["publications"] // 4)
        return None if whole is None or few is None else float(whole["cpu_seconds"] / few["cpu_seconds"] / 4)

    rows: list[tuple[str, str, float, float | None]] = []
    for workload in WORKLOADS:
        rows += [
            (
                f"{workload}: counts, times Spark's own join",
                "at least",
                50,
                ratio(workload, "counts", "counts"),
            ),
            (
                f"{workload}: destinations, times Spark's own join (its counts)",
                "at least",
                50,
                ratio(workload, "destinations", "counts"),
            ),
            (
                f"{workload}: every pair, times Spark's own join",
                "at least",
                5,
                ratio(workload, "pairs", "pairs"),
            ),
            (
                f"{workload}: CPU for 4 times the publications, as a part of 4 times the CPU",
                "at most",
                1.3,
                growth(workload),
            ),
        ]
    every = f"{WHOLE}: counts where every attribute is there, times Spark's own join"
    rows.append((every, "at least", 50, ratio(WHOLE, "counts", "counts")))
    return [
        {
            "goal": goal,
            "target": f"{relation} {target:g}",
            "measured": None if measured is None else significant(measured),
            "met": None
            if measured is None
            else (measured >= target if relation == "at least" else measured <= target),
        }
        for goal, relation, target, measured in rows
    ]


def print_join_report(report: dict[str, Any]) -> None:
    """The report as tables for people."""
    from rich.console import Console
    from rich.table import Table

    from braid_bench.tables import goals_table, shown_number

    console = Console()
    environment = report["environment"]
    console.print(
        f"[bold]Matching join[/bold] on {environment['cpu']}, {environment['master']}, CPU seconds in all"
    )
    table = Table()
    for title in ("workload", "asked for", "by"):
        table.add_column(title)
    for title in ("publications", "filters", "CPU s", "wall s"):
        table.add_column(title, justify="right")
    for run in report["runs"]:
        table.add_row(
            run["workload"], run["how"],
            "Spark's own join" if run["strategy"] == "spark" else run["strategy"],
            f"{run['publications']:,}", f"{run['filters']:,}",
            shown_number(run["cpu_seconds"]), shown_number(run["wall_seconds"]),
        )  # fmt: skip
    console.print(table)
    console.print(goals_table(report["goals"]))


class TreeClock:
    """CPU seconds of this process and all its descendants, those that have ended included.

    A process that has ended is in the account of the one that waited for it, but nobody waits for Spark's
    Python workers, which end after a minute without work. So a thread looks at all of them several times a
    second and keeps what would be lost.
    """

    def __init__(self, period_s: float = 0.25) -> None:
        self._lost = 0.0
        self._seen = _tree()
        self._lock = threading.Lock()
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._watch, args=(period_s,), daemon=True)
        self._thread.start()

    def __enter__(self) -> TreeClock:
        return self

    def __exit__(self, *problem: object) -> None:
        self._ended.set()
        self._thread.join()

    def seconds(self) -> float:
        """The account so far."""
        with self._lock:
            self._look()
            return self._lost + sum(each.own + each.waited for each in self._seen.values())

    def _watch(self, period_s: float) -> None:
        while not self._ended.wait(period_s):
            with self._lock:
                self._look()

    def _look(self) -> None:
        now, before = _tree(), self._seen
        ended = sum(each.own + each.waited for key, each in before.items() if key not in now)
        inherited = sum(each.waited - before[key].waited for key, each in now.items() if key in before)
        self._lost += max(0.0, ended - inherited)
        self._seen = now


class _Account(NamedTuple):
    """CPU seconds of a process, and of those that it has waited for."""

    own: float
    waited: float


def _tree() -> dict[tuple[int, int], _Account]:
    """This process and its descendants, by number and start (numbers are used again)."""
    processes: dict[int, tuple[int, int, _Account]] = {}
    try:
        numbers = [int(name) for name in os.listdir("/proc") if name.isdigit()]
    except OSError as error:
        raise ConfigurationError(
            "CPU time of Spark's processes is read from /proc, which is not here"
        ) from error
    ticks = os.sysconf("SC_CLK_TCK")
    for number in numbers:
        try:
            fields = Path(f"/proc/{number}/stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue  # it has just ended
        own, waited = sum(map(int, fields[11:13])) / ticks, sum(map(int, fields[13:15])) / ticks
        processes[number] = int(fields[1]), int(fields[19]), _Account(own, waited)
    children: dict[int, list[int]] = {}
    for number, (parent, _, _) in processes.items():
        children.setdefault(parent, []).append(number)
    found: dict[tuple[int, int], _Account] = {}
    pending = [os.getpid()]
    while pending:
        number = pending.pop()
        _, start, account = processes[number]
        found[number, start] = account
        pending += children.get(number, [])
    return found


def _say(message: str) -> None:
    print(message, file=sys.stderr, flush=True)
