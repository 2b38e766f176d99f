"""Does the parser read what it should, and say precisely why it cannot read the rest?"""

from __future__ import annotations

import pickle
import random
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from braid.errors import FilterError, FilterSyntaxError
from braid.language import Filter, lexer
from braid.language.parser import DEPTH_MAX, TEXT_LENGTH_MAX
from tests.language.strategies import Maker, makers

if TYPE_CHECKING:
    from collections.abc import Callable

# Text, column of the mistake, what was found there, part of what was expected, part of the hint.
MISTAKES = [
    ("", 1, "end of filter", "a value or a name", ""),
    ("   ", 4, "end of filter", "a value or a name", ""),
    ("price", None, "", "", ""),
    ("price >", 8, "end of filter", "a value or a name", ""),
    ("price > > 3", 9, "'>'", "a value or a name", ""),
    ("price == 3", 8, "'='", "a value or a name", "single ="),
    ("price => 3", 8, "'>'", "a value or a name", ""),
    ("price = 3 =", 11, "'='", "AND, OR or the end", "cannot be chained"),
    ("1 < price < 3", 11, "'<'", "AND, OR or the end", "cannot be chained"),
    ("price = 3 4", 11, "'4'", "an operator, AND, OR or the end", ""),
    ("price = 3 AND", 14, "end of filter", "a value or a name", ""),
    ("AND price = 3", 1, "'AND'", "a value or a name", "in backquotes: `AND`"),
    ("price = 3 OR OR a = 1", 14, "'OR'", "a value or a name", "in backquotes"),
    ("NOT", 4, "end of filter", "a value or a name", ""),
    ("price + 1", 10, "end of filter", "a comparison such as", ""),
    ("(price + 1) AND a = 1", 13, "'AND'", "a comparison such as", ""),
    ("5", 2, "end of filter", "a comparison such as", ""),
    ("'text'", 7, "end of filter", "a comparison such as", ""),
    ("price BETWEEN 1", 16, "end of filter", "AND and the upper end", ""),
    ("price BETWEEN 1 OR 2", 17, "'OR'", "AND and the upper end", ""),
    ("price BETWEEN AND 2", 15, "'AND'", "a value or a name", ""),
    ("price IN 1, 2", 10, "'1'", "an opening parenthesis", ""),
    ("price IN ()", 11, "')'", "a value or a name", ""),
    ("price IN (1, )", 14, "')'", "a value or a name", ""),
    ("price IN (1 2)", 13, "'2'", "a comma or a closing parenthesis", ""),
    ("price IN (1, 2", 15, "end of filter", "a comma or a closing parenthesis", ""),
    ("price NOT 3", 11, "'3'", "BETWEEN, IN or LIKE", ""),
    ("price IS 3", 10, "'3'", "NULL or NOT NULL", ""),
    ("price IS NOT 3", 14, "'3'", "NULL", ""),
    ("s LIKE", 7, "end of filter", "a pattern in quotes", ""),
    ("s LIKE t", 8, "'t'", "a pattern in quotes", ""),
    ("s LIKE 5", 8, "'5'", "a pattern in quotes", ""),
    ("s LIKE 'a' ESCAPE", 18, "end of filter", "a single character in quotes", ""),
    ("s LIKE 'a' ESCAPE '!!'", 19, "\"'!!'\"", "a single character in quotes", ""),
    ("s LIKE 'a' ESCAPE ''", 19, "\"''\"", "a single character in quotes", ""),
    ("s LIKE 'a' ESCAPE '%'", 19, "\"'%'\"", "other than % and _", ""),
    ("s LIKE 'a!b' ESCAPE '!'", 8, "\"'a!b'\"", "! is followed by %, _ or !", ""),
    ("s LIKE 'a!' ESCAPE '!'", 8, "\"'a!'\"", "! is followed by %, _ or !", ""),
    (r"s LIKE 'a\\'", 8, "", r"\ is followed by", ""),
    ("s = 'a' ESCAPE '!'", 9, "'ESCAPE'", "an operator, AND, OR or the end", "follows the pattern"),
    ("(a = 1", 7, "end of filter", "a closing parenthesis or an operator", ""),
    ("a = 1)", 6, "')'", "an operator, AND, OR or the end", ""),
    ("((a = 1) OR b = 2", 18, "end of filter", "a closing parenthesis", ""),
    ("(a = 1) = TRUE", 1, "'('", "a value", "a condition has no value"),
    ("a = (b = 1)", 5, "'('", "a value", "a condition has no value"),
    ("a + 'x' = 1", 5, "\"'x'\"", "a number or an attribute", "numbers only"),
    ("TRUE + 1 = 2", 1, "'TRUE'", "a number or an attribute", "numbers only"),
    ("-'x' = 1", 2, "\"'x'\"", "a number or an attribute", "numbers only"),
    ("(a = 1) + 2 = 3", 1, "'('", "a value", ""),
    ("s = 'it's'", 9, "'s'", "an operator, AND, OR or the end", "written twice"),
    ("a = 'it''", 5, "'it''", "a closing quote", "written twice"),
    ("`a`` = 1", 1, "`a`` = 1", "a closing backquote", ""),
    ("price > AND 'unterminated", 9, "'AND'", "a value or a name", "in backquotes"),
    ("price > 1 2 AND $x = 1", 11, "'2'", "an operator, AND, OR or the end", ""),
    ("a = AND b = 99999999999999999999", 5, "'AND'", "a value or a name", ""),
    ("s = 'it' 's'", 10, "\"'s'\"", "an operator, AND, OR or the end", "written twice"),
    ("s = 'open", 5, "'open", "a closing quote", "written twice"),
    (r"s = 'open\'", 5, r"'open\'", "a closing quote", ""),
    ("`open = 1", 1, "`open = 1", "a closing backquote", ""),
    ("`` = 1", 1, "`` = 1", "a name and a closing backquote", ""),
    ('s = "text"', 5, "'\"'", "a value, a name or an operator", "'text' for a string"),
    ("a ! b", 3, "'!'", "a value, a name or an operator", "<> or !="),
    ("a = 1 && b = 2", 7, "'&'", "a value, a name or an operator", "AND and OR"),
    ("a = 1; b", 6, "';'", "a value, a name or an operator", ""),
    ("$price = 1", 1, "'$'", "a value, a name or an operator", "in backquotes"),
    ("a = 1 -- note", 7, "'--'", "a value or an operator", "filters have none"),
    ("a /* b */ = 1", 3, "'/*'", "a value or an operator", "filters have none"),
    ("a = 1x", 5, "'1x'", "a number or a name", "in backquotes"),
    ("a = 1e", 5, "'1e'", "a number or a name", ""),
    ("a = 10L", 5, "'10L'", "a number or a name", "no suffix"),
    ("a = 9223372036854775808", 5, "9223372036854775808", "a 64-bit integer", "decimal point"),
    ("a - 9223372036854775808 = 1", 5, "9223372036854775808", "a 64-bit integer", "decimal point"),
    ("a = -(9223372036854775808)", 7, "9223372036854775808", "a 64-bit integer", ""),
    ("a = -9223372036854775809", 6, "9223372036854775809", "a 64-bit integer", ""),
    ("a = 1e309", 5, "1e309", "a number that fits into a double", ""),
    ("a = \u0661", 5, "'\u0661'", "a number", "0 to 9"),
    (r"s = '\ud800'", 5, "", "text", "surrogate"),
    (r"s = '\U00110000'", 5, "", "text", "surrogate"),
    ("`\ud800` = 1", 1, "", "text", "surrogate"),
]  # fmt: skip


