"""What does it cost a broker to write a trace?

The same broker takes part twice in one run, with a trace and without, and both take turns at the same work.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from braid_bench.brokers.clients.braid import Braid
from braid_bench.brokers.contest import MAIN_OUTSTANDING
from braid_bench.brokers.report import bench_brokers

if TYPE_CHECKING:
    from collections.abc import Callable

    from braid_bench.brokers.contest import BrokerBenchSettings

__all__ = ["TRACE_SCENARIOS", "bench_traces", "trace_settings"]

TRACE_SCENARIOS = ("one-to-one", "filtering-1000")
OVERHEAD_MAX = 1.1

_METHOD = (
    "The same broker without and with a trace, in one run, taking turns at the same work as in the broker "
    "benchmark; the median of the turns counts. Server CPU is that of the whole process, so the thread that "
    "makes the files is in it. Files are made at the beginning of every turn, of what was noted in the turn "
    "before; by default there are fewer and larger ones, so that their share is lower."
)
# The time between two files is longer than a turn and shorter than a turn of each of the two.
_TURN_SECONDS = 1.0
_MESSAGES_MAX = 1_000_000
# A difference of some percent takes many turns to be seen.
_ROUNDS = 15


def trace_settings(settings: BrokerBenchSettings) -> BrokerBenchSettings:
    """The same settings, patient enough for a small difference."""
    return replace(
        settings,
        rounds=_ROUNDS,
        turn_seconds=_TURN_SECONDS,
        messages_max=_MESSAGES_MAX,
        latency_seconds=_TURN_SECONDS / 2,
    )


def bench_traces(
    settings: BrokerBenchSettings, store: Callable[[dict[str, Any]], None] | None = None
) -> dict[str, Any]:
    """Measure every scenario without and with a trace; the report is plain data, ready for JSON."""

    def stored(report: dict[str, Any]) -> None:
        if store is not None:
            store(_about_traces(report))

    return _about_traces(bench_brokers(settings, [Braid(), Braid(traced=True)], store=stored))


def _about_traces(report: dict[str, Any]) -> dict[str, Any]:
    """A broker report with the goals of a trace."""
    goals = []
    for cell in report["cells"]:
        measured = cell["times_braid"].get(Braid(traced=True).name, {}).get(str(MAIN_OUTSTANDING))
        goals.append(
            {
                "goal": f"{cell['title']}: server CPU per message with a trace, times that without",
                "target": f"below {OVERHEAD_MAX}",
                "measured": measured,
                "met": None if measured is None else measured < OVERHEAD_MAX,
            }
        )
    kept = {name: value for name, value in report.items() if name != "documented_elsewhere"}
    return {**kept, "benchmark": "trace", "method": _METHOD, "goals": goals}
