"""What can be measured from a terminal?

Whatever a benchmark needs is imported when it runs.
"""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from braid.cli.terminal import examples, say
from braid.errors import ConfigurationError
from braid_bench.cli import join, live, multipath, simulator, spark_source
from braid_bench.cli.reports import AsJson, Baseline, Output, ReportSink, Turns, against_baseline

__all__ = ["bench"]

bench = typer.Typer(
    help="Measure Braid against its rivals.",
    epilog=examples("braid bench matching --quick", "braid bench broker --quick"),
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    rich_markup_mode="rich",
)


@bench.command(
    epilog=examples(
        "braid bench matching --quick",
        "braid bench matching --json --output benchmarks/matching.json",
        "braid bench matching --workload W1 --workload W2 --sizes 1000,100000",
        "braid bench matching --quick --baseline HEAD~1",
    )
)
def matching(
    workload: Annotated[
        list[str] | None, typer.Option("--workload", "-w", help="W1 to W4; may be repeated. \\[default: all]")
    ] = None,
    sizes: Annotated[
        str | None, typer.Option("--sizes", help="Numbers of filters. \\[default: 1000,10000,100000,1000000]")
    ] = None,
    quick: Annotated[
        bool, typer.Option("--quick", help="About a minute: sizes to 10,000, shorter timing.")
    ] = False,
    seed: Annotated[int, typer.Option("--seed", help="The same seed gives the same workloads.")] = 1,
    as_json: AsJson = False,
    output: Output = None,
    baseline: Baseline = None,
    turns: Turns = 2,
) -> None:
    """Publications matched per CPU second, index size and cost of changes, on one core.

    Rivals run on the same data in the same run, and every answer is checked before it is timed.
    W1: ranges over integers. W2: stock symbols with price and volume. W3: W1 with real numbers.
    W4: real stock quotes, read from the directory named by BRAID_DATA.
    """
    from braid_bench.matching import bench_matching, settings_for
    from braid_bench.tables import print_report

    settings = settings_for(workloads=workload, sizes=sizes, quick=quick, seed=seed)
    if baseline is not None:
        from braid_bench.baseline import Case

        cases = [
            Case(
                f"{name}, {size:,} filters",
                [*_common("matching", seed, quick), "-w", name, "--sizes", f"{size}"],
            )
            for name in settings.workloads
            for size in settings.sizes
        ]
        against_baseline(baseline, turns, cases, output, as_json)
        return
    sink = ReportSink(output)
    report = bench_matching(settings, progress=sys.stderr.isatty(), store=sink.store)
    sink.finish(report, as_json, print_report)


@bench.command(
    "broker",
    epilog=examples(
        "braid bench broker --install",
        "braid bench broker --quick",
        "braid bench broker --json --output benchmarks/broker.json",
        "braid bench broker --scenario one-to-one --scenario filtering-5000",
        "braid bench broker --traces --quick",
        "braid bench broker --quick --baseline v0.1 --turns 3",
    ),
)
def bench_broker(
    scenario: Annotated[
        list[str] | None, typer.Option("--scenario", "-s", help="May be repeated. \\[default: all]")
    ] = None,
    quick: Annotated[
        bool, typer.Option("--quick", help="Some minutes: without 50,000 subscriptions, shorter timing.")
    ] = False,
    install: Annotated[
        bool, typer.Option("--install", help="Only install the rivals (Debian packages), then stop.")
    ] = False,
    traces: Annotated[
        bool, typer.Option("--traces", help="Only Braid, without and with a trace: what does a trace cost?")
    ] = False,
    seed: Annotated[int, typer.Option("--seed", help="The same seed gives the same messages.")] = 1,
    as_json: AsJson = False,
    output: Output = None,
    baseline: Baseline = None,
    turns: Turns = 2,
) -> None:
    """Server CPU per message, latency and memory, beside other brokers on the same work in the same run.

    nats-server, mosquitto, rabbitmq-server and activemq take part where they are installed. Every delivery is
    counted, and a wrong count ends the run. All servers listen on the loopback interface only.
    """
    from braid_bench.brokers import (
        TRACE_SCENARIOS,
        bench_brokers,
        bench_traces,
        broker_settings_for,
        contenders,
        install_rivals,
        print_broker_report,
        trace_settings,
    )

    if install:
        for line in install_rivals():
            say(line)
        return
    chosen = scenario or (TRACE_SCENARIOS if traces else None)
    settings = broker_settings_for(scenarios=chosen, quick=quick, seed=seed)
    if baseline is not None and traces:
        raise ConfigurationError("--traces compares a broker with itself: it has no --baseline")
    if baseline is not None:
        from braid_bench.baseline import Case
        from braid_bench.brokers.goals import decide_baseline_goals

        cases = [Case(name, [*_common("broker", seed, quick), "-s", name]) for name in settings.scenarios]
        against_baseline(baseline, turns, cases, output, as_json, decide_baseline_goals)
        return
    sink = ReportSink(output)
    if traces:
        report = bench_traces(trace_settings(settings), sink.store)
    else:
        report = bench_brokers(settings, contenders(), store=sink.store)
    sink.finish(report, as_json, print_broker_report)


for _name, _examples, _command in (
    ("simulator", simulator.EXAMPLES, simulator.bench_simulator),
    ("join", join.EXAMPLES, join.bench_join),
    ("spark", spark_source.EXAMPLES, spark_source.bench_spark),
    ("multipath", multipath.EXAMPLES, multipath.bench_multipath),
    ("live", live.EXAMPLES, live.bench_live),
):
    bench.command(_name, epilog=examples(*_examples))(_command)


def _common(benchmark: str, seed: int, quick: bool) -> list[str]:
    """What the processes of both sides are told."""
    return [benchmark, "--seed", str(seed), *(["--quick"] if quick else [])]
