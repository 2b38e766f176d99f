"""Does a publication that comes alone get what it gets among others?

That it gets the oracle's answer, in every arrangement of the index, is shown in `test_index_fuzz`.
"""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from braid.errors import PublicationError
from braid.language import Filter, Range
from braid.matching import OwnMatching, naive
from braid.matching.bitsets import bits_of, listed
from braid.matching.matcher import reached_by
from braid.matching.snapshot import pack, unpack
from tests.language.strategies import Maker

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence


class Batch:
    """Publications as a router holds them."""

    def __init__(self, rows: list[dict[str, Any]]) -> None:
        self.memo: Any = None
        self._rows = rows

    def __len__(self) -> int:
        return len(self._rows)

    def attributes(self) -> list[dict[str, Any]]:
        return self._rows

    def records(self) -> list[bytes]:
        return [b""] * len(self._rows)


def index_of(texts: Iterable[str], groups: int = 7) -> OwnMatching:
    index = OwnMatching()
    index.add_many([(f"k{key}", Filter(text), f"g{key % groups}") for key, text in enumerate(texts)])
    return index


def real_bounds(count: int, random: Random) -> list[str]:
    """More different bounds than there are cells, over three attributes."""
    texts = []
    for _ in range(count):
        parts = []
        for name in random.sample("xyz", random.randrange(1, 4)):
            low = random.uniform(0, 100)
            parts.append(f"{name} BETWEEN {low} AND {low + random.uniform(0, 60)}")
        texts.append(" AND ".join(parts))
    return texts


def real_values(count: int, random: Random) -> list[dict[str, Any]]:
    return [
        {name: random.uniform(0, 120) for name in random.sample("xyz", random.randrange(4))}
        for _ in range(count)
    ]


def expected(index: OwnMatching, attributes: dict[str, Any]) -> set[str]:
    return naive.match({key: index[key] for key in index}, attributes)


@given(seed=st.integers(0, 2**32), groups=st.sampled_from([1, 5, 90]))
def test_alone_as_among_others(seed: int, groups: int) -> None:
    random = Random(seed)
    maker = Maker(random)
    index = index_of([maker.filter() for _ in range(random.randrange(1, 60))], groups)
    if random.randrange(2):
        index.compact()
    for key in random.sample(list(index), len(index) // 4):
        index.remove(key)
    batch = [maker.publication() for _ in range(10)]
    together = index.match_batch(batch)
    for attributes, keys in zip(batch, together, strict=True):
        assert index.match(attributes) == keys
        alone = index.reached([Batch([attributes])])
        assert alone == reached_by(index.group_matrix([attributes]))
        assert {group for group, _ in alone} == {f"g{int(key[1:]) % groups}" for key in keys}


@pytest.mark.parametrize("fine", [0, 2**30], ids=["by cell", "by rank"])
@pytest.mark.parametrize("bounds", [0, 2**30], ids=["by filter", "by bounds"])
def test_bounds_that_cut_through_cells(fine: int, bounds: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("braid.matching.bitsets.FINE_BYTES_MAX", fine)
    monkeypatch.setattr("braid.matching.bitsets.BOUNDS_BYTES_MAX", bounds)
    random = Random(1)
    texts = real_bounds(900, random)
    texts += [f"(x < {n} OR x > {n + 20.5}) AND y > {n}" for n in range(60)]
    texts += [f"x > {n} AND x < 2 * y" for n in range(40)]
    index = index_of(texts)
    for attributes in real_values(30, random):
        assert index.match(attributes) == expected(index, attributes)


def test_removed_filters_are_gone_for_publications_that_come_alone() -> None:
    random = Random(2)
    index = index_of(real_bounds(500, random))
    index.compact()
    batch = real_values(10, random)
    for key in [f"k{number}" for number in range(0, 200, 3)]:
        for attributes in batch[:2]:
            index.match(attributes)
        index.remove(key)
    for attributes in batch:
        assert index.match(attributes) == expected(index, attributes)


def test_a_destination_that_takes_the_number_of_one_that_left() -> None:
    index = OwnMatching()
    index.add_many([(f"k{number}", Filter(f"x > {number}"), f"g{number % 3}") for number in range(600)])
    one = [Batch([{"x": 700}])]
    assert [group for group, _ in index.reached(one)] == ["g0", "g1", "g2"]
    for number in range(1, 600, 3):
        index.remove(f"k{number}")
    assert [group for group, _ in index.reached(one)] == ["g0", "g2"]
    index.add_many([("new", Filter("x > 800"), "newcomer")])
    assert [group for group, _ in index.reached(one)] == ["g0", "g2"]
    assert {group for group, _ in index.reached([Batch([{"x": 900}])])} == {"g0", "g2", "newcomer"}


def test_what_is_kept_stays_within_its_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    random = Random(3)
    index = index_of(real_bounds(1000, random))
    index.compact()
    index.count_batch(real_values(2000, random))
    before = index.statistics().bytes
    monkeypatch.setattr("braid.matching.bitsets.KEPT_BYTES_MAX", 10_000)
    for attributes in real_values(300, random):
        index.match(attributes)
        index.match_groups([attributes])
    grown = index.statistics().bytes - before
    assert 0 < grown < 10_000 + 1000 * (4 + 3 * 2 * 2 + 1), grown


def test_a_packed_index_leaves_behind_what_singles_need() -> None:
    random = Random(4)
    index = index_of(real_bounds(600, random))
    batch = real_values(20, random)
    fresh = len(pack(index))
    answers = [index.match(attributes) for attributes in batch]
    assert len(pack(index)) < fresh * 2  # bitmaps have been made, nothing else
    copy = unpack(pack(index))
    assert [copy.match(attributes) for attributes in batch] == answers


def test_impossible_values_are_refused_alone_too() -> None:
    index = index_of(real_bounds(500, Random(5)))
    with pytest.raises(PublicationError, match="elsewhere"):
        index.reached([Batch([{"elsewhere": 2**70}])])
    with pytest.raises(PublicationError, match="x"):
        index.match({"x": [1]})  # type: ignore[dict-item]


def test_a_range_alone_takes_the_way_of_ranges() -> None:
    index = index_of(["x > 10", "x < 5"] * 300, groups=2)
    assert [group for group, _ in index.reached([Batch([{"x": Range(4, 6)}])])] == ["g1"]


@given(st.sets(st.integers(0, 500)))
def test_bits_and_their_places(places: set[int]) -> None:
    flags: Sequence[bool] = [place in places for place in range(501)]

    assert listed(bits_of(np.array(flags))) == sorted(places)
