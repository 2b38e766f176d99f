"""Does `braid pipeline workload` list, make and refuse workloads as it should?"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from braid.cli import main
from braid.workloads import DEFINITIONS, load, workload

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from pyspark.sql import SparkSession


@pytest.fixture
def run(capfd: pytest.CaptureFixture[str]) -> Callable[..., tuple[int, str, str]]:
    def call(*arguments: str) -> tuple[int, str, str]:
        with pytest.raises(SystemExit) as ending:
            main(["pipeline", "workload", *arguments])
        captured = capfd.readouterr()
        assert isinstance(ending.value.code, int)
        return ending.value.code, captured.out, captured.err

    return call


def test_the_list_names_every_workload_and_parameter(run: Callable[..., tuple[int, str, str]]) -> None:
    code, output, _ = run("--list")
    assert code == 0
    for each in DEFINITIONS.values():
        assert f"{each.name}: {each.summary}" in output
        assert all(f"{parameter.name} = {parameter.default}" in output for parameter in each.parameters)


def test_the_list_of_one_workload_as_json(run: Callable[..., tuple[int, str, str]]) -> None:
    code, output, _ = run("siena", "--list", "--json")
    [listed] = json.loads(output)
    assert code == 0
    assert listed["name"] == "siena"
    assert {
        "name": "names",
        "default": 30,
        "meaning": "names of attributes",
        "allowed": "a whole number from 11 to 1000",
    } in listed["parameters"]


def test_tables_are_written_and_counted(
    run: Callable[..., tuple[int, str, str]], spark: SparkSession, tmp_path: Path
) -> None:
    assert spark is not None
    arguments = (
        "availability",
        "--out",
        str(tmp_path / "a"),
        "--seed",
        "5",
        "--set",
        "subscribers=50",
        "--set",
        "publication_bias=low",
    )
    code, output, errors = run(*arguments)
    assert code == 0
    assert output.split() == ["7", "brokers", "50", "subscriptions", "500", "publications"]
    assert "writing 500 publications ..." in errors
    stored = load(tmp_path / "a")
    expected = workload("availability", seed=5, subscribers=50, publication_bias="low")
    assert stored.local("publications").combine_chunks() == expected.local("publications")

    code, output, errors = run(*arguments, "--json")
    assert code == 0
    assert json.loads(output)["rows"] == {"brokers": 7, "subscriptions": 50, "publications": 500}
    assert "holds this workload already" in errors


def test_a_url_gets_the_same_tables_and_a_manifest(
    run: Callable[..., tuple[int, str, str]], spark: SparkSession, tmp_path: Path
) -> None:
    url = f"file://{tmp_path}/there"
    arguments = ("availability", "--out", url, "--set", "subscribers=50", "--json")
    code, output, _ = run(*arguments)
    assert code == 0
    expected = workload("availability", subscribers=50)
    assert json.loads(output)["rows"] == {name: table.rows for name, table in expected.tables.items()}
    for name in expected.tables:
        rows = spark.read.parquet(f"{url}/{name}").toArrow()
        assert sorted(map(str, rows.to_pylist())) == sorted(map(str, expected.local(name).to_pylist()))
    [manifest] = spark.read.parquet(f"{url}/manifest").collect()
    assert json.loads(manifest["manifest"])["parameters"]["subscribers"] == 50
    code, _, errors = run(*arguments)
    assert code
    assert "is there already; choose another place" in errors


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((), "say which workload: multipath.DT1, "),
        (("availability",), "say with --out which directory"),
        (("availabilty", "--out", "x"), "no workload 'availabilty'; did you mean 'availability'?"),
        (("nothing", "--list"), "no workload 'nothing'"),
        (("siena", "--out", "x", "--set", "name=12"), "siena has no parameter 'name'; did you mean 'names'?"),
        (("siena", "--out", "x", "--set", "names"), "'names' is not of the form key=value"),
        (
            ("siena", "--out", "x", "--set", "names=few"),
            "siena: names is a whole number from 11 to 1000, not 'few'",
        ),
        (
            ("siena", "--out", "x", "--set", "names=3"),
            "siena: names is a whole number from 11 to 1000, not 3",
        ),
        (
            ("siena", "--out", "x", "--set", "rate_per_minute=1e9", "--set", "duration_s=1e6"),
            "siena would not fit",
        ),
    ],
)
def test_what_cannot_be_made_is_said_before_anything_is_written(
    run: Callable[..., tuple[int, str, str]],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    arguments: tuple[str, ...],
    message: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    code, output, errors = run(*arguments)
    assert code == 2
    assert output == ""
    assert message in errors
    assert list(tmp_path.iterdir()) == []
