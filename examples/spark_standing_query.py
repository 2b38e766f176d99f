"""A standing query: averages over windows of a filtered stream, published back into the network.

    python examples/spark_standing_query.py --seconds 20

Trades enter at broker A. The query's log is at broker B and has only dear ones, so that the others never
cross the link. The query counts and averages them by symbol and second, and publishes a new result whenever
it has one; a subscriber at broker A receives them. What is printed: how long it took from the newest trade
of a result to its arrival, and whether the last result of every window is what a plain program computes.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
import time
from collections import defaultdict
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import braid
import braid.spark
from braid.pipeline.session import spark_session

FILTER = "price > 50"
SCHEMA = "symbol string, price double, at_us bigint"
WINDOW_US = 1_000_000


def trade(n: int, at_us: int) -> dict[str, Any]:
    """The n-th trade; about half of them are dear."""
    return {"symbol": f"S{n % 3}", "price": (n * 7919) % 1000 / 10, "at_us": at_us}


def standing_query(spark: Any, url: str, checkpoint: str) -> Any:
    """Start it: a stream of a log, a windowed aggregation, a sink."""
    from pyspark.sql import functions as F

    stream = braid.spark.stream(spark, url, where=FILTER, schema=SCHEMA, log="dear trades")
    stream = stream.withColumn("at", F.timestamp_micros("at_us")).withWatermark("at", "10 seconds")
    counted = stream.groupBy(F.window("at", "1 second"), "symbol").agg(
        F.count(F.lit(1)).alias("trades"), F.avg("price").alias("mean"), F.max("at_us").alias("newest_us")
    )
    start = F.unix_micros("window.start")
    # After a shuffle the sink wants to know rows apart: by symbol and window.
    result = counted.select(
        F.concat_ws("/", "symbol", start).alias("id"),
        "symbol", start.alias("start_us"), "trades", "mean", "newest_us",
    )  # fmt: skip

    def publish(rows: Any, batch: int) -> None:
        # A batch that is done again after a crash has the same names and numbers, and is published once.
        sink = rows.write.format("braid").mode("append").options(brokers=url, name="means")
        sink.options(runId="standing", batchId=batch, idColumn="id").save()

    writer = result.writeStream.foreachBatch(publish).outputMode("update")
    return writer.option("checkpointLocation", checkpoint).start()


def expected(trades: list[dict[str, Any]]) -> dict[tuple[str, int], tuple[int, float]]:
    """What the results should be in the end, without Spark and without a network."""
    prices: dict[tuple[str, int], list[float]] = defaultdict(list)
    for each in trades:
        if each["price"] > 50:
            prices[each["symbol"], each["at_us"] // WINDOW_US * WINDOW_US].append(each["price"])
    return {place: (len(found), round(sum(found) / len(found), 9)) for place, found in prices.items()}


def main(seconds: float) -> None:
    """Publish, receive, compare."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        addresses: list[str] = []
        for name in "AB":
            settings = braid.ServerSettings.of(
                broker_id=name, listen="127.0.0.1:0", data_dir=folder / name, neighbours=addresses[-1:]
            )
            addresses.append(stack.enter_context(braid.serve_sync(settings)).address)
        client = stack.enter_context(braid.connect_sync(addresses[0]))
        results = client.subscribe("newest_us > 0")
        # The query would make its log when it starts; it is to have the first trades as well.
        stack.enter_context(braid.connect_sync(addresses[1])).create_durable("dear trades", FILTER)
        settings = {"spark.sql.shuffle.partitions": "1"}
        spark = stack.enter_context(spark_session("a standing query", profile="testing", settings=settings))
        query = standing_query(spark, addresses[1], str(folder / "checkpoint"))
        trades: list[dict[str, Any]] = []
        found: dict[tuple[str, int], tuple[int, float]] = {}
        latencies_ms: list[float] = []
        began_s, told_s = time.monotonic(), time.monotonic()
        wanted: dict[tuple[str, int], tuple[int, float]] = {}
        while True:
            publishing = time.monotonic() < began_s + seconds
            if publishing:
                trades.append(trade(len(trades), time.time_ns() // 1_000))
                client.publish(trades[-1], delivery="acknowledged")
            elif not wanted:
                client.flush()
                wanted = expected(trades)
            try:
                result: dict[str, Any] = dict(results.get(timeout_s=0.01).attributes)
            except TimeoutError:
                if (wanted and found == wanted) or time.monotonic() > told_s + 120:
                    break
                continue
            told_s = time.monotonic()
            latencies_ms.append(time.time_ns() / 1e6 - result["newest_us"] / 1e3)
            found[result["symbol"], result["start_us"]] = (result["trades"], round(result["mean"], 9))
        query.stop()
    print(f"{len(trades)} trades, {len(latencies_ms)} results, {len(found)} windows")
    print(f"from the newest trade of a result to its arrival: p50 {statistics.median(latencies_ms):.0f} ms")
    if found != wanted:
        sys.exit("the results are not what a plain program computes")
    print("every window is what a plain program computes")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--seconds", type=float, default=15.0, help="how long trades are published")
    main(parser.parse_args().seconds)
