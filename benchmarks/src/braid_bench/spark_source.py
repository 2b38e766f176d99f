"""How quickly does Spark read a log, beside a source that makes rows up, and beside `client.replay`?

The same rows, four readers: a bare Python source that yields Arrow batches it has in memory, which is as
quick as a Python source can be; the format `braid`, from a broker process; `client.replay`, which makes an
object per row; and a plain socket whose lines of JSON are parsed in Python, with fewer rows. The broker's CPU
is a row of its own. Push-down is measured in bytes that leave the broker, counted on their way, for a query
with a predicate that one row in a hundred satisfies. Latencies and streams beside a million filters are in
`spark_streams`.
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import braid
from braid_bench.environment import describe_environment
from braid_bench.join import TreeClock
from braid_bench.relay import counting_relay
from braid_bench.spark_streams import (
    latency_runs,
    million_filters,
    serving_lines,
    socket_source,
)
from braid_bench.timing import significant

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import pyarrow as pa
    from pyspark.sql import DataFrame, DataFrameReader, SparkSession

__all__ = ["SparkBenchSettings", "bench_spark", "decide_spark_goals", "print_spark_report"]

LOG = "bench"
SCHEMA = "n bigint, price double, symbol string, side string, size bigint, _offset bigint"
PUBLISH_ROWS = 5_000
BATCH_ROWS = 10_000
SELECTED = "size = 7"
# A bare Python source on such a machine, when it was idle, had 190 to 300 ms.
LATENCY_MS_MAX = 300.0

_METHOD = (
    "All readers hand the same rows to a sink that drops them, after a run that is not counted; the best of "
    "several rounds, in which the readers take turns, for each figure by itself. Rows per second depend on "
    "who else uses the machine, the ratios less so. CPU seconds are those of the whole tree of processes "
    "without the broker's, which is a process of its own."
)


@dataclass(frozen=True, kw_only=True)
class SparkBenchSettings:
    """What is measured."""

    rows: int = 1_000_000
    partitions: int = 2
    rounds: int = 3
    socket_rows: int = 200_000
    """Rows of the source that parses lines, which is slow."""
    latency_s: float = 30.0
    filters: int = 1_000_000
    """That a stream is joined with."""
    stream_publications: int = 50_000
    quick: bool = False

    @classmethod
    def quickly(cls) -> SparkBenchSettings:
        """A minute or two."""
        return cls(
            rows=100_000,
            rounds=2,
            socket_rows=20_000,
            latency_s=10.0,
            filters=20_000,
            stream_publications=10_000,
            quick=True,
        )


def _bare_source() -> Any:
    """A source of rows that are there already: what a Python source can do at most."""
    from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition

    class BareReader(DataSourceReader):
        def __init__(self, rows: int, partitions: int) -> None:
            self._rows = rows
            self._partitions = partitions

        def partitions(self) -> list[InputPartition]:
            return [InputPartition(number) for number in range(self._partitions)]

        def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
            batch = _batch(BATCH_ROWS)
            for _ in range(self._rows // self._partitions // BATCH_ROWS):
                yield batch

    class BareSource(DataSource):
        @classmethod
        def name(cls) -> str:
            return "bare"

        def schema(self) -> str:
            return SCHEMA

        def reader(self, schema: Any) -> DataSourceReader:
            return BareReader(int(self.options["rows"]), int(self.options["partitions"]))

    return BareSource


def _row(n: int) -> dict[str, Any]:
    return {"n": n, "price": n / 4, "symbol": f"S{n % 10}", "side": "buy", "size": n % 100}


def _batch(rows: int) -> pa.RecordBatch:
    import pyarrow as pa

    return pa.RecordBatch.from_pylist([{**_row(n), "_offset": n} for n in range(rows)])


@contextmanager
def _broker(folder: Path) -> Iterator[tuple[str, Callable[[], float]]]:
    """A broker in a process of its own: its address, and the CPU seconds that it has taken."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{free.getsockname()[1]}"
    command = ["broker", "--id", "bench", "--listen", address, "--data-dir", str(folder)]
    with (folder / "log").open("ab") as log:
        process = subprocess.Popen([sys.executable, "-m", "braid", *command], stdout=log, stderr=log)

    def cpu_s() -> float:
        fields = Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    try:
        yield f"braid://{address}", cpu_s
    finally:
        process.terminate()
        process.wait()


