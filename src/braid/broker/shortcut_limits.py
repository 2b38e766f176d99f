"""Which shortcuts must not be used while an operation changes a link that they bypass?

A publication that takes a soft link past a link of the tree is served on the other side by who is behind
whom. If that changes while it is under way, a broker may leave out those whom the sender meant it to serve.
So before an operation holds anything, all brokers within sight of the link stop using shortcuts past it
(multipath paper, section 6), and say so when what they had sent over them has arrived. They use them again
when the change is wrapped up and their maps are right.

The word goes out along the tree, and the answers come back the same way: who has asked others answers when
all of those have.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

from braid.broker.events import SoftLinksChanged
from braid.broker.operations import PATH_MAX
from braid.errors import RemoteProtocolError
from braid.protocol.changes import AvoidShortcuts, ShortcutsAvoided, UseShortcuts

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from braid.broker.events import Events
    from braid.broker.operations import Operation
    from braid.broker.parties import Link
    from braid.broker.soft_links import SoftLinks
    from braid.broker.turn import Turn
    from braid.routing import Surroundings

__all__ = ["ShortcutLimits"]

# Operations whose shortcuts are avoided at a time; more are not begun within sight of each other.
LIMITS_MAX = 256
# How far a word goes at most: as far as anybody sees, along a path and back.
HOPS_MAX = 255 + 2 * PATH_MAX


@dataclass(slots=True)
class _Limit:
    """The shortcuts that one operation asks to avoid."""

    path: frozenset[str]
    """The brokers between which links change, or others come to be behind them."""
    hops: int
    asked_by: str
    """The neighbour that waits for our answer; empty at the broker that began it, or when it was given."""
    waiting: set[str]
    """The neighbours that have not answered."""
    until_us: int


class ShortcutLimits:
    """Avoids shortcuts while operations need it.

    Args:
        turn: where messages go.
        links: the neighbours by their names.
        soft: the soft links.
        surroundings: the map.
        events: tells others that shortcuts may not be used, or may again.
        reanchor: tells a neighbour anew what has another anchor by the map as it is now. What moved may lie
            no longer behind the anchor that it had, so that is told before shortcuts are used again.
    """

    def __init__(
        self,
        turn: Turn,
        links: Mapping[str, Link],
        soft: SoftLinks,
        surroundings: Surroundings,
        events: Events,
        reanchor: Callable[[str], None],
    ) -> None:
        self._turn = turn
        self._links = links
        self._soft = soft
        self._surroundings = surroundings
        self._events = events
        self._reanchor = reanchor
        self._limits: dict[str, _Limit] = {}

    @property
    def active(self) -> bool:
        """Whether any shortcut is avoided."""
        return bool(self._limits)

    def avoided(self, broker: str) -> bool:
        """Whether a shortcut to a broker must not be used."""
        overlay = self._surroundings.map()
        if not self._limits or broker not in overlay:
            return False
        path = [broker]
        while path[-1] != overlay.centre:
            path.append(overlay.parent(path[-1]))
        return any(
            left in limit.path and right in limit.path
            for limit in self._limits.values()
            for left, right in pairwise(path)
        )

    # At the broker that moves.

    def begin(self, operation: Operation) -> None:
        """Have everybody within sight avoid shortcuts past the link that is to change."""
        settings = self._turn.settings
        wishes = [self._surroundings.wish_of(name) for name in self._links]
        delta = max((settings.delta, *wishes))
        if delta > 1:
            # Who has a shortcut past one of the links is less than delta away from the nearer end of it.
            hops = delta + len(operation.path) - 1
            self._limit(operation.id, AvoidShortcuts(operation.id, list(operation.path), hops), "")

    def quiet(self, operation: str) -> bool:
        """Whether nothing is under way on shortcuts past the link any more."""
        limit = self._limits.get(operation)
        return limit is None or (not limit.waiting and self._sent_all())

    def lift(self, operation: str) -> None:
        """Shortcuts may be used again."""
        limit = self._limits.pop(operation, None)
        if limit is not None:
            self._anchor_anew()
            # Those who were told may be further off by now.
            hops = limit.hops + len(limit.path)
            self._tell(UseShortcuts(operation, hops), hops, "")
            self._events.tell(SoftLinksChanged())

    # Everywhere.

    def heard(self, link: Link, message: AvoidShortcuts) -> None:
        """A neighbour passes on what is to be avoided.

        Raises:
            RemoteProtocolError: nobody asks for so much.
        """
        if len(self._limits) >= LIMITS_MAX or not 3 <= len(message.path) <= PATH_MAX:
            raise RemoteProtocolError("more operations at a time, or a longer path, than there can be")
        self._limit(message.operation, message, link.name)

    def _limit(self, operation: str, message: AvoidShortcuts, asked_by: str) -> None:
        until_us = self._turn.now_us + 6 * self._turn.settings.operation_us_max
        onward = AvoidShortcuts(operation, message.path, message.hops - 1)
        asked = self._tell(onward, message.hops, asked_by)
        limit = _Limit(frozenset(message.path), message.hops, asked_by, asked, until_us)
        self._limits[operation] = limit
        self._events.tell(SoftLinksChanged())
        self.look()

    def _tell(self, message: AvoidShortcuts | UseShortcuts, hops: int, besides: str) -> set[str]:
        told = set()
        for name, link in self._links.items():
            if hops > 1 and name != besides and link.channel.connected:
                self._turn.tell(link, message)
                told.add(name)
        return told

    def answered(self, link: Link, message: ShortcutsAvoided) -> None:
        """A neighbour, and all behind it that were asked, avoid what is to be avoided."""
        limit = self._limits.get(message.operation)
        if limit is not None:
            limit.waiting.discard(link.name)
            self.look()

    def lifted(self, link: Link, message: UseShortcuts) -> None:
        """A neighbour passes on that shortcuts may be used again."""
        limit = self._limits.pop(message.operation, None)
        if limit is not None:
            self._anchor_anew()
        # Behind this broker there may be some who know of it, also if it does not itself.
        hops = min(message.hops, HOPS_MAX)
        self._tell(UseShortcuts(message.operation, hops - 1), hops, link.name)
        if limit is not None:
            self._events.tell(SoftLinksChanged())

    def _anchor_anew(self) -> None:
        for name in list(self._links):
            self._reanchor(name)

    def look(self) -> None:
        """Answer those who wait, if nothing is under way any more; end what nobody has ended."""
        if not self._limits:
            return
        quiet = self._sent_all()
        for name, limit in list(self._limits.items()):
            # One that has gone meanwhile sends nothing; those behind it begin anew.
            limit.waiting &= {each for each, link in self._links.items() if link.channel.connected}
            if quiet and limit.asked_by and not limit.waiting:
                link = self._links.get(limit.asked_by)
                limit.asked_by = ""
                if link is not None and link.agreed:
                    self._turn.tell(link, ShortcutsAvoided(name))
            if self._turn.now_us >= limit.until_us:
                del self._limits[name]
                self._events.tell(SoftLinksChanged())

    def _sent_all(self) -> bool:
        """Whether all that was sent over shortcuts that are avoided has arrived."""
        return not any(
            self.avoided(soft.name) and (soft.channel.under_way or soft.channel.waiting_bytes)
            for soft in self._soft.all()
        )
