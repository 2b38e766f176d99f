"""Filters with a single bound: what they reach is told from one cell, and must stay true as they go."""

import random

import numpy as np
import pytest

from braid.language import Filter
from braid.matching import FilterIndex
from braid.matching.answers import GroupLayout
from braid.matching.axis import Axis
from braid.matching.sight import FirstSight


def _reached(index: FilterIndex[int], publications: list[dict[str, float]]) -> list[set[object]]:
    found = index.group_matrix(publications)
    return [{found.groups[column] for column in np.flatnonzero(line)} for line in found.matrix]


def _expected(filters: dict[int, tuple[Filter, int]], publication: dict[str, float]) -> set[object]:
    return {group for each, group in filters.values() if each.matches(publication)}


def _publications(random: random.Random, whole: bool, size: int = 60) -> list[dict[str, float]]:
    value = (lambda: random.randint(-3, 40)) if whole else (lambda: random.uniform(-3, 40))
    return [{name: value() for name in "abc" if random.random() < 0.6} for _ in range(size)]


def _text(random: random.Random, whole: bool) -> str:
    def bound() -> str:
        low = random.randint(0, 30) if whole else random.uniform(0, 30)
        kinds = [f"BETWEEN {low} AND {low + 3}", f"> {low + 8}", f"<= {low - 20}", f"= {low}"]
        return f"{random.choice('abc')} {random.choice(kinds)}"

    return " AND ".join(bound() for _ in range(random.choice([1, 1, 2])))


@pytest.mark.parametrize("whole", [True, False])
@pytest.mark.parametrize("groups", [5, 64, 130])
def test_destinations_stay_right_while_filters_go(whole: bool, groups: int) -> None:
    random_ = random.Random(f"{whole}/{groups}")
    filters = {
        key: (Filter(_text(random_, whole)), random_.randrange(groups)) for key in range(900 + 6 * groups)
    }
    index: FilterIndex[int] = FilterIndex((key, *each) for key, each in filters.items())
    new_group = 1000
    for _ in range(6):
        publications = _publications(random_, whole)
        assert _reached(index, publications) == [_expected(filters, each) for each in publications]
        for key in random_.sample(sorted(filters), len(filters) // 12):
            del filters[key]
            index.remove(key)
        # Groups that were emptied hand their numbers to new ones.
        for key in [key for key, (_, group) in filters.items() if group == new_group % groups]:
            del filters[key]
            index.remove(key)
        new_group += 1
        filters[new_group * 10_000] = (Filter("a > 1000"), new_group)
        index.add(new_group * 10_000, *filters[new_group * 10_000][:1], group=new_group)


def test_first_sight_knows_only_whole_cells() -> None:
    bounds = np.array([[low, low + 50] for low in range(0, 40_000, 7)], np.int64)
    axis = Axis("a", bounds.ravel())
    assert not axis.exact
    rows = np.arange(len(bounds))
    assert FirstSight.made(axis, rows, rows % 3, bounds) is None  # each is narrower than a cell
    bounds[:, 1] += 2_000
    wider = Axis("a", bounds.ravel())
    sight = FirstSight.made(wider, rows, rows % 3, bounds)
    assert sight is not None
    assert sight.reached(np.array([0, 1, 2])).tolist() == [[0], [0], [0]]
    lows, highs = wider.plain_ranks(bounds[:, 0], bounds[:, 1])
    for cell in range(3, wider.cells):
        surely = (lows <= wider.cell_starts[cell]) & (highs >= wider.cell_starts[cell + 1])
        expected = sum(1 << group for group in {*(rows[surely] % 3).tolist()})
        assert sight.reached(np.array([cell]))[0, 0] == expected


def test_first_sight_pays_only_with_enough_filters() -> None:
    bounds = np.array([[low, low + 100] for low in range(20)], np.int64)
    axis = Axis("a", bounds.ravel())
    rows = np.arange(len(bounds))
    assert FirstSight.made(axis, rows, rows, bounds) is not None
    assert FirstSight.made(axis, rows, rows * 40, bounds) is None
    assert FirstSight.made(axis, rows, np.full(len(rows), -1), bounds) is None


@pytest.mark.parametrize("seed", range(20))
def test_group_layout_finds_the_destinations_of_bits(seed: int) -> None:
    random_ = np.random.default_rng(seed)
    size = int(random_.integers(1, 600))
    groups = np.sort(random_.geometric(random_.uniform(0.02, 0.7), size) - 2).astype(np.int32)
    flags = np.zeros((7, (size + 63) // 64 * 64), np.bool_)
    flags[:, :size] = random_.random((7, size)) < 0.05
    layout = GroupLayout(groups)
    reached = layout.reached(np.packbits(flags, axis=1, bitorder="little").view(np.uint64))
    assert sorted(layout.groups.tolist()) == sorted(set(groups[groups >= 0].tolist()))
    for group, line in zip(layout.groups, reached, strict=True):
        assert (line == flags[:, :size][:, groups == group].any(axis=1)).all()


@pytest.mark.parametrize(
    "values",
    [
        [3, 17, 900],
        [3.0, float("nan"), -0.0, float("inf"), 1e300],
        [1, 2.5, -7, 1023, 1024, 5000],
        [2**53, 2**53 + 1, -(2**60), 4],
        [1.5, None, 3],
        [True, 1, "x", 2.0],
    ],
)
def test_batches_of_numbers_become_columns_like_any_other(values: list[object]) -> None:
    texts = [
        "a > 2",
        "a < 1000 AND b > 2",
        "b = 9007199254740993",
        "a IS NULL",
        "b = 3",
        "NOT (a >= 0)",
        "c != 2.5",
        "a = 1024",
        "b > 4.5 OR c < 0",
        "c > 1e200",
        "b IS NOT NULL AND a IS NULL",
    ]
    filters = [Filter(text) for text in texts for _ in range(40)]
    index: FilterIndex[int] = FilterIndex((key, each, key % 7) for key, each in enumerate(filters))
    random_ = random.Random(7)
    publications = [
        {name: random_.choice(values) for name in random_.sample(["b", "a", "c", "unknown"], 2)}
        for _ in range(200)
    ]
    publications[5] = {}
    expected = [{key for key, each in enumerate(filters) if each.matches(row)} for row in publications]
    assert index.match_batch(publications) == expected
    assert index.count_batch(publications).tolist() == [len(each) for each in expected]
    assert index.match_groups(publications) == [{key % 7 for key in each} for each in expected]
