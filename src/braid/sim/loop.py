"""What happens next, and when?

Time is a whole number of microseconds. What is going to happen (an *occurrence*) sits on a heap as
`(at_us, serial, function, argument)`; the serial number decides between occurrences of the same moment, so a
run never depends on how Python happens to compare or hash anything.
"""

from __future__ import annotations

import random
from heapq import heappop, heappush
from itertools import count
from typing import TYPE_CHECKING, Any, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["NEVER_US", "Loop", "Occurrence", "stream"]

Occurrence: TypeAlias = "tuple[int, int, Callable[[Any], None], Any]"

# Later than anything that is ever scheduled.
NEVER_US = 1 << 62


def stream(seed: int | str, purpose: str) -> random.Random:
    """A stream of chance of its own, so that a new draw for 'loss' never moves 'latency'."""
    return random.Random(f"{seed}/{purpose}")


class Loop:
    """Virtual time. It only ever goes forward, from one occurrence to the next."""

    __slots__ = ("heap", "next_serial", "now_us")

    def __init__(self) -> None:
        self.now_us = 0
        self.heap: list[Occurrence] = []
        self.next_serial: Callable[[], int] = count().__next__

    def schedule(self, at_us: int, function: Callable[[Any], None], argument: Any = None) -> None:
        """Have `function(argument)` called at a time; a time that has passed means now."""
        if at_us < self.now_us:
            at_us = self.now_us
        heappush(self.heap, (at_us, self.next_serial(), function, argument))

    def run_until(self, until_us: int) -> int:
        """Let everything happen up to a time, which is then now; returns how many occurrences that were."""
        heap = self.heap
        pop = heappop
        happened = 0
        while heap and heap[0][0] <= until_us:
            self.now_us, _, function, argument = pop(heap)
            function(argument)
            happened += 1
        self.now_us = max(self.now_us, until_us)
        return happened

    def step(self) -> Occurrence:
        """Let the next thing happen, and say what it was; there must be one."""
        occurrence = heappop(self.heap)
        self.now_us = occurrence[0]
        occurrence[2](occurrence[3])
        return occurrence
