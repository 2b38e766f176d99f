"""How does a person read the report of the simulator's benchmark?"""

from __future__ import annotations

from typing import Any

from rich.console import Console
from rich.table import Table

from braid_bench.tables import goals_table, shown_number

__all__ = ["print_simulator_report"]


def print_simulator_report(report: dict[str, Any], console: Console | None = None) -> None:
    """The report as tables: messages per second, memory, goals."""
    console = console or Console()
    environment, settings = report["environment"], report["settings"]
    console.print(
        f"[bold]Simulator[/bold] on one core of {environment['cpu']}, {environment['python']}: "
        f"{settings['brokers']} brokers, {settings['subscribers']} of them with subscribers, seed "
        f"{settings['seed']}. A message is a publication that crosses a link between brokers; "
        f"acknowledgements wait up to {settings['acknowledge_delay_us'] / 1e6:g} s."
    )
    console.print(_rates(report["cells"]))
    memory = Table(title="Memory, bytes", title_justify="left", title_style="bold", show_header=False)
    for name, value in report["memory"].items():
        memory.add_row(name.removeprefix("bytes_").replace("_", " "), shown_number(value))
    console.print(memory)
    console.print(goals_table(report["goals"]))


def _rates(cells: list[dict[str, Any]]) -> Table:
    table = Table(title="Messages per CPU second", title_justify="left", title_style="bold")
    table.add_column("wanted at")
    table.add_column("with")
    for title in ("median", "best", "worst", "CPU", "messages", "other frames", "per publication"):
        table.add_column(title, justify="right")
    for cell in cells:
        rates = cell["messages_per_second"]
        figures = (
            rates["median"],
            rates["best"],
            rates["worst"],
            cell["cpu_relative_to_everything_off"],
            cell["messages"],
            cell["other_frames_at_brokers"],
            cell["messages_per_publication"],
        )
        table.add_row(f"{cell['matches']} brokers", cell["case"], *map(shown_number, figures))
    return table
