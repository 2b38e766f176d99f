"""Is this offset still the row that it was?

Every start of a broker opens a new *epoch* of a log, named after that start, with the first row it appends:

    offsets    0 ........ 199 | 200 ........ 349 | 350 ...
    epoch      A-1            | A-2              | A-3

A row is known for good by its epoch and its offset. After a restore from backup, or with a lost data
directory, offsets are given again, but in another epoch. Whoever reads a log keeps the same history, as far
as it has read; where the two part, the reader has rows that the log no longer has, and goes on from there.
(The idea is that of Kafka's leader epochs, KIP-101.)
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = ["EPOCHS_MAX", "EpochHistory"]

# Starts of a broker that a log remembers. A reader that has been away for longer begins where the log has it
# acknowledged, as if it were a new one.
EPOCHS_MAX: Final = 64


class EpochHistory:
    """The epochs of a log and the offset at which each began, oldest first."""

    __slots__ = ("entries",)

    def __init__(self, entries: Iterable[tuple[str, int]] = ()) -> None:
        self.entries: list[tuple[str, int]] = [*entries][-EPOCHS_MAX:]

    @property
    def current(self) -> str:
        """The latest epoch; empty where there is none."""
        return self.entries[-1][0] if self.entries else ""

    def begin(self, epoch: str, first_offset: int) -> None:
        """Rows from this offset on are of this epoch."""
        if epoch != self.current:
            self.entries.append((epoch, first_offset))
            del self.entries[:-EPOCHS_MAX]

    def at(self, offset: int) -> str:
        """The epoch of an offset; empty where that is not known."""
        return next((epoch for epoch, first in reversed(self.entries) if first <= offset), "")

    def end_of(self, epoch: str, next_offset: int) -> int | None:
        """The offset behind the last row of an epoch; None for one that is not known."""
        for place, (known, _) in enumerate(self.entries):
            if known == epoch:
                return self.entries[place + 1][1] if place + 1 < len(self.entries) else next_offset
        return None

    def has(self, epoch: str, offset: int, next_offset: int) -> bool:
        """Whether a row that somebody knows by epoch and offset is, or was, in this log."""
        end = self.end_of(epoch, next_offset)
        return end is not None and offset < end

    def common_end(self, other: EpochHistory, own_next: int, other_next: int) -> int | None:
        """The offset up to which two histories tell of the same rows; None where they share no epoch."""
        for epoch, _ in reversed(other.entries):
            own = self.end_of(epoch, own_next)
            theirs = other.end_of(epoch, other_next)
            if own is not None and theirs is not None:
                return min(own, theirs)
        return None

    def cut(self, next_offset: int) -> None:
        """Forget everything from an offset on."""
        self.entries = [entry for entry in self.entries if entry[1] < next_offset]

    def split(self, offsets: list[int]) -> list[tuple[str, int, int]]:
        """Rows with these offsets by epoch: the epoch, and the first and the end place among them."""
        if self.entries and offsets[0] >= self.entries[-1][1]:
            return [(self.current, 0, len(offsets))]
        parts: list[tuple[str, int, int]] = []
        for place, offset in enumerate(offsets):
            epoch = self.at(offset)
            if parts and parts[-1][0] == epoch:
                parts[-1] = (epoch, parts[-1][1], place + 1)
            else:
                parts.append((epoch, place, place + 1))
        return parts
