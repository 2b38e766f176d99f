"""Does every row of a batch go where the paper's steps, taken for that row alone, would send it?"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from braid.routing.multipath import Anchored, MultipathForwarding
from braid.routing.overlay_map import OverlayMap
from braid.routing.paths import PATHS
from braid.routing.working_map import WorkingMap

if TYPE_CHECKING:
    from collections.abc import Hashable

OFF_THE_MAP = "nowhere"


class Local:
    """A destination here."""


@st.composite
def trees(draw: Any, count_max: int = 24) -> list[tuple[str, str]]:
    count = draw(st.integers(2, count_max))
    return [(f"B{draw(st.integers(0, child - 1)):03d}", f"B{child:03d}") for child in range(1, count)]


@st.composite
def situations(draw: Any) -> tuple[WorkingMap, list[tuple[Hashable, list[int]]], int, str | None]:
    """A working map, who wants which rows, how many rows there are, and where they came from."""
    tree = draw(trees())
    brokers = sorted({broker for link in tree for broker in link})
    centre = draw(st.sampled_from(brokers))
    overlay = OverlayMap.of_links(centre, tree, draw(st.integers(1, 6)))
    links = set(overlay.neighbours) | draw(st.sets(st.sampled_from(overlay.brokers)))
    candidates = draw(st.sets(st.sampled_from(overlay.brokers))) & links - set(overlay.neighbours)
    rows = draw(st.sampled_from([1, 1, 2, 7, 40]))
    places = st.sampled_from([*overlay.brokers, OFF_THE_MAP])
    wanted: list[tuple[Hashable, list[int]]] = []
    for anchor in draw(st.lists(places, max_size=8, unique=True)):
        # A subscription may come from elsewhere than the map says, while the network changes.
        straight = anchor != OFF_THE_MAP and draw(st.integers(0, 4))
        origin = overlay.toward(anchor) if straight else draw(st.sampled_from(overlay.neighbours))
        wanted.append((Anchored(origin, anchor), draw(subsets(rows))))
    if draw(st.booleans()):
        wanted.append((draw(st.sampled_from(overlay.neighbours)), draw(subsets(rows))))
    wanted += [(Local(), draw(subsets(rows))) for _ in range(draw(st.integers(0, 2)))]
    came_from = draw(st.none() | st.sampled_from(overlay.neighbours))
    return WorkingMap(overlay, links, candidates), draw(st.permutations(wanted)), rows, came_from


def subsets(rows: int) -> st.SearchStrategy[list[int]]:
    return st.just(list(range(rows))) | st.sets(st.integers(0, rows - 1), min_size=1).map(sorted)


def stand_in(working: WorkingMap, links: set[str], destination: Hashable) -> str | None:
    """The link that stands for a destination: the closest one before it on its path, by walking back."""
    overlay = working.overlay
    if isinstance(destination, str):
        return destination
    if not isinstance(destination, Anchored):
        return None
    if destination.anchor not in overlay or overlay.path(destination.anchor)[0] != destination.origin:
        return destination.origin
    return next(broker for broker in reversed(overlay.path(destination.anchor)) if broker in links)


def naive(
    strategy: str,
    working: WorkingMap,
    wanted: list[tuple[Hashable, list[int]]],
    came_from: str | None,
    row: int,
) -> tuple[set[str], set[str]]:
    """One row's real next hops and what it is meant for, with sets of names instead of bits."""
    overlay, links = working.overlay, set(working.links)
    candidates = set(working.names(working.candidates))
    anchors = {
        link
        for destination, chosen in wanted
        if row in chosen and (link := stand_in(working, links, destination)) is not None
    }
    anchors = {anchor for anchor in anchors if overlay.path(anchor)[0] != came_from}

    def before(link: str) -> set[str]:
        return links & set(overlay.path(link))

    def reduced(hops: set[str]) -> set[str]:
        return {hop for hop in hops if not (before(hop) - {hop}) & hops}

    if strategy == "S2":
        meant = reduced(anchors)
    else:
        # In each direction, the farthest link that all paths have in common.
        meant = set()
        for neighbour in overlay.neighbours:
            there = [anchor for anchor in anchors if overlay.path(anchor)[0] == neighbour]
            if there:
                common = set.intersection(*(before(anchor) for anchor in there))
                meant.add(max(common, key=overlay.distance))
    real = {
        next(broker for broker in reversed(overlay.path(hop)) if broker in links - candidates)
        for hop in meant
    }
    return reduced(real), meant


