"""Pages of results: they say what the rows say, and those in the documents are up to date."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from braid.pipeline.experiments import results_pages
from braid.pipeline.experiments.registry import papers, registered
from braid.pipeline.experiments.results_pages import rows_file, table_of, write_pages

if TYPE_CHECKING:
    from collections.abc import Sequence

ROOT = Path(__file__).parents[2]


def row(metric: str, paper_value: float | None, measured: float, **labels: object) -> dict[str, object]:
    ratio = measured / paper_value if paper_value else None
    return {
        "metric": metric,
        "labels": labels,
        "paper_value": paper_value,
        "measured": measured,
        "ratio": ratio,
        "interval": None,
        "seeds": 1,
    }


def test_what_is_alike_is_said_once() -> None:
    table = table_of(
        [row("yield", 0.38, 0.37, strategy="S0", fanout=35), row("yield", 0.5, 0.6, strategy="S1", fanout=35)]
    )
    assert table.splitlines() == [
        "All rows: fanout = 35.",
        "",
        "| metric | strategy | paper | measured | ratio |",
        "| --- | --- | ---: | ---: | ---: |",
        "| `yield` | S0 | 0.38 | 0.37 | 0.9737 |",
        "| `yield` | S1 | 0.5 | 0.6 | 1.2 |",
    ]


def test_what_the_paper_does_not_say_is_no_column() -> None:
    table = table_of([row("cost", None, 12345.6, policy="ci"), row("cost", None, 2.0)])
    assert table.splitlines() == [
        "| metric | policy | measured |",
        "| --- | --- | ---: |",
        "| `cost` | ci | 12,346 |",
        "| `cost` | - | 2 |",
    ]


def test_a_long_table_shows_what_the_paper_speaks_of() -> None:
    rows = [row("hops", 1.0 if n == 7 else None, 2.0, n=n) for n in range(60)]
    lines = table_of(rows).splitlines()
    assert [line for line in lines if line.startswith("| `hops`")] == ["| `hops` | 7 | 1 | 2 | 2 |"]
    assert lines[-1] == "59 more rows are in the file."


def test_a_long_table_shows_what_the_experiment_is_about_as_well() -> None:
    rows = [row("hops", 1.0 if n == 7 else None, 2.0, n=n) for n in range(60)] + [
        row("broken", None, 3.0, n=1)
    ]
    lines = table_of(rows, ["broken"]).splitlines()
    assert lines[2:4] == ["| `hops` | 7 | 1 | 2 | 2 |", "| `broken` | 1 | - | 3 | - |"]
    assert lines[-1] == "59 more rows are in the file."


def test_a_page_says_what_a_reader_of_the_figures_should_know() -> None:
    pages = {paper: (ROOT / "docs" / "results" / f"{paper}.md").read_text() for paper in papers()}
    for experiment in registered().values():
        if f"`{experiment.full_name}`, at" in pages[experiment.paper]:
            for note in experiment.notes:
                assert f"- {note}" in pages[experiment.paper], experiment.full_name


def test_every_stored_file_of_rows_belongs_to_an_experiment() -> None:
    known = {
        rows_file(Path(), experiment, scale).name
        for experiment in registered().values()
        for scale in ("quick", "paper")
    }
    stored = [
        path.name
        for path in (ROOT / "benchmarks").glob("*.json")
        if isinstance(json.loads(path.read_text()), list)
    ]
    assert stored
    assert [name for name in stored if name not in known] == []


@pytest.mark.parametrize("paper", sorted(papers()))
def test_the_pages_are_those_of_the_stored_rows(paper: str, tmp_path: Path) -> None:
    write_pages(ROOT / "benchmarks", tmp_path)
    kept = ROOT / "docs" / "results" / f"{paper}.md"
    assert kept.read_text() == (tmp_path / f"{paper}.md").read_text(), "make results makes them anew"


@pytest.mark.parametrize("asked", ["", "multipath", "multipath.hops"])
def test_experiments_of_a_paper_share_the_runs_that_they_look_at(
    asked: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folders: dict[str, str] = {}

    def braid(command: Sequence[str], **_: object) -> subprocess.CompletedProcess[bytes]:
        folders[command[command.index("reproduce") + 1]] = command[command.index("--out") + 1]
        return subprocess.CompletedProcess(command, 0, json.dumps([row("hops", 1.0, 2.0)]).encode())

    monkeypatch.setattr(results_pages.subprocess, "run", braid)
    words = ["--rows", str(tmp_path / "rows"), "--pages", str(tmp_path), "--out", str(tmp_path / "out")]
    assert results_pages.main([*words, "--run", "quick", "--experiment", asked]) == 0
    chosen = {name: each.paper for name, each in registered().items() if name.startswith(asked)}
    assert folders == {name: str(tmp_path / "out" / paper) for name, paper in chosen.items()}
