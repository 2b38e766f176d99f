"""How is the simulator measured from a terminal?"""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from braid.cli.json_lines import open_output, require_writable
from braid.cli.terminal import json_text

__all__ = ["EXAMPLES", "bench_simulator"]

EXAMPLES = (
    "braid bench simulator --quick",
    "braid bench simulator --json --output benchmarks/simulator.json",
)


def bench_simulator(
    quick: Annotated[
        bool, typer.Option("--quick", help="About a minute: one workload, fewer publications.")
    ] = False,
    seed: Annotated[int, typer.Option("--seed", help="The same seed gives the same network.")] = 1,
    as_json: Annotated[bool, typer.Option("--json", help="Print the whole report as JSON.")] = False,
    output: Annotated[
        str | None,
        typer.Option("--output", "-o", metavar="FILE", help="Also store the report there as JSON."),
    ] = None,
) -> None:
    """Simulated broker messages per second of CPU, and memory per simulated broker, on one core.

    A message is a publication that crosses a link between two of 120 brokers. Measured with checkers, trace
    and codec off and on, and with brokers that share their matching and that do not.
    """
    from braid.bench.simulator import bench_simulator as bench
    from braid.bench.simulator import simulator_settings_for
    from braid.bench.simulator_tables import print_simulator_report

    if output is not None:
        require_writable(output)  # before the measuring, which takes minutes
    settings = simulator_settings_for(quick=quick, seed=seed)
    report = bench(settings, lambda title: print(title, file=sys.stderr, flush=True))
    if output is not None:
        with open_output(output) as sink:
            sink.write((json_text(report) + "\n").encode())
    if as_json:
        typer.echo(json_text(report))
    else:
        print_simulator_report(report)