@pytest.mark.parametrize("strategy", ["S1", "S2"])
@given(situation=situations())
def test_every_row_goes_where_it_would_go_alone(strategy: str, situation: Any) -> None:
    working, wanted, rows, came_from = situation
    sent: Counter[str] = Counter()
    forwarding = MultipathForwarding(
        set(working.overlay.neighbours), lambda link, count: sent.update({link: count})
    )
    forwarding.use(working, PATHS[strategy])
    reached = [
        (destination, None if len(chosen) == rows else np.array(chosen, np.int64))
        for destination, chosen in wanted
    ]
    for _ in range(2):  # the second time from memory
        sent.clear()
        found = forwarding.next_hops(reached, came_from, False, rows)
        hops: dict[Hashable, set[int]] = {}
        for destination, chosen in found:
            assert destination not in hops
            assert chosen is None or 0 < len(chosen) < rows or destination in dict(wanted)
            hops[destination] = set(range(rows)) if chosen is None else set(chosen.tolist())
        expected: dict[Hashable, set[int]] = {}
        meant: Counter[str] = Counter()
        for row in range(rows):
            real, counted = naive(strategy, working, wanted, came_from, row)
            meant.update(counted)
            for hop in real:
                expected.setdefault(hop, set()).add(row)
        for destination, chosen in wanted:
            if isinstance(destination, Local):
                expected[destination] = set(chosen)
        assert hops == expected
        assert sent == meant
        names = [destination for destination, _ in found if isinstance(destination, str)]
        assert names == sorted(names), "links come in an order that is always the same"


@pytest.mark.parametrize("strategy", ["S1", "S2"])
@given(situation=situations())
def test_ordered_publications_and_those_without_a_map_follow_the_tree(strategy: str, situation: Any) -> None:
    working, wanted, rows, came_from = situation
    forwarding = MultipathForwarding(set(working.overlay.neighbours), lambda link, count: None)
    reached = [(destination, np.array(chosen, np.int64)) for destination, chosen in wanted]
    expected: dict[Hashable, set[int]] = {}
    for destination, chosen in wanted:
        hop = destination.origin if isinstance(destination, Anchored) else destination
        if hop != came_from:
            expected.setdefault(hop, set()).update(chosen)

    def hops(ordered: bool) -> dict[Hashable, set[int]]:
        return {
            destination: set(range(rows)) if chosen is None else set(chosen.tolist())
            for destination, chosen in forwarding.next_hops(reached, came_from, ordered, rows)
        }

    assert hops(False) == expected
    forwarding.use(working, PATHS[strategy])
    assert hops(True) == expected
    forwarding.use(working, None)
    assert hops(False) == expected


@pytest.mark.parametrize("strategy", ["S1", "S2"])
@pytest.mark.parametrize("rows", [9, 40])
@pytest.mark.parametrize("count", [61, 63, 65, 128, 130, 132, 200])
def test_more_links_than_a_machine_word_has_bits(strategy: str, count: int, rows: int) -> None:
    """A star whose rays have two brokers each; all but the last ray's outer broker have a soft link."""
    tree = [("A", f"N{ray:03d}") for ray in range(count // 2)]
    tree += [(f"N{ray:03d}", f"O{ray:03d}") for ray in range(count - count // 2)][: count // 2]
    overlay = OverlayMap.of_links("A", tree)
    working = WorkingMap(overlay, set(overlay.brokers) - {overlay.brokers[-1]})
    forwarding = MultipathForwarding(set(overlay.neighbours), lambda link, number: None)
    forwarding.use(working, PATHS[strategy])
    wanted: list[tuple[Hashable, list[int]]] = [
        (Anchored(overlay.toward(broker), broker), [number % 3, 3 + number % 5])
        for number, broker in enumerate(overlay.brokers)
    ]
    reached = [(destination, np.array(sorted(chosen), np.int64)) for destination, chosen in wanted]
    found = {
        hop: set(chosen.tolist()) if chosen is not None else set(range(rows))
        for hop, chosen in forwarding.next_hops(reached, overlay.neighbours[0], False, rows)
    }
    expected: dict[Hashable, set[int]] = {}
    for row in range(rows):
        for hop in naive(strategy, working, wanted, overlay.neighbours[0], row)[0]:
            expected.setdefault(hop, set()).add(row)
    assert found == expected
