"""What becomes of a benchmark's report?

Every `braid bench` prints tables or JSON, and stores the report where it is told to.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, TypeAlias

import typer

from braid.cli.json_lines import open_output, require_writable
from braid.cli.terminal import json_text, say

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from braid_bench.baseline import Case

__all__ = ["AsJson", "Baseline", "Output", "ReportSink", "Turns", "against_baseline"]

AsJson: TypeAlias = Annotated[bool, typer.Option("--json", help="Print the whole report as JSON.")]
Output: TypeAlias = Annotated[
    str | None,
    typer.Option(
        "--output",
        "-o",
        metavar="FILE",
        help="Also store the report there as JSON; what takes long, piece by piece.",
    ),
]
Baseline: TypeAlias = Annotated[
    str | None,
    typer.Option(
        "--baseline",
        metavar="REF",
        help="Take turns with that commit, in an environment of its own, and print ratios of costs.",
    ),
]
Turns: TypeAlias = Annotated[
    int, typer.Option("--turns", min=1, max=100, help="With --baseline: how often each side runs each case.")
]


class ReportSink:
    """Stores and prints one report.

    Made before the measuring, which may take half an hour, it refuses a file that cannot be written at once.
    """

    def __init__(self, output: str | None) -> None:
        self._output = output
        if output is not None:
            require_writable(output)

    def store(self, report: dict[str, Any]) -> None:
        """Store what there is so far, if anybody wants it stored."""
        if self._output is not None:
            with open_output(self._output) as file:
                file.write((json_text(report) + "\n").encode())

    def finish(
        self, report: dict[str, Any], as_json: bool, print_tables: Callable[[dict[str, Any]], None]
    ) -> None:
        """Store the whole report, and print it."""
        self.store(report)
        if as_json:
            typer.echo(json_text(report))
        else:
            print_tables(report)


def against_baseline(
    reference: str,
    turns: int,
    cases: Sequence[Case],
    output: str | None,
    as_json: bool,
    goals: Callable[[Sequence[Mapping[str, Any]]], list[dict[str, Any]]] = lambda figures: [],
) -> None:
    """Measure cases of a benchmark beside another commit, and report that and which goals were reached."""
    from braid_bench.baseline import bench_against
    from braid_bench.baseline_tables import print_baseline_report

    sink = ReportSink(output)
    report = bench_against(reference, cases, turns=turns, progress=say, store=sink.store, goals=goals)
    sink.finish(report, as_json, print_baseline_report)
