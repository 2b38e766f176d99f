"""The Spark source against a real broker: batches, streams, push-down, and what goes wrong."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

import braid
import braid.spark
from braid.server.access_file import new_token
from tests.pipeline.source_network import running_broker

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming import StreamingQuery

pytestmark = pytest.mark.net

ROWS = 3_000
SCHEMA = "n bigint, price double, symbol string, _offset bigint, _mistyped int"


def row(n: int) -> dict[str, Any]:
    return {"n": n, "price": n / 4, "symbol": f"S{n % 10}"}


@pytest.fixture(scope="module")
def registered(spark: SparkSession) -> SparkSession:
    braid.spark.register(spark)
    return spark


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, braid.SyncClient]]:
    """A broker with a log of rows, the last of them with a price of the wrong type."""
    with running_broker(tmp_path_factory.mktemp("broker")) as (address, client):
        client.create_durable("orders", "n >= 0")
        client.publish_batch([row(n) for n in range(ROWS)], delivery="acknowledged").wait()
        client.publish({"n": ROWS, "price": "a lot"}, delivery="acknowledged").wait()
        yield address, client


def read(spark: SparkSession, address: str, **options: Any) -> DataFrame:
    reader = spark.read.format("braid").schema(SCHEMA).option("brokers", address)
    return reader.options(**{"log": "orders", **options}).load()


def test_a_batch_is_the_log_row_for_row_in_partitions(
    registered: SparkSession, filled: tuple[str, braid.SyncClient]
) -> None:
    frame = read(registered, filled[0], rowsPerPartition=1_000)
    assert frame.rdd.getNumPartitions() == 4
    found = frame.orderBy("_offset").collect()
    assert [each["_offset"] for each in found] == list(range(ROWS + 1))
    assert [(each["n"], each["price"], each["symbol"]) for each in found[:ROWS]] == [
        (n, n / 4, f"S{n % 10}") for n in range(ROWS)
    ]
    assert (found[ROWS]["n"], found[ROWS]["price"], found[ROWS]["_mistyped"]) == (ROWS, None, 1)
    middle = read(registered, filled[0], startingOffset=10, endingOffset=13, filter="n <> 11")
    assert sorted(each["n"] for each in middle.collect()) == [10, 12]


def test_predicates_go_to_the_broker_and_change_nothing(
    registered: SparkSession, filled: tuple[str, braid.SyncClient]
) -> None:
    condition = "price > 100 AND symbol IN ('S3', 'S4') AND n IS NOT NULL AND n < 2000"
    pushed = read(registered, filled[0]).where(condition)
    plan = pushed._jdf.queryExecution().executedPlan().toString()
    assert "Filter (" not in plan
    assert "BatchScan braid" in plan
    pushed.createOrReplaceTempView("pushed_quotes")
    explained = registered.sql("EXPLAIN FORMATTED SELECT * FROM pushed_quotes").first()
    assert explained is not None
    assert "PushedFilters: [" in explained[0]
    for predicate in ("GreaterThan(price,100.0)", "In(symbol, [S3,S4])", "IsNotNull(n)", "LessThan(n,2000)"):
        assert predicate in explained[0], explained[0]
    kept = read(registered, filled[0], pushDown="false").where(condition)
    assert "Filter (" in kept._jdf.queryExecution().executedPlan().toString()
    assert sorted(pushed.collect()) == sorted(kept.collect())
    assert pushed.count() == sum(400 < n < 2000 and n % 10 in (3, 4) for n in range(ROWS))


def test_a_predicate_that_is_too_long_for_a_broker_stays_with_spark(
    registered: SparkSession, filled: tuple[str, braid.SyncClient]
) -> None:
    wanted = ", ".join(f"'S{n}'" for n in range(3, 10_003))
    frame = read(registered, filled[0]).where(f"n < 100 AND symbol IN ({wanted})")
    plan = frame._jdf.queryExecution().executedPlan().toString()
    assert "Filter symbol" in plan  # and nothing about n
    assert frame.count() == 70


def test_mistakes_are_sentences(registered: SparkSession, filled: tuple[str, braid.SyncClient]) -> None:
    mistakes: list[tuple[dict[str, Any], str]] = [
        ({"log": "nothing"}, "there is no durable subscription 'nothing'"),
        ({"lgo": "orders"}, "did you mean 'log'"),
        ({"startingOffset": 99_999}, "offset 99999 of the log 'orders' is beyond its end"),
        ({"brokers": "braid://127.0.0.1:1", "connectTimeout": 0.2}, "no broker could be reached"),
        (
            {"tokenFile": "/nowhere/token"},
            "'tokenFile' names /nowhere/token, which cannot be read on this machine",
        ),
    ]
    for options, sentence in mistakes:
        with pytest.raises(Exception, match="PYTHON_DATA_SOURCE_ERROR") as raised:
            read(registered, filled[0], **options).count()
        assert sentence in str(raised.value)
        assert "Traceback" not in str(raised.value)
        assert len(str(raised.value).splitlines()) < 5


class Stream:
    """A filtered stream into a table of Parquet files, run again and again from one checkpoint."""

    def __init__(self, spark: SparkSession, address: str, folder: Path, **options: Any) -> None:
        self._spark = spark
        self._folder = folder
        self._options = {"brokers": address, "log": "stream", "filter": "n >= 0", **options}

    def start(self, **options: Any) -> StreamingQuery:
        source = self._spark.readStream.format("braid").schema(SCHEMA)
        frame = source.options(**{**self._options, **options}).load()
        sink = frame.writeStream.format("parquet").option("path", str(self._folder / "table"))
        sink = sink.option("checkpointLocation", str(self._folder / "checkpoint"))
        return sink.trigger(availableNow=True).start()

    def run(self, **options: Any) -> StreamingQuery:
        query = self.start(**options)
        query.awaitTermination()
        return query

    def offsets(self) -> list[int]:
        table = self._spark.read.parquet(str(self._folder / "table"))
        return sorted(each["_offset"] for each in table.select("_offset").collect())


def test_a_stream_takes_each_row_once_and_holds_what_it_may_need(
    registered: SparkSession, tmp_path: Path
) -> None:
    with running_broker(tmp_path / "broker") as (address, client):
        stream = Stream(registered, address, tmp_path)
        stream.run()  # makes the log
        client.publish_batch([row(n) for n in range(500)], delivery="acknowledged").wait()
        query = stream.run(maxRowsPerTrigger=200)
        assert [each["numInputRows"] for each in query.recentProgress if each["numInputRows"]] == [
            200,
            200,
            100,
        ]
        assert stream.offsets() == list(range(500))
        status = client.log_status("stream")
        # Two batches behind: the last batch of such a query is never committed, and the pin is one behind.
        assert [(pin.consumer, pin.offset) for pin in status.pins] == [("spark", 200)]
        assert status.acknowledged == 199
        # Another query on the same log has a pin of its own, and what it needs is not acknowledged.
        client.pin_log("stream", "another query", 7)
        client.publish_batch([row(n) for n in range(100)], delivery="acknowledged").wait()
        stream.run()
        assert stream.offsets() == list(range(600))
        status = client.log_status("stream")
        assert {pin.consumer: pin.offset for pin in status.pins} == {"spark": 500, "another query": 7}
        assert status.acknowledged == 199

        # Another filter is another log.
        with pytest.raises(Exception, match="another filter is another log"):
            Stream(registered, address, tmp_path / "other", filter="n >= 5").run()
        # And a log that was made anew is not the one that the checkpoint knows.
        client.drop_durable("stream")
        client.create_durable("stream", "n >= 0")
        with pytest.raises(Exception, match="was dropped and made anew since the checkpoint"):
            stream.run()
        assert stream.offsets() == list(range(600))


def test_rows_that_were_dropped_fail_a_query_unless_it_says_otherwise(
    registered: SparkSession, tmp_path: Path
) -> None:
    access = tmp_path / "access.toml"
    access.write_text(
        '[anonymous]\npublish = "TRUE"\nsubscribe = "TRUE"\n[anonymous.limits]\nstored_rows_max = 50\n'
    )
    with running_broker(tmp_path / "broker", access=access) as (address, client):
        stream = Stream(registered, address, tmp_path, whenFull="drop_oldest", pinDays=1e-9)
        stream.run()
        client.publish_batch([row(n) for n in range(20)], delivery="acknowledged").wait()
        stream.run()
        client.publish_batch([row(n) for n in range(200)], delivery="acknowledged").wait()
        first = client.log_status("stream").first
        assert first > 20
        with pytest.raises(
            Exception, match=f"rows 20 to {first - 1} of the log 'stream' are not kept any more"
        ):
            stream.run()
        stream.run(failOnDataLoss="false")
        assert stream.offsets() == [*range(20), *range(first, 220)]


def test_shards_at_two_brokers_are_read_as_one_stream(registered: SparkSession, tmp_path: Path) -> None:
    with (
        running_broker(tmp_path / "a") as (left, client),
        running_broker(tmp_path / "b", broker_id="B", neighbours=[left]) as (right, other),
    ):
        stream = Stream(registered, f"{left},{right}", tmp_path, shards=2)
        stream.run()
        for publisher in (client, other):
            publisher.publish_batch([row(n) for n in range(100)], delivery="acknowledged").wait()
        with braid.connect_sync(left, name="third") as third:
            third.publish_batch([row(n) for n in range(100)], delivery="acknowledged").wait()
        stream.run()
        table = registered.read.parquet(str(tmp_path / "table"))
        assert sorted(each["n"] for each in table.collect()) == sorted(list(range(100)) * 3)
        sizes = [client.log_status("stream.0").next, other.log_status("stream.1").next]
        assert sum(sizes) == 300


def test_tasks_need_no_more_than_the_right_to_replay(registered: SparkSession, tmp_path: Path) -> None:
    tokens = {name: new_token() for name in ("etl", "executor", "stranger")}
    for name, (token, _) in tokens.items():
        (tmp_path / name).write_text(token)
    grants = {
        "etl": 'publish = "TRUE"\nsubscribe = "TRUE"',
        "executor": 'replay = ["etl/orders"]',
        "stranger": 'subscribe = "TRUE"',
    }
    access = tmp_path / "access.toml"
    access.write_text(
        "\n".join(
            f'[principals.{name}]\n{grant}\ntokens = ["{tokens[name][1]}"]' for name, grant in grants.items()
        )
    )
    settings = braid.ServerSettings.of(
        broker_id="A", listen="127.0.0.1:0", data_dir=tmp_path / "broker", access=access
    )
    with (
        braid.serve_sync(settings) as broker,
        braid.connect_sync(broker.address, token=tokens["etl"][0]) as client,
    ):
        client.create_durable("orders", "n >= 0")
        client.publish_batch([row(n) for n in range(20)], delivery="acknowledged").wait()
        options = {"tokenFile": tmp_path / "etl", "executorTokenFile": tmp_path / "executor"}
        assert read(registered, broker.address, **options).where("n < 5").count() == 5
        options["executorTokenFile"] = tmp_path / "stranger"
        with pytest.raises(Exception, match="there is no durable subscription 'etl/orders'"):
            read(registered, broker.address, **options).count()
