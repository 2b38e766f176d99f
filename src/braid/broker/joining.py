"""Which batches of one read can be routed as one, and which one must be routed in pieces?"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from braid.broker.settling import Pending, WaitingFor
from braid.protocol import PublicationBatch

if TYPE_CHECKING:
    from collections.abc import Sequence

    from braid.broker.parties import Party
    from braid.broker.ways import Arrival
    from braid.protocol import Frame

__all__ = ["in_pieces", "is_long", "joined", "rows_per_piece"]

# Batches are joined up to this size: larger ones gain nothing, and a frame must not become too long.
JOINED_BYTES_MAX = 256 * 1024
# A batch with more rows, or more bytes, is routed in pieces.
ROWS_PER_PIECE = 4_096
BYTES_PER_PIECE = 512 * 1024


def joined(frames: Sequence[Frame]) -> list[tuple[int, PublicationBatch]]:
    """The batches of several frames. Small ones of one publisher are made one, to be routed at once.

    Acknowledged ones stay apart: each frame is settled by itself.
    """
    if len(frames) == 1:
        sequence, batch = frames[0]
        return [(sequence, batch)] if isinstance(batch, PublicationBatch) else []
    groups: list[list[PublicationBatch]] = []
    numbers: list[int] = []
    size = 0
    for sequence, batch in frames:
        if not isinstance(batch, PublicationBatch):
            continue
        size += batch.size
        if groups and size <= JOINED_BYTES_MAX and not batch.acknowledged and _continues(batch, groups[-1]):
            groups[-1].append(batch)
            numbers[-1] = sequence
        else:
            groups.append([batch])
            numbers.append(sequence)
            size = batch.size
    return [
        (number, group[0] if len(group) == 1 else PublicationBatch.joined(group))
        for number, group in zip(numbers, groups, strict=True)
    ]


def _continues(batch: PublicationBatch, group: Sequence[PublicationBatch]) -> bool:
    # The first of them too: rows say how far they are from it, and that is bounded.
    return batch.continues(group[-1]) and batch.continues(group[0])


def is_long(body: object) -> bool:
    """Whether this is a batch that is too much for one turn, and can be divided."""
    return (
        type(body) is PublicationBatch
        and body.count > 1
        and (body.count > ROWS_PER_PIECE or body.size > BYTES_PER_PIECE)
    )


def rows_per_piece(body: object) -> int:
    """How many rows of a long batch make a piece."""
    if not isinstance(body, PublicationBatch):
        raise TypeError(f"{body!r} cannot be divided")
    return max(1, min(ROWS_PER_PIECE, body.count * BYTES_PER_PIECE // body.size))


def in_pieces(batch: PublicationBatch, rows_max: int, party: Party, whole: Pending | None) -> list[Arrival]:
    """A batch as pieces of so many rows; if its sender waits for it, it waits for all of them."""
    pieces: list[Arrival] = []
    for first in range(0, batch.count, rows_max):
        piece = None
        if whole is not None:
            piece = Pending(WaitingFor.PIECE, party)
            whole.wait_for(piece)
        rows = np.arange(first, min(first + rows_max, batch.count))
        pieces.append((batch.select(rows), piece))
    return pieces
