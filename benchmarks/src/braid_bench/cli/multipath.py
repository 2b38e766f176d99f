"""How are paths over soft links measured from a terminal?"""

from __future__ import annotations

from typing import Annotated

import typer

from braid.cli.terminal import say
from braid_bench.cli.reports import AsJson, Baseline, Output, ReportSink, Turns, against_baseline

__all__ = ["EXAMPLES", "bench_multipath"]

EXAMPLES = (
    "braid bench multipath --quick",
    "braid bench multipath --quick --baseline HEAD~1",
    "braid bench multipath --json --output benchmarks/multipath_cost.json",
)


def bench_multipath(
    quick: Annotated[
        bool, typer.Option("--quick", help="Some seconds: 1,000 subscriptions, fewer turns.")
    ] = False,
    seed: Annotated[int, typer.Option("--seed", help="The same seed gives the same subscriptions.")] = 1,
    as_json: AsJson = False,
    output: Output = None,
    baseline: Baseline = None,
    turns: Turns = 2,
) -> None:
    """CPU that a broker spends per publication by S0, S1 and S2, and how long new maps take, on one core.

    One broker with 10,000 subscriptions in sight and 35 links, 32 of them soft.
    """
    from braid_bench.multipath import bench_multipath as bench
    from braid_bench.multipath import multipath_settings_for
    from braid_bench.multipath_tables import print_multipath_report

    if baseline is not None:
        from braid_bench.baseline import Case

        arguments = ["multipath", "--seed", str(seed), *(["--quick"] if quick else [])]
        against_baseline(baseline, turns, [Case("multipath", arguments)], output, as_json)
        return
    sink = ReportSink(output)
    report = bench(multipath_settings_for(quick=quick, seed=seed), say)
    sink.finish(report, as_json, print_multipath_report)
