"""The Spark sink: rows become publications once, whatever is tried again."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from pyspark.sql import types as T

import braid
import braid.spark
from braid.pipeline.source import writing
from braid.pipeline.source.errors import SourceError
from braid.pipeline.source.options import SinkOptions
from braid.pipeline.source.writing import BatchSink, Written
from tests.pipeline.source_network import running_broker

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

pytestmark = pytest.mark.net

# What the query publishes must not come back to it.
WANTED = "n >= 0 AND doubled IS NULL"


@pytest.fixture(scope="module")
def registered(spark: SparkSession) -> SparkSession:
    braid.spark.register(spark)
    return spark


def rows_of(client: braid.SyncClient, name: str) -> list[braid.StoredPublication]:
    return list(client.replay(name, complete=True))


def test_a_batch_is_published_once_however_often_it_is_written(
    registered: SparkSession, tmp_path: Path
) -> None:
    with running_broker(tmp_path) as (address, client):
        client.create_durable("out", "n >= 0")
        frame = registered.createDataFrame(
            [(n, n / 2, f"s{n}", n % 2 == 0, (1.0, n + 1.0) if n else None, b"x", "t/p") for n in range(50)],
            "n bigint, x double, s string, b boolean, r struct<low:double,high:double>, body binary, "
            "kind string",
        ).repartition(2, "n")

        def write(frame: Any = frame, **options: Any) -> None:
            chosen = {
                "brokers": address,
                "runId": "monday",
                "bodyColumn": "body",
                "contentTypeColumn": "kind",
            }
            frame.write.format("braid").mode("append").options(**{**chosen, **options}).save()

        write(idColumn="n")
        first = rows_of(client, "out")
        assert sorted(row["n"] for row in first) == list(range(50))
        seven = next(row for row in first if row["n"] == 7)
        assert dict(seven.attributes) == {"n": 7, "x": 3.5, "s": "s7", "b": False, "r": braid.Range(1.0, 8.0)}
        assert (seven.body, seven.content_type) == (b"x", "t/p")
        assert {row.publisher for row in first} == {"spark.monday.0", "spark.monday.1"}
        write(idColumn="n")  # the same job again
        # A part of it that comes late, too, with rows in another order.
        write(frame.orderBy("n", ascending=False).repartition(2, "n"), idColumn="n")
        assert len(rows_of(client, "out")) == 50
        write(runId="tuesday", idColumn="n")
        assert len(rows_of(client, "out")) == 100
        # Batches of one run have the same publishers, and each is published once.
        for batch in (7, 7, 8, 8):
            write(runId="tuesday", idColumn="n", batchId=batch)
        rows = rows_of(client, "out")
        assert len(rows) == 200
        assert len({row.publisher for row in rows}) == 4
        assert {row.sequence >> 32 for row in rows[100:]} == {7, 8}

        mistakes: list[tuple[dict[str, Any], Any, str]] = [
            ({"runId": ""}, frame, "'runId' is missing"),
            ({"batchId": -1}, frame, "'batchId' is a whole number of at least 0, not '-1'"),
            ({"idColumn": "m"}, frame, "there is no column 'm'"),
            ({"idColumn": "b"}, frame, "has the same value in several rows"),
            (
                {},
                frame.selectExpr("CAST(n AS DECIMAL(10,2)) AS n", "body", "kind"),
                "cast it, or leave it out",
            ),
            ({"brokers": "braid://127.0.0.1:1", "connectTimeout": 0.2}, frame, "no broker could be reached"),
        ]
        for options, table, sentence in mistakes:
            with pytest.raises(Exception, match="braid") as raised:
                write(table, **options)
            assert sentence in str(raised.value), options
        assert len(rows_of(client, "out")) == 200


class Task:
    """What Spark tells a task."""

    def partitionId(self) -> int:
        return 0


def attempt(address: str, numbers: range | list[int], batch: int = 0) -> Written:
    """What a task does in a write."""
    options = SinkOptions.of({"brokers": address, "runId": "monday", "batchId": str(batch)})
    sink = BatchSink(options, T.StructType([T.StructField("n", T.LongType())]))
    return sink.write(iter([pa.RecordBatch.from_pydict({"n": [*numbers]})]))


def test_a_row_that_was_refused_is_not_taken_for_a_repetition_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writing.TaskContext, "get", Task)
    access = tmp_path / "access.toml"
    access.write_text('[anonymous]\npublish = "n <> 10"\nsubscribe = "TRUE"\n')
    with running_broker(tmp_path / "broker", access=access) as (address, client):
        client.create_durable("out", "n >= 0")
        count = 2**16 + 100
        with pytest.raises(SourceError, match=r"1 of .* rows were not taken"):
            attempt(address, range(count))
        numbers = [n if n != 10 else count for n in range(count)]
        written = attempt(address, numbers)
        assert written.rows == count > written.repeated > 0
        assert client.log_status("out").safe == count
        # All of it again, most of it older than what can be told from repetitions: nothing new, no mistake.
        assert attempt(address, numbers) == Written(count, count)


def test_a_batch_that_comes_after_a_later_one_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writing.TaskContext, "get", Task)
    with running_broker(tmp_path / "broker") as (address, client):
        client.create_durable("out", "n >= 0")
        attempt(address, range(5), batch=3)
        assert attempt(address, range(5), batch=3).repeated == 5
        sentence = "5 rows of batch 2 were not published: 'spark.monday.0' has published batch 3 already"
        with pytest.raises(SourceError, match=sentence):
            attempt(address, range(5), batch=2)
    # Logs remember it when the memory of the broker is gone.
    with running_broker(tmp_path / "broker") as (address, client):
        with pytest.raises(SourceError, match=sentence):
            attempt(address, range(5), batch=2)
        assert [row["n"] for row in rows_of(client, "out")] == [*range(5)]


def test_a_write_that_changes_nothing_says_so(caplog: pytest.LogCaptureFixture) -> None:
    options = SinkOptions.of({"brokers": "braid://127.0.0.1:1", "runId": "monday"})
    sink = BatchSink(options, T.StructType([T.StructField("n", T.LongType())]))
    sink.commit([Written(3, 2), None, Written(2, 2)])
    sink.commit([])
    assert not caplog.records
    sink.commit([Written(3, 3), Written(2, 2)])
    assert "nothing was published: all 5 rows have numbers that the run 'monday' had" in caplog.text


def test_a_stream_goes_through_the_network_and_back_exactly_once(
    registered: SparkSession, tmp_path: Path
) -> None:
    with running_broker(tmp_path / "broker") as (address, client):
        client.create_durable("out", "doubled >= 0")

        def start(checkpoint: str) -> Any:
            source = braid.spark.stream(
                registered, address, where=WANTED, schema="n bigint", log="in", maxRowsPerTrigger=40
            )
            sink = source.selectExpr("n", "2 * n AS doubled").writeStream.format("braid")
            options = {"brokers": address, "name": "job", "checkpointLocation": str(tmp_path / checkpoint)}
            return sink.options(**options).trigger(availableNow=True).start()

        start("one").awaitTermination()
        client.publish_batch([{"n": n} for n in range(100)], delivery="acknowledged").wait()
        query = start("one")
        query.awaitTermination()
        found = rows_of(client, "out")
        assert [(row["n"], row["doubled"]) for row in found] == [(n, 2 * n) for n in range(100)]
        assert {row.publisher for row in found} == {f"job.{query.id}.0"}
        assert [row.sequence >> 32 for row in found] == sorted(row.sequence >> 32 for row in found)
        # The driver dies between the sink and the commit of the last batch: it is done again, unseen.
        commits = sorted((tmp_path / "one" / "commits").glob("[0-9]*"), key=lambda path: int(path.name))
        commits[-1].unlink()
        (commits[-1].parent / f".{commits[-1].name}.crc").unlink(missing_ok=True)
        start("one").awaitTermination()
        client.publish_batch([{"n": n} for n in range(100, 110)], delivery="acknowledged").wait()
        start("one").awaitTermination()
        assert [row["n"] for row in rows_of(client, "out")] == list(range(110))
