"""What time is it?"""

from __future__ import annotations

import time
from typing import Final

__all__ = ["Clock", "Progress"]

# How often a machine hears that a long frame is still coming in. Well below any heartbeat.
PROGRESS_S: Final = 0.1


class Clock:
    """Microseconds since 1970 that never run backwards: wall time at the start, then a steady clock.

    Ages are counted across restarts, so it must be wall time; deadlines must not jump, so it is read once.
    """

    def __init__(self) -> None:
        self._offset_us = time.time_ns() // 1000 - time.monotonic_ns() // 1000

    def now_us(self) -> int:
        """The present."""
        return time.monotonic_ns() // 1000 + self._offset_us


class Progress:
    """Says when a machine is to hear that more of a long frame has come: its peer is not silent."""

    def __init__(self) -> None:
        self._due_s = 0.0

    @property
    def is_due(self) -> bool:
        """True now and then, however often this is asked."""
        now_s = time.monotonic()
        if now_s < self._due_s:
            return False
        self._due_s = now_s + PROGRESS_S
        return True
