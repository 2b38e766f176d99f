"""The Spark source at its limits: one row a partition, no rows at all, old checkpoints, several queries."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql import types as T
from pyspark.sql.datasource import In
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows

import braid
import braid.spark
from braid.cli import main
from braid.pipeline.archive.catalog import archive_into_table
from braid.pipeline.source.decoding import Decoding
from braid.pipeline.source.options import SourceOptions
from braid.pipeline.source.reading import LogStreamReader, PushingLogReader
from tests.pipeline.source_network import running_broker

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.net
SCHEMA = "n bigint, _offset bigint"
COLUMNS = T.StructType([T.StructField("n", T.LongType()), T.StructField("_offset", T.LongType())])


@pytest.fixture(scope="module")
def registered(spark: SparkSession) -> SparkSession:
    braid.spark.register(spark)
    return spark


@pytest.fixture
def network(tmp_path: Path) -> Iterator[tuple[str, braid.SyncClient]]:
    with running_broker(tmp_path / "broker") as (address, client):
        client.create_durable("orders", "n >= 0")
        yield address, client


def publish(client: braid.SyncClient, first: int, end: int) -> None:
    client.publish_batch([{"n": n} for n in range(first, end)], delivery="acknowledged").wait()


def read(spark: SparkSession, address: str, **options: Any) -> DataFrame:
    reader = spark.read.format("braid").schema(SCHEMA).option("brokers", address)
    return reader.options(**{"log": "orders", **options}).load()


def run(spark: SparkSession, address: str, folder: Path, name: str, **options: Any) -> list[int]:
    """A stream into a table, as far as there is something; the table's offsets."""
    source = spark.readStream.format("braid").schema(SCHEMA).option("brokers", address)
    stream = source.options(**{"log": "orders", "consumer": name, **options}).load()
    sink = stream.writeStream.format("parquet").option("path", str(folder / name / "table"))
    sink = sink.option("checkpointLocation", str(folder / name / "checkpoint"))
    sink.trigger(availableNow=True).start().awaitTermination()
    table = spark.read.schema(SCHEMA).parquet(str(folder / name / "table"))
    return sorted(each["_offset"] for each in table.collect())


def reader_of(address: str, **options: Any) -> LogStreamReader:
    chosen = {"brokers": address, "log": "orders", **options}
    return LogStreamReader(SourceOptions.of({name: str(value) for name, value in chosen.items()}), COLUMNS)


def test_one_row_a_partition_and_as_many_as_there_may_be(
    registered: SparkSession, network: tuple[str, braid.SyncClient]
) -> None:
    address, client = network
    assert read(registered, address).collect() == []
    publish(client, 0, 7)
    for wishes, partitions in (
        ({"rowsPerPartition": 1}, 7),
        ({"rowsPerPartition": 1, "maxPartitions": 7}, 7),
        ({"rowsPerPartition": 1, "maxPartitions": 6}, 4),
        ({"rowsPerPartition": 1, "maxPartitions": 1}, 1),
        ({"rowsPerPartition": 7}, 1),
        ({"rowsPerPartition": 6}, 2),
    ):
        frame = read(registered, address, **wishes)
        assert frame.rdd.getNumPartitions() == partitions, wishes
        assert [each["n"] for each in frame.orderBy("_offset").collect()] == [*range(7)], wishes
    for first, end in ((0, 0), (7, 7), (3, 3), (6, 7), (0, 1)):
        found = read(registered, address, startingOffset=first, endingOffset=end).collect()
        assert [each["n"] for each in found] == [*range(first, end)]


def test_a_stream_of_nothing_begins_when_something_comes(
    registered: SparkSession, network: tuple[str, braid.SyncClient], tmp_path: Path
) -> None:
    address, client = network
    for _ in range(2):
        assert run(registered, address, tmp_path, "early") == []
        assert run(registered, address, tmp_path, "late", startingOffset="latest") == []
    publish(client, 0, 1)
    assert run(registered, address, tmp_path, "early", rowsPerPartition=1, maxRowsPerTrigger=1) == [0]
    # What is latest was decided when the query began, not when it was run again.
    assert run(registered, address, tmp_path, "late", startingOffset="latest") == [0]