@pytest.mark.parametrize(("text", "column", "found", "expected", "hint"), MISTAKES)
def test_a_mistake_is_located_and_explained(
    text: str, column: int | None, found: str, expected: str, hint: str
) -> None:
    if column is None:
        Filter(text)
        return
    with pytest.raises(FilterSyntaxError) as caught:
        Filter(text)
    error = caught.value
    assert (error.line, error.column, error.position) == (1, column, column - 1)
    assert found in error.found
    assert expected in error.expected
    assert hint in error.hint
    assert error.text == text
    assert f"line 1, column {column}: found {error.found}, expected {error.expected}" in str(error)
    assert isinstance(error, FilterError)
    assert isinstance(error, ValueError)
    assert str(pickle.loads(pickle.dumps(error))) == str(error)


def test_the_line_and_a_marker_are_shown() -> None:
    with pytest.raises(FilterSyntaxError) as caught:
        Filter("price > 10\n  AND symbol =\n  AND volume < 3")
    assert (caught.value.line, caught.value.column) == (3, 3)
    assert str(caught.value) == (
        "line 3, column 3: found 'AND', expected a value or a name\n"
        "    AND volume < 3\n"
        "    ^\n"
        "  hint: an attribute of that name is written in backquotes: `AND`"
    )


def test_a_long_line_is_shown_in_part() -> None:
    with pytest.raises(FilterSyntaxError) as caught:
        Filter(" AND ".join(f"a{number} = {number}" for number in range(100)) + " AND ! AND b = 2")
    lines = str(caught.value).splitlines()
    assert max(map(len, lines)) < 110
    assert lines[1][lines[2].index("^")] == "!"


