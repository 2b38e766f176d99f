"""What came from one neighbour comes from another: how routing tables follow an operation, step by step.

At the broker that a link leaves, everything that came over it comes from the next broker of the path from now
on (availability paper, Table III). At brokers further on, the broker before takes those entries back, and
instead of being forgotten they are kept as entries of where they come from now. Nobody else is told anything
that would leave a gap. Entries that moved are *stale* until they are told by whom they come from now.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from braid.routing import Anchor

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from braid.broker.parties import Link
    from braid.routing import RoutingTables, Tell

__all__ = ["TableMoves"]

# Entries that one turn moves: a few milliseconds.
ENTRIES_PER_STEP = 32


class TableMoves:
    """Moves entries between neighbours.

    Args:
        tables: where they are.
        inform: tells neighbours what they have to know.
        cancel: nobody waits any more for a subscription from a neighbour.
    """

    def __init__(
        self,
        tables: RoutingTables,
        inform: Callable[[Iterable[Tell]], None],
        cancel: Callable[[str, str], None],
    ) -> None:
        self._tables = tables
        self._inform = inform
        self._cancel = cancel
        self._from = ""
        self._to: Link | None = None
        self._subscriptions: list[str] = []
        self._advertisements: list[str] = []
        self.moved = 0
        """Entries that were moved since the start."""

    @property
    def unfinished(self) -> bool:
        """Whether there is something left for `step`."""
        return self._to is not None

    def begin(self, old: str, new: Link) -> None:
        """All that came from `old` comes from `new`; nothing is told to `old` any more."""
        self._from, self._to = old, new
        subscriptions, advertisements = self._tables.from_link(old)
        self._subscriptions, self._advertisements = subscriptions[::-1], advertisements[::-1]
        self._tables.mute(old)

    def step(self) -> bool:
        """Move some; returns whether that was the last of it."""
        new = self._to
        if new is None:
            return True
        # Subscriptions first: an advertisement that comes from the new neighbour asks for all that do not.
        for _ in range(ENTRIES_PER_STEP):
            if self._subscriptions:
                self.take_subscription(self._subscriptions.pop(), self._from, new)
            elif self._advertisements:
                self.take_advertisement(self._advertisements.pop(), self._from, new)
            else:
                self._inform(self._tables.remove_link(self._from))
                self._to = None
                return True
        return False

    def take_subscription(self, key: str, old: str, new: Link) -> None:
        """A subscription that came from one neighbour comes from another."""
        known = self._tables.local(key)
        if known is None or known[1] != old:
            return
        anchor = self._tables.anchor_of(key)
        anchors = {key: Anchor(anchor.broker or old, anchor.exact)} if anchor is not None else None
        self._cancel(key, old)
        self._inform(self._tables.subscribe([(key, known[0])], new.name, link=True, anchors=anchors))
        new.stale_subscriptions.add(key)
        self.moved += 1

    def take_advertisement(self, key: str, old: str, new: Link) -> None:
        """An advertisement that came from one neighbour comes from another."""
        filter = self._tables.advertisement(key)
        if filter is None or self._tables.origin_of(key) != old:
            return
        self._inform(self._tables.advertise([(key, filter)], new.name, link=True))
        new.stale_advertisements.add(key)
        self.moved += 1