def test_where_a_query_begins_is_decided_once(network: tuple[str, braid.SyncClient]) -> None:
    address, client = network
    publish(client, 0, 3)
    reader = reader_of(address, startingOffset="latest")
    first = reader.initialOffset()
    publish(client, 3, 5)
    assert reader.initialOffset() == first
    assert first["orders"]["next"] == 3
    # Nothing is no batch: not one byte of the offset changes.
    log = reader.latestOffset(first, ReadMaxRows(1))
    assert log["orders"]["next"] == 4
    last = reader.latestOffset(log, ReadAllAvailable())
    assert last["orders"]["next"] == 5
    assert reader.latestOffset(last, ReadAllAvailable()) == last
    assert reader.reportLatestOffset() == last
    reader.stop()


def test_a_checkpoint_that_is_older_than_what_was_acknowledged(
    registered: SparkSession, network: tuple[str, braid.SyncClient], tmp_path: Path
) -> None:
    address, client = network
    publish(client, 0, 10)
    assert run(registered, address, tmp_path, "query", maxRowsPerTrigger=5) == [*range(10)]
    shutil.copytree(tmp_path / "query", tmp_path / "older")
    for first in range(10, 40, 10):
        publish(client, first, first + 10)
        run(registered, address, tmp_path, "query", maxRowsPerTrigger=5)
    assert client.log_status("orders").acknowledged > 10
    shutil.rmtree(tmp_path / "query")
    shutil.copytree(tmp_path / "older", tmp_path / "query")
    # What is acknowledged goes by the broker's retention alone, which has seen no reason yet.
    assert run(registered, address, tmp_path, "query") == [*range(40)]


def test_two_queries_on_one_log_have_what_each_needs(
    registered: SparkSession, network: tuple[str, braid.SyncClient], tmp_path: Path
) -> None:
    address, client = network
    publish(client, 0, 6)
    assert run(registered, address, tmp_path, "slow", maxRowsPerTrigger=6) == [*range(6)]
    for first in range(6, 30, 6):
        publish(client, first, first + 6)
        assert run(registered, address, tmp_path, "quick", maxRowsPerTrigger=2) == [*range(first + 6)]
    status = client.log_status("orders")
    pins = {pin.consumer: pin.offset for pin in status.pins}
    assert pins["slow"] <= 6 < pins["quick"]
    assert status.acknowledged < pins["slow"]
    assert run(registered, address, tmp_path, "slow") == [*range(30)]


def test_a_stream_takes_nothing_from_a_subscriber_that_is_away(tmp_path: Path) -> None:
    def batch(reader: LogStreamReader, start: dict[str, Any]) -> dict[str, Any]:
        end = reader.latestOffset(start, ReadAllAvailable())
        reader.commit(end)
        return end

    with running_broker(tmp_path / "broker") as (address, client):
        client.subscribe("n >= 0", durable="orders").close()
        reader = reader_of(address)
        end = reader.initialOffset()
        for first in range(0, 30, 10):
            publish(client, first, first + 10)
            end = batch(reader, end)
        reader.stop()
        (pin,) = client.log_status("orders").pins
        assert pin.offset == 20
    with running_broker(tmp_path / "broker") as (address, client):
        reader = reader_of(address)
        for first in range(30, 60, 10):
            publish(client, first, first + 10)
            end = batch(reader, end)
        reader.stop()
        orders = client.subscribe("n >= 0", durable="orders")
        assert [orders.get(timeout_s=30)["n"] for _ in range(60)] == [*range(60)]


def test_a_subscriber_that_comes_meanwhile_ends_no_stream(network: tuple[str, braid.SyncClient]) -> None:
    address, client = network
    publish(client, 0, 10)
    reader = reader_of(address)
    statuses = reader._open().statuses()
    reader._pin(statuses, {"orders": 5})
    client.subscribe("n >= 0", durable="orders").close()
    reader._acknowledge(statuses)
    reader.stop()
    assert client.log_status("orders").acknowledged == -1


