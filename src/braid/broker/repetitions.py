"""Publications that come again, and what those who sent them wait for.

A publication may come twice: because a link began a new session, because copies of it take different ways,
or because its publisher sends it again. It is handed over once. Who sent the second copy waits until the
first is safe, and what that covers depends on the copy:

- *A copy along the tree* from the side that the first came from: all that was waited for then.
- *A copy for a set of brokers*: what clients and logs of this broker have of it, and nothing else. Such
  copies cross the network in any direction, so that more could mean waiting in a circle.
- *A repetition* (`PublicationBatch.again`): its publisher has no receipt and has changed its broker, or the
  neighbour that it waited for is elsewhere now. The first copy may have come from any side, and the brokers
  there may not have stored it. So a repetition travels on through all the network along the tree, however
  many have had it, and at each broker waits for clients and logs of that broker alone: there is no circle
  in that, because a tree has none.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from braid.broker.parties import Link
from braid.broker.settling import Pending, Unsettled, WaitingFor
from braid.protocol.messages import Settled

if TYPE_CHECKING:
    from collections.abc import Sequence

    from braid.broker.discards import Discards
    from braid.broker.parties import Party
    from braid.broker.turn import Turn
    from braid.broker.ways import Arrival, Source
    from braid.matching.columns import IntArray
    from braid.protocol import PublicationBatch

__all__ = ["Repetitions", "session_of"]


class Repetitions:
    """Knows what is waited for, and lets those wait who send it again.

    Args:
        turn: where news goes.
        unsettled: what came along the tree, until it is settled.
        from_sets: where copies for sets came from; nothing that comes again waits for these.
        discards: tells publishers what went nowhere.
        sees_far: whether copies for sets of brokers may come by.
    """

    def __init__(
        self, turn: Turn, unsettled: Unsettled, from_sets: Unsettled, discards: Discards, *, sees_far: bool
    ) -> None:
        self._turn = turn
        self._unsettled = unsettled
        self._unsettled_here = Unsettled()
        """What clients and logs of this broker have of it, where that is waited for by itself."""
        self._from_sets = from_sets
        self._discards = discards
        self._sees_far = sees_far
        turn.settlement.resolve(WaitingFor.FRAME, self._frame_settled)
        turn.settlement.resolve(WaitingFor.PIECE, self._forget)
        turn.settlement.resolve(WaitingFor.HERE, self._unsettled_here.forget)

    # First copies.

    def first(self, batch: PublicationBatch, pending: Pending) -> None:
        """A batch that is new here, or a repetition, is waited for."""
        self._unsettled.enter(batch, pending)
        if self._sees_far:
            self.wait_here(batch, pending)
        else:
            # What was handed over for a set may not be safe yet, and is not handed over again.
            for earlier in self._unsettled_here.of(batch.publisher, batch.sequences):
                pending.wait_for(earlier)

    def for_a_set(self, batch: PublicationBatch, pending: Pending) -> None:
        """A copy for a set of brokers is waited for."""
        self._from_sets.enter(batch, pending)

    def wait_here(self, batch: PublicationBatch, pending: Pending) -> None:
        """Wait for clients and logs of this broker by themselves."""
        here = pending.here = Pending(WaitingFor.HERE, pending.party)
        pending.wait_for(here)
        # What was handed over for another copy may not be safe yet.
        for earlier in self._unsettled_here.of(batch.publisher, batch.sequences):
            here.wait_for(earlier)
        self._unsettled_here.enter(batch, here)

    # Further copies.

    def repeated(
        self, source: Party, batch: PublicationBatch, fresh: IntArray, pending: Pending | None
    ) -> None:
        """All rows of a copy along the tree but these have been here before."""
        if self._count(source, batch, fresh) and pending is not None:
            # It is settled when its first copy is, not before; the sender does not wait for what is on
            # its own side.
            before = source.replaces if isinstance(source, Link) else None
            for earlier in self._unsettled.of(batch.publisher, batch.sequences):
                # A broker that has moved may get back what it had sent the old way. That waits for this copy.
                if before is None or earlier.party in (source, before):
                    pending.wait_beside(source, earlier)

    def owed(self, source: Source, arrivals: Sequence[Arrival]) -> Sequence[Arrival]:
        """What has to be routed: what comes over a superseded link is left to the copies that come the other
        way, but for copies for sets of brokers."""
        if not source.superseded:
            return arrivals
        rest = []
        for batch, pending in arrivals:
            if batch.route:
                rest.append((batch, pending))
            else:
                self._turn.counters.received += batch.count
                self._turn.counters.duplicates += batch.count
                self._turn.settlement.settle(pending)
        return rest

    def again(self, source: Party, batch: PublicationBatch, fresh: IntArray, pending: Pending | None) -> None:
        """A repetition has come, of which these rows are new here."""
        self._count(source, batch, fresh)
        if pending is not None:
            if not self._sees_far:
                self._wait_locally(pending, self._unsettled.of(batch.publisher, batch.sequences))
            self.first(batch, pending)

    def again_for_a_set(self, batch: PublicationBatch, pending: Pending, here: list[Pending]) -> None:
        """A copy for a set has come, of which some was here before; `here` was handed over then."""
        for earlier in here:
            pending.wait_for(earlier)
        if not self._sees_far:
            self._wait_locally(pending, self._unsettled.of(batch.publisher, batch.sequences))

    def _wait_locally(self, pending: Pending, others: list[Pending]) -> None:
        for earlier in others:
            pending.wait_local(earlier)

    def _count(self, source: Party, batch: PublicationBatch, fresh: IntArray) -> int:
        """Count what has been here before, and tell its sender what it may want to know of that."""
        repeated = len(batch) - len(fresh)
        if repeated:
            self._turn.counters.duplicates += repeated
            gone = np.setdiff1d(batch.sequences, batch.sequences[fresh])
            self._discards.here(source, batch, gone.tolist())
        return repeated

    def handed_over(self, batch: PublicationBatch) -> list[Pending]:
        """Those who wait for what clients and logs of this broker have of publications."""
        return self._unsettled_here.of(batch.publisher, batch.sequences)

    # The end of waiting.

    def _frame_settled(self, pending: Pending) -> None:
        """All of a frame is settled: its sender hears so.

        Copies for sets go both ways on a link. If each waited for those before it, two brokers could wait for
        each other for ever; along the tree that cannot be. So each is told by itself. What is behind such a
        copy does not wait for it either, or what keeps to the tree would wait for what does not:
        `SettleLine.done_apart`.
        """
        party = pending.party
        if party is not None:
            party.line.done(pending)
            if pending.apart == session_of(party) and pending.key > party.channel.settled:
                self._turn.tell(party, Settled([pending.key]))
        self._forget(pending)

    def _forget(self, pending: Pending) -> None:
        self._unsettled.forget(pending)
        self._from_sets.forget(pending)


def session_of(party: Party) -> int:
    """The session that a broker's frames are of; a soft link has only one."""
    return party.session if isinstance(party, Link) else 0
