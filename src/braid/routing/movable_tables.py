"""How do routing tables follow when a link takes the place of another?

The part of `RoutingTables` that operations need (availability paper, Table III): a neighbour that is renamed,
and one that is told nothing until it is known which entries are its own.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING

from braid.routing.anchored_entries import HERE, Anchor
from braid.routing.neighbour import Kind

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from braid.language.filters import Filter
    from braid.routing.entries import Entries, Entry
    from braid.routing.neighbour import Neighbour, Tell

__all__ = ["MovableTables", "unanchored"]


class MovableTables(ABC):
    """What operations ask of routing tables."""

    _neighbours: dict[str, Neighbour]
    _agenda: dict[str, Neighbour]
    _subscriptions: Entries
    _advertisements: Entries

    def rename_link(self, old: str, new: str) -> None:
        """Another neighbour has taken the place of one: what came from that one comes from this, and what
        that one was told this is to know. (Availability paper, Table III, first row.)
        """
        neighbour = self._neighbours.pop(old)
        neighbour.link = new
        self._neighbours[new] = neighbour
        if self._agenda.pop(old, None) is not None:
            self._agenda[new] = neighbour
        self._advertisements.rename(old, new)
        before = {key: self._subscriptions[key] for key in self._subscriptions.from_origin(old)}
        after = dict(self._subscriptions.rename(old, new))
        for key, entry in before.items():
            self._leave_index(key, entry)
        self._enter_index(after)

    def mute(self, link: str) -> None:
        """Tell a neighbour nothing new for now."""
        self._neighbours[link].muted = True

    def unmute(self, link: str) -> list[Tell]:
        """Tell a neighbour everything that did not come from it; many subscriptions are told step by step."""
        neighbour = self._neighbours[link]
        if not neighbour.muted:
            return []
        neighbour.muted = False
        told = neighbour.entries(Kind.ADVERTISEMENT)
        fresh = [item for item in self._advertisements.items_elsewhere(link) if item[0] not in told]
        known = neighbour.entries(Kind.SUBSCRIPTION)
        met = self._subscriptions.items_elsewhere(link)
        neighbour.later(neighbour.postponed, (key for key, _ in met if key not in known))
        return neighbour.change(Kind.ADVERTISEMENT, [], unanchored(fresh))

    def settled(self, link: str) -> bool:
        """Whether nothing is left to be told to a neighbour, nor to be taken back."""
        neighbour = self._neighbours.get(link)
        return neighbour is None or not neighbour.unfinished

    def anchor_of(self, key: str) -> Anchor | None:
        """Where publications for a subscription can be sent to, if it has an anchor."""
        entry = self._subscriptions.get(key)
        return entry.anchor if entry is not None and entry.anchor.broker else None

    @abstractmethod
    def _enter_index(self, entries: Mapping[str, Entry]) -> None: ...

    @abstractmethod
    def _leave_index(self, key: str, entry: Entry) -> None: ...


def unanchored(items: Iterable[tuple[str, Filter]]) -> list[tuple[str, Filter, Anchor]]:
    """Advertisements have no anchor: they are told of wherever they come from."""
    return [(key, filter, HERE) for key, filter in items]
