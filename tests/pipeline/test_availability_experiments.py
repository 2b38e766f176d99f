"""Is what readers felt of an operation computed as it should be, and does a real line of brokers show it?"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from braid.pipeline.experiments.availability.gaps import added_pause, ordering_degree, slope
from braid.pipeline.experiments.availability.incremental import EXPERIMENT, felt, rewire_point
from braid.pipeline.experiments.availability.real_brokers import Stream
from braid.pipeline.experiments.availability.real_path import Operation
from braid.pipeline.experiments.registry import Plan
from braid.pipeline.experiments.sweep import RunTask

if TYPE_CHECKING:
    from pathlib import Path


def test_order_is_counted_as_the_paper_does() -> None:
    assert ordering_degree([]) == 1.0
    assert ordering_degree([4, 7, 9]) == 1.0
    # Two of four are one place out: 4 + 4 + 3 + 3 of 16.
    assert ordering_degree([1, 3, 2, 4]) == pytest.approx(14 / 16)


def test_the_slope_of_a_line() -> None:
    assert slope([(3, 10), (5, 14), (7, 18)]) == pytest.approx(2.0)
    assert slope([(3, 10)]) == 0.0


def test_a_pause_is_what_the_operation_adds() -> None:
    """A number each 10 ms; from 10.0 s on nothing comes for half a second, then all of it, 20 ms later."""
    sent = [number / 100 for number in range(2_000)]
    read = [at if not 10.0 <= at < 10.5 else 10.52 for at in sent]
    streams = [
        Stream("B1", "B2", list(range(2_000)), read),
        Stream("B1", "B1", list(range(2_000)), sent),  # crosses no link, and does not count
    ]
    found = felt(streams, {"B1": sent}, [[Operation(("B1", "B2", "B3"), 10.0, 10.52, 0.25)]], (0.0, 9.0))
    assert found["pause_ms"] == pytest.approx(520, abs=11)
    assert found["pdrd_ms"] == pytest.approx(520, abs=1)
    assert found["lmpt_ms"] == pytest.approx(0, abs=11)
    assert found["operation_time_ms"] == pytest.approx(520)
    assert (found["ordering_degree"], found["lost"], found["doubled"]) == (1.0, 0.0, 0.0)
    assert found["broker_cpu_ms"] == 250


def held(sent: list[float], *holes: tuple[float, float]) -> list[float]:
    """When numbers are read of which none comes within some holes."""
    return [next((end for start, end in holes if start <= at < end), at) for at in sent]


def test_each_of_two_operations_in_a_row_has_its_own_pause() -> None:
    """Two SHIFTs with 0.41 s without anything each, half a second of rest between them."""
    sent = [number / 100 for number in range(2_000)]
    stream = Stream("B1", "B2", list(range(2_000)), held(sent, (10.05, 10.46), (11.05, 11.46)))
    plan = [Operation(("B1", "B3", "B2"), begin, begin + 0.5, 0.0) for begin in (10.0, 11.0)]
    assert [felt([stream], {"B1": sent}, [[each]], (1.0, 9.0))["pause_ms"] for each in plan] == [
        pytest.approx(410, abs=11)
    ] * 2
    found = felt([stream], {"B1": sent}, [plan], (1.0, 9.0))
    assert found["pause_ms"] == pytest.approx(410, abs=11)
    assert found["total_time_ms"] == pytest.approx(1_500)


def test_a_long_operation_is_not_spared_the_pause_of_the_one_before_it() -> None:
    """A rewiring with half a second, then tables that travel ahead for 4 s and stop nothing but 20 ms."""
    sent = [number / 100 for number in range(3_000)]
    stream = Stream("B1", "B2", list(range(3_000)), held(sent, (12.0, 12.5), (16.9, 16.93)))
    found = felt([stream], {"B1": sent}, [[Operation(("B1", "B3", "B2"), 13.0, 17.0, 0.0)]], (1.0, 11.0))
    assert found["pause_ms"] == pytest.approx(20, abs=11)


def test_the_median_of_pauses_counts_and_the_plans_of_a_round_are_timed_alone() -> None:
    sent = [number / 100 for number in range(3_000)]
    holes = ((10.0, 10.1), (15.0, 15.1), (20.0, 20.9))
    stream = Stream("B1", "B2", list(range(3_000)), held(sent, *holes))
    plans = [[Operation(("B1", "B3", "B2"), begin, begin + 1.0, 0.0)] for begin, _ in holes]
    found = felt([stream], {"B1": sent}, plans, (1.0, 9.0))
    assert found["pause_ms"] == pytest.approx(100, abs=11)
    assert found["pause_ms_max"] == pytest.approx(900, abs=11)
    assert found["total_time_ms"] == pytest.approx(1_000)
    assert found["operations"] == 3


def test_what_pauses_in_any_case_is_taken_off() -> None:
    """Nothing comes for 0.2 s each second, operation or not."""
    sent = [number / 100 for number in range(2_000)]
    holes = [(second, second + 0.2) for second in range(1, 20)]
    stream = Stream("B1", "B2", list(range(2_000)), held(sent, *holes))
    assert added_pause([stream], 10.9, 12.1, (2.5, 9.5)) == pytest.approx(0, abs=0.011)


def test_a_pause_that_outlasts_the_look_at_it_counts_whole() -> None:
    sent = [number / 100 for number in range(2_000)]
    stream = Stream("B1", "B2", list(range(2_000)), held(sent, (10.0, 13.0)))
    assert added_pause([stream], 9.9, 10.5, (1.0, 9.0)) == pytest.approx(3.0, abs=0.011)


def test_losses_repeats_and_wrong_order_are_seen() -> None:
    """Planted: one number is missing, one comes twice, two have changed places."""
    sent = [number / 100 for number in range(300)]
    numbers = [*range(100), 101, 100, *range(102, 200), 199, *range(201, 300)]
    stream = Stream("B1", "B2", numbers, [sent[number] for number in numbers])
    found = felt([stream], {"B1": sent}, [[Operation(("B1", "B2", "B3"), 1.0, 1.1, 0.0)]], (0.0, 0.9))
    assert (found["lost"], found["doubled"]) == (1.0, 1.0)
    assert found["ordering_degree"] < 1.0


@pytest.mark.parametrize("scale", ["quick", "paper"])
def test_points_have_the_labels_of_the_figure(scale: str, tmp_path: Path) -> None:
    points = EXPERIMENT.points(Plan(scale, 1, tmp_path))  # type: ignore[arg-type]
    assert {point.settings["workload"] for point in points} == {"distinct", "paper", "skewed"}
    wanted = (20, 2_000) if scale == "paper" else (3, 500)
    assert {(point.settings["rounds"], point.settings["rate"]) for point in points} == {wanted}
    lengths = {point.settings["path_length"] for point in points if point.settings["workload"] == "distinct"}
    assert {3, 5, 7} <= lengths


@pytest.mark.net
@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_real_line_is_rewired_with_nothing_lost(tmp_path: Path) -> None:
    settings = {"workload": "distinct", "path_length": 4, "subscriptions": 30, "rounds": 1, "rate": 500}
    found = rewire_point(RunTask(settings, 1, tmp_path, tmp_path))
    assert set(found) == {"direct", "shift", "precopy"}
    for values in found.values():
        assert (values["lost"], values["doubled"], values["ordering_degree"]) == (0.0, 0.0, 1.0)
        assert values["entries_moved"] >= 0.9 * 30
        assert values["operation_time_ms"] > 0
