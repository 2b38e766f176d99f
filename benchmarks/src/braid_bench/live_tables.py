"""How does a person read the report of a live run?"""

from __future__ import annotations

from typing import Any

from rich.console import Console
from rich.table import Table

from braid_bench.tables import goals_table, shown_number

__all__ = ["print_live_report"]


def print_live_report(report: dict[str, Any], console: Console | None = None) -> None:
    """The report as tables, and a summary line for each strategy."""
    console = console or Console()
    settings, machine = report["settings"], report["environment"]["cpu"]
    console.print(
        f"[bold]Live network[/bold] of {settings['brokers']} broker processes on {machine}, "
        f"{settings['link_delay_us'] / 1000:g} ms added per link, fanout {settings['fanout']}, "
        f"{settings['publications']:,} publications, seed {settings['seed']}."
    )
    console.print(_figures(report["cells"]))
    console.print(goals_table(report["goals"]))
    for line in report["summary"]:
        console.print(line, soft_wrap=True, highlight=False)


def _figures(cells: list[dict[str, Any]]) -> Table:
    table = Table(title="While nothing broke", title_justify="left", title_style="bold")
    table.add_column("strategy")
    titles = (
        "deliveries",
        "messages",
        "over soft links",
        "hops, mean",
        "hops, most",
        "delay ms",
        "soft links",
    )
    for title in titles:
        table.add_column(title, justify="right")
    for cell in cells:
        figures = (
            cell["deliveries"],
            cell["messages"],
            cell["messages_over_soft_links"],
            cell["hops_mean"],
            cell["hops_max"],
            cell["delay_ms"]["mean"],
            cell["soft_links"],
        )
        table.add_row(cell["strategy"], *map(shown_number, figures))
    return table
