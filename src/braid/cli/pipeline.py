"""Which Spark jobs can be started from a terminal?"""

from __future__ import annotations

import typer

from braid.cli import (
    pipeline_archive,
    pipeline_compact,
    pipeline_live,
    pipeline_match,
    pipeline_metrics,
    pipeline_plan,
    pipeline_workload,
)
from braid.cli.terminal import examples

__all__ = ["pipeline"]

pipeline = typer.Typer(
    help="Spark jobs: make workloads, compute metrics over traces, join publications with filters, propose "
    "better trees, show what a network is doing now. Without Spark: archive logs, merge the files of traces.",
    epilog=examples(
        *pipeline_workload.EXAMPLES,
        *pipeline_metrics.EXAMPLES,
        *pipeline_match.EXAMPLES,
        *pipeline_plan.EXAMPLES,
        *pipeline_archive.EXAMPLES,
        *pipeline_compact.EXAMPLES,
        *pipeline_live.EXAMPLES,
    ),
    no_args_is_help=True,
    context_settings={"help_option_names": ["-h", "--help"]},
    rich_markup_mode="rich",
)
pipeline.command(epilog=examples(*pipeline_workload.EXAMPLES))(pipeline_workload.workload)
pipeline.command(epilog=examples(*pipeline_metrics.EXAMPLES))(pipeline_metrics.metrics)
pipeline.command("match", epilog=examples(*pipeline_match.EXAMPLES))(pipeline_match.match_tables)
pipeline.command(epilog=examples(*pipeline_plan.EXAMPLES))(pipeline_plan.plan)
pipeline.command(epilog=examples(*pipeline_archive.EXAMPLES))(pipeline_archive.archive)
pipeline.command(epilog=examples(*pipeline_compact.EXAMPLES))(pipeline_compact.compact)
pipeline.command(epilog=examples(*pipeline_live.EXAMPLES))(pipeline_live.live)
