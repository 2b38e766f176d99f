"""What has a neighbour been told where nothing may be hidden behind anything else?

Before a link takes the place of another, what moves with it must hide nothing from the neighbour that will
have it from elsewhere, nor be hidden. It is told filter by filter then, whatever covers what. The interface
is that of a `CoveringSet`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from braid.errors import LocalProtocolError
from braid.routing.covering_set import Change

if TYPE_CHECKING:
    from collections.abc import Container, Iterable, Sequence

    from braid.language.filters import Filter

__all__ = ["PlainSet"]


class PlainSet:
    """Filters under keys, all of them told.

    >>> from braid.language.filters import Filter
    >>> known = PlainSet()
    >>> known.change([], [("wide", Filter("price > 10")), ("narrow", Filter("price > 20"))]).told
    ['wide', 'narrow']
    """

    unfinished = False
    """There is never anything left for `step`."""
    retiring: tuple[str, ...] = ()
    """Nothing is told once it is gone."""

    def __init__(self) -> None:
        self._filters: dict[str, Filter] = {}

    def __len__(self) -> int:
        return len(self._filters)

    @property
    def told_count(self) -> int:
        """How many filters the neighbour knows."""
        return len(self._filters)

    def hides_many(self, key: str) -> bool:
        """Whether much is hidden behind a key: never."""
        return False

    def told(self) -> list[tuple[str, Filter]]:
        """Everything the neighbour knows."""
        return list(self._filters.items())

    def told_filter(self, key: str) -> Filter | None:
        """What the neighbour knows under a key; None if nothing."""
        return self._filters.get(key)

    def coverer(self, key: str) -> str | None:
        """The key itself; None for an unknown one."""
        return key if key in self._filters else None

    def filter_of(self, key: str) -> Filter:
        """The filter under a key."""
        return self._filters[key]

    def change(
        self, removed: Iterable[str], added: Sequence[tuple[str, Filter]], again: Container[str] = ()
    ) -> Change:
        """Remove and add at once."""
        untold = list(removed)
        for key in untold:
            del self._filters[key]
        for key, filter in added:
            if key in self._filters:
                raise LocalProtocolError(f"the key {key!r} is taken; remove its filter first")
            self._filters[key] = filter
        return Change([key for key, _ in added], untold)

    def finish(self, key: str) -> Change:
        """Nothing is left to be finished."""
        return Change([], [])

    def step(self, forms_max: int) -> Change:
        """Nothing is left to be done."""
        return Change([], [])