def test_a_filter_is_text() -> None:
    with pytest.raises(TypeError, match="not as int"):
        Filter(5)  # type: ignore[arg-type]


LIMITS: list[tuple[str, Callable[[int], str]]] = [
    ("parentheses", lambda depth: "(" * depth + "a = 1" + ")" * depth),
    ("not", lambda depth: "NOT " * depth + "a = 1"),
    ("signs", lambda depth: "- " * depth + "a > 1"),
    ("sums", lambda depth: "a" + " + b" * depth + " > 1"),
    ("products", lambda depth: "a" + " * b" * depth + " > 1"),
    ("both", lambda depth: "NOT (" * (depth // 2) + "a = 1" + ")" * (depth // 2)),
]


@pytest.mark.parametrize(("name", "text_of"), LIMITS)
def test_nesting_is_bounded_and_what_is_allowed_works(name: str, text_of: Callable[[int], str]) -> None:
    deepest = Filter(text_of(DEPTH_MAX))
    for use in (deepest.matches, deepest.explain):
        use({"a": 1, "b": 1})
    assert Filter(str(deepest)) == deepest
    assert deepest.covers(deepest)
    for depth in (DEPTH_MAX + 2, 10_000):
        with pytest.raises(FilterSyntaxError, match=f"nesting of at most {DEPTH_MAX} levels"):
            Filter(text_of(depth))


def test_length_is_bounded() -> None:
    with pytest.raises(FilterSyntaxError, match=r"1,000,001 characters, expected at most 1,000,000"):
        Filter("a = 1".ljust(TEXT_LENGTH_MAX + 1))
    assert Filter("a = 1".ljust(TEXT_LENGTH_MAX)).matches({"a": 1})
    long = "x" * (TEXT_LENGTH_MAX - 10)
    assert Filter(f"s = '{long}'").matches({"s": long})


def test_what_comes_behind_a_mistake_is_not_even_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[str] = []
    monkeypatch.setattr(lexer, "intern", lambda name: seen.append(name) or name)
    with pytest.raises(FilterSyntaxError, match="found 'AND'"):
        Filter("price > AND " + "x AND " * 100_000)
    assert seen == ["price"]


def test_hostile_numbers_and_patterns_are_quick() -> None:
    for text in ("a = " + "9" * 900_000, "a = " + "9" * 900_000 + ".0"):
        with pytest.raises(FilterSyntaxError):
            Filter(text)
    assert Filter("a = " + "0" * 900_000 + "1").matches({"a": 1})
    pattern = Filter("s LIKE '" + "%a" * 50 + "%b'")
    assert not pattern.matches({"s": "a" * 20_000})
    assert pattern.matches({"s": "a" * 20_000 + "b"})


INTEGERS = [
    ("9223372036854775807", 2**63 - 1),
    ("-9223372036854775808", -(2**63)),
    ("- 9223372036854775808", -(2**63)),
    ("-9223372036854775808 + 1", -(2**63) + 1),
    ("007", 7),
    ("-0", 0),
    ("- - 5", 5),
    ("+5", 5),
    ("2 * (3 + 4)", 14),
    ("7 % -4", 3),
]


@pytest.mark.parametrize(("text", "value"), INTEGERS)
def test_integer_literals(text: str, value: int) -> None:
    assert Filter(f"a = {text}").matches({"a": value})
    assert Filter(f"a = {text}") == Filter(f"a = {value}")


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1.", 1.0),
        (".5", 0.5),
        ("1e3", 1000.0),
        ("1E-2", 0.01),
        ("2.5e+1", 25.0),
        ("1e16", 1e16),
        ("5 / 2", 2.5),
    ],
)
def test_float_literals(text: str, value: float) -> None:
    assert Filter(f"a = {text}").matches({"a": value})


