"""Does a filter read from an event pattern select what the pattern selects?

The property test evaluates patterns a second way, directly on nested JSON, written from the
published description of the patterns and sharing nothing with the translation.
"""

from __future__ import annotations

import json
import math
import re
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from braid.errors import PatternError
from braid.language import Filter, Range, flatten
from braid.language.patterns import filter_from_pattern, pattern_to_sql

# --- a second opinion: patterns evaluated directly ----------------------------------------------


def selects(pattern: dict[str, Any], event: Any) -> bool:
    """True when every field of the pattern holds for the (sub)event."""
    for key, wanted in pattern.items():
        if key == "$or":
            holds = any(selects(each, event) for each in wanted)
        else:
            found = event.get(key) if isinstance(event, dict) else None
            if isinstance(wanted, dict):
                holds = selects(wanted, found)
            else:
                # Matchers look at leaves: an object in that place is no value.
                leaf = None if isinstance(found, dict) else found
                holds = any(entry_holds(entry, leaf) for entry in wanted)
        if not holds:
            return False
    return True


def entry_holds(entry: Any, value: Any) -> bool:
    if isinstance(entry, dict):
        ((matcher, operand),) = entry.items()
        if matcher == "exists":
            return (value is not None) == operand
        if matcher == "numeric":
            if isinstance(value, bool) or not isinstance(value, (int, float)):
                return False
            pairs = zip(operand[::2], operand[1::2], strict=True)
            return all(compared(operator, value, bound) for operator, bound in pairs)
        if matcher == "anything-but":
            if value is None:
                return False
            if isinstance(operand, dict):
                ((form, texts),) = operand.items()
                texts = texts if isinstance(texts, list) else [texts]
                return not any(has_form(form, text, value) for text in texts)
            operands = operand if isinstance(operand, list) else [operand]
            return not any(same(each, value) for each in operands)
        return has_form(matcher, operand, value)
    return same(entry, value)


def compared(operator: str, value: float, bound: float) -> bool:
    return {
        "=": value == bound,
        "<": value < bound,
        "<=": value <= bound,
        ">": value > bound,
        ">=": value >= bound,
    }[operator]


def has_form(form: str, text: str, value: Any) -> bool:
    if not isinstance(value, str):
        return False
    if form == "prefix":
        return value.startswith(text)
    if form == "suffix":
        return value.endswith(text)
    pieces = re.findall(r"\\[*\\]|\*|[^*\\]", text, flags=re.DOTALL)
    expression = "".join(".*" if piece == "*" else re.escape(piece[-1]) for piece in pieces)
    return re.fullmatch(expression, value, flags=re.DOTALL) is not None


def same(left: Any, right: Any) -> bool:
    kinds = [
        str if isinstance(each, str) else type(each) if isinstance(each, bool) else float
        for each in (left, right)
    ]
    if left is None or right is None:
        return left is right
    return kinds[0] is kinds[1] and left == right


# --- strategies ----------------------------------------------------------------------------------

# Few and awkward: every character that LIKE, string literals or wildcards treat specially.
texts = st.text(alphabet="aAb%_!*\\'\"`é\n😀 ", max_size=4)
numbers = st.one_of(
    st.integers(-3, 3), st.sampled_from([0.5, -0.5, 1.0, 1e300, -1e-7, 2**53 + 1, 2**63 - 1, -(2**63)])
)
names = st.sampled_from(["a", "b", "a-b", "select", "and", "0", "with space", "tick`s", "é", "$x", "Type"])


def wildcard_of(text: str) -> str:
    """Any text made a well-formed wildcard: stars stay wild, once; backslashes are escaped."""
    return re.sub(r"\*+", "*", text.replace("\\", "\\\\"))


wildcards = st.one_of(texts.map(wildcard_of), texts.map(lambda text: re.sub(r"([*\\])", r"\\\1", text) + "*"))
some_text = texts.filter(bool)


@st.composite
def numeric_matchers(draw: st.DrawFn) -> dict[str, Any]:
    if draw(st.booleans()):
        return {"numeric": [draw(st.sampled_from(["=", "<", "<=", ">", ">="])), draw(numbers)]}
    low, high = sorted([draw(numbers), draw(numbers)])
    lower = draw(st.sampled_from([">", ">="])) if low < high else ">="
    upper = draw(st.sampled_from(["<", "<="])) if low < high else "<="
    terms = [[lower, low], [upper, high]]
    if draw(st.booleans()):
        terms.reverse()
    return {"numeric": terms[0] + terms[1]}


