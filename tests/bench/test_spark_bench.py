"""Does the benchmark of the Spark source judge its goals by what was measured?"""

from __future__ import annotations

from typing import Any

import pytest

pytest.importorskip("pyspark")

import braid
from braid_bench.relay import counting_relay
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


def test_a_relay_counts_what_a_broker_sends() -> None:
    settings = braid.ServerSettings.of(broker_id="A", listen="127.0.0.1:0")
    with braid.serve_sync(settings) as broker, counting_relay(broker.address) as (address, bytes_sent):
        assert bytes_sent() == 0
        with braid.connect_sync(address) as client:
            news = client.subscribe("n >= 0")
            before = bytes_sent()
            client.publish({"n": 1, "text": "x" * 10_000})
            assert news.get(timeout_s=30)["n"] == 1
            assert 10_000 <= bytes_sent() - before < 12_000
