"""How does a person read what paths over soft links cost?"""

from __future__ import annotations

from typing import Any

from rich.console import Console
from rich.table import Table

from braid_bench.tables import goals_table, shown_number

__all__ = ["print_multipath_report"]

_COLUMNS = {
    "soft_links": "soft links",
    "copies_per_publication": "copies",
    "cpu_us_per_publication": "us each",
    "cpu_us_per_copy": "us a copy",
    "next_hops_us_per_publication": "next hops us",
    "path_share": "more paths / S0",
}


def print_multipath_report(report: dict[str, Any], console: Console | None = None) -> None:
    """The report as tables."""
    console = console or Console()
    settings = report["settings"]
    console.print(
        f"[bold]Multipath forwarding[/bold] on one core of {report['environment']['cpu']}: "
        f"{settings['subscriptions']:,} subscriptions at {settings['brokers_in_sight']} brokers in sight, "
        f"fanout {settings['fanout']}, batches of {settings['rows']}, seed {settings['seed']}."
    )
    table = Table(title="CPU of one broker per publication", title_justify="left", title_style="bold")
    table.add_column("case")
    for title in _COLUMNS.values():
        table.add_column(title, justify="right")
    for cell in report["cells"]:
        table.add_row(cell["case"], *(shown_number(cell[name]) for name in _COLUMNS))
    console.print(table)
    console.print(goals_table(report["goals"]))
