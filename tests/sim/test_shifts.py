"""Do brokers change places without anybody missing, seeing twice or seeing out of order anything?"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from braid.broker.link_changes import MovableLinks
from braid.broker.reconfigurations import Reconfigurations
from tests.sim.shift_faults import CASES, Case, ShiftFault
from tests.sim.shift_worlds import ShiftWorld, tree_of

if TYPE_CHECKING:
    from braid.broker.operations import Operation

# `make shifts` runs them all.
SOME_CASES = [
    case
    for case in CASES
    if case.fault == "crash"
    and case.broker == case.subject
    and (case.how == "three-phase" or case.stage in ("copying", "flushed"))
]


@pytest.mark.parametrize("seed", range(3))
def test_nothing_is_lost_doubled_or_reordered(seed: int) -> None:
    run = ShiftWorld(seed, codec=seed == 0, until_us=7_000_000)
    run.populate()
    for _ in range(4):
        answer = run.shift(*run.chance.choice(run.possible()))
        assert answer.get("outcome") == "finished", answer
        run.world.run_for(us=run.chance.choice([0, 1_000, 100_000]))
    run.world.run_until_quiet()
    run.require()


def test_the_end_of_a_former_link_is_not_the_loss_of_the_one_there_is_now(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A link that has left may end much later, when its broker is a neighbour again and is asked to move."""
    review, ask = MovableLinks.review_leaving, Reconfigurations._ask_to_prepare
    ended: list[str] = []

    def ask_and_review(self: Reconfigurations, operation: Operation) -> None:
        ask(self, operation)
        if any(link.name == operation.after for link in self._links.leaving):
            ended.append(operation.after)
            review(self._links)

    monkeypatch.setattr(MovableLinks, "review_leaving", lambda self: None)
    monkeypatch.setattr(Reconfigurations, "_ask_to_prepare", ask_and_review)
    run = ShiftWorld(3, links=[("J", "I"), ("K", "J"), ("M", "J"), ("X", "I"), ("Y", "K")])
    run.populate()
    for old, new in (("J", "K"), ("K", "J"), ("J", "K")):
        answer = run.shift("I", old, new)
        assert answer.get("outcome") == "finished", answer
    assert "J" in ended
    monkeypatch.undo()
    run.world.run_until_quiet()
    run.require()


def test_a_whole_path_is_rewired_at_once() -> None:
    path = "ABCDE"
    run = ShiftWorld(7, links=[(left, right) for left, right in zip(path[1:], path, strict=False)])
    run.populate()
    operator = run.operators["A"]
    request = operator.ask("reconfigure", operation="direct", path="A,B,C,D,E")
    run.wait(lambda: request in operator.answers)
    assert operator.answers[request]["outcome"] == "finished"
    run.tree = type(run.tree)([("B", "C"), ("C", "D"), ("D", "E"), ("A", "E")])
    run.world.run_until_quiet()
    run.require()


def test_what_cannot_be_done_is_refused_and_changes_nothing() -> None:
    run = ShiftWorld(1, links=[("B", "A"), ("C", "B"), ("D", "C"), ("E", "C")])
    before = tree_of(run.world, run.names)
    refusals = {
        ("A", "B", "D"): "D is no neighbour of B",
        ("A", "C", "D"): "C is no neighbour of A",
        ("A", "B", "A"): "different brokers",
    }
    for (moving, old, new), reason in refusals.items():
        assert reason in run.shift(moving, old, new)["refused"]
    assert (
        "ask B, the broker that is to move"
        in run.operators["A"].answers[_asked_at(run, "A", "B", "A", "C")]["refused"]
    )
    assert tree_of(run.world, run.names) == before
    run.world.run_until_quiet()
    run.require()


def _asked_at(run: ShiftWorld, place: str, moving: str, old: str, new: str) -> int:
    operator = run.operators[place]
    request = operator.shift(moving, old, new)
    run.wait(lambda: request in operator.answers)
    return request


def test_who_asks_again_with_the_same_id_hears_what_came_of_it() -> None:
    run = ShiftWorld(2, links=[("B", "A"), ("C", "B"), ("D", "C")])
    assert run.shift("A", "B", "C", id="first")["outcome"] == "finished"
    request = _asked_at(run, "A", "A", "B", "C")  # another one, which is not possible any more
    assert "B is no neighbour of A" in run.operators["A"].answers[request]["refused"]
    again = run.operators["A"].shift("A", "B", "C", id="first")
    run.wait(lambda: again in run.operators["A"].answers)
    assert run.operators["A"].answers[again] == {"id": "first", "outcome": "finished"}


@pytest.mark.parametrize("case", SOME_CASES, ids=str)
def test_a_fault_at_any_step_leaves_the_old_or_the_new_tree(case: Case) -> None:
    run = ShiftFault(case)
    found = run.go()
    assert run.struck_us is not None
    decided = case.stage in ("committed", "resumed")
    # With tables copied ahead the broker that moves decides as soon as it hears that all are flushed.
    decided = decided or (case.how == "precopy" and case.stage == "flushed" and case.broker in "IJ")
    assert found == ("new" if decided else "old")


def test_each_broker_says_how_far_an_operation_has_come_and_how_long_it_paused() -> None:
    run = ShiftFault(Case("never", "I", "crash", "I"))
    assert run.go() == "new"
    for name, last in {"I": "finished", "J": "finished", "K": "finished"}.items():
        phases = [phase for _, broker, phase in run.phases if broker == name]
        first = phases[: phases.index(last) + 1]
        assert first.index("paused") < first.index("committed") < first.index("resumed") < first.index(last)
        assert first.count("paused") == first.count("resumed") == 1


def test_nobody_waits_for_the_next_review() -> None:
    """What the broker that has moved says is held until the one before is done, and then goes on at once."""
    run = ShiftWorld(4, latency_us=1_000, until_us=7_000_000)
    run.populate()
    took_us = []
    for _ in range(6):
        answer = run.shift(*run.chance.choice(run.possible()))
        took_us.append(answer["took_us"])
    # Some twenty messages one after the other, and a few looks.
    assert max(took_us) < 150_000, took_us
    run.world.run_until_quiet()
    run.require()
