"""A delta-move amid publications, and what goes wrong at every step of it: crashes, lost links, delays.

`python -m tests.sim.delta_faults` runs all cases, counts their kinds, and names what failed.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from braid.reconfiguration import delta_moved
from tests.sim.shift_faults import DOWN_US, LONG_US, Case
from tests.sim.shift_worlds import ShiftWorld, tree_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from braid.protocol.effects import Progress

__all__ = ["CALM", "CASES", "DeltaFault", "move_at_once"]

LINKS = [("J", "I"), ("K", "J"), ("L", "K"), ("X", "I"), ("M", "J"), ("Z", "K"), ("Y", "L")]
PATH = ("I", "J", "K", "L")
STAGES = {
    "I": ("preparation", "initialization", "prepared", "update", "doubled", "wrap_up", "replaced"),
    "J": ("initialization", "update", "doubled", "wrap_up", "replaced"),
    "K": ("initialization", "update", "doubled", "wrap_up", "replaced"),
    "L": ("initialization", "update", "doubled", "wrap_up", "replaced"),
}
PAIRS = ("IJ", "JK", "KL", "IL")

CASES = [
    Case(stage, broker, fault, subject)
    for broker, stages in STAGES.items()
    for stage in stages
    for fault, subjects in {"crash": PATH, "lose": PAIRS, "part": PAIRS, "delay": PAIRS}.items()
    for subject in subjects
]
CALM = Case("never", "I", "crash", "I")


def move_at_once(run: ShiftWorld, path: Sequence[str]) -> dict[str, Any]:
    """Have the first broker of a path moved by a delta-move, and wait for the answer."""
    operator = run.operators[path[0]]
    request = operator.ask("reconfigure", operation="delta", path=",".join(path))
    run.wait(lambda: request in operator.answers)
    answer = operator.answers.get(request, {})
    if answer.get("outcome") == "finished":
        run.tree = delta_moved(run.tree, path)
    return answer


class DeltaFault:
    """One run: a delta-move amid publications, and something that goes wrong in the middle of it."""

    def __init__(
        self, case: Case, seed: int = 0, *, acknowledged: bool = True, busy: bool = False, readers: str = ""
    ) -> None:
        """`busy`: publications follow each other quickly, and links are slow; `readers`: where there are
        subscribers, if not everywhere."""
        self.case = case
        self.struck_us: int | None = None
        self.phases: list[tuple[int, str, str]] = []
        """What happened: when, where, and which phase of the operation."""
        self.run = run = ShiftWorld(
            seed,
            links=LINKS,
            latency_us=10_000 if busy else 1_000,
            until_us=3_500_000 if busy else 4_200_000,
            period_us=(400, 700, 1_000) if busy else (1_000, 4_000, 7_000),
        )
        filters = ["price > 30", "price BETWEEN 20 AND 70", "kind = 'x'", "price > 60 AND kind = 'x'", "TRUE"]
        for number, name in enumerate(readers or run.names):
            chosen = [(str(key), filters[(number + key) % len(filters)]) for key in range(2)]
            run.subscribe(f"reader {name}", name, chosen)
        for name in "XMZYI":
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
        new = delta_moved(old, PATH)
        move_at_once(run, PATH)
        world.run_for(seconds=30)
        world.run_until_quiet()
        found = tree_of(world, run.names)
        assert found in (old, new), f"neither the old nor the new tree: {sorted(found.links)}"
        run.tree = found
        run.require()
        # What came of it can be changed again.
        answer = move_at_once(run, PATH if found == old else ("I", "L", "K", "J"))
        assert answer.get("outcome") == "finished", answer
        world.run_until_quiet()
        run.require()
        return "old" if found == old else "new"


def main() -> int:
    """Run all cases, or those whose names contain a word."""
    word = sys.argv[1] if len(sys.argv) > 1 else ""
    counts: dict[tuple[str, str, str], int] = {}
    failed = []
    for case in CASES:
        if word not in str(case):
            continue
        try:
            run = DeltaFault(case)
            tree = run.go()
            if run.struck_us is None:
                raise AssertionError("nothing went wrong: the stage never came")
            kind = (case.stage, case.broker, case.fault)
            counts[kind] = counts.get(kind, 0) + 1
            print(f"{case}: {tree} tree", flush=True)
        except Exception as error:  # each is told, and the others are run all the same
            failed.append(case)
            print(f"{case}: FAILED {type(error).__name__}: {str(error)[:600]}", flush=True)
    print(
        f"{len(failed)} of {len(CASES)} failed; {len(counts)} kinds of (stage, broker, fault) were run, "
        f"each at least {min(counts.values(), default=0)} times"
    )
    return 1 if failed else 0


if __name__ == "__main__":
    raise SystemExit(main())
