"""How do all contenders get the same chance in the same run?

In each scenario all sessions are opened first; then each contender warms up, and for every bound of the
closed loop they take turns for several rounds. A run is bounded by time: a scenario that would begin too late
is left out, and rounds end early (after at least one) when the scenario's share is used up.
"""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import asdict, dataclass
from time import monotonic
from typing import TYPE_CHECKING, Any

from braid.errors import ConfigurationError, NetworkError
from braid_bench.brokers.measure import (
    Figures,
    Latency,
    Measurement,
    Scenario,
    Session,
    measure_closed_loop,
    measure_latency,
    median_of,
    messages_for,
    warm_up,
)
from braid_bench.timing import significant

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from braid_bench.brokers.contender import Contender, Delivery

__all__ = ["MAIN_OUTSTANDING", "SCENARIOS", "BrokerBenchSettings", "hold_scenario"]

MAIN_OUTSTANDING = 250
_UNBATCHED = (MAIN_OUTSTANDING, 10, 1)


def _filtering(
    subscriptions: int, outstanding: tuple[int, ...] = (MAIN_OUTSTANDING,), *, latency: bool = False
) -> Scenario:
    return Scenario(
        name=f"filtering-{subscriptions}",
        title=f"{subscriptions:,} subscriptions over 20 connections, 0.5 % match",
        connections=20,
        subscriptions=subscriptions,
        outstanding=outstanding,
        latency=latency,
    )


def _fan_in(publishers: int) -> Scenario:
    """All messages come by themselves, from one publisher or from as many as there are outstanding."""
    return Scenario(
        name=f"fan-in-{publishers}",
        title=f"each message by itself, publishers in turn: {publishers}, to 1 subscriber",
        connections=1,
        publishers=publishers,
    )


def _guaranteed(delivery: Delivery, what: str) -> Scenario:
    return Scenario(
        name=f"{delivery}-one-to-one",
        title=f"1 publisher to 1 subscriber, {what}",
        connections=1,
        outstanding=_UNBATCHED,
        latency=True,
        delivery=delivery,
    )


SCENARIOS = {
    scenario.name: scenario
    for scenario in (
        Scenario(
            name="one-to-one",
            title="1 publisher to 1 subscriber",
            connections=1,
            outstanding=_UNBATCHED,
            latency=True,
        ),
        _guaranteed("acknowledged", "each with a receipt when the subscriber has it"),
        _guaranteed("durable", "each with a receipt when it is in a log on disk, which is read"),
        _fan_in(1),
        _fan_in(250),
        Scenario(name="one-to-fifty", title="1 publisher to 50 subscribers", connections=50),
        _filtering(1_000),
        _filtering(5_000, _UNBATCHED, latency=True),
        _filtering(50_000),
        Scenario(
            name="chain-of-3",
            title="1 to 1 over a chain of 3 brokers",
            connections=1,
            topology="chain-of-3",
            outstanding=_UNBATCHED,
            latency=True,
        ),
        Scenario(
            name="tree-of-7",
            title="1 publisher at the root of a tree of 7 brokers, 4 subscribers at its leaves",
            connections=4,
            topology="tree-of-7",
        ),
    )
}


@dataclass(frozen=True, kw_only=True)
class BrokerBenchSettings:
    """What is measured, and how patiently."""

    scenarios: tuple[str, ...] = tuple(SCENARIOS)
    rounds: int = 5
    """Turns of each contender; the median counts."""
    turn_seconds: float = 1.0
    """Wall time of a turn, about."""
    messages_max: int = 100_000
    """Messages of a turn, at most; slow contenders publish fewer, as many as fit into a turn."""
    warm_up_seconds: float = 8.0
    """Once in every session, before anything counts; Java compiles while it runs and takes its time."""
    latency_rate: float = 1_000.0
    """Messages per second while latency is measured."""
    latency_seconds: float = 2.0
    scenario_seconds_max: float = 300.0
    """After this long in one scenario no further round begins."""
    seconds_max: float = 1_800.0
    """The whole run; no scenario begins later."""
    seed: int = 1


