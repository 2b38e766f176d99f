"""Do traces of one run and of many become tables, whatever else lies in their folders?"""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

import pyarrow
import pyarrow.parquet
import pytest

from braid.errors import ConfigurationError
from braid.pipeline.metrics import METRICS, metric
from braid.pipeline.schemas import trace_schema
from braid.pipeline.traces import Traces, bad_files, read_traces
from braid.protocol import PublicationBatch
from braid.trace import KINDS, FileReport, TraceWriter, compact, schema
from tests.pipeline.metric_tables import rows_of

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession


def write_trace(folder: Path, *names: str, rows: int = 1, rows_max: int = 200_000) -> None:
    """A trace of faults, the simplest of records, by one writer for each name."""
    for name in names:
        with TraceWriter(folder, name, rows_max=rows_max) as writer:
            for number in range(rows):
                writer.fault(number, "crash", name, "")


def subjects(table) -> list[tuple[str, str]]:  # type: ignore[no-untyped-def]
    return sorted((row.run, row.subject) for row in table.collect())


def test_every_type_of_a_trace_has_its_type_in_spark(spark: SparkSession) -> None:
    """PySpark's own conversion of the Arrow schema is the oracle."""
    from pyspark.sql.pandas.types import from_arrow_schema

    for kind in KINDS:
        ours = trace_schema(kind)
        assert ours[:-1] == from_arrow_schema(schema(kind))
        assert ours[-1].name == "run"


def test_one_folder_has_an_empty_run(spark: SparkSession, tmp_path: Path) -> None:
    write_trace(tmp_path, "A", "B", rows=2)
    assert subjects(read_traces(spark, tmp_path, "fault")) == [("", "A"), ("", "A"), ("", "B"), ("", "B")]
    assert bad_files(tmp_path) == []


def test_a_sweep_has_the_key_of_each_run_as_it_is_written(spark: SparkSession, tmp_path: Path) -> None:
    # Keys of digits only stay text, leading zeros included.
    for key in ("0012", "7e3", "abc"):
        write_trace(tmp_path / f"run={key}", f"of-{key}")
        (tmp_path / f"run={key}" / "run.json").write_text("{}")
    (tmp_path / "progress.json").write_text("{}")
    found = read_traces(spark, str(tmp_path), "fault")
    assert found.columns[0] == "run"
    assert subjects(found) == [("0012", "of-0012"), ("7e3", "of-7e3"), ("abc", "of-abc")]


@pytest.mark.parametrize("sweep", [False, True])
def test_a_kind_without_files_is_an_empty_table(spark: SparkSession, tmp_path: Path, sweep: bool) -> None:
    write_trace(tmp_path / "run=1" if sweep else tmp_path, "A")
    for kind in KINDS:
        found = read_traces(spark, tmp_path, kind)
        assert sorted(found.columns) == sorted(trace_schema(kind).names)
        assert [(f.name, f.dataType) for f in found.schema if f.name != "run"] == [
            (f.name, f.dataType) for f in trace_schema(kind) if f.name != "run"
        ]
        assert found.count() == (kind == "fault")


def rewrite(source: Path, target: Path, **metadata: str) -> None:
    """A copy of a trace file with other words in its metadata."""
    table = pyarrow.parquet.read_table(source)
    words = dict(table.schema.metadata or {}) | {
        f"braid.trace.{key}".encode(): value.encode() for key, value in metadata.items()
    }
    pyarrow.parquet.write_table(table.replace_schema_metadata(words), target)


def spoil(folder: Path) -> list[str]:
    """Put bad files beside the good ones of a trace; returns their names."""
    [good] = (folder / "fault").glob("*.parquet")
    rewrite(good, folder / "fault" / "older.parquet", version="0")
    rewrite(good, folder / "fault" / "newer.parquet", version="99")
    rewrite(good, folder / "fault" / "astray.parquet", kind="hop")
    pyarrow.parquet.write_table(pyarrow.table({"a": [1]}), folder / "fault" / "foreign.parquet")
    (folder / "fault" / "cut.parquet").write_bytes(good.read_bytes()[:-20])
    (folder / "fault" / "empty.parquet").touch()
    (folder / "fault" / "notes.txt").write_text("remember the milk")
    (folder / "fault" / ".unfinished.parquet.tmp").write_bytes(b"PAR1")
    return ["astray.parquet", "cut.parquet", "empty.parquet", "foreign.parquet", "newer.parquet", "notes.txt",
            "older.parquet"]  # fmt: skip


def test_bad_files_are_reported_one_by_one_and_the_rest_is_read(spark: SparkSession, tmp_path: Path) -> None:
    write_trace(tmp_path, "A")
    spoilt = spoil(tmp_path)
    reports: list[FileReport] = []
    traces = Traces(spark, tmp_path, report=reports.append)
    assert reports == [], "nothing is looked at before it is needed"
    assert subjects(traces.fault) == [("", "A")]
    assert traces.hop.count() == 0
    assert [report.path.name for report in reports] == spoilt, "each once, though two tables were read"
    assert all(report.problem for report in reports)
    assert [report.path.name for report in bad_files(tmp_path)] == spoilt


