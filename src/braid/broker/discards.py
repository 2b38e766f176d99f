"""Who hears of publications that were taken for repetitions, or could not be passed on?

A receipt that says nothing means that a publication was delivered. So what was not has to be told to the
client that published it: by its own broker whatever is discarded, and by brokers further on, and by logs,
what is so old that they cannot tell it from a repetition. (What they know to have had before was delivered.)
The same holds for what is too large for a broker on the way. News from further on goes back the way the
publication came, as long as a party waits for it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
import numpy as np

from braid.broker.parties import Client, Link, SoftLink
from braid.protocol.messages import PublishDiscarded, PublishRefused

if TYPE_CHECKING:
    from collections.abc import Sequence

    from braid.broker.events import LeftOut
    from braid.broker.parties import Party
    from braid.broker.settling import Unsettled
    from braid.broker.turn import Turn
    from braid.protocol import PublicationBatch
    from braid.protocol.duplicates import DuplicateFilter

__all__ = ["Discards"]


class Discards:
    """Tells publishers what went nowhere."""

    def __init__(self, turn: Turn, seen: DuplicateFilter, *unsettled: Unsettled) -> None:
        """`unsettled`: where to look for those who wait for a publication."""
        self._turn = turn
        self._seen = seen
        self._unsettled = unsettled

    def here(self, source: Party, batch: PublicationBatch, sequences: Sequence[int]) -> None:
        """This broker has discarded publications of a batch."""
        seen, publisher = self._seen, batch.publisher
        too_old = [sequence for sequence in sequences if not seen.has(publisher, sequence)]
        highest = seen.highest(publisher) or 0
        if isinstance(source, Client):
            known = [sequence for sequence in sequences if seen.has(publisher, sequence)]
            self._tell(source, PublishDiscarded(publisher, known, highest))
            self._tell(source, PublishDiscarded(publisher, too_old, highest, known=False))
        elif isinstance(source, Link | SoftLink) and batch.acknowledged:
            self._tell(source, PublishDiscarded(publisher, too_old, highest, known=False))

    def kept(self, client: Client, batch: PublicationBatch) -> PublicationBatch:
        """A batch has arrived and is kept until it can be routed; returns what of it is not discarded.

        Its sender hears meanwhile that it has arrived, and with fast delivery that is a receipt.
        """
        if batch.acknowledged:
            return batch
        seen, publisher = self._seen, batch.publisher
        sequences = batch.sequences.tolist()
        gone = [sequence for sequence in sequences if seen.discards(publisher, sequence)]
        if not gone:
            return batch
        self.here(client, batch, gone)
        self._turn.counters.duplicates += len(gone)
        rows = [row for row, sequence in enumerate(sequences) if not seen.discards(publisher, sequence)]
        return batch.select(np.array(rows, np.int64))

    def further_in(
        self, source: Party, batch: PublicationBatch, had: DuplicateFilter, sequences: Sequence[int]
    ) -> None:
        """A log, or the clients of a broker in a set, did not get publications because of what they had."""
        publisher = batch.publisher
        too_old = [sequence for sequence in sequences if not had.has(publisher, sequence)]
        message = PublishDiscarded(publisher, too_old, had.highest(publisher) or 0, known=False)
        if isinstance(source, Client) or batch.acknowledged:
            self._tell(source, message)

    def left_out(self, event: LeftOut) -> None:
        """Publications are too large for what a broker reads, and are not sent to it."""
        party, batch = event.party, event.batch
        if batch.acknowledged and not isinstance(party, Client):
            reason = (
                f"the broker {party.name} reads frames of {party.channel.frame_bytes_max:,} bytes at most"
            )
            sequences = batch.sequences.tolist()
            self.further_on(party, PublishRefused(batch.publisher, sequences, "oversized", reason))

    def looped(self, source: Party, batch: PublicationBatch) -> None:
        """Publications have crossed as many links as they may, and go no further."""
        if batch.acknowledged:
            reason = f"they crossed {batch.hops} links, and go no further"
            self._tell(source, PublishRefused(batch.publisher, batch.sequences.tolist(), "hops", reason))

    def further_on(self, party: Party, message: PublishDiscarded | PublishRefused) -> None:
        """A broker we have a link to says that something was discarded, or left out, there or further on.

        It speaks for what it was given, and for nothing else.
        """
        for unsettled in self._unsettled:
            given = unsettled.given(message.publisher, message.sequences, party)
            for source, sequences in given.items():
                self._tell(source, msgspec.structs.replace(message, sequences=sequences))

    def _tell(self, party: Party, message: PublishDiscarded | PublishRefused) -> None:
        if message.sequences and party.connection is not None:
            if isinstance(party, Client) and isinstance(message, PublishDiscarded):
                self._turn.counters.discarded += len(message.sequences)
            self._turn.tell(party, message)
