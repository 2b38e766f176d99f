"""Which few filters insist on this attribute at all?

Where filters bound very many different attributes, blocks would be many and nearly empty. A filter
that insists on a rare attribute is found by it: only publications that have the attribute are held
against the filter, pair by pair.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Mapping

    import numpy.typing as npt

    from braid.matching.answers import Answer
    from braid.matching.columns import Batch, BoolArray, IntArray
    from braid.matching.lookup import SecondLook, SingleLook
    from braid.matching.single import SingleAnswer

__all__ = ["PresenceTable"]


class PresenceTable:
    """Filters by a rare attribute that they insist on. Its rows stand side by side in the segment."""

    __slots__ = ("_first_row", "_places", "_repeated", "_slots")

    def __init__(
        self,
        places: Mapping[str, tuple[int, int]],
        first_row: int,
        slots: npt.NDArray[np.int32],
        repeated: bool,
    ) -> None:
        """
        Args:
            places: for each attribute the first of its rows and the one behind the last.
            first_row: where in the segment the rows begin.
            slots: the filter of each row.
            repeated: whether some row's filter has further boxes.
        """
        self._places = dict(places)
        self._first_row = first_row
        self._slots = slots
        self._repeated = repeated

    def match(
        self,
        batch: Batch,
        answer: Answer,
        dead: BoolArray | None,
        second_look: SecondLook,
    ) -> None:
        """Find the matches of a batch. `dead` is by row of the segment, and so is `second_look`."""
        holders: dict[str, list[int]] = {}
        for number, publication in enumerate(batch.publications):
            for name in self._places.keys() & publication.keys():
                holders.setdefault(name, []).append(number)
        for name, publications in holders.items():
            rows = np.arange(*self._places[name])
            if dead is not None:
                rows = rows[~dead[rows + self._first_row]]
            chosen, rows = np.repeat(publications, len(rows)), np.tile(rows, len(publications))
            wanted = answer.open_questions(chosen, self._slots[rows])
            if wanted is not None:
                chosen, rows = chosen[wanted], rows[wanted]
            found = second_look(chosen, rows + self._first_row, None)
            answer.add_pairs(chosen[found], self._slots[rows[found]], once=not self._repeated)

    def match_one(
        self,
        attributes: Mapping[str, Any],
        answer: SingleAnswer,
        dead: BoolArray | None,
        second_look: SingleLook,
    ) -> None:
        """Find the matches of one publication."""
        for row in self.candidates(attributes).tolist():
            if (dead is None or not dead[row]) and second_look(row, True):
                answer.add_slots([int(self._slots[row - self._first_row])])

    @property
    def names(self) -> set[str]:
        """The attributes by which it finds filters."""
        return set(self._places)

    def candidates(self, publication: Mapping[str, Any]) -> IntArray:
        """The rows of the segment that insist on an attribute of this publication."""
        ranges = [np.arange(*self._places[name]) for name in sorted(self._places.keys() & publication.keys())]
        return np.concatenate([np.empty(0, np.int64), *ranges]) + self._first_row

    @property
    def bytes(self) -> int:
        """Memory of the arrays, and of the dictionary without the names."""
        return self._slots.nbytes + 200 * len(self._places)
