"""Does a filter cost about as much as was written, whatever was written?"""

from __future__ import annotations

import pickle
import sys
import tracemalloc
from typing import TYPE_CHECKING

import pytest

from braid.language import Filter, filter_from_pattern, filters, to_spark_sql
from braid.language.likes import like_matcher
from braid.language.memory import Memory
from braid.language.normal_form import WEIGHT_MAX
from braid.language.parser import DEPTH_MAX, TEXT_LENGTH_MAX
from braid.language.values import Range
from braid.matching import FilterIndex

if TYPE_CHECKING:
    from collections.abc import Callable

MEGABYTE = 1 << 20


def product(rows: int, name_length: int, prefix: str = "") -> str:
    """Two alternatives in each of some rows: their product has `2 ** rows` terms."""
    first, second = "n" * name_length, "m" * name_length
    return " AND ".join(f"({first}{prefix}{row} = 1 OR {second}{prefix}{row} = 1)" for row in range(rows))


def long_list(count: int, step: int) -> str:
    return ", ".join(map(str, range(0, count * step, step)))


def nested_alternatives(levels: int, rows: int) -> str:
    """At each level more alternatives than can be multiplied out, around all the levels inside."""
    inside = "z = 1"
    for level in range(levels):
        own = " AND ".join(f"(a{level}_{row} = 1 OR b{level}_{row} = 1)" for row in range(rows))
        inside = f"({own}) AND (q{level} = 1 OR ({inside}))"
    return inside


LARGE = {
    "alternatives inside each other": nested_alternatives(45, 30),
    "ten rows of long names": product(10, 122),
    "sums of products": " OR ".join(f"({product(10, 1, f'_{each}_')})" for each in range(200)),
    "products of lists": "({}) AND ({})".format(
        " OR ".join(f"a{each} IN ({long_list(200, each + 1)})" for each in range(32)),
        " OR ".join(f"b{each} IN ({long_list(200, each + 1)})" for each in range(32)),
    ),
    "a list for a sum": f"a + {'b' * 5_000} IN ({long_list(5_000, 2)})",
    "a list of sums": f"{'b' * 5_000} IN ({', '.join(f'a + {each}' for each in range(5_000))})",
    "not one of them": " AND ".join(f"a <> {each}" for each in range(5_000)),
    "alternatives with sums": " OR ".join(f"(a + b = {each} AND c = {each})" for each in range(2_000)),
    "alternatives with patterns": " OR ".join(f"a LIKE '%{each}%'" for each in range(3_000)),
    "boxes that overlap": " OR ".join(f"(a > {each} AND b < {each * 7 % 3_001})" for each in range(2_500)),
}


@pytest.mark.parametrize("name", LARGE)
def test_a_form_is_about_as_large_as_what_was_written(name: str) -> None:
    each = Filter(LARGE[name])
    canonical = str(each)
    assert len(canonical) <= max(2 * WEIGHT_MAX, 4 * len(each.text)) <= TEXT_LENGTH_MAX
    assert Filter(canonical) == each
    assert Filter(each.text) == each


@pytest.mark.parametrize("name", LARGE)
def test_large_filters_are_compared_in_bounded_work(name: str) -> None:
    each = Filter(LARGE[name])
    narrower = Filter(f"q = 1 AND ({each.text})")
    assert each.covers(each)
    assert each.intersects(narrower)
    assert narrower.intersects(each)
    assert not narrower.covers(each)
    each.covers(narrower)  # either answer is safe; it must come


def test_what_stays_residual_matches_the_same() -> None:
    each = Filter(LARGE["ten rows of long names"])
    index: FilterIndex[str] = FilterIndex([("it", each)])
    chosen = {f"{'n' * 122}{row}": 1 for row in range(9)}
    for last, expected in ((f"{'m' * 122}9", True), ("else", False)):
        attributes = {**chosen, last: 1}
        assert each.matches(attributes) is expected
        assert index.match(attributes) == ({"it"} if expected else set())


@pytest.mark.parametrize("negated", [False, True])
def test_a_long_list_for_a_sum_says_the_same_as_a_short_one(negated: bool) -> None:
    word = "NOT IN" if negated else "IN"
    long = Filter(f"a + {'b' * 3_000} {word} ({long_list(1_000, 2)})")
    assert len(long.terms) == 1
    name = "b" * 3_000
    for a in (3, 4, 5_000):
        expected = (a + 1 not in range(0, 2_000, 2)) if negated else (a + 1 in range(0, 2_000, 2))
        assert long.matches({"a": a, name: 1}) is expected
        assert Filter(str(long)).matches({"a": a, name: 1}) is expected
    # Some point of a range satisfies it, or none does.
    assert long.matches({"a": Range(3, 4), name: 0}) is True
    assert long.matches({"a": Range(5_001, 5_002), name: 0}) is negated
    mixed = Filter(f"{name} IN ({', '.join(f'a + {each}' for each in range(0, 2_000, 2))})")
    assert mixed.matches({"a": 1, name: 5})
    assert not mixed.matches({"a": 1, name: 4})


