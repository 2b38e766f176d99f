"""Is the cost of a trace measured on a broker that really writes one?"""

from __future__ import annotations

import pytest

from braid_bench.brokers import TRACE_SCENARIOS, bench_traces, broker_settings_for, trace_settings
from braid_bench.brokers.clients.braid import BraidBrokers
from braid_bench.brokers.contest import BrokerBenchSettings

pytestmark = pytest.mark.net


def test_both_brokers_do_the_same_work() -> None:
    settings = BrokerBenchSettings(
        scenarios=("filtering-1000",), rounds=1, turn_seconds=0.05, messages_max=500, warm_up_seconds=0.05
    )
    reports: list[object] = []
    report = bench_traces(settings, reports.append)
    assert reports[-1] == report
    assert report["benchmark"] == "trace"
    (cell,) = report["cells"]
    assert list(cell["contenders"]) == ["braid", "braid with a trace"]
    (goal,) = report["goals"]
    assert goal["measured"] == cell["times_braid"]["braid with a trace"]["250"]


def test_a_traced_broker_has_a_trace() -> None:
    brokers = BraidBrokers("one", traced=True)
    try:
        assert (brokers.directory / "trace").is_dir()
    finally:
        brokers.stop()


def test_more_patience_changes_nothing_else() -> None:
    settings = broker_settings_for(scenarios=TRACE_SCENARIOS, quick=True, seed=7)
    patient = trace_settings(settings)
    assert patient.scenarios == settings.scenarios
    assert patient.seed == 7
    assert patient.rounds > settings.rounds