def test_a_beginning_that_is_gone_is_an_error_or_counted(
    registered: SparkSession, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    access = tmp_path / "access.toml"
    access.write_text(
        '[anonymous]\npublish = "TRUE"\nsubscribe = "TRUE"\n[anonymous.limits]\nstored_rows_max = 20\n'
    )
    with running_broker(tmp_path / "broker", access=access) as (address, client):
        client.create_durable("orders", "n >= 0", when_full="drop_oldest")
        publish(client, 0, 50)
        status = client.log_status("orders")
        first = status.first
        assert first > 0
        sentence = f"rows 0 to {first - 1} of the log 'orders' are not kept any more"
        with pytest.raises(Exception, match=sentence):
            read(registered, address, startingOffset=0).count()
        with pytest.raises(Exception, match=f"rows {first - 1} to {first - 1} of the log"):
            run(registered, address, tmp_path, "strict", startingOffset=first - 1)
        lenient = {"startingOffset": 0, "failOnDataLoss": "false"}
        assert read(registered, address, **lenient).count() == status.safe - first
        assert run(registered, address, tmp_path, "lenient", **lenient) == [*range(first, status.safe)]


def rows_of(address: str, pushed: tuple[Any, ...] = (), **options: Any) -> list[int]:
    """What a batch gives, without a Spark around it."""
    chosen = {"brokers": address, "log": "orders", **options}
    reader = PushingLogReader(SourceOptions.of({name: str(value) for name, value in chosen.items()}), COLUMNS)
    assert not [*reader.pushFilters([*pushed])]
    batches = [batch for part in reader.partitions() for batch in reader.read(part)]
    return [n for batch in batches for n in batch.column("n").to_pylist()]


def test_what_is_withheld_is_never_left_out_in_silence(tmp_path: Path) -> None:
    access = tmp_path / "access.toml"
    grant = '[anonymous]\npublish = "TRUE"\nnarrow = true\n'
    access.write_text(grant + 'subscribe = "TRUE"\n')
    with running_broker(tmp_path / "broker", access=access) as (address, client):
        client.create_durable("orders", "n >= 0")
        publish(client, 0, 20)
        assert rows_of(address) == [*range(20)]
    access.write_text(grant + 'subscribe = "n < 10"\n')
    with running_broker(tmp_path / "broker", access=access) as (address, _):
        assert rows_of(address, endingOffset=10) == [*range(10)]
        for wish in ({}, {"filter": "n < 5"}, {"failOnDataLoss": False}):
            with pytest.raises(Exception, match="from offset 10 on are not for its owner any more"):
                rows_of(address, **wish)


def test_a_broker_that_takes_only_short_filters_is_asked_for_everything(tmp_path: Path) -> None:
    access = tmp_path / "access.toml"
    limits = "[anonymous.limits]\nfilter_length_max = 40\n"
    access.write_text(f'[anonymous]\npublish = "TRUE"\nsubscribe = "TRUE"\n{limits}')
    with running_broker(tmp_path / "broker", access=access) as (address, client):
        client.create_durable("orders", "n >= 0")
        publish(client, 0, 20)
        wanted = In(("n",), (*range(0, 1_000, 5),))
        assert rows_of(address, (wanted,)) == [0, 5, 10, 15]
        assert rows_of(address, (wanted,), filter="n < 10") == [0, 5]
        with pytest.raises(Exception, match="at most 40 are allowed"):
            rows_of(address, (wanted,), filter=" OR ".join(f"n = {n}" for n in range(20)))


def test_columns_may_be_pushed_alone(
    network: tuple[str, braid.SyncClient], monkeypatch: pytest.MonkeyPatch
) -> None:
    address, client = network
    client.publish_batch([{"n": n, "text": "x" * 50} for n in range(20)], delivery="acknowledged").wait()
    sizes: list[int] = []
    batch = Decoding.batch

    def watched(self: Decoding, log: str, piece: Any) -> Any:
        sizes.append(sum(map(len, piece.packed.record_list())))
        return batch(self, log, piece)

    monkeypatch.setattr(Decoding, "batch", watched)
    assert rows_of(address) == rows_of(address, pushColumns=True) == [*range(20)]
    assert sizes[1] + 20 * 50 <= sizes[0]


def test_a_log_becomes_a_table_of_the_catalog_once(
    registered: SparkSession, network: tuple[str, braid.SyncClient], tmp_path: Path
) -> None:
    address, client = network
    publish(client, 0, 40)
    table = "archived_orders"
    registered.sql(f"DROP TABLE IF EXISTS {table}")

    def archive(**options: Any) -> None:
        checkpoint = str(tmp_path / "checkpoint")
        query = archive_into_table(registered, address, "orders", table, checkpoint=checkpoint, **options)
        query.awaitTermination()

    try:
        archive(maxRowsPerTrigger=25, rowsPerPartition=5)
        archive()
        publish(client, 40, 50)
        archive()
        rows = registered.table(table).orderBy("_offset").collect()
        assert [row["n"] for row in rows] == [*range(50)]
        assert all(row["day"] == row["_published_at"].date() for row in rows)
        # Two batches of the first run, and one of the last: each made one file.
        assert len(registered.table(table).inputFiles()) == 3
        # Its place in the log is its own, and what is in the table may go from the log.
        pins = {pin.consumer: pin.offset for pin in client.log_status("orders").pins}
        assert pins == {f"table {table}": 40}
        with pytest.raises(braid.ConfigurationError, match="lacks `_published_at timestamp`"):
            archive(schema="n bigint")
        with pytest.raises(braid.ConfigurationError, match="has an attribute 'day'"):
            archive(schema="day string, _published_at timestamp")
    finally:
        registered.sql(f"DROP TABLE IF EXISTS {table}")


def test_the_command_archives_into_a_table(
    registered: SparkSession,
    network: tuple[str, braid.SyncClient],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    address, client = network
    publish(client, 0, 12)
    command = ["pipeline", "archive", "--broker", address, "--log", "orders", "--to", str(tmp_path / "place")]

    def call(*more: str) -> tuple[Any, str]:
        with pytest.raises(SystemExit) as ended:
            main([*command, *more])
        return ended.value.code, capsys.readouterr().err

    try:
        code, said = call("--table", "commanded_orders")
        assert not code, said
        assert "12 rows of orders went into commanded_orders" in said
        assert registered.table("commanded_orders").count() == 12
        code, said = call("--columns", "n bigint")
        assert code
        assert "--columns is for tables of Spark's catalog" in said
        code, said = call("--table", "commanded_orders", "--setting", "nonsense")
        assert code
        assert "--setting is NAME=VALUE" in said
    finally:
        registered.sql("DROP TABLE IF EXISTS commanded_orders")


def test_columns_of_a_log_without_rows_follow_from_its_filter(
    registered: SparkSession, network: tuple[str, braid.SyncClient]
) -> None:
    address, client = network
    where = "price > 10 AND symbol LIKE 'A%' AND (sold = TRUE OR price < 99) AND note IS NOT NULL"
    stream = braid.spark.stream(registered, address, where=where, log="to be made")
    own = [(field.name, field.dataType.simpleString()) for field in stream.schema if field.name[0] != "_"]
    assert own == [("price", "double"), ("sold", "boolean"), ("symbol", "string")]
    frame = registered.read.format("braid").options(brokers=address, log="orders").load()
    assert frame.schema["n"].dataType.simpleString() == "double"
    assert "_offset" in frame.columns
    client.create_durable("anything", "x IS NOT NULL")
    with pytest.raises(Exception, match="has no rows to infer columns from"):
        registered.read.format("braid").options(brokers=address, log="anything").load()
    with pytest.raises(Exception, match="there is no durable subscription 'nothing'"):
        registered.read.format("braid").options(brokers=address, log="nothing").load()
