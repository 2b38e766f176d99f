"""How does a person read a broker report?"""

from __future__ import annotations

from typing import Any

from rich.console import Console
from rich.table import Table

from braid_bench.tables import goals_table, shown_number

__all__ = ["print_broker_report"]


def print_broker_report(report: dict[str, Any], console: Console | None = None) -> None:
    """The report as tables: one per scenario, then the goals."""
    console = console or Console()
    environment, settings = report["environment"], report["settings"]
    brokers = ", ".join(f"{name} {version or ''}".strip() for name, version in environment["brokers"].items())
    console.print(
        f"[bold]Brokers[/bold] on {environment['cores']} cores of {environment['cpu']}: {brokers}. "
        f"Medians of {settings['rounds']} turns, seed {settings['seed']}."
    )
    for cell in report["cells"]:
        if cell["contenders"]:
            console.print(_scenario(cell))
        for reason in cell["left_out"].values():
            console.print(f"[yellow]left out:[/yellow] {reason}")
    for each in report["skipped"]:
        console.print(f"[yellow]{each['scenario']} was skipped:[/yellow] {each['reason']}")
    console.print(goals_table(report["goals"]))


def _scenario(cell: dict[str, Any]) -> Table:
    table = Table(title=cell["title"], title_justify="left", title_style="bold")
    table.add_column("")
    columns = (
        "outstanding", "server us/message", "us/delivery", "times Braid", "messages/s", "messages per turn",
        "client CPU share", "memory, MB",
    )  # fmt: skip
    for column in columns:
        table.add_column(column, justify="right")
    for name, figures in cell["contenders"].items():
        for outstanding, row in figures["closed_loop"].items():
            table.add_row(
                name,
                outstanding,
                shown_number(row["server_us_per_message"]),
                shown_number(row["server_us_per_delivery"]),
                shown_number(cell["times_braid"].get(name, {}).get(outstanding)),
                shown_number(row["messages_per_second"]),
                f"{row['messages']:,}",
                f"{row['client_cpu_share']:.2f}",
                shown_number(row["memory_bytes"] / 1e6),
                style="bold" if name == "braid" else None,
            )
    latencies = [
        f"{name} {shown_number(latency['p50_us'])} / {shown_number(latency['p99_us'])}"
        for name, figures in cell["contenders"].items()
        if (latency := figures["latency"]) is not None
    ]
    if latencies:
        table.caption = f"latency p50 / p99, us: {', '.join(latencies)}"
    return table
