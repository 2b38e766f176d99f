"""How long is a publication under way through Spark, and what do a million filters cost a stream?

Latencies are from publishing to the sink of a stream that starts its next batch as soon as it can, at a
steady thousand publications a second: through the format `braid`, from a bare Python source that makes its
rows up by the clock, and through a standing query, a windowed aggregation whose results a subscriber of the
network receives. Checkpoints are in memory.
"""

from __future__ import annotations

import json
import socketserver
import statistics
import threading
import time
from contextlib import contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import braid
from braid.errors import ConfigurationError
from braid_bench.timing import significant

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.datasource import ReadLimit

    from braid_bench.join import TreeClock

__all__ = [
    "clock_source",
    "latency_runs",
    "million_filters",
    "percentiles",
    "serving_lines",
    "socket_source",
]

RATE_PER_S = 1_000
TICK_S = 0.01
# How long the first batch may take to come.
FIRST_RESULT_S = 120.0
IN_MEMORY = Path("/dev/shm")
LATENCY_SCHEMA = "n bigint, symbol string, sent_us bigint"


def _now_us() -> int:
    return time.time_ns() // 1_000


def clock_source() -> Any:
    """A stream of rows that are made up as time passes: what a Python source can do at best."""
    from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition

    class ClockReader(DataSourceStreamReader):
        def initialOffset(self) -> dict[str, int]:
            return {"us": time.time_ns() // 1_000}

        def latestOffset(self, start: dict[Any, Any], limit: ReadLimit) -> dict[Any, Any]:
            return {"us": time.time_ns() // 1_000}

        def partitions(self, start: dict[str, int], end: dict[str, int]) -> list[InputPartition]:
            return [InputPartition((start["us"], end["us"]))]

        def read(self, partition: InputPartition) -> Iterator[Any]:
            import pyarrow as pa

            step = 1_000_000 // RATE_PER_S
            first, end = partition.value
            sent = range(first - first % step + step, end + 1, step)
            yield pa.RecordBatch.from_pydict(
                {
                    "n": pa.array(range(len(sent)), pa.int64()),
                    "symbol": pa.array([f"S{number % 10}" for number in range(len(sent))], pa.string()),
                    "sent_us": pa.array(sent, pa.int64()),
                }
            )

    class ClockSource(DataSource):
        @classmethod
        def name(cls) -> str:
            return "clock"

        def schema(self) -> str:
            return LATENCY_SCHEMA

        def streamReader(self, schema: Any) -> DataSourceStreamReader:
            return ClockReader()

    return ClockSource


def latency_runs(
    spark: SparkSession, url: str, seconds: float, say: Callable[[str], None]
) -> list[dict[str, Any]]:
    """A row for each way, with its percentiles in milliseconds."""
    import braid.spark

    braid.spark.register(spark)
    spark.dataSource.register(clock_source())
    found = []
    for name, run in (("bare", _bare), ("braid", _through_braid), ("standing query", _standing_query)):
        say(f"latency, {name}")
        found.append({"way": name, "seconds": seconds, **percentiles(run(spark, url, seconds))})
    return found


def percentiles(latencies_us: list[int]) -> dict[str, float]:
    """How many there were, and p50, p95 and p99 in milliseconds."""
    if len(latencies_us) < 2:
        raise ConfigurationError("nothing came through Spark in time, so there is no latency to tell")
    cuts = statistics.quantiles(latencies_us, n=100, method="inclusive")
    chosen = {f"p{cut}_ms": significant(cuts[cut - 1] / 1_000) for cut in (50, 95, 99)}
    return {"count": len(latencies_us), **chosen}


@contextmanager
def _checkpoint() -> Iterator[str]:
    with TemporaryDirectory(dir=IN_MEMORY if IN_MEMORY.is_dir() else None) as folder:
        yield folder


class _Watch:
    """Times that count: those of so many seconds, from some time after the first result on.

    A busy machine may take long to do the first batch, which is not what is measured.
    """

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._began_s = time.monotonic()
        self._first_s: float | None = None
        self.found: list[int] = []

    def take(self, latencies_us: list[int]) -> None:
        """What one batch, or one result, has come to."""
        now_s = time.monotonic()
        if self._first_s is None:
            self._first_s = now_s
        if now_s >= self._first_s + _warm_s(self._seconds):
            self.found.extend(latencies_us)

    def over(self) -> bool:
        """Whether enough was seen, or it takes too long."""
        now_s = time.monotonic()
        if self._first_s is None:
            return now_s > self._began_s + FIRST_RESULT_S
        ended = now_s > self._first_s + _warm_s(self._seconds) + self._seconds
        return ended and (len(self.found) > 1 or now_s > self._first_s + FIRST_RESULT_S)


def _measured(frame: DataFrame, seconds: float) -> list[int]:
    """What a sink sees of a stream for so long, without its beginning."""
    watch = _Watch(seconds)

    def take(rows: DataFrame, _number: int) -> None:
        sent = rows.select("sent_us").toArrow().column(0).to_pylist()
        now_us = _now_us()
        if sent:
            watch.take([now_us - each for each in sent])

    with _checkpoint() as folder:
        query = frame.writeStream.foreachBatch(take).option("checkpointLocation", folder).start()
        while not watch.over() and query.isActive:
            time.sleep(0.1)
        query.stop()
    return watch.found


def _warm_s(seconds: float) -> float:
    return max(5.0, seconds / 3)


def _bare(spark: SparkSession, _url: str, seconds: float) -> list[int]:
    return _measured(spark.readStream.format("clock").load(), seconds)


@contextmanager
def _publishing(url: str) -> Iterator[None]:
    """A thousand publications a second, a few at a time, until the end of the block."""
    ended = threading.Event()

    def publish() -> None:
        with braid.connect_sync(url, timeout_s=60) as client:
            number, began_s = 0, time.monotonic()
            while not ended.wait(TICK_S):
                due = int((time.monotonic() - began_s) * RATE_PER_S)
                sent_us = _now_us()
                rows = [{"n": n, "symbol": f"S{n % 10}", "sent_us": sent_us} for n in range(number, due)]
                if rows:
                    client.publish_batch(rows, delivery="acknowledged")
                number = due

    thread = threading.Thread(target=publish, daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


def _stream(spark: SparkSession, url: str, log: str) -> DataFrame:
    import braid.spark

    return braid.spark.stream(
        spark, url, where="sent_us > 0", schema=LATENCY_SCHEMA, log=log, startingOffset="latest"
    )


def _through_braid(spark: SparkSession, url: str, seconds: float) -> list[int]:
    with _publishing(url):
        return _measured(_stream(spark, url, "latency"), seconds)


def _standing_query(spark: SparkSession, url: str, seconds: float) -> list[int]:
    """From the newest row that a result is about to its arrival at a subscriber of the network."""
    watch = _Watch(seconds)
    # Each partition of a windowed stream is a task and a file of state in every batch, and Spark makes 200.
    spark.conf.set("spark.sql.shuffle.partitions", "2")
    counts = _windowed(_stream(spark, url, "standing"))
    with _publishing(url), _checkpoint() as folder, braid.connect_sync(url, timeout_s=60) as client:
        results = client.subscribe("newest_us > 0")

        def publish(rows: DataFrame, batch: int) -> None:
            sink = rows.write.format("braid").mode("append").options(brokers=url, name="standing")
            sink.options(runId="bench", batchId=batch, idColumn="id").save()

        writer = counts.writeStream.foreachBatch(publish).outputMode("update")
        query = writer.option("checkpointLocation", folder).start()
        while not watch.over() and query.isActive:
            with suppress(TimeoutError):
                newest_us: Any = results.get(timeout_s=1.0)["newest_us"]
                watch.take([_now_us() - newest_us])
        query.stop()
    return watch.found


def _windowed(stream: DataFrame) -> DataFrame:
    from pyspark.sql import functions as F

    at = F.timestamp_micros("sent_us")
    windowed = stream.withColumn("at", at).withWatermark("at", "10 seconds")
    counted = windowed.groupBy(F.window("at", "1 second"), "symbol").agg(
        F.count(F.lit(1)).alias("rows"), F.max("sent_us").alias("newest_us")
    )
    start = F.unix_micros("window.start")
    return counted.select(
        F.concat_ws("/", "symbol", start).alias("id"), "symbol", start.alias("start_us"), "rows", "newest_us"
    )


# A plain socket that sends lines of JSON, and what reads them in Python.


def socket_source() -> Any:
    """A source that asks a socket for lines of JSON, and parses them one by one."""
    from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition

    class SocketReader(DataSourceReader):
        def __init__(self, port: int, rows: int, partitions: int) -> None:
            self._port, self._rows, self._partitions = port, rows, partitions

        def partitions(self) -> list[InputPartition]:
            size = self._rows // self._partitions
            return [InputPartition((size * n, size * (n + 1))) for n in range(self._partitions)]

        def read(self, partition: InputPartition) -> Iterator[Any]:
            import socket

            first, end = partition.value
            with socket.create_connection(("127.0.0.1", self._port)) as connection:
                connection.sendall(f"{first} {end}\n".encode())
                with connection.makefile("rb") as lines:
                    for line in lines:
                        row = json.loads(line)
                        yield (
                            row["n"],
                            row["price"],
                            row["symbol"],
                            row["side"],
                            row["size"],
                            row["_offset"],
                        )

    class SocketSource(DataSource):
        @classmethod
        def name(cls) -> str:
            return "lines"

        def schema(self) -> str:
            return self.options["columns"]

        def reader(self, schema: Any) -> DataSourceReader:
            return SocketReader(
                int(self.options["port"]), int(self.options["rows"]), int(self.options["partitions"])
            )

    return SocketSource


@contextmanager
def serving_lines(row: Callable[[int], dict[str, Any]], rows: int) -> Iterator[int]:
    """Rows as lines of JSON on a port of loopback, made before anybody asks."""
    lines = [json.dumps({**row(n), "_offset": n}).encode() + b"\n" for n in range(rows)]

    class Handler(socketserver.StreamRequestHandler):
        def handle(self) -> None:
            first, end = map(int, self.rfile.readline().split())
            for start in range(first, end, 1_000):
                self.wfile.write(b"".join(lines[start : min(start + 1_000, end)]))

    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), Handler) as server:
        server.daemon_threads = True
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        try:
            yield server.server_address[1]
        finally:
            server.shutdown()
            thread.join()


# A stream beside a table of filters.


def million_filters(
    spark: SparkSession, filters: int, publications: int, clock: TreeClock, say: Callable[[str], None]
) -> dict[str, Any]:
    """What it costs to read so many filters, and to join a stream with them, in CPU seconds."""
    from braid.pipeline.matching_join import FilterSet, match_join
    from braid_bench.join_tables import write_tables

    with TemporaryDirectory(prefix="braid-bench-") as directory, _checkpoint() as checkpoint:
        folder = Path(directory)
        say(f"{filters:,} filters are written")
        write_tables("narrow", publications, filters, 1, folder)
        table = spark.read.parquet(str(folder / "filters"))
        say(f"{filters:,} filters are read and indexed")
        cpu, wall = clock.seconds(), time.perf_counter()
        with FilterSet.build(table) as ready:
            built = {
                "build_cpu_s": significant(clock.seconds() - cpu),
                "build_wall_s": significant(time.perf_counter() - wall),
                "bytes": ready.bytes,
            }
            say(f"a stream of {publications:,} publications is joined")
            path = str(folder / "publications")
            stream = spark.readStream.schema(spark.read.parquet(path).schema).parquet(path)
            cpu, wall = clock.seconds(), time.perf_counter()
            sink = (
                match_join(stream, ready).writeStream.format("noop").option("checkpointLocation", checkpoint)
            )
            sink.trigger(availableNow=True).start().awaitTermination()
            return {
                "filters": filters,
                "publications": publications,
                **built,
                "join_cpu_s": significant(clock.seconds() - cpu),
                "publications_per_s": significant(publications / (time.perf_counter() - wall)),
            }
