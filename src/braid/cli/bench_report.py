"""What becomes of a benchmark's report?

Every `braid bench` prints tables or JSON, and stores the report where it is told to.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, TypeAlias

import typer

from braid.cli.json_lines import open_output, require_writable
from braid.cli.terminal import json_text

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["AsJson", "Output", "ReportSink"]

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
