"""Does an index that was made at once answer as every filter does for itself?"""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest

from braid.language import Filter
from braid.matching import FilterIndex
from braid.matching.bulk import bulk_index
from braid.matching.plain_texts import read_plain_texts
from braid.matching.snapshot import pack, unpack


def filter_texts(chance: random.Random, count: int, attributes: int, kind: str) -> list[str]:
    def condition() -> str:
        name = f"a{chance.randrange(attributes)}"
        low = chance.randrange(30) if kind != "fine" else round(chance.uniform(0, 30), 6)
        if kind == "points" or chance.random() < 0.05:
            return f"{name} = {low}"
        if chance.random() < 0.3:
            return f"{name} {chance.choice(['<', '<=', '>', '>='])} {low}"
        return f"{name} BETWEEN {low} AND {low + chance.randrange(9)}"

    texts = []
    for _ in range(count):
        text = " AND ".join(condition() for _ in range(chance.randint(1, 4)))
        if kind == "mixed" and chance.random() < 0.1:
            text = chance.choice([f"a0 = 'x' AND {text}", f"{text} OR a1 > 20", "a0 + a1 > 30", "a0 IS NULL"])
        texts.append(text)
    return texts


def publications(chance: random.Random, attributes: int) -> list[dict[str, Any]]:
    def value() -> Any:
        return chance.choice(
            [
                chance.randrange(40),
                chance.randrange(40),
                round(chance.uniform(0, 30), 6),
                "x",
                True,
                float("nan"),
                2**60,
                -(2**60),
            ]
        )

    return [
        {f"a{number}": value() for number in range(attributes) if chance.random() < 0.7} for _ in range(60)
    ]


@pytest.mark.parametrize(
    ("kind", "count", "attributes"),
    [("plain", 6000, 5), ("fine", 1500, 3), ("mixed", 800, 4), ("points", 600, 4), ("plain", 300, 40)],
)
@pytest.mark.parametrize("travelled", [False, True])
def test_answers_are_those_of_the_filters(kind: str, count: int, attributes: int, travelled: bool) -> None:
    chance = random.Random(f"{kind}/{count}")
    texts = filter_texts(chance, count, attributes, kind)
    filters = [Filter(text) for text in texts]
    groups = [chance.choice([None, *range(7)]) for _ in texts]
    index = bulk_index(filters, read_plain_texts(texts), groups)
    if travelled:
        index = unpack(pack(index))
    asked = publications(chance, attributes)
    expected = [
        {place for place, each in enumerate(filters) if each.matches(publication)} for publication in asked
    ]
    assert index.match_batch(asked) == expected
    assert index.count_batch(asked).tolist() == [len(found) for found in expected]
    matrix = index.group_matrix(asked)
    for row, found in enumerate(expected):
        reached = {matrix.groups[column] for column in np.flatnonzero(matrix.matrix[row])}
        assert reached == {groups[place] for place in found} - {None}


def test_it_goes_on_as_an_index_that_grew() -> None:
    chance = random.Random(4)
    texts = filter_texts(chance, 700, 3, "mixed")
    index = bulk_index([Filter(text) for text in texts], read_plain_texts(texts))
    grown: FilterIndex[int] = FilterIndex((place, Filter(text)) for place, text in enumerate(texts))
    for step in range(400):
        key = chance.randrange(700)
        for each in (index, grown):
            if key in each:
                each.remove(key)
            each.add(1000 + step, Filter(f"a0 > {step % 40}"))
    asked = publications(chance, 3)
    assert index.match_batch(asked) == grown.match_batch(asked)
    assert len(index) == len(grown)
    index.compact()
    assert index.match_batch(asked) == grown.match_batch(asked)


def test_nothing_and_contradictions() -> None:
    assert len(bulk_index([], read_plain_texts([]))) == 0
    texts = ["a > 5 AND a < 5"] * 3
    index = bulk_index([Filter(text) for text in texts], read_plain_texts(texts))
    assert index.match({"a": 5}) == set()
    assert len(index) == 3
