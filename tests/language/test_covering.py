"""Are `covers` and `intersects` right, and for boxes complete?"""

from __future__ import annotations

import random
from typing import Any

import pytest
from hypothesis import given

from braid.language import Filter
from braid.language.covering import remainder
from braid.language.normal_form import Term, terms_intersection
from tests.language.strategies import Maker, makers


def related(maker: Maker) -> tuple[Filter, Filter]:
    """Two filters that have something to do with each other, which unrelated ones rarely have."""
    first, second = maker.filter(), maker.filter()
    style = maker.random.randrange(6)
    if style == 0:
        second = f"({first}) AND ({second})"
    elif style == 1:
        first = f"({first}) OR ({second})"
    elif style == 2:
        third = maker.filter()
        first, second = f"({first}) OR ({third})", f"({first}) AND ({second})"
    elif style == 3:
        first, second = f"({first}) AND ({second})", f"NOT ({first})"
    return Filter(first), Filter(second)


def is_pure(each: Filter) -> bool:
    return not any(term.residual for term in each.terms)


def example(box: Any) -> dict[str, Any]:
    return {name: values.example() for name, values in box.items()}


def check_sound(maker: Maker, first: Filter, second: Filter) -> None:
    covers, intersects = first.covers(second), first.intersects(second)
    assert intersects is second.intersects(first)
    assert first.covers(first)
    assert not covers or intersects or not second.satisfiable
    for _ in range(6):
        attributes = maker.publication()
        ours, theirs = first.matches(attributes), second.matches(attributes)
        assert not (covers and theirs) or ours, (first.text, second.text, attributes)
        assert not (ours and theirs) or intersects, (first.text, second.text, attributes)


def check_complete(first: Filter, second: Filter) -> None:
    """For boxes, every no to `covers` and every yes to `intersects` has a witness."""
    if not first.covers(second):
        pieces = [box for term in second.terms for box in remainder(term, first.terms) or ()]
        assert pieces, (first.text, second.text)
        for box in pieces:
            witness = example(box)
            assert second.matches(witness), (first.text, second.text, witness)
            assert not first.matches(witness), (first.text, second.text, witness)
    common = [terms_intersection(left, right) for left in first.terms for right in second.terms]
    assert first.intersects(second) is any(common)
    for term in filter(None, common):
        witness = example(term.box)
        assert first.matches(witness), (first.text, second.text, witness)
        assert second.matches(witness), (first.text, second.text, witness)


@given(makers())
def test_covers_and_intersects_are_sound(maker: Maker) -> None:
    check_sound(maker, *related(maker))


@given(makers(arithmetic=0))
def test_boxes_have_witnesses(maker: Maker) -> None:
    first, second = related(maker)
    if is_pure(first) and is_pure(second):
        check_complete(first, second)


@pytest.mark.parametrize("typed", [False, True])
def test_the_same_for_seeded_pairs(typed: bool) -> None:
    maker = Maker(random.Random(f"covering/{typed}"), typed=typed, arithmetic=0, depth=2)
    answers = {"pure": 0, "covers": 0, "apart": 0}
    for _ in range(1_200):
        first, second = related(maker)
        check_sound(maker, first, second)
        answers["covers"] += first.covers(second)
        answers["apart"] += not first.intersects(second)
        if is_pure(first) and is_pure(second):
            answers["pure"] += 1
            check_complete(first, second)
    assert min(answers.values()) > 100, answers


COVERS = [
    ("price > 10", "price > 20", True),
    ("price > 10", "price >= 10", False),
    ("price > 10", "price > 10 AND symbol = 'A'", True),
    ("price > 10 AND symbol = 'A'", "price > 10", False),
    ("a < 5 OR a >= 5", "a BETWEEN 1 AND 9", True),
    ("a < 5 AND b < 5 OR a >= 5 OR b >= 5", "a = 1 AND b IN (1, 9)", True),
    ("a < 5 AND b < 5 OR a >= 5 OR b >= 5", "a = 1", False),  # b may be absent
    ("s LIKE 'a%'", "s LIKE 'ab%'", True),
    ("s LIKE 'a%'", "s LIKE 'ab%c'", True),
    ("s LIKE '%c'", "s LIKE '%bc'", False),  # not seen: both are residuals
    ("a < b", "a < b AND c = 1", True),
    ("a <= b", "a < b", False),  # not seen either
    ("a IS NOT NULL", "a LIKE '%x'", True),
    ("a IS NULL", "a = 1", False),
    ("TRUE", "a = 1", True),
    ("a = 1", "FALSE", True),
    ("x < 0", "x <= -5e-324", True),
    ("x <= -5e-324", "x < 0", True),
    ("i <> 9007199254740993", "i = 9007199254740992", False),  # the double 2^53 satisfies only the second
    ("a IN (1, 2, 3)", "a BETWEEN 1 AND 3", False),
]


@pytest.mark.parametrize(("wider", "narrower", "answer"), COVERS)
def test_covers(wider: str, narrower: str, answer: bool) -> None:
    assert Filter(wider).covers(Filter(narrower)) is answer


INTERSECTS = [
    ("a > 5", "a < 5", False),
    ("a > 5", "a < 6", True),
    ("a > 5", "b < 5", True),
    ("a = 1", "a = '1'", False),
    ("s LIKE 'a%'", "s LIKE 'b%'", False),
    ("s LIKE 'a%z'", "s LIKE 'ab%'", True),
    ("a < b", "a > b", False),
    ("a IS NULL", "a > 5", False),
    ("a = 1 OR b = 1", "a = 2 AND b = 2", False),
]


@pytest.mark.parametrize(("first", "second", "answer"), INTERSECTS)
def test_intersects(first: str, second: str, answer: bool) -> None:
    assert Filter(first).intersects(Filter(second)) is answer


def test_questions_that_are_too_large_get_the_safe_answer() -> None:
    first = Filter(" OR ".join(f"a = {number} AND b = {number}" for number in range(2_000)))
    second = Filter(" OR ".join(f"a = {number} AND b = {number + 1}" for number in range(2_000)))
    assert first.covers(first)
    assert not first.covers(second)
    assert first.intersects(second)
    assert remainder(Term({}), [Term(term.box) for term in first.terms]) is None
