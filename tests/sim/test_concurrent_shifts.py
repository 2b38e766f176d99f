"""Two operations at a time, on brokers that have nothing to do with each other, and faults in between."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, NamedTuple

import pytest

from braid.reconfiguration import Shift
from tests.sim.shift_worlds import ShiftWorld, tree_of

if TYPE_CHECKING:
    from braid.protocol.effects import Progress

LINKS = [("I", "J"), ("J", "K"), ("K", "P"), ("P", "Q"), ("Q", "R"), ("X", "I"), ("Y", "R")]
LEFT, RIGHT = ("I", "J", "K"), ("R", "Q", "P")
DOWN_US = 500_000


class Fault(NamedTuple):
    """When something goes wrong, and what."""

    phase: str
    """Of the left operation, at its broker I."""
    kind: str
    """`crash` of a broker, `session` that the directory ends, or `cut` between a broker and the directory."""
    subject: str

    def __str__(self) -> str:
        return f"{self.kind} {self.subject} when I is {self.phase}"


class Together:
    """Both operations in one world with a directory, as much under way as the publishers manage."""

    def __init__(self, how: str, fault: Fault | None = None, seed: int = 0) -> None:
        self.fault = fault
        self.struck = False
        self.spans: dict[str, list[tuple[int, str]]] = {"I": [], "R": []}
        self.run = run = ShiftWorld(
            seed,
            links=LINKS,
            latency_us=2_000,
            until_us=6_000_000,
            period_us=(1_000, 2_000),
            how=how,
            directory=True,
        )
        for number, name in enumerate(run.names):
            run.subscribe(f"reader {name}", name, [("own", f"price > {number * 10}"), ("some", "kind = 'x'")])
        for name in "XYK":
            run.publish(f"writer {name}", name, acknowledged=True)
        run.world.run_for(seconds=1)
        run.world.on_progress = self._progressed

    def _progressed(self, at_us: int, name: str, progress: Progress) -> None:
        if name in self.spans:
            self.spans[name].append((at_us, progress.phase))
        if self.fault is not None and not self.struck and (name, progress.phase) == ("I", self.fault.phase):
            self.struck = True
            self.run.world.at(at_us + 1, self._strike)

    def _strike(self) -> None:
        world, fault = self.run.world, self.fault
        assert fault is not None
        assert world.directory is not None
        if fault.kind == "crash":
            world.crash(fault.subject)
            world.at(world.now_us + DOWN_US, lambda: world.restart(fault.subject))
        elif fault.kind == "session":
            world.expire(fault.subject)
        else:
            undo = world.partition(fault.subject, world.directory.name)
            world.at(world.now_us + 4 * DOWN_US, undo)

    def go(self) -> tuple[bool, bool]:
        """Which of the two were carried out.

        Raises:
            AssertionError: the tree is none of the four that there may be, or something is not as it must be.
        """
        run, world = self.run, self.run.world
        before = run.tree
        asked = {path[0]: run.operators[path[0]].shift(*path, by=run.how) for path in (LEFT, RIGHT)}
        run.wait(lambda: all(asked[name] in run.operators[name].answers for name in asked), seconds=15)
        world.run_for(seconds=10)
        world.run_until_quiet()
        found = tree_of(world, run.names)
        done = tuple(
            (path[0], path[-1]) in {*found.links, *(link[::-1] for link in found.links)}
            for path in (LEFT, RIGHT)
        )
        for path, moved in zip((LEFT, RIGHT), done, strict=True):
            before = Shift(*path).apply(before) if moved else before
        assert found == before
        run.tree = found
        run.require()
        return done[0], done[1]


@pytest.mark.parametrize("how", ["three-phase", "precopy"])
def test_operations_on_other_brokers_run_at_the_same_time(how: str) -> None:
    both = Together(how)
    assert both.go() == (True, True)
    begun, ended = ([moments[place][0] for moments in both.spans.values()] for place in (0, -1))
    assert max(begun) < min(ended)


FAULTS = [
    Fault(phase, kind, subject)
    for phase in ("prepared", "committed")
    for kind, subjects in {"crash": "JP", "session": "IR", "cut": "IR"}.items()
    for subject in subjects
]


@pytest.mark.soak
@pytest.mark.parametrize("how", ["three-phase", "precopy"])
def test_whatever_goes_wrong_nothing_is_lost_or_reordered(how: str) -> None:
    counts: Counter[tuple[str, str]] = Counter()
    for fault in FAULTS:
        run = Together(how, fault)
        run.go()
        assert run.struck, f"{fault} never came"
        counts[fault.phase, fault.kind] += 1
    assert all(
        counts[phase, kind] for phase in ("prepared", "committed") for kind in ("crash", "session", "cut")
    )


def test_an_operation_goes_on_when_another_one_fails() -> None:
    run = Together("precopy", Fault("prepared", "crash", "J"))
    assert run.go() == (False, True)
    assert run.struck
