"""What is subscribed or advertised, by key and by origin?"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from braid.routing.anchored_entries import HERE, Anchor
from braid.routing.multipath import Anchored

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterable

    from braid.language.filters import Filter

__all__ = ["Entries", "Entry"]


class Entry(NamedTuple):
    """One subscription or advertisement."""

    number: int
    """Rises with every entry, so that what comes out of sets can be put in order."""
    filter: Filter
    origin: Hashable
    anchor: Anchor
    """The broker at or beyond a neighbour that publications can be sent to; `HERE` where nobody asks."""
    destination: Hashable
    """What matching names for it."""


class Entries:
    """The subscriptions or the advertisements, by key and by origin."""

    def __init__(self) -> None:
        self._entries: dict[str, Entry] = {}
        self._by_origin: dict[Hashable, dict[str, None]] = {}
        self._number_last = 0

    def __len__(self) -> int:
        return len(self._entries)

    def get(self, key: str) -> Entry | None:
        """The entry under a key; None for an unknown one."""
        return self._entries.get(key)

    def __getitem__(self, key: str) -> Entry:
        return self._entries[key]

    def keys(self) -> list[str]:
        """All keys, in the order of their arrival but for those that have come again from elsewhere."""
        return list(self._entries)

    def from_origin(self, origin: Hashable) -> list[str]:
        """The keys that came from there."""
        return list(self._by_origin.get(origin, ()))

    def items_elsewhere(
        self, origin: Hashable, keys: Iterable[str] | None = None
    ) -> list[tuple[str, Filter]]:
        """The given ones (or all) that did not come from `origin`, in the order of their arrival."""
        if keys is None:
            chosen = list(self._entries)
        else:
            chosen = sorted(keys, key=lambda key: self._entries[key].number)
        return [(key, self._entries[key].filter) for key in chosen if self._entries[key].origin != origin]

    def put(self, key: str, filter: Filter, origin: Hashable, anchor: Anchor = HERE) -> Entry:
        """Add an entry; its key must be new."""
        self._number_last += 1
        destination = Anchored(str(origin), anchor.broker, anchor.exact) if anchor.broker else origin
        entry = self._entries[key] = Entry(self._number_last, filter, origin, anchor, destination)
        self._by_origin.setdefault(origin, {})[key] = None
        return entry

    def rename(self, old: Hashable, new: Hashable) -> list[tuple[str, Entry]]:
        """What came from one origin came from another; returns those entries, with the new origin."""
        keys = self._by_origin.pop(old, {})
        moved: list[tuple[str, Entry]] = []
        for key in keys:
            entry = self._entries[key]
            anchor = entry.anchor
            destination = Anchored(str(new), anchor.broker, anchor.exact) if anchor.broker else new
            entry = self._entries[key] = entry._replace(origin=new, destination=destination)
            moved.append((key, entry))
        if keys:
            self._by_origin.setdefault(new, {}).update(keys)
        return moved

    def move(self, key: str, origin: Hashable, anchor: Anchor) -> Entry:
        """An entry comes from elsewhere, or has another anchor."""
        entry = self._entries[key]
        self.pop(key)
        self.put(key, entry.filter, origin, anchor)
        return self._entries[key]

    def lead_to(self, key: str, place: Hashable) -> Entry:
        """Let matching name another place for an entry than where it came from."""
        entry = self._entries[key]
        anchor = entry.anchor
        destination = Anchored(str(place), anchor.broker, anchor.exact) if anchor.broker else place
        entry = self._entries[key] = entry._replace(destination=destination)
        return entry

    def pop(self, key: str) -> Entry:
        """Remove the entry under a key."""
        entry = self._entries.pop(key)
        siblings = self._by_origin[entry.origin]
        del siblings[key]
        if not siblings:
            del self._by_origin[entry.origin]
        return entry
