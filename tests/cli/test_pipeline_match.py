"""Does `braid pipeline match` join files of every form, and say clearly what it cannot use?"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from braid.cli import main

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession


FILTERS = """\
{"id": "dear", "filter": "price > 10", "desk": "a"}
{"id": "ours", "filter": "symbol LIKE 'AC%'", "desk": "b"}
"""
PUBLICATIONS = "id,symbol,price\n1,ACME,12.5\n2,XY,3\n3,,20\n"

# What every command that needs Spark says first where nobody looks.
WAITING = "Spark starts, which takes some seconds\n"


@pytest.fixture
def files(tmp_path: Path) -> list[str]:
    """The options that name both files."""
    (tmp_path / "filters.jsonl").write_text(FILTERS)
    (tmp_path / "publications.csv").write_text(PUBLICATIONS)
    return [
        "--publications",
        str(tmp_path / "publications.csv"),
        "--filters",
        str(tmp_path / "filters.jsonl"),
    ]


@pytest.fixture
def run(spark: SparkSession, capsys: pytest.CaptureFixture[str]) -> Any:
    def call(*arguments: str) -> tuple[int, str, str]:
        with pytest.raises(SystemExit) as ending:
            main(["pipeline", "match", *arguments])
        captured = capsys.readouterr()
        assert isinstance(ending.value.code, int)
        return ending.value.code, captured.out, captured.err

    return call


def lines(text: str) -> list[dict[str, Any]]:
    return sorted((json.loads(line) for line in text.splitlines()), key=lambda row: row["publication"])


def test_counts_are_printed(run: Any, files: list[str]) -> None:
    code, out, err = run(*files)
    assert (code, err) == (0, WAITING + "3 rows\n")
    assert lines(out) == [
        {"publication": 1, "count": 2},
        {"publication": 2, "count": 0},
        {"publication": 3, "count": 1},
    ]


def test_destinations_go_into_a_file(run: Any, files: list[str], tmp_path: Path) -> None:
    target = tmp_path / "answers.jsonl"
    code, out, _ = run(
        *files, "--how", "destinations", "--destination", "desk", "-a", "symbol", "-a", "price",
        "--out", str(target), "--json",
    )  # fmt: skip
    assert code == 0
    assert json.loads(out) == {"rows": 3, "how": "destinations", "skipped_filters": 0, "out": str(target)}
    assert [row["destinations"] for row in lines(target.read_text())] == [["a", "b"], [], ["a"]]


def test_pairs_go_into_parquet_and_back(
    run: Any, files: list[str], tmp_path: Path, spark: SparkSession
) -> None:
    target = tmp_path / "pairs.parquet"
    code, out, err = run(*files, "--how", "pairs", "--out", str(target))
    assert (code, out, err) == (0, "", WAITING + "3 rows\n")
    rows = spark.read.parquet(str(target)).collect()
    assert sorted((row.publication, row["filter"]) for row in rows) == [(1, "dear"), (1, "ours"), (3, "dear")]
    code, _, err = run(*files, "--out", str(target))
    assert code != 0
    assert "is already there" in err


def test_a_bad_filter_stops_or_is_left_out(run: Any, files: list[str], tmp_path: Path) -> None:
    with (tmp_path / "filters.jsonl").open("a") as target:
        target.write('{"id": "bad", "filter": "price >"}\n')
    code, out, err = run(*files)
    assert code != 0
    assert out == ""
    assert "the filter with id 'bad': line 1, column 8: found end of filter" in err
    code, out, err = run(*files, "--on-error", "skip")
    assert code == 0
    assert len(lines(out)) == 3
    assert err.endswith("3 rows; 1 filters left out\n")


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        (["--filters", "nowhere.jsonl"], "nowhere.jsonl: there is no such file"),
        (["--how", "all"], "choose one of counts, destinations, pairs"),
        (["--json"], "it needs --out"),
        (["--out", "answers.txt"], "must end in .parquet"),
        (["--out", "nowhere/answers.jsonl"], "there is no folder"),
        (["--key", "number"], "has no column 'number'; its columns are id, symbol, price"),
    ],
)
def test_what_cannot_be_used_is_named(run: Any, files: list[str], changed: list[str], message: str) -> None:
    code, out, err = run(*files, *changed)
    assert code != 0
    assert out == ""
    assert message in err.replace("\n", " ")


def test_a_format_that_is_not_known(run: Any, files: list[str], tmp_path: Path) -> None:
    (tmp_path / "filters.xml").write_text("<filters/>")
    code, _, err = run(*files, "--filters", str(tmp_path / "filters.xml"))
    assert code != 0
    assert "cannot tell its format" in err
    (tmp_path / "filters.parquet").write_text("no Parquet")
    code, _, err = run(*files, "--filters", str(tmp_path / "filters.parquet"))
    assert code != 0
    assert "cannot be read as parquet" in err


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("f.csv", "id,what\n1,x\n", "the table of filters has no column 'filter'; its columns are id, what"),
        ("f.jsonl", '{"id": 1}\n\n{"what": 2}\n', "no column 'filter'; its columns are id, what"),
        ("f.csv", "", "the table of filters has no column 'id'"),
        ("f.csv", "id,filter\n1,price > 3\n", "the table of publications has no column 'weight'"),
        ("f.parquet", "no Parquet", "cannot be read as parquet"),
    ],
)
def test_columns_are_looked_at_before_spark_starts(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    files: list[str],
    tmp_path: Path,
    name: str,
    content: str,
    message: str,
) -> None:
    def never(*_: object, **__: object) -> None:
        raise AssertionError("Spark was started")

    monkeypatch.setattr("braid.pipeline.session.spark_session", never)
    (tmp_path / name).write_text(content)
    attribute = ["--attribute", "weight"] if "weight" in message else []
    with pytest.raises(SystemExit) as ending:
        main(["pipeline", "match", *files, "--filters", str(tmp_path / name), *attribute])
    assert ending.value.code == 2
    assert message in capsys.readouterr().err.replace("\n", " ")


def test_many_rows_are_counted_and_some_are_shown(run: Any, files: list[str], tmp_path: Path) -> None:
    rows = "".join(f"{number},ACME,12\n" for number in range(50))
    (tmp_path / "publications.csv").write_text("id,symbol,price\n" + rows)
    code, out, err = run(*files)
    assert (code, len(lines(out))) == (0, 20)
    assert err == WAITING + "50 rows, 20 of them shown (--all shows all, --out writes them)\n"
    code, out, err = run(*files, "--all")
    assert (code, len(lines(out)), err) == (0, 50, WAITING + "50 rows\n")
