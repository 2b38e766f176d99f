"""Can I see it work, and can I believe what I see?

A made-up stock ticker is published on the embedded bus for some seconds, to subscribers with filters
of every kind. A naive twin evaluates each filter on each quote by itself, without the index, and at
the end every subscriber's deliveries are compared with what the twin expected: anything missing,
uninvited or out of order is counted as wrong.
"""

from __future__ import annotations

import json
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

from rich.markup import escape

import braid
from braid.cli.ticker import Ticker
from braid.embedded import Bus, BusSubscription
from braid.language import Filter, Publication
from braid.matching import naive

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

__all__ = ["DemoResult", "SubscriberResult", "run_demo"]

RATE = 500.0
"""Quotes per second unless told otherwise: lively, and still readable."""

FILTERS = {
    "one stock": "symbol = 'ACME' AND price > 103",
    "big movers": "change NOT BETWEEN -3 AND 3",
    "large trades": "price * volume >= 250000",
    "halts": "halted",
    "northern B": "exchange = 'NORTH' AND symbol LIKE 'B%'",
    "cheap shares": "sector IN ('energy', 'metals') AND price < 60 AND NOT halted",
}
# Most subscribers have a callback; this one reads from its subscription in a thread, as an iterator.
ITERATING = "large trades"

TURN_S = 0.05
"""Quotes are published in a batch this often."""
NAME_WIDTH = max(map(len, FILTERS))


@dataclass(frozen=True, slots=True)
class SubscriberResult:
    """How one subscriber fared: delivered, and how that differs from what the twin expected."""

    name: str
    filter: str
    expected: int
    delivered: int
    missing: int
    unexpected: int
    out_of_order: int

    @property
    def wrong(self) -> int:
        """Deliveries that should not have been as they were."""
        return self.missing + self.unexpected + self.out_of_order


@dataclass(frozen=True, slots=True)
class DemoResult:
    """What the demonstration showed."""

    seed: int
    seconds: float
    published: int
    interrupted: bool
    subscribers: tuple[SubscriberResult, ...]

    @property
    def delivered(self) -> int:
        """Deliveries to all subscribers together."""
        return sum(subscriber.delivered for subscriber in self.subscribers)

    @property
    def wrong(self) -> int:
        """Wrong deliveries of all subscribers together."""
        return sum(subscriber.wrong for subscriber in self.subscribers)

    @property
    def exit_code(self) -> int:
        """0 when every delivery was right."""
        return 1 if self.wrong else 0

    def to_json(self) -> dict[str, Any]:
        """The figures as plain values."""
        return {
            "seed": self.seed,
            "seconds": round(self.seconds, 3),
            "published": self.published,
            "delivered": self.delivered,
            "wrong": self.wrong,
            "interrupted": self.interrupted,
            "subscribers": [
                {**asdict(subscriber), "wrong": subscriber.wrong} for subscriber in self.subscribers
            ],
        }


@dataclass(slots=True)
class _Watcher:
    """One subscriber: what it received, and what the twin says it should have."""

    name: str
    filter: Filter
    received: list[int] = field(default_factory=list)
    expected: list[int] = field(default_factory=list)
    last: Publication | None = None

    def receive(self, publication: Publication) -> None:
        self.received.append(publication.sequence)
        self.last = publication

    def receive_all(self, subscription: BusSubscription) -> None:
        for publication in subscription:
            self.receive(publication)

    def result(self) -> SubscriberResult:
        """The comparison; only once the bus is closed and everything has arrived."""
        received, expected = Counter(self.received), Counter(self.expected)
        return SubscriberResult(
            name=self.name,
            filter=self.filter.text,
            expected=len(self.expected),
            delivered=len(self.received),
            missing=(expected - received).total(),
            unexpected=(received - expected).total(),
            out_of_order=sum(
                later < earlier for earlier, later in zip(self.received, self.received[1:], strict=False)
            ),
        )


def run_demo(
    seconds: float = 20.0,
    rate: float = RATE,
    seed: int = 1,
    json_output: bool = False,
    console: Console | None = None,
) -> DemoResult:
    """Run the demonstration and print it.

    Args:
        seconds: how long quotes are published.
        rate: quotes per second. With the seed this determines every quote and every delivery.
        seed: the same seed gives the same ticker.
        json_output: print the figures as JSON and nothing else.
        console: where to print; standard output unless given.
    """
    from rich.console import Console

    console = console or Console(highlight=False)
    watchers = [_Watcher(name, Filter(text)) for name, text in FILTERS.items()]
    total = max(1, round(seconds * rate))
    if json_output:
        result = _run(watchers, Ticker(seed), total, rate, seed, lambda _: None)
        console.out(json.dumps(result.to_json(), indent=2), highlight=False)
        return result

    _print_filters(console, watchers)
    display = _live_display if console.is_terminal else _plain_display
    with display(console, watchers, total) as show:
        result = _run(watchers, Ticker(seed), total, rate, seed, show)
    _print_result(console, result)
    return result


