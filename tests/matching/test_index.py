"""The index gives the naive answer, whatever is in it and however it got there."""

from __future__ import annotations

import random
from itertools import compress
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from braid import Filter, FilterIndex, Range
from braid.errors import IndexKeyError, PublicationError
from braid.matching import index as index_module
from braid.matching import naive, plan
from tests.language.strategies import filter_texts, publications


def assert_agrees(index: FilterIndex[Any], filters: dict[Any, Filter], batch: list[dict[str, Any]]) -> None:
    expected = naive.match_batch(filters, batch)
    assert index.match_batch(batch) == expected
    assert index.count_batch(batch).tolist() == [len(keys) for keys in expected]
    assert index.match_groups(batch) == expected, "without groups every key is its own"


@pytest.fixture
def small_structures(monkeypatch: pytest.MonkeyPatch) -> None:
    """Blocks, tables and tails so small that a few hundred filters make many of each."""
    monkeypatch.setattr(plan, "BLOCK_SIZE_MAX", 64)
    monkeypatch.setattr(plan, "PART_SIZE_MIN", 16)
    monkeypatch.setattr(plan, "POINT_ROWS_MIN", 8)
    monkeypatch.setattr(plan, "POINT_VALUES_MIN", 2)
    monkeypatch.setattr(plan, "POINT_TABLE_MIN", 4)
    monkeypatch.setattr(plan, "POINT_BLOCK_MIN", 24)
    monkeypatch.setattr(plan, "TABLE_SIZE_MAX", 48)
    monkeypatch.setattr(plan, "FILTERS_AT_ONCE", 16)
    monkeypatch.setattr(index_module, "TAIL_MAX", 8)
    monkeypatch.setattr(index_module, "TAIL_COST_MAX", 64)
    monkeypatch.setattr(index_module, "HANDFUL", 0)
    monkeypatch.setattr(index_module, "BATCH_MAX", 16)


@given(
    texts=st.lists(filter_texts(), min_size=1, max_size=40),
    batch=st.lists(publications(), min_size=1, max_size=30),
)
def test_any_filters_and_publications(texts: list[str], batch: list[dict[str, Any]]) -> None:
    filters = {number: Filter(text) for number, text in enumerate(texts)}
    index = FilterIndex(filters.items())
    assert_agrees(index, filters, batch)
    index.compact()
    assert_agrees(index, filters, batch)


def random_filter(random: random.Random) -> Filter:
    low, high = sorted((random.randint(0, 30), random.randint(0, 30)))
    real = random.uniform(0, 30)
    return Filter(
        random.choice(
            [
                f"a BETWEEN {low} AND {high} AND b > {real}",
                f"s = 's{low}' AND a > {real} AND b <= {high}",
                f"s = 's{low}' AND t = 't{high % 5}' AND a < b",
                f"s IN ('s{low}', 's{high}') AND c <> {low}",
                f"s = 's1' AND a > {real}",
                f"id = {2**60 + low} AND a < {high}",
                f"id = {low} OR c BETWEEN {low} AND {high}",
                f"s LIKE 's{low % 3}%' AND d IS NULL",
                f"flag AND b < {real}",
                f"a + b > {high} AND c IS NOT NULL",
                f"a NOT IN ({low}, {high}) OR s > 's2'",
                "a > 3 AND a < 2",
                "TRUE" if low == 3 else f"d = {real}",
            ]
        )
    )


def random_publication(random: random.Random) -> dict[str, Any]:
    values: dict[str, Any] = {
        "a": random.choice([random.randint(0, 30), random.uniform(0, 30), float("nan")]),
        "b": random.uniform(0, 30),
        "c": random.choice([random.randint(0, 30), "s3", True]),
        "d": random.uniform(0, 30),
        "s": f"s{random.randint(0, 32)}",
        "t": f"t{random.randint(0, 6)}",
        "id": random.choice([2**60 + random.randint(0, 30), random.randint(0, 30), float(2**60)]),
        "flag": random.random() < 0.5,
    }
    if random.random() < 0.1:
        values["a"] = Range(random.randint(0, 10), random.choice([15, 20.5, float("inf")]))
    return {name: value for name, value in values.items() if random.random() < 0.8}


