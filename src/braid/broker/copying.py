"""How do tables come to their new places before an operation holds anything?

The three-phase SHIFT changes tables while publications wait, so that its pause grows with them. Here they
travel ahead, while everything flows (*pre-copy*); the old tree stays true until the decision, and giving up
costs nothing.

- The old neighbour tells the one after it everything that comes from the broker that moves *apart*, so that
  it hides nothing there, and says which keys those are (`ChangeMoving`). The new neighbour claims them for
  the new link.
- The new neighbour then tells the broker that moves, over the new link, what is not behind that one. It takes
  this as if the old neighbour had said it, and remembers what it has heard so.

When all is said the flush of the three-phase protocol follows, with little under way; what is decided then is
a change of a few names at each of the three. Entries follow some a turn (`table_moves.py`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from braid.protocol.changes import ChangeMoving
from braid.protocol.messages import Done

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from braid.broker.operations import Changing, Operation
    from braid.broker.parties import Link
    from braid.broker.table_moves import TableMoves
    from braid.broker.turn import Turn
    from braid.protocol.messages import Advertise, Subscribe, Unadvertise, Unsubscribe
    from braid.routing import RoutingTables, Tell

__all__ = ["Copying"]

# Entries that one turn sets apart: a few milliseconds.
ENTRIES_PER_STEP = 16
# So few may be unconfirmed before more is told, so that publications never wait behind much of it, and before
# anything is held: those are told once more in the turn of the change.
UNCONFIRMED_MAX = 32


class NeighboursWords(Protocol):
    """Keeps what neighbours say, each for itself or in the name of another one."""

    def subscribe_link(self, link: Link, messages: Sequence[Subscribe], origin: str = "") -> None: ...

    def unsubscribe_link(self, link: Link, message: Unsubscribe, origin: str = "") -> None: ...

    def advertise_link(self, link: Link, message: Advertise, origin: str = "") -> None: ...

    def unadvertise_link(self, link: Link, message: Unadvertise, origin: str = "") -> None: ...


class Copying:
    """Brings tables to their places ahead of the decision, and hears what neighbours say of them meanwhile.

    Args:
        turn: where messages go.
        changing: the operation under way.
        neighbours: the links by their names.
        tables: what came from which neighbour.
        moves: moves it to another one.
        ahead: new links whose other ends are told everything before they are among the others.
        words: takes what neighbours say.
        inform: tells neighbours what they have to know.
        link_down: looks again at those who wait for a link to confirm something.
        look_again: looks again at those who wait until subscriptions are everywhere.
    """

    def __init__(
        self,
        turn: Turn,
        changing: Changing,
        neighbours: Mapping[str, Link],
        tables: RoutingTables,
        moves: TableMoves,
        ahead: dict[str, Link],
        words: NeighboursWords,
        *,
        inform: Callable[[Iterable[Tell]], None],
        link_down: Callable[[Link], None],
        look_again: Callable[[Iterable[str]], None],
    ) -> None:
        self._turn = turn
        self._changing = changing
        self._neighbours = neighbours
        self._tables = tables
        self._moves = moves
        self._ahead = ahead
        self._words = words
        self._inform = inform
        self._link_down = link_down
        self._look_again = look_again
        self.link: Link | None = None
        """The new link, which is not one of the others yet."""
        self._operation = ""
        """What is prepared here."""
        self.complete = False
        """Whether this broker has heard, or said, all that is to be known ahead."""
        self._subscribed: list[str] = []
        self._advertised: list[str] = []
        """What is still to be told apart."""
        self._hears: Link | None = None
        """Who is told ahead."""
        self._handed = False
        """Whether the old neighbour has told everything that moves."""
        self._telling = False
        """Whether the broker that moves is being told everything."""
        self.heard: set[str] = set()
        """At the broker that moves: what the new neighbour has told it."""
        self._extra: set[str] = set()
        """Of that, what the old one has not."""
        self.entries = 0
        """Entries of tables that were told or claimed ahead, since the start."""
        self.turn_max = 0
        """The most of them in one turn."""

    # Ahead.

    def begin(self, operation: Operation) -> None:
        """The brokers before this one are ready to copy."""
        self._forget()
        self._operation = operation.id
        self._turn.note("info", "copies tables ahead", operation=operation.id)
        if operation.position == 1:
            subscriptions, advertisements = self._tables.from_link(operation.before)
            self._subscribed, self._advertised = subscriptions[::-1], advertisements[::-1]
            self._tables.share(operation.before, operation.after)
        elif operation.last:
            self._tables.add_link(operation.path[0], muted=True)
            self._tables.claim(operation.path[0], operation.before, ())
            self._changing.leaving.add(operation.path[0])

    def joined(self, operation: Operation, link: Link) -> None:
        """The new link has a connection."""
        self.link = link
        if operation.last:
            self._ahead[link.name] = link

    def prepares(self, operation: Operation) -> bool:
        """Whether tables are prepared here for an operation."""
        return bool(self._operation) and operation.id == self._operation

    def _forget(self) -> None:
        self.link = self._hears = None
        self._operation = ""
        self.complete = self._handed = self._telling = False
        self._subscribed, self._advertised = [], []
        self.heard, self._extra = set(), set()
        self._ahead.clear()

    @property
    def unfinished(self) -> bool:
        """Whether there is something left for `step`, and whoever is to hear of it has room for it."""
        return bool(self._subscribed or self._advertised) and not self._waits_for(self._hears)

    def _waits_for(self, link: Link | None) -> bool:
        return link is not None and len(link.outstanding.subscriptions) >= UNCONFIRMED_MAX

    def step(self, operation: Operation) -> None:
        """Go on with what can go on; called with every turn until the decision."""
        if operation.position == 1:
            self._tell_apart(operation)
        elif operation.last and self._handed and self.link is not None:
            self._tell_ahead(operation, self.link)

    def _tell_apart(self, operation: Operation) -> None:
        """At the old neighbour: the new one is to know what comes from the broker that moves."""
        after = self._neighbours.get(operation.after)
        if after is None or operation.after not in self._tables.links:
            return
        self._hears = after
        if self.unfinished:
            subscribed, advertised = _some(self._subscribed), _some(self._advertised)
            self._inform(self._tables.tell_apart(operation.after, subscribed, advertised))
        keys = self._tables.newly_apart(operation.after)
        self._count(len(keys))
        left = self.complete or self._subscribed or self._advertised
        last = not left and self._tables.settled(operation.after)
        if keys or last:
            self._turn.tell(after, ChangeMoving(operation.id, keys, last), in_line=True)
        self.complete = self.complete or last

    def _tell_ahead(self, operation: Operation, link: Link) -> None:
        """At the new neighbour: the broker that moves is to know what is not behind it."""
        self._hears = link
        if not self._telling:
            self._telling = True
            tells, keys = self._tables.unmute_slowly(link.name)
            self._subscribed = keys[::-1]
            self._inform(tells)
        elif self._subscribed:
            if self.unfinished:
                self._tables.tell_later(link.name, _some(self._subscribed))
        elif not self.complete and self._tables.settled(link.name):
            self.complete = True
            self.say_all(operation)

    def say_all(self, operation: Operation) -> None:
        """Tell the broker that moves that it has heard everything so far."""
        if self.link is not None:
            self._turn.tell(self.link, ChangeMoving(operation.id, [], last=True))

    def moving(self, operation: Operation, link: Link, message: ChangeMoving) -> bool:
        """Somebody says what moves, or that all is said; returns whether all was."""
        if operation.first and link is self.link:
            self.complete = self.complete or message.last
            return message.last
        if operation.last and link.name == operation.before and operation.path[0] in self._tables.links:
            self._count(len(message.keys))
            self._inform(self._tables.claim(operation.path[0], operation.before, message.keys))
            self._handed = self._handed or message.last
        return False

    def _count(self, entries: int) -> None:
        self.entries += entries
        self.turn_max = max(self.turn_max, entries)

    def quiet(self, name: str, *, confirmed: bool = False) -> bool:
        """Whether nothing is left to be told to a neighbour, and little enough to be confirmed by it."""
        link = self._neighbours.get(name)
        if confirmed and link is not None and len(link.outstanding.subscriptions) > UNCONFIRMED_MAX:
            return False
        return self._tables.settled(name)

    # What comes of it.

    def abandon(self, operation: Operation) -> None:
        """Nothing will change: what was prepared is taken back, some a turn."""
        if operation.first:
            self._moves.undo(sorted(self._extra), self._forget_extra(operation.after))
        elif operation.position == 1:
            self._inform(self._tables.rejoin(operation.after))
        elif operation.last:
            moving = operation.path[0]

            def disclaimed() -> None:
                self._tables.take_claim(moving)
                self._inform(self._tables.remove_link(moving))
                self._changing.leaving.discard(moving)

            self._tables.mute(moving)
            claimed = self._tables.claimed(moving)
            self._moves.undo(claimed, lambda keys: self._tables.disclaim(moving, keys), disclaimed)
        self._forget()

    def _forget_extra(self, old: str) -> Callable[[Sequence[str]], None]:
        def forget(keys: Sequence[str]) -> None:
            self._inform(self._tables.unsubscribe(keys, origin=old))
            self._inform(self._tables.unadvertise(keys, origin=old))

        return forget

    def decided(self, operation: Operation, old: Link | None) -> None:
        """The change is decided, and what was prepared counts from this turn on.

        Args:
            operation: which change.
            old: the link whose place another one takes, at its ends.
        """
        moving, new = operation.path[0], operation.path[-1]
        if operation.first:
            self._changing.leaving.add(operation.path[1])
            self._moves.follow(operation.path[1], self._neighbours[new], frozenset(self.heard))
        elif operation.last:
            self._changing.leaving.discard(moving)
            self._tables.take_claim(moving)
            before, claimed = self._neighbours.get(operation.before), self._tables.claimed(moving)
            if before is not None:
                self._moves.take(before, self._neighbours[moving], claimed)
            # Who waits for others waits for this one as well.
            link = self._neighbours[moving]
            self._look_again(link.outstanding.subscriptions)
        elif operation.position == 1:
            after = self._neighbours[operation.after]
            self._changing.leaving.add(moving)
            self._tables.give_over(moving, operation.after)
            self._moves.begin(moving, after)
        if old is not None:
            toward = new if operation.first else operation.after
            self._tell_once_more(self._neighbours[toward], old)
        self._forget()

    def _tell_once_more(self, toward: Link, old: Link) -> None:
        """What the old neighbour has not confirmed is waited for where it is to be known now."""
        unconfirmed = list(old.outstanding.subscriptions)
        self._inform(self._tables.tell_once_more(toward.name, unconfirmed))
        self._link_down(old)

    # What neighbours say.

    def subscribed(self, link: Link, messages: Sequence[Subscribe]) -> None:
        """A neighbour subscribes for the brokers behind it."""
        old = self._stands_for(link)
        if not old:
            self._moves.settle(link, [message.key for message in messages])
            if self._extra:
                self._extra.difference_update([message.key for message in messages])
            self._words.subscribe_link(link, messages)
            return
        for message in messages:
            origin = self._tables.origin_of(message.key)
            if origin is None or origin == old:
                self.heard.add(message.key)
            if origin is None:
                self._extra.add(message.key)
                self._words.subscribe_link(link, [message], origin=old)
            else:
                # What comes from elsewhere comes from behind this broker: the other one will see that, too.
                self._turn.tell(link, Done(message.request))

    def advertised(self, link: Link, message: Advertise) -> None:
        """A neighbour advertises for the brokers behind it."""
        old = self._stands_for(link)
        origin = self._tables.origin_of(message.key)
        if not old:
            self._moves.settle(link, [message.key])
            self._extra.discard(message.key)
            self._words.advertise_link(link, message)
            return
        if origin is None or origin == old:
            self.heard.add(message.key)
        if origin is None:
            self._extra.add(message.key)
            self._words.advertise_link(link, message, origin=old)
        else:
            self._turn.tell(link, Done(message.request))

    def unsubscribed(self, link: Link, message: Unsubscribe) -> None:
        """A neighbour takes a subscription back; amid an operation that may mean that it has moved."""
        if self._is_kept(link, message.key):
            self._turn.tell(link, Done(message.request))
            return
        new = self._neighbours.get(self._changing.successor(link))
        if new is not None:
            self._moves.take_subscription(message.key, link.name, new)
            self._turn.tell(link, Done(message.request))
            return
        self._moves.settle(link, [message.key])
        self._words.unsubscribe_link(link, message, origin=self._stands_for(link))

    def unadvertised(self, link: Link, message: Unadvertise) -> None:
        """A neighbour takes an advertisement back; amid an operation that may mean that it has moved."""
        if self._is_kept(link, message.key):
            self._turn.tell(link, Done(message.request))
            return
        new = self._neighbours.get(self._changing.successor(link))
        if new is not None:
            self._moves.take_advertisement(message.key, link.name, new)
            self._turn.tell(link, Done(message.request))
            return
        self._moves.settle(link, [message.key])
        self._words.unadvertise_link(link, message, origin=self._stands_for(link))

    def _stands_for(self, link: Link) -> str:
        """The neighbour in whose name a new link tells before the decision; empty for the other links."""
        operation = self._changing.current
        if operation is None or link is not self.link or not operation.first:
            return ""
        return operation.after

    def _is_kept(self, link: Link, key: str) -> bool:
        """Whether what a neighbour takes back is known all the same, from the other one of the two."""
        if not self.heard:
            return False
        operation = self._changing.current
        if link is self.link:
            self.heard.discard(key)
            kept = key not in self._extra
            self._extra.discard(key)
            return kept
        if operation is not None and link.name == operation.after and key in self.heard:
            self._extra.add(key)
            return True
        return False


def _some(keys: list[str]) -> list[str]:
    """Take the next ones, which stand at the end."""
    some = keys[-ENTRIES_PER_STEP:][::-1]
    del keys[-ENTRIES_PER_STEP:]
    return some