def _run(
    watchers: list[_Watcher],
    ticker: Ticker,
    total: int,
    rate: float,
    seed: int,
    show: Callable[[int], None],
) -> DemoResult:
    """Publish `total` quotes at their rate; `show` is told again and again how many there were."""
    stop = threading.Event()
    interrupted = False
    started_s = time.monotonic()
    # The bus is closed before the pool, so that its reader comes to an end.
    with ThreadPoolExecutor(2, "braid-demo") as pool, braid.open("ticker") as bus:
        reader = None
        for watcher in watchers:
            if watcher.name == ITERATING:
                reader = pool.submit(watcher.receive_all, bus.subscribe(watcher.filter, name=watcher.name))
            else:
                bus.subscribe(watcher.filter, watcher.receive, name=watcher.name)
        # An interrupt reaches this thread only, so that each batch is published and checked as a whole.
        publisher = pool.submit(_publish, bus, watchers, ticker, total, rate, stop)
        try:
            while not publisher.done():
                wait([publisher], timeout=TURN_S)
                show(bus.statistics().published)
        except KeyboardInterrupt:
            interrupted = True
        stop.set()
        publisher.result()
        elapsed_s = time.monotonic() - started_s
    if reader is not None:
        reader.result()
    return DemoResult(
        seed=seed,
        seconds=elapsed_s,
        published=bus.statistics().published,
        interrupted=interrupted,
        subscribers=tuple(watcher.result() for watcher in watchers),
    )


def _publish(
    bus: Bus, watchers: list[_Watcher], ticker: Ticker, total: int, rate: float, stop: threading.Event
) -> None:
    """Publish what is due, turn after turn, and let the twin judge each quote."""
    by_name = {watcher.name: watcher for watcher in watchers}
    filters = {watcher.name: watcher.filter for watcher in watchers}
    started_s = time.monotonic()
    published = 0
    while published < total and not stop.wait(TURN_S):
        due = min(total, int((time.monotonic() - started_s) * rate))
        quotes = ticker.quotes(due - published)
        bus.publish_batch(quotes)
        for sequence, quote in enumerate(quotes, published + 1):
            for name in naive.match(filters, quote):
                by_name[name].expected.append(sequence)
        published = due


# ---- what people see


def _print_filters(console: Console, watchers: list[_Watcher]) -> None:
    console.print(
        f"[bold]{len(watchers)} subscribers[/bold] of a made-up stock ticker, and what they ask for:"
    )
    for watcher in watchers:
        console.print(f"  [cyan]{watcher.name:<{NAME_WIDTH}}[/cyan]", escape(watcher.filter.text))
    console.print()


@contextmanager
def _live_display(console: Console, watchers: list[_Watcher], total: int) -> Iterator[Callable[[int], None]]:
    """A bar, and below it each subscriber's count and latest quote."""
    from rich.console import Group
    from rich.live import Live
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    progress = Progress(
        TextColumn("published"), BarColumn(None), MofNCompleteColumn(), TimeRemainingColumn(), console=console
    )
    task = progress.add_task("published", total=total)
    with Live(console=console, refresh_per_second=10, transient=True) as live:

        def show(published: int) -> None:
            progress.update(task, completed=published)
            live.update(Group(progress, _latest(watchers)))

        show(0)
        yield show


def _latest(watchers: list[_Watcher]) -> Table:
    from rich.table import Table

    table = Table(box=None, padding=(0, 2), expand=True)
    table.add_column("subscriber", style="cyan", no_wrap=True)
    table.add_column("delivered", justify="right")
    table.add_column("latest", ratio=1, no_wrap=True)
    for watcher in watchers:
        table.add_row(watcher.name, f"{len(watcher.received):,}", _quote_text(watcher.last))
    return table


def _quote_text(publication: Publication | None) -> str:
    """A quote on one line, coloured by the way it moved."""
    if publication is None:
        return ""
    quote = publication.attributes
    colour = "green" if float(str(quote["change"])) >= 0 else "red"
    trade = "[yellow]halted[/yellow]" if quote["halted"] else f"{quote['volume']:>7,}"
    return (
        f"{quote['symbol']:<5} {quote['price']:>8.2f} [{colour}]{quote['change']:>+6.2f}%[/{colour}] {trade}"
    )


@contextmanager
def _plain_display(console: Console, watchers: list[_Watcher], total: int) -> Iterator[Callable[[int], None]]:
    """A line now and then, for logs."""
    shown = 0

    def show(published: int) -> None:
        nonlocal shown
        quarter = 4 * published // total
        if quarter > shown:
            shown = quarter
            delivered = sum(len(watcher.received) for watcher in watchers)
            console.print(f"published {published:,} of {total:,}, delivered {delivered:,}")

    yield show


def _print_result(console: Console, result: DemoResult) -> None:
    from rich.table import Table

    table = Table(box=None, padding=(0, 2))
    table.add_column("subscriber", style="cyan", no_wrap=True)
    for heading in ("delivered", "expected", "wrong"):
        table.add_column(heading, justify="right")
    for subscriber in result.subscribers:
        colour = "red" if subscriber.wrong else "green"
        table.add_row(
            subscriber.name,
            f"{subscriber.delivered:,}",
            f"{subscriber.expected:,}",
            f"[{colour}]{subscriber.wrong:,}[/{colour}]",
        )
    console.print(table)
    early = " (stopped early)" if result.interrupted else ""
    console.print(
        f"\npublished {result.published:,} in {result.seconds:.1f} s{early}, delivered {result.delivered:,}"
    )
    colour = "red" if result.wrong else "green"
    console.print(
        f"[bold {colour}]wrong deliveries = {result.wrong:,}[/bold {colour}], each checked by a naive twin"
    )
