"""Is there always a plan, is it exact, and how short is it?

Up to six brokers all trees are looked at, by a search that knows nothing of the planner's.
"""

from __future__ import annotations

from random import Random

import networkx as nx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from braid.errors import ConfigurationError
from braid.reconfiguration import OverlayTree, Plan, PlanOptions, Shift, find_plan, theorem_plan
from braid.reconfiguration.lines import way_by_lines
from braid.reconfiguration.search import beam, exact
from braid.reconfiguration.slides import Slides, shifted
from tests.reconfiguration.plan_lengths import lengths
from tests.reconfiguration.random_trees import all_trees, named, random_tree, trees

QUICK = PlanOptions(trees_max=300, width=4)
LINE = OverlayTree([("A", "B"), ("B", "C"), ("C", "D"), ("D", "E")])


def is_safe(plan: Plan) -> bool:
    for tree in plan.trees:
        graph = nx.Graph(list(tree.links))
        graph.add_nodes_from(tree.brokers)
        if not nx.is_tree(graph):
            return False
    return True


@settings(max_examples=25)
@given(start=trees(1, 60), goal=trees(1, 60))
def test_theorem_1_there_is_a_plan_between_any_two_trees(start: OverlayTree, goal: OverlayTree) -> None:
    """Also with other brokers: both begin with B00, and end where they end."""
    for plan in (theorem_plan(start, goal), find_plan(start, goal, QUICK).plan):
        assert plan.start == start
        assert plan.goal == goal
        assert is_safe(plan)


@settings(max_examples=40)
@given(start=trees(1, 12), goal=trees(1, 12, first=9), data=st.data())
def test_brokers_come_and_go(start: OverlayTree, goal: OverlayTree, data: st.DataObject) -> None:
    """With few or no brokers in both; each newcomer comes once, each leaver goes once."""
    plan = find_plan(start, goal, QUICK).plan
    assert plan.goal == goal
    assert is_safe(plan)
    others = [step for step in plan.steps if not isinstance(step, Shift)]
    assert len(others) == len(set(start.brokers) ^ set(goal.brokers))
    assert theorem_plan(start, goal).goal == goal


def test_plans_are_as_short_as_any_for_all_trees_of_five_brokers() -> None:
    start = OverlayTree([("B00", "B01"), ("B01", "B02"), ("B02", "B03"), ("B03", "B04")])
    shortest = distances_from(start)
    assert len(shortest) == 125
    for goal in all_trees(named(5)):
        found = find_plan(start, goal)
        assert found.proved
        assert found.plan.shifts == found.shifts_min == shortest[goal]


def test_the_beam_alone_is_close_to_the_shortest_plan() -> None:
    row = lengths(7, 25)
    assert row.shortest is not None
    assert row.shortest <= row.found <= 1.03 * row.shortest
    assert row.theorem > 1.5 * row.shortest


def distances_from(start: OverlayTree) -> dict[OverlayTree, int]:
    """How many SHIFTs each tree is away, by applying every SHIFT to everything."""
    found = {start: 0}
    line = [start]
    for tree in line:
        for old in tree.brokers:
            for moving in tree.neighbours(old):
                for new in tree.neighbours(old):
                    if moving != new:
                        after = Shift(moving, old, new).apply(tree)
                        if after not in found:
                            found[after] = found[tree] + 1
                            line.append(after)
    return found


@given(start=trees(2, 14), data=st.data())
def test_every_shift_changes_the_lack_as_foretold(start: OverlayTree, data: st.DataObject) -> None:
    goal = random_tree(Random(data.draw(st.integers(0, 2**32))), list(start.brokers))
    slides = Slides(goal)
    beside = slides.numbered(start)
    for change, shift in slides.shifts(beside):
        after = shifted(beside, shift)
        assert slides.lack(after) == slides.lack(beside) + change
        assert slides.key(after) == slides.key_after(slides.key(beside), shift)
        names = [slides.names[each] for each in shift]
        assert slides.numbered(Shift(*names).apply(start)) == tuple(tuple(sorted(each)) for each in after)
    assert slides.lack(slides.numbered(goal)) == 0


@settings(max_examples=25)
@given(start=trees(5, 16), data=st.data())
def test_no_broker_gets_more_links_than_allowed(start: OverlayTree, data: st.DataObject) -> None:
    goal = random_tree(Random(data.draw(st.integers(0, 2**32))), list(start.brokers))
    limit = max(3, *(goal.degree(each) for each in goal.brokers)) + 1
    plan = find_plan(start, goal, PlanOptions(degree_max=limit, trees_max=300)).plan
    for tree in plan.trees:
        assert all(tree.degree(each) <= max(limit, start.degree(each)) for each in tree.brokers)


@settings(max_examples=40)
@given(start=trees(2, 20), data=st.data())
def test_over_lines_there_is_always_a_way_with_three_links(start: OverlayTree, data: st.DataObject) -> None:
    goal = random_tree(Random(data.draw(st.integers(0, 2**32))), list(start.brokers))
    slides = Slides(goal)
    way = way_by_lines(slides.numbered(start), slides.numbered(goal))
    steps = [Shift(*(slides.names[each] for each in shift)) for shift in way]
    plan = Plan(start, steps, goal)
    assert len(set(plan.trees)) == len(plan.trees)
    for tree in plan.trees:
        for broker in tree.brokers:
            assert tree.degree(broker) <= max(3, start.degree(broker), goal.degree(broker))


