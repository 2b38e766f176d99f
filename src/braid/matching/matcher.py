"""Whom does a router ask which destinations want a publication?

A `Matcher` is the router's side of matching: filters go in under keys, each with a destination, and for
publications on their way it names the destinations. `OwnMatching` is the usual one, an index of the router's
own. `braid.matching.shared` has another, for many routers in one process.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

import numpy as np

from braid.matching.columns import check_integers, checked_publications
from braid.matching.index import FilterIndex

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence

    from braid.language.filters import Filter
    from braid.language.values import Value
    from braid.matching.columns import IntArray
    from braid.matching.index import GroupMatrix

__all__ = ["Matcher", "OwnMatching", "Publications", "Reached", "reached_by", "require_possible"]

# Destinations with the rows they want; None: all rows. Nobody changes it: it may be kept for the next one.
Reached: TypeAlias = "Sequence[tuple[Hashable, IntArray | None]]"


class Publications(Protocol):
    """Publications on their way, as the router holds them."""

    memo: Any
    """A matcher's own note, which travels with them inside one process; None if there is none.

    Two single publications with the same note reach the same, as long as a router's filters stay the same.
    """

    def __len__(self) -> int: ...

    def attributes(self) -> list[dict[str, Any]]:
        """The attributes of every row."""
        ...

    def records(self) -> list[bytes]:
        """The bytes of each row; the same bytes are the same attributes."""
        ...


class Matcher(Protocol):
    """Filters under keys, each for a destination."""

    def __iter__(self) -> Iterator[str]:
        """The keys."""
        ...

    def add_many(self, items: Iterable[tuple[str, Filter, Hashable]]) -> None:
        """Add keys with their filters and destinations."""
        ...

    def remove(self, key: str) -> None:
        """Remove the filter under a key."""
        ...

    def regroup(self, keys: Iterable[str], group: Hashable) -> None:
        """The filters under these keys are for another destination."""
        ...

    def reached(self, batches: Sequence[Publications]) -> Reached:
        """Who wants which rows, counted through all batches, in an order that is always the same.

        A value that no publication can have raises a `PublicationError`.
        """
        ...

    def check(self, batches: Sequence[Publications]) -> None:
        """Raise a `PublicationError` for a value that no publication can have, and ask nothing else."""
        ...

    def group_matrix(self, batch: Iterable[Mapping[str, Value | None]]) -> GroupMatrix:
        """Who wants which of these publications, as a matrix."""
        ...

    def another(self) -> Matcher:
        """An empty one of the same kind, for some of the same filters."""
        ...

    @property
    def unfinished(self) -> bool:
        """Whether there is work for a quiet moment."""
        ...

    def tidy(self) -> bool:
        """Do a step of it; returns whether there is more."""
        ...


class OwnMatching(FilterIndex[str]):
    """An index that belongs to one router."""

    def reached(self, batches: Sequence[Publications]) -> Reached:
        """Who wants which rows, counted through all batches."""
        asked = _all_attributes(batches)
        if len(asked) == 1:  # the usual case when traffic is light, where every microsecond counts
            bits = self.destinations(asked)
            if bits is not None:
                return self._groups.reached(bits[0])
        return reached_by(self.group_matrix(asked))

    def check(self, batches: Sequence[Publications]) -> None:
        """Raise a `PublicationError` for a value that no publication can have."""
        require_possible(_all_attributes(batches))

    def another(self) -> OwnMatching:
        """An empty index."""
        return OwnMatching()


def _all_attributes(batches: Sequence[Publications]) -> Sequence[Mapping[str, Any]]:
    if len(batches) == 1:
        return batches[0].attributes()
    return [values for batch in batches for values in batch.attributes()]


def require_possible(publications: Sequence[Mapping[str, Value | None]]) -> None:
    """Raise a `PublicationError` for a value that no publication can have."""
    checked = checked_publications(publications)
    if int in checked.types:
        check_integers(checked.publications)


def reached_by(matrix: GroupMatrix) -> Reached:
    """The destinations that want anything, in the order of the groups."""
    wanted = matrix.matrix
    if len(wanted) == 1:  # the usual case when traffic is light, where every microsecond counts
        return [(matrix.groups[column], None) for column in np.flatnonzero(wanted[0]).tolist()]
    some = np.flatnonzero(wanted.any(axis=0)).tolist()
    whole = np.logical_and.reduce(wanted, axis=0)
    return [
        (matrix.groups[column], None if whole[column] else np.flatnonzero(wanted[:, column]))
        for column in some
    ]
