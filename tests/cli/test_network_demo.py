"""Does the demo of a network judge rightly, and does it fail when it should?"""

from __future__ import annotations

import io
import json
import subprocess
from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from braid.cli.network_demo import run
from braid.cli.network_demo.figures import ActFigures, Judgement
from braid.cli.network_demo.market import open_market
from braid.cli.network_demo.processes import long_tree
from braid.cli.network_demo.report import write_report
from braid.cli.network_demo.run import _print_verdict
from braid.cli.network_demo.settings import DemoSettings
from braid.cli.network_demo.show import figures_table
from braid.cli.network_demo.story import ACTS, broad_tree, middle_tree
from braid.errors import ConfigurationError
from braid.language import Filter
from braid.reconfiguration import OverlayTree
from tests.cli.broker_process import BRAID, braid
from tests.reconfiguration.random_trees import trees

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession


def test_trees_of_the_demo_are_trees_of_all_brokers() -> None:
    for count in (5, 12, 40):
        dials = long_tree(count)
        tree = OverlayTree([(name, other) for name, other in dials.items() if other])
        broad = broad_tree(tree.brokers)
        assert len(tree.brokers) == count
        assert set(broad.brokers) == set(tree.brokers)
        assert max(broad.degree(name) for name in broad.brokers) <= 4
    with pytest.raises(ConfigurationError, match="5 brokers or more"):
        DemoSettings(directory=None, brokers=4)  # type: ignore[arg-type]


@given(trees(least=4, most=14), st.integers(0, 2**16))
def test_the_broker_that_is_killed_carries_traffic_for_others(tree: OverlayTree, choice: int) -> None:
    victim = tree.brokers[choice % len(tree.brokers)]
    found = middle_tree(tree, victim)
    assert found.brokers == tree.brokers
    assert found.degree(victim) >= 2


