"""What has been here before? A bounded memory of marks."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Hashable

__all__ = ["Repeats"]


# With a bound on time: so many old marks are forgotten with each new one, so that no call takes long.
FORGOTTEN_MAX: Final = 4


class Repeats:
    """The latest marks, oldest forgotten first."""

    __slots__ = ("_keep_us", "_marks", "_marks_max")

    def __init__(self, marks_max: int, keep_us: int | None = None) -> None:
        """At most `marks_max` marks, and none longer than `keep_us` after it was seen first."""
        self._marks: dict[Hashable, int] = {}
        self._marks_max = marks_max
        self._keep_us = keep_us

    def is_new(self, mark: Hashable, now_us: int = 0) -> bool:
        """Whether a mark has not been seen; from now on it has."""
        marks = self._marks
        if mark in marks:
            return False
        marks[mark] = now_us
        if self._keep_us is not None:
            for _ in range(FORGOTTEN_MAX):
                oldest = next(iter(marks))
                if marks[oldest] >= now_us - self._keep_us:
                    break
                del marks[oldest]
        if len(marks) > self._marks_max:
            del marks[next(iter(marks))]
        return True

    def forget(self, mark: Hashable) -> bool:
        """Take a mark for unseen; whether it was seen."""
        seen = mark in self._marks
        if seen:
            del self._marks[mark]
        return seen
