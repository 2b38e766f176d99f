"""Publications do not pass through the root of a halved space, and no other region is nearly as busy."""

from __future__ import annotations

import random
from collections import Counter
from typing import Any

import pytest

from braid.p2p.dmm import DmmSettings
from braid.p2p.dmm.finding import Finding
from braid.p2p.dmm.regions import State
from braid.p2p.schema import NetworkSchema
from tests.p2p.networks import Network

SCHEMA = NetworkSchema({"a": {"kind": "integer", "low": 0, "high": 1023}})
PUBLICATIONS = 300


def asked(monkeypatch: pytest.MonkeyPatch, **changes: Any) -> Counter[str]:
    """How often each region was asked while publications looked for theirs."""
    found: Counter[str] = Counter()
    network = Network(16, DmmSettings(algorithm="DMM", split_threshold=16, **changes), "ring", SCHEMA)
    for number in range(340):
        network.subscribe(f"p{number % 16}", f"s{number}", f"a BETWEEN {3 * number} AND {3 * number + 2}")
    network.run(10)
    assert network.regions(State.INNER) >= 15
    original = Finding.on_find

    def counted(self: Finding, sender: str, find: Any, now_us: int, *, routed: bool = False) -> None:
        found[find.target[: find.length]] += 1
        original(self, sender, find, now_us, routed=routed)

    monkeypatch.setattr(Finding, "on_find", counted)
    chance = random.Random(2)
    for _ in range(PUBLICATIONS):
        network.publish(f"p{chance.randrange(16)}", {"a": chance.randrange(1024)})
        network.run(0.2)
    return found


@pytest.mark.parametrize(
    ("changes", "share_max"),
    [({"tree_cache": None, "lookup": "climb"}, 1 / 5), ({"tree_cache": None}, 1 / 3), ({}, 1 / 5)],
    ids=["climb", "search", "search with a cache"],
)
def test_the_root_is_no_hotspot(
    changes: dict[str, Any], share_max: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = asked(monkeypatch, **changes)
    assert found[""] == 0
    assert max(found.values()) < share_max * PUBLICATIONS


def test_who_is_told_where_publications_arrive_asks_the_root_once(monkeypatch: pytest.MonkeyPatch) -> None:
    found = asked(monkeypatch, tree_cache=None, acknowledged=True)
    assert 0 < found[""] <= 16 + 2  # one for each peer, and those on their way at the same time
    assert max(found.values()) < PUBLICATIONS / 3


def test_from_the_root_it_would_be_one(monkeypatch: pytest.MonkeyPatch) -> None:
    assert asked(monkeypatch, tree_cache=None, lookup="root")[""] == PUBLICATIONS
