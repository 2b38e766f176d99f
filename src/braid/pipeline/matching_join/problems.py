"""What becomes of filters that cannot be read?"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from braid.errors import FilterError

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["OnError", "judge"]

OnError = Literal["stop", "skip"]

# So many problems are quoted when a join stops because of them.
PROBLEMS_QUOTED = 5


def judge(problems: list[str], on_error: OnError, report: Callable[[str], None] | None) -> None:
    """Stop, or tell of every filter that is left out.

    Raises:
        FilterError: there are some, and they are to stop the join.
    """
    if problems and on_error == "stop":
        shown = "\n".join(problems[:PROBLEMS_QUOTED])
        more = len(problems) - PROBLEMS_QUOTED
        raise FilterError(shown + (f"\n... and {more:,} more" if more > 0 else ""))
    for problem in problems:
        if report is not None:
            report(problem)
