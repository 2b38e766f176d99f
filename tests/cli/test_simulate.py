"""What does `braid simulate` print, and how does it end?"""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from braid.cli.app import app
from braid.errors import ConfigurationError
from braid.scenario import running as simulation
from braid.trace import read_table

EXAMPLES = Path(__file__).parents[2] / "examples"
SHORT = """
[topology]
name = "line"
count = 2
[[workload.subscriptions]]
broker = "B001"
client = "ann"
filter = "x > 0"
[[workload.publications]]
broker = "B000"
client = "bob"
attributes = { x = 1 }
"""


@pytest.fixture
def short(tmp_path: Path) -> Path:
    path = tmp_path / "short.toml"
    path.write_text(SHORT)
    return path


def run(*arguments: object) -> Any:
    return CliRunner().invoke(app, ["simulate", *map(str, arguments)])


@pytest.mark.parametrize("name", sorted(path.name for path in EXAMPLES.glob("*.toml")))
def test_every_example_keeps_its_promises(name: str) -> None:
    result = run(EXAMPLES / name, "--json")
    assert result.exit_code == 0, result.output
    summary = json.loads(result.stdout)
    assert summary["violations"] == []
    assert summary["warnings"] == []
    assert summary["deliveries"] > 0
    assert 0 < summary["yield"] <= 1


def test_what_the_examples_show() -> None:
    partition = json.loads(run(EXAMPLES / "partition.toml", "--json").stdout)
    assert partition["publications"] == 150
    assert partition["deliveries"] == 100 + 100 + 50
    assert partition["faults"] == 2
    crash = json.loads(run(EXAMPLES / "crash.toml", "--json").stdout)
    assert crash["topology"] == "own"
    assert 600 < crash["deliveries"] <= 900


def test_a_summary_for_people(short: Path) -> None:
    result = run(short, "--seed", 4)
    assert result.exit_code == 0
    said = " ".join(result.stdout.split())
    for words in ["line-2: 2 brokers, 2 clients", "seed 4", "publications 1", "yield 100.0%", "all kept"]:
        assert words in said
    assert "not watched" in run(short, "--no-checkers").stdout


def test_a_trace_is_written_once(short: Path, tmp_path: Path) -> None:
    out = tmp_path / "trace"
    assert run(short, "--out", out, "--json").exit_code == 0
    assert read_table(out, "delivery").num_rows == 1
    with pytest.raises(ConfigurationError, match="holds a trace already"):
        CliRunner().invoke(app, ["simulate", str(short), "--out", str(out)], catch_exceptions=False)


def test_a_broken_promise_names_the_command_that_repeats_it(
    short: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    true_run = simulation.simulate

    def broken(*arguments: Any, **named: Any) -> simulation.SimulationSummary:
        return replace(true_run(*arguments, **named), violations=("at 1 s: something was lost",) * 30)

    monkeypatch.setattr(simulation, "simulate", broken)
    result = run(short, "--seed", 12)
    assert result.exit_code == 1
    assert "something was lost" in result.stdout
    assert "and 20 more" in result.stdout
    said = " ".join(result.stderr.split())
    assert re.search(r"repeat with: braid simulate \S*short\.toml --seed 12 --checkers", said)


def test_warnings_go_to_standard_error(short: Path) -> None:
    crash = '[[faults]]\nat = "-1s"\nfault = "crash"\nbroker = "B001"\n'
    short.write_text(SHORT + crash)
    result = run(short, "--json")
    assert "brokers were not linked" in result.stderr
    assert json.loads(result.stdout)["warnings"]


def test_a_mistake_names_the_line(short: Path) -> None:
    short.write_text(SHORT.replace("count = 2", "count = 2\nsped = 3"))
    with pytest.raises(ConfigurationError, match=r"short\.toml, line 5, key 'sped' of \[topology\]"):
        CliRunner().invoke(app, ["simulate", str(short)], catch_exceptions=False)
