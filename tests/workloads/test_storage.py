"""Does Spark write the same rows in any pieces, and is half a workload never taken for a whole one?"""

from __future__ import annotations

import json
from collections import namedtuple
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from braid.errors import ConfigurationError
from braid.workloads import DEFINITIONS, Workload, load, require_place, workload, write
from braid.workloads.storage import MANIFEST, data_frame, estimated_bytes

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

SMALL: dict[str, dict[str, Any]] = {
    "multipath.DT1": {"duration_s": 5, "spread": "poisson"},
    "multipath.DT-C": {"subscriptions": 200, "duration_s": 5},
    "selforganising": {"duration_ticks": 100, "types": 5, "subscription_ticks": 50},
    "availability": {},
    "infrastructurefree.zipf": {"peers": 300, "subscriptions": 200, "publish_s": 20},
    "siena": {"subscriptions": 200, "duration_s": 5},
}
Usage = namedtuple("Usage", ["total", "used", "free"])


def small(name: str) -> Workload:
    return workload(name, seed=3, **SMALL[name])


@pytest.mark.parametrize("name", SMALL)
def test_any_pieces_have_the_same_rows_without_spark(name: str) -> None:
    made = small(name)
    for table_name, table in made.tables.items():
        whole = made.local(table_name).combine_chunks()
        assert whole.num_rows == table.rows
        for pieces in (3, 7):
            parts = [table.make(rows) for rows in np.array_split(np.arange(table.rows), pieces)]
            assert pa.Table.from_batches(parts).combine_chunks().equals(whole)
        backwards = table.make(np.arange(table.rows)[::-1].copy())
        assert (
            pa.Table.from_batches([backwards]).take(list(range(table.rows))[::-1]).combine_chunks() == whole
        )


@pytest.mark.parametrize("name", SMALL)
def test_seeds_differ_and_repeat(name: str) -> None:
    again, other = small(name), workload(name, seed=4, **SMALL[name])
    for table in ("subscriptions", "publications"):
        assert again.local(table) == small(name).local(table)
        assert again.local(table) != other.local(table)


@pytest.mark.parametrize("partitions", [1, 3, 7])
def test_spark_makes_the_same_rows_in_any_number_of_partitions(spark: SparkSession, partitions: int) -> None:
    for name in ("multipath.DT1", "infrastructurefree.zipf", "selforganising"):
        made = small(name)
        table = made.tables["publications"]
        frame = data_frame(spark, table, partitions=partitions)
        assert frame.rdd.getNumPartitions() == partitions
        assert (
            frame.toArrow().cast(table.schema).combine_chunks() == made.local("publications").combine_chunks()
        )


@pytest.mark.parametrize("partitions", [1, 3, 7])
def test_what_is_written_is_read_back(spark: SparkSession, tmp_path: Path, partitions: int) -> None:
    made = small("multipath.DT1")
    announced: list[tuple[str, int]] = []
    stored = write(
        spark,
        made,
        tmp_path / "here",
        partitions=partitions,
        progress=lambda name, rows: announced.append((name, rows)),
    )
    assert announced == [(name, table.rows) for name, table in made.tables.items()]
    assert (stored.name, stored.seed, stored.parameters) == ("multipath.DT1", 3, made.parameters)
    assert stored.rows == {name: table.rows for name, table in made.tables.items()}
    for name in made.tables:
        assert len(stored.files(name)) == partitions
        assert stored.local(name).combine_chunks() == made.local(name).combine_chunks()
        batches = list(stored.batches(name, rows_max=50))
        assert sum(batch.num_rows for batch in batches) == stored.rows[name]


def test_a_second_write_changes_nothing_and_another_workload_is_refused(
    spark: SparkSession, tmp_path: Path
) -> None:
    write(spark, small("availability"), tmp_path)
    before = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*")}
    assert require_place(small("availability"), tmp_path)
    write(spark, small("availability"), tmp_path)
    assert {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*")} == before
    with pytest.raises(ConfigurationError, match=r"holds another workload already \(seed 3 instead of 4"):
        write(spark, workload("availability", seed=4), tmp_path)
    with pytest.raises(ConfigurationError, match="values 20 instead of 30"):
        write(spark, workload("availability", seed=3, values=30), tmp_path)


def test_what_an_interrupted_write_left_is_written_again(spark: SparkSession, tmp_path: Path) -> None:
    write(spark, small("availability"), tmp_path)
    (tmp_path / MANIFEST).unlink()
    next((tmp_path / "publications").glob("*.parquet")).write_bytes(b"half")
    with pytest.raises(ConfigurationError, match=r"no workload\.json \(it was begun and not finished"):
        load(tmp_path)
    stored = write(spark, small("availability"), tmp_path)
    assert stored.local("publications").num_rows == 500


def test_a_directory_with_other_things_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "letters.txt").write_text("mine", encoding="utf-8")
    with pytest.raises(ConfigurationError, match=r"holds other things \(letters.txt\); choose an empty"):
        write(spark, small("availability"), tmp_path)
    with pytest.raises(ConfigurationError, match="is a file; a workload needs a directory"):
        write(spark, small("availability"), tmp_path / "letters.txt")
    assert [path.name for path in tmp_path.iterdir()] == ["letters.txt"]


