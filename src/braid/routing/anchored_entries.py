"""What has a neighbour been told, anchor by anchor?

A filter hides another one only if both have the same anchor at the receiver (multipath paper, section 4):
with another anchor the hidden one would be served elsewhere, or not at all. Where anchors are not used, all
have the same, and covering works over the whole link. An anchor is *exact* if the subscribers are clients of
that very broker; a set of destinations must know, so exact ones do not hide others.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from braid.routing.covering_set import Change, CoveringSet

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from braid.language.filters import Filter

__all__ = ["HERE", "Anchor", "AnchoredEntries"]


class Anchor(NamedTuple):
    """Where the receiver can send publications to."""

    broker: str
    """Empty: to whoever tells it."""
    exact: bool = False
    """Whether the subscribers are clients of that broker itself, not of others beyond it."""


HERE = Anchor("")
"""What is told without anchors."""


class AnchoredEntries:
    """A covering set for each anchor."""

    def __init__(self) -> None:
        self._sets: dict[Anchor, CoveringSet] = {}
        self._anchors: dict[str, Anchor] = {}
        self._told_count = 0

    def __len__(self) -> int:
        return len(self._anchors)

    def __contains__(self, key: object) -> bool:
        return key in self._anchors

    def __iter__(self) -> Iterator[str]:
        """All keys, told and hidden, in the order in which they were added."""
        return iter(self._anchors)

    @property
    def told_count(self) -> int:
        """How many filters the neighbour knows."""
        return self._told_count

    def told(self) -> list[tuple[str, Filter]]:
        """Everything the neighbour knows."""
        return [entry for known in self._sets.values() for entry in known.told()]

    def coverer(self, key: str) -> str | None:
        """The key itself if it was told, otherwise the one that hides it; None for an unknown key."""
        anchor = self._anchors.get(key)
        return None if anchor is None else self._sets[anchor].coverer(key)

    def filter_of(self, key: str) -> Filter:
        """The filter under a key, or an equal one."""
        return self._sets[self._anchors[key]].filter_of(key)

    def anchor_of(self, key: str) -> Anchor:
        """The anchor under a key."""
        return self._anchors[key]

    def change(self, removed: Iterable[str], added: Sequence[tuple[str, Filter, Anchor]]) -> Change:
        """Remove and add at once; what is added has an anchor. A removed key may be added again."""
        gone: dict[Anchor, list[str]] = {}
        new: dict[Anchor, list[tuple[str, Filter]]] = {}
        for key in removed:
            gone.setdefault(self._anchors.pop(key), []).append(key)
        for key, filter, anchor in added:
            new.setdefault(anchor, []).append((key, filter))
            self._anchors[key] = anchor
        told: list[str] = []
        untold: list[str] = []
        for anchor in {**gone, **new}:
            known = self._sets.setdefault(anchor, CoveringSet())
            told_before = known.told_count
            change = known.change(gone.get(anchor, ()), new.get(anchor, ()))
            self._told_count += known.told_count - told_before
            told += change.told
            untold += change.untold
            if not len(known):
                del self._sets[anchor]
        return Change(told, untold)
