"""Does the judge of the live run of a network that organises itself see what went wrong?"""

from __future__ import annotations

from tests.reliability.organising import Reading, judge


def reading(numbers: list[int]) -> Reading:
    return Reading(0, "B00", first=2, end=6, numbers=numbers)


def test_what_is_owed_and_came_in_order_is_right() -> None:
    # What was published before the answer may come or not.
    for numbers in ([2, 3, 4, 5], [1, 2, 3, 4, 5], [0, 1, 2, 3, 4, 5]):
        assert judge([reading(numbers)]) == {"lost": 0, "doubled": 0, "reordered": 0}


def test_losses_repetitions_and_overtaking_are_told_apart() -> None:
    assert judge([reading([2, 4, 5])]) == {"lost": 1, "doubled": 0, "reordered": 0}
    assert judge([reading([2, 3, 3, 4, 5])]) == {"lost": 0, "doubled": 1, "reordered": 0}
    assert judge([reading([2, 4, 3, 5])]) == {"lost": 0, "doubled": 0, "reordered": 1}
    assert judge([reading([]), reading([2, 3])]) == {"lost": 6, "doubled": 0, "reordered": 0}