def hold_scenario(
    scenario: Scenario,
    contenders: Sequence[Contender],
    settings: BrokerBenchSettings,
    say: Callable[[str], None],
) -> dict[str, Any]:
    """Everybody's figures in one scenario, as plain data."""
    sessions: list[Session] = []
    left_out: dict[str, str] = {}
    with ExitStack() as closing:
        for contender in contenders:
            reason = scenario.left_out(contender)
            if reason is None:
                say(f"{scenario.name}: starting {contender.name}")
                try:
                    session = Session(contender, scenario, settings.seed)
                except (ConfigurationError, NetworkError) as error:
                    reason = f"{contender.name} could not be set up: {error}"
                else:
                    closing.callback(session.close)
                    sessions.append(session)
            if reason is not None:
                left_out[contender.name] = reason
        figures = _turns(sessions, scenario, settings, say)
    return {
        "scenario": scenario.name,
        "title": scenario.title,
        "connections": scenario.connections,
        "subscriptions": scenario.subscriptions,
        "topology": scenario.topology,
        "delivery": scenario.delivery,
        "contenders": figures,
        "left_out": left_out,
    }


def _turns(
    sessions: list[Session], scenario: Scenario, settings: BrokerBenchSettings, say: Callable[[str], None]
) -> dict[str, Any]:
    figures: dict[str, Any] = {
        session.contender.name: {
            "set_up_seconds": significant(session.set_up_seconds),
            "idle_memory_bytes": session.idle_memory_bytes,
            "delivers_once_per": session.contender.once_per,
            "closed_loop": {},
            "latency": None,
        }
        for session in sessions
    }
    for session in sessions:
        say(f"{scenario.name}: warming up {session.contender.name}")
        warm_up(session, max(scenario.outstanding), settings.warm_up_seconds)
    deadline = monotonic() + settings.scenario_seconds_max
    for outstanding in scenario.outstanding:
        say(f"{scenario.name}: {outstanding} outstanding")
        for name, turns in _closed_loops(sessions, outstanding, settings, deadline).items():
            figures[name]["closed_loop"][str(outstanding)] = _summary(turns)
    if scenario.latency:
        say(f"{scenario.name}: latency")
        for name, paced_turns in _latencies(sessions, settings, deadline).items():
            figures[name]["latency"] = _summary(paced_turns)
    return figures


def _closed_loops(
    sessions: list[Session], outstanding: int, settings: BrokerBenchSettings, deadline: float
) -> dict[str, list[Measurement]]:
    counts = {
        session.contender.name: messages_for(
            session,
            outstanding,
            turn_seconds=settings.turn_seconds,
            messages_max=settings.messages_max,
            trial_seconds=settings.turn_seconds,
        )
        for session in sessions
    }

    def turn(session: Session) -> Measurement:
        return measure_closed_loop(session, outstanding, counts[session.contender.name])

    return _rounds(sessions, turn, settings.rounds, deadline)


def _latencies(
    sessions: list[Session], settings: BrokerBenchSettings, deadline: float
) -> dict[str, list[Latency]]:
    def turn(session: Session) -> Latency:
        return measure_latency(session, settings.latency_rate, settings.latency_seconds)

    return _rounds(sessions, turn, settings.rounds, deadline)


def _rounds(
    sessions: list[Session], turn: Callable[[Session], Figures], rounds: int, deadline: float
) -> dict[str, list[Figures]]:
    turns: dict[str, list[Figures]] = {session.contender.name: [] for session in sessions}
    for number in range(rounds):
        if number and monotonic() > deadline:
            break
        for session in sessions:
            turns[session.contender.name].append(turn(session))
    return turns


def _summary(turns: Sequence[Figures]) -> dict[str, Any]:
    """The medians, and how far the turns lie apart in what counts."""
    costs = [turn.server_us_per_message for turn in turns]
    medians = {
        name: significant(value) if isinstance(value, float) else value
        for name, value in asdict(median_of(turns)).items()
    }
    return {
        **medians,
        "server_us_per_message_best": significant(min(costs)),
        "server_us_per_message_worst": significant(max(costs)),
        "turns": len(turns),
    }
