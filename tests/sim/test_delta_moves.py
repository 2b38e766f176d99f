"""Does a broker change its place by a delta-move without anybody missing or seeing twice anything?"""

from __future__ import annotations

import random
from itertools import pairwise
from typing import TYPE_CHECKING

import pytest

from braid.adaptation import SoftLinkSettings
from braid.broker.detours import Detours
from braid.broker.operations import Changing
from braid.broker.reconfigurations import Reconfigurations
from braid.broker.repetitions import Repetitions
from braid.broker.shortcut_limits import ShortcutLimits
from braid.errors import BraidError
from braid.protocol.duplicates import DuplicateFilter
from braid.reconfiguration import delta_moved
from tests.sim.delta_faults import CALM, CASES, PATH, DeltaFault, move_at_once
from tests.sim.shift_worlds import ShiftWorld, tree_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from braid.broker.core import BrokerCore
    from tests.sim.shift_faults import Case

# `make shifts` runs them all.
SOME_CASES = [
    case
    for case in CASES
    if case.fault == "crash" and case.broker == case.subject and case.stage in ("update", "wrap_up")
]
SOFT_LINKS = SoftLinkSettings(fanout=6, review_us=150_000, candidates_max=4)


def world(seed: int, strategy: str, **more: object) -> ShiftWorld:
    """A random world in which brokers make themselves soft links."""
    if strategy == "S0":
        return ShiftWorld(seed, **more)  # type: ignore[arg-type]
    delta = 255 if strategy == "SB" else 4
    return ShiftWorld(seed, strategy=strategy, delta=delta, soft_links=SOFT_LINKS, **more)  # type: ignore[arg-type]


def some_path(run: ShiftWorld, chance: random.Random) -> tuple[str, ...]:
    """A broker, a neighbour of it, and the way to its new one."""
    while True:
        moving = chance.choice(run.tree.brokers)
        old = chance.choice(run.tree.neighbours(moving))
        others = sorted(set(run.tree.brokers) - run.tree.behind(moving, old) - {old})
        if others:
            return (moving, *run.tree.path(old, chance.choice(others)))


def move_five_times(seed: int, strategy: str) -> None:
    """Move brokers of a random world about, which must end as it should."""
    run = world(seed, strategy, until_us=6_000_000)
    run.populate()
    chance = random.Random(f"{seed} {strategy}")
    for _ in range(5):
        answer = move_at_once(run, some_path(run, chance))
        assert answer.get("outcome") == "finished", answer
        run.world.run_for(us=chance.choice([0, 1_000, 400_000]))
    run.world.run_until_quiet()
    run.require()


@pytest.mark.parametrize("strategy", ["S0", "S1", "S2", "SB"])
@pytest.mark.parametrize("seed", range(2))
def test_nothing_is_lost_doubled_or_reordered(seed: int, strategy: str) -> None:
    move_five_times(seed, strategy)


def test_what_is_for_the_broker_that_moves_comes_twice_and_counts_once() -> None:
    fault = DeltaFault(CALM, acknowledged=False, busy=True)
    assert fault.go() == "new"
    core: BrokerCore = fault.run.world.machine("I")
    assert core.snapshot().counters.duplicates > 0
    for other in "MXYZ":
        others: BrokerCore = fault.run.world.machine(other)
        assert others.snapshot().counters.duplicates == 0


def test_nobody_pauses_and_all_phases_are_told() -> None:
    fault = DeltaFault(CALM)
    assert fault.go() == "new"
    for name in PATH:
        phases = [phase for _, broker, phase in fault.phases if broker == name]
        assert "paused" not in phases
        first = phases[: phases.index("finished") + 1]
        told = ["initialization", "update", "doubled", "wrap_up", "finished"]
        assert [phase for phase in first if phase in told] == told
    assert ("I", "preparation") in {(broker, phase) for _, broker, phase in fault.phases}


@pytest.mark.parametrize("case", SOME_CASES, ids=str)
def test_a_crash_at_any_phase_leaves_the_old_or_the_new_tree(case: Case) -> None:
    fault = DeltaFault(case)
    found = fault.go()
    assert fault.struck_us is not None
    if case.broker == PATH[0]:  # the others may not know yet that it has decided
        assert found == ("old" if case.stage == "update" else "new")


