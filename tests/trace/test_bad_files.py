"""Is each file that cannot be used named with its reason, and is the rest read?"""

from __future__ import annotations

import logging
import random
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyarrow import parquet

from braid.errors import ConfigurationError
from braid.trace import KINDS, FileReport, TraceWriter, inspect, read_table, schema

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    with TraceWriter(tmp_path, "good") as writer:
        writer.fault(1, "f", "s", "")
        writer.fault(2, "f", "s", "")
    return tmp_path


def write(path: Path, *, kind: str = "fault", version: str | None = "1", table: Any = None) -> None:
    """A Parquet file with whatever metadata."""
    path.parent.mkdir(exist_ok=True)
    table = schema("fault").empty_table() if table is None else table
    with parquet.ParquetWriter(path, table.schema, store_schema=False) as writer:
        writer.write_table(table)
        if version is not None:
            writer.add_key_value_metadata({"braid.trace.version": version, "braid.trace.kind": kind})


def problems(directory: Path) -> dict[str, str]:
    return {report.path.name: report.problem for report in inspect(directory) if not report.ok}


def test_bad_files_are_reported_one_by_one_and_the_rest_is_read(trace: Path) -> None:
    good = (trace / "fault" / "good-000000.parquet").read_bytes()
    folder = trace / "fault"
    (folder / "cut.parquet").write_bytes(good[: len(good) // 2])
    (folder / "empty.parquet").write_bytes(b"")
    (folder / "notes.txt").write_text("mine")
    (folder / "text.parquet").write_text("this is no Parquet file at all, but it is long enough")
    write(folder / "foreign.parquet", version=None)
    write(folder / "newer.parquet", version="2")
    write(folder / "older.parquet", version="0")
    write(folder / "odd.parquet", version="one")
    write(folder / "moved.parquet", kind="hop")
    write(folder / "column.parquet", table=schema("fault").empty_table().drop_columns(["subject"]))
    write(folder / "type.parquet", table=pa.table({name: pa.array([1]) for name in schema("fault").names}))
    write(trace / "invention" / "later.parquet", kind="invention")

    found = problems(trace)
    for name, words in {
        "cut.parquet": "no complete Parquet file",
        "empty.parquet": "is empty",
        "notes.txt": "is no .parquet file",
        "text.parquet": "no complete Parquet file",
        "foreign.parquet": "is no trace: its metadata has no braid.trace.version",
        "newer.parquet": "newer version, 2; this one understands 1",
        "older.parquet": "older version, 0; this one understands 1",
        "odd.parquet": "'one', not a number",
        "moved.parquet": "holds the table 'hop' and lies in the folder 'fault'",
        "column.parquet": "has no column 'subject'",
        "type.parquet": "has int64 in column 'fault', where string is expected",
        "later.parquet": "lies in the folder 'invention'",
    }.items():
        assert words in found.pop(name)
    assert found == {}
    left_out: list[FileReport] = []
    table = read_table(trace, "fault", report=left_out.append)
    assert table["at_us"].to_pylist() == [1, 2]
    assert len(left_out) == 11


def test_without_anybody_to_tell_bad_files_are_logged(trace: Path, caplog: pytest.LogCaptureFixture) -> None:
    (trace / "fault" / "empty.parquet").write_bytes(b"")
    with caplog.at_level(logging.WARNING):
        assert read_table(trace, "fault").num_rows == 2
    assert "empty.parquet is empty" in caplog.text


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=60)
@given(share=st.floats(0, 1, exclude_max=True))
def test_a_file_that_was_cut_anywhere_is_left_out(trace: Path, share: float) -> None:
    good = (trace / "fault" / "good-000000.parquet").read_bytes()
    (trace / "fault" / "cut.parquet").write_bytes(good[: int(len(good) * share)])
    assert list(problems(trace)) == ["cut.parquet"]
    assert read_table(trace, "fault", report=lambda report: None).num_rows == 2


def test_damage_inside_a_file_never_stops_the_reader(trace: Path) -> None:
    chance = random.Random("trace/damage")
    intact = read_table(trace, "fault").to_pylist()
    good = (trace / "fault" / "good-000000.parquet").read_bytes()
    for _ in range(100):
        damaged = bytearray(good)
        damaged[chance.randrange(len(damaged))] ^= chance.randrange(1, 256)
        (trace / "fault" / "damaged.parquet").write_bytes(damaged)
        inspect(trace, verify=True)
        table = read_table(trace, "fault", report=lambda report: None)
        assert table.to_pylist()[-2:] == intact


def test_hidden_files_and_what_lies_beside_the_tables_do_not_count(trace: Path) -> None:
    (trace / "run.json").write_text("{}")
    (trace / "fault" / "_SUCCESS").write_text("")
    (trace / "fault" / ".good-000007.parquet.tmp").write_bytes(b"half")
    (trace / ".hidden").mkdir()
    assert [report.path.name for report in inspect(trace)] == ["good-000000.parquet"]


def test_a_table_that_was_never_written_is_empty(trace: Path) -> None:
    for kind in KINDS:
        if kind != "fault":
            assert read_table(trace, kind).equals(schema(kind).empty_table())


def test_what_is_not_there_is_named(trace: Path) -> None:
    with pytest.raises(ConfigurationError, match="no such folder"):
        inspect(trace / "elsewhere")
    with pytest.raises(ConfigurationError, match="no table 'faults'"):
        read_table(trace, "faults")
    with pytest.raises(ConfigurationError, match="no column 'when'"):
        read_table(trace, "fault", columns=["when"])


def test_a_trace_from_before_a_column_that_may_be_empty_is_read(tmp_path: Path) -> None:
    with TraceWriter(tmp_path, "good") as writer:
        writer.broker_load(1, 1, "A", *range(9), links=3)
    (path,) = (tmp_path / "broker_load").iterdir()
    before = parquet.read_table(path).drop_columns(["links"])
    write(tmp_path / "broker_load" / "before.parquet", kind="broker_load", table=before)
    assert problems(tmp_path) == {}
    assert sorted(map(str, read_table(tmp_path, "broker_load")["links"].to_pylist())) == ["3", "None"]
    assert len(read_table(tmp_path, "broker_load", columns=["links", "at_us"])) == 2
