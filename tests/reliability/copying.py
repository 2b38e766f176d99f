"""Does Spark copy every row once while the network around it changes?

Rows are published at one broker, a stream reads them from a log at another one and its sink publishes each
again, and the copies are kept in a log at a third one. These brokers are not killed themselves.
"""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from braid.runtime.connecting import connect
from tests.reliability.spark_kills import COPIED, IN, OUT, WANTED, Driver, copied_rows

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["Copying", "PartFound"]

PATIENCE_S = 180.0
START_S_MAX = 240.0
ROWS_PER_S = 20
ROWS_PER_BATCH = 500


@dataclass(slots=True)
class PartFound:
    """What a part of a run came to."""

    counts: dict[str, int] = field(default_factory=dict)
    mistakes: list[tuple[str, str, int]] = field(default_factory=list)
    """Kind, sentence, and how many."""


class Copying:
    """Spark beside a network.

    Args:
        directory: for checkpoints and the driver's log.
        source: the broker with the log that is read, where the copies are published.
        target: the broker with the log of the copies.
        writer: the broker where rows are published.
    """

    def __init__(self, directory: Path, source: str, target: str, writer: str) -> None:
        self._source, self._target, self._writer = source, target, writer
        self._folder = directory / "spark"
        self._folder.mkdir()
        self._driver = Driver(f"braid://{source}", self._folder, ROWS_PER_BATCH, "braid", "local[2]")
        self._rows = 0

    async def begin(self) -> None:
        """Make both logs, start the stream, and wait until it works: Spark takes its time to start."""
        for address, log, wanted in ((self._source, IN, WANTED), (self._target, OUT, COPIED)):
            async with connect(
                address, name="owner", timeout_s=PATIENCE_S, request_timeout_s=PATIENCE_S
            ) as client:
                await client.create_durable(log, wanted)
        await self.publish(time.monotonic())
        self._driver.start()
        deadline_s = time.monotonic() + START_S_MAX
        while not self._driver.batches:
            if time.monotonic() > deadline_s or not self._driver.alive:
                raise RuntimeError(f"Spark has done no batch: see {self._folder / 'driver.log'}")
            await asyncio.sleep(0.2)

    async def publish(self, end_s: float) -> None:
        """Publish rows until then, once at least, and wait for all receipts."""
        async with connect(
            self._writer,
            name="rows",
            publisher="rows",
            timeout_s=PATIENCE_S,
            reconnect_for_s=PATIENCE_S,
            request_timeout_s=PATIENCE_S,
        ) as client:
            while True:
                part = range(self._rows, self._rows + ROWS_PER_S)
                self._rows = part.stop
                await client.publish_batch([{"n": n} for n in part], delivery="acknowledged")
                if time.monotonic() >= end_s:
                    break
                await asyncio.sleep(1.0)
            await client.flush(PATIENCE_S)

    async def finish(self) -> PartFound:
        """Have everything copied that is left, and count."""
        batches = len(self._driver.batches)
        await asyncio.to_thread(self._driver.finish)
        rows = await asyncio.to_thread(copied_rows, f"braid://{self._target}")
        return self.judge(rows, batches)

    def judge(self, rows: list[int], batches: int) -> PartFound:
        """Hold the copies against what was published."""
        found = PartFound({"rows through Spark": self._rows, "batches of Spark": batches})
        lost = sorted(set(range(self._rows)) - set(rows))
        if lost:
            sentence = f"Spark's copies lack {len(lost)} rows, from {lost[0]} to {lost[-1]}"
            found.mistakes.append(("lost", sentence, len(lost)))
        doubled = len(rows) - len(set(rows))
        if doubled:
            found.mistakes.append(("doubled", f"Spark's copies have {doubled} rows twice", doubled))
        return found

    async def end(self) -> None:
        """Nothing of it runs any more."""
        await asyncio.to_thread(self._driver.kill)
