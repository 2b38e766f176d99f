"""Does the index agree with the plain way, whatever is thrown at it?

The oracle is `naive`. Most tests shrink the engine's sizes, so that a few dozen filters already make
tables, merged cells, several blocks per part and merges under way: each path is taken with sets small
enough for the oracle.
"""

from __future__ import annotations

from itertools import compress
from random import Random
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from braid.language import Filter, Range
from braid.language.text import literal_text
from braid.matching import FilterIndex, naive
from tests.language.strategies import BIG_INTEGERS, STRINGS, TWO_53, WILD_FLOATS, Maker

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterator, Mapping, Sequence

# Every size in the engine that decides which path is taken, by arrangement.
TINY = {
    "plan.FILTERS_AT_ONCE": 3,
    "plan.POINT_ROWS_MIN": 4,
    "plan.POINT_VALUES_MIN": 2,
    "plan.POINT_TABLE_MIN": 2,
    "plan.POINT_BLOCK_MIN": 4,
    "plan.TABLE_SIZE_MAX": 8,
    "plan.BLOCK_SIZE_MAX": 16,
    "plan.PART_SIZE_MIN": 2,
    "plan.MANY_ATTRIBUTES": 3,
    "plan.MERGED_CELLS": 3,
    "plan.MERGED_CELLS_OF_MANY": 2,
    "plan.MANY_ROWS": 40,
    "axis.EXACT_CELLS_MAX": 6,
    "axis.REMEMBERED_MAX": 4,
    "block.CHUNK_WORDS": 4,
    "lane.CELLS_AT_ONCE": 2,
    "equality.CANDIDATES_AT_ONCE": 5,
    "segment.MANY_ATTRIBUTES": 2,
    "index.FEW_PUBLICATIONS": 2,
    "tail.FEW_PUBLICATIONS": 2,
    "tail.FEW_PAIRS": 4,
    "tail.EVALUATION_COST": 1,
    "tail.REMOVED_MIN": 2,
    "index.TAIL_MAX": 8,
    "index.TAIL_COST_MAX": 8,
    "index.HANDFUL": 2,
    "index.FANOUT": 2,
    "index.BATCH_MAX": 7,
    "index.MATRIX_GROUPS_MAX": 3,
    "index.SINGLES_MAX": 2,
    "bitsets.FEW_BITS": 1,
    "bitsets.KEPT_BYTES_MAX": 64,
    "bitsets.FINE_BYTES_MAX": 0,
    "single.MASKS_MAX": 1,
    "single.FEW_SLOTS": 2,
}
ARRANGEMENTS = {
    "tiny": TINY,
    "merged blocks": TINY
    | {"plan.POINT_ROWS_MIN": 10**9, "axis.EXACT_CELLS_MAX": 0, "bitsets.BOUNDS_BYTES_MAX": 0},
    "large blocks": {
        "plan.POINT_ROWS_MIN": 10**9,
        "axis.EXACT_CELLS_MAX": 0,
        "plan.MERGED_CELLS": 7,
        "index.TAIL_MAX": 5,
        "bitsets.FINE_BYTES_MAX": 0,
    },
    "fine blocks": {
        "plan.POINT_ROWS_MIN": 10**9,
        "axis.EXACT_CELLS_MAX": 0,
        "plan.MERGED_CELLS": 7,
        "plan.BLOCK_SIZE_MAX": 16,
        "index.TAIL_MAX": 5,
        "index.SINGLES_MAX": 10**9,
    },
    "tables": {
        "plan.POINT_ROWS_MIN": 4,
        "plan.POINT_VALUES_MIN": 2,
        "plan.POINT_TABLE_MIN": 2,
        "index.TAIL_MAX": 5,
    },
    "blocks by value": TINY | {"plan.POINT_BLOCK_MIN": 1, "axis.EXACT_CELLS_MAX": 640},
    "waiting": TINY | {"index.TAIL_MAX": 10**9, "index.TAIL_COST_MAX": 10**9},
    "arrays alone": TINY | {"index.SINGLES_MAX": 0},
    "too wide": TINY | {"bitsets.ABSENCE_BYTES_MAX": 0},
    "as it is": {},
}


