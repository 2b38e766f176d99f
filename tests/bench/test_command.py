"""Is `braid bench` found where it is installed, and asked for where it is not?"""

from __future__ import annotations

import json
import tomllib
from importlib.metadata import EntryPoint, EntryPoints
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from braid.cli import main, run_command
from braid.cli.plugins import GROUP
from braid_bench.cli import bench

if TYPE_CHECKING:
    from collections.abc import Callable

PROJECT = Path(__file__).parents[2]


@pytest.fixture
def offered(monkeypatch: pytest.MonkeyPatch) -> None:
    """What an installed `braid-bench` offers, according to its project file."""
    project = tomllib.loads((PROJECT / "benchmarks" / "pyproject.toml").read_text())["project"]
    found = [EntryPoint(name, value, GROUP) for name, value in project["entry-points"].get(GROUP, {}).items()]
    monkeypatch.setattr("braid.cli.plugins.entry_points", EntryPoints(found).select)


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Callable[..., tuple[Any, str, str]]:
    def call(*arguments: str) -> tuple[Any, str, str]:
        with pytest.raises(SystemExit) as left:
            run_command(bench, arguments, "braid bench")
        printed = capsys.readouterr()
        return left.value.code, printed.out, printed.err

    return call


def ending(*arguments: str) -> Any:
    with pytest.raises(SystemExit) as left:
        main(arguments)
    return left.value.code


def test_without_the_distribution_one_sentence_says_how_to_get_it(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("braid.cli.plugins.entry_points", EntryPoints([]).select)
    assert ending("--help") == 0
    assert "bench" in capsys.readouterr().out
    for words in ((), ("--help",), ("matching", "--quick")):
        assert ending("bench", *words) == 2
        printed = capsys.readouterr()
        assert printed.out == ""
        assert printed.err.startswith("braid: the benchmarks are a distribution of their own, braid-bench; ")
        assert "pip install --editable 'benchmarks[rivals]'" in printed.err
        assert printed.err.count("\n") == 1


@pytest.mark.usefixtures("offered")
def test_with_the_distribution_it_gets_every_word(capsys: pytest.CaptureFixture[str]) -> None:
    assert ending("bench", "matching", "--help") == 0
    output = capsys.readouterr().out
    assert "Usage: braid bench matching" in output
    for word in ("--quick", "--workload", "BRAID_DATA", "Examples:"):
        assert word in output
    assert ending("bench", "--help") == 0
    assert "simulator" in capsys.readouterr().out
    assert ending("bench", "matching", "--workload", "W9") == 2
    assert capsys.readouterr().err.startswith("braid: ")
    assert ending("bench", "matching", "--no-such-option") == 2
    assert "--no-such-option" in capsys.readouterr().err
    assert ending("bench", "nothing") == 2


def test_bench_prints_and_stores_one_report(run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    asked = []

    def fake(settings: Any, progress: bool, store: Any) -> dict[str, object]:
        asked.append(settings)
        return {"benchmark": "matching"}

    monkeypatch.setattr("braid_bench.matching.bench_matching", fake)
    stored = tmp_path / "report.json"
    code, output, _ = run("matching", "--quick", "--seed", "3", "--json", "--output", str(stored))
    assert code == 0
    assert json.loads(output) == json.loads(stored.read_text()) == {"benchmark": "matching"}
    assert (asked[0].seed, asked[0].sizes) == (3, (1_000, 10_000))


def test_bench_refuses_what_it_does_not_know(run) -> None:
    assert "choose from W1, W2, W3, W4" in run("matching", "--workload", "W9")[2]
    assert "whole numbers" in run("matching", "--sizes", "many")[2]
    assert run("matching", "--sizes", "0")[0] == 2


def test_a_place_that_cannot_be_written_is_refused_before_the_measuring(run, tmp_path: Path) -> None:
    code, output, errors = run("matching", "--quick", "--output", str(tmp_path / "no" / "report.json"))
    assert (code, output) == (2, "")
    assert "report.json: cannot be written" in errors


def test_both_distributions_have_one_version() -> None:
    package, benchmarks = (
        tomllib.loads((PROJECT / folder / "pyproject.toml").read_text())["project"]
        for folder in ("", "benchmarks")
    )
    assert benchmarks["version"] == package["version"]
    assert benchmarks["dependencies"] == [f"{package['name']}=={package['version']}"]
