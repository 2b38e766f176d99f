"""How are metrics computed over traces from a terminal?"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Annotated, Any

import typer

from braid.cli.spark_options import MasterOption, ShipOption, waiting_for_spark
from braid.cli.terminal import json_text, say
from braid.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import DataFrame

    from braid.trace.reader import FileReport

__all__ = ["EXAMPLES", "interval_us", "metrics"]

EXAMPLES = (
    "braid pipeline metrics traces/",
    "braid pipeline metrics out/traces --metric yield --metric mean_hops --from 4min --to 14min --json",
    "braid pipeline metrics traces/ --metric delay_by_pair --out metrics/",
    "braid pipeline metrics --list",
)

# What `braid pipeline metrics DIR` shows: a row or a few for each run.
DEFAULT_METRICS = (
    "yield",
    "mean_hops",
    "throughput",
    "delay",
    "delivery_ratio",
    "ordering_degree",
    "control_overhead",
)

# More rows than this are for a file, not for a terminal.
ROWS_SHOWN_MAX = 40

UNITS_US = {"us": 1, "ms": 1_000, "s": 1_000_000, "min": 60_000_000, "h": 3_600_000_000}


def metrics(
    trace_dir: Annotated[
        str | None,
        typer.Argument(
            metavar="TRACE_DIR",
            help="A trace, or the traces of a sweep (run=.../); a folder, or a URL that Spark reads.",
            show_default=False,
        ),
    ] = None,
    metric: Annotated[
        list[str] | None,
        typer.Option("--metric", "-m", metavar="NAME", help="A metric; repeat for several. See --list."),
    ] = None,
    start: Annotated[
        str | None,
        typer.Option("--from", metavar="TIME", help="Beginning of the interval, such as 4min or 250ms."),
    ] = None,
    end: Annotated[
        str | None, typer.Option("--to", metavar="TIME", help="End of the interval, not part of it.")
    ] = None,
    by: Annotated[
        str, typer.Option("--by", metavar="run|all", help="A table per run, or the mean over all runs.")
    ] = "run",
    out: Annotated[
        str | None,
        typer.Option("--out", metavar="DIR", help="Also write each metric to DIR/NAME.parquet."),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON document.")] = False,
    list_all: Annotated[bool, typer.Option("--list", help="List the metrics and exit.")] = False,
    master: MasterOption = None,
    ship: ShipOption = False,
) -> None:
    """Compute metrics over traces.

    Times are virtual ones of a simulation, or those since 1970 of a real broker. Files that cannot be used
    are named on standard error and left out; the exit code is 0 all the same.
    """
    if list_all:
        _print_list(as_json)
        return
    if trace_dir is None:
        raise ConfigurationError("say which trace: braid pipeline metrics TRACE_DIR (or --list)")
    if by not in ("run", "all"):
        raise ConfigurationError(f"--by {by}: it is run or all")
    from_us, to_us = interval_us("--from", start), interval_us("--to", end)

    from braid.pipeline.metrics import metric as find_metric
    from braid.pipeline.places import is_far, joined_path
    from braid.pipeline.traces import Traces, inspect_traces

    chosen = [find_metric(name) for name in metric or DEFAULT_METRICS]
    # Before Spark starts, which takes seconds: a wrong folder is said at once.
    files = None if is_far(trace_dir, master) else inspect_traces(trace_dir)
    tables: dict[str, Any] = {}
    with waiting_for_spark("braid pipeline metrics", master=master, ship=ship) as (spark, told):
        traces = Traces(spark, trace_dir, report=lambda _: None, files=files, keep=True)
        bad = [report for report in traces.files if not report.ok]
        _complain(bad)
        for each in chosen:
            told(f"computing {each.name}")
            result = each(traces, from_us=from_us, to_us=to_us)
            if out is not None:
                result = _written(result, joined_path(out, f"{each.name}.parquet"))
            tables[each.name] = _collected(result)
    if by == "all":
        tables = {name: _over_runs(table) for name, table in tables.items()}
    if as_json:
        bad_files = [{"path": str(report.path), "problem": report.problem} for report in bad]
        typer.echo(
            json_text(
                {
                    "trace": str(trace_dir),
                    "from_us": from_us,
                    "to_us": to_us,
                    "bad_files": bad_files,
                    "metrics": {
                        name: [dict(zip(columns, row, strict=True)) for row in rows]
                        for name, (columns, rows) in tables.items()
                    },
                }
            )
        )
        return
    for name, (columns, rows) in tables.items():
        _print_table(name, columns, rows)


def interval_us(option: str, text: str | None) -> int | None:
    """A time such as `4min`, `250ms` or `1.5s`, exactly."""
    if text is None:
        return None
    from fractions import Fraction

    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([a-z]+)", text.strip())
    if match is None or match[2] not in UNITS_US:
        raise ConfigurationError(
            f"{option} {text}: expected a number and a unit out of {', '.join(UNITS_US)}, such as 4min"
        )
    return int(Fraction(match[1]) * UNITS_US[match[2]])


def _complain(bad: Sequence[FileReport]) -> None:
    for report in bad:
        say(f"left out: {report.path} {report.problem}")
    if bad:
        say(f"{len(bad)} {'file was' if len(bad) == 1 else 'files were'} left out; the rest was read")


def _written(result: DataFrame, path: str) -> DataFrame:
    """Write a result as Parquet and read it back, so that it is not computed again to be shown."""
    result.coalesce(1).write.mode("overwrite").parquet(path)
    # A file does not promise the order of its rows; the leading columns are what the metric sorted by.
    keys = [
        name for name, kind in result.dtypes if kind == "string" or name in ("at_us", "hops", "paths_min")
    ]
    return result.sparkSession.read.schema(result.schema).parquet(path).orderBy(*keys)


def _collected(result: DataFrame) -> tuple[list[str], list[tuple[Any, ...]]]:
    from pyspark.errors import PythonException

    try:
        return result.columns, [tuple(row) for row in result.collect()]
    except PythonException as problem:
        # A complaint about the trace that was raised in a worker comes back inside of Spark's own report.
        complaint = re.search(r"ConfigurationError: (.+)", str(problem))
        if complaint is None:
            raise
        raise ConfigurationError(complaint[1]) from problem


def _over_runs(table: tuple[list[str], list[tuple[Any, ...]]]) -> tuple[list[str], list[tuple[Any, ...]]]:
    """The mean over runs of each numeric column, with its 95 % interval.

    Only a metric with one row per run has such a mean; of others the rows are kept as they are.
    """
    from braid.pipeline.metrics import mean_interval

    columns, rows = table
    if len({row[0] for row in rows}) != len(rows):
        return table
    means: list[tuple[Any, ...]] = []
    for place, column in enumerate(columns[1:], start=1):
        values = [row[place] for row in rows if isinstance(row[place], int | float)]
        if values:
            means.append((column, len(values), *mean_interval(values)))
    return ["quantity", "runs", "mean", "low", "high"], means


def _print_table(name: str, columns: list[str], rows: list[tuple[Any, ...]]) -> None:
    from rich.console import Console
    from rich.table import Table

    table = Table(title=name, title_justify="left", title_style="bold")
    for column in columns:
        numeric = any(isinstance(row[columns.index(column)], int | float) for row in rows)
        table.add_column(column, justify="right" if numeric else "left")
    for row in rows[:ROWS_SHOWN_MAX]:
        table.add_row(*(_text(value) for value in row))
    console = Console()
    console.print(table)
    if len(rows) > ROWS_SHOWN_MAX:
        console.print(f"... and {len(rows) - ROWS_SHOWN_MAX:,} more rows; --json and --out have all")
    elif not rows:
        console.print("no records for it in this trace and interval")


def _text(value: object) -> str:
    if value is None:
        return "-"
    if isinstance(value, float):
        return f"{value:,.4g}" if abs(value) < 1_000 else f"{value:,.1f}"
    if isinstance(value, int) and not isinstance(value, bool):
        return f"{value:,}"
    return str(value)


def _print_list(as_json: bool) -> None:
    from braid.pipeline.metrics import METRICS

    if as_json:
        typer.echo(
            json_text(
                [
                    {"name": m.name, "paper": m.paper, "tables": list(m.tables), "meaning": m.summary}
                    for m in METRICS.values()
                ]
            )
        )
        return
    width = max(map(len, METRICS))
    for each in METRICS.values():
        typer.echo(f"{each.name:{width}}  {each.summary} ({each.paper}; reads {', '.join(each.tables)})")
