"""How do rows of a log reach those who read it?

Only rows that are safely stored are sent, and of those only what the owner may have at present: rows beyond
its grant are passed over, so offsets may have gaps. A reader that keeps up is served from memory, one that
lags from the store.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from braid.broker.durable_log import ROW_BYTES, size_of
from braid.broker.settling import Pending, WaitingFor
from braid.protocol.effects import ReadLog
from braid.protocol.messages import StoredPublications

if TYPE_CHECKING:
    from collections.abc import Callable

    from braid.broker.durable_log import DurableLog
    from braid.broker.parties import Client
    from braid.broker.turn import Turn
    from braid.protocol.inputs import LogRead
    from braid.protocol.log import LogRow
    from braid.protocol.packed_rows import PackedRows

__all__ = ["LogReading"]

# What a message with stored publications takes beside its rows and the name of the log, and each row beside
# its record and the name of its publisher.
STORED_BYTES = 512
STORED_ROW_BYTES = 40
# A row among columns; its publisher may be one of many.
PACKED_ROW_BYTES = 24


class LogReading:
    """Feeds the readers of logs, and reads for replays."""

    def __init__(self, turn: Turn) -> None:
        self._settings = turn.settings
        self._turn = turn
        self._reads: dict[int, Callable[[LogRead], None]] = {}
        self._unread: dict[str, DurableLog] = {}
        """Logs that could not be read when they were last asked for, by key."""
        self._tokens = 0
        turn.settlement.resolve(WaitingFor.ROWS, self._taken)

    # The reader of a log.

    def feed(self, log: DurableLog) -> None:
        """Send the reader what it has room for."""
        client = log.reader
        window = self._settings.durable_window_bytes
        while client is not None and not log.reading and log.unsettled_bytes < window:
            if log.next_to_send >= log.safe_offset:
                return
            if not log.tail or log.tail[0][0] > log.next_to_send:
                log.reading = True
                first, last = log.next_to_send, log.safe_offset - 1
                self.read(log.key, first, last, partial(self._was_read, log, first, last))
                return
            start = log.next_to_send - log.tail[0][0]
            rows: list[tuple[int, LogRow]] = []
            size = 0
            while start + len(rows) < len(log.tail) and size + log.unsettled_bytes < window:
                row = log.tail[start + len(rows)]
                cost = size_of(row[1])
                if rows and size + cost > window:
                    break  # a large row goes alone: the reader accepts only frames of a certain size
                rows.append(row)
                size += cost
            self._send(log, client, rows)

    def _was_read(self, log: DurableLog, first: int, last: int, answer: LogRead) -> None:
        log.reading = False
        if answer.error is not None:
            if self._unread.get(log.key) is not log:  # once for all attempts
                self._turn.note("error", "a log could not be read", log=log.name, reason=answer.error)
            self._unread[log.key] = log
            return
        self._unread.pop(log.key, None)
        if log.reader is not None:
            # The reader may be another one than when the rows were asked for, or the same that has come
            # back. Where it goes on further down these are not its next rows, and those are asked for.
            if log.next_to_send >= first:
                rows = [row for row in answer.rows if row[0] >= log.next_to_send]
                if rows:
                    self._send(log, log.reader, rows)
                elif not answer.rows:  # they have been dropped meanwhile: the log goes on where it can
                    log.next_to_send = max(log.next_to_send, last + 1)
            self.feed(log)

    def review(self) -> None:
        """From time to time: try again to read what could not be read."""
        for log in list(self._unread.values()):
            if log.reader is None:
                del self._unread[log.key]  # the next reader will ask
            else:
                self.feed(log)

    def _send(self, log: DurableLog, client: Client, rows: list[tuple[int, LogRow]]) -> None:
        log.next_to_send = rows[-1][0] + 1
        permitted = log.permitted_rows(rows)
        if not permitted:
            return
        request = log.reader_request
        for epoch, part in self.parts(log, client, permitted):
            size = sum([len(row.record) + ROW_BYTES for _, row in part])
            log.unsettled_bytes += size
            self._turn.counters.delivered += len(part)
            stored = self.stored(log, part, epoch, reader=request)
            self._turn.offer(client, stored, Pending(WaitingFor.ROWS, client, (log, request, size)))

    def _taken(self, taken: Pending) -> None:
        log, request, size = taken.key
        if log.reader is taken.party and log.reader_request == request:
            log.unsettled_bytes -= size
            self.feed(log)

    # What a message can carry.

    @staticmethod
    def stored_packed(
        log: DurableLog, client: Client, first: int, packed: PackedRows, replay: int
    ) -> StoredPublications | None:
        """The message that carries columns; None where it has to be rows.

        That is where some are not for the owner, where epochs meet, and where a frame has too little room.
        """
        parts = log.epochs.split([first, first + packed.count - 1])
        room = client.channel.frame_bytes_max - STORED_BYTES - len(log.name.encode())
        size = len(packed.records) + packed.count * PACKED_ROW_BYTES
        size += sum([len(publisher.encode()) for publisher in packed.publishers])
        if log.permitted is not log.filter or len(parts) > 1 or size > room:
            return None
        return StoredPublications(log.name, first, [], replay, epoch=parts[0][0], packed=packed)

    def parts(
        self, log: DurableLog, client: Client, rows: list[tuple[int, LogRow]]
    ) -> list[tuple[str, list[tuple[int, LogRow]]]]:
        """Rows in parts of one epoch that the client can read, without those that it never can."""
        bytes_max = client.channel.frame_bytes_max - STORED_BYTES - len(log.name.encode())
        latest = log.epochs.entries[-1] if log.epochs.entries else ("", 0)
        if rows and rows[0][0] >= latest[1]:
            # No character takes more than four bytes.
            cost = sum([len(row.record) + 4 * len(row.publisher) + STORED_ROW_BYTES for _, row in rows])
            if cost <= bytes_max:
                return [(latest[0], rows)]  # as it is for a reader that keeps up
        parts: list[tuple[str, list[tuple[int, LogRow]]]] = []
        for epoch, part in _by_epoch(log, rows):
            left = 0
            for offset, row in part:
                cost = len(row.record) + len(row.publisher.encode()) + STORED_ROW_BYTES
                if cost > bytes_max:
                    self._turn.leave_out(client, row.publisher, [row.sequence], len(row.record))
                    continue
                if cost > left or parts[-1][0] != epoch:
                    parts.append((epoch, []))
                    left = bytes_max
                parts[-1][1].append((offset, row))
                left -= cost
        return parts

    @staticmethod
    def stored(
        log: DurableLog, rows: list[tuple[int, LogRow]], epoch: str, *, replay: int = 0, reader: int = 0
    ) -> StoredPublications:
        """The message that carries these rows."""
        content = [(row.publisher, row.sequence, row.record) for _, row in rows]
        first, last = rows[0][0], rows[-1][0]
        offsets = [] if last - first + 1 == len(rows) else [offset for offset, _ in rows]
        return StoredPublications(log.name, first, content, replay, reader, offsets, epoch)

    # The store.

    def read(
        self,
        key: str,
        first: int,
        last: int,
        then: Callable[[LogRead], None],
        share: int = 1,
        *,
        packed: bool = False,
    ) -> None:
        """Ask the store for rows; `then` gets what fits into a window, or into a share of one."""
        self._tokens += 1
        self._reads[self._tokens] = then
        bytes_max = max(1, self._settings.durable_window_bytes // share)
        self._turn.effect(ReadLog(self._tokens, key, first, last, bytes_max, packed))

    def was_read(self, answer: LogRead) -> None:
        """Rows that were asked for are here."""
        then = self._reads.pop(answer.token, None)
        if then is not None:
            then(answer)


def _by_epoch(log: DurableLog, rows: list[tuple[int, LogRow]]) -> list[tuple[str, list[tuple[int, LogRow]]]]:
    """Rows in parts of one epoch each."""
    if not rows:
        return []
    parts = log.epochs.split([offset for offset, _ in rows])
    return [(epoch, rows[first:end]) for epoch, first, end in parts]
