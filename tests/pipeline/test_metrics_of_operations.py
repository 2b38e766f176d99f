"""Do the measures of an operation find what they need in the trace of a real one, here simulated ones?"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from braid.pipeline.metrics.availability import disruption, operation_time, replication_time, resumption
from braid.pipeline.traces import Traces
from braid.sim import Station, World
from braid.trace.writer import TraceWriter
from tests.pipeline.metric_tables import rows_of
from tests.sim.brokers import add_tree
from tests.sim.operator_station import OperatorStation
from tests.sim.replica_worlds import Failover

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from pyspark.sql import SparkSession

LINKS = {"A": None, "B": "A", "C": "B", "D": "B"}
BEGIN_US, PERIOD_US, NUMBERS = 2_000_000, 4_000, 750


def publications() -> Iterator[tuple[int, dict[str, Any]]]:
    for number in range(NUMBERS):
        yield BEGIN_US + number * PERIOD_US, {"price": number % 100}


def traced(folder: Path, writer: str, readers: str, operate: Callable[[World], None]) -> None:
    """Readers around a writer while something is done to the tree."""
    with TraceWriter(folder, "all") as trace:
        world = World(1, trace=trace)
        add_tree(world, LINKS)
        for name in readers:
            wanted = [("1", "price >= 50")] if name == "D" else [("1", "TRUE")]
            world.attach(Station(f"reader {name}", name, subscriptions=wanted))
        world.attach(Station("writer", writer, publications=publications()))
        world.run_until(BEGIN_US + 1_000_000)
        operate(world)
        world.run_until(BEGIN_US + NUMBERS * PERIOD_US + 1_000_000)
        world.close()


def shift(world: World) -> None:
    """C hangs on A instead of B."""
    operator = world.attach(OperatorStation("operator", "C"))
    world.run_for(us=50_000)
    request = operator.shift("C", "B", "A")
    world.run_for(seconds=1)
    assert operator.answers[request]["outcome"] == "finished"


def failover(world: World) -> None:
    """B is gone, and another process has its name."""
    world.crash("B")
    replacing = Failover(world, "B", ["A", "C", "D"], "R")
    replacing.grants()
    replacing.start(resumption="synchronous")


@pytest.fixture(scope="module")
def shifted(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Traces:
    folder = tmp_path_factory.mktemp("shifted")
    traced(folder, "C", "AB", shift)
    return Traces(spark, folder)


@pytest.fixture(scope="module")
def replaced(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Traces:
    folder = tmp_path_factory.mktemp("replaced")
    traced(folder, "A", "CD", failover)
    return Traces(spark, folder)


def tables(traces: Traces) -> tuple[Any, ...]:
    return traces.reconfiguration, traces.publication, traces.hop, traces.delivery


def test_a_shift_has_an_operation_time(shifted: Traces) -> None:
    [(operation, took_us, aborted)] = rows_of(
        operation_time(shifted.reconfiguration), "operation operation_time_us aborted"
    )
    assert (operation, aborted) == ("shift", False)
    assert 0 < took_us < 1_000_000


def test_a_shift_has_a_resumption_delay_at_the_broker_that_was_asked_to_connect(shifted: Traces) -> None:
    [(operation, broker, subscriber, pdrd_us, lmpt_us)] = rows_of(
        resumption(*tables(shifted)), "operation broker subscriber pdrd_us lmpt_us"
    )
    assert (operation, broker, subscriber) == ("shift", "A", "reader A")
    assert 0 < pdrd_us < 1_000_000
    assert 0 <= lmpt_us < 1_000_000


def test_a_failover_has_a_replication_time_within_its_operation_time(replaced: Traces) -> None:
    [(operation, name, replica, replication_us)] = rows_of(
        replication_time(replaced.reconfiguration), "operation operation_id replica replication_time_us"
    )
    assert (operation, name, replica) == ("replicate", "B/1", "R")
    [(took_us, aborted)] = rows_of(operation_time(replaced.reconfiguration), "operation_time_us aborted")
    assert 0 < replication_us < took_us
    assert not aborted


def test_a_failover_has_a_resumption_delay_for_each_subscriber(replaced: Traces) -> None:
    found = rows_of(resumption(*tables(replaced)), "operation broker subscriber pdrd_us lmpt_us")
    assert [row[:3] for row in found] == [
        ("replicate", "C", "reader C"),
        ("replicate", "D", "reader D"),
    ]
    for *_, pdrd_us, lmpt_us in found:
        assert 0 < pdrd_us < 1_000_000
        assert 0 <= lmpt_us < 1_000_000
    [(subscribers, pdrd_ms)] = rows_of(disruption(*tables(replaced)), "subscribers pdrd_ms")
    assert (subscribers, pdrd_ms > 0) == (2, True)


def test_a_replication_is_told_phase_by_phase(replaced: Traces) -> None:
    told = rows_of(replaced.reconfiguration.orderBy("at_us"), "phase broker detail")
    for neighbour in "ACD":
        assert ("granted", neighbour, "R") in told
        assert ("connection requested", neighbour, "B") in told
        assert ("state requested", "R", neighbour) in told
        assert ("state received", "R", neighbour) in told
    assert told[0][0] == "granted"
    assert told[-1] == ("finished", "R", "")
    assert len(told) == 13
