"""How is the matching join measured from a terminal?"""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated

import typer

from braid.cli.terminal import say
from braid.errors import ConfigurationError
from braid_bench.cli.reports import AsJson, Output, ReportSink

__all__ = ["EXAMPLES", "bench_join"]

EXAMPLES = ("braid bench join --quick", "braid bench join --json --output benchmarks/join.json")


def bench_join(
    quick: Annotated[bool, typer.Option("--quick", help="Smaller tables: some minutes.")] = False,
    only: Annotated[
        str | None,
        typer.Option("--only", metavar="WORKLOAD", help="wide, narrow or whole; else all."),
    ] = None,
    seed: Annotated[int, typer.Option("--seed", help="The same seed gives the same tables.")] = 1,
    master: Annotated[
        str | None, typer.Option("--master", help="Where Spark runs. \\[default: all cores here]")
    ] = None,
    as_json: AsJson = False,
    output: Output = None,
) -> None:
    """CPU seconds of joining publications with filters on Spark, beside Spark's own join with a condition.

    All processes count: Java and Python workers too. Spark's own join gets the filters as numbers.
    """
    from braid.pipeline.session import spark_session
    from braid_bench import join

    sink = ReportSink(output)
    settings = join.JoinBenchSettings.quickly(seed) if quick else join.JoinBenchSettings(seed=seed)
    if only is not None:
        if only not in settings.workloads:
            raise ConfigurationError(f"--only is one of {', '.join(settings.workloads)}, not {only!r}")
        settings = replace(settings, workloads=(only,))
    with spark_session("braid bench join", master=master, settings={"spark.driver.memory": "6g"}) as spark:
        report = join.bench_join(settings, spark, say=say, store=sink.store)
    sink.finish(report, as_json, join.print_join_report)