def test_made_up_quotes_are_like_real_ones_and_repeat(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("BRAID_DATA", raising=False)
    market, again = open_market(1), open_market(1)
    assert list(market.quotes) == list(again.quotes)
    assert set(market.quotes[0]) == {"class", "symbol", "open", "high", "low", "close", "volume", "date"}
    assert all(quote["low"] <= quote["close"] <= quote["high"] for quote in market.quotes)
    filters = market.filters(list(long_tree(12)), 1)
    matched = {name: sum(map(Filter(text).matches, market.quotes[:500])) for name, text in filters.items()}
    assert all(0 < count < 400 for count in matched.values()), matched


# The judgement, on tables with mistakes in them.


def written(folder: Path, received: list[tuple[str, str, str, int, int]]) -> tuple[Path, Path]:
    """Traces of two brokers, A and B, and clients' tables of three quotes, of which two are wanted at B."""
    import pyarrow as pa
    from pyarrow import parquet

    from braid.protocol import PublicationBatch
    from braid.trace import TraceWriter

    traces, clients = folder / "traces", folder / "clients"
    writer = TraceWriter(traces, "A")
    for number in (1, 2, 3):
        batch = PublicationBatch.of("tree-0#open.1", [number], [b"x"])
        writer.publication(1_000 * number, "A", batch)
        if number < 3:
            batch.hops = 1
            writer.hop(1_000 * number + 10, None, "A", "B", "primary", batch)
            writer.delivery(1_000 * number + 20, "B", "reader-B", batch)
    for broker, phase, at_us in (
        ("A", "locking", 1), ("A", "paused", 5_000), ("A", "resumed", 9_000), ("A", "finished", 9_500),
        ("B", "paused", 5_000), ("B", "resumed", 6_000), ("B", "finished", 9_500),
    ):  # fmt: skip
        writer.reconfiguration(at_us, "shift", "s1", phase, broker, "")
    writer.close()
    clients.mkdir()
    names = ["broker", "subscriber", "publisher", "sequence", "at_us"]
    rows = [dict(zip(names, row, strict=True)) for row in received]
    kinds = [pa.string(), pa.string(), pa.string(), pa.int64(), pa.int64()]
    schema = pa.schema(list(zip(names, kinds, strict=True)))
    parquet.write_table(pa.Table.from_pylist(rows, schema), clients / "received.parquet")
    quotes = [
        {
            "act": "tree",
            "publisher": "tree-0",
            "sequence": number,
            "at_us": 1_000 * number,
            "close": 5.0 * number,
        }
        for number in (1, 2, 3)
    ]
    parquet.write_table(pa.Table.from_pylist(quotes), clients / "published.parquet")
    wanted = [{"broker": "B", "subscriber": "reader-B", "filter": "close < 12"}]
    parquet.write_table(pa.Table.from_pylist(wanted), clients / "wanted.parquet")
    return traces, clients


RIGHT = [("B", "reader-B", "tree-0", number, 1_000 * number + 500 * number) for number in (1, 2)]


@pytest.mark.spark
@pytest.mark.parametrize(
    ("received", "lost", "doubled", "uninvited"),
    [
        (RIGHT, 0, 0, 0),
        ([RIGHT[0], RIGHT[0], RIGHT[0], ("B", "reader-B", "tree-0", 3, 9)], 1, 2, 1),
    ],
)
def test_what_is_lost_doubled_or_uninvited_is_counted(
    spark: SparkSession, tmp_path: Path, received: Any, lost: int, doubled: int, uninvited: int
) -> None:
    from braid.cli.network_demo.figures import judge

    found = judge(*written(tmp_path, received), list(ACTS), {})
    assert [act.act for act in found.acts] == ["tree"]
    assert (found.total("published"), found.total("wanted")) == (3, 2)
    assert (found.total("lost"), found.total("doubled"), found.total("uninvited")) == (
        lost,
        doubled,
        uninvited,
    )
    assert found.wrong == lost + doubled + uninvited
    (act,) = found.acts
    assert (act.mean_hops, act.messages_per_delivery) == (1.0, 1.0)
    assert act.cost == pytest.approx(
        (3 + 2 * 2) / 3
    )  # three brokers of entry, two links with a broker behind
    assert (found.shifts, found.held_ms_max) == (1, 4.0)
    sink = io.StringIO()
    Console(file=sink, width=80).print(figures_table(found, ACTS))
    assert "the tree alone" in sink.getvalue()
    assert "…" not in sink.getvalue()
    if received == RIGHT:
        assert act.pause_ms == 1.0
        report = tmp_path / "report.html"
        write_report(report, found, ACTS, {"<b>": "&"}, [("an act", 1.0)], [])
        text = report.read_text()
        assert "lost 0, doubled 0" in text
        assert "&lt;b&gt;" in text
        assert "http" not in text


# Whole runs.


def demo(tmp_path: Path, *options: str) -> tuple[subprocess.CompletedProcess[str], dict[str, Any]]:
    """A small network and short acts."""
    command = [*BRAID, "demo", "--brokers", "5", "--seconds", "2", "--no-dashboard", "--json"]
    done = subprocess.run(
        [*command, "--out", str(tmp_path / "run"), *options],
        capture_output=True, text=True, timeout=280, check=False,
    )  # fmt: skip
    return done, json.loads(done.stdout) if done.stdout else {}


@pytest.mark.net
@pytest.mark.soak
@pytest.mark.spark
def test_a_small_run_loses_and_doubles_nothing(spark: SparkSession, tmp_path: Path) -> None:
    done, found = demo(tmp_path)
    assert done.returncode == 0, done.stderr
    assert (found["lost"], found["doubled"], found["uninvited"], found["problems"]) == (0, 0, 0, [])
    assert found["delivered"] == sum(act["wanted"] for act in found["acts"]) > 0
    assert Counter(act["act"] for act in found["acts"]) == Counter([*ACTS])
    assert found["shifts"] > 0
    for act in found["acts"]:
        assert (act["mean_hops"] is None) is (act["act"] == "kill")
    assert (tmp_path / "run" / "report.html").exists()
    for title in ("The tree alone", "Soft links", "A better tree", "kill -9 B02", "A plan", "The verdict"):
        assert title in done.stderr


@pytest.mark.net
@pytest.mark.soak
@pytest.mark.spark
def test_without_a_replacement_it_fails_and_says_so(spark: SparkSession, tmp_path: Path) -> None:
    done, found = demo(tmp_path, "--no-replace")
    assert done.returncode == 1, done.stderr
    assert found["lost"] > 0
    assert any("broker B02 was killed and nothing replaced it" in problem for problem in found["problems"])
    assert "FAILED" in (tmp_path / "run" / "report.html").read_text() or found["problems"]


@pytest.mark.parametrize("hops", [None, 2.5])
def test_the_verdict_says_what_its_figures_are_and_why_one_is_missing(
    hops: float | None, tmp_path: Path
) -> None:
    act = ActFigures(
        act="kill",
        published=7,
        wanted=9,
        delivered=9,
        lost=0,
        doubled=0,
        uninvited=0,
        mean_hops=hops,
        messages_per_delivery=hops,
        cost=hops,
        pause_ms=12.0,
    )
    sink = io.StringIO()
    settings = DemoSettings(directory=tmp_path)
    console = Console(file=sink, width=80)
    _print_verdict(console, settings, Judgement((act,), 4, 7.0), [], 60.0)
    said = " ".join(sink.getvalue().split())
    assert "hops: links that a delivery crossed" in said
    assert "4 steps changed the tree; none held back quotes for more than 7 ms" in said
    assert ("took the end of its trace with it" in said) == (hops is None)


def test_what_is_missing_is_named_before_anything_starts(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(run, "PACKAGES", ("pyarrow", "not_there_at_all"))
    with pytest.raises(ConfigurationError, match=r"needs not_there_at_all; .*braid-pubsub\[demo\]"):
        run.network_demo(
            brokers=5,
            act_s=1.0,
            keep=False,
            replace=True,
            dashboard=False,
            out=tmp_path / "x",
            seed=1,
            as_json=True,
        )
    assert not (tmp_path / "x").exists()


def test_a_folder_with_something_in_it_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "precious").touch()
    refused = braid("demo", "--out", str(tmp_path))
    assert refused.returncode == 2
    assert "is not empty; choose another folder with --out" in refused.stderr
