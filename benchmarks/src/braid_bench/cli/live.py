"""How is a network of real brokers measured from a terminal?"""

from __future__ import annotations

import logging
from typing import Annotated

import typer

from braid.cli.terminal import say
from braid_bench.cli.reports import AsJson, Output, ReportSink

__all__ = ["EXAMPLES", "bench_live"]

EXAMPLES = (
    "braid bench live --quick",
    "braid bench live --json --output benchmarks/live.json",
    "braid bench live --strategy S0 --strategy S1 --strategy S2",
)


def bench_live(
    strategy: Annotated[
        list[str] | None,
        typer.Option(
            "--strategy",
            metavar="NAME",
            help="May be repeated; the first is what others are compared with. \\[default: S0, S2, SB]",
        ),
    ] = None,
    quick: Annotated[
        bool, typer.Option("--quick", help="About a minute for each two strategies: 8 brokers, less traffic.")
    ] = False,
    seed: Annotated[int, typer.Option("--seed", help="The same seed gives the same subscribers.")] = 1,
    as_json: AsJson = False,
    output: Output = None,
) -> None:
    """Messages, hops and delay of real brokers by strategy, and whether they lose anything when things break.

    12 processes on the loopback interface, 1 ms added per link. Soft links are learned; then one broker is
    killed and started again and soft links are broken, while acknowledged publications flow. The last lines
    sum it up.

    Exit code 1: something was lost, doubled or out of its order, or a goal was missed.
    """
    from braid_bench.live import bench_live as bench
    from braid_bench.live import live_settings_for
    from braid_bench.live_tables import print_live_report

    sink = ReportSink(output)
    settings = live_settings_for(strategies=tuple(strategy or ()), quick=quick, seed=seed)
    # Clients would say of every connection that breaks that it did.
    logging.getLogger("braid").setLevel(logging.CRITICAL)
    report = bench(settings, say)
    sink.finish(report, as_json, print_live_report)
    if not all(row["met"] for row in report["goals"]):
        raise typer.Exit(1)
