"""What can a reliability run be like, and what came of it?"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

    from tests.reliability.checker import Verdict

__all__ = ["CHANGES", "PLANS", "Choices", "Outcome"]

PLANS: dict[str, dict[str, int]] = {
    "kills": {"kill": 35, "reset": 50, "stall": 8, "kill clients": 6, "power cut": 1},
    "stops": {"stop": 30, "kill": 10, "reset": 20, "stall": 10},
    "holes": {"hole": 30, "kill": 10, "reset": 15, "stall": 10},
    "disks": {"old data": 12, "lost data": 8, "disk full": 14, "kill": 15, "reset": 20},
    "large": {"kill": 25, "reset": 30, "stall": 8, "hole": 5, "stop": 5},
}
"""What goes wrong in each plan, and how often in comparison:

- *kills*: `kill -9` of brokers and clients, broken and stalled connections, all brokers at once.
- *stops*: brokers that are stopped for up to 20 s and go on.
- *holes*: connections through which only one end is heard.
- *disks*: brokers that come back with an old data directory or with none, and one whose disk is full for a
  while, where a small disk can be mounted for it.
- *large*: publications up to the largest that a frame can hold, and a bit of everything.
"""

CHANGES: dict[str, dict[str, int]] = {
    "changes": {"shift": 5, "drain": 2, "transform": 2},
    "broken changes": {"shift": 2, "transform": 2},
    "maintenance": {"drain": 1, "move": 1, "transform": 1},
    "replacements": {"kill": 1, "stop": 1},
    "together": {"kill": 1, "transform": 1},
}
"""Plans in which operators change the tree, by the commands that they have (`changes.py`):

- *changes*: single SHIFTs, brokers that are drained, patched and put back, and whole plans to other trees.
- *broken changes*: the same while brokers are killed, and the command that carries a plan out, too.
- *maintenance*: once each, one after the other: a broker is drained, patched and put back, one is moved far,
  and the whole tree is made into another one. Half of the writers publish without acknowledgements, and
  watchers have thousands of different filters.
- *replacements*: a broker is killed and another one stopped for longer than its neighbours bear; a standby
  gets the place of each, and their clients find others.
- *together*: everything at once (`together.py`): brokers exchange links by themselves, operators carry out
  plans, a guard replaces brokers that are killed, peers and Spark are beside them.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Choices:
    """What a run is to be like."""

    seconds: float = 60.0
    brokers: int = 7
    clients: int = 20
    seed: int = 1
    rate: float = 2000.0
    """Publications per second that all publishers together aim at."""
    log_level: str = "info"
    strategy: str = "S0"
    """How brokers forward. With soft links, order is promised to those publishers only who ask for it."""
    plan: str = "kills"
    """What goes wrong."""
    filters: int = 0
    """Different filters of watchers; for the plan *maintenance*."""
    moves: tuple[str, ...] = ("delta",)
    """How the plan *maintenance* may move a broker."""

    @property
    def command(self) -> str:
        """What to type for the same run."""
        return (
            f"python -m tests.reliability.run --seconds {self.seconds:g} --brokers {self.brokers} "
            f"--clients {self.clients} --seed {self.seed} --rate {self.rate:g} --strategy {self.strategy} "
            f"--plan '{self.plan}' --filters {self.filters}"
            + "".join(f" --move-by {each}" for each in self.moves)
        )


@dataclass(slots=True)
class Outcome:
    """What a run came to."""

    choices: Choices
    directory: Path
    verdict: Verdict
    faults: Counter[str] = field(default_factory=Counter)
    newcomers: int = 0
    recovery_s: float = 0.0
    """From the last repair until everything had arrived."""
    load_s: float = 0.0
    """How long there was the full load, where that is known."""
    problems: list[str] = field(default_factory=list)
    """Whatever is wrong apart from what the verdict counts."""
    left_out: str = ""
    """What of the plan could not be done here, and why."""

    @property
    def right(self) -> bool:
        return self.verdict.right and not self.problems

    @property
    def summary(self) -> str:
        verdict, choices = self.verdict, self.choices
        faults = ", ".join(f"{count} {kind}" for kind, count in sorted(self.faults.items()))
        rate = f" ({verdict.published / self.load_s:,.0f}/s)" if self.load_s else ""
        gap = f", a watcher got nothing for {verdict.gap_s:.1f} s at most" if verdict.gap_s else ""
        return (
            f"reliability {choices.plan} {choices.strategy} seed {choices.seed}: "
            f"published {verdict.published:,}{rate}, receipts {verdict.settled:,}, lost {verdict.lost}, "
            f"doubled {verdict.doubled}, reordered {verdict.misordered}, "
            f"longest pause {verdict.pause_s:.1f} s{gap} "
            f"({choices.brokers} brokers, {choices.clients} clients, {self.newcomers} newcomers, "
            f"{verdict.delivered:,} delivered, repaired in {self.recovery_s:.1f} s; {faults})"
        )

    @property
    def explanation(self) -> str:
        """What was left out, the summary, and if anything is wrong what, where to look, how to repeat it."""
        lines = [self.left_out, self.summary] if self.left_out else [self.summary]
        if self.right:
            return "\n".join(lines)
        lines += self.problems
        for kind, examples in self.verdict.examples.items():
            lines += [f"{kind}: {sentence}" for sentence in examples]
        lines.append(f"logs, journals and reports: {self.directory}")
        lines.append(f"again: {self.choices.command}")
        return "\n".join(lines)
