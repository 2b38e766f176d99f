"""What comes from a log: publications with their offsets, or many records at once; and what to ask for."""

from __future__ import annotations

from dataclasses import dataclass

from braid.language.publication import Publication
from braid.protocol.packed_rows import PackedRows

__all__ = ["ReplayWish", "StoredPublication", "StoredRecords"]


@dataclass(frozen=True, slots=True)
class StoredPublication(Publication):
    """A publication of a durable subscription: `offset` is its place in the log.

    Offsets may be given again, such as after a restore from backup; `log_epoch` then tells the rows apart.
    `log_resets` is how often this reader's log had turned out to be another one when the row came: where it
    rises from one row to the next, offsets begin anew. `Subscription.resets` may be ahead of what is queued.
    """

    offset: int = -1
    log_epoch: str = ""
    log_resets: int = 0


@dataclass(frozen=True, slots=True)
class StoredRecords:
    """Rows of a log as they are stored, for those who decode many of them at once."""

    offsets: range | list[int]
    """The place of each row in the log."""
    packed: PackedRows
    """The rows as columns."""
    log_epoch: str

    @classmethod
    def of(cls, rows: list[tuple[int, tuple[str, int, bytes]]], epoch: str) -> StoredRecords:
        """Rows with their offsets, all of one epoch."""
        first, last = rows[0][0], rows[-1][0]
        consecutive = last - first + 1 == len(rows)
        offsets = range(first, last + 1) if consecutive else [offset for offset, _ in rows]
        return cls(offsets, PackedRows.of([row for _, row in rows]), epoch)

    @property
    def rows(self) -> list[tuple[str, int, bytes]]:
        """Each row's publisher (with its epoch), sequence and record."""
        return self.packed.rows()


@dataclass(frozen=True, slots=True)
class ReplayWish:
    """What of a log is to be replayed, and how."""

    first: int
    last: int
    """-1: up to the end."""
    complete: bool = False
    """Whether a row that is missing is an error."""
    id: str = ""
    """That of the log that is meant; empty: whichever has the name."""
    epoch: str = ""
    """That of the row before the first; empty: unknown."""
    filter: str = ""
    columns: tuple[str, ...] | None = None
    records: bool = False
    """Whether rows are handed over as `StoredRecords`, not one by one."""
