"""Does a comparison with an earlier commit run that commit, in turns, and compute the right ratios?"""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console
from typer.testing import CliRunner

from braid.cli import run_command
from braid.errors import ConfigurationError
from braid_bench import baseline
from braid_bench.baseline import OLDER, Case, Contestant, bench_against, checkout, figures_of, installed
from braid_bench.baseline_tables import print_baseline_report
from braid_bench.cli import bench

STORED = Path(__file__).parents[2] / "benchmarks"

# A package of the same name whose benchmark writes down that it ran, and says what it was told to cost.
COMMAND = """
import json, pathlib, sys
with open({log!r}, "a") as log:
    log.write("{name} " + " ".join(sys.argv[1:]) + "\\n")
cells = [{{"case": "S2", "cpu_us_per_publication": {cost}}}]
maps = {{"working_map_ms": 1, "working_table_ms": 2}}
report = {{"benchmark": "multipath", "cells": cells, "working_map": maps}}
print(json.dumps(report))
"""


def git(repository: Path, *arguments: str) -> None:
    who = ("-c", "user.name=somebody", "-c", "user.email=somebody@example.org")
    subprocess.run(["git", "-C", str(repository), *who, *arguments], check=True, capture_output=True)


def commit(repository: Path, name: str, cost: float, *, inside: bool = True) -> None:
    """A commit whose benchmarks are inside of the package, as they once were, or beside it."""
    package = repository / "src" / "braid"
    command = package / "cli" if inside else repository / "benchmarks" / "src" / "braid_bench"
    for folder in (package, command):
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "__init__.py").write_text("")
    text = COMMAND.format(log=str(repository / "log"), name=name, cost=cost)
    (command / "__main__.py").write_text(text)
    git(repository, "add", "src", *([] if inside else ["benchmarks"]))
    git(repository, "commit", "-m", name)
    git(repository, "tag", name)


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    git(tmp_path, "init", "-q")
    commit(tmp_path, "first", 10.0)
    commit(tmp_path, "second", 12.0)
    return tmp_path


def now_in(repository: Path) -> Contestant:
    return Contestant("the present", sys.executable, {"PYTHONPATH": str(repository / "src")}, OLDER)


