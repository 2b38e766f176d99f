"""Run one simulation from a scenario file."""

from __future__ import annotations

from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from braid.cli.terminal import is_terminal, json_text, say

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from braid.scenario.reading import Scenario
    from braid.scenario.running import SimulationSummary

__all__ = ["EXAMPLES", "simulate"]

EXAMPLES = (
    "braid simulate examples/partition.toml",
    "braid simulate examples/crash.toml --seed 7 --out traces",
    "braid simulate examples/multipath_small.toml --json --no-checkers",
)

# Violations that are shown; the JSON has all of them.
SHOWN_MAX = 10


def simulate(
    scenario: Annotated[
        Path, typer.Argument(metavar="SCENARIO.toml", help="What to run; see docs/scenarios.md.")
    ],
    seed: Annotated[
        int | None, typer.Option("--seed", min=0, help="In place of the seed in the file.")
    ] = None,
    out: Annotated[
        Path | None, typer.Option("--out", metavar="DIR", help="Write the trace there, as Parquet files.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the summary as JSON.")] = False,
    checkers: Annotated[
        bool | None,
        typer.Option(
            "--checkers/--no-checkers",
            help="Watch whether everybody gets what was promised. \\[default: as the file says]",
            show_default=False,
        ),
    ] = None,
) -> None:
    """Run one simulation from a scenario file, in virtual time.

    The same file and seed give the same run on every machine, to the last byte of its trace.

    Exit code 1: a subscriber did not get what was promised; the command that repeats the run is printed.
    Exit code 2: the scenario cannot be run; the message names the line.
    """
    from dataclasses import replace
    from shlex import quote

    from braid.scenario.reading import read_scenario
    from braid.scenario.running import simulate as run

    read = read_scenario(scenario, seed=seed)
    settings = read.settings if checkers is None else replace(read.settings, checkers=checkers)
    if out is not None:
        _require_no_trace(out)
    repeat = f"braid simulate {quote(str(scenario))} --seed {settings.seed} --checkers"
    with _progress(scenario.name) as advance:
        summary = run(settings, out, advance, repeat_command=repeat)
    if as_json:
        typer.echo(json_text(_document(summary, read, repeat)))
    else:
        _print(summary, settings.checkers, out)
    for warning in summary.warnings:
        say(f"braid: {warning}")
    if summary.violations:
        say(f"braid: {len(summary.violations):,} promises were broken; repeat with: {repeat}")
        raise typer.Exit(1)


def _require_no_trace(out: Path) -> None:
    """Two runs in one folder would be read as one."""
    from braid.errors import ConfigurationError
    from braid.trace import KINDS

    if any((out / kind).is_dir() for kind in KINDS):
        raise ConfigurationError(f"{out} holds a trace already; choose another directory")


def _document(summary: SimulationSummary, scenario: Scenario, repeat: str) -> dict[str, Any]:
    from dataclasses import asdict

    return {
        "scenario": scenario.file,
        **asdict(summary),
        "yield": summary.system_yield,
        "pure_forwards": summary.pure_forwards,
        "repeat": repeat,
    }


@contextmanager
def _progress(description: str) -> Iterator[Callable[[float], None] | None]:
    """A bar on standard error, when someone is looking."""
    if not is_terminal():
        yield None
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeElapsedColumn

    columns = (TextColumn("{task.description}"), BarColumn(), TaskProgressColumn(), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(description, total=1.0)
        yield lambda share: bar.update(task, completed=share)


def _print(summary: SimulationSummary, checked: bool, out: Path | None) -> None:
    from rich.console import Console
    from rich.table import Table

    console = Console(highlight=False)
    share = summary.system_yield
    table = Table(show_header=False, box=None, padding=(0, 2, 0, 0))
    rows = [
        ("network", f"{summary.topology}: {summary.brokers:,} brokers, {summary.clients:,} clients"),
        ("workload", f"{summary.workload}: {summary.subscriptions:,} subscriptions"),
        ("run", f"strategy {summary.strategy}, seed {summary.seed}, {summary.virtual_s:,.1f} virtual s"),
        ("publications", f"{summary.publications:,}"),
        ("deliveries", f"{summary.deliveries:,}"),
        ("hops", f"{summary.hops:,}, {summary.pure_forwards:,} of them to brokers that only pass on"),
        ("yield", f"{share:.1%}" if share is not None else "nothing crossed a link"),
        ("queue", f"{summary.queue_bytes_max:,} bytes at most at one broker"),
        ("faults", f"{summary.faults:,}"),
        ("messages", ", ".join(f"{kind} {count:,}" for kind, count in _frequent(summary.messages))),
    ]
    if summary.soft_links:
        count = sum(map(len, summary.soft_links.values()))
        rows.append(("soft links", f"{count:,} at the end, {count / summary.brokers:.1f} per broker"))
    if out is not None:
        rows.append(("trace", str(out)))
    if not checked:
        verdict = "not watched"
    elif summary.violations:
        verdict = f"{len(summary.violations):,} broken"
    else:
        verdict = "all kept: complete, once, in order, invited, bounded"
    rows.append(("promises", verdict))
    for name, text in rows:
        table.add_row(f"[bold]{name}[/bold]", text)
    console.print(table)
    for violation in summary.violations[:SHOWN_MAX]:
        console.print(f"  {violation}", markup=False)
    if len(summary.violations) > SHOWN_MAX:
        console.print(f"  and {len(summary.violations) - SHOWN_MAX:,} more")


def _frequent(messages: Any) -> list[tuple[str, int]]:
    return sorted(messages.items(), key=lambda item: (-item[1], item[0]))[:6]
