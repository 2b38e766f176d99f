"""How much of what this broker can send does it send?

The hybrid strategy (SH, multipath paper, section 5) saves copies while the uplink is nearly full: S1 at or
above the threshold, S2 below. Falling below by a little is not enough to switch back, or it would do so all
the time.
"""

from __future__ import annotations

__all__ = ["Uplink"]

# Rates are measured over windows of this length.
WINDOW_US = 1_000_000


class Uplink:
    """Measures output, and says when to save."""

    def __init__(self, messages_per_s: float, threshold: float, relief: float = 0.1) -> None:
        """
        Args:
            messages_per_s: what the uplink can carry; 0: without limit, so that there is nothing to save.
            threshold: the utilisation from which on copies are saved.
            relief: how far below it has to fall to stop saving.
        """
        self.messages_per_s = messages_per_s
        self.saving = False
        """Whether S1 is in force."""
        self.switches = 0
        self.rate = 0.0
        """Publications per second in the last whole window."""
        self._threshold = threshold
        self._relief = relief
        self._window_from_us: int | None = None
        self._total_before = 0

    @property
    def utilisation(self) -> float:
        """The share of the uplink in use."""
        return self.rate / self.messages_per_s if self.messages_per_s else 0.0

    def measure(self, total: int, now_us: int) -> None:
        """So many copies have left since the start."""
        if self._window_from_us is None:
            self._window_from_us, self._total_before = now_us, total
        elapsed_us = now_us - self._window_from_us
        if elapsed_us < WINDOW_US:
            return
        self.rate = (total - self._total_before) * 1_000_000 / elapsed_us
        self._window_from_us, self._total_before = now_us, total
        if not self.messages_per_s:
            return
        saving = self.utilisation >= self._threshold - (self._relief if self.saving else 0.0)
        if saving != self.saving:
            self.saving = saving
            self.switches += 1
