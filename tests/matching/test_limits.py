"""What happens at the edges: odd keys and groups, refused changes, odd values, very large sets?

Whatever is refused leaves the index as it was, and whatever is accepted is answered as the oracle
answers it, at any size and in any arrangement.
"""

from __future__ import annotations

import gc
import tracemalloc
from collections import ChainMap, OrderedDict, UserDict, defaultdict
from decimal import Decimal
from enum import IntEnum, StrEnum
from random import Random
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from braid.errors import IndexKeyError, PublicationError
from braid.language import Filter, Range
from braid.matching import FilterIndex, naive
from tests.matching.test_index_fuzz import assert_agrees

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

TWO_53 = 2**53


def indexed(texts: list[str]) -> tuple[FilterIndex[int], dict[int, Filter]]:
    """An index that has all its filters in segments, and the filters."""
    filters = dict(enumerate(map(Filter, texts)))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("braid.matching.index.TAIL_MAX", 1)
        index: FilterIndex[int] = FilterIndex(filters.items())
    assert not index.statistics().waiting
    return index, filters


# Keys, groups and changes that are refused.


def test_keys_that_look_like_nothing() -> None:
    keys: list[Any] = [None, False, 1, "", (), frozenset(), float("nan")]
    index: FilterIndex[Any] = FilterIndex((key, Filter("TRUE")) for key in keys)
    assert index.match({}) == set(keys)
    assert index.match_groups([{}]) == [set(keys)]
    for equal in (True, 0, 1.0):
        with pytest.raises(IndexKeyError):
            index.add(equal, Filter("TRUE"))
    for key in keys:
        index.remove(key)
    assert len(index) == 0
    assert index.match({}) == set()


@pytest.mark.parametrize("bulk", [False, True], ids=["add", "add_many"])
@pytest.mark.parametrize("what", ["key", "group", "filter", "taken"])
def test_a_refused_filter_leaves_no_trace(what: str, bulk: bool) -> None:
    index: FilterIndex[Any] = FilterIndex([("old", Filter("a > 1"), "g")])
    key: Any = [] if what == "key" else "old" if what == "taken" else "new"
    group: Any = [] if what == "group" else "h"
    filter: Any = "a > 1" if what == "filter" else Filter("a > 1")

    def add() -> None:
        if bulk:
            index.add_many([("other", Filter("TRUE"), "i"), (key, filter, group)])
        else:
            index.add(key, filter, group=group)

    with pytest.raises(IndexKeyError if what == "taken" else TypeError):
        add()
    assert len(index) == 1
    assert "new" not in index
    assert index.match_batch([{"a": 2}]) == [{"old"}]
    assert index.match_groups([{"a": 2}]) == [{"g"}]
    for name in ("new", "other"):
        index.add(name, Filter("a > 1"), group="h")
        index.remove(name)
    index.remove("old")
    assert len(index) == 0


@pytest.mark.parametrize("count", [3, 700])
def test_an_iterable_that_fails_half_way_leaves_no_trace(count: int) -> None:
    def items() -> Iterator[tuple[object, Filter, str]]:
        for number in range(count):
            yield number, Filter("TRUE"), f"g{number}"
        raise RuntimeError("no more")

    index: FilterIndex[Any] = FilterIndex([("old", Filter("TRUE"), "g0")])
    before = index.statistics()
    with pytest.raises(RuntimeError, match="no more"):
        index.add_many(items())
    assert index.match({}) == {"old"}
    assert index.match_groups([{}]) == [{"g0"}]
    after = index.statistics()
    assert (after.filters, after.segments, after.waiting) == (before.filters, before.segments, before.waiting)
    index.add_many((number, Filter("TRUE"), "g") for number in range(count))
    assert len(index.match({})) == count + 1


