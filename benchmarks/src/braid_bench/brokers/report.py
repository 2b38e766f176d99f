"""What does a message cost on its way through Braid's brokers, and through the others'?"""

from __future__ import annotations

import sys
from dataclasses import asdict
from time import monotonic
from typing import TYPE_CHECKING, Any

from braid.errors import ConfigurationError
from braid_bench.brokers.clients import Amqp, Mqtt, Nats, Stomp
from braid_bench.brokers.clients.braid import Braid
from braid_bench.brokers.contest import MAIN_OUTSTANDING, SCENARIOS, BrokerBenchSettings, hold_scenario
from braid_bench.brokers.goals import DOCUMENTED, decide_broker_goals, server_cost
from braid_bench.environment import describe_environment
from braid_bench.timing import significant

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from braid_bench.brokers.contender import Contender

__all__ = ["bench_brokers", "broker_settings_for", "contenders", "rivals"]

_METHOD = (
    "All servers run side by side on this machine, over the loopback interface, without persistence and "
    "acknowledgements, and take turns at the same work; the median of the turns counts. Server CPU is "
    "user and system time of all processes of a server. One thread publishes and receives for everyone, "
    "with messages encoded beforehand and deliveries counted by a marker in the body; it keeps at most "
    "the stated number of messages outstanding. Bodies have 200 bytes; where content is filtered a "
    "message also carries a quote. Deliveries on every connection are compared with what an oracle "
    "computed, and a difference ends the run. rabbitmq-server's headers exchange knows equality only and "
    "filters bands of the same quotes, equally selective; it delivers a message once per connection and "
    "keeps equal bindings of a connection once, which is in its favour; activemq delivers once per "
    "matching subscription. nats-server and mosquitto have no filter on content. Latency is from handing "
    "a message to the socket until it was read, one message at a time at a steady rate. Other work on the "
    "machine makes rates and latencies worse, and processor time less so."
)


def contenders() -> list[Contender]:
    """Braid, and the brokers that come from Debian."""
    return [Braid(), *rivals()]


def rivals() -> list[Contender]:
    """The brokers that come from Debian."""
    return [Nats(), Mqtt(), Amqp(), Stomp()]


def broker_settings_for(
    *, scenarios: Sequence[str] | None = None, quick: bool = False, seed: int = 1
) -> BrokerBenchSettings:
    """Settings from what a person typed; `quick` leaves out the largest and fits into some minutes."""
    chosen: dict[str, Any] = {}
    if quick:
        chosen = {
            "scenarios": tuple(name for name in SCENARIOS if name != "filtering-50000"),
            "rounds": 3,
            "turn_seconds": 0.3,
            "warm_up_seconds": 2.0,
            "latency_seconds": 0.5,
            "seconds_max": 300.0,
        }
    if scenarios:
        names = tuple(name.strip() for each in scenarios for name in each.split(","))
        for name in names:
            if name not in SCENARIOS:
                raise ConfigurationError(f"there is no scenario {name!r}; choose from {', '.join(SCENARIOS)}")
        chosen["scenarios"] = tuple(dict.fromkeys(names))
    return BrokerBenchSettings(seed=seed, **chosen)


def bench_brokers(
    settings: BrokerBenchSettings,
    contenders: Sequence[Contender],
    store: Callable[[dict[str, Any]], None] | None = None,
    say: Callable[[str], None] = lambda line: print(line, file=sys.stderr, flush=True),
) -> dict[str, Any]:
    """Measure every scenario; the report is plain data, ready for JSON.

    `store` gets the report so far after every scenario, so that a run cut short is not lost.
    """
    cells: list[dict[str, Any]] = []
    skipped: list[dict[str, str]] = []
    deadline = monotonic() + settings.seconds_max
    for name in settings.scenarios:
        if monotonic() > deadline:
            skipped.append(
                {"scenario": name, "reason": f"the run's {settings.seconds_max:.0f} seconds were over"}
            )
            continue
        cells.append(hold_scenario(SCENARIOS[name], contenders, settings, say))
        if store is not None:
            store(_report(settings, contenders, cells, skipped))
    return _report(settings, contenders, cells, skipped)


def _report(
    settings: BrokerBenchSettings,
    contenders: Sequence[Contender],
    cells: list[dict[str, Any]],
    skipped: list[dict[str, str]],
) -> dict[str, Any]:
    return {
        "benchmark": "broker",
        "method": _METHOD,
        "environment": {
            **describe_environment(),
            "brokers": {contender.name: contender.version() for contender in contenders},
        },
        "settings": {**asdict(settings), "main_outstanding": MAIN_OUTSTANDING},
        "goals": decide_broker_goals(cells),
        "cells": [{**cell, "times_braid": _times_braid(cells, cell)} for cell in cells],
        "skipped": skipped,
        "documented_elsewhere": DOCUMENTED,
    }


def _times_braid(cells: list[dict[str, Any]], cell: dict[str, Any]) -> dict[str, dict[str, float]]:
    """Each rival's server CPU per message as a multiple of Braid's, for every bound of the closed loop."""
    ratios: dict[str, dict[str, float]] = {}
    for name, figures in cell["contenders"].items():
        for outstanding in figures["closed_loop"]:
            ours = server_cost(cells, cell["scenario"], "braid", int(outstanding))
            theirs = server_cost(cells, cell["scenario"], name, int(outstanding))
            if name != "braid" and ours and theirs:
                ratios.setdefault(name, {})[outstanding] = significant(theirs / ours)
    return ratios