def test_keywords_have_no_case_and_names_have() -> None:
    each = Filter("a BeTwEeN 1 aNd 2 oR b iN (TrUe) oR c lIkE 'x!%' eScApE '!' oR nOt d Is nUlL")
    assert each == Filter("a BETWEEN 1 AND 2 OR b IN (TRUE) OR c LIKE 'x!%' ESCAPE '!' OR NOT d IS NULL")
    assert Filter("Price = 1") != Filter("price = 1")
    assert not Filter("Price = 1").matches({"price": 1})


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("a.b.c = 1", "a.b.c"), ("`a.b.c` = 1", "a.b.c"), ("`a b` = 1", "a b"), ("`a``b` = 1", "a`b"),
        ("_x1 = 1", "_x1"), ("größe = 1", "größe"), ("`and` = 1", "and"), ("a.and = 1", "a.and"),
        ("`1st` = 1", "1st"), ("`😀` = 1", "😀"), ("nullable = 1", "nullable"), ("notes = 1", "notes"),
        ("`\n` = 1", "\n"),
    ],
)  # fmt: skip
def test_names(text: str, name: str) -> None:
    each = Filter(text)
    assert each.attributes == {name}
    assert each.matches({name: 1})
    assert Filter(str(each)).attributes == {name}


def test_precedence() -> None:
    assert Filter("a = 1 OR b = 1 AND c = 1") == Filter("a = 1 OR (b = 1 AND c = 1)")
    assert Filter("NOT a = 1 AND b = 1") == Filter("(NOT (a = 1)) AND b = 1")
    assert Filter("a BETWEEN 1 AND 2 AND b = 1") == Filter("(a BETWEEN 1 AND 2) AND b = 1")
    assert Filter("a - b - c = 0").matches({"a": 3, "b": 2, "c": 1})
    assert Filter("a / b / c = 1").matches({"a": 6, "b": 3, "c": 2})
    assert Filter("-a + b = 1").matches({"a": 1, "b": 2})
    assert Filter("a + b * c = 7").matches({"a": 1, "b": 2, "c": 3})


def parse_or_refuse(text: str) -> None:
    """Anything but a filter or a complete syntax error is a failure."""
    each, error = None, None
    try:
        each = Filter(text)
    except FilterSyntaxError as caught:
        error = caught
    if error:
        assert 0 <= error.position <= len(text)
        assert error.line >= 1
        assert error.column >= 1
        assert error.found
        assert error.expected
        assert str(error)
    if each:
        attributes: dict[str, Any] = {"a": 1, "s": "x"}
        assert Filter(str(each)).matches(attributes) is each.matches(attributes)


@given(st.text())
def test_any_text_is_read_or_refused(text: str) -> None:
    parse_or_refuse(text)


WORDS = [
    "a", "s", "`a b`", "1", "2.5", "'x'", "''", "'\\", "(", ")", ",", "=", "<>", "<", ">=", "+",
    "-", "*", "/", "%", ".", "`",
    "AND", "OR", "NOT", "BETWEEN", "IN", "LIKE", "ESCAPE", "IS", "NULL", "TRUE", "'%'", "9223372036854775808",
]  # fmt: skip


@given(st.lists(st.sampled_from(WORDS), max_size=12), st.sampled_from(["", " ", "\n"]))
def test_any_sequence_of_words_is_read_or_refused(words: list[str], separator: str) -> None:
    parse_or_refuse(separator.join(words))


def mutated(text: str, generator: random.Random) -> str:
    for _ in range(generator.choice([1, 1, 2, 4])):
        at, until = sorted(generator.randrange(len(text) + 1) for _ in range(2))
        piece = generator.choice([*WORDS, "", "\0", "é", "\ud800", text[at:until]])
        until = generator.choice([at, at + 1, until])
        text = text[:at] + piece + text[until:]
    return text


@given(makers())
def test_mutated_filters_are_read_or_refused(maker: Maker) -> None:
    parse_or_refuse(mutated(maker.filter(), maker.random))


def test_thousands_of_seeded_mutations_are_read_or_refused() -> None:
    maker = Maker(random.Random("mutations"), depth=2)
    for _ in range(3_000):
        parse_or_refuse(mutated(maker.filter(), maker.random))
