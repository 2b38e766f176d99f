"""After a process is killed in the middle of its work: is what it reported there, and nothing torn?

This file is also the program that is killed. A killed process is not a power failure: what that takes is left
to SQLite and the disk, but a torn write-ahead log is tried in `test_store`.
"""

from __future__ import annotations

import random
import subprocess
import sys
import threading
from functools import partial
from typing import TYPE_CHECKING

import pytest

from braid.protocol.log import AcknowledgeLog, AppendRows, CreateLog, LogRow, Retention
from braid.runtime.store import SqliteStore, StoreThread

if TYPE_CHECKING:
    from pathlib import Path

    from braid.errors import StoreError

BATCH = 50
UNDER_WAY_MAX = 20
PUBLISHERS = 3
# Enough that the program is always killed, never finished.
BATCHES = 100_000


def row_at(offset: int) -> LogRow:
    return LogRow(f"p{offset % PUBLISHERS}", offset, b"%d:" % offset + bytes(offset % 400))


def write_for_ever(directory: str) -> None:
    """Append batches through a store thread, and print each offset that was reported as committed."""
    room = threading.Semaphore(UNDER_WAY_MAX)

    def done(end: int, problem: StoreError | None) -> None:
        if problem is not None:
            print(f"failed: {problem}", flush=True)
        print(end, flush=True)
        room.release()

    store = SqliteStore(directory, retention=Retention())
    thread = StoreThread(store)
    (log,) = store.state().logs or [None]
    start = 0 if log is None else log.next_offset
    if log is None:
        thread.submit([CreateLog("orders", "o", "TRUE", "drop_oldest", 0)], partial(done, 0))
    for batch in range(BATCHES):
        first = start + batch * BATCH
        some = [row_at(offset) for offset in range(first, first + BATCH)]
        room.acquire()
        thread.submit(
            [AppendRows("orders", first, some, 0), AcknowledgeLog("orders", first)],
            partial(done, first + BATCH),
        )


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3))
def test_a_killed_writer_loses_nothing_it_reported(tmp_path: Path, seed: int) -> None:
    draws = random.Random(seed)
    reported = 0
    for _ in range(3):  # killed, started again on what is there, killed again
        reported = max(reported, run_and_kill(tmp_path, reports=draws.randrange(2, 120)))
        with SqliteStore(tmp_path, retention=Retention()) as store:
            (log,) = store.state().logs
            found = store.read("orders", 0, None, 1 << 40)
        assert log.first_offset == 0
        assert log.next_offset >= reported
        assert log.next_offset % BATCH == 0
        assert found == [(offset, row_at(offset)) for offset in range(log.next_offset)]
        assert log.bytes == sum(len(row.record) for _, row in found)
        ids = [row_at(offset) for offset in range(log.next_offset)]
        assert log.highest == {row.publisher: row.sequence for row in ids}
        assert log.acknowledged_offset == (log.next_offset - BATCH if log.next_offset else -1)


def run_and_kill(directory: Path, *, reports: int) -> int:
    """Kill the writer after so many reports; the highest offset that it got to report."""
    with subprocess.Popen([sys.executable, __file__, str(directory)], stdout=subprocess.PIPE) as writer:
        assert writer.stdout is not None
        try:
            lines = [writer.stdout.readline() for _ in range(reports)]
        finally:
            writer.kill()  # SIGKILL: it cannot clean up
        # What it wrote before its end is still in the pipe; a last line may be cut short.
        lines += writer.stdout.read().splitlines(keepends=True)
    ends = [int(line) for line in lines if line.endswith(b"\n")]
    assert len(ends) >= reports
    assert ends == sorted(ends)
    return ends[-1]


if __name__ == "__main__":
    write_for_ever(sys.argv[1])
