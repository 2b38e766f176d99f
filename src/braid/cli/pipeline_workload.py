"""Make a workload as Parquet tables."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from braid.cli.terminal import json_text, say
from braid.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from braid.workloads import StoredWorkload, Workload

__all__ = ["EXAMPLES", "workload"]

EXAMPLES = (
    "braid pipeline workload --list",
    "braid pipeline workload multipath.DT1 --out dt1",
    "braid pipeline workload multipath.DT1 --out quick --seed 3 --set duration_s=60 --set spread=poisson",
)


def workload(
    name: Annotated[str | None, typer.Argument(help="Which workload; --list shows them.")] = None,
    out: Annotated[
        str | None,
        typer.Option(
            "--out", "-o", metavar="DIR", help="Where the tables go: a new directory, or a URL of Spark's."
        ),
    ] = None,
    seed: Annotated[int, typer.Option("--seed", help="The same seed gives the same rows.")] = 1,
    chosen: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help="A parameter of the workload; may be repeated."),
    ] = None,
    master: Annotated[
        str | None, typer.Option("--master", help="Where Spark runs. \\[default: this machine, all cores]")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
    listed: Annotated[
        bool, typer.Option("--list", help="Show workloads, or the parameters of NAME, and stop.")
    ] = False,
) -> None:
    """Make a workload as Parquet tables: brokers, subscriptions and publications.

    Spark makes the rows; whatever the number of its tasks, the same seed and parameters give the same rows.
    A directory that already holds this very workload is left as it is.
    """
    from braid import workloads

    if listed:
        _print_list(name, as_json=as_json)
        return
    if name is None:
        raise ConfigurationError(
            f"say which workload: {', '.join(workloads.DEFINITIONS)}; --list tells more about them"
        )
    definition = workloads.definition(name)
    made = workloads.workload(name, seed=seed, **definition.parsed(chosen or ()))
    if out is None:
        raise ConfigurationError("say with --out which directory the tables go to")
    from braid.pipeline.places import is_far

    if is_far(out, master):
        _print_stored(made, out, _written_elsewhere(made, out, master), as_json=as_json)
        return
    stored = _stored(made, Path(out), master)
    _print_stored(made, str(stored.directory), stored.rows, as_json=as_json)


def _stored(made: Workload, out: Path, master: str | None) -> StoredWorkload:
    from braid import workloads
    from braid.pipeline import spark_session

    # What is wrong with the directory or the disk is said before Spark takes its seconds to start.
    if workloads.require_place(made, out):
        say(f"{out} holds this workload already")
        return workloads.load(out)
    say(f"starting Spark for {made.name} ...")
    with spark_session(f"workload {made.name}", master=master) as spark:
        return workloads.write(
            spark, made, out, progress=lambda table, rows: say(f"writing {rows:,} {table} ...")
        )


def _written_elsewhere(made: Workload, url: str, master: str | None) -> dict[str, int]:
    from braid import workloads
    from braid.pipeline import spark_session

    say(f"starting Spark for {made.name} ...")
    with spark_session(f"workload {made.name}", master=master) as spark:
        return workloads.write_elsewhere(
            spark, made, url, progress=lambda table, rows: say(f"writing {rows:,} {table} ...")
        )


def _print_stored(made: Workload, directory: str, rows: Mapping[str, int], *, as_json: bool) -> None:
    if as_json:
        typer.echo(
            json_text(
                {
                    "name": made.name,
                    "seed": made.seed,
                    "directory": directory,
                    "parameters": dict(made.parameters),
                    "rows": dict(rows),
                }
            )
        )
        return
    for table, count in rows.items():
        typer.echo(f"{count:>12,} {table}")


def _print_list(name: str | None, *, as_json: bool) -> None:
    from braid.workloads import DEFINITIONS, definition

    shown = [definition(name)] if name is not None else list(DEFINITIONS.values())
    if as_json:
        content = [
            {
                "name": each.name,
                "summary": each.summary,
                "source": each.source,
                "parameters": [
                    {
                        "name": parameter.name,
                        "default": parameter.default,
                        "meaning": parameter.meaning,
                        "allowed": parameter.allowed(),
                    }
                    for parameter in each.parameters
                ],
            }
            for each in shown
        ]
        typer.echo(json_text(content))
        return
    for each in shown:
        typer.echo(f"{each.name}: {each.summary}")
        typer.echo(f"    from: {each.source}")
        for parameter in each.parameters:
            choice = f"{parameter.name} = {parameter.default}"
            typer.echo(f"    {choice:32}  {parameter.meaning}: {parameter.allowed()}")
        typer.echo("")