def one_or_list(elements: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.one_of(elements, st.lists(elements, min_size=1, max_size=3))


anything_but = st.one_of(
    one_or_list(texts),
    one_or_list(numbers),
    st.fixed_dictionaries({"prefix": one_or_list(some_text)}),
    st.fixed_dictionaries({"suffix": one_or_list(some_text)}),
    st.fixed_dictionaries({"wildcard": one_or_list(wildcards.filter(lambda text: text != "*"))}),
).map(lambda operand: {"anything-but": operand})

entries = st.one_of(
    texts,
    numbers,
    st.booleans(),
    st.none(),
    st.fixed_dictionaries({"prefix": texts}),
    st.fixed_dictionaries({"suffix": texts}),
    st.fixed_dictionaries({"wildcard": wildcards}),
    st.fixed_dictionaries({"exists": st.booleans()}),
    numeric_matchers(),
    anything_but,
)
matcher_lists = st.lists(entries, min_size=1, max_size=3)
patterns = st.recursive(
    st.dictionaries(names, matcher_lists, min_size=1, max_size=2),
    lambda inner: st.one_of(
        st.dictionaries(names, inner, min_size=1, max_size=2),
        st.builds(
            lambda pattern, choices: {**pattern, "$or": choices},
            inner,
            st.lists(inner, min_size=2, max_size=3),
        ),
    ),
    max_leaves=4,
)


def operands_of(pattern: Any) -> list[Any]:
    """Texts and numbers a pattern mentions, bent a little: values that sit on its edges."""
    if isinstance(pattern, dict):
        return [value for each in pattern.values() for value in operands_of(each)]
    if isinstance(pattern, list):
        return [value for each in pattern for value in operands_of(each)]
    if isinstance(pattern, str):
        return [pattern, pattern + "a", "a" + pattern, pattern.replace("*", "ab"), pattern.replace("\\", "")]
    return [pattern] if pattern is not None else []


def skeleton(pattern: Any) -> dict[str, Any]:
    """The nesting of names that a pattern asks about; `$or` has no level of its own."""
    shape: dict[str, Any] = {}
    for key, value in pattern.items():
        if key == "$or":
            for each in value:
                shape |= {name: inner for name, inner in skeleton(each).items() if name not in shape}
        else:
            shape[key] = skeleton(value) if isinstance(value, dict) else None
    return shape


@st.composite
def patterns_with_events(draw: st.DrawFn) -> tuple[dict[str, Any], dict[str, Any]]:
    pattern = draw(patterns)
    values = st.one_of(
        st.sampled_from([*operands_of(pattern), True]), texts, numbers, st.booleans(), st.none()
    )

    def filled(shape: dict[str, Any]) -> dict[str, Any]:
        event: dict[str, Any] = {}
        for name, inner in shape.items():
            choice = draw(st.sampled_from(["follow", "follow", "follow", "leaf", "nothing"]))
            if choice == "follow" and inner is not None:
                event[name] = filled(inner)
            elif choice != "nothing":
                event[name] = draw(values)
        return event

    return pattern, filled(skeleton(pattern))


@settings(max_examples=400, deadline=None)
@given(patterns_with_events())
def test_the_filter_selects_what_the_pattern_selects(case: tuple[dict[str, Any], dict[str, Any]]) -> None:
    pattern, event = case
    expected = selects(pattern, event)
    assert filter_from_pattern(pattern).matches(flatten(event)) is expected, pattern_to_sql(pattern)


@settings(max_examples=100, deadline=None)
@given(patterns)
def test_a_pattern_and_its_json_text_give_the_same_filter(pattern: dict[str, Any]) -> None:
    assert pattern_to_sql(json.dumps(pattern)) == pattern_to_sql(pattern)
    assert filter_from_pattern(json.dumps(pattern)) == Filter(pattern_to_sql(pattern))


# --- examples ------------------------------------------------------------------------------------


def test_the_example_everyone_starts_with() -> None:
    pattern = '{"price": [{"numeric": [">", 10]}], "symbol": ["ACME", {"prefix": "AC"}]}'
    assert pattern_to_sql(pattern) == "price > 10 AND (symbol = 'ACME' OR symbol LIKE 'AC%' ESCAPE '!')"
    reads = filter_from_pattern(pattern)
    assert reads.matches({"price": 11, "symbol": "ACX"})
    assert not reads.matches({"price": 10, "symbol": "ACX"})
    assert not reads.matches({"price": 11})


@pytest.mark.parametrize(
    ("pattern", "text"),
    [
        ({"a": ["x", "y"]}, "a IN ('x', 'y')"),
        ({"a": [1, "x", True, 2.5]}, "(a IN (1, 2.5) OR a = 'x' OR a = TRUE)"),
        ({"a": [None]}, "a IS NULL"),
        ({"a": [{"exists": True}]}, "a IS NOT NULL"),
        ({"a": {"b": {"c": [1]}}}, "a.b.c = 1"),
        ({"detail": {"c-count": [-1]}}, "`detail.c-count` = -1"),
        ({"and": [1]}, "`and` = 1"),
        ({"a`b": [1]}, "`a``b` = 1"),
        ({"a": ["it's"]}, "a = 'it''s'"),
        ({"a": ["back\\slash"]}, r"a = 'back\\slash'"),
        ({"a": [{"wildcard": r"50%\*_*!"}]}, "a LIKE '50!%*!_%!!' ESCAPE '!'"),
        ({"a": [{"numeric": [">", 0, "<=", 5]}]}, "(a > 0 AND a <= 5)"),
        ({"a": [{"anything-but": [1, 2]}]}, "(a NOT IN (1, 2) OR a >= '' OR a IN (TRUE, FALSE))"),
        ({"$or": [{"a": [1]}, {"b": [2], "c": [3]}]}, "(a = 1 OR (b = 2 AND c = 3))"),
        ({"d": {"$or": [{"a": [1]}, {"b": [2]}]}, "e": [3]}, "(d.a = 1 OR d.b = 2) AND e = 3"),
    ],
)
def test_translations(pattern: dict[str, Any], text: str) -> None:
    assert pattern_to_sql(pattern) == text
    Filter(text)


def test_anything_but_needs_the_field_and_accepts_every_other_kind() -> None:
    reads = filter_from_pattern({"state": [{"anything-but": "initializing"}]})
    assert [
        value for value in ("running", 5, -1, math.nan, True, False) if not reads.matches({"state": value})
    ] == []
    assert reads.matches({"state": Range(-5, -1)})
    assert not reads.matches({"state": "initializing"})
    assert not reads.matches({"state": None})
    assert not reads.matches({})


def test_a_real_rule() -> None:
    pattern = {
        "source": ["aws.ec2"],
        "detail-type": ["EC2 Instance State-change Notification"],
        "detail": {
            "state": [{"anything-but": ["initializing", "stopped"]}],
            "c-count": [{"numeric": [">", 0, "<=", 5]}],
            "x-limit": [{"anything-but": [100, 200, 300]}],
            "name": [{"wildcard": "i-*0000*"}],
            "gone": [{"exists": False}],
        },
    }
    event = {
        "source": "aws.ec2",
        "detail-type": "EC2 Instance State-change Notification",
        "detail": {"state": "running", "c-count": 5, "x-limit": 301.8, "name": "i-a00001"},
    }
    reads = filter_from_pattern(pattern)
    assert reads.matches(flatten(event))
    for change in ({"state": "stopped"}, {"c-count": 6}, {"x-limit": 200}, {"name": "i-a"}, {"gone": 1}):
        assert not reads.matches(flatten({**event, "detail": {**event["detail"], **change}}))


# --- refusals ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("pattern", "message"),
    [
        ({"a": [{"equals-ignore-case": "x"}]}, r"^\$\.a\[0\]\.equals-ignore-case: .*cannot be expressed"),
        (
            {"a": [{"prefix": {"equals-ignore-case": "x"}}]},
            r"^\$\.a\[0\]\.prefix\.equals-ignore-case: .*cannot be",
        ),
        (
            {"a": [{"suffix": {"equals-ignore-case": "x"}}]},
            r"^\$\.a\[0\]\.suffix\.equals-ignore-case: .*cannot be",
        ),
        (
            {"a": [{"anything-but": {"equals-ignore-case": "x"}}]},
            r"^\$\.a\[0\]\.anything-but\.equals-ignore-case",
        ),
        ({"a": {"ip": ["x", {"cidr": "10.0.0.0/24"}]}}, r"^\$\.a\.ip\[1\]\.cidr: .*cannot be expressed"),
        ({"a": [{"prefix": {"other": "x"}}]}, r"^\$\.a\[0\]\.prefix\.other: .*expected a string"),
        ({}, r"^\$: an empty object"),
        ({"a": {}}, r"^\$\.a: an empty object"),
        ({"a": []}, r"^\$\.a: an empty list"),
        ({"a": "x"}, r"^\$\.a: must be an object or a list of matchers, not a string"),
        ({"a": 1}, r"^\$\.a: .*not a number"),
        ({"a": None}, r"^\$\.a: .*not null"),
        ({"a": [["x"]]}, r"^\$\.a\[0\]: .*not a list"),
        ({"a": [{}]}, r"^\$\.a\[0\]: .*exactly one key, not none"),
        ({"a": [{"prefix": "x", "suffix": "y"}]}, r"^\$\.a\[0\]: .*exactly one key"),
        ({"a": [{"prefx": "x"}]}, r"^\$\.a\[0\]\.prefx: unknown matcher 'prefx'; expected one of prefix"),
        ({"a": [{"prefix": 1}]}, r"^\$\.a\[0\]\.prefix: must be a string"),
        ({"a": [{"suffix": None}]}, r"^\$\.a\[0\]\.suffix: must be a string, not null"),
        ({"a": [{"wildcard": "a**b"}]}, r"^\$\.a\[0\]\.wildcard: two wildcards"),
        ({"a": [{"wildcard": "a\\b"}]}, r"^\$\.a\[0\]\.wildcard: a backslash"),
        ({"a": [{"wildcard": "a\\"}]}, r"^\$\.a\[0\]\.wildcard: a backslash"),
        ({"a": [{"exists": "true"}]}, r"^\$\.a\[0\]\.exists: must be true or false"),
        ({"a": [{"numeric": []}]}, r"^\$\.a\[0\]\.numeric: must be a comparison"),
        ({"a": [{"numeric": 5}]}, r"^\$\.a\[0\]\.numeric: must be a comparison"),
        ({"a": [{"numeric": ["~", 5]}]}, r"^\$\.a\[0\]\.numeric\[0\]: must be one of"),
        ({"a": [{"numeric": [[], 5]}]}, r"^\$\.a\[0\]\.numeric\[0\]: must be one of"),
        ({"a": [{"numeric": [">", "5"]}]}, r"^\$\.a\[0\]\.numeric\[1\]: must be a number"),
        ({"a": [{"numeric": [">", True]}]}, r"^\$\.a\[0\]\.numeric\[1\]: must be a number"),
        ({"a": [{"numeric": [">", math.nan]}]}, r"^\$\.a\[0\]\.numeric\[1\]: nan"),
        ({"a": [{"numeric": [">", 1, ">=", 2]}]}, r"^\$\.a\[0\]\.numeric: a range takes one lower"),
        ({"a": [{"numeric": ["=", 1, "<", 2]}]}, r"^\$\.a\[0\]\.numeric: a range takes one lower"),
        ({"a": [{"numeric": [">", 2, "<", 1]}]}, r"^\$\.a\[0\]\.numeric: no number lies"),
        ({"a": [{"numeric": [">", 1, "<=", 1]}]}, r"^\$\.a\[0\]\.numeric: no number lies"),
        ({"a": [{"anything-but": True}]}, r"^\$\.a\[0\]\.anything-but: takes a string"),
        ({"a": [{"anything-but": None}]}, r"^\$\.a\[0\]\.anything-but: takes a string"),
        ({"a": [{"anything-but": []}]}, r"^\$\.a\[0\]\.anything-but: an empty list"),
        ({"a": [{"anything-but": [1, "x"]}]}, r"^\$\.a\[0\]\.anything-but: a list must hold"),
        ({"a": [{"anything-but": {"prefix": ""}}]}, r"^\$\.a\[0\]\.anything-but\.prefix: excludes every"),
        ({"a": [{"anything-but": {"numeric": ["<", 1]}}]}, r"^\$\.a\[0\]\.anything-but\.numeric: unknown"),
        ({"a": [2**63]}, r"^\$\.a\[0\]: the integer does not fit into 64 bits"),
        ({"a": ["\ud800"]}, r"^\$\.a\[0\]: character 0 is half"),
        ({"\ud800": [1]}, r"^\$: character 0 is half"),
        ({"": [1]}, r"^\$: a field's name"),
        ({1: [1]}, r"^\$: a field's name"),
        ({"$or": [{"a": [1]}]}, r"^\$\.\$or: must be a list of at least two"),
        ({"$or": {"a": [1]}}, r"^\$\.\$or: must be a list of at least two"),
        ({"$or": [{"a": [1]}, 2]}, r"^\$\.\$or\[1\]: must be a pattern"),
        ({"$or": [{"a": [1]}, {}]}, r"^\$\.\$or\[1\]: an empty object"),
        ({"a": {"b": [1]}, "a.b": [2]}, r"^\$\.a\.b: the field 'a\.b' is given twice"),
        ("[]", r"^\$: a pattern must be an object, not a list"),
        ("{", r"^\$: not JSON: .*line 1 column 2"),
        ('{"a": [1], "a": [2]}', r'^\$: the key "a" occurs twice'),
        ("[" * 100_000, r"^\$: nested deeper"),
        ('{"a": [' + "9" * 5000 + "]}", r"^\$"),
        (None, r"^\$: a pattern must be an object, not null"),
    ],
)
def test_a_malformed_pattern_is_refused_with_its_path(pattern: Any, message: str) -> None:
    with pytest.raises(PatternError, match=message):
        filter_from_pattern(pattern)


def test_nesting_is_bounded() -> None:
    pattern: dict[str, Any] = {"a": [1]}
    for _ in range(63):
        pattern = {"a": pattern}
    assert filter_from_pattern(pattern).matches({".".join(["a"] * 64): 1})
    with pytest.raises(PatternError, match="nested deeper than 64 levels"):
        filter_from_pattern({"a": pattern})
