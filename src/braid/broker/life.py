"""Lives as tables: which stages something goes through, and what leads from one to the next.

A life is one dictionary from a stage and a step to the stage that follows. What is not in it cannot happen:
it is a mistake of ours, and says so with the names of stage, step and owner. It costs that one connection,
and the link begins anew (`BrokerCore.handle`); the rest of the broker goes on. A life draws itself as a
diagram (`docs/lives.md`), so that the picture is never older than the code.

Only `Party.step` assigns a stage, and each kind of party has one owner that calls it.
"""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING, Generic, TypeVar

from braid.errors import UnknownStepError

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["Life", "Stage", "Step"]


class Stage(Enum):
    """Where something is in its life; the value is a sentence that says what that means."""


class Step(Enum):
    """What happens to it; the value is a sentence that says what has happened."""


StageT = TypeVar("StageT", bound=Stage)
StepT = TypeVar("StepT", bound=Step)


class Life(Generic[StageT, StepT]):
    """The stages of one kind of thing.

    Args:
        title: what it is the life of, such as "a link".
        first: the stages it may begin in.
        table: the stage that follows each stage and step that can meet.
    """

    def __init__(
        self, title: str, first: tuple[StageT, ...], table: Mapping[tuple[StageT, StepT], StageT]
    ) -> None:
        self.title = title
        self.first = first
        self.table = dict(table)

    def after(self, stage: StageT, step: StepT, who: object) -> StageT:
        """The stage that follows.

        Raises:
            UnknownStepError: this cannot happen in that stage.
        """
        following = self.table.get((stage, step))
        if following is None:
            raise UnknownStepError(
                f"the life of {self.title} knows no step {step.name} ({step.value}) in the stage "
                f"{stage.name} ({stage.value}): {who!r}",
                who,
            )
        return following

    def drawn(self) -> str:
        """A mermaid diagram of the table, and what its words mean."""
        lines = ["```mermaid", "stateDiagram-v2"]
        lines += [f"    [*] --> {stage.name}" for stage in self.first]
        arrows: dict[tuple[str, str], list[str]] = {}
        for (stage, step), following in self.table.items():
            arrows.setdefault((stage.name, following.name), []).append(step.name)
        for (stage_name, following_name), steps in arrows.items():
            lines.append(f"    {stage_name} --> {following_name}: {', '.join(steps)}")
        left = {stage for (stage, _), following in self.table.items() if following is not stage}
        ends = dict.fromkeys(each for each in self.table.values() if each not in left)
        lines += [f"    {stage.name} --> [*]" for stage in ends]
        lines += ["```", "", "| stage | meaning |", "|---|---|"]
        lines += [f"| {stage.name} | {stage.value} |" for stage in type(self.first[0])]
        lines += ["", "| step | what has happened |", "|---|---|"]
        _, first = next(iter(self.table))
        lines += [f"| {step.name} | {step.value} |" for step in type(first)]
        return "\n".join(lines)
