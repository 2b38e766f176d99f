"""Why did a publication match, or why not?

An `Explanation` mirrors the filter as it was written: which conditions held, which failed, which
were unknown, and what each attribute was.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from braid.language.evaluate import evaluate
from braid.language.expressions import (
    And,
    Condition,
    Not,
    Or,
    attribute_names,
    conditions_within,
)
from braid.language.normal_form import normal_form
from braid.language.ranges import some_point_satisfies
from braid.language.stack import with_room
from braid.language.text import condition_text, literal_text
from braid.language.values import Range, Value

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["Explanation", "Step", "explain"]

_MARKS = {True: "+", False: "-", None: "?"}
_HEADINGS = {And: "all of:", Or: "at least one of:", Not: "not:"}
_WORDS = {True: "held", False: "failed", None: "unknown"}


@dataclass(frozen=True, slots=True)
class Step:
    """One condition of the filter and how it came out."""

    text: str
    outcome: bool | None
    because: str
    parts: tuple[Step, ...] = ()
    heading: str = ""

    def leaves(self) -> list[Step]:
        """The single conditions, from left to right."""
        return [leaf for part in self.parts for leaf in part.leaves()] if self.parts else [self]

    def to_json(self) -> dict[str, Any]:
        """Plain data, for programs."""
        plain: dict[str, Any] = {"condition": self.text, "outcome": _WORDS[self.outcome]}
        if self.parts:
            return {**plain, "parts": [part.to_json() for part in self.parts]}
        return {**plain, "because": self.because}


@dataclass(frozen=True, slots=True)
class Explanation:
    """The outcome for one publication, and every step that led there.

    `outcome` is True (matches), False, or None (unknown, which does not match).
    """

    outcome: bool | None
    root: Step

    def __bool__(self) -> bool:
        return self.outcome is True

    @property
    def held(self) -> list[str]:
        """The single conditions that were TRUE."""
        return self._leaves(True)

    @property
    def failed(self) -> list[str]:
        """The single conditions that were FALSE."""
        return self._leaves(False)

    @property
    def unknown(self) -> list[str]:
        """The single conditions that could not be decided: something is absent or of another kind."""
        return self._leaves(None)

    def _leaves(self, outcome: bool | None) -> list[str]:
        try:
            leaves = self.root.leaves()
        except RecursionError:
            leaves = with_room(self.root.leaves)
        return [leaf.text for leaf in leaves if leaf.outcome is outcome]

    def to_json(self) -> dict[str, Any]:
        """Plain data, for programs."""
        try:
            steps = self.root.to_json()
        except RecursionError:
            steps = with_room(self.root.to_json)
        return {
            "matches": self.outcome is True,
            "outcome": {True: "true", False: "false", None: "unknown"}[self.outcome],
            "held": self.held,
            "failed": self.failed,
            "unknown": self.unknown,
            "steps": steps,
        }

    def __str__(self) -> str:
        verdict = {True: "matches", False: "does not match", None: "does not match (unknown)"}
        try:
            lines = _lines(self.root, 1)
        except RecursionError:
            lines = with_room(_lines, self.root, 1)
        return "\n".join([verdict[self.outcome], *lines])


def explain(condition: Condition, attributes: Mapping[str, Value | None]) -> Explanation:
    """Evaluate every part of the condition and keep the outcomes."""
    root = _step(condition, attributes)
    return Explanation(root.outcome, root)


def _step(condition: Condition, attributes: Mapping[str, Value | None]) -> Step:
    parts = tuple(_step(part, attributes) for part in conditions_within(condition))
    outcome = _outcome(condition, attributes, parts)
    because = "" if parts else _because(condition, attributes)
    heading = _HEADINGS.get(type(condition), "")
    if outcome is False and isinstance(condition, And) and all(part.outcome for part in parts):
        heading = "all of, at one point:"
    return Step(condition_text(condition), outcome, because, parts, heading)


def _outcome(
    condition: Condition, attributes: Mapping[str, Value | None], parts: tuple[Step, ...]
) -> bool | None:
    if not any(isinstance(attributes.get(name), Range) for name in attribute_names(condition)):
        return evaluate(condition, attributes)  # type: ignore[arg-type]
    if some_point_satisfies(normal_form(condition), attributes):
        return True
    # No point makes it TRUE. Then the best that any point makes of it counts: unknown before FALSE.
    outcomes = {part.outcome for part in parts}
    if not parts:
        return False if some_point_satisfies(normal_form(Not(condition)), attributes) else None
    if isinstance(condition, And) and False in outcomes:
        return False
    return None if None in outcomes else False


def _because(condition: Condition, attributes: Mapping[str, Value | None]) -> str:
    names = dict.fromkeys(attribute_names(condition))
    return ", ".join(f"{name} is {_shown(attributes.get(name))}" for name in names)


def _shown(value: Value | None) -> str:
    if value is None:
        return "absent"
    if isinstance(value, Range):
        return f"{value.low} to {value.high}"
    return literal_text(value)


def _lines(step: Step, depth: int) -> list[str]:
    indent = "  " * depth
    if not step.parts:
        because = f"   ({step.because})" if step.because else ""
        return [f"{indent}{_MARKS[step.outcome]} {step.text}{because}"]
    lines = [f"{indent}{_MARKS[step.outcome]} {step.heading}"]
    for part in step.parts:
        lines += _lines(part, depth + 1)
    return lines
