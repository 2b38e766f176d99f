"""Files of plans, their disruption, and runs of them: in waves, interrupted anywhere, continued."""

from __future__ import annotations

import json
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from braid.errors import ConfigurationError, LocalProtocolError
from braid.reconfiguration import (
    OverlayTree,
    Plan,
    PlanOptions,
    PlanRun,
    RunState,
    Shift,
    WrittenPlan,
    decode_plan,
    decode_tree,
    disruption_of,
    encode_plan,
    encode_tree,
    find_plan,
)
from braid.reconfiguration.plan_run import brokers_of, waves_of
from tests.reconfiguration.random_trees import trees

QUICK = PlanOptions(trees_max=300, width=2)
LINE = OverlayTree([("A", "B"), ("B", "C"), ("C", "D")])
TO_C = Plan(LINE, [Shift("A", "B", "C")])


def written(**changes: Any) -> bytes:
    content = json.loads(encode_plan(WrittenPlan(TO_C)))
    for place, value in changes.items():
        content[place] = value
    return json.dumps(content).encode()


@settings(max_examples=30)
@given(start=trees(1, 10), goal=trees(1, 10, first=4))
def test_files_say_the_same_when_they_are_read(start: OverlayTree, goal: OverlayTree) -> None:
    plan = find_plan(start, goal, QUICK).plan
    again = decode_plan(encode_plan(WrittenPlan(plan, {"B12": "10.0.0.4:7000"})), "plan.json")
    assert again.plan == plan
    assert again.plan.goal == plan.goal
    assert again.addresses == {"B12": "10.0.0.4:7000"}
    assert decode_tree(encode_tree(start), "tree.json") == (start, {})


@pytest.mark.parametrize(
    ("data", "problem"),
    [
        (b"", "p.json is not a plan: Input data was truncated"),
        (b"{]", "p.json is not a plan: JSON is malformed"),
        (b"\xff", "p.json is not a plan"),
        (b"[]", "p.json is not a plan: Expected `object`, got `array`"),
        (written(braid_plan=2), r"`int` <= 1 - at `\$.braid_plan`"),
        (written(more=1), "contains unknown field `more`"),
        (written(steps=[{"step": "shift", "moving": "A", "old": 7, "new": "C"}]), r"at `\$.steps\[0\].old`"),
        (written(steps=[{"step": "turn"}]), r"Invalid value 'turn' - at `\$.steps\[0\].step`"),
        (written(start={"links": [["A", ""]]}), r"at `\$.start.links\[0\]\[1\]`"),
        (written(start={"links": [["A", "B"], ["C", "D"]]}), "p.json: start: no tree: there is no way from"),
        (written(goal={"links": [["A", "B"], ["B", "C"], ["C", "D"]]}), "do not lead to the goal"),
        (
            written(steps=[{"step": "shift", "moving": "A", "old": "D", "new": "C"}]),
            r"step 1, SHIFT\(A, D, C\)",
        ),
    ],
)
def test_what_is_wrong_with_a_file_is_named(data: bytes, problem: str) -> None:
    with pytest.raises(ConfigurationError, match=problem):
        decode_plan(data, "p.json")


def test_a_tree_that_is_none_is_named() -> None:
    with pytest.raises(ConfigurationError, match=r"t.json: the tree: no tree: 'A' and 'B' are linked twice"):
        decode_tree(b'{"links": [["A", "B"], ["B", "A"]]}', "t.json")


def test_disruption_is_counted_where_each_step_stands() -> None:
    plan = Plan(LINE, [Shift("A", "B", "C"), Shift("B", "C", "D")])
    found = disruption_of(plan)
    assert [(each.brokers_moved, each.pairs_rerouted, each.links_most) for each in found.steps] == [
        (1, 3, 3),
        (1, 3, 2),
    ]
    assert found.pauses == {"B": 2, "C": 2, "A": 1, "D": 1}
    assert found.links_most == 3


@settings(max_examples=40)
@given(start=trees(2, 24), parallel=st.integers(1, 4), data=st.data())
def test_a_run_that_is_interrupted_anywhere_is_continued_from_what_the_network_shows(
    start: OverlayTree, parallel: int, data: st.DataObject
) -> None:
    goal = data.draw(trees(2, 24))
    plan = find_plan(start, goal, QUICK).plan
    chance = Random(data.draw(st.integers(0, 2**32)))
    tree = start
    run = PlanRun(plan, tree, parallel=parallel)
    for _ in range(20 * len(plan) + 20):
        if run.state is RunState.FINISHED:
            break
        for number in run.ready():
            run.begun(number)
        concerned = [broker for number in run.running for broker in brokers_of(plan.steps[number])]
        assert len(concerned) == len(set(concerned))
        assert len(run.running) <= parallel
        number = chance.choice(sorted(run.running))
        tree = plan.steps[number].apply(tree)
        if chance.random() < 0.3:  # the command dies; what was running is not done, or will be
            for other in sorted(run.running - {number}):
                if chance.random() < 0.5:
                    tree = plan.steps[other].apply(tree)
            run = PlanRun(plan, tree, parallel=parallel, anew=False)
        else:
            run.finished(number)
    assert tree == goal
    assert run.state is RunState.FINISHED


@given(start=trees(2, 16), parallel=st.integers(2, 5), data=st.data())
@settings(max_examples=30)
def test_waves_hold_every_step_once_and_keep_the_order_of_each_broker(
    start: OverlayTree, parallel: int, data: st.DataObject
) -> None:
    plan = find_plan(start, data.draw(trees(2, 16)), QUICK).plan
    waves = waves_of(plan, parallel)
    order = [number for wave in waves for number in wave.numbers]
    assert sorted(order) == list(range(len(plan)))
    for broker in {*plan.start.brokers, *plan.goal.brokers}:
        own = [number for number in order if broker in brokers_of(plan.steps[number])]
        assert own == sorted(own)


def test_a_network_that_is_elsewhere_is_refused() -> None:
    other = OverlayTree([("A", "D"), ("D", "C"), ("C", "B")])
    for anew in (True, False):
        with pytest.raises(ConfigurationError, match=r"on none of the plan's trees; .*A-D is there"):
            PlanRun(TO_C, other, anew=anew)
    with pytest.raises(ConfigurationError, match=r"not where the plan starts: .*1 of its 1 steps are done"):
        PlanRun(TO_C, TO_C.goal)
    assert PlanRun(TO_C, TO_C.goal, anew=False).state is RunState.FINISHED


def test_pausing_stopping_and_failing_begin_nothing_new() -> None:
    plan = Plan(LINE, [Shift("A", "B", "C"), Shift("B", "C", "D"), Shift("A", "C", "D")])
    run = PlanRun(plan, plan.start)
    run.begun(0)
    run.pause()
    assert run.state is RunState.RUNNING  # the step that runs is finished first
    run.finished(0)
    assert (run.state, run.ready()) == (RunState.PAUSED, [])
    with pytest.raises(LocalProtocolError, match="step 2"):
        run.begun(1)
    run.resume()
    run.begun(1)
    run.failed(1, "no answer")
    assert (run.state, run.ready()) == (RunState.FAILED, [])
    assert run.problem == "step 2, SHIFT(B, C, D): no answer"
    run = PlanRun(plan, plan.trees[1], anew=False)
    assert run.done == {0}
    run.stop()
    assert (run.state, run.ready()) == (RunState.STOPPED, [])
    with pytest.raises(ConfigurationError):
        PlanRun(plan, plan.start, parallel=0)
