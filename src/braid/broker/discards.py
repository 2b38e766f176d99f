"""Who hears of publications that were taken for repetitions?

A receipt that says nothing means that a publication was delivered. So what was not has to be told to whoever
published it: by its own broker whatever is discarded, and by brokers further on, and by logs, what is so old
that they cannot tell it from a repetition. (What they know to have had before was delivered.) News
from further on goes back the way the publication came, as long as somebody waits for it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from braid.broker.parties import Client, Link
from braid.protocol.messages import PublishDiscarded

if TYPE_CHECKING:
    from collections.abc import Sequence

    from braid.broker.parties import Party
    from braid.broker.postroom import Postroom
    from braid.broker.settling import Unsettled
    from braid.protocol import PublicationBatch
    from braid.protocol.duplicates import DuplicateFilter

__all__ = ["Discards"]


class Discards:
    """Tells publishers what went nowhere."""

    def __init__(self, postroom: Postroom, seen: DuplicateFilter, unsettled: Unsettled) -> None:
        self._postroom = postroom
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
        elif isinstance(source, Link) and batch.acknowledged:
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
        self._postroom.counters.duplicates += len(gone)
        rows = [row for row, sequence in enumerate(sequences) if not seen.discards(publisher, sequence)]
        return batch.select(np.array(rows, np.int64))

    def in_log(
        self, source: Party, batch: PublicationBatch, stored: DuplicateFilter, sequences: Sequence[int]
    ) -> None:
        """A log has not stored publications of a batch."""
        publisher = batch.publisher
        too_old = [sequence for sequence in sequences if not stored.has(publisher, sequence)]
        message = PublishDiscarded(publisher, too_old, stored.highest(publisher) or 0, known=False)
        if isinstance(source, Client) or (isinstance(source, Link) and batch.acknowledged):
            self._tell(source, message)

    def further_on(self, _: Link, message: PublishDiscarded) -> None:
        """A neighbour says that something was discarded there, or further on."""
        for source in self._unsettled.sources(message.publisher, message.sequences):
            if isinstance(source, Client | Link):
                self._tell(source, message)

    def _tell(self, party: Client | Link, message: PublishDiscarded) -> None:
        if message.sequences and party.connection is not None:
            if isinstance(party, Client):
                self._postroom.counters.discarded += len(message.sequences)
            self._postroom.tell(party, message)
