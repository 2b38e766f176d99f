"""How much do the logs of one principal keep together?

What they keep is counted in pieces of a log, the oldest first. Beyond what a principal may store, the oldest
pieces of its largest log go, acknowledged or not, until a tenth is free again. Rows that a reader pinned, and
unacknowledged ones of a log with `when_full="block"`, stay: then those who publish here wait. The store knows
the bytes of a log from before a restart only as a whole; they are taken to be spread evenly.
"""

from __future__ import annotations

import heapq
from collections import deque
from typing import TYPE_CHECKING

from braid.broker.bottleneck import Bottleneck
from braid.broker.parties import Client
from braid.protocol.log import DropRows

if TYPE_CHECKING:
    from collections.abc import Callable

    from braid.broker.access import Limits
    from braid.broker.durable_log import DurableLog
    from braid.broker.parties import Party
    from braid.broker.store_work import StoreWork
    from braid.broker.turn import Turn

__all__ = ["StoredRows"]

# What a principal may store is counted in so many pieces, more or less.
PIECES = 1024
# A log from before a restart is taken to consist of so many.
PIECES_RESTORED = 64
# Beyond its limit, a principal is brought down to this share of it.
RELIEF = 0.9
# Logs that hold publishers back instead of losing rows may take so many times that limit.
KEPT_TIMES_MAX = 2


class _Piece:
    """Rows of a log, and their bytes."""

    __slots__ = ("bytes", "end", "first")

    def __init__(self, first: int, end: int, bytes: int) -> None:
        self.first = first
        self.end = end
        self.bytes = bytes


class _Pieces:
    """What one log keeps."""

    __slots__ = ("bytes", "log", "pieces", "rows")

    def __init__(self, log: DurableLog) -> None:
        self.log = log
        self.pieces: deque[_Piece] = deque()
        self.rows = 0
        self.bytes = 0

    def add(self, piece: _Piece) -> None:
        self.pieces.append(piece)
        self.rows += piece.end - piece.first
        self.bytes += piece.bytes

    def drop(self, before: int) -> tuple[int, int]:
        """Rows below an offset have gone; how many, and their bytes."""
        rows = size = 0
        while self.pieces and self.pieces[0].first < before:
            piece = self.pieces[0]
            length = piece.end - piece.first
            gone = min(before, piece.end) - piece.first
            part = piece.bytes if gone == length else piece.bytes * gone // length
            if gone == length:
                self.pieces.popleft()
            else:
                piece.first, piece.bytes = before, piece.bytes - part
            rows, size = rows + gone, size + part
        self.rows -= rows
        self.bytes -= size
        return rows, size


class _Share:
    """What all logs of one owner keep."""

    __slots__ = ("bottleneck", "bytes", "bytes_max", "kept", "logs", "rows", "rows_max")

    def __init__(self, owner: str, limits: Limits) -> None:
        self.bottleneck = Bottleneck(f"what {owner!r} stores")
        self.kept = False
        """Whether rows that would go have to stay."""
        self.logs: dict[str, _Pieces] = {}
        self.rows = 0
        self.bytes = 0
        self.allow(limits)

    def allow(self, limits: Limits) -> None:
        """Its owner may keep so much."""
        self.bytes_max = limits.stored_bytes_max
        self.rows_max = limits.stored_rows_max

    @property
    def exceeded(self) -> bool:
        """It is more than its owner may keep."""
        return self.bytes > self.bytes_max or self.rows > self.rows_max