def test_filters_can_go_while_their_tail_becomes_a_segment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("braid.matching.index.TAIL_MAX", 40)
    monkeypatch.setattr("braid.matching.plan.FILTERS_AT_ONCE", 4)
    filters = {key: Filter(f"a >= {key}") for key in range(40)}
    index: FilterIndex[int] = FilterIndex()
    for key, each in filters.items():
        index.add(key, each, group=key % 3)
    assert index.statistics().segments == 0
    batch: list[dict[str, Any]] = [{"a": value} for value in range(0, 40, 2)]
    for key in range(0, 40, 3):
        index.remove(key)
        del filters[key]
        assert index.match_batch(batch) == naive.match_batch(filters, batch)
        assert index.match({"a": Range(3, 9)}) == naive.match(filters, {"a": Range(3, 9)})
    assert index.statistics().segments == 1
    for key in list(filters):
        index.remove(key)
    assert index.match_groups(batch) == [set() for _ in batch]
    index.add_many((key, Filter("a > 1")) for key in range(40))
    assert len(index.match({"a": 2})) == 40


def test_all_filters_can_go_while_their_tail_becomes_a_segment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("braid.matching.index.TAIL_MAX", 8)
    monkeypatch.setattr("braid.matching.plan.FILTERS_AT_ONCE", 1)
    index: FilterIndex[int] = FilterIndex()
    for key in range(8):
        index.add(key, Filter("a > 1"))
    for key in range(8):
        index.remove(key)
    index.compact()
    statistics = index.statistics()
    assert (statistics.filters, statistics.segments, statistics.waiting) == (0, 0, 0)


def test_an_interrupted_step_is_taken_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("braid.matching.index.TAIL_MAX", 8)
    monkeypatch.setattr("braid.matching.index.HANDFUL", 0)
    index: FilterIndex[int] = FilterIndex()
    for key in range(7):
        index.add(key, Filter(f"a > {key}"))
    with monkeypatch.context() as patch:
        patch.setattr("braid.matching.plan._taken_apart", _interrupted)
        with pytest.raises(KeyboardInterrupt):
            index.add(7, Filter("a > 7"))
    assert index.match({"a": 5}) == {0, 1, 2, 3, 4}
    index.compact()
    assert index.statistics().segments == 1
    assert index.match({"a": 5}) == {0, 1, 2, 3, 4}


def _interrupted(*_: object) -> None:
    raise KeyboardInterrupt


def test_a_key_can_come_back_at_any_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("braid.matching.index.TAIL_MAX", 4)
    monkeypatch.setattr("braid.matching.index.FANOUT", 2)
    index: FilterIndex[int] = FilterIndex()
    filters: dict[int, Filter] = {}
    for step in range(200):
        key = step % 23
        if key in filters:
            index.remove(key)
            with pytest.raises(IndexKeyError):
                index.remove(key)
        filters[key] = Filter(f"a > {step}")
        index.add(key, filters[key])
        assert index.match({"a": step - 10.5}) == naive.match(filters, {"a": step - 10.5})
    for key in list(filters):
        index.remove(key)
    assert index.match_batch([{"a": 1000}]) == [set()]
    assert index.statistics().filters == 0


# Groups.


@pytest.mark.parametrize("count", [1, 63, 64, 65, 5000])
def test_any_number_of_groups(count: int) -> None:
    filters = {number: Filter(f"a >= {number % 50}") for number in range(max(count, 300))}
    groups = {number: ("group", number % count) for number in filters}
    index: FilterIndex[int] = FilterIndex((key, filters[key], groups[key]) for key in filters)
    assert_agrees(index, filters, groups, [{"a": 0}, {"a": 30}, {"a": 49}, {"a": -1}, {}])


def test_groups_that_come_and_go_are_not_mistaken_for_each_other() -> None:
    random = Random(5)
    index: FilterIndex[int] = FilterIndex()
    filters: dict[int, Filter] = {}
    groups: dict[int, str] = {}
    for step in range(1500):
        filters[step] = Filter(f"a = {step % 7}")
        groups[step] = f"g{step // 10}"
        index.add(step, filters[step], group=groups[step])
        if len(filters) > 300:
            key = random.choice(list(filters))
            index.remove(key)
            del filters[key], groups[key]
        if step % 250 == 249:
            assert_agrees(index, filters, groups, [{"a": value} for value in range(8)])
    assert len(index.group_matrix([{}]).groups) <= 301


