"""What of a batch fits into the frames that a peer reads?

A batch is divided by its rows, and if a row fits only without its long set of destinations, by those. A row
that is larger than a whole frame of the peer can never be sent to it: it is left out, and whoever sends says
so, instead of trying for ever.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, TypeVar

import numpy as np

from braid.protocol.destinations import packed_destinations, unpacked_destinations

if TYPE_CHECKING:
    from collections.abc import Sequence

    from braid.protocol.batch import PublicationBatch

__all__ = ["Fitted", "fitted", "portions"]

Row = TypeVar("Row")

# What a row takes beside its record.
_ROW_BYTES = 8
# The longest that one destination can get.
_DESTINATION_BYTES = 4


class Fitted(NamedTuple):
    """A batch in parts."""

    parts: list[PublicationBatch]
    """Together they are the batch, without what was left out, in its order."""
    left_out: PublicationBatch | None
    """The rows that no frame can hold."""


def fitted(batch: PublicationBatch, frame_bytes_max: int) -> Fitted:
    """A batch in parts whose frames have at most so many bytes."""
    costs = [_ROW_BYTES + len(record) for record in batch.records()]
    # What each part has beside its rows and its destinations.
    fixed = batch.size - sum(costs) - len(batch.route)
    room = frame_bytes_max - fixed
    row_max = room - _DESTINATION_BYTES if batch.route else room
    rows = [row for row, cost in enumerate(costs) if cost <= row_max]
    left_out = None
    if len(rows) < len(costs):
        left_out = batch.select(np.array([row for row, cost in enumerate(costs) if cost > row_max], np.int64))
    parts: list[PublicationBatch] = []
    if rows:
        for route in _routes(batch.route, room - max(costs[row] for row in rows)):
            for some in portions(rows, [costs[row] for row in rows], room - len(route)):
                part = batch.select(np.array(some, np.int64))
                parts.append(
                    part if route == batch.route else part.readdressed(target=batch.target, route=route)
                )
    return Fitted(parts, left_out)


def _routes(route: bytes, bytes_max: int) -> list[bytes]:
    """A set of destinations as one or more."""
    if len(route) <= bytes_max:
        return [route]
    digests = sorted(unpacked_destinations(route))
    count = max(1, bytes_max // _DESTINATION_BYTES)
    return [packed_destinations(digests[at : at + count]) for at in range(0, len(digests), count)]


def portions(rows: Sequence[Row], costs: Sequence[int], bytes_max: int) -> list[list[Row]]:
    """Rows in portions of at most so many bytes each, in their order; one that costs more is alone.

    >>> portions("abcd", [3, 3, 9, 1], 6)
    [['a', 'b'], ['c'], ['d']]
    """
    divided: list[list[Row]] = []
    left = 0
    for row, cost in zip(rows, costs, strict=True):
        if not divided or cost > left:
            divided.append([])
            left = bytes_max
        divided[-1].append(row)
        left -= cost
    return divided
