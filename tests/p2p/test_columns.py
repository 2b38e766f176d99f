"""The columns of a region's boxes say what a plain loop over the boxes says."""

from __future__ import annotations

import random

import pytest

from braid.p2p.dmm.columns import Columns
from braid.p2p.dmm.interests import Interests
from braid.p2p.dmm.messages import Entry
from braid.p2p.dmm.settings import DmmSettings
from braid.p2p.dmm.tables import Bundle
from braid.p2p.space import Space, boxes_meet
from tests.language.strategies import Maker


@pytest.mark.parametrize("seed", range(5))
def test_columns_say_what_the_plain_loop_says(seed: int) -> None:
    """Filters of the whole language, in domains of 64 bits."""
    maker = Maker(random.Random(seed))
    interests = Interests(DmmSettings())
    bundles: dict[Space, list[Bundle]] = {}
    for number in range(300):
        text = maker.filter()
        for term, place in enumerate(interests.of(text).places):
            holders = bundles.setdefault(place.space, [Bundle(), Bundle()])
            holders[number % 2].add(Entry(f"e{number}#{term}", text, term))
    met = 0
    for space, holders in bundles.items():
        columns = Columns(space, holders, interests)
        for _ in range(20):
            box = space.box_of(maker.publication())
            wanted = [
                entry.name
                for holder in holders
                for entry in holder.entries.values()
                if boxes_meet(interests.box(entry), box)
            ]
            found = columns.meeting(box)
            assert [entry.name for _, entry in found] == wanted
            assert all(entry.name in holder.entries for holder, entry in found)
            met += len(found)
    assert met > 300


def test_nothing_is_met_where_nothing_is() -> None:
    interests = Interests(DmmSettings())
    for names in ([], [("a", "number")], [("a", "number"), ("b", "string")]):
        space = interests.spaces.of(names)
        assert Columns(space, [Bundle()], interests).meeting(space.box_of({"a": 1})) == []
