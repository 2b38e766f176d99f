"""What happens next, and when?

Time is a whole number of microseconds. What is going to happen (an *occurrence*) is `(function, argument)`.
All that happens at the same time, a *moment*, is in a list, in the order in which it was scheduled; the times
themselves are on a heap. So a run never depends on how Python happens to compare or hash anything, and where
much happens at the same time, as with equal latencies, the heap stays small.
"""

from __future__ import annotations

import random
from heapq import heappop, heappush
from operator import length_hint
from typing import TYPE_CHECKING, Any, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["NEVER_US", "Loop", "Occurrence", "stream"]

Occurrence: TypeAlias = "tuple[Callable[[Any], None], Any]"

# Later than anything that is ever scheduled.
NEVER_US = 1 << 62


def stream(seed: int | str, purpose: str) -> random.Random:
    """A stream of chance of its own, so that a new draw for 'loss' never moves 'latency'."""
    return random.Random(f"{seed}/{purpose}")


class Loop:
    """Virtual time. It only ever goes forward, from one occurrence to the next."""

    __slots__ = ("moments", "now_us", "times")

    def __init__(self) -> None:
        self.now_us = 0
        self.moments: dict[int, list[Occurrence]] = {}
        """What happens at a time, in order."""
        self.times: list[int] = []
        """The heap of these times."""

    def schedule(self, at_us: int, function: Callable[[Any], None], argument: Any = None) -> None:
        """Have `function(argument)` called at a time; a time that has passed means now."""
        if at_us < self.now_us:
            at_us = self.now_us
        moment = self.moments.get(at_us)
        if moment is None:
            self.moments[at_us] = [(function, argument)]
            heappush(self.times, at_us)
        else:
            moment.append((function, argument))

    def run_until(self, until_us: int) -> int:
        """Let everything happen up to a time, which is then now; returns how many occurrences that were."""
        times = self.times
        moments = self.moments
        happened = 0
        while times and times[0] <= until_us:
            self.now_us = now_us = times[0]
            moment = moments[now_us]
            upcoming = iter(moment)  # it comes by what is scheduled for now meanwhile, too
            try:
                for function, argument in upcoming:
                    function(argument)
            finally:
                left = length_hint(upcoming)  # there are some if one of them has failed
                happened += len(moment) - left
                if left:
                    del moment[:-left]
                else:
                    del moments[now_us]
                    heappop(times)
        self.now_us = max(self.now_us, until_us)
        return happened

    def step(self) -> Occurrence:
        """Let the next thing happen, and say what it was; there must be one."""
        self.now_us = now_us = self.times[0]
        moment = self.moments[now_us]
        occurrence = moment.pop(0)
        if not moment:
            del self.moments[now_us]
            heappop(self.times)
        occurrence[0](occurrence[1])
        return occurrence
