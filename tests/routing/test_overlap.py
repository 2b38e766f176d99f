"""Are exactly the intersecting filters found?"""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from braid.language import Filter
from braid.routing import OverlapIndex
from tests.language.strategies import filter_texts
from tests.routing.helpers import ALL_FILTERS, all_filters


@given(texts=st.lists(filter_texts(), max_size=8), asked=filter_texts())
def test_any_filters_are_found_as_by_comparing_each(texts: list[str], asked: str) -> None:
    _check([Filter(text) for text in texts], Filter(asked))


@given(filters=st.lists(all_filters, max_size=20), asked=all_filters)
def test_small_filters_are_found_as_by_comparing_each(filters: list[Filter], asked: Filter) -> None:
    _check(filters, asked)


def test_every_pair_of_small_filters() -> None:
    for asked in ALL_FILTERS:
        _check(ALL_FILTERS, asked)


def _check(filters: list[Filter], asked: Filter) -> None:
    index = OverlapIndex()
    for number, filter in enumerate(filters):
        index.add(str(number), filter)
    expected = {str(number) for number, filter in enumerate(filters) if filter.intersects(asked)}
    found = list(index.find(asked))
    assert len(found) == len(set(found))
    assert set(found) == expected
    for number in range(0, len(filters), 2):
        index.remove(str(number))
    assert set(index.find(asked)) == {key for key in expected if int(key) % 2}
    assert len(index) == len(filters) // 2
