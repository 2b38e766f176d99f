"""A filtered stream from a network of three brokers into a table, while the query is killed twice.

    python examples/spark_stream.py --rows 20000

Publications enter at broker A; the stream's log is at broker C, so that only what satisfies its filter
crosses the network. The query runs in a process of its own, which is killed without warning (SIGKILL) in the
middle of its work, twice. At the end the table is compared with the truth, row for row.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path

import braid

FILTER = "price > 50"
SCHEMA = "n bigint, symbol string, price double"
KILLS = 2


def publication(n: int) -> dict[str, int | str | float]:
    """The n-th row that is published; about half of them satisfy the filter."""
    return {"n": n, "symbol": f"S{n % 17}", "price": (n * 7919) % 1000 / 10}


def run_query(url: str, folder: Path, rows_per_batch: int, *, finish: bool) -> None:
    """What the process does that is killed: a stream into a table of Parquet files."""
    import braid.spark
    from braid.pipeline.session import spark_session

    with spark_session("a filtered stream", profile="testing") as spark:
        stream = braid.spark.stream(
            spark, url, where=FILTER, schema=SCHEMA, log="dear", maxRowsPerTrigger=rows_per_batch
        )
        table = stream.writeStream.format("parquet").option("path", str(folder / "table"))
        table = table.option("checkpointLocation", str(folder / "checkpoint"))
        if finish:
            table.trigger(availableNow=True).start().awaitTermination()
            rows = spark.read.parquet(str(folder / "table")).collect()
            print(json.dumps(sorted([row["n"], row["symbol"], row["price"]] for row in rows)), flush=True)
            return
        running, told = table.start(), -1
        while not running.awaitTermination(0.05):
            progress = running.lastProgress
            if progress is not None and progress["batchId"] > told:
                told = progress["batchId"]
                print(f"batch {told} has {progress['numInputRows']} rows", flush=True)


def start_query(url: str, folder: Path, rows_per_batch: int, *, finish: bool) -> subprocess.Popen[str]:
    """A process group of its own, so that Java and the Python workers die with it."""
    command = [sys.executable, __file__, "--query", url, str(folder), str(rows_per_batch)]
    return subprocess.Popen(
        [*command, *(["--finish"] if finish else [])],
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def kill_in_the_middle(running: subprocess.Popen[str], fate: random.Random) -> None:
    """Wait until the query is at work, and a moment more, and kill it."""
    assert running.stdout is not None
    for line in running.stdout:
        print(f"  {line.rstrip()}")
        if line.startswith("batch") and " 0 rows" not in line:
            break
    time.sleep(fate.random())
    os.killpg(running.pid, signal.SIGKILL)
    running.wait()
    running.stdout.close()
    print("  killed")


def main(rows: int, seed: int) -> None:
    """Publish, kill and compare."""
    fate = random.Random(seed)
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        addresses: list[str] = []
        for name in "ABC":
            settings = braid.ServerSettings.of(
                broker_id=name, listen="127.0.0.1:0", data_dir=folder / name, neighbours=addresses[-1:]
            )
            addresses.append(stack.enter_context(braid.serve_sync(settings)).address)
        client = stack.enter_context(braid.connect_sync(addresses[0]))
        reader = stack.enter_context(braid.connect_sync(addresses[2]))
        reader.create_durable("dear", FILTER)
        waves = KILLS + 1
        for wave in range(waves):
            part = range(rows * wave // waves, rows * (wave + 1) // waves)
            client.publish_batch([publication(n) for n in part], delivery="acknowledged").wait()
            print(f"{len(part)} published; the log of {FILTER!r} has {reader.log_status('dear').safe} rows")
            last = wave == waves - 1
            running = start_query(addresses[2], folder, max(1, rows // 20), finish=last)
            if not last:
                kill_in_the_middle(running, fate)
        output, _ = running.communicate()
        found = [tuple(row) for row in json.loads(output.splitlines()[-1])]
    truth = sorted(
        (row["n"], row["symbol"], row["price"]) for row in map(publication, range(rows)) if row["price"] > 50
    )
    duplicates = len(found) - len(set(found))
    lost = len(set(truth) - set(found))
    print(f"{len(found)} rows in the table, {duplicates} duplicates, {lost} lost")
    if found != truth:
        sys.exit("the table is not what was published")
    print("row for row what was published")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rows", type=int, default=6_000, help="publications in all")
    parser.add_argument("--seed", type=int, default=1, help="when the kills come")
    parser.add_argument("--query", nargs=3, metavar=("URL", "FOLDER", "ROWS"), help=argparse.SUPPRESS)
    parser.add_argument("--finish", action="store_true", help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.query:
        run_query(asked.query[0], Path(asked.query[1]), int(asked.query[2]), finish=asked.finish)
    else:
        main(asked.rows, asked.seed)
