"""Does the normal form say the same as the filter, and as little as possible?"""

from __future__ import annotations

import copy
import pickle
import random
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given

from braid.errors import FilterSyntaxError
from braid.language import Filter
from braid.language.evaluate import evaluate
from braid.language.normal_form import TERMS_MAX, Term
from braid.language.parser import parse
from braid.language.text import condition_text
from tests.language.strategies import Maker, makers

if TYPE_CHECKING:
    from collections.abc import Mapping


def satisfied(term: Term, attributes: Mapping[str, Any]) -> bool:
    return all(values.accepts(attributes.get(name)) for name, values in term.box.items()) and all(
        evaluate(condition, attributes) is True for condition in term.residual
    )


def check(maker: Maker, publications: int) -> None:
    """Everything that must hold for one random filter."""
    text = maker.filter()
    each = Filter(text)
    canonical = Filter(str(each))
    assert str(canonical) == str(each), f"{text}: not a fixed point"
    assert canonical == each, text
    assert hash(canonical) == hash(each)
    written = condition_text(each.condition)
    reread = parse(written)
    assert condition_text(reread) == written, text
    for _ in range(publications):
        attributes = maker.publication()
        matches = evaluate(each.condition, attributes) is True
        assert each.matches(attributes) is matches
        assert any(satisfied(term, attributes) for term in each.terms) is matches, (text, attributes)
        assert canonical.matches(attributes) is matches, (text, str(each), attributes)
        assert each.satisfiable or not matches
        assert evaluate(reread, attributes) is evaluate(each.condition, attributes), (text, attributes)
        assert (~each).matches(attributes) is (evaluate(each.condition, attributes) is False), text


@given(makers())
def test_terms_and_canonical_text_mean_what_the_filter_means(maker: Maker) -> None:
    check(maker, 3)


BOUNDS = [
    "a > 1",
    "a >= 1.5",
    "a <> 3",
    "a BETWEEN 2 AND 7",
    "a BETWEEN 7 AND 2",
    "a BETWEEN 0.5 AND 9007199254740993",
    "a BETWEEN 'k' AND 'm'",
    "a BETWEEN 1 AND NULL",
    "a NOT BETWEEN 3 AND 4",
    "a = 'x'",
    "a = TRUE",
    "a < NULL",
    "b < 5",
    "5 > b",
    "b IN (1, 2)",
    "a < b",
    "a + 1 < 7",
    "1 < 2",
]


@pytest.mark.parametrize("first", BOUNDS)
@pytest.mark.parametrize("second", BOUNDS)
def test_a_plain_conjunction_has_the_form_that_the_general_way_gives_it(first: str, second: str) -> None:
    plain = Filter(f"{first} AND {second}")
    # Two negations cancel out, but a filter with any is not taken for a plain conjunction.
    general = Filter(f"NOT NOT ({first} AND {second})")
    assert plain.terms == general.terms
    assert [list(term.box) for term in plain.terms] == [list(term.box) for term in general.terms]


@pytest.mark.parametrize("typed", [False, True])
@pytest.mark.parametrize("depth", [2, 4])
def test_the_same_for_a_thousand_seeded_filters(typed: bool, depth: int) -> None:
    maker = Maker(random.Random(f"normal form/{typed}/{depth}"), typed=typed, depth=depth)
    for _ in range(1_000):
        check(maker, 6)


@given(makers(typed=True))
def test_combining_filters_combines_their_meaning(maker: Maker) -> None:
    first, second = Filter(maker.filter()), Filter(maker.filter())
    both, either = first & second, first | second
    for _ in range(4):
        attributes = maker.publication()
        assert both.matches(attributes) is (first.matches(attributes) and second.matches(attributes))
        assert either.matches(attributes) is (first.matches(attributes) or second.matches(attributes))
    assert Filter(both.text) == both
    assert both == second & first
    assert either == second | first


