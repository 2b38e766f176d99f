"""Do contenders take turns, are the absent ones named, and are the goals decided from the figures?

The contenders here have no server: what is published goes straight to the subscribers' sockets.
"""

from __future__ import annotations

import io
import json
import socket
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from rich.console import Console

from braid.errors import ConfigurationError
from braid_bench.brokers import (
    SCENARIOS,
    BrokerBenchSettings,
    bench_brokers,
    broker_settings_for,
    print_broker_report,
    rivals,
)
from braid_bench.brokers.clients.braid import Braid
from braid_bench.brokers.clients.connection import RawSubscriber
from braid_bench.brokers.contest import hold_scenario
from braid_bench.brokers.goals import decide_baseline_goals, decide_broker_goals
from braid_bench.brokers.load import WrongDeliveriesError, closed_loop
from braid_bench.brokers.measure import Measurement, Scenario, Session, measure_closed_loop, median_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from braid_bench.brokers.workload import Interest, Message

pytestmark = pytest.mark.net

QUICKEST = BrokerBenchSettings(
    rounds=2, turn_seconds=0.01, warm_up_seconds=0.001, messages_max=200, latency_seconds=0.02
)
_SEPARATOR = b"\n"


class StillServer:
    """Nothing runs, so nothing is spent; every look at the clock costs a microsecond."""

    def __init__(self) -> None:
        self.ports = [0]
        self.looks = 0
        self.stopped = False

    def cpu_seconds(self) -> float:
        self.looks += 1
        return self.looks * 1e-6

    def memory_bytes(self) -> int:
        return 50_000_000

    def stop(self) -> None:
        self.stopped = True


class DirectPublisher:
    """Hands each message to those who asked for it, `copies` times."""

    def __init__(
        self, targets: list[tuple[socket.socket, Sequence[Interest] | None]], copies: int, once: bool
    ) -> None:
        # A connection of its own that stays silent, so that there is something to wait for.
        self._mine, self._other = socket.socketpair()
        self._targets = targets
        self._copies = copies
        self._once = once
        self._wire: dict[bytes, list[int]] = {}

    def fileno(self) -> int:
        return self._mine.fileno()

    def encode(self, message: Message) -> bytes:
        counts = []
        for _, interests in self._targets:
            if interests is None:
                count = 1
            else:
                assert message.quote is not None
                count = sum(each.matches(message.quote) for each in interests)
            counts.append(min(count, 1) if self._once else count)
        encoded = b"%d:%s%s" % (len(self._wire), message.body, _SEPARATOR)
        self._wire[encoded] = counts
        return encoded

    def send(self, encoded: Sequence[bytes]) -> None:
        # One write for each target: many small ones would fill the socket, and nobody reads meanwhile.
        for number, (target, _) in enumerate(self._targets):
            target.sendall(b"".join(each * (self._wire[each][number] * self._copies) for each in encoded))

    def flush(self) -> None:
        raise AssertionError("nothing is ever kept")

    def pending(self) -> bool:
        return False

    def receive(self) -> None:
        raise AssertionError("nobody says anything")

    def close(self) -> None:
        self._mine.close()
        self._other.close()
        for target, _ in self._targets:
            target.close()


class DirectContender:
    """A contender for tests; `copies` other than 1 makes it wrong, `reason` makes it missing."""

    topologies = ("one",)

    def __init__(
        self, name: str, *, copies: int = 1, reason: str | None = None, filters: bool = True
    ) -> None:
        self.name = name
        self.filter_form = "sql" if filters else None
        self.once_per = "connection"
        self._copies = copies
        self._reason = reason
        self._targets: list[tuple[socket.socket, Sequence[Interest] | None]] = []
        self.servers: list[StillServer] = []
        self.breaks = False

    def missing(self) -> str | None:
        return self._reason

    def version(self) -> str | None:
        return "1.0"

    def start(self, topology: str) -> StillServer:
        if self.breaks:
            raise ConfigurationError("it ended while starting")
        self._targets = []
        self.servers.append(StillServer())
        return self.servers[-1]

    def publisher(self, server: StillServer) -> DirectPublisher:
        return DirectPublisher(self._targets, self._copies, once=True)

    def subscriber(self, server: StillServer, interests: Sequence[Interest] | None) -> RawSubscriber:
        mine, theirs = socket.socketpair()
        mine.setblocking(False)
        self._targets.append((theirs, interests))
        return RawSubscriber(mine)


