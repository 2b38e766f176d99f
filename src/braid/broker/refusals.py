"""Publications that are not accepted, and who hears of that."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from braid.broker.parties import Client
from braid.errors import PublicationError
from braid.language.publication import checked_attributes
from braid.protocol.messages import PublishRefused

if TYPE_CHECKING:
    from braid.broker.parties import Party
    from braid.broker.turn import Turn
    from braid.matching.columns import IntArray
    from braid.protocol import PublicationBatch

__all__ = ["Refusals"]


class Refusals:
    """Takes out rows that may not, or cannot, be published."""

    def __init__(self, turn: Turn) -> None:
        self._turn = turn
        self._refused: dict[str, tuple[int, str]] = {}
        """Publications of a client that were refused and are not in the audit log yet, by code, and why."""

    def refuse(self, client: Client, batch: PublicationBatch, rows: IntArray, code: str, reason: str) -> None:
        """Tell a client which of its publications are not accepted, and why."""
        sequences = batch.sequences[rows].tolist()
        self._turn.counters.refused += len(sequences)
        self._turn.tell(client, PublishRefused(batch.publisher, sequences, code, reason))
        count, first_reason = self._refused.get(code, (0, reason))
        self._refused[code] = count + len(sequences), first_reason

    def audit(self, client: Client) -> None:
        """A line for all refusals of a turn, so that a client cannot fill the log with them."""
        for code, (count, reason) in self._refused.items():
            self._turn.audit(
                "warning",
                "publication refused",
                client=client.name,
                principal=client.principal.name,
                count=count,
                code=code,
                reason=reason,
            )
        self._refused.clear()

    def possible(self, source: Party, batch: PublicationBatch) -> PublicationBatch:
        """The rows whose values a publication can have. A client hears of the others; a neighbour should
        not have passed them on, but if that ended its connection, it would send them again on the next."""
        kept = []
        for row, values in enumerate(batch.attributes()):
            try:
                checked_attributes(values)
                kept.append(row)
            except PublicationError as error:
                if isinstance(source, Client):
                    self.refuse(source, batch, np.array([row]), "publication", str(error))
                else:
                    self._turn.counters.refused += 1
                    self._turn.note(
                        "error",
                        "a neighbour passed on what cannot be",
                        neighbour=source.name,
                        reason=str(error),
                    )
        if isinstance(source, Client):
            self.audit(source)
        return batch if len(kept) == len(batch) else batch.select(np.array(kept, np.int64))