def test_both_sides_take_turns_case_by_case(repository: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # What would bring the present source along does not reach the baseline.
    monkeypatch.setenv("PYTHONPATH", str(repository / "src"))
    stored: list[Any] = []
    report = bench_against(
        "first",
        [Case("one", ["multipath", "--seed", "1"]), Case("other", ["multipath", "--seed", "2"])],
        repository=repository,
        now=now_in(repository),
        store=lambda found: stored.append(json.loads(json.dumps(found))),
    )
    ran = [f"{name} bench multipath --seed {{}} --json" for name in ("first", "second", "second", "first")]
    assert (repository / "log").read_text().splitlines() == [
        line.format(seed) for seed in (1, 2) for line in ran
    ]
    assert [(row["case"], row["figure"], row["ratio"]) for row in report["figures"]] == [
        (case, figure, ratio)
        for case in ("one", "other")
        for figure, ratio in (
            ("S2: us per publication", 1.2),
            ("working_map_ms", 1.0),
            ("working_table_ms", 1.0),
        )
    ]
    assert report["baseline"]["reference"] == "first"
    assert report["summary"]["worst"] == 1.2
    assert report["summary"]["more_than_1.05"] == 2
    assert [len(each["figures"]) for each in stored] == [3, 6]
    output = io.StringIO()
    print_baseline_report(report, Console(file=output, width=150))
    assert "1.200" in output.getvalue()
    assert "2 above 1.05" in output.getvalue()


def test_a_commit_with_its_benchmarks_beside_the_package_meets_one_with_them_inside(repository: Path) -> None:
    commit(repository, "third", 15.0, inside=False)
    paths = os.pathsep.join([str(repository / "src"), str(repository / "benchmarks" / "src")])
    now = Contestant("the present", sys.executable, {"PYTHONPATH": paths})
    for reference in ("second", "third"):
        case = Case("one", ["multipath", "--seed", "1"])
        report = bench_against(reference, [case], repository=repository, now=now, turns=1)
        assert report["figures"][0]["now"] == [15.0]
        assert report["figures"][0]["baseline"] == [12.0 if reference == "second" else 15.0]


def test_the_environment_of_a_baseline_is_gone_afterwards(repository: Path) -> None:
    with installed("first", repository) as side:
        found = subprocess.run(
            [side.python, "-c", "import braid, rich; print(braid.__file__, rich.__file__)"],
            env=dict(side.variables),
            capture_output=True,
            text=True,
            check=True,
        )
        package, library = found.stdout.split()
        assert Path(package).is_relative_to(Path(side.python).parents[2] / "source")
        assert library == sys.modules["rich"].__file__
    assert not Path(side.python).exists()
    assert not Path(package).exists()


def test_a_case_that_the_baseline_does_not_have_is_left_out_and_named(repository: Path) -> None:
    # A commit of before does not know the case: it refuses it, the present does not.
    old = repository / "src" / "braid" / "cli" / "__main__.py"
    newer = old.read_text()
    old.write_text("import sys\nif '9' in sys.argv: raise SystemExit('there is no case 9')\n" + newer)
    git(repository, "add", "src")
    git(repository, "commit", "-m", "older")
    git(repository, "tag", "older")
    old.write_text(newer)
    cases = [Case("new", ["multipath", "--seed", "9"]), Case("known", ["multipath", "--seed", "1"])]
    report = bench_against("older", cases, repository=repository, now=now_in(repository))
    assert {row["case"] for row in report["figures"]} == {"known"}
    (left_out,) = report["left_out"]
    assert left_out["case"] == "new"
    assert "there is no case 9" in left_out["reason"]
    output = io.StringIO()
    print_baseline_report(report, Console(file=output, width=300))
    assert "Left out: new: " in output.getvalue()
    with pytest.raises(ConfigurationError, match="there is no case 9"):
        bench_against("older", cases[:1], repository=repository, now=now_in(repository))


def test_what_cannot_be_compared_is_said(repository: Path) -> None:
    with pytest.raises(ConfigurationError, match="has no commit 'nowhere'"):
        bench_against("nowhere", [], repository=repository)
    with pytest.raises(ConfigurationError, match="has no commit '--all'"):
        bench_against("--all", [], repository=repository)
    with pytest.raises(ConfigurationError, match="reports of 'join' cannot be compared"):
        figures_of({"benchmark": "join"})
    (repository / "src" / "braid" / "cli" / "__main__.py").write_text("raise SystemExit('no such benchmark')")
    with pytest.raises(ConfigurationError, match=r"failed at the present .exit code 1.: no such benchmark"):
        bench_against("first", [Case("one", ["x"])], repository=repository, now=now_in(repository))
    git(repository, "rm", "-rq", "--cached", "src")
    git(repository, "commit", "-m", "nothing")
    with pytest.raises(ConfigurationError, match="has no src/braid"):
        bench_against("HEAD", [], repository=repository)


def test_outside_of_a_checkout_there_is_no_baseline(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(baseline.braid, "__file__", str(tmp_path / "braid" / "__init__.py"))
    with pytest.raises(ConfigurationError, match="needs a git checkout of Braid"):
        checkout()
    with pytest.raises(SystemExit) as left:
        run_command(bench, ["multipath", "--baseline", "HEAD"], "braid bench")
    assert left.value.code == 2
    assert capsys.readouterr().err.startswith("braid: a baseline needs a git checkout of Braid")


@pytest.mark.parametrize("name", ["matching", "broker", "simulator", "multipath_cost"])
def test_every_comparable_report_has_figures(name: str) -> None:
    figures = figures_of(json.loads((STORED / f"{name}.json").read_text()))
    assert len(figures) >= 6
    assert all(cost > 0 for cost in figures.values())


@pytest.mark.parametrize(
    ("arguments", "cases"),
    [
        (
            ["matching", "--quick", "-w", "W1", "--sizes", "10,20"],
            [
                "matching --seed 1 --quick -w W1 --sizes 10",
                "matching --seed 1 --quick -w W1 --sizes 20",
            ],
        ),
        (
            ["broker", "-s", "one-to-one", "-s", "chain-of-3", "--seed", "3"],
            ["broker --seed 3 -s one-to-one", "broker --seed 3 -s chain-of-3"],
        ),
        (["simulator"], ["simulator --seed 1"]),
        (["multipath", "--quick"], ["multipath --seed 1 --quick"]),
    ],
)
def test_every_benchmark_is_compared_by_its_cases(
    arguments: list[str], cases: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []

    def fake(reference: str, chosen: list[Case], *, turns: int, **_: Any) -> dict[str, Any]:
        asked.extend(" ".join(case.arguments) for case in chosen)
        assert (reference, turns) == ("HEAD~1", 3)
        return {"figures": []}

    monkeypatch.setattr(baseline, "bench_against", fake)
    result = CliRunner().invoke(bench, [*arguments, "--baseline", "HEAD~1", "--turns", "3", "--json"])
    assert result.exit_code == 0, result.output
    assert asked == cases