@pytest.mark.usefixtures("small_structures")
@pytest.mark.parametrize("seed", range(12))
def test_any_history_of_changes(seed: int) -> None:
    """Bulk loads, single adds, removals and merges under way, each followed by questions."""
    chance = random.Random(f"history/{seed}")
    index: FilterIndex[int] = FilterIndex()
    filters: dict[int, Filter] = {}
    groups: dict[int, int] = {}
    next_key = 0
    for _ in range(60):
        action = chance.random()
        if action < 0.25:
            added = {next_key + at: random_filter(chance) for at in range(chance.choice([3, 40, 120]))}
            groups |= {key: key % 70 for key in added}
            index.add_many((key, each, groups[key]) for key, each in added.items())
            filters |= added
            next_key += len(added)
        elif action < 0.6:
            for _ in range(chance.randint(1, 20)):
                filters[next_key] = random_filter(chance)
                groups[next_key] = chance.randint(0, 70)
                index.add(next_key, filters[next_key], group=groups[next_key])
                next_key += 1
        else:
            share = chance.choice([0.02, 0.3, 1.0]) if chance.random() < 0.3 else 0.05
            for key in chance.sample(sorted(filters), int(share * len(filters))):
                index.remove(key)
                del filters[key]
        batch = [random_publication(chance) for _ in range(chance.choice([1, 7, 40]))]
        expected = naive.match_batch(filters, batch)
        assert index.match_batch(batch) == expected
        assert index.count_batch(batch).tolist() == [len(keys) for keys in expected]
        assert index.match_groups(batch) == [{groups[key] for key in keys} for keys in expected]
        matrix = index.group_matrix(batch)
        reached = [set(compress(matrix.groups, flags)) for flags in matrix.matrix]
        assert reached == [{groups[key] for key in keys} for keys in expected]
        assert len(index) == len(filters)
    index.compact()
    assert index.match_batch(batch) == expected
    assert index.statistics().filters == len(filters)


def test_many_bounds_share_cells_and_answers_stay_exact() -> None:
    chance = random.Random("cells")
    filters = {}
    for number in range(3000):
        low, high = sorted((chance.uniform(0, 100), chance.uniform(0, 100)))
        filters[number] = Filter(f"x BETWEEN {low!r} AND {high!r} AND word >= '{low:.3f}'")
    index = FilterIndex((key, each, key % 9) for key, each in filters.items())
    bounds = [float(each.text.split()[2]) for each in filters.values()]
    batch = [
        {
            "x": chance.choice([chance.choice(bounds), chance.uniform(-5, 105)]),
            "word": f"{chance.uniform(0, 99):.3f}",
        }
        for _ in range(60)
    ]
    batch += [
        {"x": np.nextafter(bounds[0], 0), "word": "z"},
        {"x": 50},
        {"word": "5"},
        {"x": True, "word": 3},
    ]
    assert index.match_batch(batch) == naive.match_batch(filters, batch)
    assert index.statistics().bytes < 3000 * 2000


def test_large_integers_next_to_their_doubles() -> None:
    base = 2**53
    texts = [
        f"n {operator} {literal}"
        for operator in ("=", "<>", "<", "<=", ">", ">=")
        for literal in (base - 1, base, base + 1, float(base), -base - 1, 2**63 - 1, 7)
    ]
    filters = {text: Filter(text) for text in texts}
    batch = [
        {"n": value}
        for value in (
            base - 1,
            base,
            base + 1,
            base + 2,
            float(base),
            float(base + 2),
            -base,
            -base - 1,
            2**63 - 1,
            7,
        )
    ]
    batch += [
        {"n": Range(base - 1, base + 1)},
        {"n": Range(base + 1, base + 1)},
        {"n": Range(7, float("inf"))},
    ]
    assert_agrees(FilterIndex(filters.items()), filters, batch)
    index = FilterIndex(filters.items())
    for copy in range(40):  # enough for tables by value
        index.add_many(((text, copy), each) for text, each in filters.items())
    expected = [
        keys | {(key, copy) for key in keys for copy in range(40)}
        for keys in naive.match_batch(filters, batch)
    ]
    assert index.match_batch(batch) == expected


def test_keys_may_be_anything_hashable() -> None:
    index: FilterIndex[Any] = FilterIndex()
    for key in (None, 0, "", (1, 2), frozenset()):
        index.add(key, Filter("TRUE"))
    assert index.match({}) == {None, 0, "", (1, 2), frozenset()}
    index.remove(None)
    assert None not in index
    assert len(index) == 4


def test_a_taken_key_is_refused_and_changes_nothing() -> None:
    index: FilterIndex[str] = FilterIndex([("a", Filter("x > 1"))])
    with pytest.raises(IndexKeyError, match="'a' is taken"):
        index.add("a", Filter("x > 2"))
    with pytest.raises(IndexKeyError, match="'b' is taken"):
        index.add_many([("b", Filter("TRUE")), ("b", Filter("TRUE"))])
    with pytest.raises(TypeError, match="needed under the key 'd'"):
        index.add_many([("c", Filter("TRUE")), ("d", "x > 1")])
    assert index.match({"x": 5}) == {"a"}
    assert index["a"] == Filter("x > 1")


def test_an_unknown_key_is_refused() -> None:
    index: FilterIndex[str] = FilterIndex()
    with pytest.raises(IndexKeyError, match="no filter under the key 'a'"):
        index.remove("a")
    index.add("a", Filter("TRUE"))
    index.remove("a")
    with pytest.raises(IndexKeyError):
        index.remove("a")
    with pytest.raises(IndexKeyError):
        _ = index["a"]


