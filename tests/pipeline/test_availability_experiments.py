"""Is what readers felt of an operation computed as it should be, and does a real line of brokers show it?"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from braid.pipeline.experiments.availability.incremental import (
    EXPERIMENT,
    felt,
    ordering_degree,
    rewire_point,
    slope,
)
from braid.pipeline.experiments.availability.real_path import Operation, Stream
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
    found = felt(streams, {"B1": sent}, [Operation(("B1", "B2", "B3"), 10.0, 10.52, 0.25)])
    assert found["pause_ms"] == pytest.approx(520, abs=11)
    assert found["pdrd_ms"] == pytest.approx(520, abs=1)
    assert found["lmpt_ms"] == pytest.approx(0, abs=11)
    assert found["operation_time_ms"] == pytest.approx(520)
    assert (found["ordering_degree"], found["lost"], found["doubled"]) == (1.0, 0.0, 0.0)
    assert found["broker_cpu_ms"] == 250


def test_losses_repeats_and_wrong_order_are_seen() -> None:
    """Planted: one number is missing, one comes twice, two have changed places."""
    sent = [number / 100 for number in range(300)]
    numbers = [*range(100), 101, 100, *range(102, 200), 199, *range(201, 300)]
    stream = Stream("B1", "B2", numbers, [sent[number] for number in numbers])
    found = felt([stream], {"B1": sent}, [Operation(("B1", "B2", "B3"), 1.0, 1.1, 0.0)])
    assert (found["lost"], found["doubled"]) == (1.0, 1.0)
    assert found["ordering_degree"] < 1.0


@pytest.mark.parametrize("scale", ["quick", "paper"])
def test_points_have_the_labels_of_the_figure(scale: str, tmp_path: Path) -> None:
    points = EXPERIMENT.points(Plan(scale, 1, tmp_path))  # type: ignore[arg-type]
    assert {point.settings["workload"] for point in points} == {"distinct", "paper", "skewed"}
    lengths = {point.settings["path_length"] for point in points if point.settings["workload"] == "distinct"}
    assert {3, 5, 7} <= lengths


@pytest.mark.net
@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_real_line_is_rewired_with_nothing_lost(tmp_path: Path) -> None:
    settings = {"workload": "distinct", "path_length": 4, "subscriptions": 30}
    found = rewire_point(RunTask(settings, 1, tmp_path, tmp_path))
    assert set(found) == {"direct", "shift", "precopy"}
    for values in found.values():
        assert (values["lost"], values["doubled"], values["ordering_degree"]) == (0.0, 0.0, 1.0)
        assert values["entries_moved"] >= 0.9 * 30
        assert values["operation_time_ms"] > 0
