"""Is every point of a sweep run once, whoever is killed, fails or comes second?"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from braid.errors import ConfigurationError
from braid.pipeline.experiments import sweep_folder
from braid.pipeline.experiments.sweep import Point, SweepFailed, grid, run_point, sweep, traces_of
from braid.pipeline.experiments.sweep_folder import (
    FinishedRun,
    RunFolder,
    clean_leftovers,
    finished_keys,
    read_run,
)
from tests.pipeline.sweep_runs import calls, processes

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

RUNS = "tests.pipeline.sweep_runs"
LOGGED = f"{RUNS}:logged"
ROOT = Path(__file__).parents[2]

json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 9) | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=6,
)


@given(settings=st.dictionaries(st.text(max_size=4), json_values, max_size=4), seed=st.integers(0, 9))
def test_a_key_depends_on_what_is_said_and_not_on_its_order(settings: dict[str, object], seed: int) -> None:
    turned = dict(reversed(settings.items()))
    assert Point(settings, seed, weight=3).key(LOGGED) == Point(turned, seed).key(LOGGED)
    assert Point(settings, seed).key(LOGGED) != Point(settings, seed + 1).key(LOGGED)
    assert Point(settings, seed).key(LOGGED) != Point({**settings, "other": 1}, seed).key(LOGGED)
    assert Point(settings, seed).key(LOGGED) != Point(settings, seed).key(f"{RUNS}:failing")


def test_a_key_stays_what_it_is() -> None:
    """Otherwise every finished run of a user would be done again after an upgrade."""
    assert Point({"strategy": "S0", "fanout": 35}, 7).key("a:b") == "r2cd6e64d22666b824ae3"


def test_a_grid_has_every_combination_with_every_seed() -> None:
    points = grid({"strategy": ["S0", "S1"], "fanout": [5]}, seeds=2, first_seed=7)
    assert [(point.settings["strategy"], point.settings["fanout"], point.seed) for point in points] == [
        ("S0", 5, 7),
        ("S0", 5, 8),
        ("S1", 5, 7),
        ("S1", 5, 8),
    ]
    assert str(points[0]) == "strategy=S0, fanout=5, seed=7"


def test_a_sweep_runs_every_point_once_and_the_next_one_none(spark: SparkSession, tmp_path: Path) -> None:
    points = grid({"number": [1, 2, 3]}, seeds=2)
    seen: list[tuple[int, int]] = []
    report = sweep(spark, LOGGED, [*points, points[0]], tmp_path, watcher=lambda *each: seen.append(each))
    assert report.checked().executed == 6
    assert sorted(calls(tmp_path, "start")) == [(n, s) for n in (1, 2, 3) for s in (1, 2)]
    assert [(run.settings["number"], run.seed) for run in report.runs] == [
        (n, s) for n in (1, 2, 3) for s in (1, 2)
    ]
    assert seen[-1] == (6, 6)
    again = sweep(spark, LOGGED, points, tmp_path)
    assert (again.executed, again.runs) == (0, report.runs)
    assert len(calls(tmp_path, "start")) == 6
    [run] = [run for run in report.runs if run.settings["number"] == 3 and run.seed == 2]
    folder = traces_of(tmp_path) / f"run={run.key}"
    assert run.summary == {"square": 9}
    assert (folder / "hop" / "data.txt").read_text() == "3 2"
    assert sorted(path.name for path in folder.iterdir()) == ["hop", "run.json"]
    assert len(list(traces_of(tmp_path).iterdir())) == 6


def test_only_what_is_missing_is_run(spark: SparkSession, tmp_path: Path) -> None:
    assert run_point(LOGGED, Point({"number": 2}, 1), tmp_path)
    assert not run_point(LOGGED, Point({"number": 2}, 1), tmp_path)
    report = sweep(spark, LOGGED, grid({"number": [1, 2, 3]}, seeds=1), tmp_path)
    assert (report.executed, len(report.runs)) == (2, 3)
    assert sorted(calls(tmp_path, "start")) == [(1, 1), (2, 1), (3, 1)]


def test_heavy_points_start_first(spark: SparkSession, tmp_path: Path) -> None:
    sweep(spark, LOGGED, [Point({"number": n}, 1, weight=n) for n in (1, 3, 2)], tmp_path)
    assert calls(tmp_path, "start") == [(3, 1), (2, 1), (1, 1)]


def test_every_point_is_a_partition_of_its_own_with_adaptive_execution_too(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spark.conf.set("spark.sql.adaptive.enabled", "true")
    try:
        jobs = count_tasks(
            spark, lambda: sweep(spark, LOGGED, grid({"number": [1, 2, 3]}, seeds=1), tmp_path)
        )
    finally:
        spark.conf.set("spark.sql.adaptive.enabled", "false")
    assert jobs == [3]


def count_tasks(spark: SparkSession, action: object) -> list[int]:
    """The numbers of tasks of the stages that an action runs."""
    context = spark.sparkContext
    context.setJobGroup("counted", "counted")
    try:
        action()  # type: ignore[operator]
        tracker = context.statusTracker()
        stages = [
            stage
            for job in tracker.getJobIdsForGroup("counted")
            for stage in tracker.getJobInfo(job).stageIds  # type: ignore[union-attr]
        ]
        return [tracker.getStageInfo(stage).numTasks for stage in stages]  # type: ignore[union-attr]
    finally:
        context.setLocalProperty("spark.jobGroup.id", None)  # type: ignore[arg-type]


def test_a_failing_point_says_what_and_where_and_keeps_the_others(
    spark: SparkSession, tmp_path: Path
) -> None:
    report = sweep(spark, f"{RUNS}:failing", grid({"number": [1, 2, 3, 4]}, seeds=1), tmp_path)
    assert [run.settings["number"] for run in report.runs] == [1, 4]
    assert [failure.point.settings["number"] for failure in report.failures] == [2, 3]
    with pytest.raises(SweepFailed) as caught:
        report.checked()
    message = str(caught.value)
    assert message.startswith("2 of 4 runs failed:\n- number=2, seed=1\n    ConfigurationError: two is not")
    assert "- number=3, seed=1\n    ZeroDivisionError: three divides nothing\n" in message
    assert "sweep_runs.py" in message
    assert len(list(traces_of(tmp_path).iterdir())) == 2


@pytest.mark.parametrize(
    ("function", "message"),
    [
        ("no_colon", "package.module:function"),
        ("no.such.module:run", "cannot be imported: No module named 'no'"),
        (f"{RUNS}:nothing", "has no attribute 'nothing'"),
        (f"{RUNS}:__all__", "is not a function"),
    ],
)
def test_a_function_that_is_not_there_is_refused_at_once(
    spark: SparkSession, tmp_path: Path, function: str, message: str
) -> None:
    with pytest.raises(ConfigurationError, match=message):
        sweep(spark, function, [Point({}, 1)], tmp_path)


def finished(key: str, word: str) -> FinishedRun:
    return FinishedRun(key, LOGGED, {}, 1, {"by": word}, 0.5)


def test_the_second_to_finish_throws_its_copy_away(tmp_path: Path) -> None:
    with RunFolder(tmp_path, "k") as first, RunFolder(tmp_path, "k") as second:
        (first.path / "data").write_text("first")
        (second.path / "data").write_text("second")
        assert first.commit(finished("k", "first"))
        assert not second.commit(finished("k", "second"))
    assert [path.name for path in tmp_path.iterdir()] == ["run=k"]
    assert (tmp_path / "run=k" / "data").read_text() == "first"
    assert read_run(tmp_path, "k").summary == {"by": "first"}


def test_the_living_are_left_alone_and_the_dead_are_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    died = subprocess.run(
        [sys.executable, "-c", DIES, str(tmp_path)], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert died.returncode == -signal.SIGKILL, died.stderr
    [dead] = [path.name for path in tmp_path.iterdir()]
    unready = tmp_path / ".run=young.1"
    unready.mkdir()
    with RunFolder(tmp_path, "alive") as alive:
        assert clean_leftovers(tmp_path) == [dead]
        assert sorted(path.name for path in tmp_path.iterdir()) == sorted([unready.name, alive.path.name])
        monkeypatch.setattr(sweep_folder, "_UNLOCKED_SECONDS_MAX", -1.0)
        assert clean_leftovers(tmp_path) == [unready.name]
    assert list(tmp_path.iterdir()) == []


DIES = """
import os, signal, sys
from pathlib import Path
from braid.pipeline.experiments.sweep_folder import RunFolder
with RunFolder(Path(sys.argv[1]), "dead") as folder:
    (folder.path / "data").write_text("half")
    os.kill(os.getpid(), signal.SIGKILL)
