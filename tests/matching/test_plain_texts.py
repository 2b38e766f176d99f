"""Is a text that is read in bulk read as the parser reads it?"""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from braid.language import Filter
from braid.matching.axis import plain_numbers
from braid.matching.plain_texts import read_plain_texts

NUMBERS = st.one_of(
    st.integers(-(10**15) + 1, 10**15 - 1).map(str),
    st.integers(-20, 20).map(str),
    st.decimals(-1000, 1000, places=3).map(str),
    st.sampled_from(["-0", "-0.0", "007", "0.1", "999999999999999.999999999999999"]),
)
NAMES = st.sampled_from(["a", "b", "price.low", "_x", "Android", "true_value"])


@st.composite
def conditions(draw: st.DrawFn) -> str:
    name, low, high = draw(NAMES), draw(NUMBERS), draw(NUMBERS)
    if draw(st.booleans()):
        return f"{name} BETWEEN {low} AND {high}"
    space = draw(st.sampled_from(["", " "]))
    return f"{name}{space}{draw(st.sampled_from(['=', '<', '<=', '>', '>=']))}{space}{low}"


TEXTS = st.lists(conditions(), min_size=1, max_size=5).map(" AND ".join)


@given(st.lists(TEXTS, min_size=1, max_size=5))
def test_the_bounds_are_those_of_the_normal_form(texts: list[str]) -> None:
    boxes = read_plain_texts(texts)
    assert boxes.plain.all()
    found: list[dict[str, tuple[int, int]]] = [{} for _ in texts]
    columns = (boxes.texts, boxes.attributes, boxes.lows, boxes.highs)
    for place, attribute, low, high in zip(*(column.tolist() for column in columns), strict=True):
        found[place][boxes.names[attribute]] = low, high
    for text, bounds in zip(texts, found, strict=True):
        terms = Filter(text).terms
        assert len(terms) <= 1
        assert bounds == {name: plain_numbers(values) for term in terms for name, values in term.box.items()}


@pytest.mark.parametrize(
    "text",
    [
        None,
        "",
        "a > 'x'",
        "symbol = 'ACME' AND price > 10",
        "10 < a",
        "a > 1 OR b > 2",
        "a <> 3",
        "a > 9007199254740993",
        "a > 1e3",
        "a > .5",
        "and > 5",
        "true = 1",
        "a > 10x",
        "a > 1 AND",
        "a > 1 AND 5",
        "a BETWEEN 1 AND 2 AND 3",
        "a > 1  ",
        "a > 1\n",
        "a > --1",
        "a > \u0661",
        "ä > 1",
    ],
)
def test_anything_else_is_left_to_the_parser(text: str | None) -> None:
    boxes = read_plain_texts([text, "a > 1"])
    assert boxes.plain.tolist() == [False, True]
    assert boxes.texts.tolist() == [1]


def test_chosen_texts_are_numbered_anew() -> None:
    boxes = read_plain_texts(["a > 1", "no filter", "b > 2", "a > 3 AND a < 3", "c = 4"])
    some = boxes.of_texts(boxes.plain)
    assert some.plain.all()
    assert some.texts.tolist() == [0, 1, 3]
    assert [some.names[place] for place in some.attributes] == ["a", "b", "c"]
