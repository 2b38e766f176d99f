"""By which SHIFTs are two links of a tree exchanged?

The self-organising paper replaces a link (a, b) on the path from i to j by a link between i and j. On the
path i ... a b ... j the end at b moves to j, link by link, and then the other end from a to i: SHIFT(a, b,
next(b)) until b is j, then SHIFT(j, a, previous(a)) until a is i. That is one SHIFT less than the path has
links, every step leaves a tree, and no broker off the path takes part.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from braid.errors import ConfigurationError
from braid.reconfiguration.primitives import Shift

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["exchange_steps"]


def exchange_steps(path: Sequence[str], removed: int) -> tuple[Shift, ...]:
    """The SHIFTs that link the ends of a path and take away the link behind one of its brokers.

    >>> [str(step) for step in exchange_steps("iabj", 1)]
    ['SHIFT(a, b, j)', 'SHIFT(j, a, i)']

    Args:
        path: the brokers from one end to the other.
        removed: the link between `path[removed]` and the broker behind it goes.

    Raises:
        ConfigurationError: the path is shorter than two links, or has no such link.
    """
    if len(path) < 3 or not 0 <= removed < len(path) - 1:
        raise ConfigurationError(f"a path of {len(path)} brokers has no link {removed} to be exchanged")
    near, far = path[removed], path[-1]
    steps = [Shift(near, path[place], path[place + 1]) for place in range(removed + 1, len(path) - 1)]
    steps += [Shift(far, path[place], path[place - 1]) for place in range(removed, 0, -1)]
    return tuple(steps)
