"""How do many rows of a log travel to who decodes them as columns?

As columns, too: one run of bytes for the records, and arrays for their lengths and the numbers of their
publishers. Neither side then has an object per row.
"""

from __future__ import annotations

from itertools import accumulate, pairwise
from typing import TYPE_CHECKING, Any, TypeAlias

import msgspec
import numpy as np

from braid.errors import RemoteProtocolError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from braid.protocol.log import LogRow

__all__ = ["PackedRead", "PackedRows", "packed_read"]

# Little-endian, whatever the machine.
_NUMBERS = "<i8"
_LENGTHS = "<u4"


class PackedRows(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """Rows with consecutive offsets."""

    publishers: list[str]
    """Those that rows are from, each once, with their epochs."""
    which: bytes
    """By row, the place of its publisher; empty where there is only one."""
    sequences: bytes
    lengths: bytes
    """Of the records."""
    records: bytes

    @classmethod
    def of(cls, rows: Sequence[tuple[str, int, bytes]]) -> PackedRows:
        """From the publisher, sequence and record of each row."""
        return cls.joined(
            [publisher for publisher, _, _ in rows],
            np.array([sequence for _, sequence, _ in rows], _NUMBERS),
            np.array([len(record) for _, _, record in rows], _LENGTHS),
            b"".join([record for _, _, record in rows]),
        )

    @classmethod
    def joined(cls, publishers: Sequence[str], sequences: Any, lengths: Any, records: bytes) -> PackedRows:
        """From columns; one publisher alone is that of all rows."""
        places = {publisher: place for place, publisher in enumerate(dict.fromkeys(publishers))}
        which = b""
        if len(places) > 1:
            which = np.array([places[publisher] for publisher in publishers], _LENGTHS).tobytes()
        numbers = sequences.astype(_NUMBERS, copy=False).tobytes()
        return cls([*places], which, numbers, lengths.astype(_LENGTHS, copy=False).tobytes(), records)

    @property
    def count(self) -> int:
        """How many rows there are."""
        return len(self.lengths) // 4

    def checked(self) -> PackedRows:
        """These rows, as far as they fit together.

        Raises:
            RemoteProtocolError: they do not.
        """
        count = self.count
        lengths = self.record_lengths()
        fits = (
            len(self.lengths) == 4 * count
            and len(self.sequences) == 8 * count
            and int(lengths.sum(dtype=np.int64)) == len(self.records)
            and len(self.which) == (4 * count if len(self.publishers) > 1 else 0)
            and (bool(self.publishers) or not count)
        )
        if not fits or (self.which and int(self.publisher_places().max()) >= len(self.publishers)):
            raise RemoteProtocolError(f"{count} rows of a log whose columns do not fit together")
        return self

    def record_lengths(self) -> Any:
        """The length of each record, as an array."""
        return np.frombuffer(self.lengths[: 4 * self.count], _LENGTHS)

    def sequence_numbers(self) -> Any:
        """The sequence of each row, as an array."""
        return np.frombuffer(self.sequences, _NUMBERS)

    def publisher_places(self) -> Any:
        """By row, which of the publishers it is from, as an array."""
        return np.frombuffer(self.which, _LENGTHS) if self.which else np.zeros(self.count, _LENGTHS)

    def record_list(self) -> list[bytes]:
        """The record of each row."""
        records = self.records
        ends = accumulate(self.record_lengths().tolist(), initial=0)
        return [records[start:end] for start, end in pairwise(ends)]

    def rows(self) -> list[tuple[str, int, bytes]]:
        """The publisher, sequence and record of each row."""
        publishers = self.publishers
        return [
            (publishers[place], sequence, record)
            for place, sequence, record in zip(
                self.publisher_places().tolist(),
                self.sequence_numbers().tolist(),
                self.record_list(),
                strict=True,
            )
        ]

    def without(self, count: int) -> PackedRows:
        """These rows without the first of them."""
        if count <= 0:
            return self
        start = int(self.record_lengths()[:count].sum(dtype=np.int64))
        return PackedRows(
            self.publishers,
            self.which[4 * count :],
            self.sequences[8 * count :],
            self.lengths[4 * count :],
            self.records[start:],
        )


PackedRead: TypeAlias = tuple[int, PackedRows] | None
"""What a store has of a range: the offset of the first row, and the rows; None if there is none."""


def packed_read(found: Sequence[tuple[int, LogRow]]) -> PackedRead:
    """Rows that a store has read one by one."""
    rows = [(row.publisher, row.sequence, row.record) for _, row in found]
    return (found[0][0], PackedRows.of(rows)) if rows else None
