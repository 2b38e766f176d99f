"""Does the demonstration show what it claims, and would it notice if things went wrong?"""

from __future__ import annotations

import io
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from braid.cli import demo
from braid.cli.demo import FILTERS, run_demo
from braid.cli.ticker import Ticker
from braid.language import Filter
from braid.matching import FilterIndex


def console_to(sink: io.StringIO, *, terminal: bool = False) -> Console:
    return Console(file=sink, force_terminal=terminal, width=80, highlight=False)


@given(seed=st.integers(), portions=st.lists(st.integers(0, 20), max_size=6))
def test_the_ticker_depends_on_its_seed_alone(seed: int, portions: list[int]) -> None:
    ticker = Ticker(seed)
    in_portions = [quote for portion in portions for quote in ticker.quotes(portion)]
    assert in_portions == Ticker(seed).quotes(sum(portions))


def test_prices_move_plausibly() -> None:
    last: dict[object, float] = {}
    halts = 0
    for quote in Ticker(3).quotes(20_000):
        price, symbol = float(quote["price"]), quote["symbol"]
        assert price > 0
        before = last.setdefault(symbol, price)
        assert abs(price / before - 1) < 0.06
        halts += bool(quote["halted"])
        assert quote["volume"] % 100 == 0
        assert -60 < quote["change"] < 150
        last[symbol] = price
    assert len(last) == 12
    assert 0 < halts < 2000


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_every_filter_has_something_to_deliver_and_something_to_leave_out(seed: int) -> None:
    quotes = Ticker(seed).quotes(10_000)
    for text in FILTERS.values():
        assert 0 < sum(map(Filter(text).matches, quotes)) < len(quotes)


def test_without_a_terminal_it_prints_a_few_plain_lines() -> None:
    sink = io.StringIO()
    result = run_demo(seconds=0.2, rate=2000, console=console_to(sink))
    text = sink.getvalue()
    assert (result.published, result.wrong, result.exit_code) == (400, 0, 0)
    assert [subscriber.delivered for subscriber in result.subscribers] == [
        sum(map(Filter(condition).matches, Ticker(1).quotes(400))) for condition in FILTERS.values()
    ]
    for name, condition in FILTERS.items():
        assert name in text
        assert condition in text
    assert "published 400 in" in text
    assert "wrong deliveries = 0" in text
    assert "\x1b" not in text
    assert len(text.splitlines()) < 30


def test_on_a_terminal_it_shows_a_bar_counts_and_quotes() -> None:
    sink = io.StringIO()
    result = run_demo(seconds=0.2, rate=2000, console=console_to(sink, terminal=True))
    assert result.wrong == 0
    text = sink.getvalue()
    assert "400/400" in text
    assert "latest" in text
    assert "wrong deliveries = 0" in text


def test_json_is_the_only_output(capsys: pytest.CaptureFixture[str]) -> None:
    result = run_demo(seconds=0.1, rate=1000, seed=5, json_output=True)
    captured = capsys.readouterr()
    assert captured.err == ""
    report = json.loads(captured.out)
    assert report == result.to_json()
    assert (report["seed"], report["published"], report["wrong"]) == (5, 100, 0)
    assert [entry["filter"] for entry in report["subscribers"]] == list(FILTERS.values())


def test_a_faulty_index_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    right = FilterIndex.match_batch

    def faulty(index: FilterIndex[int], batch: list[Any]) -> list[set[int]]:
        # Keys count from 1 in the order of subscribing: the first hears nothing, the fourth everything.
        return [(keys - {1}) | {4} for keys in right(index, batch)]

    monkeypatch.setattr(FilterIndex, "match_batch", faulty)
    monkeypatch.setattr(FilterIndex, "match", lambda index, attributes: faulty(index, [attributes])[0])
    sink = io.StringIO()
    result = run_demo(seconds=0.2, rate=2000, console=console_to(sink))
    first, fourth = result.subscribers[0], result.subscribers[3]
    assert (first.missing, first.unexpected, first.delivered) == (first.expected, 0, 0)
    assert (fourth.missing, fourth.unexpected) == (0, 400 - fourth.expected)
    assert result.wrong == first.missing + fourth.unexpected > 0
    assert result.exit_code == 1
    assert f"wrong deliveries = {result.wrong:,}" in sink.getvalue()


def test_an_interrupt_ends_it_early_with_an_honest_table(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(demo, "wait", interrupted)
    sink = io.StringIO()
    result = run_demo(seconds=60, console=console_to(sink))
    assert result.interrupted
    assert result.published < 60 * demo.RATE
    assert result.wrong == 0
    assert "stopped early" in sink.getvalue()
