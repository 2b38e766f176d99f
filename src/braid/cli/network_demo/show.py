"""What people see of the demo in the terminal."""

from __future__ import annotations

import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

from rich.markup import escape
from rich.table import Table

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rich.console import Console

    from braid.cli.network_demo.figures import Judgement

__all__ = ["LEGEND", "UNKNOWN", "Show", "figures_table"]


class Show:
    """Prints acts with their times, and what is going on at the moment where a terminal shows that."""

    def __init__(self, console: Console) -> None:
        self.console = console
        self.times_s: list[tuple[str, float]] = []
        """Acts with their durations."""
        self._status: Any = None
        self._number = 0

    @contextmanager
    def act(self, title: str, about: str) -> Iterator[None]:
        """One act; its time is printed at its end."""
        self._number += 1
        self.console.print(
            f"\n[bold cyan]{self._number}. {escape(title)}[/bold cyan]  {escape(about)}", soft_wrap=True
        )
        began_s = time.monotonic()
        with self.console.status("...", spinner="dots") as status:
            self._status = status
            try:
                yield
            finally:
                self._status = None
        taken_s = time.monotonic() - began_s
        self.times_s.append((title, taken_s))
        self.console.print(f"   [dim]{taken_s:.1f} s[/dim]")

    def say(self, text: str) -> None:
        """A line that stays."""
        self.console.print(f"   {escape(text)}", soft_wrap=True)

    def now(self, text: str) -> None:
        """What is going on; the next one takes its place."""
        if self._status is not None and self.console.is_terminal:
            self._status.update(f"   {escape(text)}")


LEGEND: Final = (
    "hops: links that a delivery crossed. messages: copies on links for each delivery. cost: links crossed "
    "and brokers visited for each quote. wait: from publishing a quote until a reader has it."
)
UNKNOWN: Final = (
    "A dash: the broker that was killed took the end of its trace with it, so what crossed links in that "
    "act is not known. Deliveries are, from what the readers wrote down."
)


def figures_table(judgement: Judgement, titles: dict[str, str]) -> Table:
    """Acts side by side."""
    table = Table(box=None, collapse_padding=True, pad_edge=False, header_style="bold")
    table.add_column("", no_wrap=True)
    for heading in (
        "hops",
        "messages\nper\ndelivery",
        "cost",
        "longest\nwait ms",
        "published",
        "delivered",
        "lost",
        "doubled",
    ):
        table.add_column(heading, justify="right", no_wrap=True)
    for act in judgement.acts:
        bad = "red" if act.lost or act.doubled or act.uninvited else ""
        table.add_row(
            titles.get(act.act, act.act),
            *(_number(value) for value in (act.mean_hops, act.messages_per_delivery, act.cost)),
            _number(act.pause_ms, 0),
            f"{act.published:,}",
            f"{act.delivered:,}",
            f"{act.lost:,}",
            f"{act.doubled:,}",
            style=bad,
        )
    total = judgement.to_json()
    table.add_section()
    table.add_row(
        "together",
        *[""] * 4,
        *(f"{total[name]:,}" for name in ("published", "delivered", "lost", "doubled")),
        style="bold",
    )
    return table


def _number(value: float | None, digits: int = 2) -> str:
    return "-" if value is None else f"{value:,.{digits}f}"
