"""Which faults excuse which losses?"""

from __future__ import annotations

import pytest

from braid.sim.reach import DISTURBANCE_US, Reach

SECOND_US = 1_000_000


@pytest.fixture
def reach() -> Reach:
    """A tree: A - B - C, B - D - E; and a shortcut D - F - E."""
    reach = Reach()
    for left, right in ("AB", "BC", "BD", "DE", "DF", "FE"):
        reach.linked(left, right)
    return reach


def excused(reach: Reach, at_us: int, source: str, target: str, *, acknowledged: bool = False) -> bool:
    return reach.excuses(at_us, ("writer", source, target, "reader"), acknowledged=acknowledged)


@pytest.mark.parametrize(
    ("source", "target", "way"),
    [
        ("A", "C", "ABC"),
        ("C", "A", "ABC"),
        ("A", "D", "ABD"),
        ("A", "E", "ABDEF"),
        ("D", "D", "D"),
        ("D", "E", "DEF"),
    ],
)
def test_on_a_way_is_whoever_a_path_without_repetition_can_lead_through(
    reach: Reach, source: str, target: str, way: str
) -> None:
    assert reach.way(source, target) == set(way)


def test_a_fault_reaches_what_passes_it_and_nothing_else(reach: Reach) -> None:
    reach.struck(SECOND_US, ("D",), lasts=False)
    assert excused(reach, SECOND_US, "A", "E")
    assert not excused(reach, SECOND_US, "A", "C")


def test_a_fault_between_two_reaches_what_passes_both(reach: Reach) -> None:
    reach.struck(SECOND_US, ("B", "A"), lasts=False)
    assert excused(reach, SECOND_US, "A", "E")
    assert not excused(reach, SECOND_US, "C", "E")


def test_the_connections_of_publisher_and_reader_are_on_the_way(reach: Reach) -> None:
    reach.struck(SECOND_US, ("reader", "C"), lasts=False)
    assert excused(reach, SECOND_US, "A", "C")
    reach.struck(SECOND_US, ("somebody", "A"), lasts=False)
    assert not excused(reach, SECOND_US, "A", "A")


def test_a_fault_reaches_as_far_as_its_time(reach: Reach) -> None:
    begin_us, end_us = 100 * SECOND_US, 300 * SECOND_US
    reach.struck(begin_us, ("B",), lasts=True)
    reach.struck(end_us, ("B",), lasts=False)
    for at_us in (begin_us - DISTURBANCE_US, 200 * SECOND_US, end_us + DISTURBANCE_US):
        assert excused(reach, at_us, "A", "C")
    for at_us in (begin_us - DISTURBANCE_US - 1, end_us + DISTURBANCE_US + 1):
        assert not excused(reach, at_us, "A", "C")


def test_what_is_acknowledged_is_excused_by_a_lost_store_only(reach: Reach) -> None:
    reach.struck(SECOND_US, ("B",), lasts=True)
    assert not excused(reach, SECOND_US, "A", "C", acknowledged=True)
    reach.struck(SECOND_US, ("B",), lasts=False, amnesia=True)
    assert excused(reach, SECOND_US, "A", "C", acknowledged=True)
    assert not excused(reach, SECOND_US, "D", "E", acknowledged=True)
