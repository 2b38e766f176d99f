"""How much crossed the links of a run, and how much waited, whether a trace is written or not?

A simulation counts messages by kind where its trace does. `Tally` is a trace that also keeps the sums;
`Untraced` keeps nothing else and touches no disk.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

from braid.trace import TraceWriter

if TYPE_CHECKING:
    from pathlib import Path

    from braid.protocol import PublicationBatch

__all__ = ["Tally", "Untraced"]


class Tally(TraceWriter):
    """A trace whose samples are added up."""

    __slots__ = ("messages", "queue_bytes_max")

    def __init__(self, directory: Path) -> None:
        super().__init__(directory, "simulation")
        self._start()

    def _start(self) -> None:
        self.messages: Counter[str] = Counter()
        """What crossed links between brokers, by kind."""
        self.queue_bytes_max = 0
        """The most that any broker kept for others in any sample."""

    def _row(self, kind: str, at_us: int, *values: Any) -> None:
        self._add(kind, values)
        super()._row(kind, at_us, *values)

    def _add(self, kind: str, values: tuple[Any, ...]) -> None:
        # The columns are those of `trace.records` without the time.
        if kind == "link_sample":
            self.messages[values[4]] += values[5]
        elif kind == "broker_load":
            self.queue_bytes_max = max(self.queue_bytes_max, values[8])


class Untraced(Tally):
    """The sums alone."""

    __slots__ = ()

    def __init__(self) -> None:
        self._start()

    def publication(
        self, at_us: int, broker: str, batch: PublicationBatch, expected: int | None = None
    ) -> None:
        """Is not written down."""

    def hop(
        self, at_us: int, sent_at_us: int | None, source: str, target: str, link: str, batch: PublicationBatch
    ) -> None:
        """Is not written down: samples count it."""

    def delivery(self, at_us: int, broker: str, subscriber: str, batch: PublicationBatch) -> None:
        """Is not written down."""

    def _row(self, kind: str, at_us: int, *values: Any) -> None:
        self._add(kind, values)

    def close(self) -> None:
        """There is nothing to write."""
