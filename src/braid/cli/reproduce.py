"""Run an experiment of a paper."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from braid.cli.terminal import is_terminal, json_text, say

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.table import Table

    from braid.pipeline.experiments.registry import Experiment, Scale
    from braid.pipeline.experiments.reproduce import Result

__all__ = ["EXAMPLES", "reproduce"]

EXAMPLES = (
    "braid reproduce list",
    "braid reproduce multipath.baseline",
    "braid reproduce multipath.baseline --scale paper --out results",
    "braid reproduce multipath --json > rows.json",
)


class _Scale(StrEnum):
    """How large an experiment is."""

    QUICK = "quick"
    PAPER = "paper"


def reproduce(
    name: Annotated[
        str, typer.Argument(metavar="list | PAPER | PAPER.EXPERIMENT", help="What to run.")
    ] = "list",
    scale: Annotated[
        _Scale,
        typer.Option(
            "--scale",
            help="quick: fewer seeds and shorter runs; the list says how long they take. paper: the paper's "
            "own sizes, which take hours.",
        ),
    ] = _Scale.QUICK,
    seeds: Annotated[
        int | None,
        typer.Option("--seeds", min=1, help="Runs per setting. \\[default: what the experiment asks for]"),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the rows as one JSON array.")] = False,
    out: Annotated[
        Path | None,
        typer.Option(
            "--out",
            metavar="DIR",
            help="Keep workloads, traces, figures and a report there, and go on from what is there.",
        ),
    ] = None,
    master: Annotated[
        str | None,
        typer.Option("--master", help="Where Spark runs. \\[default: all cores of this machine]"),
    ] = None,
) -> None:
    """Run an experiment of a paper and print what the paper says beside what was measured.

    Simulations run as Spark tasks, metrics are Spark jobs over their traces. With --out, a run that is
    finished is never repeated: the same command goes on after an interruption. Without it, everything but
    the printed rows is removed at the end.

    Exit code 2: there is no such experiment, or a simulation failed.
    """
    from braid.pipeline.experiments.registry import experiments_named

    if name == "list":
        _print_list(as_json)
        return
    experiments = experiments_named(name)
    results = _run(experiments, scale.value, seeds, out, master)
    rows = [row for result in results for row in result.rows]
    if as_json:
        typer.echo(json_text([row.to_json() for row in rows]))
        return
    from rich.console import Console

    console = Console()
    for result in results:
        console.print(_rows_table(result))


def _run(
    experiments: Sequence[Experiment], scale: Scale, seeds: int | None, out: Path | None, master: str | None
) -> list[Result]:
    """Run experiments one after the other, with what is being done on standard error."""
    from rich.console import Console

    from braid.pipeline.experiments.reproduce import output_folder, reproduce, store
    from braid.pipeline.session import spark_session

    console = Console(stderr=True)

    def tell(stage: str) -> None:
        if is_terminal():
            console.print(f"[dim]{stage} ...[/dim]")

    with output_folder(out) as folder:
        tell("starting Spark")
        with spark_session("braid reproduce", master=master) as spark:
            results = []
            for experiment in experiments:
                tell(experiment.full_name)
                results.append(reproduce(spark, experiment, scale=scale, seeds=seeds, out=folder, say=tell))
        if out is not None:
            report = store(results, folder)
            say(f"braid: the report is {report}")
    return results


def _print_list(as_json: bool) -> None:
    from braid.pipeline.experiments.durations import QUICK
    from braid.pipeline.experiments.registry import papers, registered

    known = registered()
    if as_json:
        listed = []
        for name, each in known.items():
            lasting = QUICK.get(name)
            listed.append(
                {
                    "name": name,
                    "paper": each.paper,
                    "title": each.title,
                    "quick_seconds": lasting and lasting.seconds,
                    "quick_seconds_measured": lasting and lasting.measured,
                }
            )
        typer.echo(json_text(listed))
        return
    from rich.console import Console
    from rich.table import Table

    table = Table(box=None, pad_edge=False)
    table.add_column("experiment", style="bold")
    table.add_column("quick", justify="right", no_wrap=True)
    table.add_column("what it looks into")
    for paper in papers().values():
        table.add_row(paper.name, "", f"[dim]{paper.title}[/dim]")
        for each in known.values():
            if each.paper == paper.name:
                table.add_row(f"  {each.full_name}", str(QUICK.get(each.full_name, "?")), each.title)
    Console().print(table)
    Console().print(
        "\n[dim]quick: how long the quick scale takes on two cores; ~ is an estimate from one run of the "
        "sweep, ? is not known. With --out, runs that several experiments look at are simulated once.[/dim]"
    )


def _rows_table(result: Result) -> Table:
    from rich.table import Table

    from braid.pipeline.experiments.report import differs, interval_text, labels_text, number_text
    from braid.pipeline.experiments.rows import common_labels, plain_name

    plan = result.plan
    common = common_labels([row.labels for row in result.rows])
    alike = ", ".join(f"{name} {plain_name(value)}" for name, value in common.items())
    table = Table(
        title=f"{result.experiment.full_name}: {result.experiment.title}",
        caption=f"{f'all rows: {alike}; ' if alike else ''}scale {plan.scale}, {plan.seeds} seeds, "
        f"{result.seconds:g} s; the interval is of 95 %",
        title_justify="left",
        caption_justify="left",
        title_style="bold",
    )
    for column, justify in (
        ("metric", "left"),
        ("labels", "left"),
        ("paper", "right"),
        ("measured", "right"),
        ("ratio", "right"),
        ("interval", "right"),
    ):
        table.add_column(column, justify=justify)  # type: ignore[arg-type]
    for row in result.rows:
        ratio = "" if row.ratio is None else f"{row.ratio:.2f}"
        shade = "yellow" if differs(row) else "green"
        table.add_row(
            row.metric,
            labels_text(row, besides=common),
            number_text(row.paper_value),
            number_text(row.measured),
            f"[{shade}]{ratio}[/{shade}]" if ratio else "",
            interval_text(row),
        )
    return table
