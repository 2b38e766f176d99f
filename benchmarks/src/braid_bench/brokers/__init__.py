"""What does a message cost in Braid and in other brokers, on the same work and in the same run?"""

from __future__ import annotations

from braid_bench.brokers.contest import SCENARIOS, BrokerBenchSettings
from braid_bench.brokers.install import install_rivals
from braid_bench.brokers.report import bench_brokers, broker_settings_for, contenders, rivals
from braid_bench.brokers.tables import print_broker_report
from braid_bench.brokers.traces import TRACE_SCENARIOS, bench_traces, trace_settings

__all__ = [
    "SCENARIOS",
    "TRACE_SCENARIOS",
    "BrokerBenchSettings",
    "bench_brokers",
    "bench_traces",
    "broker_settings_for",
    "contenders",
    "install_rivals",
    "print_broker_report",
    "rivals",
    "trace_settings",
]
