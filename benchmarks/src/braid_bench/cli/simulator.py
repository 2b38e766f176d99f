"""How is the simulator measured from a terminal?"""

from __future__ import annotations

from typing import Annotated

import typer

from braid.cli.terminal import say
from braid_bench.cli.reports import AsJson, Baseline, Output, ReportSink, Turns, against_baseline

__all__ = ["EXAMPLES", "bench_simulator"]

EXAMPLES = (
    "braid bench simulator --quick",
    "braid bench simulator --quick --baseline HEAD~1",
    "braid bench simulator --json --output benchmarks/simulator.json",
)


def bench_simulator(
    quick: Annotated[
        bool, typer.Option("--quick", help="About a minute: one workload, fewer publications.")
    ] = False,
    seed: Annotated[int, typer.Option("--seed", help="The same seed gives the same network.")] = 1,
    as_json: AsJson = False,
    output: Output = None,
    baseline: Baseline = None,
    turns: Turns = 2,
) -> None:
    """Simulated broker messages per second of CPU, and memory per simulated broker, on one core.

    A message is a publication that crosses a link between two of 120 brokers. Measured with checkers, trace
    and codec off and on, and with brokers that share their matching and that do not.
    """
    from braid_bench.simulator import bench_simulator as bench
    from braid_bench.simulator import simulator_settings_for
    from braid_bench.simulator_tables import print_simulator_report

    if baseline is not None:
        from braid_bench.baseline import Case

        arguments = ["simulator", "--seed", str(seed), *(["--quick"] if quick else [])]
        against_baseline(baseline, turns, [Case("simulator", arguments)], output, as_json)
        return
    sink = ReportSink(output)
    report = bench(simulator_settings_for(quick=quick, seed=seed), say)
    sink.finish(report, as_json, print_simulator_report)
