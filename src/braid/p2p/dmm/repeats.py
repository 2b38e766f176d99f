"""What has been here before? A bounded memory of marks."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Hashable

__all__ = ["Repeats"]


class Repeats:
    """The latest marks, oldest forgotten first."""

    __slots__ = ("_marks", "_marks_max")

    def __init__(self, marks_max: int) -> None:
        self._marks: dict[Hashable, None] = {}
        self._marks_max = marks_max

    def is_new(self, mark: Hashable) -> bool:
        """Whether a mark has not been seen; from now on it has."""
        marks = self._marks
        if mark in marks:
            return False
        marks[mark] = None
        if len(marks) > self._marks_max:
            del marks[next(iter(marks))]
        return True

    def forget(self, mark: Hashable) -> bool:
        """Take a mark for unseen; whether it was seen."""
        seen = mark in self._marks
        if seen:
            del self._marks[mark]
        return seen
