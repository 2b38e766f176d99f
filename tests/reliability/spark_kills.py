"""Kill drivers, executors, Python workers and brokers while a query copies a log through Spark, and count.

    python -m tests.reliability.spark_kills --rows 1000000 --kills 20 --seed 1

A stream reads a log at a broker process and publishes every row again (or writes it to a table); two
executors share the work. Kills (SIGKILL) come at random moments of a seed. At the end every row is there
once, or the run fails and says how many are missing or doubled.
"""

from __future__ import annotations

import argparse
import os
import random
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec

import braid
from braid.protocol.batch import decode_heads

__all__ = ["Run", "main"]

IN, OUT = "in", "out"
PUBLISH_ROWS = 5_000


def query(url: str, folder: Path, rows_per_batch: int, sink: str, master: str, *, finish: bool) -> None:
    """The driver's process."""
    import braid.spark
    from braid.pipeline.session import spark_session

    with spark_session("kills", profile="testing", master=master) as spark:
        options = {"maxRowsPerTrigger": rows_per_batch, "rowsPerPartition": max(1, rows_per_batch // 4)}
        stream = braid.spark.stream(
            spark, url, where="n >= 0 AND copied IS NULL", schema="n bigint", log=IN, **options
        )
        rows = stream.selectExpr("n", "true AS copied").writeStream.option(
            "checkpointLocation", str(folder / "checkpoint")
        )
        if sink == "braid":
            rows = rows.format("braid").options(brokers=url, name="kills")
        else:
            rows = rows.format("parquet").option("path", str(folder / "table"))
        if finish:
            rows = rows.trigger(availableNow=True)
        running = rows.start()
        told = -1
        while not running.awaitTermination(0.1):
            progress = running.lastProgress
            if progress is not None and progress["batchId"] > told:
                told = progress["batchId"]
                print(f"batch {told}", flush=True)
        if finish and sink == "parquet":
            found = sorted(row["n"] for row in spark.read.parquet(str(folder / "table")).collect())
            (folder / "found.json").write_bytes(msgspec.json.encode(found))


def processes_below(pid: int) -> dict[int, str]:
    """All descendants of a process, with their command lines."""
    found: dict[int, str] = {}
    waiting = [pid]
    while waiting:
        parent = waiting.pop()
        for task in Path(f"/proc/{parent}/task").glob("*/children"):
            with suppress(OSError):
                for child in map(int, task.read_text().split()):
                    found[child] = Path(f"/proc/{child}/cmdline").read_bytes().replace(b"\0", b" ").decode()
                    waiting.append(child)
    return found


class Run:
    """One run: the processes, the kills, and what came of it."""

    def __init__(self, folder: Path, rows: int, kills: int, seed: int, sink: str, master: str) -> None:
        self.rows, self.kills, self.sink, self.master = rows, kills, sink, master
        self.folder = folder
        self.fate = random.Random(f"{seed}/kills")
        self.done: list[str] = []
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.url = f"braid://127.0.0.1:{free.getsockname()[1]}"
        self.broker: subprocess.Popen[bytes]
        self.driver: subprocess.Popen[str] | None = None
        self.batches: set[str] = set()

    def start_broker(self) -> None:
        address = self.url.removeprefix("braid://")
        command = [
            "broker",
            "--id",
            "A",
            "--listen",
            address,
            "--data-dir",
            str(self.folder / "broker"),
        ]
        log = (self.folder / "broker.log").open("ab")
        self.broker = subprocess.Popen([sys.executable, "-m", "braid", *command], stdout=log, stderr=log)

    def start_driver(self, *, finish: bool = False) -> None:
        rows = str(max(1, self.rows // 25))
        command = [
            sys.executable,
            "-m",
            "tests.reliability.spark_kills",
            "--query",
            self.url,
            str(self.folder),
        ]
        command += [rows, self.sink, self.master]
        log = (self.folder / "driver.log").open("ab")
        self.driver = subprocess.Popen(
            [*command, *(["--finish"] if finish else [])],
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
            start_new_session=True,
        )
        threading.Thread(target=self._listen, args=(self.driver,), daemon=True).start()

    def _listen(self, driver: subprocess.Popen[str]) -> None:
        assert driver.stdout is not None
        for line in driver.stdout:
            self.batches.add(line.strip())

    def publish(self) -> None:
        """All rows, in order, whatever happens to the broker."""
        with braid.connect_sync(self.url, name="writer", timeout_s=120) as client:
            for first in range(0, self.rows, PUBLISH_ROWS):
                part = range(first, min(first + PUBLISH_ROWS, self.rows))
                client.publish_batch([{"n": n} for n in part], delivery="acknowledged")
            client.flush()

    def kill_something(self) -> None:
        """One of the processes dies; drivers and brokers are started again."""
        assert self.driver is not None
        if self.driver.poll() is not None:
            self.start_driver()  # a driver may give up when its broker is away for too long
        below = processes_below(self.driver.pid)
        targets: dict[str, list[int]] = {
            "executor": [pid for pid, command in below.items() if "CoarseGrainedExecutorBackend" in command],
            "Python worker": [pid for pid, command in below.items() if "pyspark.daemon" in command],
        }
        kind = self.fate.choice(["driver", "broker", *(name for name, pids in targets.items() if pids)])
        if kind == "driver":
            self._kill_driver()
            self.start_driver()
        elif kind == "broker":
            self.broker.kill()
            self.broker.wait()
            self.start_broker()
        else:
            with suppress(ProcessLookupError):
                os.kill(self.fate.choice(sorted(targets[kind])), signal.SIGKILL)
        self.done.append(kind)

    def _kill_driver(self) -> None:
        if self.driver is not None and self.driver.poll() is None:
            below = processes_below(self.driver.pid)
            os.killpg(self.driver.pid, signal.SIGKILL)
            for pid in below:  # Spark's daemons have process groups of their own
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            self.driver.wait()

    def run(self, pause_s: float) -> dict[str, Any]:
        """Kill as often as asked for, let the query finish, and count."""
        self.start_broker()
        try:
            with braid.connect_sync(self.url, name="owner", timeout_s=120) as owner:
                owner.create_durable(IN, "n >= 0 AND copied IS NULL")
                owner.create_durable(OUT, "copied = TRUE")
            publishing = threading.Thread(target=self.publish)
            publishing.start()
            self.start_driver()
            for _ in range(self.kills):
                time.sleep(pause_s * (0.5 + self.fate.random()))
                self.kill_something()
                print(f"killed: {self.done[-1]}; {len(self.batches)} batches so far", flush=True)
            publishing.join()
            self._kill_driver()
            for _ in range(5):  # it may find the broker just starting
                self.start_driver(finish=True)
                assert self.driver is not None
                if self.driver.wait() == 0:
                    break
            else:
                raise RuntimeError(f"the query does not finish; see {self.folder / 'driver.log'}")
            return self._counted()
        finally:
            self._kill_driver()
            self.broker.kill()
            self.broker.wait()

    def _counted(self) -> dict[str, Any]:
        if self.sink == "parquet":
            found = msgspec.json.decode((self.folder / "found.json").read_bytes(), type=list[int])
        else:
            with braid.connect_sync(self.url, name="reader", timeout_s=120) as reader:
                pieces = reader.replay_records(OUT, 0, reader.log_status(OUT).safe - 1)
                records = [row[2] for piece in pieces for row in piece.rows]
            found = [head.attributes["n"] for head in decode_heads(records)]
        return {
            "rows": len(found),
            "duplicates": len(found) - len(set(found)),
            "lost": len(set(range(self.rows)) - set(found)),
            "batches": len(self.batches),
            "kills": {kind: self.done.count(kind) for kind in sorted(set(self.done))},
        }


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--pause", type=float, default=15.0, help="seconds between kills, on average")
    parser.add_argument("--sink", choices=["braid", "parquet"], default="braid")
    parser.add_argument("--master", default="local-cluster[2,1,1024]", help="two executors by default")
    parser.add_argument("--query", nargs=5, help=argparse.SUPPRESS)
    parser.add_argument("--finish", action="store_true", help=argparse.SUPPRESS)
    asked = parser.parse_args(arguments)
    if asked.query:
        url, folder, rows, sink, master = asked.query
        query(url, Path(folder), int(rows), sink, master, finish=asked.finish)
        return 0
    with tempfile.TemporaryDirectory() as folder:
        run = Run(Path(folder), asked.rows, asked.kills, asked.seed, asked.sink, asked.master)
        counted = run.run(asked.pause)
    print(msgspec.json.encode(counted).decode())
    return 1 if counted["duplicates"] or counted["lost"] else 0


if __name__ == "__main__":
    sys.exit(main())