# Batches and mappings.


@pytest.mark.parametrize("size", [0, 1, 4096, 4097])
def test_any_size_of_batch(size: int) -> None:
    index, _ = indexed([f"a = {number}" for number in range(300)] + ["TRUE", "FALSE"])
    batch = tuple({"a": number % 400} for number in range(size))
    counts = [2 if number % 400 < 300 else 1 for number in range(size)]
    assert [len(keys) for keys in index.match_batch(batch)] == counts
    assert index.count_batch(batch).tolist() == counts
    assert [len(groups) for groups in index.match_groups(batch)] == counts
    assert index.group_matrix(batch).matrix.shape == (size, 0)


@pytest.mark.parametrize(
    "mapping",
    [MappingProxyType, ChainMap, OrderedDict, UserDict, lambda attributes: defaultdict(int, attributes)],
    ids=["proxy", "chain", "ordered", "user", "default"],
)
def test_any_mapping_is_a_publication(mapping: Callable[[dict[str, Any]], Any]) -> None:
    texts = [f"a = {number}" for number in range(300)] + [f"n{number} > {number}" for number in range(60)]
    index, filters = indexed([*texts, "b IS NULL", "a < n3"])
    batch = [mapping({"a": 5, "n3": 9, "b": None}), mapping({"a": None}), mapping({}), mapping({"n7": 8})]
    assert_agrees(index, filters, {}, batch)
    assert [len(attributes) for attributes in batch] == [3, 1, 0, 1]


# Values.

PATHS = {
    "equality table": [f"a = {number}" for number in range(300)],
    "exact cells": [f"a > {number}" for number in range(50)],
    "merged cells": [f"a > {number / 7}" for number in range(900)],
    "residual": ["a < b"],
    "residual in a table": [f"b = {number} AND a < 2 * b" for number in range(300)],
    "null": ["a IS NULL OR a > 3"],
}


@pytest.mark.parametrize("path", [*PATHS, "waiting"])
@pytest.mark.parametrize(
    "value", [[1], {}, Decimal(5), 2**63, -(2**70), 10**400, b"x", 1j], ids=lambda value: repr(value)[:12]
)
def test_a_value_that_cannot_be_matched_is_refused_wherever_it_is_looked_at(path: str, value: object) -> None:
    if path == "waiting":
        index: FilterIndex[int] = FilterIndex([(0, Filter("a > 1"))])
    else:
        index, _ = indexed(PATHS[path])
    with pytest.raises(PublicationError, match="attribute 'a'"):
        index.match({"a": value, "b": 7})
    with pytest.raises(PublicationError, match="attribute 'a'"):
        index.count_batch([{"a": 5, "b": 7}, {"a": value, "b": 7}])
    assert index.match({"a": 5, "b": 7}) == {
        key for key in range(len(index)) if index[key].matches({"a": 5, "b": 7})
    }


class Level(IntEnum):
    FIVE = 5


class Name(StrEnum):
    FIVE = "s5"


