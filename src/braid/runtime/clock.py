"""What time is it?"""

from __future__ import annotations

import time

__all__ = ["Clock"]


class Clock:
    """Microseconds since 1970 that never run backwards: wall time at the start, then a steady clock.

    Ages are counted across restarts, so it must be wall time; deadlines must not jump, so it is read once.
    """

    def __init__(self) -> None:
        self._offset_us = time.time_ns() // 1000 - time.monotonic_ns() // 1000

    def now_us(self) -> int:
        """The present."""
        return time.monotonic_ns() // 1000 + self._offset_us