"""


def test_a_folder_that_no_commit_left_is_named(tmp_path: Path) -> None:
    (tmp_path / "run=k").mkdir()
    with pytest.raises(ConfigurationError, match=r"run=k is not a finished run .* Remove that folder"):
        read_run(tmp_path, "k")
    (tmp_path / "run=k" / "run.json").write_text(json.dumps({"format": 99, "key": "k"}))
    with pytest.raises(ConfigurationError, match="format 99"):
        read_run(tmp_path, "k")
    assert finished_keys(tmp_path / "nothing") == set()


PROGRAM = """
import sys
from contextlib import suppress
from pathlib import Path
from braid.pipeline import spark_session
from braid.pipeline.experiments.sweep import Point, grid, sweep

function, out, numbers, gate, master = sys.argv[1:]
points = grid({"number": list(range(int(numbers))), "gate": [int(gate) if gate else None]}, seeds=1)
with spark_session("sweep", profile="testing", master=master) as spark:
    report = sweep(spark, function, points, Path(out))
print(report.executed, len(report.runs), [failure.point.settings["number"] for failure in report.failures])
"""


def start(function: str, out: Path, numbers: int, gate: str, master: str) -> subprocess.Popen[str]:
    """A sweep in a process, and a group of processes, of its own: Java and the workers belong to it."""
    return subprocess.Popen(
        [sys.executable, "-c", PROGRAM, f"{RUNS}:{function}", str(out), str(numbers), gate, master],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def kill_everything(process: subprocess.Popen[str]) -> None:
    """Kill a sweep with its Java and its workers, which have left its process group but not its session."""
    for path in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            session = int(path.read_text().rpartition(")")[2].split()[3])
            if session == process.pid:
                os.kill(int(path.parent.name), signal.SIGKILL)
    process.communicate()


def make_gate(out: Path) -> int:
    """Runs will wait here; returns a descriptor that gets a byte for each that has come."""
    os.mkfifo(out / "gate")
    os.mkfifo(out / "arrived")
    # Also opened for writing, so that reading never meets the end of the pipe.
    return os.open(out / "arrived", os.O_RDWR)


def wait_for_arrivals(arrivals: int, count: int) -> None:
    for _ in range(count):
        os.read(arrivals, 1)


def open_gate(out: Path) -> None:
    """From now on the gate is a plain file; whoever waits at the pipe is let through."""
    (out / "gate").rename(out / "pipe")
    (out / "gate").touch()
    (out / "arrived").unlink()
    (out / "arrived").touch()
    with suppress(OSError):  # nobody waits
        os.close(os.open(out / "pipe", os.O_WRONLY | os.O_NONBLOCK))


@pytest.mark.spark
@pytest.mark.slow
def test_a_killed_sweep_goes_on_without_repeating_finished_runs(tmp_path: Path) -> None:
    arrivals = make_gate(tmp_path)
    process = start("logged", tmp_path, 8, "4", "local[2,4]")
    wait_for_arrivals(arrivals, 2)  # both cores are held up, so all runs before the gate are over
    kill_everything(process)
    before = finished_keys(traces_of(tmp_path))
    assert {read_run(traces_of(tmp_path), key).settings["number"] for key in before} == {0, 1, 2, 3}
    kept = {path: path.stat().st_mtime_ns for path in traces_of(tmp_path).glob("run=*/run.json")}
    assert [path for path in traces_of(tmp_path).iterdir() if path.name.startswith(".run=")] != []
    open_gate(tmp_path)
    output, errors = start("logged", tmp_path, 8, "4", "local[2,4]").communicate()
    assert (output, errors) == ("4 8 []\n", "")
    assert {path: path.stat().st_mtime_ns for path in kept} == kept
    assert sorted(calls(tmp_path, "end")) == [(n, 1) for n in range(8)]
    assert sorted(calls(tmp_path, "start")) == sorted([*((n, 1) for n in range(8)), (4, 1), (5, 1)])
    assert all(path.name.startswith("run=") for path in traces_of(tmp_path).iterdir())


@pytest.mark.spark
@pytest.mark.slow
def test_a_task_that_fails_once_is_tried_again_and_leaves_no_half(tmp_path: Path) -> None:
    output, errors = start("fails_once", tmp_path, 3, "", "local[2,4]").communicate()
    assert (output, errors) == ("3 3 []\n", "")
    assert sorted(calls(tmp_path, "start")) == [(n, 1) for n in range(3) for _ in range(2)]
    assert len(processes(tmp_path)) >= 2, "two cores, two workers"
    assert len(list(traces_of(tmp_path).iterdir())) == 3


@pytest.mark.spark
@pytest.mark.slow
def test_a_worker_that_dies_again_and_again_costs_its_own_point_only(tmp_path: Path) -> None:
    output, errors = start("crashing", tmp_path, 5, "", "local[2,2]").communicate()
    assert (output, errors) == ("4 4 [2]\n", "")
    assert len(list(traces_of(tmp_path).iterdir())) == 4


@pytest.mark.spark
@pytest.mark.slow
def test_two_sweeps_on_one_folder_share_the_work_and_agree(tmp_path: Path) -> None:
    """Both wait in their first run until both have begun, so they do race for it."""
    arrivals = make_gate(tmp_path)
    racers = [start("logged", tmp_path, 6, "0", "local[1]") for _ in range(2)]
    wait_for_arrivals(arrivals, 2)
    open_gate(tmp_path)
    answers = [racer.communicate() for racer in racers]
    assert [errors for _, errors in answers] == ["", ""]
    assert all(output.split()[1:] == ["6", "[]"] for output, _ in answers)
    assert sorted(set(calls(tmp_path, "end"))) == [(n, 1) for n in range(6)]
    assert calls(tmp_path, "start").count((0, 1)) == 2
    assert sorted(len(list(folder.glob("*"))) for folder in traces_of(tmp_path).iterdir()) == [2] * 6
