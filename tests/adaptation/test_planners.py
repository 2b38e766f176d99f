"""Which soft links are chosen, on networks small enough to work out by hand."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from braid.adaptation import (
    DemandPlanner,
    LoadRow,
    NeighbourhoodLoad,
    ProfiledPlanner,
    SoftLinkSettings,
    Uplink,
)
from braid.errors import ConfigurationError
from braid.routing.overlay_map import OverlayMap

if TYPE_CHECKING:
    from braid.adaptation import LinkPlanner

# A - B - C - D - E, and F beside C.
CHAIN = OverlayMap.of_links("A", [("A", "B"), ("B", "C"), ("C", "D"), ("D", "E"), ("C", "F")], 4)


def planner(**settings) -> ProfiledPlanner:
    return ProfiledPlanner(SoftLinkSettings(**{"fanout": 3, "candidates_max": 2, **settings}))


def no_load() -> NeighbourhoodLoad:
    return NeighbourhoodLoad("A")


def test_candidates_are_found_beside_what_carries_the_most():
    plan = planner()
    plan.sent("B", 10)
    assert plan.review(CHAIN, no_load()) == (frozenset(), frozenset({"C"}))
    # Free slots are filled, and the search goes on from there.
    plan.sent("C", 10)
    assert plan.review(CHAIN, no_load()) == (frozenset({"C"}), frozenset({"D", "F"}))


def test_links_with_low_gain_make_room():
    plan = planner(fanout=2)
    for sent in ({"B": 9}, {"C": 9}):
        for broker, count in sent.items():
            plan.sent(broker, count)
        plan.review(CHAIN, no_load())
    # C bypasses one broker, D two: the same traffic is worth twice as much.
    plan.sent("C", 10)
    plan.sent("D", 10)
    soft, candidates = plan.review(CHAIN, no_load())
    assert soft == {"D"}
    assert "C" not in candidates  # it rests


def test_the_gain_is_that_of_section_6():
    plan = planner()
    load = no_load()
    plan.sent("D", 7)
    assert plan.gain("D", CHAIN, load) == 7 * 2
    load.hear("B", 100, [LoadRow("B", 90, 100, 0), LoadRow("C", 50, 100, 100)])
    # B is at 0.9 where the threshold is 0.8; C is below it and lowers nothing.
    assert plan.gain("D", CHAIN, load) == pytest.approx(7 * 2 * 1.1)


def test_a_slow_primary_path_makes_a_link_worth_more():
    plan = planner()
    load = no_load()
    load.hear("B", 1000, [LoadRow("B", 0, 0, 0), LoadRow("C", 0, 0, 1000), LoadRow("D", 0, 0, 7000)])
    plan.sent("D", 1)
    plan.sent("C", 1)
    assert load.slowness(CHAIN, "C") == 1.0
    assert load.slowness(CHAIN, "D") == 3.0
    assert plan.gain("D", CHAIN, load) == 6.0


def test_what_failed_rests():
    plan = planner(rest_reviews=2)
    plan.sent("B", 1)
    plan.review(CHAIN, no_load())
    plan.sent("C", 5)
    assert plan.review(CHAIN, no_load()).soft == {"C"}
    plan.failed("C")
    chosen = []
    for _ in range(3):
        plan.sent("B", 5)
        soft, candidates = plan.review(CHAIN, no_load())
        chosen.append("C" in soft | candidates)
    assert chosen == [False, False, True]


def test_links_out_of_sight_are_given_up():
    plan = planner()
    for broker in ("B", "C"):
        plan.sent(broker, 1)
        plan.review(CHAIN, no_load())
    smaller = OverlayMap.of_links("A", [("A", "B")], 4)
    assert plan.review(smaller, no_load()).soft == frozenset()


def test_demand_chooses_the_most_frequent_destinations():
    plan = DemandPlanner(SoftLinkSettings(fanout=3))
    for broker, count in {"B": 50, "C": 5, "E": 9, "F": 7}.items():
        plan.sent(broker, count)
    assert plan.review(CHAIN, no_load()) == (frozenset({"E", "F"}), frozenset())
    # A link that is there is replaced only by one that is clearly better.
    plan.sent("C", 1)
    assert plan.review(CHAIN, no_load()).soft == {"E", "F"}
    plan.sent("C", 90)
    assert "C" in plan.review(CHAIN, no_load()).soft


def test_loads_are_told_once_and_only_as_far_as_wanted():
    load = NeighbourhoodLoad("B")
    overlay = OverlayMap.of_links("B", [("A", "B"), ("B", "C"), ("C", "D")], 4)
    load.measured(10, 0)
    load.hear("C", 500, [LoadRow("C", 20, 0, 0), LoadRow("D", 5, 0, 300)])
    assert load.news_for("A", overlay, 2) == [LoadRow("B", 10, 0, 0), LoadRow("C", 20, 0, 500)]
    assert load.news_for("A", overlay, 2) == []
    assert load.news_for("A", overlay, 4) == [LoadRow("D", 5, 0, 300)]
    load.hear("C", 500, [LoadRow("C", 21, 0, 0)])  # hardly changed
    assert load.news_for("A", overlay, 4) == []
    # Nobody is told of what lies behind itself.
    assert load.news_for("C", overlay, 4) == [LoadRow("B", 10, 0, 0)]


def test_the_uplink_saves_from_the_threshold_on_and_until_there_is_relief():
    uplink = Uplink(100, 0.8)
    uplink.measure(0, 0)
    now_us = total = 0

    def second(publications: int) -> bool:
        nonlocal now_us, total
        now_us += 1_000_000
        total += publications
        uplink.measure(total, now_us)
        return uplink.saving

    assert [second(count) for count in (79, 80, 75, 71, 69, 79)] == [False, True, True, True, False, False]
    assert uplink.switches == 2


def test_an_uplink_without_limit_never_saves():
    uplink = Uplink(0, 0.8)
    uplink.measure(0, 0)
    uplink.measure(1_000_000, 2_000_000)
    assert (uplink.saving, uplink.utilisation, uplink.rate) == (False, 0.0, 500_000)


def test_impossible_settings_are_refused():
    with pytest.raises(ConfigurationError, match="fanout must be at least 1, not 0"):
        SoftLinkSettings(fanout=0)
    with pytest.raises(ConfigurationError, match="advantage must be at least 1"):
        SoftLinkSettings(advantage=0.5)


@pytest.mark.parametrize("kind", [DemandPlanner, ProfiledPlanner])
def test_links_of_others_take_places_and_need_none_of_their_own(kind: type[LinkPlanner]):
    plan = kind(SoftLinkSettings(fanout=3, candidates_max=2))
    for _ in range(4):
        for broker in "BCDEF":
            plan.sent(broker, 5)
        # One place of three is the neighbour's, one that of a link which somebody else has to this broker.
        soft, candidates = plan.review(CHAIN, no_load(), frozenset({"D"}))
        assert len(soft) <= 1
        assert "D" not in soft | candidates
    assert soft
    assert plan.review(CHAIN, no_load(), frozenset({"D", "E"})).soft == frozenset()


def test_demand_opens_a_few_links_with_each_review():
    """Those who come first leave places of popular brokers to those who come later."""
    plan = DemandPlanner(SoftLinkSettings(fanout=10, candidates_max=1))
    sizes = []
    for _ in range(3):
        for broker, count in {"C": 5, "D": 9, "E": 9, "F": 7}.items():
            plan.sent(broker, count)
        sizes.append(len(plan.review(CHAIN, no_load()).soft))
    assert sizes == [1, 2, 3]


def test_whoever_cannot_be_linked_is_followed_by_the_next():
    plan = DemandPlanner(SoftLinkSettings(fanout=2, candidates_max=1))
    for broker, count in {"C": 5, "D": 9, "E": 7, "F": 1}.items():
        plan.sent(broker, count)
    assert plan.review(CHAIN, no_load()).soft == {"D"}
    plan.failed("D")
    assert plan.instead() == "E"
    plan.failed("E")
    assert plan.instead() == "C"
    # What refused is not asked again with the next review; what did not, stays.
    plan.sent("D", 2)
    assert plan.review(CHAIN, no_load()).soft == {"C"}


def test_a_candidate_that_cannot_be_linked_leaves_its_place_to_the_next():
    plan = planner(fanout=2, candidates_max=3)
    for sent in ({"B": 9}, {"C": 9, "B": 9}, {"C": 4, "D": 9, "F": 8}):
        for broker, count in sent.items():
            plan.sent(broker, count)
        soft, _ = plan.review(CHAIN, no_load())
    assert soft == {"D"}
    plan.failed("D")
    assert plan.instead() == "F"
    plan.failed("F")
    # The link that was to make room is still better than none.
    assert plan.instead() == "C"
    assert plan.instead() is None


def test_the_least_useful_link_is_that_with_the_least_traffic_past_the_fewest():
    demand = DemandPlanner(SoftLinkSettings())
    for broker, count in {"D": 9, "E": 7}.items():
        demand.sent(broker, count)
    assert demand.least_useful(["D", "E", "F"], CHAIN, no_load()) == "F"
    assert demand.least_useful(["D", "E"], CHAIN, no_load()) == "E"
    profiled = planner()
    for broker, count in {"C": 7, "E": 5}.items():
        profiled.sent(broker, count)
    assert profiled.least_useful(["C", "E"], CHAIN, no_load()) == "C"