def silent(line: str) -> None:
    """Progress that nobody reads."""


def small(**changes: Any) -> Scenario:
    return replace(
        Scenario(name="small", title="a small one", connections=3, subscriptions=60, outstanding=(20, 1)),
        **changes,
    )


def test_every_contender_gets_all_its_turns_and_every_server_is_stopped() -> None:
    contenders = [DirectContender("braid"), DirectContender("other")]
    cell = hold_scenario(small(), contenders, QUICKEST, silent)
    assert set(cell["contenders"]) == {"braid", "other"}
    for figures in cell["contenders"].values():
        assert set(figures["closed_loop"]) == {"20", "1"}
        for row in figures["closed_loop"].values():
            assert row["turns"] == 2
            assert row["deliveries"] > 0
            assert row["server_us_per_message"] > 0
    assert all(server.stopped for contender in contenders for server in contender.servers)


def test_latency_is_measured_where_it_is_asked_for() -> None:
    scenario = small(connections=1, subscriptions=None, latency=True)
    cell = hold_scenario(scenario, [DirectContender("braid")], QUICKEST, silent)
    latency = cell["contenders"]["braid"]["latency"]
    assert 0 < latency["p50_us"] <= latency["p99_us"]
    assert latency["messages"] == 20


def test_who_takes_no_part_is_named_with_the_reason() -> None:
    broken = DirectContender("broken")
    broken.breaks = True
    contenders = [
        DirectContender("absent", reason="absent is not installed"),
        DirectContender("plain", filters=False),
        broken,
        DirectContender("braid"),
    ]
    cell = hold_scenario(small(), contenders, QUICKEST, silent)
    assert set(cell["contenders"]) == {"braid"}
    assert cell["left_out"] == {
        "absent": "absent is not installed",
        "plain": "plain has no filtering by content",
        "broken": "broken could not be set up: it ended while starting",
    }
    network = hold_scenario(small(topology="chain-of-3"), contenders, QUICKEST, silent)
    assert network["left_out"]["braid"] == "braid is not measured as chain-of-3"


@pytest.mark.parametrize("subscriptions", [None, 60])
def test_a_contender_that_delivers_twice_ends_the_run_and_its_server(subscriptions: int | None) -> None:
    contender = DirectContender("wrong", copies=2)
    with pytest.raises(WrongDeliveriesError, match="wrong in small"):
        hold_scenario(small(subscriptions=subscriptions), [contender], QUICKEST, silent)
    assert contender.servers[0].stopped


def test_a_closed_session_says_so() -> None:
    session = Session(DirectContender("braid"), small(), 1)
    session.close()
    with pytest.raises(ConfigurationError, match="closed"):
        measure_closed_loop(session, 1, 1)


def test_the_median_is_taken_figure_by_figure() -> None:
    turns = [Measurement(cost, cost, 1.0, 10, 10, 0.1, 0.2, 5) for cost in (3.0, 1.0, 2.0)]
    assert median_of(turns) == turns[2]


def test_a_report_is_json_and_reads_as_tables(monkeypatch: pytest.MonkeyPatch) -> None:
    one = replace(SCENARIOS["one-to-one"], outstanding=(250,))
    monkeypatch.setitem(SCENARIOS, "one-to-one", one)
    settings = replace(QUICKEST, scenarios=("one-to-one",))
    contenders = [
        DirectContender("braid"),
        DirectContender("nats-server"),
        DirectContender("gone", reason="no gone"),
    ]
    stored: list[dict[str, Any]] = []
    report = bench_brokers(settings, contenders, store=stored.append, say=silent)
    assert json.loads(json.dumps(report)) == json.loads(json.dumps(stored[-1]))
    assert report["cells"][0]["times_braid"]["nats-server"]["250"] > 0
    assert report["goals"][0]["measured"] is not None
    text = io.StringIO()
    print_broker_report(report, Console(file=text, width=200))
    for words in ("1 publisher to 1 subscriber", "no gone", "latency p50 / p99", "not measured"):
        assert words in text.getvalue()