def test_afterwards_shortcuts_are_used_again_everywhere() -> None:
    """Whoever was told along the old tree to avoid some may be further off in the new one."""
    links = [(right, left) for line in ("ABCDEF", "BPQRST") for left, right in pairwise(line)]
    run = ShiftWorld(3, links=links, strategy="S2", delta=4, soft_links=SOFT_LINKS, until_us=4_000_000)
    run.populate()
    assert move_at_once(run, "ABCDEF")["outcome"] == "finished"
    run.world.run_for(seconds=1)
    avoiding = [name for name in run.names if run.world.machine(name)._limits.active]
    assert avoiding == []
    run.world.run_until_quiet()
    run.require()


def test_who_has_moved_sees_the_network_around_its_new_place() -> None:
    """What the new neighbour has said of it before it is told everything counts."""
    links = [(right, left) for left, right in pairwise("ABCDEF")]
    run = ShiftWorld(3, links=links, strategy="S2", delta=4, soft_links=SOFT_LINKS, until_us=4_000_000)
    run.populate()
    assert move_at_once(run, "ABCDEF")["outcome"] == "finished"
    run.world.run_for(seconds=1)
    for name in run.names:
        seen = run.world.machine(name)._mesh._surroundings.map().brokers
        assert set(seen) - {name} == {
            other for other in run.names if 0 < run.tree.distance(name, other) <= 4
        }, name
    run.world.run_until_quiet()
    run.require()


def test_what_cannot_be_done_is_refused_and_changes_nothing() -> None:
    run = ShiftWorld(1, links=[("B", "A"), ("C", "B"), ("D", "C"), ("E", "C")])
    before = tree_of(run.world, run.names)
    assert "C is no neighbour of A" in move_at_once(run, "ACD")["refused"]
    assert "path of 3 to" in move_at_once(run, "AB")["refused"]
    operator = run.operators["A"]
    request = operator.ask("reconfigure", operation="delta", path="A,B,C", by="three-phase")
    run.wait(lambda: request in operator.answers)
    assert "not done by 'three-phase'" in operator.answers[request]["refused"]
    assert tree_of(run.world, run.names) == before
    assert move_at_once(run, "ABCD")["outcome"] == "finished"
    assert tree_of(run.world, run.names) == delta_moved(before, "ABCD")
    run.world.run_until_quiet()
    run.require()


# Planted defects.


def duplicates_not_eliminated(patch: pytest.MonkeyPatch) -> None:
    """The broker that moves takes second copies for first ones."""
    patch.setattr(Repetitions, "owed", lambda self, source, arrivals: arrivals)
    patch.setattr(DuplicateFilter, "new_in", lambda self, batch: None)
    patch.setattr(DuplicateFilter, "is_new", lambda self, publisher, sequence: True)


def temporary_table_forgotten(patch: pytest.MonkeyPatch) -> None:
    """A broker of the path says that it sends both ways, and does not."""
    use = Detours.use
    patch.setattr(
        Detours, "use", lambda self, toward, apart: None if toward.name == "L" else use(self, toward, apart)
    )


def second_copies_not_held(patch: pytest.MonkeyPatch) -> None:
    """What comes over the new link is let in before all that was sent the old way alone has come."""
    patch.setattr(Changing, "_early", staticmethod(lambda operation, party: False))


def decided_before_the_word_is_back(patch: pytest.MonkeyPatch) -> None:
    """The broker that moves decides as soon as it is connected."""
    from braid.broker.delta_moves import DeltaMoves

    def joined(self: DeltaMoves, operation: object, new: object) -> None:
        Reconfigurations._joined(self, operation, new)  # type: ignore[arg-type]

    patch.setattr(DeltaMoves, "_joined", joined)


@pytest.mark.parametrize(
    "plant",
    [
        duplicates_not_eliminated,
        temporary_table_forgotten,
        second_copies_not_held,
        decided_before_the_word_is_back,
    ],
)
def test_a_planted_defect_is_found(
    plant: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    plant(monkeypatch)
    with pytest.raises((AssertionError, BraidError)):
        DeltaFault(CALM, acknowledged=False, busy=True, readers="IXM").go()


def test_shortcuts_past_the_links_that_change_are_missed_if_they_are_used(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    move_five_times(3, "S2")  # without the defect nobody misses anything
    monkeypatch.setattr(ShortcutLimits, "begin", lambda self, operation: None)
    with pytest.raises(BraidError, match="never got it"):
        move_five_times(3, "S2")
