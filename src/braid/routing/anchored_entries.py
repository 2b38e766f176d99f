"""What has a neighbour been told, anchor by anchor?

A filter hides another one only if both have the same anchor at the receiver (multipath paper, section 4):
with another anchor the hidden one would be served elsewhere, or not at all. Where anchors are not used, all
have the same, and covering works over the whole link. An anchor is *exact* if the subscribers are clients of
that very broker; a set of destinations must know, so exact ones do not hide others.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from braid.routing.covering_set import Change, CoveringSet

if TYPE_CHECKING:
    from collections.abc import Callable, Container, Iterable, Iterator, Sequence

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
        self._unfinished: dict[Anchor, None] = {}
        """Where something is left for `step`."""

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

    @property
    def unfinished(self) -> bool:
        """Whether there is something left for `step`."""
        return bool(self._unfinished)

    def told(self) -> list[tuple[str, Filter, Anchor]]:
        """Everything the neighbour knows."""
        return [(key, filter, anchor) for anchor, known in self._sets.items() for key, filter in known.told()]

    def told_entry(self, key: str) -> tuple[Filter, Anchor] | None:
        """Under which filter and anchor the neighbour knows a key; None if it does not."""
        anchor = self._anchors.get(key)
        for each in (*((anchor,) if anchor is not None else ()), *self._unfinished):
            filter = self._sets[each].told_filter(key)
            if filter is not None:
                return filter, each
        return None

    def hides_many(self, key: str) -> bool:
        """Whether much would have to be revealed at once if this key meant something else from now on."""
        anchor = self._anchors.get(key)
        here = (self._sets[anchor],) if anchor is not None else ()
        return any(known.hides_many(key) for known in (*here, *map(self._sets.__getitem__, self._unfinished)))

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
        again = {key for key, _, _ in added}
        changes = [
            self._at(anchor, lambda known: _finished(known, again))
            for anchor in list(self._unfinished)
            if anchor not in new
        ]
        for anchor in {**gone, **new}:
            removed_here, added_here = gone.get(anchor, ()), new.get(anchor, ())
            changes.append(self._at(anchor, partial(_changed, removed_here, added_here, again)))
        return _together(changes)

    def step(self, entries_max: int) -> Change:
        """Go on with what a change has left, so many entries at most."""
        anchor = next(iter(self._unfinished), None)
        if anchor is None:
            return Change([], [])
        return self._at(anchor, lambda known: known.step(entries_max))

    def _at(self, anchor: Anchor, act: Callable[[CoveringSet], Change]) -> Change:
        known = self._sets.setdefault(anchor, CoveringSet())
        told_before = known.told_count
        change = act(known)
        self._told_count += known.told_count - told_before
        if known.unfinished:
            self._unfinished[anchor] = None
        else:
            self._unfinished.pop(anchor, None)
            if not len(known):
                del self._sets[anchor]
        return change


def _changed(
    removed: Iterable[str],
    added: Sequence[tuple[str, Filter]],
    again: Container[str],
    known: CoveringSet,
) -> Change:
    return known.change(removed, added, again)


def _finished(known: CoveringSet, keys: Iterable[str]) -> Change:
    return _together([known.finish(key) for key in keys])


def _together(changes: Sequence[Change]) -> Change:
    return Change(
        [key for change in changes for key in change.told],
        [key for change in changes for key in change.untold],
    )