def test_the_empty_index() -> None:
    index: FilterIndex[str] = FilterIndex()
    assert index.match({"a": 1}) == set()
    assert index.match_batch([]) == []
    assert index.match_groups([{}, {}]) == [set(), set()]
    assert index.count_batch([{}]).tolist() == [0]
    index.compact()
    assert len(index) == 0


def test_values_that_cannot_be_matched_are_named() -> None:
    index = FilterIndex((number, Filter(f"price > {number}")) for number in range(500))
    with pytest.raises(PublicationError, match=r"'price'.*list"):
        index.match({"price": [1, 2]})
    with pytest.raises(PublicationError, match=r"'price'.*64 bits"):
        index.match({"price": 2**70})


def test_a_batch_longer_than_one_round() -> None:
    filters = {number: Filter(f"a = {number % 50} AND b > {6 * number}") for number in range(100)}
    index = FilterIndex((key, each, key % 3) for key, each in filters.items())
    batch = [{"a": number % 60, "b": number % 700} for number in range(9000)]
    assert index.match_batch(batch) == naive.match_batch(filters, batch)


def test_filters_with_many_boxes_count_once() -> None:
    union = Filter(" OR ".join(f"(a{n} > 1 AND b{n} < 5)" for n in range(120)))
    index = FilterIndex([("union", union), ("other", Filter("a1 > 0"))])
    assert index.statistics().waiting == 2
    for number in range(300):
        index.add(number, Filter(f"z = {number}"))
    publication = {f"{letter}{n}": 3 for n in range(120) for letter in "ab"}
    assert index.match(publication) == {"union", "other"}
    assert index.count_batch([publication] * 20).tolist() == [2] * 20


def test_thousands_of_attributes() -> None:
    filters = {n: Filter(f"a{n} > {n % 7} AND b{n % 300} <= {n % 11}") for n in range(3000)}
    index = FilterIndex(filters.items())
    chance = random.Random("sparse")
    sizes = (("a", 3000), ("b", 300))
    batch = [
        {f"{letter}{chance.randrange(size)}": chance.randint(0, 9) for letter, size in sizes}
        | {f"{letter}{number}": 5 for letter in "ab" for number in range(40)}
        for _ in range(30)
    ]
    assert index.match_batch(batch) == naive.match_batch(filters, batch)


def test_merging_is_spread_over_the_changes() -> None:
    """No single change takes apart more than one step's worth of filters once the tail is short."""
    index: FilterIndex[int] = FilterIndex()
    for number in range(7000):
        index.add(number, Filter(f"a > {number % 97}"))
    statistics = index.statistics()
    assert statistics.filters == 7000
    assert 1 < statistics.segments < 16
    assert statistics.waiting < index_module.TAIL_MAX


@settings(max_examples=20)
@given(seed=st.integers(0, 1000))
def test_groups_that_come_and_go(seed: int) -> None:
    chance = random.Random(seed)
    index: FilterIndex[int] = FilterIndex()
    alive: dict[int, str] = {}
    for number in range(400):
        if alive and chance.random() < 0.45:
            key = chance.choice(sorted(alive))
            index.remove(key)
            del alive[key]
        else:
            alive[number] = f"group {chance.randint(0, number)}"
            index.add(number, Filter("a > 0"), group=alive[number])
    assert index.match_groups([{"a": 1}]) == [set(alive.values())]
    assert index.match_groups([{"a": 0}]) == [set()]


def test_an_item_of_the_wrong_length_is_refused() -> None:
    index: FilterIndex[str] = FilterIndex()
    with pytest.raises(TypeError, match="is needed"):
        index.add_many([("a", Filter("TRUE"), "group", "more")])
    assert len(index) == 0


def test_a_batch_may_come_from_anywhere() -> None:
    index = FilterIndex([("a", Filter("x > 1")), ("b", Filter("x > 5"))])
    assert list(index) == ["a", "b"]
    assert "2 filters" in repr(index)
    assert index.match_batch({"x": n} for n in (1, 3, 7)) == [set(), {"a"}, {"a", "b"}]
    assert index.count_batch(iter([{"x": 9}])).tolist() == [2]
    with pytest.raises(TypeError, match="use match"):
        index.match_batch({"x": 1})  # type: ignore[arg-type]
    with pytest.raises(PublicationError, match="mapping"):
        index.match(None)  # type: ignore[arg-type]


def test_filters_that_come_a_few_at_a_time_end_up_in_one_segment() -> None:
    index: FilterIndex[int] = FilterIndex()
    for first in range(0, 1_000, 50):
        index.add_many((number, Filter(f"price > {number}")) for number in range(first, first + 50))
        while index.unfinished:  # a quiet moment
            index.tidy()
    assert index.statistics().segments == 1