@pytest.mark.parametrize("waiting", [False, True], ids=["segments", "waiting"])
@pytest.mark.parametrize(
    ("odd", "plain"),
    [
        (np.int64(5), 5),
        (np.uint8(5), 5),
        (np.float64(5.0), 5.0),
        (np.float32(5.0), 5.0),
        (np.bool_(True), True),
        (np.str_("s5"), "s5"),
        (np.int64(TWO_53 + 1), TWO_53 + 1),
        (Level.FIVE, 5),
        (Name.FIVE, "s5"),
    ],
    ids=lambda value: f"{type(value).__name__}",
)
@pytest.mark.parametrize(
    "texts",
    [
        [f"a = {number}" for number in range(300)],
        [f"a = 's{number}'" for number in range(300)],
        [f"a > {number}" for number in range(30)],
        ["a < b", "a <> b", "a + 1 > b", "a", "a LIKE '%5'", f"a = {TWO_53 + 1}"],
        [f"a > {number / 7} OR a = 's{number}'" for number in range(900)],
    ],
    ids=["numbers", "strings", "bounds", "residual", "merged"],
)
def test_a_value_of_a_related_type_is_taken_for_what_it_means(
    texts: list[str], odd: Any, plain: Any, waiting: bool
) -> None:
    if waiting:
        index: FilterIndex[int] = FilterIndex(enumerate(map(Filter, texts[:20])))
    else:
        index, _ = indexed(texts)
    assert index.match({"a": odd, "b": 4}) == index.match({"a": plain, "b": 4})


@pytest.mark.parametrize("bad", ["\ud800", "a\udfff"])
def test_half_a_surrogate_pair_is_just_another_string(bad: str) -> None:
    index, filters = indexed(
        [f"s = 'v{number}'" for number in range(300)] + ["s > 'a'", "s LIKE '%a'", "s < 'é'"]
    )
    assert_agrees(index, filters, {}, [{"s": bad}, {"s": "v5"}, {"s": bad + "a"}])


@pytest.mark.parametrize("attributes", [{"a": TWO_53 + 1}, {"a": TWO_53}, {"a": float(TWO_53)}, {"a": 7}])
def test_integers_that_a_double_cannot_tell_apart(attributes: dict[str, Any]) -> None:
    texts = [
        f"a <= {TWO_53} OR a >= {TWO_53 + 2}",
        f"a > 5 AND (a <= {TWO_53} OR a >= {TWO_53 + 2})",
        f"a = {TWO_53 + 1} AND a = {TWO_53}",
        f"a = {TWO_53 + 1} AND a = {float(TWO_53)!r}",
    ]
    for text in texts:
        index, filters = indexed([text])
        assert_agrees(index, filters, {}, [attributes])


def test_a_range_of_one_large_number_holds_the_integer_and_the_double() -> None:
    index, filters = indexed([f"a = {TWO_53 + number}" for number in range(300)])
    batch = [{"a": Range(end, end)} for end in (TWO_53, TWO_53 + 1, TWO_53 + 2, float(TWO_53), 2**62, 5)]
    assert_agrees(index, filters, {}, batch)


BESIDE = {
    "equal": "a = b",
    "unequal": "a <> b",
    "set": "a <> 5 AND a <> 6",
    "null": "a + b IS NULL",
    "either": "(a > 8 OR a < 2 OR a IS NULL)",
    "wide": " AND ".join(f"(a > {number} OR x{number} > 1)" for number in range(11)),
}


@pytest.mark.parametrize("table", [False, True], ids=["blocks", "table"])
@pytest.mark.parametrize("beside", BESIDE)
def test_a_range_is_noticed_wherever_a_filter_looks(beside: str, table: bool) -> None:
    count = 300 if table else 3
    texts = [f"k = 'v{number}' AND {BESIDE[beside]}" if table else BESIDE[beside] for number in range(count)]
    index, filters = indexed(texts)
    wide = {f"x{number}": 2 for number in range(11)}
    batch: list[dict[str, Any]] = [
        {"k": "v2", "a": Range(1, 20), "b": 5},
        {"k": "v2", "a": Range(5, 6), "b": 7},
        {"k": "v2", "a": Range(5, 5), "b": Range(1, 5)},
        {"k": "v2", "a": 3, "b": Range(1, 5)},
        {"k": "v2", "a": Range(0, 1)},
        {"k": "v2", **wide, "a": Range(0, 1)},
        {"k": "v2", **wide, "x3": Range(0, 5)},
        {"k": "v2", **wide, "x3": Range(0, 1), "a": 2},
    ]
    assert_agrees(index, filters, {}, batch)