class StoredRows:
    """Keeps principals within what they may store."""

    def __init__(self, turn: Turn, work: StoreWork, limits_of: Callable[[str], Limits]) -> None:
        self._turn = turn
        self._work = work
        self._limits_of = limits_of
        self._shares: dict[str, _Share] = {}
        self._owner_of: dict[str, str] = {}

    def created(self, log: DurableLog) -> None:
        """A log that is empty."""
        share = self._shares.get(log.owner)
        if share is None:
            share = self._shares[log.owner] = _Share(log.owner, self._limits_of(log.owner))
        share.logs[log.key] = _Pieces(log)
        self._owner_of[log.key] = log.owner

    def restored(self, log: DurableLog, bytes: int) -> None:
        """A log from before a restart."""
        self.created(log)
        share = self._shares[log.owner]
        pieces = share.logs[log.key]
        rows = log.next_offset - log.first_offset
        count = min(PIECES_RESTORED, rows)
        for number in range(count):
            first, end = (log.first_offset + rows * place // count for place in (number, number + 1))
            part = bytes * (number + 1) // count - bytes * number // count
            pieces.add(_Piece(first, end, part))
        share.rows += pieces.rows
        share.bytes += pieces.bytes

    def dropped(self, log: DurableLog) -> None:
        """A log has gone."""
        share = self._shares[log.owner]
        pieces = share.logs.pop(log.key)
        del self._owner_of[log.key]
        share.rows -= pieces.rows
        share.bytes -= pieces.bytes
        self._open(share)

    def limits_changed(self) -> None:
        """Principals may keep more or less than before."""
        for owner, share in self._shares.items():
            share.allow(self._limits_of(owner))
            if share.exceeded:
                self._relieve(owner, share)
            self._open(share)

    def bytes_of(self, log: DurableLog) -> int:
        """The records that a log keeps."""
        return self._shares[log.owner].logs[log.key].bytes

    def stores(self, owner: str, source: Party) -> None:
        """A source's publications went to a log: it waits while the owner may keep no more.

        Only clients do. A link carries what others publish for others, too.
        """
        share = self._shares[owner]
        if share.exceeded and isinstance(source, Client):
            share.bottleneck.hold_up(source)

    def review(self, owner: str) -> None:
        """Rows of an owner may go that had to stay: it may have room again."""
        share = self._shares[owner]
        if share.exceeded and share.kept:
            self._relieve(owner, share)
        self._open(share)

    def _open(self, share: _Share) -> None:
        if share.bottleneck.held_up and not share.exceeded:
            self._turn.open(share.bottleneck)

    def removed(self, key: str, first_offset: int) -> None:
        """The store has removed the rows of a log before an offset."""
        owner = self._owner_of.get(key)
        if owner is not None:
            self._gone(self._shares[owner], self._shares[owner].logs[key], first_offset)

    def _gone(self, share: _Share, pieces: _Pieces, before: int) -> int:
        rows, size = pieces.drop(before)
        share.rows -= rows
        share.bytes -= size
        pieces.log.first_offset = max(pieces.log.first_offset, before)
        self._open(share)
        return rows

    def appended(self, log: DurableLog, rows: int, bytes: int) -> None:
        """So many rows at the log's end are on their way to the store; their owner may have too many now."""
        share = self._shares[log.owner]
        pieces = share.logs[log.key]
        last = pieces.pieces[-1] if pieces.pieces else None
        if (
            last is not None
            and last.bytes + bytes <= share.bytes_max // PIECES
            and log.next_offset - last.first <= share.rows_max // PIECES
        ):
            last.end = log.next_offset
            last.bytes += bytes
            pieces.rows += rows
            pieces.bytes += bytes
        else:
            pieces.add(_Piece(log.next_offset - rows, log.next_offset, bytes))
        share.rows += rows
        share.bytes += bytes
        if share.exceeded:
            self._relieve(log.owner, share)

    def _relieve(self, owner: str, share: _Share) -> None:
        """Have the oldest rows of the largest logs removed, as far as they may go.

        What has to stay may grow to twice what its owner may keep: what others publish far away cannot be
        held up here. Beyond that it goes, too.
        """
        share.kept = False
        beyond = (
            share.bytes > KEPT_TIMES_MAX * share.bytes_max or share.rows > KEPT_TIMES_MAX * share.rows_max
        )
        by_rows = share.rows > share.rows_max
        largest = [(-(each.rows if by_rows else each.bytes), key) for key, each in share.logs.items()]
        heapq.heapify(largest)
        unread = 0
        cut: dict[str, int] = {}
        while share.bytes > share.bytes_max * RELIEF or share.rows > share.rows_max * RELIEF:
            pieces = share.logs[largest[0][1]]
            if not pieces.pieces:
                heapq.heappop(largest)
                if not largest:
                    break
                continue
            before = pieces.pieces[0].end
            kept_from = None if beyond else pieces.log.kept_from(self._turn.now_us)
            if kept_from is not None and before > kept_from:
                share.kept = True
                heapq.heappop(largest)
                if not largest:
                    break
                continue
            unread += max(0, before - max(pieces.pieces[0].first, pieces.log.acknowledged + 1))
            self._gone(share, pieces, before)
            cut[pieces.log.key] = before
            size = pieces.rows if by_rows else pieces.bytes
            heapq.heapreplace(largest, (-size, pieces.log.key))
        if not cut:
            return
        for key, before in cut.items():
            self._work.ask(DropRows(key, before))
        self._turn.counters.dropped += unread
        self._turn.note(
            "warning",
            "rows were dropped: their owner stores too much",
            owner=owner,
            logs=len(cut),
            unread=unread,
        )
