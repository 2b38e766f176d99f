"""Does the benchmark of the matching join measure what it says?"""

from __future__ import annotations

import json
import subprocess
import sys
from typing import TYPE_CHECKING, Any

from braid.pipeline.matching_join import match_join
from braid_bench.join import (
    JoinBenchSettings,
    TreeClock,
    bench_join,
    decide_join_goals,
    print_join_report,
)
from braid_bench.join_tables import WORKLOADS, cross_join_condition, write_tables

if TYPE_CHECKING:
    from pathlib import Path

    import pytest
    from pyspark.sql import SparkSession


def test_both_joins_find_the_same_pairs(spark: SparkSession, tmp_path: Path) -> None:
    for workload in WORKLOADS:
        write_tables(workload, 300, 200, 3, tmp_path / workload)
        publications = spark.read.parquet(str(tmp_path / workload / "publications"))
        filters = spark.read.parquet(str(tmp_path / workload / "filters"))
        publications.createOrReplaceTempView("p")
        filters.createOrReplaceTempView("f")
        theirs = spark.sql(f"SELECT p.id, f.id FROM p JOIN f ON {cross_join_condition()}").collect()
        ours = match_join(publications, filters, how="pairs").collect()
        assert sorted(map(tuple, ours)) == sorted(map(tuple, theirs))
        assert ours, workload


def test_a_tiny_run_from_end_to_end(spark: SparkSession, capsys: pytest.CaptureFixture[str]) -> None:
    settings = JoinBenchSettings(
        publications=200,
        filters=60,
        many_filters=120,
        rival_publications=200,
        few_publications=50,
        pairs_publications=100,
        warm_publications=50,
        workloads=("narrow", "whole"),
    )
    said: list[str] = []
    stored: list[dict[str, Any]] = []
    report = bench_join(settings, spark, say=said.append, store=stored.append)
    assert report == json.loads(json.dumps(report)) == stored[-1]
    assert len(said) == len(report["runs"]) == len(stored)
    assert {run["strategy"] for run in report["runs"]} == {"index", "split", "zcode", "spark"}
    assert all(run["cpu_seconds"] >= 0 and run["wall_seconds"] > 0 for run in report["runs"])
    print_join_report(report)
    shown = capsys.readouterr().out
    assert "Spark's own join" in shown
    assert "at least 50" in shown


def test_goals_compare_runs_of_one_size() -> None:
    def run(how: str, strategy: str, publications: int, cpu: float, filters: int = 50) -> dict[str, Any]:
        return {
            "workload": "wide",
            "how": how,
            "strategy": strategy,
            "publications": publications,
            "filters": filters,
            "cpu_seconds": cpu,
        }

    runs = [
        run("counts", "index", 50, 5.0),
        run("counts", "index", 200, 8.0),
        run("destinations", "index", 200, 10.0),
        run("counts", "spark", 200, 480.0),
        run("pairs", "index", 20, 4.0),
        run("pairs", "spark", 20, 16.0),
        run("counts", "index", 200, 80.0, filters=500),
    ]
    goals = decide_join_goals(runs)
    assert [goal["measured"] for goal in goals] == [60.0, 48.0, 4.0, 0.4, *[None] * 5]
    assert [goal["met"] for goal in goals] == [True, False, False, True, *[None] * 5]


BUSY = "import time\nwhile time.process_time() < 0.6: pass"


def test_the_time_of_children_counts_also_after_their_end() -> None:
    with TreeClock() as clock:
        before = clock.seconds()
        subprocess.run([sys.executable, "-c", BUSY], check=True)
        assert 0.5 <= clock.seconds() - before < 5


def test_nor_is_the_time_of_children_lost_that_nobody_waits_for() -> None:
    careless = f"""
import signal, subprocess, sys
signal.signal(signal.SIGCHLD, signal.SIG_IGN)
subprocess.Popen([sys.executable, "-c", {BUSY!r}], stdout=sys.stdout)
sys.stdout.flush()
import os
try:
    os.wait()
except ChildProcessError:
    pass
print("done", flush=True)
sys.stdin.read()
"""
    with TreeClock(period_s=0.02) as clock:
        before = clock.seconds()
        with subprocess.Popen(
            [sys.executable, "-c", careless], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        ) as parent:
            assert parent.stdout is not None
            assert parent.stdout.readline() == "done\n"
            assert clock.seconds() - before >= 0.4
            parent.communicate()
        assert clock.seconds() - before >= 0.4
