"""Which soft links does a broker have, and is there room for another?

`fanout` is a bound on *all* links of a broker: its primary links, the soft links it opened, those that others
opened to it, those that are being closed and those that are being dialled. Primary links are always possible;
soft links share what they leave. A broker that is full refuses, and the one that asked tries another.

A soft link carries publications both ways, whichever end opened it. So there is one between two brokers at
most, and it costs each of them one place.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from braid.broker.soft_link_life import SoftLinkStep
from braid.errors import RequestRefusedError

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

    from braid.broker.parties import SoftLink
    from braid.routing import OverlayMap

__all__ = ["SoftLinks"]


# A soft link that is no longer wanted may take this many reviews to deliver what it has.
RETIRING_REVIEWS_MAX = 2


class SoftLinks:
    """The soft links of one broker, counted against its fanout; the owner of their lives.

    Args:
        broker: this broker.
        fanout: all its links, at most.
        primary: its primary links, as they are at any time.
    """

    def __init__(self, broker: str, fanout: int, primary: Collection[str]) -> None:
        self.outgoing: dict[str, SoftLink] = {}
        """Those that this broker opened and wants."""
        self.incoming: dict[str, SoftLink] = {}
        """Those that others opened to it."""
        self.retiring: dict[SoftLink, int] = {}
        """Those it opened and wants no more, with the reviews they have left to deliver what they have."""
        self.dialling: dict[str, SoftLink] = {}
        """Those under way, by the address that was dialled."""
        self.fanout = fanout
        self._broker = broker
        self._primary = primary

    # Their lives.

    def dialled(self, soft: SoftLink) -> None:
        """One of ours is under way."""
        self.dialling[soft.address] = soft

    def give_up(self, soft: SoftLink) -> None:
        """One that was under way is not to be."""
        soft.step(SoftLinkStep.GIVEN_UP)
        del self.dialling[soft.address]

    def enter(self, soft: SoftLink) -> None:
        """Both ends have agreed on one."""
        soft.step(SoftLinkStep.ENTERED)
        if soft.outgoing:
            del self.dialling[soft.address]
            self.outgoing[soft.name] = soft
        else:
            self.incoming[soft.name] = soft

    def retire(self, broker: str) -> bool:
        """Use one of ours no more; returns whether there was one."""
        soft = self.outgoing.get(broker)
        if soft is None:
            return False
        soft.step(SoftLinkStep.UNWANTED)
        del self.outgoing[broker]
        self.retiring[soft] = RETIRING_REVIEWS_MAX
        return True

    def age(self) -> None:
        """A review has come: those that retire have one less left."""
        for soft, reviews in self.retiring.items():
            self.retiring[soft] = max(0, reviews - 1)

    def reinstate(self, broker: str) -> SoftLink | None:
        """One that was to be closed is wanted after all; None if it is not there any more."""
        soft = next(
            (each for each in self.retiring if each.name == broker and each.connection is not None), None
        )
        if soft is not None:
            soft.step(SoftLinkStep.WANTED)
            del self.retiring[soft]
            self.outgoing[broker] = soft
        return soft

    def leave(self, soft: SoftLink) -> None:
        """This broker has said goodbye; the driver says when the connection has ended."""
        soft.step(SoftLinkStep.GOODBYE)

    def closed(self, soft: SoftLink) -> bool:
        """One has ended; returns whether publications could take it until now."""
        soft.step(SoftLinkStep.DISCONNECTED)
        if self.retiring.pop(soft, None) is not None:
            return False
        mine = self.outgoing if soft.outgoing else self.incoming
        if mine.get(soft.name) is not soft:
            return False
        del mine[soft.name]
        return True

    # Room.

    @property
    def held(self) -> int:
        """All links, those under way included."""
        soft = len(self.outgoing) + len(self.incoming) + len(self.retiring)
        return len(self._primary) + soft + len(self.dialling)

    @property
    def free(self) -> int:
        """How many more there may be."""
        return max(0, self.fanout - self.held)

    @property
    def too_many(self) -> int:
        """How many soft links have to go, because primary links took their places."""
        return max(0, self.held - self.fanout)

    def usable(self, overlay: OverlayMap) -> Iterator[SoftLink]:
        """Those that publications may take: their other ends are in sight, and no neighbours."""
        for soft in self.outgoing.values():
            if soft.channel.connected:
                yield soft
        for name, soft in self.incoming.items():
            if soft.channel.connected and name in overlay and name not in overlay.neighbours:
                yield soft

    def all(self) -> Iterator[SoftLink]:
        """All that have a connection."""
        yield from self.outgoing.values()
        yield from self.incoming.values()
        yield from self.retiring

    def require_room_for(self, broker: str) -> SoftLink | None:
        """Another broker opens a soft link; returns the one it is to take the place of, if there is one.

        If both are just dialling each other, the connection from the broker with the smaller id stays. A
        broker would not open a link if it still had one, so that one is dead and we have not noticed.

        Raises:
            RequestRefusedError: we are opening that link ourselves, or there is no room.
        """
        before = self.outgoing.get(broker) or self.incoming.get(broker)
        for under_way in [soft for soft in self.dialling.values() if soft.name == broker]:
            if self._broker < broker:
                raise RequestRefusedError(f"{self._broker!r} is opening this link itself", "linked")
            self.give_up(under_way)
        if before is None and not self.free:
            raise RequestRefusedError(f"this broker has all the {self.fanout} links it may have", "full")
        return before