@given(makers())
def test_filters_survive_pickle_and_copies(maker: Maker) -> None:
    each = Filter(maker.filter())
    for twin in (pickle.loads(pickle.dumps(each)), copy.copy(each), copy.deepcopy(each)):
        assert twin == each
        assert twin.text == each.text
        assert hash(twin) == hash(each)


CANONICAL = [
    ("price>10 and symbol='ACME'", "price > 10 AND symbol = 'ACME'"),
    ("NOT (price <= 10 OR symbol <> 'ACME')", "price > 10 AND symbol = 'ACME'"),
    ("10 < price", "price > 10"),
    ("price > 2 * 5", "price > 10"),
    ("a >= 1 AND a <= 5", "a BETWEEN 1 AND 5"),
    ("a BETWEEN 1 AND 9 AND a BETWEEN 5 AND 20", "a BETWEEN 5 AND 9"),
    ("a = 3 OR a = 1 OR a = 2", "a IN (1, 2, 3)"),
    ("a = 1 AND b = 1 OR a = 2 AND b = 1", "a IN (1, 2) AND b = 1"),
    ("a < 3 OR a >= 3", "a < 0 OR a >= 0"),
    ("a <> 3", "a <> 3"),
    ("a <> 3 AND a <> 4", "a NOT IN (3, 4)"),
    ("a IS NULL OR a IS NOT NULL", "TRUE"),
    ("a IS NOT NULL AND a < 5", "a < 5"),
    ("a = a", "a IS NOT NULL"),
    ("s >= 'a' AND s < 'b'", "s LIKE 'a%'"),
    ("s LIKE 'abc'", "s = 'abc'"),
    ("s LIKE '%'", "s >= ''"),
    ("s LIKE 'a!_%' ESCAPE '!'", "s LIKE 'a!_%' ESCAPE '!'"),
    (r"s LIKE 'a\_%'", "s LIKE 'a!_%' ESCAPE '!'"),
    ("s LIKE '%%b__%_%' ESCAPE '#'", "s LIKE '%b___%'"),
    (r"s LIKE '%\\b' ESCAPE '!'", r"s LIKE '%\\b' ESCAPE '!'"),
    ("s LIKE '%a' AND s LIKE '%a'", "s LIKE '%a'"),
    ("urgent", "urgent = TRUE"),
    ("NOT urgent", "urgent = FALSE"),
    ("b < a", "a > b"),
    ("a <= b AND b <= a", "a = b"),
    ("x > 1.7976931348623157e308", "x > 1.7976931348623157e+308"),
    ("x < -1.7976931348623157e308", "x < -1.7976931348623157e+308"),
    ("x >= -1.7976931348623157e308", "x >= -1.7976931348623157e+308"),
    ("x < 0", "x < 0"),
    ("x > -5e-324", "x >= 0"),
    ("x = -0.0", "x = 0"),
    ("i = 9007199254740993", "i = 9007199254740993"),
    ("`and` = 1 AND `a-b` = 2", "`a-b` = 2 AND `and` = 1"),
    ("s = 'it\\'s'", "s = 'it''s'"),
    ("a.b = 1 OR c = 'x' OR a.b = 1", "a.b = 1 OR c = 'x'"),
    # Covered by another box, and so dropped.
    ("a < 5 OR a < 3 AND b = 1", "a < 5"),
    ("a < 3 AND b = 1 OR a < 5 AND b IN (1, 2)", "a < 5 AND b IN (1, 2)"),
    ("a < b OR a < b AND c = 1", "a < b"),
    ("TRUE OR a = 1", "TRUE"),
    ("s LIKE '%x%' OR s LIKE 'a%x%' AND s LIKE '%x%'", "s LIKE '%x%'"),
]


@pytest.mark.parametrize(("text", "canonical"), CANONICAL)
def test_the_canonical_text_is_plain(text: str, canonical: str) -> None:
    assert str(Filter(text)) == canonical


