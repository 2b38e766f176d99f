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
from braid.routing.plain_set import PlainSet

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


class _Lane(NamedTuple):
    """Filters that may hide each other, or none."""

    anchor: Anchor
    apart: bool = False
    """Whether they hide nothing, and nothing hides them."""


class AnchoredEntries:
    """A covering set for each anchor, and beside it what is told apart."""

    def __init__(self) -> None:
        self._sets: dict[_Lane, CoveringSet | PlainSet] = {}
        self._lanes: dict[str, _Lane] = {}
        self._told_count = 0
        self._unfinished: dict[_Lane, None] = {}
        """Where something is left for `step`."""
        self.version = 0
        """Rises with every change of what the neighbour knows."""
        self.apart: set[str] = set()
        """Keys that are, or would be, told apart."""

    def __len__(self) -> int:
        return len(self._lanes)

    def __contains__(self, key: object) -> bool:
        return key in self._lanes

    def __iter__(self) -> Iterator[str]:
        """All keys, told and hidden, in the order in which they were added."""
        return iter(self._lanes)

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
        return [
            (key, filter, lane.anchor) for lane, known in self._sets.items() for key, filter in known.told()
        ]

    def perhaps_told(self) -> list[str]:
        """The keys of everything that the neighbour knows, and of what is hidden from it."""
        return [*self._lanes, *(key for lane in self._unfinished for key in self._sets[lane].retiring)]

    def told_entry(self, key: str) -> tuple[Filter, Anchor] | None:
        """Under which filter and anchor the neighbour knows a key; None if it does not."""
        lane = self._lanes.get(key)
        for each in (*((lane,) if lane is not None else ()), *self._unfinished):
            filter = self._sets[each].told_filter(key)
            if filter is not None:
                return filter, each.anchor
        return None

    def hides_many(self, key: str) -> bool:
        """Whether much would have to be revealed at once if this key meant something else from now on."""
        lane = self._lanes.get(key)
        here = (self._sets[lane],) if lane is not None else ()
        return any(known.hides_many(key) for known in (*here, *map(self._sets.__getitem__, self._unfinished)))

    def coverer(self, key: str) -> str | None:
        """The key itself if it was told, otherwise the one that hides it; None for an unknown key."""
        lane = self._lanes.get(key)
        return None if lane is None else self._sets[lane].coverer(key)

    def filter_of(self, key: str) -> Filter:
        """The filter under a key, or an equal one."""
        return self._sets[self._lanes[key]].filter_of(key)

    def anchor_of(self, key: str) -> Anchor:
        """The anchor under a key."""
        return self._lanes[key].anchor

    def is_in_place(self, key: str, anchor: Anchor) -> bool:
        """Whether a key is there, under this anchor, and told apart or not as it should be."""
        return self._lanes.get(key) == (anchor, key in self.apart)

    def change(self, removed: Iterable[str], added: Sequence[tuple[str, Filter, Anchor]]) -> Change:
        """Remove and add at once; what is added has an anchor. A removed key may be added again."""
        gone: dict[_Lane, list[str]] = {}
        new: dict[_Lane, list[tuple[str, Filter]]] = {}
        for key in removed:
            gone.setdefault(self._lanes.pop(key), []).append(key)
        for key, filter, anchor in added:
            lane = self._lanes[key] = _Lane(anchor, key in self.apart)
            new.setdefault(lane, []).append((key, filter))
        again = {key for key, _, _ in added}
        # One that was set apart may still be told for the sake of what it hid before.
        early = again.union(*(keys for lane, keys in gone.items() if lane.apart))
        changes = [
            self._at(lane, lambda known: _finished(known, early))
            for lane in list(self._unfinished)
            if lane not in new
        ]
        for lane in {**gone, **new}:
            removed_here, added_here = gone.get(lane, ()), new.get(lane, ())
            changes.append(self._at(lane, partial(_changed, removed_here, added_here, again)))
        return _together(changes)

    def set_apart(self, items: Sequence[tuple[str, Filter, Anchor]]) -> Change:
        """Tell these apart from now on; returns what the neighbour must hear so that nothing is hidden.

        Those that it knows already it goes on knowing. One that hides much reveals it step by step.
        """
        self.apart.update([key for key, _, _ in items])
        moved: dict[_Lane, list[str]] = {}
        told: list[str] = []
        for key, _, _ in items:
            lane = self._lanes.get(key)
            if lane is None or self._sets[lane].told_filter(key) is None:
                told.append(key)
            if lane is not None and not lane.apart:
                moved.setdefault(self._lanes.pop(key), []).append(key)
        for lane, keys in moved.items():
            told += self._at(lane, partial(_changed, keys, (), ())).told
        new: dict[_Lane, list[tuple[str, Filter]]] = {}
        for key, filter, anchor in items:
            if key not in self._lanes:
                lane = self._lanes[key] = _Lane(anchor, apart=True)
                new.setdefault(lane, []).append((key, filter))
        for lane, added in new.items():
            self._at(lane, partial(_changed, (), added, ()))
        return Change(told, [])

    def step(self, entries_max: int) -> Change:
        """Go on with what a change has left, so many entries at most."""
        lane = next(iter(self._unfinished), None)
        if lane is None:
            return Change([], [])
        change = self._at(lane, lambda known: known.step(entries_max))
        # What has been set apart meanwhile is known for that.
        return Change(change.told, [key for key in change.untold if key not in self._lanes])

    def _at(self, lane: _Lane, act: Callable[[CoveringSet | PlainSet], Change]) -> Change:
        known = self._sets.get(lane)
        if known is None:
            known = self._sets[lane] = PlainSet() if lane.apart else CoveringSet()
        told_before = known.told_count
        change = act(known)
        if change.told or change.untold:
            self.version += 1
        self._told_count += known.told_count - told_before
        if known.unfinished:
            self._unfinished[lane] = None
        else:
            self._unfinished.pop(lane, None)
            if not len(known):
                del self._sets[lane]
        return change


def _changed(
    removed: Iterable[str],
    added: Sequence[tuple[str, Filter]],
    again: Container[str],
    known: CoveringSet | PlainSet,
) -> Change:
    return known.change(removed, added, again)


def _finished(known: CoveringSet | PlainSet, keys: Iterable[str]) -> Change:
    return _together([known.finish(key) for key in keys])


def _together(changes: Sequence[Change]) -> Change:
    return Change(
        [key for change in changes for key in change.told],
        [key for change in changes for key in change.untold],
    )
