"""How are paths over soft links measured from a terminal?"""

from __future__ import annotations

from typing import Annotated

import typer

from braid.cli.json_lines import open_output, require_writable
from braid.cli.terminal import json_text, say

__all__ = ["EXAMPLES", "bench_multipath"]

EXAMPLES = (
    "braid bench multipath --quick",
    "braid bench multipath --json --output benchmarks/multipath_cost.json",
)


def bench_multipath(
    quick: Annotated[
        bool, typer.Option("--quick", help="Some seconds: 1,000 subscriptions, fewer turns.")
    ] = False,
    seed: Annotated[int, typer.Option("--seed", help="The same seed gives the same subscriptions.")] = 1,
    as_json: Annotated[bool, typer.Option("--json", help="Print the whole report as JSON.")] = False,
    output: Annotated[
        str | None,
        typer.Option("--output", "-o", metavar="FILE", help="Also store the report there as JSON."),
    ] = None,
) -> None:
    """CPU that a broker spends per publication by S0, S1 and S2, and how long new maps take, on one core.

    One broker with 10,000 subscriptions in sight and 35 links, 32 of them soft.
    """
    from braid.bench.multipath import bench_multipath as bench
    from braid.bench.multipath import multipath_settings_for
    from braid.bench.multipath_tables import print_multipath_report

    if output is not None:
        require_writable(output)
    report = bench(multipath_settings_for(quick=quick, seed=seed), say)
    if output is not None:
        with open_output(output) as sink:
            sink.write((json_text(report) + "\n").encode())
    if as_json:
        typer.echo(json_text(report))
    else:
        print_multipath_report(report)
