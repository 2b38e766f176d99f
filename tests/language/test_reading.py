"""Filters that are read once, and mistakes that are found once."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from braid.errors import FilterSyntaxError
from braid.language import Filter
from braid.language import filters as filters_module
from braid.language.reading import LONG_TEXT, prepare, read_filter

if TYPE_CHECKING:
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
