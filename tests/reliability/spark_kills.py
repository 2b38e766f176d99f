"""Kill drivers, executors, Python workers and brokers while a query copies a log through Spark, and count.

    python -m tests.reliability.spark_kills --rows 1000000 --kills 20 --seed 1

A stream reads a log at a broker process and publishes every row again (or writes it to a table); two
executors share the work. Kills (SIGKILL) come at random moments of a seed, each after the query has done a
batch since the one before, so that they meet it at work. At the end every row is there
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

__all__ = [
    "BROKER",
    "COPIED",
    "DRIVER",
    "EXECUTOR",
    "IN",
    "OUT",
    "WANTED",
    "WORKER",
    "Driver",
    "Run",
    "copied_rows",
    "main",
]

IN, OUT = "in", "out"
WANTED, COPIED = "n >= 0 AND copied IS NULL", "copied = TRUE"
PUBLISH_ROWS = 5_000
# What is killed.
DRIVER, BROKER, EXECUTOR, WORKER = "driver", "broker", "executor", "Python worker"
# Batches that all rows come in, if each is full.
BATCHES = 50
# How long a query has to do a batch after a kill: Java starts anew, on a busy machine.
AT_WORK_S = 600.0
FINISH_TRIES = 5


def query(url: str, folder: Path, rows_per_batch: int, sink: str, master: str, *, finish: bool) -> None:
    """The driver's process."""
    import braid.spark
    from braid.pipeline.session import spark_session

    with spark_session("kills", profile="testing", master=master) as spark:
        options = {"maxRowsPerTrigger": rows_per_batch, "rowsPerPartition": max(1, rows_per_batch // 4)}
        stream = braid.spark.stream(spark, url, where=WANTED, schema="n bigint", log=IN, **options)
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


def copied_rows(url: str) -> list[int]:
    """The numbers of all rows in the log of copies."""
    with braid.connect_sync(url, name="reader", timeout_s=120) as reader:
        last = reader.log_status(OUT).safe - 1
        pieces = reader.replay_records(OUT, 0, last) if last >= 0 else ()
        records = [row[2] for piece in pieces for row in piece.rows]
    return [int(head.attributes["n"]) for head in decode_heads(records)]


class Driver:
    """The driver's process, which can be killed with everything below it, and started again."""

    def __init__(self, url: str, folder: Path, rows_per_batch: int, sink: str, master: str) -> None:
        self.batches: set[str] = set()
        """Those that it has said to be done."""
        self.heard = 0
        """How often it has said so."""
        self._folder = folder
        self._arguments = [url, str(folder), str(rows_per_batch), sink, master]
        self._process: subprocess.Popen[str] | None = None

    def start(self, *, finish: bool = False) -> None:
        command = [sys.executable, "-m", "tests.reliability.spark_kills", "--query", *self._arguments]
        with (self._folder / "driver.log").open("ab") as log:
            self._process = subprocess.Popen(
                [*command, *(["--finish"] if finish else [])],
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                start_new_session=True,
            )
        threading.Thread(target=self._listen, args=(self._process,), daemon=True).start()

    def _listen(self, process: subprocess.Popen[str]) -> None:
        assert process.stdout is not None
        with process.stdout as said:
            for line in said:
                self.batches.add(line.strip())
                self.heard += 1

    @property
    def alive(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def below(self) -> dict[int, str]:
        """All its descendants, with their command lines."""
        return {} if self._process is None else processes_below(self._process.pid)

    def kill(self) -> None:
        if self._process is not None and self._process.poll() is None:
            below = self.below()
            os.killpg(self._process.pid, signal.SIGKILL)
            for pid in below:  # Spark's daemons have process groups of their own
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            self._process.wait()

    def finish(self) -> None:
        """Kill it, and have another one do all that is left."""
        self.kill()
        for _ in range(FINISH_TRIES):  # it may find the broker just starting
            self.start(finish=True)
            assert self._process is not None
            if self._process.wait() == 0:
                return
        raise RuntimeError(f"the query does not finish; see {self._folder / 'driver.log'}")


class Run:
    """One run: the processes, the kills, and what came of it."""

    def __init__(
        self,
        folder: Path,
        rows: int,
        kills: int | list[str],
        seed: int,
        sink: str,
        master: str,
        *,
        batches: int = BATCHES,
    ) -> None:
        """`kills`: how many processes are killed, or which."""
        self.kills: list[str | None] = [None] * kills if isinstance(kills, int) else [*kills]
        self.rows, self.sink = rows, sink
        self.folder = folder
        self.fate = random.Random(f"{seed}/kills")
        self.done: list[str] = []
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.url = f"braid://127.0.0.1:{free.getsockname()[1]}"
        self.broker: subprocess.Popen[bytes]
        self.driver = Driver(self.url, folder, max(1, rows // batches), sink, master)

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
        with (self.folder / "broker.log").open("ab") as log:
            self.broker = subprocess.Popen([sys.executable, "-m", "braid", *command], stdout=log, stderr=log)

    def publish(self) -> None:
        """All rows, in order, whatever happens to the broker."""
        with braid.connect_sync(self.url, name="writer", timeout_s=120) as client:
            for first in range(0, self.rows, PUBLISH_ROWS):
                part = range(first, min(first + PUBLISH_ROWS, self.rows))
                client.publish_batch([{"n": n} for n in part], delivery="acknowledged")
            client.flush()

    def _targets(self) -> dict[str, list[int]]:
        """The processes below the driver that there are at the moment."""
        below = self.driver.below()
        return {
            EXECUTOR: [pid for pid, command in below.items() if "CoarseGrainedExecutorBackend" in command],
            WORKER: [pid for pid, command in below.items() if "pyspark.daemon" in command],
        }

    def kill_something(self, kind: str | None = None) -> None:
        """One of the processes dies, of a kind or of any; drivers and brokers are started again."""
        targets = self._targets()
        deadline_s = time.monotonic() + AT_WORK_S
        while kind in targets and not targets[kind] and time.monotonic() < deadline_s:
            time.sleep(0.05)
            targets = self._targets()
        if kind is None:
            kind = self.fate.choice([DRIVER, BROKER, *(name for name, pids in targets.items() if pids)])
        if kind == DRIVER:
            self.driver.kill()
            self.driver.start()
        elif kind == BROKER:
            self.broker.kill()
            self.broker.wait()
            self.start_broker()
        else:
            with suppress(ProcessLookupError):
                os.kill(self.fate.choice(sorted(targets[kind])), signal.SIGKILL)
        self.done.append(kind)

    def _await_batch(self) -> None:
        """Wait until the query has done something since the last kill, or clearly does not."""
        heard, deadline_s = self.driver.heard, time.monotonic() + AT_WORK_S
        while self.driver.heard == heard and time.monotonic() < deadline_s:
            if not self.driver.alive:
                self.driver.start()  # it may give up when its broker is away for too long
            time.sleep(0.05)

    def run(self, pause_s: float) -> dict[str, Any]:
        """Kill as often as asked for, let the query finish, and count."""
        self.start_broker()
        try:
            with braid.connect_sync(self.url, name="owner", timeout_s=120) as owner:
                owner.create_durable(IN, WANTED)
                owner.create_durable(OUT, COPIED)
            publishing = threading.Thread(target=self.publish)
            publishing.start()
            self.driver.start()
            for kind in self.kills:
                self._await_batch()
                time.sleep(pause_s * self.fate.random())
                self.kill_something(kind)
                print(f"killed: {self.done[-1]}; {len(self.driver.batches)} batches so far", flush=True)
            publishing.join()
            self.driver.finish()
            return self._counted()
        finally:
            self.driver.kill()
            self.broker.kill()
            self.broker.wait()

    def _counted(self) -> dict[str, Any]:
        if self.sink == "parquet":
            found = msgspec.json.decode((self.folder / "found.json").read_bytes(), type=list[int])
        else:
            found = copied_rows(self.url)
        # A driver that looks for news now and then, or is killed, does not tell of every batch.
        committed = [
            path for path in (self.folder / "checkpoint" / "commits").iterdir() if path.name.isdigit()
        ]
        return {
            "rows": len(found),
            "duplicates": len(found) - len(set(found)),
            "lost": len(set(range(self.rows)) - set(found)),
            "batches": len(committed),
            "kills": {kind: self.done.count(kind) for kind in sorted(set(self.done))},
        }


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument(
        "--pause",
        type=float,
        default=4.0,
        help="seconds, at most, that a query at work has until the next kill",
    )
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
