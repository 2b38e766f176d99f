"""The boxes of a region's entries as columns: which of them does a publication meet?

A region may have a thousand entries, and a publication satisfies few of them. Their boxes decide that for all
at once; the whole filter is asked only of those that are left.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterable

    from numpy.typing import NDArray

    from braid.p2p.dmm.interests import Interests
    from braid.p2p.dmm.messages import Entry
    from braid.p2p.dmm.tables import Bundle
    from braid.p2p.space import Box, Space

__all__ = ["Columns"]


class Columns:
    """The entries of some bundles as they are now."""

    __slots__ = ("_ends", "_entries")

    def __init__(self, space: Space, bundles: Iterable[Bundle], interests: Interests) -> None:
        self._entries: list[tuple[Bundle, Entry]] = [
            (bundle, entry) for bundle in bundles for entry in bundle.entries.values()
        ]
        boxes = [interests.box(entry) for _, entry in self._entries]
        # One row for each end of each axis: places are numbers of 64 bits.
        self._ends: NDArray[np.uint64] = (
            np.array(boxes, np.uint64).reshape(len(boxes), 2 * len(space.axes)).T.copy()
        )

    def meeting(self, box: Box) -> list[tuple[Bundle, Entry]]:
        """The entries whose boxes have a point in common with a box, in their order."""
        ends = self._ends
        met = np.ones(len(self._entries), bool)
        for low in range(0, len(box), 2):
            met &= ends[low] <= np.uint64(box[low + 1])
            met &= ends[low + 1] >= np.uint64(box[low])
        return [self._entries[place] for place in np.flatnonzero(met).tolist()]
