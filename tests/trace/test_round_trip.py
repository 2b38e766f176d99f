"""Does a trace say what was noted, the same way every time?"""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from braid.errors import ConfigurationError, LocalProtocolError, TraceError
from braid.trace import KINDS, TraceWriter, inspect, read_table, schema
from tests.trace.calls import CALLS, Call, batch_of, expected_rows, perform

FEW = settings(max_examples=40)


def contents(directory: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(directory)): path.read_bytes()
        for path in sorted(directory.rglob("*"))
        if path.is_file()
    }


@FEW
@given(
    calls=CALLS,
    rows_max=st.sampled_from([1, 7, 1000]),
    age_us_max=st.sampled_from([None, 1, 2**60]),
    background=st.booleans(),
)
def test_what_was_noted_is_read(
    calls: list[Call], rows_max: int, age_us_max: int | None, background: bool
) -> None:
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        with TraceWriter(
            directory, "w", rows_max=rows_max, age_us_max=age_us_max, background=background
        ) as writer:
            for call in calls:
                perform(writer, call)
        # A thread that cannot keep up may drop rows, and says how many.
        if writer.dropped_rows:
            assert background
            return
        assert all(report.ok for report in inspect(directory, verify=True))
        for kind in KINDS:
            table = read_table(directory, kind)
            assert table.schema.equals(schema(kind))
            assert table.to_pylist() == expected_rows(kind, calls)


@FEW
@given(calls=CALLS, rows_max=st.sampled_from([1, 5, 1000]), age_us_max=st.sampled_from([None, 2**61]))
def test_the_same_calls_give_the_same_bytes(calls: list[Call], rows_max: int, age_us_max: int | None) -> None:
    with tempfile.TemporaryDirectory() as one, tempfile.TemporaryDirectory() as other:
        for place in (one, other):
            with TraceWriter(Path(place), "w", rows_max=rows_max, age_us_max=age_us_max) as writer:
                for call in calls:
                    perform(writer, call)
        assert contents(Path(one)) == contents(Path(other))


def test_many_rows_are_more_than_one_block(tmp_path: Path) -> None:
    calls: list[Call] = [
        ("hop", (at_us, at_us - 1, f"B{at_us % 7}", "C", "primary", batch_of(f"p{at_us % 5}", [at_us])))
        for at_us in range(20_000)
    ]
    calls += [("hop", (30_000, None, "B", "C", "soft", batch_of("p", [1, 5, 9])))]
    with TraceWriter(tmp_path, "w") as writer:
        for call in calls:
            perform(writer, call)
    assert read_table(tmp_path, "hop").to_pylist() == expected_rows("hop", calls)


def test_files_rotate_by_rows_and_by_age(tmp_path: Path) -> None:
    with TraceWriter(tmp_path, "w", rows_max=10, age_us_max=1_000) as writer:
        for at_us in range(25):
            writer.fault(at_us, "f", "s", "d")
        writer.delivery(26, "B", "c", batch_of("p", [1]))
        assert [report.rows for report in inspect(tmp_path)] == [10, 10]
        writer.fault(999, "f", "s", "d")
        assert len(inspect(tmp_path)) == 2, "the first record is younger than the age"
        writer.fault(1_000, "f", "s", "d")
        assert [(report.kind, report.rows) for report in inspect(tmp_path)] == [
            ("delivery", 1),
            ("fault", 10),
            ("fault", 10),
            ("fault", 7),
        ]


def test_bytes_of_a_frame_are_shared_out_exactly(tmp_path: Path) -> None:
    batch = batch_of("p", [3, 4, 9, 10, 11])
    with TraceWriter(tmp_path, "w") as writer:
        writer.publication(1, "B", batch)
    sizes = read_table(tmp_path, "publication", columns=["size_bytes"])["size_bytes"].to_pylist()
    assert sum(sizes) == batch.size
    assert max(sizes) - min(sizes) <= 1


def test_two_writers_share_a_folder(tmp_path: Path) -> None:
    with TraceWriter(tmp_path, "A") as first, TraceWriter(tmp_path, "A-1") as second:
        first.fault(1, "f", "A", "")
        second.fault(2, "f", "A-1", "")
    assert [(report.writer, report.path.name) for report in inspect(tmp_path)] == [
        ("A", "A-000000.parquet"),
        ("A-1", "A-1-000000.parquet"),
    ]


def test_a_writer_that_comes_again_goes_on_and_tidies_up_its_own(tmp_path: Path) -> None:
    for at_us in (1, 2):
        with TraceWriter(tmp_path, "A") as writer:
            writer.fault(at_us, "f", "s", "")
        for name in ("A", "A-1"):
            (tmp_path / "fault" / f".{name}-000009.parquet.tmp").write_bytes(b"half of a file")
    assert [report.path.name for report in inspect(tmp_path)] == ["A-000000.parquet", "A-000001.parquet"]
    TraceWriter(tmp_path, "A").close()
    assert [path.name for path in (tmp_path / "fault").glob(".*")] == [".A-1-000009.parquet.tmp"]
    assert read_table(tmp_path, "fault")["at_us"].to_pylist() == [1, 2]


def test_nothing_is_noted_after_the_end(tmp_path: Path) -> None:
    writer = TraceWriter(tmp_path, "A")
    writer.close()
    writer.close()
    with pytest.raises(LocalProtocolError, match="closed"):
        writer.fault(1, "f", "s", "")


@pytest.mark.parametrize("name", ["", ".hidden", "_left out", "a/b", "x" * 101])
def test_names_that_cannot_be_those_of_files_are_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(ConfigurationError, match="does not fit"):
        TraceWriter(tmp_path, name)


def test_a_folder_that_is_a_file_is_refused_at_once(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    with pytest.raises(ConfigurationError, match=r"no trace can be written to .*file"):
        TraceWriter(tmp_path / "file", "A")


def test_a_folder_that_is_in_the_way_is_an_error_that_names_the_file(tmp_path: Path) -> None:
    writer = TraceWriter(tmp_path, "A")
    (tmp_path / "fault").write_text("in the way")
    writer.fault(1, "f", "s", "")
    with pytest.raises(TraceError, match=r"fault/A-000000\.parquet cannot be written"):
        writer.flush()


def test_a_thread_that_cannot_write_says_so_and_counts(tmp_path: Path) -> None:
    (tmp_path / "fault").write_text("in the way")
    writer = TraceWriter(tmp_path, "A", rows_max=2, background=True)
    writer.fault(1, "f", "s", "")
    writer.fault(2, "f", "s", "")
    writer.delivery(3, "B", "c", batch_of("p", [1, 2, 3]))
    writer.close()
    assert "fault" in writer.problem
    assert writer.dropped_rows == 5


def test_a_value_that_does_not_fit_is_an_error_that_names_the_file(tmp_path: Path) -> None:
    writer = TraceWriter(tmp_path, "A")
    writer.fault(1, None, "s", "")  # type: ignore[arg-type]
    with pytest.raises(TraceError, match="fault"):
        writer.flush()
