"""How does a person read a comparison with an earlier commit?"""

from __future__ import annotations

from statistics import median
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from braid_bench.baseline import WORSE_FROM
from braid_bench.tables import goals_table, shown_number

__all__ = ["print_baseline_report"]


def print_baseline_report(report: dict[str, Any], console: Console | None = None) -> None:
    """The ratios as a table."""
    console = console or Console()
    baseline, summary = report["baseline"], report["summary"]
    console.print(
        f"[bold]Now against {baseline['reference']}[/bold] ({baseline['commit'][:12]}), "
        f"{report['turns']} turns each on {report['environment']['cpu']}. Below 1 is better."
    )
    table = Table(title="What things cost", title_justify="left", title_style="bold")
    table.add_column("figure")
    for title in ("then", "now", "ratio"):
        table.add_column(title, justify="right")
    for row in report["figures"]:
        style = "red" if row["ratio"] > WORSE_FROM else "green" if row["ratio"] < 1 / WORSE_FROM else ""
        shown = f"{row['ratio']:.3f}"
        table.add_row(
            row["figure"],
            shown_number(median(row["baseline"])),
            shown_number(median(row["now"])),
            f"[{style}]{shown}[/{style}]" if style else shown,
        )
    console.print(table)
    if report.get("goals"):
        console.print(goals_table(report["goals"]))
    for case in report["left_out"]:
        console.print(f"[yellow]Left out:[/yellow] {case['case']}: {escape(case['reason'])}")
    if summary["figures"]:
        console.print(
            f"{summary['figures']} figures: {summary['geometric_mean']:.3f} in the geometric mean, "
            f"{summary['best']:.3f} to {summary['worst']:.3f}; "
            f"{summary[f'more_than_{WORSE_FROM}']} above {WORSE_FROM}."
        )