def test_what_would_be_too_long_to_be_read_again_is_shown_as_it_was_written(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    written = "a<1 OR b<2 OR c<3"
    assert str(Filter(written)) == "a < 1 OR b < 2 OR c < 3"
    monkeypatch.setattr(filters, "TEXT_LENGTH_MAX", len(written))
    assert str(Filter(written)) == written
    assert Filter(str(Filter(written))) == Filter(written)


# The stack of the caller.


def nested(depth: int) -> str:
    return "(a = 1 OR NOT (b = 2 AND " * (depth // 2) + "c = 3" + "))" * (depth // 2)


def after(depth: int, work: Callable[[], object]) -> object:
    return work() if depth == 0 else after(depth - 1, work)


def depth_here() -> int:
    depth, frame = 0, sys._getframe()
    while frame is not None:
        depth, frame = depth + 1, frame.f_back  # type: ignore[assignment]
    return depth


USES: dict[str, Callable[[str], object]] = {
    "read": Filter,
    "matches": lambda text: FILTERS[text].matches({"a": 2, "b": 2, "c": 3}),
    "matches ranges": lambda text: FILTERS[text].matches({"a": Range(1, 2), "b": 2, "c": Range(1, 5)}),
    "covers": lambda text: Filter(text).covers(FILTERS[text]),
    "intersects": lambda text: Filter(text).intersects(FILTERS[text]),
    "str": lambda text: str(Filter(text)),
    "hash": lambda text: hash(Filter(text)),
    "equal": lambda text: Filter(text) == FILTERS[text],
    "pickle": lambda text: pickle.loads(pickle.dumps(FILTERS[text])) == FILTERS[text],
    "explain": lambda text: str(FILTERS[text].explain({"a": 2})),
    "invert": lambda text: (~FILTERS[text]).text,
    "spark": lambda text: to_spark_sql(FILTERS[text]),
    "index": lambda text: FilterIndex([(1, Filter(text)), (2, FILTERS[text])]).match({"a": 1}),
}
DEEP = [
    "NOT (" * (DEPTH_MAX // 2 - 2) + "a + b * 2 > 1 AND c LIKE '%x'" + ")" * (DEPTH_MAX // 2 - 2),
    nested(60),
    "(" * (DEPTH_MAX - 1) + "a = 1" + ")" * (DEPTH_MAX - 1),
    "a" + " + b" * (DEPTH_MAX - 1) + " > 1",
]
FILTERS = {text: Filter(text) for text in DEEP}


@pytest.mark.parametrize("use", USES)
@pytest.mark.parametrize("text", DEEP, ids=["negations", "alternatives", "parentheses", "sums"])
@pytest.mark.parametrize("left", [50, 120, 300])
def test_a_deep_stack_is_no_reason_to_fail(use: str, text: str, left: int) -> None:
    limit = sys.getrecursionlimit()
    expected = USES[use](text)
    found = after(limit - depth_here() - left, lambda: USES[use](text))
    assert str(found) == str(expected)
    assert sys.getrecursionlimit() == limit


def test_a_pattern_is_read_on_a_deep_stack() -> None:
    limit = sys.getrecursionlimit()
    pattern: dict[str, object] = {"a": [1]}
    assert after(limit - depth_here() - 50, lambda: str(filter_from_pattern(pattern))) == "a = 1"


# What is remembered.


def kept_by(work: Callable[[], object]) -> int:
    """Bytes that are still held after some work whose result is thrown away."""
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        work()
        return tracemalloc.get_traced_memory()[0] - before
    finally:
        tracemalloc.stop()


def test_patterns_that_are_remembered_are_bounded_by_their_size() -> None:
    def use() -> None:
        for number in range(60):
            pattern = "".join(f"%{number}_{place}" for place in range(1_500))
            like_matcher(pattern, "!").matches("ab" * 200)

    like_matcher.clear()
    assert kept_by(use) < 8 * MEGABYTE


def test_names_that_are_remembered_are_bounded_by_their_size() -> None:
    def use() -> None:
        for number in range(200):
            Filter(f"{'n' * 100_000}{number} = 1").matches({})

    assert kept_by(use) < 4 * MEGABYTE


def test_a_memory_keeps_what_is_asked_for_and_lets_go_of_the_rest() -> None:
    made: list[str] = []

    def make(text: str) -> str:
        made.append(text)
        return text.upper()

    memory = Memory(make, characters_max=4_000)
    for number in range(1_000):
        assert memory("often") == "OFTEN"
        assert memory(f"text {number}") == f"TEXT {number}"
        assert memory.characters <= 4_000
    assert made.count("often") == 1
    assert memory("x" * 5_000) == "X" * 5_000
    assert memory.characters <= 4_000
    memory.clear()
    assert memory.characters == 0
