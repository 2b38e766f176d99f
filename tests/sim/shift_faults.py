"""What goes wrong amid an operation, at every step of it: crashes, lost links, delays.

`python -m tests.sim.shift_faults` runs all cases, counts their kinds, and names what failed.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, NamedTuple

from braid.reconfiguration import OverlayTree, Shift
from tests.sim.shift_worlds import OPERATION_US_MAX, ShiftWorld, tree_of

if TYPE_CHECKING:
    from braid.protocol.effects import Progress

__all__ = ["CASES", "Case", "ShiftFault"]

LINKS = [("I", "J"), ("K", "J"), ("X", "I"), ("M", "J"), ("Y", "K")]
PATH = ("I", "J", "K")
STAGES = {
    "I": ("prepared", "flushed", "committed", "resumed"),
    "J": ("prepared", "flushed", "committed", "resumed"),
    "K": ("flushed", "committed", "resumed"),
}
WAYS = ("three-phase", "precopy")
DOWN_US = 600_000
# Longer than an operation may take, so that those who wait for others give up.
LONG_US = 3 * OPERATION_US_MAX


class Case(NamedTuple):
    """When something goes wrong, and what."""

    stage: str
    broker: str
    """The broker that comes to that stage."""
    fault: str
    """`crash`, `lose`, `part` (for long) or `delay`."""
    subject: str
    """A broker, or two."""

    how: str = "three-phase"

    def __str__(self) -> str:
        return f"{self.fault} {self.subject} when {self.broker} is {self.stage}, {self.how}"


CASES = [
    Case(stage, broker, fault, subject, how)
    for how in WAYS
    for broker, stages in STAGES.items()
    for stage in ((*(("copying",) if how == "precopy" else ()), *stages))
    for fault, subjects in {
        "crash": PATH,
        "lose": ("IJ", "JK", "IK"),
        "part": ("IJ", "JK", "IK"),
        "delay": ("IJ", "JK", "IK"),
    }.items()
    for subject in subjects
]


class ShiftFault:
    """One run: a SHIFT amid publications, and something that goes wrong in the middle of it."""

    def __init__(
        self,
        case: Case,
        seed: int = 0,
        *,
        acknowledged: bool = True,
        busy: bool = False,
    ) -> None:
        """`busy`: publications follow each other ten times as quickly, and links are slow."""
        self.case = case
        self.struck_us: int | None = None
        self.phases: list[tuple[int, str, str]] = []
        """What happened: when, where, and which phase of the operation."""
        self.run = run = ShiftWorld(
            seed,
            links=LINKS,
            latency_us=10_000 if busy else 1_000,
            until_us=3_800_000 if busy else 4_200_000,
            period_us=(200, 400, 600) if busy else (1_000, 4_000, 7_000),
            how=case.how,
        )
        filters = ["price > 30", "price BETWEEN 20 AND 70", "kind = 'x'", "price > 60 AND kind = 'x'", "TRUE"]
        for number, name in enumerate(run.names):
            chosen = [(str(key), filters[(number + key) % len(filters)]) for key in range(2)]
            run.subscribe(f"reader {name}", name, chosen)
        for name in "XMYI":
            run.publish(f"writer {name}", name, acknowledged=acknowledged, ordered=name == "M")
        run.world.run_for(seconds=1)
        run.world.on_progress = self._progressed

    def _progressed(self, at_us: int, name: str, progress: Progress) -> None:
        self.phases.append((at_us, name, progress.phase))
        if self.struck_us is None and (progress.phase, name) == (self.case.stage, self.case.broker):
            self.struck_us = at_us
            self.run.world.at(at_us + 1, self._strike)

    def _strike(self) -> None:
        world, case = self.run.world, self.case
        subject = case.subject
        if case.fault == "crash":
            world.crash(subject)
            world.at(world.now_us + DOWN_US, lambda: world.restart(subject))
        elif case.fault == "delay":
            undo = world.delay(subject[0], subject[1], 400_000)
            world.at(world.now_us + 1_000_000, undo)
        else:
            undo = world.partition(subject[0], subject[1])
            world.at(world.now_us + (DOWN_US if case.fault == "lose" else LONG_US), undo)

    def go(self) -> str:
        """Run it; returns whether the tree is the `old` or the `new` one.

        Raises:
            AssertionError: it is neither, or something is not as it must be.
        """
        run, world = self.run, self.run.world
        old = run.tree
        new = Shift(*PATH).apply(old)
        run.shift(*PATH)
        world.run_for(seconds=30)
        world.run_until_quiet()
        found = tree_of(world, run.names)
        assert found in (old, new), f"neither the old nor the new tree: {sorted(found.links)}"
        self._settle(found)
        # What came of it can be changed again.
        back = PATH if found == old else ("I", "K", "J")
        answer = run.shift(*back)
        assert answer.get("outcome") == "finished", answer
        world.run_until_quiet()
        run.require()
        return "old" if found == old else "new"

    def _settle(self, tree: OverlayTree) -> None:
        self.run.tree = tree
        self.run.require()


def main() -> int:
    """Run all cases, or those whose names contain a word."""
    word = sys.argv[1] if len(sys.argv) > 1 else ""
    counts: dict[tuple[str, str, str, str], int] = {}
    failed = []
    for case in CASES:
        if word not in str(case):
            continue
        try:
            run = ShiftFault(case)
            tree = run.go()
            if run.struck_us is None:
                raise AssertionError("nothing went wrong: the stage never came")
            kind = (case.how, case.stage, case.broker, case.fault)
            counts[kind] = counts.get(kind, 0) + 1
            print(f"{case}: {tree} tree", flush=True)
        except Exception as error:  # each is told, and the others are run all the same
            failed.append(case)
            print(f"{case}: FAILED {type(error).__name__}: {str(error)[:600]}", flush=True)
    print(
        f"{len(failed)} of {len(CASES)} failed; {len(counts)} kinds of (way, stage, broker, fault) were run, "
        f"each at least {min(counts.values(), default=0)} times"
    )
    return 1 if failed else 0


if __name__ == "__main__":
    raise SystemExit(main())
