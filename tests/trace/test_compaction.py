"""Compacting a trace: few files, the same rows, whatever happens in between."""

from __future__ import annotations

import json
import multiprocessing
import os
import random
import signal
from typing import TYPE_CHECKING

import pytest

from braid.cli import main
from braid.errors import ConfigurationError, TraceError
from braid.trace import TraceWriter, compact, inspect, read_table
from braid.trace.compaction import LOCK
from braid.trace.reader import standing_files

if TYPE_CHECKING:
    from pathlib import Path


def note(folder: Path, writer: str, first: int, rows: int, *, files: int = 1) -> None:
    """So many files of faults, each with so many rows, numbered by their times."""
    with TraceWriter(folder, writer) as trace:
        for number in range(files):
            for at_us in range(first + number * rows, first + (number + 1) * rows):
                trace.fault(at_us, "link lost", writer, "")
            trace.flush()


def times(folder: Path, writer: str) -> list[int]:
    rows = read_table(folder, "fault").to_pylist()
    return [row["at_us"] for row in rows if row["subject"] == writer]


def test_a_day_of_a_broker_becomes_few_files_with_the_same_rows_in_order(tmp_path: Path) -> None:
    note(tmp_path, "A", 0, 3, files=300)
    note(tmp_path, "A-000000", 0, 2, files=40)  # its name looks like one of A's files
    done = compact(tmp_path)
    assert done.before == 340
    assert done.after == len(inspect(tmp_path)) <= 24
    assert times(tmp_path, "A") == list(range(900))
    assert times(tmp_path, "A-000000") == list(range(80))
    # Who has listed the folder before reads on; what was merged goes with the next call.
    assert len([*(tmp_path / "fault").glob("*.parquet")]) == 340 + len(
        [*(tmp_path / "fault").glob("*+*.parquet")]
    )
    again = compact(tmp_path)
    assert again.removed >= 320
    assert len([*(tmp_path / "fault").glob("*.parquet")]) == again.after == done.after
    assert times(tmp_path, "A") == list(range(900))


@pytest.mark.parametrize("seed", range(8))
def test_rows_stay_as_they_are_while_brokers_write_and_start_again(tmp_path: Path, seed: int) -> None:
    fate = random.Random(seed)
    written = {"A": 0, "B": 0}
    for _ in range(30):
        writer = fate.choice(["A", "B"])
        rows, files = fate.choice([1, 5, 2_000]), fate.randint(1, 4)
        note(tmp_path, writer, written[writer], rows, files=files)  # a writer of its own: a restart
        written[writer] += rows * files
        if fate.random() < 0.6:
            compact(tmp_path, bytes_max=fate.choice([10_000, 1 << 28]))
        for each, count in written.items():
            assert times(tmp_path, each) == list(range(count))


def test_a_name_that_was_merged_is_not_used_again(tmp_path: Path) -> None:
    note(tmp_path, "A", 0, 1, files=4)
    compact(tmp_path)
    compact(tmp_path)
    note(tmp_path, "A", 4, 1)
    names = [file.path.name for file in standing_files(tmp_path / "fault").standing]
    assert names == ["A-000000+000003.parquet", "A-000004.parquet"]
    assert times(tmp_path, "A") == list(range(5))


def test_a_damaged_file_stays_and_the_others_are_merged_around_it(tmp_path: Path) -> None:
    note(tmp_path, "A", 0, 10, files=9)
    damaged = tmp_path / "fault" / "A-000004.parquet"
    content = bytearray(damaged.read_bytes())
    content[20] ^= 0xFF
    damaged.write_bytes(content)
    told: list[str] = []
    done = compact(tmp_path, report=told.append)
    assert [line.split()[0] for line in told] == [str(damaged)]
    assert done.after == 3
    compact(tmp_path)
    assert damaged.exists()
    assert times(tmp_path, "A") == [*range(40), *range(50, 90)]


def test_what_a_kill_leaves_behind_changes_nothing(tmp_path: Path) -> None:
    note(tmp_path, "A", 0, 10, files=8)
    (tmp_path / "fault" / ".A-000000+000007.parquet.tmp").write_bytes(b"half of it")
    assert times(tmp_path, "A") == list(range(80))
    done = compact(tmp_path)
    assert (done.before, done.after, done.removed) == (8, 1, 1)


def _compact_for_ever(folder: Path) -> None:
    while True:
        compact(folder)


@pytest.mark.parametrize("seed", range(3))
def test_killed_again_and_again_it_loses_and_doubles_nothing(tmp_path: Path, seed: int) -> None:
    fate = random.Random(seed)
    count = 0
    for _ in range(4):
        note(tmp_path, "A", count, 50, files=20)
        count += 1_000
        process = multiprocessing.get_context("fork").Process(target=_compact_for_ever, args=(tmp_path,))
        process.start()
        process.join(0.01 + 0.08 * fate.random())
        assert process.pid is not None
        os.kill(process.pid, signal.SIGKILL)
        process.join()
        assert times(tmp_path, "A") == list(range(count))
    compact(tmp_path)
    assert compact(tmp_path).after <= 12
    assert times(tmp_path, "A") == list(range(count))


def test_what_cannot_be_done_is_said(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="no such folder"):
        compact(tmp_path / "nowhere")
    note(tmp_path, "A", 0, 1, files=2)
    import fcntl

    with (tmp_path / LOCK).open("ab") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        with pytest.raises(ConfigurationError, match="compacted by another process"):
            compact(tmp_path)
    assert compact(tmp_path).after == 1


def test_a_file_that_cannot_be_written_loses_nothing(tmp_path: Path) -> None:
    note(tmp_path, "A", 0, 5, files=4)
    (tmp_path / "fault" / "A-000000+000003.parquet").mkdir()
    with pytest.raises(TraceError, match="cannot be written"):
        compact(tmp_path)
    assert times(tmp_path, "A") == list(range(20))
    assert not [*(tmp_path / "fault").glob(".*.tmp")]


def test_the_command_compacts_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    note(tmp_path, "A", 0, 5, files=4)
    with pytest.raises(SystemExit) as ended:
        main(["pipeline", "compact", str(tmp_path), "--json"])
    assert not ended.value.code
    assert json.loads(capsys.readouterr().out) == {"before": 4, "after": 1, "removed": 0}
    with pytest.raises(SystemExit) as ended:
        main(["pipeline", "compact", str(tmp_path / "nowhere")])
    assert ended.value.code
    assert "no such folder" in capsys.readouterr().err
