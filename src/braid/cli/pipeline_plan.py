"""Propose a better tree from traces."""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from braid.cli.pipeline_metrics import interval_us
from braid.cli.spark_options import MasterOption, ShipOption, waiting_for_spark
from braid.cli.terminal import json_text, say
from braid.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pyspark.sql import DataFrame

    from braid.pipeline.planning.proposal import Proposal

__all__ = ["EXAMPLES", "plan"]

EXAMPLES = (
    "braid pipeline plan --traces traces/ --out plan.json",
    "braid pipeline plan --traces traces/ --out plan.json --link-costs links.csv --degree-max 8",
    "braid pipeline plan --traces traces/ --last 10min --out plan.json",
    "braid overlay apply plan.json",
)


def plan(
    traces_dir: Annotated[
        str,
        typer.Option("--traces", metavar="DIR", help="A trace of the network, or of a sweep with --run."),
    ],
    out: Annotated[
        str | None, typer.Option("--out", "-o", metavar="PLAN", help="Write the plan into this file.")
    ] = None,
    link_costs: Annotated[
        Path | None,
        typer.Option(
            "--link-costs",
            metavar="CSV",
            help="A file with lines of: source,target,cost; inf for links that must not be.",
        ),
    ] = None,
    broker_costs: Annotated[
        Path | None,
        typer.Option(
            "--broker-costs", metavar="CSV", help="A file with lines of: broker,cost of a message there."
        ),
    ] = None,
    degree_max: Annotated[
        int, typer.Option("--degree-max", min=0, help="Links a broker may have; 0: any number.")
    ] = 0,
    starts: Annotated[
        int, typer.Option("--starts", min=1, max=10_000, help="Searches, each a Spark task.")
    ] = 8,
    rounds: Annotated[
        int, typer.Option("--rounds", min=0, max=10_000, help="How long each search goes on.")
    ] = 6,
    run: Annotated[str | None, typer.Option("--run", help="Which run of a sweep.")] = None,
    start: Annotated[
        str | None,
        typer.Option("--from", metavar="TIME", help="Only what was published from then on, such as 4min."),
    ] = None,
    end: Annotated[
        str | None, typer.Option("--to", metavar="TIME", help="Only what was published before then.")
    ] = None,
    last: Annotated[
        str | None,
        typer.Option(
            "--last", metavar="TIME", help="Only the last part of a live network's trace, such as 10min."
        ),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON document.")] = False,
    master: MasterOption = None,
    ship: ShipOption = False,
) -> None:
    """Propose a better tree for the traffic that a trace shows, what it saves, and the SHIFTs to get there.

    Costs are those of the self-organising paper: a publication pays for every link and broker of its delivery
    tree. Without tables of costs everything costs 1. The plan is for braid overlay apply.
    """
    from_us, to_us = interval_us("--from", start), interval_us("--to", end)
    last_us = interval_us("--last", last)
    if last_us is not None and (from_us is not None or to_us is not None):
        raise ConfigurationError(
            "--last is counted back from the newest sample; give it without --from, --to"
        )
    from braid.pipeline.places import is_far, require_here
    from braid.pipeline.planning.proposal import Costs, propose
    from braid.pipeline.traces import Traces, inspect_traces
    from braid.reconfiguration import WrittenPlan, encode_plan

    if out is not None:
        require_here("--out", out, "give a file, which braid overlay apply can read")
    costs = Costs(
        {(one, other): cost for one, other, cost in _read(link_costs, ("source", "target", "cost"))},
        dict(_read(broker_costs, ("broker", "cost"))),
    )
    # A wrong folder is said before Spark starts.
    files = None if is_far(traces_dir, master) else inspect_traces(traces_dir)
    with waiting_for_spark("braid pipeline plan", "looking for a better tree", master=master, ship=ship) as (
        spark,
        _,
    ):
        traces = Traces(spark, traces_dir, files=files)
        if last_us is not None:
            from_us = _newest_us(traces.link_sample) - last_us
        tables = [traces.publication, traces.delivery, traces.link_sample]
        chosen = _run(tables[2], run)
        found = propose(
            spark,
            *(table.where(table["run"] == chosen) for table in tables),
            costs=costs,
            degree_max=degree_max,
            starts=starts,
            rounds=rounds,
            from_us=from_us,
            to_us=to_us,
        )
    if out is not None:
        Path(out).write_bytes(encode_plan(WrittenPlan(found.found.plan)))
        say(f"the plan is in {out}; braid overlay apply {out} carries it out")
    typer.echo(json_text(found.report()) if as_json else _text(found))


def _newest_us(link_sample: DataFrame) -> int:
    """When the newest sample was taken."""
    row = link_sample.agg({"at_us": "max"}).first()
    if row is None or row[0] is None:
        raise ConfigurationError(
            "the trace has no samples of links, so --last has nothing to count back from"
        )
    return int(row[0])


def _run(link_sample: Any, run: str | None) -> str:
    """The run that was asked for, or the only one."""
    names = sorted(row["run"] for row in link_sample.select("run").distinct().collect())
    if run is not None:
        if run not in names:
            raise ConfigurationError(f"--run {run}: there is no such run; there are {', '.join(names[:5])}")
        return run
    if len(names) > 1:
        raise ConfigurationError(f"a sweep of {len(names)} runs: say which with --run, such as {names[0]}")
    return str(names[0]) if names else ""


def _read(path: Path | None, columns: tuple[str, ...]) -> Iterable[tuple[Any, ...]]:
    """The rows of a table of costs; the last column is a number."""
    if path is None:
        return
    import csv

    try:
        with path.open(newline="", encoding="utf-8") as file:
            rows = csv.DictReader(file)
            missing = [name for name in columns if name not in (rows.fieldnames or ())]
            if missing:
                raise ConfigurationError(
                    f"{path}: the column {missing[0]!r} is missing; it has {rows.fieldnames}"
                )
            for number, row in enumerate(rows, 2):
                yield (*(row[name] for name in columns[:-1]), _cost(row[columns[-1]], path, number))
    except OSError as problem:
        raise ConfigurationError(f"{path} cannot be read: {problem.strerror}") from None


def _cost(text: str | None, path: Path, line: int) -> float:
    try:
        cost = float(text or "")
    except ValueError:
        raise ConfigurationError(f"{path}, line {line}: {text!r} is no cost") from None
    if math.isnan(cost) or cost < 0:
        raise ConfigurationError(f"{path}, line {line}: a cost is at least 0, not {text}")
    return cost


def _text(found: Proposal) -> str:
    report = found.report()
    lines = [
        f"{report['brokers']} brokers, {report['publications']:,} publications",
        f"cost now        {report['present_cost']:>14,.1f}",
        f"cost as planned {report['planned_cost']:>14,.1f}  ({report['saving']:.1%} less)",
        f"no tree below   {report['bound']:>14,.1f}",
        f"{report['links_exchanged']} links exchanged by {report['shifts']} SHIFTs, "
        f"at most {report['most_links']} links at a broker",
    ]
    if report["priced_share"] < 1:
        lines.append(f"rare combinations of brokers are left out: {report['priced_share']:.1%} were priced")
    return "\n".join(lines)