def test_a_workload_that_would_not_fit_says_so_before_it_starts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("shutil.disk_usage", lambda path: Usage(10**9, 10**9 - 10**7, 10**7))
    large = workload("multipath.DT1", rate_per_minute=720_000)
    with pytest.raises(ConfigurationError) as problem:
        require_place(large, tmp_path / "new" / "place")
    assert "multipath.DT1 would not fit" in str(problem.value)
    assert "7,200,000 publications need about" in str(problem.value)
    assert "10 MB free" in str(problem.value)
    assert list(tmp_path.iterdir()) == []
    assert not require_place(small("availability"), tmp_path)


def test_the_estimate_is_near_the_truth(spark: SparkSession, tmp_path: Path) -> None:
    made = workload("multipath.DT1", duration_s=120)
    write(spark, made, tmp_path)
    size = sum(path.stat().st_size for path in tmp_path.rglob("*.parquet"))
    assert 0.5 < estimated_bytes(made) / size < 2


@pytest.fixture
def stored(tmp_path: Path) -> Path:
    """A tiny workload, written without Spark in the form that Spark leaves."""
    place = tmp_path / "stored"
    made = small("availability")
    for name in made.tables:
        (place / name).mkdir(parents=True)
        pq.write_table(made.local(name), place / name / "part-00000-x.snappy.parquet")
    manifest = {
        "format": "braid workload",
        "version": 1,
        "name": made.name,
        "seed": made.seed,
        "parameters": dict(made.parameters),
        "tables": {name: {"rows": table.rows} for name, table in made.tables.items()},
    }
    (place / MANIFEST).write_text(json.dumps(manifest), encoding="utf-8")
    return place


def test_a_stored_workload_is_read_without_spark(stored: Path) -> None:
    found = load(stored)
    assert found.local("subscriptions") == small("availability").local("subscriptions")
    with pytest.raises(ConfigurationError, match="no table 'letters'; a workload has brokers, subscriptions"):
        found.local("letters")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("not json", "cannot be read as JSON"),
        ("[]", "is not a workload of Braid"),
        ('{"name": "something else"}', "is not a workload of Braid"),
        (
            '{"format": "braid workload", "version": 0}',
            "is of an older version, 0; this Braid reads version 1",
        ),
        ('{"format": "braid workload", "version": 2}', "is of another version, 2"),
        ('{"format": "braid workload", "version": 1, "name": "x"}', "'seed' is missing"),
        (
            '{"format": "braid workload", "version": 1, "name": "x", "seed": 1, "parameters": {},'
            ' "tables": {"brokers": 3}}',
            "'tables' is missing or not what it should be",
        ),
    ],
)
def test_a_manifest_that_cannot_be_used_is_named(stored: Path, content: str, message: str) -> None:
    (stored / MANIFEST).write_text(content, encoding="utf-8")
    with pytest.raises(ConfigurationError) as problem:
        load(stored)
    assert message in str(problem.value)
    assert str(stored / MANIFEST) in str(problem.value)


def test_missing_and_damaged_files_are_named(stored: Path, tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="there is no such directory"):
        load(tmp_path / "nowhere")
    file = stored / "publications" / "part-00000-x.snappy.parquet"
    whole = file.read_bytes()
    file.write_bytes(whole[:-100])
    with pytest.raises(ConfigurationError, match=r"part-00000-x\.snappy\.parquet cannot be read"):
        load(stored)
    pq.write_table(small("availability").local("publications").slice(0, 400), file)
    with pytest.raises(ConfigurationError, match=r"holds 400 rows where workload.json says 500"):
        load(stored)
    file.unlink()
    with pytest.raises(ConfigurationError, match="holds no Parquet files"):
        load(stored)


def test_every_workload_has_a_source_and_parameters_with_meanings() -> None:
    for each in DEFINITIONS.values():
        assert each.summary
        assert each.source
        names = [parameter.name for parameter in each.parameters]
        assert len(names) == len(set(names))
        assert all(parameter.meaning and parameter.allowed() for parameter in each.parameters)
        assert each.settings({}) == {parameter.name: parameter.default for parameter in each.parameters}