def test_bad_files_of_a_sweep_spoil_no_other_run(
    spark: SparkSession, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    for key in ("1", "2", "3"):
        write_trace(tmp_path / f"run={key}", "A")
    spoilt = spoil(tmp_path / "run=2")
    shutil.rmtree(tmp_path / "run=3" / "fault")
    assert subjects(read_traces(spark, tmp_path, "fault")) == [("1", "A"), ("2", "A")]
    assert [report.path.parent.parent.name for report in bad_files(tmp_path)] == ["run=2"] * len(spoilt)
    assert all(name in caplog.text for name in spoilt), "without a report they are logged"


def test_many_files_of_many_runs(spark: SparkSession, tmp_path: Path) -> None:
    """More paths than Spark lists by itself without a job."""
    for key in range(40):
        write_trace(tmp_path / f"run={key:03}", "A", "B", rows=6, rows_max=2)
    (tmp_path / "run=007" / "fault" / "cut.parquet").write_bytes(b"PAR1")
    found = read_traces(spark, tmp_path, "fault")
    assert found.count() == 40 * 2 * 6
    assert found.select("run").distinct().count() == 40


@pytest.mark.parametrize(
    ("inside", "message"),
    [((), "expected folders such as"), (("notes",), "expected folders such as"), (None, "no such folder")],
)
def test_a_folder_without_a_trace_is_refused(
    spark: SparkSession, tmp_path: Path, inside: tuple[str, ...] | None, message: str
) -> None:
    for name in inside or ():
        (tmp_path / name).mkdir()
    root = tmp_path if inside is not None else tmp_path / "nowhere"
    with pytest.raises(ConfigurationError, match=message):
        Traces(spark, root)
    with pytest.raises(ConfigurationError, match=message):
        bad_files(root)


def test_a_kind_that_does_not_exist_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    write_trace(tmp_path, "A")
    with pytest.raises(ConfigurationError, match="there is no table 'hops' in a trace"):
        read_traces(spark, tmp_path, "hops")


@pytest.mark.parametrize("name", METRICS)
def test_every_metric_runs_over_a_trace_that_says_nothing_about_it(
    spark: SparkSession, tmp_path: Path, name: str
) -> None:
    write_trace(tmp_path, "A")
    result = metric(name)(Traces(spark, tmp_path), from_us=0, to_us=10_000_000)
    assert result.columns[0] == "run"
    assert rows_of(result) == []
    assert metric(name).summary


def test_a_metric_that_does_not_exist_is_refused() -> None:
    with pytest.raises(ConfigurationError, match=r"there is no metric 'yeild'; there are hops, mean_hops"):
        metric("yeild")


@pytest.mark.parametrize("sweep", [False, True])
def test_a_url_is_read_as_the_folder_is(
    spark: SparkSession, tmp_path: Path, caplog: pytest.LogCaptureFixture, sweep: bool
) -> None:
    root = tmp_path / "some traces"
    folders = [root / f"run={key}" for key in ("0012", "7e3")] if sweep else [root]
    for folder in folders:
        write_trace(folder, "A")
    spoilt = {name for name in spoil(folders[0]) if name.endswith(".parquet")}
    for folder in folders:
        write_trace(folder, "B", rows=30, rows_max=10)
        compact(folder)
    near, far = Traces(spark, root), Traces(spark, f"file://{root}")
    assert subjects(far.fault) == subjects(near.fault) != []
    assert far.hop.count() == 0
    assert far.fault.columns == near.fault.columns

    def problems(traces: Traces) -> dict[str, str]:
        """Without what Parquet calls a file of which it has the content alone."""
        found = {str(file.path).rpartition("/")[2]: file.problem for file in traces.files if not file.ok}
        return {name: problem.partition(":")[0] for name, problem in found.items() if name in spoilt}

    # Spark passes over files without a single byte.
    assert problems(far) == {name: why for name, why in problems(near).items() if name != "empty.parquet"}
    assert len(problems(far)) == len(spoilt) - 1 > 3
    assert all(name in caplog.text for name in problems(far))
    found = metric("delivery_ratio")(far)
    assert rows_of(found) == rows_of(metric("delivery_ratio")(near))


def test_a_url_without_a_trace_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"there is no trace at file:///.*: no such folder"):
        Traces(spark, f"file://{tmp_path}/nowhere").fault  # noqa: B018
    with pytest.raises(ConfigurationError, match="no Parquet file lies there"):
        Traces(spark, f"file://{tmp_path}").fault  # noqa: B018


def test_what_metrics_share_is_computed_once(spark: SparkSession, tmp_path: Path) -> None:
    with TraceWriter(tmp_path, "A") as writer:
        for number in range(1, 9):
            batch = PublicationBatch.of("p", [number], [b"x"])
            writer.publication(number, "A", batch, 2)
            for broker in "AB"[: number % 3]:
                writer.delivery(number + 5, broker, f"{broker}1", batch)
                writer.delivery(number + 9, broker, f"{broker}2", batch)
    names = ("hops", "mean_hops", "throughput", "delay", "delay_by_pair", "delivery_ratio", "dht_hops")
    plain = Traces(spark, tmp_path)
    expected = {name: rows_of(metric(name)(plain)) for name in names}
    kept = Traces(spark, tmp_path, keep=True)
    found = {name: metric(name)(kept) for name in names}
    assert {name: rows_of(table) for name, table in found.items()} == expected
    for name, table in found.items():
        plan = table._jdf.queryExecution().executedPlan().toString()
        assert "InMemoryTableScan" in plan, name
    kept.close()
    assert "InMemoryTableScan" not in metric("throughput")(kept)._jdf.queryExecution().toString()
    assert rows_of(metric("throughput")(kept)) == expected["throughput"]
