"""Overlay maps against the worked examples of the multipath paper, and against its steps taken literally."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from braid.errors import LocalProtocolError
from braid.routing.overlay_map import OverlayMap
from braid.routing.paths import along_the_intersection, straight_to_anchors
from braid.routing.surroundings import Place, Surroundings
from braid.routing.working_map import WorkingMap

if TYPE_CHECKING:
    from collections.abc import Iterable

# Figure 3: A is the centre; X5 lies one hop beyond N4, out of A's sight with delta 4.
FIGURE_3 = [
    ("A", "N1"),
    ("A", "N2"),
    ("N1", "X1"),
    ("X1", "N3"),
    ("N1", "X3"),
    ("X3", "X4"),
    ("X4", "N4"),
    ("N4", "X5"),
    ("N2", "X2"),
]
# Figure 2: a publication at A matches N3, N5 and N6.
FIGURE_2 = [("A", "N1"), ("N1", "N2"), ("N2", "N3"), ("N2", "N4"), ("N4", "N5"), ("N4", "N6")]


def bits(working: WorkingMap, brokers: Iterable[str]) -> int:
    return sum(1 << number for broker in brokers if (number := working.number(broker)) is not None)


def figure_3() -> WorkingMap:
    return WorkingMap(OverlayMap.of_links("A", FIGURE_3, 4), {"N1", "N2", "N3", "N4"})


def test_the_working_map_of_figure_4():
    working = figure_3()
    assert working.links == ("N1", "N2", "N3", "N4")
    substituted = {broker: working.links[working.substitute(broker)] for broker in ("X1", "X2", "X3", "X4")}
    assert substituted == {"X1": "N1", "X3": "N1", "X4": "N1", "X2": "N2"}
    assert [working.names(mask) for mask in working.between] == [["N1"], ["N2"], ["N1", "N3"], ["N1", "N4"]]
    assert [working.names(mask) for mask in working.behind] == [["N2"], ["N1", "N3", "N4"], ["N2"], ["N2"]]
    assert [working.names(mask) for mask in working.beyond] == [["N1", "N3", "N4"], ["N2"], ["N3"], ["N4"]]


def test_the_anchor_of_x5_is_moved_to_n4_before_n1_tells_a():
    assert "X5" not in OverlayMap.of_links("A", FIGURE_3, 4)
    around_n1 = OverlayMap.of_links("N1", FIGURE_3, 4)
    assert around_n1.anchor_for_neighbour("X5", delta=4) == "N4"
    assert around_n1.anchor_for_neighbour("N4", delta=4) == "N4"
    assert around_n1.anchor_for_neighbour("N3", delta=4) == "N3"


def test_the_strategies_of_figure_2():
    overlay = OverlayMap.of_links("A", FIGURE_2, 4)
    plain = WorkingMap(overlay, {"N1"})
    matching = ["N3", "N5", "N6"]
    stand_ins = {plain.substitute(broker) for broker in matching}
    assert stand_ins == {plain.number("N1")}  # S0
    working = WorkingMap(overlay, {"N1", "N2", "N3", "N5", "N6"})
    anchors = bits(working, matching)
    assert working.names(along_the_intersection(working, anchors)) == ["N2"]
    assert working.names(straight_to_anchors(working, anchors)) == ["N3", "N5", "N6"]


def test_candidates_are_funnelled_to_the_closest_real_link():
    overlay = OverlayMap.of_links("A", FIGURE_2, 4)
    working = WorkingMap(overlay, {"N1", "N2", "N3", "N5", "N6"}, candidates={"N5", "N3"})
    chosen = straight_to_anchors(working, bits(working, ["N3", "N5", "N6"]))
    # N3 and N5 go to N2, and N6 lies beyond it.
    assert working.names(working.funnelled(chosen)) == ["N2"]


def test_impossible_maps_are_refused():
    overlay = OverlayMap.of_links("A", FIGURE_2, 4)
    with pytest.raises(LocalProtocolError, match="no link to its neighbours"):
        WorkingMap(overlay, {"N2"})
    with pytest.raises(LocalProtocolError, match="neighbour, not a candidate"):
        WorkingMap(overlay, {"N1", "N2"}, candidates={"N1"})
    with pytest.raises(LocalProtocolError, match="not on the map"):
        overlay.distance("nowhere")


# Random trees.


@st.composite
def trees(draw: st.DrawFn) -> list[tuple[str, str]]:
    count = draw(st.integers(2, 24))
    return [(f"B{draw(st.integers(0, child - 1)):02d}", f"B{child:02d}") for child in range(1, count)]


def brokers_of(tree: list[tuple[str, str]]) -> list[str]:
    return sorted({broker for link in tree for broker in link})


def contracted(overlay: OverlayMap, links: set[str]) -> dict[str, str]:
    """Step 1 of section 3, taken literally: who stands for whom after all edges are contracted."""
    stands_for = {broker: broker for broker in overlay.brokers}
    edges = {(overlay.parent(broker), broker) for broker in overlay.brokers}
    for broker in reversed(overlay.brokers):  # descending distance
        if broker in links:
            continue
        (closer,) = {before for before, after in edges if after == broker}
        edges = {
            (closer if before == broker else before, after) for before, after in edges if after != broker
        }
        for other, stand_in in stands_for.items():
            if stand_in == broker:
                stands_for[other] = closer
    return stands_for


@given(tree=trees(), data=st.data())
def test_substitutes_are_those_of_the_literal_contraction(tree, data):
    centre = data.draw(st.sampled_from(brokers_of(tree)))
    overlay = OverlayMap.of_links(centre, tree, data.draw(st.integers(1, 5)))
    links = set(overlay.neighbours) | data.draw(st.sets(st.sampled_from(overlay.brokers)))
    working = WorkingMap(overlay, links)
    expected = contracted(overlay, links)
    assert {broker: working.links[working.substitute(broker)] for broker in overlay.brokers} == expected


@given(tree=trees(), data=st.data())
def test_sets_of_the_working_map_are_those_of_the_tree(tree, data):
    centre = data.draw(st.sampled_from(brokers_of(tree)))
    overlay = OverlayMap.of_links(centre, tree)
    links = set(overlay.neighbours) | data.draw(st.sets(st.sampled_from(overlay.brokers)))
    working = WorkingMap(overlay, links)
    for number, broker in enumerate(working.links):
        path = overlay.path(broker)
        assert set(working.names(working.between[number])) == links & set(path)
        assert set(working.names(working.beyond[number])) == {
            other for other in links if broker in overlay.path(other)
        }
        assert set(working.names(working.behind[number])) == {
            other for other in links if overlay.toward(other) != overlay.toward(broker)
        }


@given(tree=trees(), data=st.data())
def test_every_strategy_partitions_the_anchors(tree, data):
    """No chosen link lies beyond another, and every anchor lies beyond a chosen one."""
    centre = data.draw(st.sampled_from(brokers_of(tree)))
    overlay = OverlayMap.of_links(centre, tree)
    links = set(overlay.neighbours) | data.draw(st.sets(st.sampled_from(overlay.brokers)))
    candidates = data.draw(st.sets(st.sampled_from(overlay.brokers))) & links - set(overlay.neighbours)
    working = WorkingMap(overlay, links, candidates)
    matching = data.draw(st.sets(st.sampled_from(overlay.brokers)))
    anchors = 0
    for broker in matching:
        anchors |= 1 << working.substitute(broker)
    for paths in (along_the_intersection, straight_to_anchors):
        chosen = working.names(working.funnelled(paths(working, anchors)))
        assert not set(chosen) & candidates
        for broker in matching:
            assert sum(hop in overlay.path(broker) for hop in chosen) == 1
        for hop in chosen:
            assert any(hop in overlay.path(broker) for broker in matching)


# How the maps come about.


class _Gossip:
    """Brokers that tell each other what lies behind them, in any order."""

    def __init__(self, deltas: dict[str, int]) -> None:
        self.brokers = {name: Surroundings(name, f"at-{name}", delta) for name, delta in deltas.items()}
        self.links: set[frozenset[str]] = set()

    def link(self, left: str, right: str) -> None:
        self.links.add(frozenset((left, right)))
        for one, other in ((left, right), (right, left)):
            self.brokers[one].meet(other, f"at-{other}", self.brokers[other].delta)
            self.brokers[one].complete(other)

    def unlink(self, left: str, right: str) -> None:
        self.links.remove(frozenset((left, right)))
        self.brokers[left].lose(right)
        self.brokers[right].lose(left)

    def settle(self) -> int:
        for rounds in range(100):
            moved = False
            for name, surroundings in self.brokers.items():
                for link in sorted(tuple(sorted(link)) for link in self.links if name in link):
                    (other,) = set(link) - {name}
                    news = surroundings.news_for(other)
                    if news is not None:
                        moved = True
                        self.brokers[other].hear(name, news.added, news.removed)
            if not moved:
                return rounds
        raise AssertionError("they never come to rest")


@given(tree=trees(), data=st.data())
def test_everybody_learns_its_neighbourhood_through_joins_and_leaves(tree, data):
    deltas = {name: data.draw(st.sampled_from([1, 2, 4, 9])) for name in brokers_of(tree)}
    gossip = _Gossip(deltas)
    present: list[tuple[str, str]] = []
    for link in tree:
        gossip.link(*link)
        present.append(link)
        if data.draw(st.booleans()):
            gossip.settle()
    gossip.settle()
    for _ in range(data.draw(st.integers(0, 3))):
        link = data.draw(st.sampled_from(tree))
        if link in present:
            gossip.unlink(*link)
            present.remove(link)
        else:
            gossip.link(*link)
            present.append(link)
        gossip.settle()
    for name, surroundings in gossip.brokers.items():
        expected = OverlayMap.of_links(name, present)
        # One sees as far as one wants, if all on the way know of it.
        own = surroundings.map()
        assert set(own.brokers) <= set(expected.brokers)
        for broker in own.brokers:
            assert own.parent(broker) == expected.parent(broker)
            assert surroundings.address_of(broker) == f"at-{broker}"
        if len(set(deltas.values())) == 1:
            assert own == expected.within(surroundings.delta)


def test_only_what_changed_is_told():
    surroundings = Surroundings("A", "at-A", 4)
    surroundings.meet("B", "at-B", 4)
    surroundings.meet("C", "at-C", 4)
    assert surroundings.news_for("B") == ([Place("C", "A", "at-C")], [])
    assert surroundings.news_for("B") is None
    surroundings.hear("C", [Place("D", "C", "at-D")], [])
    assert surroundings.news_for("B") == ([Place("D", "C", "at-D")], [])
    surroundings.lose("C")
    assert surroundings.news_for("B") == ([], ["C", "D"])
