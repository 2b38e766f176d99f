"""What a trace says of a broker that is replaced by another process: `replicate` operations, phase by phase.

A replication is named by the broker and its epoch. It begins when the first neighbour grants the name, and
ends when the replica knows the interest behind every neighbour. Measures of the availability paper are made
of these rows (`pipeline/metrics/availability.py`). Nothing else depends on them, and a broker that is not
concerned says nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from braid.protocol.effects import Progress

if TYPE_CHECKING:
    from braid.broker.events import LinkBegun, LinkOpening, LinkRemoved
    from braid.broker.parties import Link
    from braid.broker.turn import Turn
    from braid.protocol.log import KeepStanding

__all__ = ["REPLICATE", "ReplicaProgress"]

REPLICATE = "replicate"


class ReplicaProgress:
    """Says how far a replication has come, at a neighbour and at the replica.

    Args:
        turn: where effects go.
        standing: in whose place this broker runs, if it has just taken that.
    """

    def __init__(self, turn: Turn, standing: KeepStanding | None) -> None:
        self._turn = turn
        self._granted: set[str] = set()
        """Names that were granted here, and whose new owners have not come yet."""
        # What was kept in a store does not say how publications come back: that place was taken long ago.
        fresh = standing is not None and bool(standing.resumption)
        self._awaited = {name for name, _ in standing.neighbours} if standing is not None and fresh else set()
        """At a replica: the neighbours whose interest is not known yet."""

    def granted(self, link: Link) -> None:
        """The name of a neighbour was given to another process."""
        self._granted.add(link.name)
        self._tell(link.name, link.epoch, "granted", link.address)

    def link_begun(self, event: LinkBegun) -> None:
        """A session has begun: at a neighbour perhaps the first with a replica."""
        link = event.link
        if link.name in self._granted:
            self._granted.remove(link.name)
            self._tell(link.name, link.epoch, "connection requested", link.name)
        if link.name in self._awaited:
            self._of_this("state requested", link.name)

    def opening(self, event: LinkOpening) -> None:
        """All that is wanted behind a neighbour is known."""
        if event.link.name in self._awaited:
            self._of_this("state received", event.link.name)
            self._no_more(event.link.name)

    def link_removed(self, event: LinkRemoved) -> None:
        """A neighbour is none any more."""
        self._granted.discard(event.link.name)
        if event.link.name in self._awaited:
            self._no_more(event.link.name)

    def _no_more(self, neighbour: str) -> None:
        self._awaited.remove(neighbour)
        if not self._awaited:
            self._of_this("finished", "")

    def _of_this(self, phase: str, detail: str) -> None:
        self._tell(self._turn.settings.broker_id, self._turn.epoch, phase, detail)

    def _tell(self, name: str, epoch: int, phase: str, detail: str) -> None:
        self._turn.effect(Progress(REPLICATE, f"{name}/{epoch}", phase, detail))
