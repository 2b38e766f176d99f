"""How does a person read a report?"""

from __future__ import annotations

from typing import Any

from rich.console import Console
from rich.table import Table

from braid_bench.documented import LABEL

__all__ = ["goals_table", "print_report", "shown_number"]


def print_report(report: dict[str, Any], console: Console | None = None) -> None:
    """The report as tables: throughput per workload, cost of the index, goals."""
    console = console or Console()
    environment, settings = report["environment"], report["settings"]
    console.print(
        f"[bold]Matching[/bold] on one core of {environment['cpu']}, {environment['python']}, "
        f"NumPy {environment['versions']['numpy']}, seed {settings['seed']}. Publications per CPU second, "
        f"median of {settings['repeats']} turns, batches of {settings['main_batch']:,} unless said otherwise."
    )
    for workload in dict.fromkeys(cell["workload"] for cell in report["cells"]):
        cells = [cell for cell in report["cells"] if cell["workload"] == workload]
        console.print(_throughput(workload, cells, settings))
        console.print(_costs(workload, cells))
    for each in report["skipped"]:
        console.print(f"[yellow]{each['workload']} was skipped:[/yellow] {each['reason']}")
    for reason in sorted(_missing_packages(report)):
        console.print(f"[yellow]left out:[/yellow] {reason}; see the extra braid-pubsub\\[bench]")
    console.print(_documented(report["documented_elsewhere"]))
    console.print(goals_table(report["goals"]))


def _missing_packages(report: dict[str, Any]) -> set[str]:
    reasons = (rival["reason"] or "" for cell in report["cells"] for rival in cell["rivals"])
    return {reason for reason in reasons if "not installed" in reason}


def _table(title: str, first: str, cells: list[dict[str, Any]]) -> Table:
    table = Table(title=title, title_justify="left", title_style="bold")
    table.add_column(first)
    for cell in cells:
        table.add_column(f"{cell['filters']:,} filters", justify="right")
    return table


def _throughput(workload: str, cells: list[dict[str, Any]], settings: dict[str, Any]) -> Table:
    rates = ", ".join(f"{100 * cell['match_rate']:.3g} %" for cell in cells)
    table = _table(f"{workload}: publications per CPU second ({rates} of the filters match)", "", cells)
    main = str(settings["main_batch"])
    names = {
        "match_groups": f"Braid, {settings['destinations']} destinations",
        "count_batch": "Braid, counts",
        "match_batch": "Braid, every key listed",
    }
    for method, title in names.items():
        for batch in (main, *(str(each) for each in settings["batches"] if str(each) != main)):
            figures = [shown_number(cell["braid"]["rates"][method][batch]["median"]) for cell in cells]
            shown = title if batch == main else f"  in batches of {batch}"
            table.add_row(shown, *figures, style="bold" if batch == main else "dim")
    table.add_section()
    for position, rival in enumerate(cells[0]["rivals"]):
        figures = []
        for cell in cells:
            row = cell["rivals"][position]
            figures.append("-" if row["rate"] is None else shown_number(row["rate"]["median"]))
        table.add_row(rival["title"], *figures)
    return table


def _costs(workload: str, cells: list[dict[str, Any]]) -> Table:
    table = _table(f"{workload}: what the index costs", "", cells)
    rows: list[tuple[str, tuple[str, ...]]] = [
        ("parsing a filter, us", ("parse_us_per_filter",)),
        ("its normal form, us", ("normal_form_us_per_filter",)),
        ("building, us per filter", ("build_us_per_filter",)),
        ("one add, us, mean", ("add", "mean_us")),
        ("  with what it adds to later matches", ("add", "amortised_us")),
        ("one add, us, longest", ("add", "max_us")),
        ("one remove, us, mean", ("remove", "mean_us")),
        ("index, bytes per filter", ("memory", "bytes_per_filter")),
        ("the filter object itself, bytes", ("memory", "filter_object_bytes")),
        ("  of that its normal form", ("memory", "of_that_normal_form")),
    ]
    for title, path in rows:
        figures = []
        for cell in cells:
            place: Any = cell["braid"]
            for key in path:
                place = place[key]
            figures.append(shown_number(place))
        table.add_row(title, *figures)
    return table


def _documented(rows: list[dict[str, Any]]) -> Table:
    table = Table(title=f"Other systems ({LABEL})", title_justify="left", title_style="bold")
    for column in ("system", "workload"):
        table.add_column(column)
    table.add_column("filters", justify="right")
    table.add_column("publications per CPU second", justify="right")
    for row in rows:
        rate = shown_number(row["publications_per_cpu_second"])
        table.add_row(row["system"], row["workload"], f"{row['filters']:,}", rate)
    return table


def goals_table(rows: list[dict[str, Any]]) -> Table:
    table = Table(title="Goals", title_justify="left", title_style="bold")
    table.add_column("goal")
    table.add_column("target", justify="right")
    table.add_column("measured", justify="right")
    table.add_column("met")
    for row in rows:
        met = {True: "[green]yes[/green]", False: "[red]no[/red]", None: "not measured"}[row["met"]]
        table.add_row(row["goal"], row["target"], shown_number(row["measured"]), met)
    return table


def shown_number(value: float | None) -> str:
    if value is None:
        return "-"
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"
