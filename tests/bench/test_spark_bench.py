"""Does the benchmark of the Spark source judge its goals by what was measured?"""

from __future__ import annotations

from typing import Any

import pytest

pytest.importorskip("pyspark")

from braid_bench.spark_source import decide_spark_goals


def run(rows_per_s: float, cpu_us_per_row: float = 1.0) -> dict[str, Any]:
    return {"rows_per_s": rows_per_s, "cpu_us_per_row": cpu_us_per_row}


def test_goals_are_decided_by_ratios() -> None:
    runs = {"bare": run(1000.0), "braid": run(499.0, 1.6), "client.replay": run(100.0)}
    assert [(goal["measured"], goal["met"]) for goal in decide_spark_goals(runs, {"ratio": 60.0})] == [
        (0.499, False),
        (0.625, True),
        (4.99, True),
        (60.0, True),
        (None, None),
        (None, None),
    ]
    latencies = [{"way": "bare", "p50_ms": 200.0}, {"way": "braid", "p50_ms": 301.0}]
    assert [goal["met"] for goal in decide_spark_goals(runs, None, latencies)[-2:]] == [False, False]
    latencies[1]["p50_ms"] = 200.0
    assert [goal["met"] for goal in decide_spark_goals(runs, None, latencies)[-2:]] == [True, True]
    assert [goal["met"] for goal in decide_spark_goals({}, None)] == [None] * 6
