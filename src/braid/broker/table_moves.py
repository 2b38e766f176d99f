"""What came from one neighbour comes from another: how routing tables follow an operation, step by step.

At the broker that a link leaves, everything that came over it comes from the next broker of the path from now
on (availability paper, Table III). At brokers further on, the broker before takes those entries back, and
instead of being forgotten they are kept as entries of where they come from now. Nobody else is told anything
that would leave a gap. Entries that moved are *stale* until they are told by whom they come from now.

Where tables were prepared ahead (`copying.py`), publications go the new way already while entries move.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from braid.routing import Anchor

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from braid.broker.operations import Changing
    from braid.broker.parties import Link
    from braid.routing import RoutingTables, Tell

__all__ = ["TableMoves"]

# Entries that one turn moves: a few milliseconds.
ENTRIES_PER_STEP = 32
# What a neighbour has to confirm before it is told more: so publications never wait behind much of it.
UNCONFIRMED_MAX = 32


class TableMoves:
    """Moves entries between neighbours.

    Args:
        tables: where they are.
        changing: what is known of operations.
        inform: tells neighbours what they have to know.
        cancel: nobody waits any more for a subscription from a neighbour.
    """

    def __init__(
        self,
        tables: RoutingTables,
        changing: Changing,
        inform: Callable[[Iterable[Tell]], None],
        cancel: Callable[[str, str], None],
    ) -> None:
        self._tables = tables
        self._changing = changing
        self._inform = inform
        self._cancel = cancel
        self._from = ""
        self._to: Link | None = None
        self._leaves = False
        """Whether the neighbour that entries came from is none any more, so that all of them move."""
        self._hears: Link | None = None
        """Who is told of what moves, and how quickly."""
        self._claim: frozenset[str] | None = None
        """Those of its entries that move, if it is not all."""
        self._told: frozenset[str] = frozenset()
        """What the other neighbour has told already, so that it is not stale."""
        self._subscriptions: list[str] = []
        self._advertisements: list[str] = []
        self._undo: list[tuple[list[str], Callable[[Sequence[str]], None], Callable[[], None]]] = []
        """What was prepared for operations that were given up."""
        self.moved = 0
        """Entries that were moved since the start."""
        self.turn_max = 0
        """The most of them in one turn."""

    @property
    def unfinished(self) -> bool:
        """Whether there is something left for `step`."""
        return self._to is not None or bool(self._undo)

    @property
    def so_far(self) -> str:
        """How much was moved, for people."""
        return f"{self.moved} entries moved since the start"

    @property
    def waiting(self) -> bool:
        """Whether a neighbour has enough to do with what it was told."""
        hears = self._hears
        return hears is not None and len(hears.outstanding.subscriptions) >= UNCONFIRMED_MAX

    def begin(self, old: str, new: Link) -> None:
        """All that came from `old` comes from `new`; nothing is told to `old` any more."""
        subscriptions, advertisements = self._tables.from_link(old)
        self._tables.mute(old)
        self._begin(old, new, subscriptions, advertisements)
        self._leaves = True

    def follow(self, old: str, new: Link, told: frozenset[str]) -> None:
        """The same where `new` has the place of `old`, and has told some of it already."""
        self._tables.succeed(old, new.name)
        self.begin(old, new)
        self._told = told

    def take(self, old: Link, new: Link, keys: Sequence[str]) -> None:
        """These of the entries that came from `old`, which stays and is told of them, come from `new`."""
        self._begin(old.name, new, keys, keys)
        self._hears = old
        self._told = self._claim = frozenset(keys)

    def undo(
        self,
        keys: list[str],
        undo: Callable[[Sequence[str]], None],
        done: Callable[[], None] = lambda: None,
    ) -> None:
        """Take back, some a turn, what was prepared for a change that is not to be."""
        self._undo.append((keys[::-1], undo, done))
        self._changing.moving = True

    def _begin(
        self, old: str, new: Link, subscriptions: Sequence[str], advertisements: Sequence[str]
    ) -> None:
        self._from, self._to = old, new
        self._subscriptions, self._advertisements = list(subscriptions[::-1]), list(advertisements[::-1])
        self._told, self._claim, self._leaves, self._hears = frozenset(), None, False, None
        self._changing.moving = True

    def step(self) -> None:
        """Move some, or take some back."""
        if self._to is not None:
            if not self.waiting:
                self._move_some(self._to)
        elif self._undo:
            keys, undo, done = self._undo[0]
            undo(keys[-ENTRIES_PER_STEP:])
            del keys[-ENTRIES_PER_STEP:]
            if not keys:
                del self._undo[0]
                done()
        self._changing.moving = self.unfinished

    def _move_some(self, new: Link) -> None:
        before = self.moved
        self._move_in_turn(new)
        self.turn_max = max(self.turn_max, self.moved - before)

    def _move_in_turn(self, new: Link) -> None:
        # Subscriptions first: an advertisement that comes from the new neighbour asks for all that do not.
        for _ in range(ENTRIES_PER_STEP):
            if self._subscriptions:
                self.take_subscription(self._subscriptions.pop(), self._from, new)
            elif self._advertisements:
                self.take_advertisement(self._advertisements.pop(), self._from, new)
            else:
                if self._leaves:
                    self._inform(self._tables.remove_link(self._from))
                    self._changing.leaving.discard(self._from)
                self._tables.moved(self._from, new.name)
                self._to = None
                return

    def settle(self, link: Link, keys: Iterable[str]) -> None:
        """Move these at once: the neighbour that they come from by now speaks of them."""
        if link is not self._to:
            return
        for key in keys:
            if self._claim is None or key in self._claim:
                self.take_subscription(key, self._from, link)
                self.take_advertisement(key, self._from, link)

    def begun_anew(self, link: Link) -> None:
        """A neighbour begins to say everything: what it said before counts no more."""
        if link is self._to:
            self._told = frozenset()

    def take_subscription(self, key: str, old: str, new: Link) -> None:
        """A subscription that came from one neighbour comes from another."""
        known = self._tables.local(key)
        if known is None or known[1] != old:
            return
        anchor = self._tables.anchor_of(key)
        anchors = {key: Anchor(anchor.broker or old, anchor.exact)} if anchor is not None else None
        self._cancel(key, old)
        self._inform(self._tables.subscribe([(key, known[0])], new.name, link=True, anchors=anchors))
        if key not in self._told:
            new.stale_subscriptions.add(key)
        self.moved += 1

    def take_advertisement(self, key: str, old: str, new: Link) -> None:
        """An advertisement that came from one neighbour comes from another."""
        filter = self._tables.advertisement(key)
        if filter is None or self._tables.origin_of(key) != old:
            return
        self._inform(self._tables.advertise([(key, filter)], new.name, link=True))
        if key not in self._told:
            new.stale_advertisements.add(key)
        self.moved += 1
