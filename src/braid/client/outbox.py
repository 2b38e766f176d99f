"""What has a client published, and how much of it has arrived?

Publications collect until they are sealed into batches, once per turn of the driver's loop. They leave in the
order in which they were made, so two numbers say everything about receipts: up to which publication all have
been received, and up to which all acknowledged ones are settled.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Final

from braid.protocol.batch import PublicationBatch

if TYPE_CHECKING:
    from collections.abc import Sequence

    from braid.protocol.channel import Channel
    from braid.protocol.codec import Frame
    from braid.protocol.messages import Acknowledgement, PublishDiscarded

__all__ = ["ACKNOWLEDGED", "BATCH_BYTES", "ORDERED", "Outbox", "batch_overhead"]

# How a publication is to travel; both may be combined. Publications that differ never share a batch.
ACKNOWLEDGED: Final = 1
ORDERED: Final = 2
# Sent before, on a former connection, without an answer. No program says so; the outbox does.
_AGAIN: Final = 4

# Large enough that the work per batch is small beside the work per row, small enough that a batch on a slow
# connection does not hold up the messages behind it.
BATCH_BYTES: Final = 64 * 1024
# What a row costs in a frame beside its record.
ROW_BYTES: Final = 8


def batch_overhead(publisher: str) -> int:
    """Bytes of a frame with one publication that are not its record."""
    return PublicationBatch.of(publisher, [1], [b""]).size


class Outbox:
    """The sending half of a client's session."""

    def __init__(self, channel: Channel[range], publisher: str, first_sequence: int) -> None:
        self.publisher = publisher
        self.last_sequence = first_sequence - 1
        """Of the newest publication."""
        self.last_acknowledged_sequence = 0
        """Of the newest publication with acknowledged delivery."""
        self.received = first_sequence - 1
        """Everything up to this publication has arrived at the broker, or was refused."""
        self.settled = 0
        """Every acknowledged publication up to this one is safe with everybody, or was refused."""
        self.receipt_wanted = False
        """Somebody waits: the next batch asks to be acknowledged at once."""
        self.pending_bytes = 0
        """Publications that are in no batch yet."""
        self._channel = channel
        self._overhead = batch_overhead(publisher)
        # Runs of publications that travel in the same way: (first sequence number, manner, records).
        self._runs: deque[tuple[int, int, list[bytes]]] = deque()
        self._records: list[bytes] = []
        self._manner = -1
        # Frames that were sent on this connection: (frame number, last sequence number in it).
        self._under_way: deque[tuple[int, int]] = deque()
        self._batch_bytes_max = 0
        self._sent_last = 0
        self._sent_before = 0
        """Every publication up to this one may have been sent on a former connection."""

    @property
    def overhead(self) -> int:
        """Bytes of a frame with one publication that are not its record."""
        return self._overhead

    @property
    def kept_bytes(self) -> int:
        """Everything that is kept in memory for the broker."""
        return self.pending_bytes + self._channel.backlog_bytes

    def add(self, record: bytes, manner: int) -> int:
        """Put a publication in line; returns its sequence number."""
        sequence = self.last_sequence = self.last_sequence + 1
        if manner != self._manner:
            self._manner = manner
            self._records = []
            self._runs.append((sequence, manner, self._records))
        self._records.append(record)
        self.pending_bytes += len(record) + ROW_BYTES
        if manner & ACKNOWLEDGED:
            self.last_acknowledged_sequence = sequence
        return sequence

    def seal(self, frame_bytes_max: int) -> list[int]:
        """Make batches of everything that has collected.

        Returns the publications that exceed this broker's largest frame: they were made before the broker
        was known, and are forgotten.
        """
        too_large: list[int] = []
        while self._runs:
            first, manner, records = self._runs.popleft()
            receipt = self.receipt_wanted and not self._runs
            too_large += self._cut(first, manner, records, receipt, frame_bytes_max)
        self._records = []
        self._manner = -1
        self.pending_bytes = 0
        self.receipt_wanted = False
        if too_large:
            self._conclude()
        return too_large

    def _cut(
        self, first: int, manner: int, records: list[bytes], receipt: bool, frame_bytes_max: int
    ) -> list[int]:
        """Offer records in batches that the broker takes; returns those that it can never take."""
        too_large: list[int] = []
        for start, end in _portions(records, min(frame_bytes_max, BATCH_BYTES) - self._overhead):
            if end == start + 1 and len(records[start]) + self._overhead > frame_bytes_max:
                too_large.append(first + start)
            else:
                self._offer(first + start, manner, records[start:end], receipt and end == len(records))
        return too_large

    def _offer(self, first: int, manner: int, records: list[bytes], receipt: bool) -> None:
        batch = PublicationBatch.of(
            self.publisher,
            range(first, first + len(records)),
            records,
            acknowledged=bool(manner & ACKNOWLEDGED),
            ordered=bool(manner & ORDERED),
            receipt=receipt,
            again=bool(manner & _AGAIN),
        )
        self._batch_bytes_max = max(self._batch_bytes_max, batch.size)
        self._channel.offer(batch, range(first, first + len(records)) if manner & ACKNOWLEDGED else None)

    def sent(self, frames: Sequence[Frame]) -> None:
        """These were taken from the channel and are being written."""
        for number, body in frames:
            if isinstance(body, PublicationBatch):
                last = body.last
                self._under_way.append((number, last))
                self._sent_last = max(self._sent_last, last)

    def acknowledged(self, acknowledgement: Acknowledgement) -> bool:
        """The broker says how far it has come; whether that moved `received` or `settled`.

        Raises:
            RemoteProtocolError: it claims what cannot be.
        """
        before = (self.received, self.settled)
        for sequences in self._channel.acknowledged(acknowledgement):
            self.settled = max(self.settled, sequences[-1])
        while self._under_way and self._under_way[0][0] <= acknowledgement.received:
            # After a new connection older publications may come by again, so this is a maximum.
            self.received = max(self.received, self._under_way.popleft()[1])
        self._conclude()
        return before != (self.received, self.settled)

    def news_of_discarded(self, discarded: PublishDiscarded) -> list[int]:
        """Which of these publications, taken for repetitions, the broker has not from us.

        What was sent on a former connection comes again because nobody knew whether it had arrived, and now
        that is known. It is so unless the broker knows higher numbers than we have used.
        """
        if discarded.publisher != self.publisher:
            return []
        if discarded.highest > self.last_sequence:
            return discarded.sequences
        return [sequence for sequence in discarded.sequences if sequence > self._sent_before]

    def settled_apart(self, frames: Sequence[int]) -> list[int]:
        """The broker says that single frames are settled, although some before them are not.

        Returns the publications in them, which are safe with everybody.
        """
        apart = [sequence for sequences in self._channel.settled_apart(frames) for sequence in sequences]
        self._conclude()
        return apart

    def restarted(self, publisher: str, frame_bytes_max: int) -> list[int]:
        """A new connection: what it may not have waits in the channel again.

        Returns the publications that this broker can never take, because they exceed its largest frame.
        They are forgotten.
        """
        self._under_way.clear()
        self._sent_before = self._sent_last
        renamed = publisher != self.publisher
        if renamed:
            # The broker has got another idea of who we are.
            self.publisher = publisher
            self._overhead = batch_overhead(publisher)
        elif self._batch_bytes_max <= frame_bytes_max:
            self._channel.refilter(lambda batch: batch.repetition() if self._comes_again(batch) else batch)
            return []
        waiting: list[PublicationBatch] = []
        self._channel.refilter(waiting.append)
        self._batch_bytes_max = 0
        too_large: list[int] = []
        for batch in waiting:
            manner = ACKNOWLEDGED * batch.acknowledged | ORDERED * batch.ordered
            manner |= _AGAIN * self._comes_again(batch)
            first = int(batch.sequences[0])
            too_large += self._cut(first, manner, batch.records(), batch.receipt, frame_bytes_max)
        self._conclude()
        return too_large

    def _comes_again(self, batch: PublicationBatch) -> bool:
        """Whether a receipt for it has to cover what became of an earlier copy, perhaps at another broker."""
        return batch.acknowledged and batch.first <= self._sent_before

    def _conclude(self) -> None:
        """Where nothing is kept any more, everything is done: also what was forgotten at the very end."""
        if self.kept_bytes == 0:
            self.received = self.last_sequence
            self.settled = self.last_acknowledged_sequence


def _portions(records: Sequence[bytes], bytes_max: int) -> list[tuple[int, int]]:
    """Cut records into portions of at most so many bytes; one that is larger stays alone."""
    portions = []
    start = used = 0
    for row, record in enumerate(records):
        size = len(record) + ROW_BYTES
        if used + size > bytes_max and row > start:
            portions.append((start, row))
            start, used = row, 0
        used += size
    portions.append((start, len(records)))
    return portions
