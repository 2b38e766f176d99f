"""Is the machine about to run out of something?

The driver tells how much room the disk has and how much memory the process takes. Before either is used up,
those whose publications need it get no further credit, until there is clearly more of it again. What has
arrived is still taken care of.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from braid.broker.bottleneck import Bottleneck

if TYPE_CHECKING:
    from braid.broker.parties import Party
    from braid.broker.turn import Turn
    from braid.protocol.inputs import Resources

__all__ = ["Pressure"]

# Credit is granted again when memory is below this share of its limit.
MEMORY_RELIEF = 0.9


class Pressure:
    """Holds publishers back while disk or memory is short."""

    def __init__(self, turn: Turn) -> None:
        self._turn = turn
        self.disk_low = False
        """The store's disk is nearly full."""
        self.memory_high = False
        """The process takes more memory than it should."""
        self._disk = Bottleneck("the disk")
        self._memory = Bottleneck("memory")

    @property
    def short(self) -> bool:
        """Something is short: what would be kept should not be taken on."""
        return self.disk_low or self.memory_high

    def looked_at(self, resources: Resources) -> None:
        """The driver has looked how much there is."""
        settings = self._turn.settings
        free = resources.disk_free_bytes
        if free is not None:
            low = free < (settings.disk_high_bytes if self.disk_low else settings.disk_low_bytes)
            if low != self.disk_low:
                self.disk_low = low
                what = "the disk is nearly full" if low else "the disk has room again"
                self._turn.note("warning" if low else "info", what, free_bytes=free)
                if not low:
                    self._turn.open(self._disk)
        used, limit = resources.memory_bytes, settings.memory_bytes_max
        if used is not None and limit:
            high = used > (limit * MEMORY_RELIEF if self.memory_high else limit)
            if high != self.memory_high:
                self.memory_high = high
                what = "memory is short" if high else "memory is not short any more"
                self._turn.note("warning" if high else "info", what, used_bytes=used)
                if not high:
                    self._turn.open(self._memory)

    def stores(self, source: Party) -> None:
        """A source's publications go to the disk."""
        if self.disk_low:
            self._disk.hold_up(source)

    def publishes(self, source: Party) -> None:
        """A source publishes."""
        if self.memory_high:
            self._memory.hold_up(source)
