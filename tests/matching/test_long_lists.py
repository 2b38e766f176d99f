"""Are filters with many stretches on one attribute matched exactly, where the axis has merged cells?"""

from __future__ import annotations

import random
from typing import Any

import pytest

from braid.language import Filter
from braid.matching import FilterIndex
from braid.matching.axis import EXACT_CELLS_MAX

FILTERS = 60
LENGTH = 40


def _listed(values: list[str]) -> str:
    return f"a IN ({', '.join(values)})"


def _text(chance: random.Random, kind: str) -> str:
    """A filter of many stretches, now and then with something else beside or around them."""
    some = sorted(chance.sample(range(4 * EXACT_CELLS_MAX), LENGTH))
    numbers = [str(number) for number in some]
    strings = [f"'u{number}'" for number in some]
    listed = {
        "numbers": _listed(numbers),
        "strings": _listed(strings),
        "both": f"({_listed(numbers[:20])} OR {_listed(strings[20:])})",
        "large": f"({_listed(numbers)} OR a > {2**60 + some[0]})",
        "ranges": " OR ".join(f"a BETWEEN {low} AND {low + chance.randrange(9)}" for low in some),
    }[kind]
    fate = chance.random()
    if fate < 0.2:
        return f"NOT ({listed})"
    if fate < 0.3:
        return f"({listed}) OR a IS NULL"
    return f"({listed}) AND b > 0" if fate < 0.4 else listed


def _value(chance: random.Random) -> Any:
    number = chance.randrange(4 * EXACT_CELLS_MAX)
    return chance.choice(
        [
            number,
            f"u{number}",
            float(number),
            number + 0.5,
            f"u{number}x",
            True,
            "",
            None,
            2**60 + number,
            -number,
        ]
    )


@pytest.mark.parametrize("kind", ["numbers", "strings", "both", "large", "ranges"])
@pytest.mark.parametrize("seed", range(3))
def test_every_pair_is_what_the_filter_says(seed: int, kind: str) -> None:
    chance = random.Random(f"{seed}/{kind}")
    filters = {number: Filter(_text(chance, kind)) for number in range(FILTERS)}
    index = FilterIndex(filters.items())
    inside = [int(word) for each in filters.values() for word in _numbers_in(each.text)]
    publications = []
    for _ in range(300):
        value = _value(chance) if chance.random() < 0.5 else chance.choice(inside)
        if chance.random() < 0.3 and isinstance(value, int) and value < 4 * EXACT_CELLS_MAX:
            value = f"u{value}"
        values = {"a": value, "b": chance.choice([-1, 1])}
        publications.append({name: each for name, each in values.items() if each is not None})
    rows, slots = index.match_pairs(publications)
    found = set(zip(rows.tolist(), (index.key_of(slot) for slot in slots.tolist()), strict=True))
    expected = {
        (row, key)
        for row, values in enumerate(publications)
        for key, each in filters.items()
        if each.matches(values)
    }
    assert found == expected
    assert len(expected) > 100


def _numbers_in(text: str) -> list[str]:
    words = text.replace("'u", " ").replace("'", " ").replace("(", " ").replace(")", " ").replace(",", " ")
    return [word for word in words.split() if word.isdigit()]