def test_scenarios_after_the_end_of_the_run_are_listed_as_skipped() -> None:
    settings = replace(QUICKEST, scenarios=("one-to-one", "tree-of-7"), seconds_max=-1.0)
    report = bench_brokers(settings, [DirectContender("braid")], say=silent)
    assert [each["scenario"] for each in report["skipped"]] == ["one-to-one", "tree-of-7"]
    print_broker_report(report, Console(file=io.StringIO()))


def cell(scenario: str, **costs: float) -> dict[str, Any]:
    contenders = {
        name.replace("_", "-"): {
            "idle_memory_bytes": 250_000_000,
            "closed_loop": {
                "250": {"server_us_per_message": cost},
                "10": {"server_us_per_message": cost + 1},
            },
            "latency": {"p50_us": 100 * cost if name == "nats_server" else 80 * cost},
        }
        for name, cost in costs.items()
    }
    return {"scenario": scenario, "contenders": contenders}


def test_goals_are_decided_from_the_cells() -> None:
    cells = [
        cell("one-to-one", braid=2.0, nats_server=1.0, rabbitmq_server=19.0),
        cell("fan-in-1", braid=4.0),
        cell("fan-in-250", braid=5.0),
        cell("one-to-fifty", braid=5.0, nats_server=5.0),
        cell("filtering-50000", braid=10.0, rabbitmq_server=5_000.0),
    ]
    rows = decide_broker_goals(cells)
    assert [(row["measured"], row["met"]) for row in rows] == [
        (2.0, False),
        (1.5, False),
        (None, None),
        (1.6, False),
        (1.25, True),
        (1.0, False),
        (9.5, False),
        (None, None),
        (None, None),
        (500.0, True),
        (35.0, True),
        (250.0, True),
    ]


def test_goals_against_a_baseline_are_decided_from_its_figures() -> None:
    figure = "filtering-5000: 250 outstanding, server us per message"
    (row,) = decide_baseline_goals([{"figure": figure, "ratio": 0.69}, {"figure": "another", "ratio": 2.0}])
    assert (row["measured"], row["met"]) == (0.69, True)
    assert [row["met"] for row in decide_baseline_goals([{"figure": figure, "ratio": 0.71}])] == [False]
    assert decide_baseline_goals([{"figure": "another", "ratio": 2.0}]) == []


@pytest.mark.parametrize("name", ["acknowledged-one-to-one", "durable-one-to-one"])
def test_each_message_gets_its_receipt(name: str) -> None:
    scenario = replace(SCENARIOS[name], outstanding=(50,), latency=False)
    figures = hold_scenario(scenario, [Braid(), DirectContender("plain")], QUICKEST, silent)
    assert figures["left_out"] == {"plain": f"plain is not measured with {scenario.delivery} delivery"}
    assert figures["contenders"]["braid"]["closed_loop"]["50"]["messages"] > 0


class Unreceipted(DirectPublisher):
    """Gets no receipts for what it publishes."""

    def unsettled(self) -> int:
        return 1


def test_a_message_without_its_receipt_is_outstanding() -> None:
    reader, writer = socket.socketpair()
    publisher = Unreceipted([(writer, None)], 1, once=True)
    subscriber = RawSubscriber(reader)
    with pytest.raises(WrongDeliveriesError, match="0 messages sent, 1 of them without a receipt"):
        closed_loop(publisher, [subscriber], [b"x"], np.ones((1, 1), np.int64), 1, 0.05)
    publisher.close()
    subscriber.close()


def test_without_braid_no_goal_is_met_or_missed() -> None:
    assert {row["met"] for row in decide_broker_goals([cell("one-to-one", nats_server=1.0)])} == {None}


def test_settings_name_known_scenarios_only() -> None:
    assert broker_settings_for(scenarios=["one-to-one, one-to-fifty"]).scenarios == (
        "one-to-one",
        "one-to-fifty",
    )
    assert "filtering-50000" not in broker_settings_for(quick=True).scenarios
    with pytest.raises(ConfigurationError, match="one-to-fifty"):
        broker_settings_for(scenarios=["one-to-none"])


def test_only_who_tells_publishers_apart_takes_part_in_fan_in() -> None:
    assert SCENARIOS["fan-in-250"].left_out(Braid()) is None
    assert all("apart" in (SCENARIOS["fan-in-250"].left_out(rival) or "") for rival in rivals())


def test_there_are_four_rivals() -> None:
    assert [rival.name for rival in rivals()] == ["nats-server", "mosquitto", "rabbitmq-server", "activemq"]