def test_limits_that_leave_the_beam_without_a_way_leave_the_planner_one() -> None:
    chance = Random(3)
    start, goal = (random_tree(chance, named(30)) for _ in range(2))
    limit = max(goal.degree(each) for each in goal.brokers)
    tight = PlanOptions(degree_max=limit, width=1, trees_max=100)
    plan = find_plan(start, goal, tight).plan
    for tree in plan.trees:
        assert all(tree.degree(each) <= max(limit, start.degree(each)) for each in tree.brokers)


def test_the_bound_on_links_matters() -> None:
    """Without it a hub forms on the way; with it, it does not."""
    chance = Random(4)
    start, goal = (random_tree(chance, named(16)) for _ in range(2))
    limit = max(max(tree.degree(each) for each in tree.brokers) for tree in (start, goal))

    def most(plan: Plan) -> int:
        return max(tree.degree(each) for tree in plan.trees for each in tree.brokers)

    assert most(find_plan(start, goal, QUICK).plan) > limit
    assert most(find_plan(start, goal, PlanOptions(degree_max=limit, trees_max=300)).plan) <= limit


def test_important_paths_stay_short_on_the_way() -> None:
    chance = Random(11)
    start, goal = (random_tree(chance, named(14)) for _ in range(2))
    free = find_plan(start, goal, QUICK).plan
    pairs = {}
    for left in start.brokers:
        for right in start.brokers:
            hops = max(start.distance(left, right), goal.distance(left, right))
            if left < right and any(tree.distance(left, right) > hops for tree in free.trees):
                pairs[left, right] = hops
    first = dict([next(iter(pairs.items()))])
    plan = find_plan(start, goal, PlanOptions(paths_max=first, trees_max=300)).plan
    for (left, right), hops in first.items():
        assert all(tree.distance(left, right) <= hops for tree in plan.trees)


def test_a_region_keeps_the_others_out_of_it() -> None:
    """Both trees differ in their left half only; other brokers can be spared, and are."""
    half = named(8)
    rest = [(f"C{number}", f"C{number + 1}") for number in range(8)]
    chance = Random(6)
    start, goal = (OverlayTree([*random_tree(chance, half).links, (half[0], "C0"), *rest]) for _ in range(2))
    plan = find_plan(start, goal, PlanOptions(region=frozenset(half), trees_max=300)).plan
    touched = {
        each for step in plan.steps if isinstance(step, Shift) for each in (step.moving, step.old, step.new)
    }
    assert touched <= {*half, "C0"}


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        (PlanOptions(degree_max=2), "the goal itself gives 'A' 4 links, and at most 2 are allowed"),
        (PlanOptions(paths_max={("B", "C"): 1}), "'B' and 'C' are 2 hops apart, and at most 1"),
        (PlanOptions(paths_max={("B", "X"): 1}), "'X' is not in both"),
    ],
)
def test_limits_that_the_goal_breaks_are_named(options: PlanOptions, problem: str) -> None:
    star = OverlayTree([("A", other) for other in "BCDE"])
    with pytest.raises(ConfigurationError, match=problem):
        find_plan(LINE, star, options)


def test_limits_that_leave_no_way_are_said() -> None:
    """Two lines with at most two links per broker: no SHIFT at all is possible."""
    other = OverlayTree([("A", "C"), ("C", "B"), ("B", "D"), ("D", "E")])
    with pytest.raises(ConfigurationError, match="no plan was found"):
        find_plan(LINE, other, PlanOptions(degree_max=2))


@pytest.mark.parametrize("wrong", [{"degree_max": 1}, {"width": 0}, {"trees_max": 0}])
def test_options_that_make_no_sense(wrong: dict[str, int]) -> None:
    with pytest.raises(ConfigurationError):
        PlanOptions(**wrong)  # type: ignore[arg-type]


def test_a_search_that_has_to_stop_says_what_it_knows() -> None:
    chance = Random(2)
    start, goal = (random_tree(chance, named(12)) for _ in range(2))
    slides = Slides(goal)
    found = exact(slides, slides.numbered(start), slides.numbered(goal), trees_max=2_000)
    assert found.shifts is None
    way = beam(slides, slides.numbered(start), width=8, shifts_max=100)
    assert way is not None
    assert 2 <= found.shifts_min <= len(way)
    assert beam(slides, slides.numbered(start), width=8, shifts_max=2) is None


@pytest.mark.parametrize("options", [{}, {"degree_max": 20}, {"trees_max": 1}], ids=str)
@pytest.mark.parametrize("looks_max", [0, 1, 30])
def test_a_search_is_given_up_within_one_tree(options: dict[str, int], looks_max: int) -> None:
    chance = Random(3)
    start, goal = (random_tree(chance, named(30)) for _ in range(2))
    looks = 0

    def given_up() -> bool:
        nonlocal looks
        looks += 1
        return looks > looks_max

    with pytest.raises(ConfigurationError, match="given up"):
        find_plan(start, goal, PlanOptions(**options, given_up=given_up))  # type: ignore[arg-type]
    assert looks == looks_max + 1


def test_nothing_to_do() -> None:
    assert find_plan(LINE, LINE).plan.steps == ()
    alone = OverlayTree([], ["A"])
    assert find_plan(alone, alone).plan.steps == ()
    assert [str(step) for step in find_plan(alone, OverlayTree([], ["B"])).plan.steps] == [
        "APPEND(B, A)",
        "DETACH(A)",
    ]
