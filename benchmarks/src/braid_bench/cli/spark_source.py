"""How is the Spark source measured from a terminal?"""

from __future__ import annotations

from typing import Annotated

import typer

from braid.cli.terminal import say
from braid_bench.cli.reports import AsJson, Output, ReportSink

__all__ = ["EXAMPLES", "bench_spark"]

EXAMPLES = ("braid bench spark --quick", "braid bench spark --json --output benchmarks/spark.json")


def bench_spark(
    quick: Annotated[bool, typer.Option("--quick", help="Fewer rows: a minute or two.")] = False,
    master: Annotated[
        str | None, typer.Option("--master", help="Where Spark runs. \\[default: all cores here]")
    ] = None,
    as_json: AsJson = False,
    output: Output = None,
) -> None:
    """Rows a second of the Spark source, beside a bare Arrow source and `client.replay`, and push-down."""
    from braid.pipeline.session import spark_session
    from braid_bench import spark_source

    sink = ReportSink(output)
    settings = spark_source.SparkBenchSettings.quickly() if quick else spark_source.SparkBenchSettings()
    with spark_session("braid bench spark", master=master) as spark:
        report = spark_source.bench_spark(settings, spark, say=say, store=sink.store)
    sink.finish(report, as_json, spark_source.print_spark_report)