# Sizes.


def test_long_lists_of_values_in_one_block() -> None:
    random = Random(11)
    lists = [random.sample(range(10**6), 20) for _ in range(2000)]
    index, _ = indexed([f"a IN ({', '.join(map(str, wanted))})" for wanted in lists])
    chosen = [(key, value) for key in range(0, 2000, 40) for value in lists[key][:2]]
    found = index.match_batch([{"a": value} for _, value in chosen])
    for (_, value), keys in zip(chosen, found, strict=True):
        assert keys == {key for key, wanted in enumerate(lists) if value in wanted}


def test_filters_with_hundreds_of_boxes() -> None:
    random = Random(12)
    texts = [
        " OR ".join(f"a = {random.randrange(300)} AND b > {random.randrange(300)}" for _ in range(100))
        for _ in range(20)
    ]
    index, filters = indexed([*texts, "FALSE", "TRUE", "a > 1 AND a < 0"])
    batch: list[dict[str, Any]] = [
        {"a": random.randrange(300), "b": random.randrange(300)} for _ in range(20)
    ]
    batch += [{"a": Range(3, 5), "b": Range(0, 9)}, {"a": 4}, {}]
    assert_agrees(index, filters, {}, batch)
    for key in range(0, 20, 2):
        index.remove(key)
        del filters[key]
    assert_agrees(index, filters, {}, batch)


def test_more_ranks_than_sixteen_bits_hold() -> None:
    random = Random(13)
    count = 33_000
    ends = np.sort(np.array([[random.random(), random.random()] for _ in range(count)]), axis=1)
    index: FilterIndex[int] = FilterIndex(
        (key, Filter(f"a BETWEEN {low!r} AND {high!r}")) for key, (low, high) in enumerate(ends.tolist())
    )
    lows, highs = ends.T

    def expected(low: float, high: float) -> int:
        return int(((lows <= high) & (highs >= low)).sum())

    low = float(lows[7])
    values = [0.5, low, np.nextafter(low, 0).item(), 2.0, -1, 0]
    counts = [expected(value, value) for value in values]
    assert index.count_batch([{"a": value} for value in values]).tolist() == counts
    assert index.count_batch([{"a": Range(-1, low)}, {"a": "x"}, {}]).tolist() == [expected(-1, low), 0, 0]


def test_an_attribute_of_its_own_for_every_filter() -> None:
    index, filters = indexed([f"n{number} > {number % 5}" for number in range(300)])
    batch: list[dict[str, Any]] = [{f"n{number}": 3, f"n{299 - number}": 0} for number in range(20)]
    batch += [{f"n{number}": 9 for number in range(300)}, {"n5": Range(0, 3), "n6": "x"}, {}]
    assert_agrees(index, filters, {}, batch)


# Under changes without end.


def test_small_bulk_loads_do_not_pile_up_segments(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("braid.matching.index.TAIL_MAX", 8)
    index: FilterIndex[int] = FilterIndex()
    for start in range(0, 2000, 8):
        index.add_many((key, Filter(f"a > {key % 50}")) for key in range(start, start + 8))
    assert index.statistics().segments <= 50
    assert len(index.match({"a": 25})) == 1000


def test_wanted_values_that_are_gone_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("braid.matching.index.TAIL_MAX", 16)
    index: FilterIndex[int] = FilterIndex()

    def churn(first: int, last: int) -> int:
        for key in range(first, last):
            index.add(key, Filter(f"a = '{key:01000}'"), group=f"g{key}")
            if key >= 64:
                index.remove(key - 64)
        gc.collect()
        return tracemalloc.get_traced_memory()[0]

    tracemalloc.start()
    try:
        before = churn(0, 500)
        after = churn(500, 2500)
    finally:
        tracemalloc.stop()
    # Each value alone is over 1,000 bytes, and 2,000 came and went.
    assert after - before < 1_000_000
    assert index.match({"a": f"{2499:01000}"}) == {2499}
