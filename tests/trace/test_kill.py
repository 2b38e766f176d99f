"""What is left of a trace when its writer is killed?"""

from __future__ import annotations

import random
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from braid.trace import TraceWriter, inspect, read_table

if TYPE_CHECKING:
    from pathlib import Path

WRITE_FOR_EVER = """
import itertools, sys
from pathlib import Path
from braid.trace import TraceWriter

background = sys.argv[2] == "background"
writer = TraceWriter(Path(sys.argv[1]), "w", rows_max=50, background=background)
for number in itertools.count():
    writer.fault(number, "f", "s", "detail")
    if number % 50 == 49:
        writer.subscription(number, "B", "c", "k", "x > 1", "subscribe")
        print(number, flush=True)
"""


@pytest.mark.parametrize("how", ["foreground", "background"])
def test_a_killed_writer_leaves_only_complete_files(tmp_path: Path, how: str) -> None:
    chance = random.Random(f"kill/{how}")
    for attempt in range(6):
        directory = tmp_path / str(attempt)
        with subprocess.Popen(
            [sys.executable, "-c", WRITE_FOR_EVER, str(directory), how], stdout=subprocess.PIPE, text=True
        ) as process:
            assert process.stdout is not None
            # It goes on while we read, so where exactly it dies is a matter of chance.
            for _ in range(chance.randrange(1, 40)):
                process.stdout.readline()
            process.kill()
        reports = inspect(directory, verify=True)
        assert all(report.ok for report in reports), reports
        assert all(report.rows == 50 for report in reports if report.kind == "fault")
        found = read_table(directory, "fault")["at_us"].to_pylist()
        if how == "foreground":
            assert found == list(range(len(found)))
            assert found, "the first file was complete before the process said so"
        leftover = len(list(directory.rglob("*.tmp")))
        assert leftover <= 1
        with TraceWriter(directory, "w") as writer:
            writer.fault(-1, "again", "s", "")
        assert list(directory.rglob("*.tmp")) == []
        assert read_table(directory, "fault")["at_us"].to_pylist() == [*found, -1]
