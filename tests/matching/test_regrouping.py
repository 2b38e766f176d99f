"""Do filters that got another group answer for that one, and for no other?"""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

import pytest

from braid.errors import IndexKeyError
from braid.language import Filter
from braid.matching import FilterIndex
from braid.matching.matcher import OwnMatching
from braid.matching.shared import SharedMatching

if TYPE_CHECKING:
    from braid.matching.matcher import Matcher

GROUPS = ["north", "south", "east", "west"]


def some_filter(chance: random.Random) -> Filter:
    low = chance.randrange(50)
    return Filter(
        chance.choice(
            [
                f"a > {low}",
                f"a BETWEEN {low} AND {low + 9}",
                f"b = {low}",
                f"a < {low} AND b = {low % 7}",
                f"c LIKE 'x{low}%'",
                "TRUE",
            ]
        )
    )


def publication(chance: random.Random) -> dict[str, object]:
    return {"a": chance.randrange(50), "b": chance.randrange(50), "c": f"x{chance.randrange(50)}y"}


def made(kind: str) -> Matcher:
    return OwnMatching() if kind == "own" else SharedMatching().view("here")


@pytest.mark.parametrize("kind", ["own", "shared"])
@pytest.mark.parametrize("seed", range(4))
def test_against_every_filter_asked_by_itself(kind: str, seed: int) -> None:
    chance = random.Random(f"regrouping/{seed}")
    matcher = made(kind)
    known: dict[str, tuple[Filter, str]] = {}
    number = 0
    for _ in range(60):
        deed = chance.random()
        if deed < 0.4 or not known:
            items = []
            for _ in range(chance.choice([1, 5, 400])):
                number += 1
                items.append((f"k{number}", some_filter(chance), chance.choice(GROUPS)))
            matcher.add_many(items)
            known |= {key: (filter, group) for key, filter, group in items}
        elif deed < 0.5:
            for key in chance.sample(sorted(known), min(len(known), chance.choice([1, 30]))):
                matcher.remove(key)
                del known[key]
        elif deed < 0.9:
            group = chance.choice([*GROUPS, f"new {number}"])
            keys = chance.sample(sorted(known), min(len(known), chance.choice([1, 20, 200, 2_000])))
            matcher.regroup(keys, group)
            known |= {key: (known[key][0], group) for key in keys}
        else:
            for _ in range(chance.randrange(20)):
                matcher.tidy()
        for size in (1, chance.randrange(2, 40)):
            batch = [publication(chance) for _ in range(size)]
            found = matcher.group_matrix(batch)
            for row, values in enumerate(batch):
                expected = {group for filter, group in known.values() if filter.matches(values)}
                named = {found.groups[column] for column in found.matrix[row].nonzero()[0].tolist()}
                assert named == expected


def test_one_of_the_groups_may_come_to_nothing_and_be_used_again() -> None:
    index: FilterIndex[str] = FilterIndex([("a", Filter("x > 1"), "old"), ("b", Filter("x > 5"), "other")])
    index.regroup(["a"], "new")
    assert index.match_groups([{"x": 3}]) == [{"new"}]
    index.regroup(["a", "b"], "old")
    assert index.match_groups([{"x": 9}]) == [{"old"}]


def test_a_key_that_is_not_there_changes_nothing() -> None:
    index: FilterIndex[str] = FilterIndex([("a", Filter("x > 1"), "old")])
    with pytest.raises(IndexKeyError):
        index.regroup(["a", "b"], "new")
    assert index.match_groups([{"x": 3}]) == [{"old"}]
