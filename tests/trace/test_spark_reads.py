"""Does Spark see in a trace what our own reader sees?"""

from __future__ import annotations

from typing import TYPE_CHECKING

from braid.trace import KINDS, TraceWriter, read_table
from tests.trace.calls import batch_of

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession


def test_spark_and_our_reader_agree(spark: SparkSession, tmp_path: Path) -> None:
    with TraceWriter(tmp_path, "w", rows_max=50) as writer:
        for number in range(40):
            several = batch_of(f"p{number % 3}", [number, number + 2, number + 9], hops=number % 5)
            one = batch_of("single", [2**62 + number])
            for batch in (several, one):
                writer.publication(number * 10, "A", batch, None if number % 2 else number)
                writer.hop(number * 10 + 5, None if number % 3 else number, "A", "B", "soft", batch)
                writer.delivery(number * 10 + 7, "B", "subscriber é", batch)
            writer.subscription(number, "A", "c", str(number), "x > 1", "subscribe")
            writer.link_sample(number, 1, "A", "B", "primary", "ping", 1, 2, 3, None)
            writer.broker_load(number, 1, "A", *range(9), None, 0.5 if number % 2 else None)
            writer.peer_state(number, "A", number, 2 * number)
            writer.reconfiguration(number, "shift", "1", "begun", "A", "")
            writer.fault(number, "crash", "A", "")
    for kind in KINDS:
        rows = [row.asDict() for row in spark.read.parquet(str(tmp_path / kind)).collect()]
        ours = read_table(tmp_path, kind).to_pylist()
        assert sorted(map(repr, rows)) == sorted(map(repr, ours))
        assert ours, kind