# Where integers stop being doubles of their own, and where they end.
EDGES: list[int | float] = [
    *range(TWO_53 - 1, TWO_53 + 4),
    *range(-TWO_53 - 2, -TWO_53 + 1),
    *(2**63 - 1, 2**63 - 512, -(2**63), 2**62, 2**62 + 1),
    *(float(TWO_53), float(TWO_53 + 2), -float(TWO_53), 2.0**62, 2.0**63, -(2.0**63), 1e19),
]


def arrange(patch: pytest.MonkeyPatch, sizes: Mapping[str, int]) -> None:
    for name, size in sizes.items():
        patch.setattr(f"braid.matching.{name}", size)


@pytest.fixture(params=ARRANGEMENTS)
def arranged(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Runs a test once per arrangement."""
    arrange(monkeypatch, ARRANGEMENTS[request.param])
    return str(request.param)


def assert_agrees(
    index: FilterIndex[Any],
    filters: Mapping[Any, Filter],
    groups: Mapping[Any, Hashable],
    batch: Sequence[Mapping[str, Any]],
) -> None:
    """Every way of asking gives the oracle's answer. `groups` has the keys with a group."""
    wanted = naive.match_batch(filters, batch)
    found = index.match_batch(batch)
    for attributes, right, answer in zip(batch, wanted, found, strict=True):
        extra = [filters[key] for key in answer - right]
        missing = [filters[key] for key in right - answer]
        assert not extra, f"too many for {attributes}: {extra[:3]}"
        assert not missing, f"not found for {attributes}: {missing[:3]}"
    assert index.count_batch(batch).tolist() == [len(keys) for keys in wanted]
    publications, slots = index.match_pairs(batch)
    pairs = {
        (row, index.key_of(slot)) for row, slot in zip(publications.tolist(), slots.tolist(), strict=True)
    }
    assert pairs == {(row, key) for row, keys in enumerate(wanted) for key in keys}
    assert (np.diff(publications) >= 0).all()
    assert index.match_groups(batch) == [{groups.get(key, key) for key in keys} for keys in wanted]
    matrix = index.group_matrix(batch)
    assert matrix.matrix.shape == (len(batch), len(matrix.groups))
    for flags, keys in zip(matrix.matrix, wanted, strict=True):
        named = {group for group, flag in zip(matrix.groups, flags.tolist(), strict=True) if flag}
        assert named == {groups[key] for key in keys if key in groups}
    for attributes, keys in zip(batch, wanted, strict=True):  # and alone as together with others
        assert index.match(attributes) == keys, attributes
        assert index.match_groups([attributes]) == [{groups.get(key, key) for key in keys}], attributes
        matrix = index.group_matrix([attributes])
        named = set(compress(matrix.groups, matrix.matrix[0].tolist()))
        assert named == {groups[key] for key in keys if key in groups}, attributes
    assert len(index) == len(filters)


def loaded(filters: Mapping[Any, Filter], groups: Mapping[Any, Hashable], random: Random) -> FilterIndex[Any]:
    """An index of these filters: part of them added at once, part one by one."""
    items = [(key, filter, groups.get(key)) for key, filter in filters.items()]
    at = random.randrange(len(items) + 1)
    index: FilterIndex[Any] = FilterIndex(items[:at])
    for key, filter, group in items[at:]:
        index.add(key, filter, group=group)
    return index


def check(filters: Sequence[str], batch: Sequence[Mapping[str, Any]], random: Random) -> None:
    """Compare before, during and after changes to the index."""
    random = Random(random.random())
    by_key: dict[Any, Filter] = dict(enumerate(map(Filter, filters)))
    style = random.randrange(3)
    groups = {key: f"g{key % (5 if style else 70)}" for key in by_key if style < 2 or key % 2}
    index = loaded(by_key, groups, random)
    assert_agrees(index, by_key, groups, batch)
    for key in random.sample(sorted(by_key), len(by_key) // 3):
        index.remove(key)
        del by_key[key]
        groups.pop(key, None)
    assert_agrees(index, by_key, groups, batch)
    index.compact()
    assert_agrees(index, by_key, groups, batch)


# Generators.


class Crowd:
    """Filters and publications whose values meet often: equalities, sets, bounds of all kinds."""

    def __init__(
        self, random: Random, *, ranges: bool, names: Sequence[str] = "abcd", edges: bool = False
    ) -> None:
        self.random = random
        self.ranges = ranges
        self.names = names
        self.edges = edges

    def number(self) -> int | float:
        if self.edges and self.random.randrange(3):
            return self.random.choice(EDGES)
        pools: list[Sequence[int | float]] = [range(-3, 12), range(-3, 12), BIG_INTEGERS, WILD_FLOATS]
        pools.append([-0.0, 0.5, 1.0, 2.0, 2.5, 3.0000000000000004, 7.0])
        return self.random.choice(self.random.choice(pools))

    def value(self) -> Any:
        choice = self.random.randrange(20)
        if choice < 10:
            return self.number()
        if choice < 14:
            return self.random.choice(STRINGS)
        if choice < 16:
            return self.random.choice([True, False])
        if choice < 17:
            return self.random.choice([float("nan"), float("inf"), float("-inf"), None])
        return self.range() if self.ranges and choice < 19 else self.number()

    def range(self) -> Range:
        low, high = sorted([self.number(), self.number()])
        choice = self.random.randrange(8)
        if choice == 0:
            return Range(low, low)
        if choice == 1:
            return Range(float("-inf"), high)
        return Range(low, float("inf")) if choice == 2 else Range(low, high)

    def publication(self) -> dict[str, Any]:
        return {name: self.value() for name in self.names if self.random.randrange(5)}

    def literal(self) -> str:
        choice = self.random.randrange(10)
        if choice < 6:
            return literal_text(self.number())
        return (
            literal_text(self.random.choice(STRINGS)) if choice < 9 else self.random.choice(["TRUE", "FALSE"])
        )

    def leaf(self) -> str:
        name = self.random.choice(self.names)
        other = self.random.choice(self.names)
        choice = self.random.randrange(20)
        if choice < 7:
            return f"{name} = {self.literal()}"
        if choice < 11:
            return f"{name} {self.random.choice(['<', '<=', '>', '>=', '<>'])} {self.literal()}"
        if choice < 14:
            size = self.random.choice([1, 2, 3, 3, 9, 20])
            words = "NOT IN" if choice == 13 else "IN"
            return f"{name} {words} ({', '.join(self.literal() for _ in range(size))})"
        if choice < 15:
            return f"{name} LIKE {self.random.choice(['a%', '%b', 'a_c', 'ab%c', '%'])!r}"
        if choice < 17:
            return f"({name} IS NULL OR {name} > {self.literal()})"
        if choice < 18:
            return f"({name} < {self.literal()} OR {name} >= {self.literal()})"
        if choice < 19:
            return f"{name} < 2 * {other} + 1"
        return self.random.choice([f"{name} IS NOT NULL", f"{name} IS NULL", name, f"{name} = {other}"])

    def filter(self) -> str:
        if self.random.randrange(40) == 0:
            return self.random.choice(["TRUE", "FALSE", "a > 3 AND a < 2", "a = NULL"])
        parts = [
            " AND ".join(self.leaf() for _ in range(self.random.choice([1, 1, 2, 2, 3])))
            for _ in range(self.random.choice([1, 1, 1, 2, 3]))
        ]
        return " OR ".join(parts)


# Tests.


@pytest.mark.parametrize("ranges", [False, True], ids=["points", "ranges"])
@pytest.mark.parametrize("seed", [0])
def test_a_crowd_of_filters_over_few_attributes(arranged: str, seed: int, ranges: bool) -> None:
    random = Random(f"{arranged} {seed} {ranges}")
    crowd = Crowd(random, ranges=ranges)
    filters = [crowd.filter() for _ in range(40 if ranges else 100)]
    check(filters, [crowd.publication() for _ in range(20)], random)


@pytest.mark.parametrize("seed", range(2))
def test_whatever_the_language_can_say(arranged: str, seed: int) -> None:
    random = Random(f"{arranged} {seed}")
    maker = Maker(random)
    batch: list[dict[str, Any]] = [maker.publication() for _ in range(12)]
    for attributes in batch[::4]:
        attributes.update({name: maker.range() for name in ("i", "x") if random.randrange(2)})
    check([maker.filter() for _ in range(60)], batch, random)


@pytest.mark.parametrize("edges", [False, True], ids=["anything", "edges"])
def test_one_attribute_with_everything_on_it(arranged: str, edges: bool) -> None:
    random = Random(f"{arranged} {edges}")
    crowd = Crowd(random, ranges=True, names="a", edges=edges)
    filters = [crowd.filter() for _ in range(120)]
    check(filters, [{"a": crowd.value()} for _ in range(30)], random)


@pytest.mark.parametrize("seed", range(3))
def test_integers_and_doubles_where_they_part(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("braid.matching.index.TAIL_MAX", 1)
    random = Random(seed)
    crowd = Crowd(random, ranges=True, names="a", edges=True)
    batch = [{"a": value} for value in EDGES]
    batch += [{"a": Range(value, value)} for value in EDGES]
    batch += [{"a": crowd.range()} for _ in range(10)]
    for _ in range(25):
        literals = [literal_text(random.choice(EDGES)) for _ in range(4)]
        operators = [random.choice(["<", "<=", ">", ">=", "=", "<>"]) for _ in range(4)]
        parts = [f"a {operator} {literal}" for operator, literal in zip(operators, literals, strict=True)]
        words = random.choices([" AND ", " OR "], k=3)
        text = parts[0] + "".join(word + part for word, part in zip(words, parts[1:], strict=True))
        # One filter at a time: bounds of others must not be needed to get it right.
        index = FilterIndex([(0, Filter(text), "g")])
        assert_agrees(index, {0: Filter(text)}, {0: "g"}, batch)


@pytest.mark.parametrize("seed", range(2))
def test_equalities_with_anything_beside_them(arranged: str, seed: int) -> None:
    random = Random(f"{arranged} {seed}")
    crowd = Crowd(random, ranges=True, names="abc")
    for count in (6, 12, 40):
        keys = range(count // 4, count // 2)
        filters = [f"k = {random.choice(keys)} AND {crowd.leaf()}" for _ in range(count)]
        batch = [{"k": random.choice(keys), **crowd.publication()} for _ in range(15)]
        batch[0]["k"] = Range(keys[0], keys[1] if len(keys) > 1 else 9)
        batch[1]["k"] = Range(keys[0], keys[0])
        batch[2]["k"] = float(keys[0])
        check(filters, batch, random)


@pytest.mark.parametrize("seed", [0])
def test_very_many_attributes_few_of_them_in_each_publication(arranged: str, seed: int) -> None:
    random = Random(f"{arranged} {seed}")
    names = [f"n{number}" for number in range(120)]
    crowd = Crowd(random, ranges=False, names=names)
    ranged = Crowd(random, ranges=True, names=names)
    batch = []
    for number in range(20):
        maker = ranged if number % 5 == 0 else crowd
        batch.append({name: maker.value() for name in random.sample(names, random.choice([0, 1, 5, 40]))})
    check([crowd.filter() for _ in range(100)], batch, random)


@pytest.mark.parametrize("kind", ["integers", "floats", "strings", "large", "mixed"])
def test_more_bounds_than_an_attribute_has_cells(kind: str) -> None:
    random = Random(kind)
    makers = {
        "integers": lambda: random.randrange(5_000),
        "floats": lambda: random.uniform(-100, 100),
        "strings": lambda: "".join(random.choices("abc", k=random.randrange(1, 8))),
        "large": lambda: random.choice([-1, 1]) * (2**53 + random.randrange(-500, 3_000)),
    }
    chosen = list(makers.values()) if kind == "mixed" else [makers[kind]]

    def literal() -> str:
        return literal_text(random.choice(chosen)())

    filters = []
    for _ in range(900):
        operator = random.choice(["<", "<=", ">", ">=", "<>", "BETWEEN", "NULL"])
        if operator == "BETWEEN":
            low, high = sorted([literal(), literal()])
            filters.append(f"v BETWEEN {low} AND {high} OR v = {literal()}")
        elif operator == "NULL":
            filters.append(f"v IS NULL OR v < {literal()} OR v = TRUE")
        else:
            filters.append(f"v {operator} {literal()}")
    batch: list[dict[str, Any]] = [{"v": random.choice(chosen)()} for _ in range(20)]
    batch += [{}, {"v": True}, {"v": False}, {"v": float("nan")}, {"v": float("inf")}, {"v": -0.0}]
    index: FilterIndex[int] = FilterIndex(enumerate(map(Filter, filters)))
    by_key = dict(enumerate(map(Filter, filters)))
    assert_agrees(index, by_key, {}, batch)


class Churn(RuleBasedStateMachine):
    """Any order of adding, removing, compacting and matching, with merges under way in between."""

    def __init__(self) -> None:
        super().__init__()
        self.patch = pytest.MonkeyPatch()
        self.filters: dict[Any, Filter] = {}
        self.groups: dict[Any, Hashable] = {}
        self.added = 0

    @initialize(seed=st.integers(0, 2**32), arrangement=st.sampled_from(sorted(ARRANGEMENTS)))
    def begin(self, seed: int, arrangement: str) -> None:
        arrange(self.patch, ARRANGEMENTS[arrangement])
        self.random = Random(seed)
        self.crowd = Crowd(self.random, ranges=True, names="abc")
        self.index: FilterIndex[Any] = FilterIndex()

    def make(self, count: int) -> Iterator[tuple[int, Filter, Hashable]]:
        for _ in range(count):
            key, filter = self.added, Filter(self.crowd.filter())
            self.added += 1
            group = self.random.choice([None, "x", "y", self.random.randrange(100)])
            self.filters[key] = filter
            if group is not None:
                self.groups[key] = group
            yield key, filter, group

    @rule(count=st.integers(1, 12))
    def add(self, count: int) -> None:
        for key, filter, group in self.make(count):
            self.index.add(key, filter, group=group)

    @rule(count=st.integers(0, 30))
    def add_many(self, count: int) -> None:
        self.index.add_many(list(self.make(count)))

    @rule(share=st.sampled_from([0.1, 0.5, 1.0]))
    def remove(self, share: float) -> None:
        for key in self.random.sample(sorted(self.filters), int(len(self.filters) * share)):
            self.drop(key)

    def drop(self, key: Any) -> None:
        self.index.remove(key)
        del self.filters[key]
        self.groups.pop(key, None)

    @rule()
    def replace(self) -> None:
        for key in self.random.sample(sorted(self.filters), len(self.filters) // 4):
            self.drop(key)
            self.filters[key] = Filter(self.crowd.filter())
            self.index.add(key, self.filters[key])

    @rule()
    def compact(self) -> None:
        self.index.compact()

    @rule(count=st.integers(0, 9))
    def match(self, count: int) -> None:
        batch = [self.crowd.publication() for _ in range(count)]
        assert_agrees(self.index, self.filters, self.groups, batch)

    @invariant()
    def knows_its_keys(self) -> None:
        if hasattr(self, "index"):
            assert len(self.index) == len(self.filters) == self.index.statistics().filters

    def teardown(self) -> None:
        self.patch.undo()


TestChurn = Churn.TestCase
TestChurn.settings = settings(max_examples=12, stateful_step_count=15, deadline=None, derandomize=True)