@pytest.mark.parametrize(
    "text",
    [
        "FALSE", "NULL", "NOT TRUE", "a = NULL", "a <> NULL", "a < a", "a <> a",
        "a > 5 AND a < 5", "a = 1 AND a = 2", "a BETWEEN 5 AND 1", "a = 1 AND a = '1'", "a IS NULL AND a = 1",
        "s LIKE 'a%' AND s LIKE 'b%'", "s LIKE 'a%' AND s < 'a'", "a NOT IN (1, NULL)", "a NOT IN (1, 'x')",
        "a < b AND b < a", "a = b AND a <> b", "a < b AND a IS NULL", "a + 1 = 'x'", "a * 2 > NULL",
        "(a = 1 OR b = 1) AND a = 2 AND b = 2", "urgent AND NOT urgent", "urgent AND urgent > 5",
        "x < 0 AND x > -5e-324", "i > 9223372036854775806 AND i < 9e18",
        "1 = 2", "'a' LIKE 'b'", "-a LIKE 'b'", "a > 1 / 0",
    ],
)  # fmt: skip
def test_contradictions_are_recognised(text: str) -> None:
    each = Filter(text)
    assert not each.satisfiable, each.terms
    assert str(each) == "FALSE"
    assert each == Filter("FALSE")


@pytest.mark.parametrize("text", ["TRUE", "NOT FALSE", "1 < 2", "a IS NULL OR NOT a IS NULL", "NULL OR TRUE"])
def test_what_always_holds_is_recognised(text: str) -> None:
    assert str(Filter(text)) == "TRUE"


def alternatives(count: int, width: int) -> str:
    parts = (" OR ".join(f"a{row}_{column} = {column}" for column in range(width)) for row in range(count))
    return " AND ".join(f"({part})" for part in parts)


def test_a_product_of_alternatives_stays_bounded() -> None:
    each = Filter(alternatives(20, 3))
    assert len(each.terms) == 1
    assert len(each.terms[0].residual) == 20
    assert Filter(str(each)) == each
    assert each.matches({f"a{row}_1": 1 for row in range(20)})
    assert not each.matches({f"a{row}_1": 1 for row in range(19)})
    assert len((~each).terms) == 20


def test_a_product_within_the_bound_is_multiplied_out() -> None:
    each = Filter(alternatives(10, 2))
    assert len(each.terms) == TERMS_MAX
    assert not any(term.residual for term in each.terms)


def test_what_is_kept_as_a_residual_still_bounds_the_box() -> None:
    each = Filter(alternatives(20, 3) + " AND symbol = 'X' AND (price > 5 OR price < 1 AND b = 2)")
    assert not each.terms[0].box["price"].accepts(3)
    assert each.terms[0].box["symbol"].accepts("X")
    contradiction = Filter(alternatives(20, 3) + " AND (price > 5 OR price < 1 AND b = 2) AND price = 3")
    assert not contradiction.satisfiable


def test_ten_thousand_alternatives_are_no_trouble() -> None:
    for text in (
        " OR ".join(f"a{number} = {number}" for number in range(10_000)),
        " OR ".join(f"a = {number} AND b = {number}" for number in range(10_000)),
    ):
        each = Filter(text)
        assert each.matches({"a9999": 9_999, "a": 77, "b": 77})
        assert not each.matches({"a9999": 9_998, "a": 77, "b": 78})
        assert len(each.terms) == 10_000
        assert each.covers(each)
        assert Filter(str(each)) == each


def deeper_and_deeper(each: Filter) -> None:
    for number in range(200):
        each = ~(each | Filter(f"a{number} = 1"))


def test_combinations_that_could_not_be_written_down_are_refused() -> None:
    each = Filter("a = 1")
    assert ~~each == each
    assert (~~each).text == each.text
    with pytest.raises(FilterSyntaxError, match="nesting of at most"):
        deeper_and_deeper(each)


def test_filters_cannot_be_changed() -> None:
    each = Filter("a = 1")
    with pytest.raises(AttributeError, match="make a new one"):
        each.text = "a = 2"
    assert each != "a = 1"
    assert repr(each) == "Filter('a = 1')"
    assert each.attributes == {"a"}
    assert not hasattr(each, "__dict__")
