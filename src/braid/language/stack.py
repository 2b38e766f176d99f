"""What if the caller has used up the stack?

A filter may be nested a hundred levels deep, and reading or evaluating one takes some calls per level. That
is well within what Python allows, unless the caller itself is nearly a thousand calls deep. Then the work is
done again with the limit raised for as long as it takes: a filter is bounded, so the room it needs is too.
(In CPython a call of Python code takes no space on the stack of C, which is what the limit protects.)
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, ParamSpec, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["ROOM", "with_room"]

Arguments = ParamSpec("Arguments")
Result = TypeVar("Result")

# Calls that the deepest filter needs: five for each of its levels to be read, fewer for anything else.
ROOM = 1_500

# One entry for each call of `with_room` that is under way, in any thread; the limit that was found by the
# first comes back with the last.
_under_way: list[int] = []


def with_room(
    work: Callable[Arguments, Result], *arguments: Arguments.args, **named: Arguments.kwargs
) -> Result:
    """What `work` returns, on a stack with room for it; for a caller that met a `RecursionError`."""
    limit = sys.getrecursionlimit()
    _under_way.append(limit)
    sys.setrecursionlimit(limit + ROOM)
    try:
        return work(*arguments, **named)
    finally:
        first = _under_way[0]
        _under_way.pop()
        if not _under_way:
            sys.setrecursionlimit(first)
