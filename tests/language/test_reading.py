"""Filters that are read once, and mistakes that are found once."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from braid.errors import FilterSyntaxError
from braid.language import Filter
from braid.language import filters as filters_module
from braid.language.parser import TEXT_LENGTH_MAX
from braid.language.reading import LONG_TEXT, common_part, is_within, prepare, read_filter

if TYPE_CHECKING:
    from braid.language.covering import Steps
    from braid.language.expressions import Condition
    from braid.language.normal_form import Term

LONGEST = " OR ".join(f"(a = {number} AND b < {number})" for number in range(2_300))
LONGEST += " " * (65_536 - len(LONGEST))


def require_no_reading(monkeypatch: pytest.MonkeyPatch) -> None:
    """From here on no long filter is to be read, nor taken apart."""
    parse, normal_form = filters_module.parse, filters_module.normal_form

    def short_only(text: str) -> Condition:
        assert len(text) <= LONG_TEXT, "read again"
        return parse(text)

    def small_only(condition: Condition) -> tuple[Term, ...]:
        assert len(getattr(condition, "conditions", ())) < 100, "taken apart again"
        return normal_form(condition)

    monkeypatch.setattr(filters_module, "parse", short_only)
    monkeypatch.setattr(filters_module, "normal_form", small_only)


def require_no_comparing(monkeypatch: pytest.MonkeyPatch) -> None:
    """From here on no filters with many terms are to be compared."""
    covers = filters_module.covers

    def few_only(wider: tuple[Term, ...], narrower: tuple[Term, ...], steps: Steps | None) -> bool:
        assert len(wider) * len(narrower) < 100, "compared again"
        return covers(wider, narrower, steps)

    monkeypatch.setattr(filters_module, "covers", few_only)


GRANTED = "c > 3 AND b < 1000"


@pytest.mark.parametrize("granted", [GRANTED, "b < 100000", "c = 1 AND c = 2", f"{LONGEST} OR d = 1"])
def test_what_is_granted_of_a_long_filter_is_found_beforehand(
    granted: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    allowed = Filter(granted)
    _ = allowed.terms
    prepare(LONGEST, granted, narrow=True)
    require_no_reading(monkeypatch)
    require_no_comparing(monkeypatch)
    common = common_part(read_filter(LONGEST), allowed)
    if granted == GRANTED:
        assert common is not None
        assert common.text == f"({LONGEST}) AND ({GRANTED})"
        assert common.satisfiable
    elif granted == "c = 1 AND c = 2":
        assert common is allowed
    else:
        assert is_within(read_filter(LONGEST), allowed)
        assert common is read_filter(LONGEST)


def test_without_narrowing_only_whether_all_is_granted_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    allowed = Filter("c > 4 AND b < 1000")
    _ = allowed.terms
    prepare(LONGEST, allowed.text)
    require_no_reading(monkeypatch)
    require_no_comparing(monkeypatch)
    assert not is_within(read_filter(LONGEST), allowed)


def test_the_longest_filter_there_is_can_be_prepared(monkeypatch: pytest.MonkeyPatch) -> None:
    text = LONGEST + " " * (TEXT_LENGTH_MAX - len(LONGEST))
    prepare(text)
    require_no_reading(monkeypatch)
    assert len(read_filter(text).terms) == 2_300


def test_what_was_prepared_is_there(monkeypatch: pytest.MonkeyPatch) -> None:
    """Up to the longest filter that brokers take."""
    assert len(LONGEST) == 65_536 > LONG_TEXT
    prepare(LONGEST)
    require_no_reading(monkeypatch)
    assert len(read_filter(LONGEST).terms) == 2_300


def test_a_mistake_that_was_found_is_told_again(monkeypatch: pytest.MonkeyPatch) -> None:
    text = LONGEST.rstrip() + " OR"
    prepare(text)
    with pytest.raises(FilterSyntaxError) as expected:
        Filter(text)
    require_no_reading(monkeypatch)
    for _ in range(2):
        with pytest.raises(FilterSyntaxError) as found:
            read_filter(text)
        assert str(found.value) == str(expected.value)


def test_it_is_the_filter_of_the_text() -> None:
    assert read_filter("price > 10") is read_filter("price > 10")
    assert read_filter("price > 10") == Filter("price > 10")