def bench_spark(
    settings: SparkBenchSettings,
    spark: SparkSession,
    *,
    say: Callable[[str], None],
    store: Callable[[dict[str, Any]], None] | None = None,
) -> dict[str, Any]:
    """Measure everything; the report is plain data, ready for JSON."""
    from braid.spark import register

    register(spark)
    spark.dataSource.register(_bare_source())
    spark.dataSource.register(socket_source())
    rows = settings.rows - settings.rows % (settings.partitions * BATCH_ROWS)
    runs: dict[str, dict[str, Any]] = {}
    with (
        TemporaryDirectory(prefix="braid-bench-") as folder,
        _broker(Path(folder)) as (url, broker_cpu_s),
        TreeClock() as clock,
        braid.connect_sync(url, timeout_s=60) as client,
        serving_lines(_row, settings.socket_rows) as port,
    ):
        say(f"{rows:,} rows are published")
        client.create_durable(LOG, "n >= 0")
        for first in range(0, rows, PUBLISH_ROWS):
            part = range(first, first + PUBLISH_ROWS)
            client.publish_batch([_row(n) for n in part], delivery="acknowledged")
        client.flush()
        source = spark.read.format("braid").schema(SCHEMA).option("brokers", url).option("log", LOG)
        source = source.option("rowsPerPartition", rows // settings.partitions)
        bare = spark.read.format("bare").options(rows=rows, partitions=settings.partitions)
        lines = spark.read.format("lines").options(
            port=port, rows=settings.socket_rows, partitions=settings.partitions, columns=SCHEMA
        )
        readers: dict[str, Callable[[], int]] = {
            "bare": lambda: _drained(bare.load(), rows),
            "braid": lambda: _drained(source.load(), rows),
            "lines of a socket": lambda: _drained(lines.load(), settings.socket_rows),
            "client.replay": lambda: sum(1 for _ in client.replay(LOG, 0, rows - 1)),
        }
        for round_number in range(settings.rounds + 1):
            for name, read in readers.items():
                say(f"{name}, round {round_number} of {settings.rounds}")
                broker, cpu, wall = broker_cpu_s(), clock.seconds(), time.perf_counter()
                count = read()
                wall_s = time.perf_counter() - wall
                broker_s = broker_cpu_s() - broker
                if round_number == 0:
                    continue
                run = {
                    "reader": name,
                    "rows": count,
                    "rows_per_s": significant(count / wall_s),
                    "cpu_us_per_row": significant((clock.seconds() - cpu - broker_s) / count * 1e6),
                    "broker_cpu_us_per_row": significant(broker_s / count * 1e6),
                }
                best = runs.setdefault(name, run)
                best["rows_per_s"] = max(best["rows_per_s"], run["rows_per_s"])
                for figure in ("cpu_us_per_row", "broker_cpu_us_per_row"):
                    best[figure] = min(best[figure], run[figure])
                if store is not None:
                    store(_report(settings, spark, runs))
        say("push-down")
        with counting_relay(url) as (passing, bytes_sent):
            pushed = _push_down(source.option("brokers", passing), bytes_sent)
        latencies = latency_runs(spark, url, settings.latency_s, say)
        if store is not None:
            store(_report(settings, spark, runs, pushed, latencies))
        filters = million_filters(spark, settings.filters, settings.stream_publications, clock, say)
    return _report(settings, spark, runs, pushed, latencies, filters)


def _drained(frame: DataFrame, rows: int) -> int:
    frame.write.format("noop").mode("overwrite").save()
    return rows


def _push_down(source: DataFrameReader, bytes_sent: Callable[[], int]) -> dict[str, Any]:
    """Bytes that leave the broker for a query of all rows, and for one with a predicate."""

    def leaving(condition: str) -> tuple[int, int]:
        before = bytes_sent()
        found = source.load().where(condition).count()
        return found, bytes_sent() - before

    everything, whole = leaving("TRUE")
    selected, part = leaving(SELECTED)
    return {
        "rows": everything,
        "rows_selected": selected,
        "predicate": SELECTED,
        "bytes": whole,
        "bytes_selected": part,
        "ratio": significant(whole / part),
    }


def _report(
    settings: SparkBenchSettings,
    spark: SparkSession,
    runs: dict[str, dict[str, Any]],
    pushed: dict[str, Any] | None = None,
    latencies: list[dict[str, Any]] | None = None,
    filters: dict[str, Any] | None = None,
) -> dict[str, Any]:
    return {
        "benchmark": "spark",
        "method": _METHOD,
        "environment": {
            **describe_environment(),
            "master": spark.sparkContext.master,
            "load": significant(os.getloadavg()[0]),
        },
        "settings": {"rows": settings.rows, "partitions": settings.partitions, "quick": settings.quick},
        "goals": decide_spark_goals(runs, pushed, latencies),
        "runs": list(runs.values()),
        "push_down": pushed,
        "latencies": latencies,
        "stream_beside_filters": filters,
    }


def decide_spark_goals(
    runs: dict[str, dict[str, Any]],
    pushed: dict[str, Any] | None,
    latencies: list[dict[str, Any]] | None = None,
) -> list[dict[str, Any]]:
    """A row per goal: what was asked, what was measured, whether it was met (None: not measured)."""

    def ratio(name: str) -> float | None:
        if "braid" not in runs or name not in runs:
            return None
        return float(runs["braid"]["rows_per_s"] / runs[name]["rows_per_s"])

    def cpu_ratio(name: str) -> float | None:
        if "braid" not in runs or name not in runs:
            return None
        return float(runs[name]["cpu_us_per_row"] / runs["braid"]["cpu_us_per_row"])

    rows = [
        ("rows/s, as a part of a bare Arrow source's", 0.5, ratio("bare")),
        (
            "CPU of a bare Arrow source, as a part of the source's without the broker's",
            0.5,
            cpu_ratio("bare"),
        ),
        ("rows/s, times client.replay", 3.0, ratio("client.replay")),
        (
            "bytes that leave the broker, times those of 1 % pushed down",
            50.0,
            None if pushed is None else float(pushed["ratio"]),
        ),
    ]
    goals = [
        {
            "goal": goal,
            "target": f"at least {target:g}",
            "measured": None if measured is None else significant(measured),
            "met": None if measured is None else measured >= target,
        }
        for goal, target, measured in rows
    ]
    found = {run["way"]: run["p50_ms"] for run in latencies or ()}
    latency = found.get("braid")
    goals.append(
        {
            "goal": "latency from publishing to the sink, p50 in ms",
            "target": f"at most {LATENCY_MS_MAX:g}",
            "measured": latency,
            "met": None if latency is None else latency <= LATENCY_MS_MAX,
        }
    )
    beside = None if latency is None or "bare" not in found else significant(latency / found["bare"])
    goals.append(
        {
            "goal": "the same, times that of a bare source in the same run",
            "target": "at most 1",
            "measured": beside,
            "met": None if beside is None else beside <= 1,
        }
    )
    return goals


def print_spark_report(report: dict[str, Any]) -> None:
    """The report as tables for people."""
    from rich.console import Console
    from rich.table import Table

    from braid_bench.tables import goals_table, shown_number

    console = Console()
    environment = report["environment"]
    console.print(f"[bold]Spark source[/bold] on {environment['cpu']}, {environment['master']}")
    table = Table()
    table.add_column("reader")
    for title in ("rows", "rows/s", "CPU us/row", "broker's CPU us/row"):
        table.add_column(title, justify="right")
    for run in report["runs"]:
        table.add_row(
            run["reader"], f"{run['rows']:,}", shown_number(run["rows_per_s"]),
            shown_number(run["cpu_us_per_row"]), shown_number(run["broker_cpu_us_per_row"]),
        )  # fmt: skip
    console.print(table)
    waits = Table()
    waits.add_column("under way")
    for title in ("rows", "p50 ms", "p95 ms", "p99 ms"):
        waits.add_column(title, justify="right")
    for run in report["latencies"] or ():
        percentiles = (shown_number(run[name]) for name in ("p50_ms", "p95_ms", "p99_ms"))
        waits.add_row(run["way"], f"{run['count']:,}", *percentiles)
    console.print(waits)
    filters = report["stream_beside_filters"]
    if filters is not None:
        console.print(
            f"a stream beside {filters['filters']:,} filters: {filters['build_cpu_s']} CPU s to read them, "
            f"{filters['publications_per_s']:,} publications/s"
        )
    console.print(goals_table(report["goals"]))
