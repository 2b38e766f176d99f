"""How is the matching join measured from a terminal?"""

from __future__ import annotations

from typing import Annotated, Any

import typer

from braid.cli.json_lines import open_output, require_writable
from braid.cli.terminal import json_text, say

__all__ = ["EXAMPLES", "bench_join"]

EXAMPLES = ("braid bench join --quick", "braid bench join --json --output benchmarks/join.json")


def bench_join(
    quick: Annotated[bool, typer.Option("--quick", help="Smaller tables: some minutes.")] = False,
    seed: Annotated[int, typer.Option("--seed", help="The same seed gives the same tables.")] = 1,
    master: Annotated[
        str | None, typer.Option("--master", help="Where Spark runs. \\[default: all cores here]")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the whole report as JSON.")] = False,
    output: Annotated[
        str | None,
        typer.Option("--output", "-o", metavar="FILE", help="Also store the report there, after every run."),
    ] = None,
) -> None:
    """CPU seconds of joining publications with filters on Spark, beside Spark's own join with a condition.

    All processes count: Java and Python workers too. Spark's own join gets the filters as numbers.
    """
    from braid.bench import join
    from braid.pipeline.session import spark_session

    if output is not None:
        require_writable(output)

    def store(report: dict[str, Any]) -> None:
        if output is not None:
            with open_output(output) as sink:
                sink.write((json_text(report) + "\n").encode())

    settings = join.JoinBenchSettings.quickly(seed) if quick else join.JoinBenchSettings(seed=seed)
    with spark_session("braid bench join", master=master, settings={"spark.driver.memory": "6g"}) as spark:
        report = join.bench_join(settings, spark, say=say, store=store)
    store(report)
    if as_json:
        typer.echo(json_text(report))
    else:
        join.print_join_report(report)
