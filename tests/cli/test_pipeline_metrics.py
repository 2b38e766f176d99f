"""Does `braid pipeline metrics` print metrics, name bad files, and refuse what makes no sense?"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pyarrow
import pyarrow.parquet
import pytest

from braid.cli import main
from braid.cli.pipeline_metrics import DEFAULT_METRICS
from braid.trace import schema
from tests.pipeline.metric_tables import table

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from pyspark.sql import SparkSession

S = 1_000_000


@pytest.fixture
def run(capfd: pytest.CaptureFixture[str]) -> Callable[..., tuple[int, str, str]]:
    def call(*arguments: object) -> tuple[int, str, str]:
        with pytest.raises(SystemExit) as ending:
            main(["pipeline", "metrics", *map(str, arguments)])
        captured = capfd.readouterr()
        code = ending.value.code
        assert isinstance(code, int)
        return code, captured.out, captured.err

    return call


def write(spark: SparkSession, folder: Path, kind: str, columns: str, *rows: tuple[Any, ...]) -> None:
    """A file of a trace with these rows."""
    whole = table(spark, kind, columns, *rows).drop("run").toArrow()
    words = {"braid.trace.version": "1", "braid.trace.kind": kind, "braid.trace.writer": "test"}
    (folder / kind).mkdir(parents=True)
    pyarrow.parquet.write_table(
        whole.cast(schema(kind)).replace_schema_metadata(words), folder / kind / "test-000000.parquet"
    )


@pytest.fixture
def sweep(spark: SparkSession, tmp_path: Path) -> Path:
    """Two runs: in `a` one of two arrivals is delivered, in `b` all three."""
    for key, sequences, delivered in (("a", (1, 2), 1), ("b", (1, 2, 3), 3)):
        hops = [(sequence * S, "p", sequence, "A", "B", 1) for sequence in sequences]
        write(spark, tmp_path / f"run={key}", "hop", "at_us publisher sequence source target hops", *hops)
        deliveries = [(sequence * S + 5, "p", sequence, "B", "b", 1) for sequence in sequences[:delivered]]
        write(
            spark,
            tmp_path / f"run={key}",
            "delivery",
            "at_us publisher sequence broker subscriber hops",
            *deliveries,
        )
    return tmp_path


def test_json_is_one_document_and_nothing_else(sweep, run) -> None:
    code, out, err = run(sweep, "-m", "yield", "-m", "hops", "--json")
    assert (code, err) == (0, "Spark starts, which takes some seconds\n")
    document = json.loads(out)
    assert [(row["run"], row["sent"], row["yield"]) for row in document["metrics"]["yield"]] == [
        ("a", 2, 0.5),
        ("b", 3, 1.0),
    ]
    assert document["metrics"]["hops"][1] == {
        "run": "b", "hops": 1, "deliveries": 3, "share": 1.0, "cumulative_share": 1.0,
    }  # fmt: skip
    assert document["bad_files"] == []


def test_an_interval_is_given_with_units(sweep, run) -> None:
    _, out, _ = run(sweep, "-m", "yield", "--from", "1.5s", "--to", "2500ms", "--json")
    document = json.loads(out)
    assert (document["from_us"], document["to_us"]) == (1_500_000, 2_500_000)
    assert [(row["run"], row["yield"]) for row in document["metrics"]["yield"]] == [("a", 0.0), ("b", 1.0)]


def test_tables_for_people(sweep, run) -> None:
    code, out, err = run(sweep, "-m", "yield", "-m", "operation_time")
    assert (code, err) == (0, "Spark starts, which takes some seconds\n")
    assert "yield" in out
    assert "0.5" in out
    assert "no records for it in this trace and interval" in out


def test_means_over_runs_have_intervals(sweep, run) -> None:
    _, out, _ = run(sweep, "-m", "yield", "--by", "all", "--json")
    means = {row["quantity"]: row for row in json.loads(out)["metrics"]["yield"]}
    # Yields 0.5 and 1: mean 0.75, half width 12.706 * 0.3536 / sqrt(2).
    assert means["yield"]["runs"] == 2
    assert means["yield"]["mean"] == 0.75
    assert means["yield"]["high"] == pytest.approx(0.75 + 12.706 * 0.25, abs=1e-3)


def test_results_are_written_as_parquet(sweep, run, tmp_path) -> None:
    code, out, _ = run(sweep, "-m", "yield", "--out", tmp_path / "results", "--json")
    stored = pyarrow.parquet.read_table(tmp_path / "results" / "yield.parquet").to_pylist()
    assert code == 0
    assert stored == json.loads(out)["metrics"]["yield"]


def test_bad_files_are_named_and_the_rest_is_read(sweep, run) -> None:
    cut = sweep / "run=a" / "hop" / "cut.parquet"
    cut.write_bytes(b"PAR1")
    code, out, err = run(sweep, "-m", "yield", "--json")
    assert code == 0
    assert f"left out: {cut} is no complete Parquet file" in err
    assert "1 file was left out; the rest was read" in err
    document = json.loads(out)
    assert [report["path"] for report in document["bad_files"]] == [str(cut)]
    assert [row["sent"] for row in document["metrics"]["yield"]] == [2, 3]


def test_without_a_choice_there_is_an_overview(sweep, run) -> None:
    _, out, _ = run(sweep, "--json")
    assert tuple(json.loads(out)["metrics"]) == DEFAULT_METRICS


def test_a_complaint_from_a_worker_is_one_sentence(spark, run, tmp_path) -> None:
    circle = [("A", "B", "primary"), ("B", "C", "primary"), ("C", "A", "primary")]
    write(spark, tmp_path, "link_sample", "source target link", *circle)
    code, out, err = run(tmp_path, "-m", "paths")
    assert (code, out) == (2, "")
    assert "the primary links of run '' are no tree" in err
    assert "Traceback" not in err


def test_list(run) -> None:
    code, out, _ = run("--list")
    assert code == 0
    assert "multipath, Table 2; reads hop, delivery" in out
    _, out, _ = run("--list", "--json")
    assert "ordering_degree" in {each["name"] for each in json.loads(out)}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((), "say which trace"),
        (("nowhere",), "there is no trace at nowhere: no such folder"),
        ((".", "--metric", "yeild"), "there is no metric 'yeild'; there are hops"),
        ((".", "--from", "4"), "--from 4: expected a number and a unit out of us, ms, s, min, h"),
        ((".", "--to", "4 parsec"), "--to 4 parsec: expected"),
        ((".", "--by", "seed"), "--by seed: it is run or all"),
    ],
)
def test_what_makes_no_sense_is_refused_before_spark_starts(
    run, arguments: tuple[str, ...], message: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("braid.pipeline.session.spark_session", None)
    code, out, err = run(*arguments)
    assert (code, out) == (2, "")
    assert message in " ".join(err.split())
