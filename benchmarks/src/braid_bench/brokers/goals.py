"""Did Braid's broker reach what it was meant to reach beside the others?

A goal whose figures were not measured in this run is neither met nor missed.
"""

from __future__ import annotations

import operator
from typing import TYPE_CHECKING, Any

from braid_bench.brokers.contest import MAIN_OUTSTANDING
from braid_bench.timing import significant

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

__all__ = ["DOCUMENTED", "decide_baseline_goals", "decide_broker_goals", "server_cost"]

Measured = float | None
_RELATIONS: dict[str, Callable[[float, float], bool]] = {
    "at least": operator.ge,
    "at most": operator.le,
    "below": operator.lt,
}
DOCUMENTED = {"padres_us_per_hop": 70.0}
"""PADRES 2.1, one to one: processor time per message and hop, measured elsewhere and not in this run."""
NATS_TIMES_MAX = 1.35
"""What a message from one to one may cost, as a multiple of what it costs nats-server."""
LATENCY_TIMES_MAX = 1.5
"""The same for the median of the time that it takes."""
FILTERING_TIMES_MAX = 0.7
"""What a message costs with 5,000 subscriptions, as a multiple of that before writing was improved."""


def decide_broker_goals(cells: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """A row per goal: what was asked, what was measured, whether it was met (None: not measured)."""
    one, fifty, largest = "one-to-one", "one-to-fifty", "filtering-50000"
    nats, rabbit = "nats-server", "rabbitmq-server"

    def braid_over(rival: str, scenario: str, outstanding: int = MAIN_OUTSTANDING) -> Measured:
        ours = server_cost(cells, scenario, "braid", outstanding)
        return _ratio(ours, server_cost(cells, scenario, rival, outstanding))

    def over_braid(rival: str, scenario: str) -> Measured:
        return _ratio(server_cost(cells, scenario, rival), server_cost(cells, scenario, "braid"))

    memory = _figures(cells, largest, "braid").get("idle_memory_bytes")
    rows: list[tuple[str, str, float, Measured]] = [
        (
            "1 to 1: server CPU per message, times nats-server's",
            "at most",
            NATS_TIMES_MAX,
            braid_over(nats, one),
        ),
        *(
            (
                f"1 to 1 with {count} outstanding: server CPU per message, times nats-server's",
                "at most",
                NATS_TIMES_MAX,
                braid_over(nats, one, count),
            )
            for count in (10, 1)
        ),
        (
            "1 to 1: latency at the median, times nats-server's",
            "at most",
            LATENCY_TIMES_MAX,
            _ratio(_latency(cells, one, "braid"), _latency(cells, one, nats)),
        ),
        (
            "fan-in: server CPU per message of 250 publishers, times that of one publisher",
            "at most",
            1.3,
            _ratio(server_cost(cells, "fan-in-250", "braid"), server_cost(cells, "fan-in-1", "braid")),
        ),
        ("1 to 50: server CPU per message, times nats-server's", "below", 1, braid_over(nats, fifty)),
        ("1 to 1: times less server CPU than rabbitmq-server", "at least", 10, over_braid(rabbit, one)),
        *(
            (
                f"{count:,} subscriptions: times less server CPU than rabbitmq-server",
                "at least",
                100,
                over_braid(rabbit, f"filtering-{count}"),
            )
            for count in (1_000, 5_000, 50_000)
        ),
        (
            "1 to 1: times less server CPU than PADRES's documented 70 us per hop",
            "at least",
            15,
            _ratio(DOCUMENTED["padres_us_per_hop"], server_cost(cells, one, "braid")),
        ),
        (
            "memory of an idle broker with 50,000 subscriptions, MB",
            "below",
            300,
            None if memory is None else memory / 1e6,
        ),
    ]
    return _decided(rows)


def decide_baseline_goals(figures: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """The same for what is compared with an earlier commit; a goal whose case was not run is left out.

    It is met or missed against the commit before writing was improved; against a later one, a ratio near 1 is
    as it should be.
    """
    ratios = {row["figure"]: row["ratio"] for row in figures}
    cost = f"filtering-5000: {MAIN_OUTSTANDING} outstanding, server us per message"
    if cost not in ratios:
        return []
    goal = "5,000 subscriptions: server CPU per message, times that of before writing was improved"
    return _decided([(goal, "at most", FILTERING_TIMES_MAX, ratios[cost])])


def _decided(rows: Sequence[tuple[str, str, float, Measured]]) -> list[dict[str, Any]]:
    return [
        {
            "goal": goal,
            "target": f"{relation} {target:,}",
            "measured": None if measured is None else significant(measured),
            "met": None if measured is None else _RELATIONS[relation](measured, target),
        }
        for goal, relation, target, measured in rows
    ]


def _latency(cells: list[dict[str, Any]], scenario: str, contender: str) -> Measured:
    """The median of the time from publishing to delivery, in microseconds."""
    latency: dict[str, Any] = _figures(cells, scenario, contender).get("latency") or {}
    return latency.get("p50_us")


def server_cost(
    cells: list[dict[str, Any]], scenario: str, contender: str, outstanding: int = MAIN_OUTSTANDING
) -> Measured:
    """Server microseconds per message in one cell, or None where it was not measured."""
    loops = _figures(cells, scenario, contender).get("closed_loop", {})
    cost: Measured = loops.get(str(outstanding), {}).get("server_us_per_message")
    return cost


def _figures(cells: list[dict[str, Any]], scenario: str, contender: str) -> dict[str, Any]:
    for cell in cells:
        if cell["scenario"] == scenario:
            figures: dict[str, Any] = cell["contenders"].get(contender, {})
            return figures
    return {}


def _ratio(above: Measured, below: Measured) -> Measured:
    return above / below if above is not None and below else None
