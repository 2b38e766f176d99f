"""Which batches of one read can be routed as one?"""

from __future__ import annotations

from typing import TYPE_CHECKING

from braid.protocol import PublicationBatch

if TYPE_CHECKING:
    from collections.abc import Sequence

    from braid.protocol import Frame

__all__ = ["joined"]

# Batches are joined up to this size: larger ones gain nothing, and a frame must not become too long.
JOINED_BYTES_MAX = 256 * 1024


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
