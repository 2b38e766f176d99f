"""How often is a promise broken in a thousand random worlds?

    python -m tests.sim.fault_runs --runs 1000 --strategy S0 --seed 0

Runs random worlds (see `random_worlds`) with one seed after the other and prints one line per strategy, then
how often each two kinds of faults overlapped. Every failing seed is printed with what was broken and the
command that repeats it. With `--processes 2` two processes share the seeds.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections import Counter
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from multiprocessing import get_context

from braid.errors import InvariantViolated
from tests.sim.random_worlds import FAULTS, RandomWorld

__all__ = ["Tally", "fault_runs"]

STRATEGIES = ("S0", "S1", "S2", "SH", "SB")
# Seeds that a process is given at a time.
SHARE = 20
# Lines of a failure that are printed; the command repeats the rest.
SHOWN_MAX = 4


@dataclass(slots=True)
class Tally:
    """What the runs of one strategy came to."""

    strategy: str
    runs: int = 0
    published: int = 0
    delivered: int = 0
    published_amid: int = 0
    """While something was wrong, or right after."""
    subscribed_amid: int = 0
    pairs: Counter[tuple[str, str]] = field(default_factory=Counter)
    """How often two kinds of faults overlapped."""
    failures: list[str] = field(default_factory=list)
    """What was broken, and how to see it again."""

    def add(self, other: Tally) -> None:
        """What other seeds of the same strategy came to."""
        self.runs += other.runs
        self.published += other.published
        self.delivered += other.delivered
        self.published_amid += other.published_amid
        self.subscribed_amid += other.subscribed_amid
        self.pairs.update(other.pairs)
        self.failures += other.failures

    @property
    def line(self) -> str:
        possible = len(FAULTS) * (len(FAULTS) + 1) // 2
        return (
            f"fault runs: {self.strategy}: {self.runs:,} runs, {len(self.failures)} failed; "
            f"{self.published:,} published ({self.published_amid:,} amid faults), "
            f"{self.delivered:,} delivered, {self.subscribed_amid:,} subscriptions amid faults; "
            f"{len(self.pairs)} of {possible} pairs of faults"
        )


def fault_runs(strategy: str, seeds: range, *, acknowledged: bool = True) -> Tally:
    """Run one world per seed."""
    tally = Tally(strategy)
    for seed in seeds:
        fast = "" if acknowledged else " --fast"
        repeat = f"python -m tests.sim.fault_runs --strategy {strategy} --seed {seed} --runs 1{fast}"
        world = RandomWorld(seed, strategy=strategy, acknowledged=acknowledged, repeat=repeat)
        try:
            world.run()
            world.require()
        except (InvariantViolated, AssertionError) as error:
            lines = str(error).split("\n")[: SHOWN_MAX + 1]
            tally.failures.append("\n".join([f"{repeat}", *lines]))
        statistics = world.world.statistics()
        tally.runs += 1
        tally.published += statistics["published"]
        tally.delivered += statistics["delivered"]
        tally.published_amid += world.published_amid
        tally.subscribed_amid += world.subscribed_amid
        tally.pairs.update(world.pairs)
    return tally


def shared_runs(strategy: str, seeds: range, processes: int, *, acknowledged: bool = True) -> Tally:
    """The same, by several processes."""
    if processes < 2:
        return fault_runs(strategy, seeds, acknowledged=acknowledged)
    tally = Tally(strategy)
    shares = [seeds[place : place + SHARE] for place in range(0, len(seeds), SHARE)]
    with ProcessPoolExecutor(processes, mp_context=get_context("spawn")) as pool:
        for part in pool.map(partial(fault_runs, strategy, acknowledged=acknowledged), shares):
            tally.add(part)
    return tally


def coverage(pairs: Counter[tuple[str, str]]) -> str:
    """A table: how often two kinds of faults overlapped."""
    width = max(map(len, FAULTS))
    rows = [" " * width + "".join(f" {number:>4}" for number in range(1, len(FAULTS) + 1))]
    for number, left in enumerate(FAULTS, 1):
        cells = []
        for other in range(1, number + 1):
            pair = (min(left, FAULTS[other - 1]), max(left, FAULTS[other - 1]))
            cells.append(f" {pairs[pair]:>4}")
        rows.append(f"{left:<{width}}{''.join(cells)}  ({number})")
    return "\n".join(rows)


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(
        description="Random worlds with overlapping faults; no promise may break."
    )
    parser.add_argument("--runs", type=int, default=1000, help="worlds per strategy")
    parser.add_argument("--seed", type=int, default=0, help="of the first world")
    parser.add_argument("--strategy", action="append", choices=STRATEGIES, help="may be given more than once")
    parser.add_argument("--processes", type=int, default=1, help="that share the seeds")
    parser.add_argument("--fast", action="store_true", help="publish without acknowledgement")
    arguments = parser.parse_args()
    pairs: Counter[tuple[str, str]] = Counter()
    failed = 0
    for strategy in arguments.strategy or ("S0", "S2", "SB"):
        began = time.monotonic()
        seeds = range(arguments.seed, arguments.seed + arguments.runs)
        tally = shared_runs(strategy, seeds, arguments.processes, acknowledged=not arguments.fast)
        for failure in tally.failures:
            print(failure)
        print(f"{tally.line}; {time.monotonic() - began:.0f} s", flush=True)
        pairs += tally.pairs
        failed += len(tally.failures)
    if arguments.runs > 1:
        print("pairs of faults that overlapped, and in how many runs:")
        print(coverage(pairs))
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
