"""To which links do the publications of a whole batch go?

The same path computations as in `paths`, for many rows at once. Rows are those of a matrix with one column
per link; what `paths` does link by link with bit vectors is here a product with a matrix that says which link
lies before which. In a batch hardly two publications reach the same anchors, so that remembered answers do
not help; but a few products of small matrices cost less than a walk over the bits of every row.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

import numpy as np
import numpy.typing as npt

from braid.routing.paths import along_the_intersection, straight_to_anchors

if TYPE_CHECKING:
    from collections.abc import Callable

    from braid.routing.paths import Paths
    from braid.routing.working_map import WorkingMap

__all__ = ["LINKS_MAX", "BatchPaths"]

Rows: TypeAlias = "npt.NDArray[np.float32]"
"""One row per publication and one column per link, 1 or 0. Products count links, so that floats are exact."""
Choice: TypeAlias = "npt.NDArray[np.bool_]"
"""The same, true or false."""

# Products grow with the square of it. From about here on single rows are quicker.
LINKS_MAX = 128


class BatchPaths:
    """The paths of batches by one working map."""

    def __init__(self, working: WorkingMap, paths: Paths) -> None:
        count = len(working.links)
        itself = np.eye(count, dtype=np.bool_)
        beyond, branch = _matrix(working.beyond, count), ~_matrix(working.behind, count)
        farther = beyond & ~itself
        self._farther: Rows = farther.astype(np.float32)
        """`[n, m]`: m lies beyond n."""
        self._nearer: Rows = np.ascontiguousarray(farther.T).astype(np.float32)
        # Two answers from one product: how many lie beyond each, and how many in its direction.
        self._beyond_and_branch: Rows = np.hstack([beyond.T, branch]).astype(np.float32)
        self._real: Rows | None = None
        if working.candidates:
            self._real = np.zeros((count, count), np.float32)
            self._real[np.arange(count), working.real] = 1
        self._chosen = _TWINS[paths]
        self._count = count

    @staticmethod
    def knows(working: WorkingMap, paths: Paths) -> bool:
        """Whether these paths can be computed for a batch, and should."""
        return paths in _TWINS and len(working.links) <= LINKS_MAX

    def hops(self, anchors: Rows) -> tuple[Choice, Choice]:
        """The real links that get a copy of each row, and the links and candidates it is meant for."""
        meant = self._chosen(self, anchors)
        if self._real is None:
            return meant, meant
        real = meant.astype(np.float32) @ self._real > 0
        return self._closest(real.astype(np.float32)), meant

    def _closest(self, anchors: Rows) -> Choice:
        """S2: those that lie beyond no other."""
        found: Choice = anchors > anchors @ self._farther
        return found

    def _intersection(self, anchors: Rows) -> Choice:
        """S1: the farthest of those beyond which lie all anchors of their direction."""
        both = anchors @ self._beyond_and_branch
        beyond, branch = both[:, : self._count], both[:, self._count :]
        common = ((beyond > 0) & (beyond == branch)).astype(np.float32)
        found: Choice = common > common @ self._nearer
        return found


_TWINS: dict[Paths, Callable[[BatchPaths, Rows], Choice]] = {
    along_the_intersection: BatchPaths._intersection,
    straight_to_anchors: BatchPaths._closest,
}


def _matrix(vectors: list[int], count: int) -> Choice:
    """Bit vectors as the rows of a matrix."""
    length = -(-count // 8)
    packed = np.frombuffer(b"".join(bits.to_bytes(length, "little") for bits in vectors), np.uint8)
    bits = np.unpackbits(packed.reshape(count, length), axis=1, count=count, bitorder="little")
    return bits.astype(np.bool_)
