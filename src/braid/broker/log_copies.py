"""Logs of this broker whose rows a neighbour keeps, too.

The neighbour that keeps a copy is the log's *keeper*. Rows go to it when they are in the store here, one
piece after the other; they are safe, so that readers get them and publishers hear of it, when both have them.
The keeper is any neighbour that can; another one takes its place when it has been away for too long.
`lost_logs.py` gets rows back.
"""

from __future__ import annotations

from collections import deque
from functools import partial
from typing import TYPE_CHECKING, Any, TypeAlias
from zlib import crc32

from braid.broker.log_pieces import piece_of
from braid.broker.settling import Pending
from braid.broker.store_work import Answer
from braid.errors import RemoteProtocolError, RequestRefusedError
from braid.protocol.copies import CopyBegin, CopyDrop, CopyHead, CopyMark, CopyRows

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from braid.broker.durable_log import DurableLog
    from braid.broker.durable_logs import DurableLogs
    from braid.broker.events import LinkBegun, NeighbourGone
    from braid.broker.lost_logs import LostLogs
    from braid.broker.parties import Link
    from braid.broker.turn import Turn
    from braid.protocol.copies import CopySafe
    from braid.protocol.inputs import LogRead

    Handler: TypeAlias = Callable[[Any, Any], None]

__all__ = ["CopyProgress", "LogCopies"]


# Former keepers of one log that are remembered: it takes as many operations in a row to have more.
FORMER_MAX = 16


class CopyProgress:
    """How far the keeper of a log is."""

    __slots__ = ("begun", "copied", "ever", "former", "keeper", "marked", "since_us", "under_way", "waiting")

    def __init__(self, now_us: int) -> None:
        self.keeper = ""
        """Which neighbour; empty while there is none."""
        self.former: set[str] = set()
        """Keepers that are no neighbours any more, and may have their copies yet."""
        self.since_us = now_us
        """Since when it has been the keeper, or there has been none."""
        self.begun = False
        """Whether it has said how far it is, in this session."""
        self.ever = False
        """Whether any keeper ever has."""
        self.under_way = False
        """Whether a piece is on its way to it, or is being read."""
        self.copied = 0
        """Rows before this are on its disk."""
        self.marked: tuple[int, int, str, bool] = (-1, 0, "", False)
        """What it was told last of what is acknowledged, the first row, and the secret."""
        self.waiting: deque[tuple[int, Pending | Answer]] = deque()
        """Those who wait until it is so far."""


class LogCopies:
    """Has rows copied, and gets them back.

    Args:
        turn: what all handlers share.
        logs: those of this broker.
        neighbours: the links by their names.
        lost: knows what neighbours keep, and gets back what is lost.
    """

    def __init__(self, turn: Turn, logs: DurableLogs, neighbours: Mapping[str, Link], lost: LostLogs) -> None:
        self._turn = turn
        self._logs = logs
        self._neighbours = neighbours
        self._lost = lost

    # What others ask.

    def require_keeper(self, log: DurableLog) -> None:
        """Refuse a log with copies where no neighbour can keep one.

        Raises:
            RequestRefusedError: none can at present.
        """
        if log.copies and self._lost.settled and not self._candidates(log):
            raise RequestRefusedError(
                "copies=1 needs a neighbour that keeps a copy, and no broker with a data directory, and with "
                "frames as large as those of this one, is linked to it at present",
                "copies",
            )

    def made(self, log: DurableLog) -> None:
        """A log is new here, or was kept since an earlier life."""
        if log.copies:
            log.copying = CopyProgress(self._turn.now_us)
            self._choose(log)

    def hold(self, log: DurableLog, waiting: Pending | Answer) -> bool:
        """Whether a party has to wait until all rows of a log are copied; if so, it is kept here."""
        copying = log.copying
        if copying is None or (copying.copied >= log.next_offset and (copying.begun or copying.ever)):
            return False
        if isinstance(waiting, Answer) and copying.ever:
            return False  # the log is known to a keeper, and that is what the answer is about
        copying.waiting.append((log.next_offset, waiting))
        return True

    def stored(self, log: DurableLog) -> None:
        """Further rows are in the store."""
        self._lost.stored(log)
        self._advance(log)
        self._pump(log)

    def ended(self, log: DurableLog) -> None:
        """A log was dropped."""
        copying, log.copying = log.copying, None
        if copying is None:
            return
        for _, waiting in copying.waiting:
            self._resolve(waiting)
        keepers = copying.former | {copying.keeper} - {""}
        if keepers:
            self._lost.drop(log, keepers)

    # Neighbours come and go.

    def link_begun(self, event: LinkBegun) -> None:
        """A session begins: its neighbour says anew what it keeps."""
        for _, copying in self._kept_by(event.link.name):
            copying.begun = copying.under_way = False

    def told(self, link: Link) -> None:
        """A neighbour has said which copies it keeps."""
        for log, copying in self._kept_by(link.name):
            if not self._lost.fetches(log):
                self._begin(log, copying, link)
        self.look()

    def gone(self, event: NeighbourGone) -> None:
        """A neighbour is none any more."""
        for log, copying in self._kept_by(event.link.name):
            if not event.for_good and len(copying.former) < FORMER_MAX:
                copying.former.add(event.link.name)
            self._leave(log, copying)

    def look(self) -> None:
        """Logs that have no keeper get one, if there is any, and no log has two."""
        for log in self._logs.logs.values():
            self._choose(log)
            if log.copying is not None:
                self._drop_others(log, log.copying)

    def back(self, log: DurableLog, keeper: str) -> None:
        """A log has come back from its keeper; or as much of it as could be had, without one."""
        copying = log.copying = log.copying or CopyProgress(self._turn.now_us)
        copying.keeper, copying.ever = keeper, True
        copying.copied = log.next_offset
        link = self._neighbours.get(keeper)
        if link is not None and link.agreed:
            self._begin(log, copying, link)
        self._advance(log)

    def review(self) -> None:
        """From time to time: keepers that stay away lose their place, and hear what is done with."""
        oldest_us = self._turn.now_us - self._turn.settings.recovery_us_max
        for log in self._logs.logs.values():
            copying = log.copying
            if copying is None or self._lost.fetches(log):
                continue
            link = self._neighbours.get(copying.keeper)
            if link is None:
                self._choose(log)
            elif not link.down:
                copying.since_us = self._turn.now_us
                self._pump(log)
                self._tell_mark(log, copying, link)
            elif copying.since_us <= oldest_us and self._candidates(log):
                self._leave(log, copying)

    def needless(self, key: str, id: str, next_offset: int, epoch: str, keeper: str) -> bool | None:
        """Whether all rows of a copy at a broker that was a neighbour are with the keeper there is now.

        None where this broker knows no such log, or no row of that epoch before that offset.
        """
        if self._lost.forget_dropped(id, keeper):
            return True
        log = self._logs.logs.get(key)
        if log is None or log.id != id:
            return None
        if epoch and not log.epochs.has(epoch, next_offset - 1, log.next_offset):
            return None
        copying = log.copying
        if copying is None:
            return True
        safe = copying.begun and copying.copied >= next_offset and not self._lost.fetches(log)
        if not safe or copying.keeper == keeper:
            return False
        copying.former.discard(keeper)
        return True

    def violations(self) -> Iterator[str]:
        """What is wrong with it; nothing if all is well."""
        for log in self._logs.logs.values():
            copying = log.copying
            if copying is None:
                continue
            if copying.keeper and copying.keeper not in self._neighbours:
                yield f"the log {log.key} is kept by {copying.keeper}, which is no neighbour"
            if copying.copied > log.next_offset:
                yield f"the log {log.key} is copied to {copying.copied}, and goes on at {log.next_offset}"
            if copying.begun and copying.waiting and copying.waiting[0][0] <= copying.copied:
                yield f"the log {log.key} is copied to {copying.copied}, and somebody waits for less"

    # Keepers.

    def _kept_by(self, name: str) -> list[tuple[DurableLog, CopyProgress]]:
        return [
            (log, log.copying)
            for log in self._logs.logs.values()
            if log.copying is not None and log.copying.keeper == name
        ]

    def _candidates(self, log: DurableLog) -> list[Link]:
        """The neighbours that can keep a copy of a log, the best one first."""
        found = []
        for link in self._neighbours.values():
            peer = self._lost.peers.get(link.name)
            if peer is None or not peer.able or log.key in peer.refused or link.connection is None:
                continue
            if link.channel.frame_bytes_max < self._turn.settings.frame_bytes_max:
                continue  # not all that comes here could be sent on
            head = peer.heads.get(log.key)
            has = head is not None and head.id == log.id
            found.append((not has, crc32(f"{link.name} {log.key}".encode()), link.name, link))
        return [each[-1] for each in sorted(found, key=lambda each: each[:-1])]

    def _choose(self, log: DurableLog) -> None:
        copying = log.copying
        if copying is None or copying.keeper or not self._lost.settled or self._lost.fetches(log):
            return
        candidates = self._candidates(log)
        if candidates:
            copying.keeper, copying.since_us = candidates[0].name, self._turn.now_us
            self._begin(log, copying, candidates[0])

    def _drop_others(self, log: DurableLog, copying: CopyProgress) -> None:
        """Neighbours that were keepers before need not be."""
        for name, peer in self._lost.peers.items():
            head = peer.heads.get(log.key)
            if copying.keeper and name != copying.keeper and head is not None and head.id == log.id:
                del peer.heads[log.key]
                self._turn.tell(self._neighbours[name], CopyDrop(head.key, head.id))

    def _begin(self, log: DurableLog, copying: CopyProgress, link: Link) -> None:
        copying.begun = False
        copying.under_way = True
        copying.marked = (log.acknowledged, log.first_offset, log.secret, log.subscribed)
        self._turn.tell(link, CopyBegin(_head_of(log)))

    def _leave(self, log: DurableLog, copying: CopyProgress) -> None:
        """Another neighbour is to keep the copy."""
        former, copying.keeper = copying.keeper, ""
        copying.begun = copying.under_way = False
        copying.since_us = self._turn.now_us
        self._choose(log)
        self._turn.note(
            "warning", "the copy of a log goes elsewhere", log=log.key, former=former, keeper=copying.keeper
        )

    def safe(self, link: Link, message: CopySafe) -> None:
        """A keeper says how far it is, or that it keeps no such copy."""
        if message.next < 0 and self._lost.knows(link, message):
            return
        log = self._logs.logs.get(message.key)
        copying = log.copying if log is not None else None
        if log is None or copying is None or log.id != message.id or copying.keeper != link.name:
            return
        if message.next < 0:
            self._lost.peers[link.name].refused.add(message.key)
            self._leave(log, copying)
            return
        if message.next > log.next_offset:
            raise RemoteProtocolError(f"{link.name!r} has rows of {message.key!r} that were never sent to it")
        copying.begun = copying.ever = True
        copying.under_way = False
        copying.copied = message.next
        self._advance(log)
        self._pump(log)

    def _advance(self, log: DurableLog) -> None:
        """Rows that both have are safe."""
        copying = log.copying
        if copying is None:
            log.safe_offset = log.stored_end
            return
        safe = min(log.stored_end, copying.copied)
        waiting = copying.waiting
        while waiting and copying.begun and waiting[0][0] <= copying.copied:
            self._resolve(waiting.popleft()[1])
        if safe > log.safe_offset:
            log.safe_offset = safe
            self._logs.reading.feed(log)

    def _resolve(self, waiting: Pending | Answer) -> None:
        if isinstance(waiting, Pending):
            self._turn.settlement.settle(waiting)
        else:
            self._logs.answer(waiting)

    def _pump(self, log: DurableLog) -> None:
        """Send the keeper the next rows."""
        copying = log.copying
        if copying is None or not copying.begun or copying.under_way or copying.copied >= log.stored_end:
            return
        link = self._neighbours.get(copying.keeper)
        if link is None:
            return  # another one is to be found
        copying.under_way = True
        then = partial(self._was_read, log, copying, link, link.session, copying.copied)
        self._logs.reading.read(log.key, copying.copied, log.stored_end - 1, then, packed=True)

    def _was_read(
        self, log: DurableLog, copying: CopyProgress, link: Link, session: int, first: int, answer: LogRead
    ) -> None:
        if log.copying is not copying or link.session != session:
            return
        if self._neighbours.get(copying.keeper) is not link:
            return  # its link has left, and perhaps it has another one now
        piece = piece_of(answer, first, log.epochs, link)
        if piece is not None:
            self._turn.tell(link, CopyRows(log.key, log.id, first, *piece))
        elif answer.error is not None:
            copying.under_way = False  # the next review tries again
            self._turn.note("error", "a log could not be read for its copy", log=log.key, reason=answer.error)
        else:
            self._begin(log, copying, link)  # they have been dropped meanwhile

    def _tell_mark(self, log: DurableLog, copying: CopyProgress, link: Link) -> None:
        mark = (log.acknowledged, log.first_offset, log.secret, log.subscribed)
        if copying.begun and mark != copying.marked and link.agreed:
            copying.marked = mark
            self._turn.tell(link, CopyMark(log.key, log.id, *mark))


def _head_of(log: DurableLog) -> CopyHead:
    return CopyHead(
        log.key,
        log.id,
        log.owner,
        log.filter.text,
        log.when_full,
        log.secret,
        log.shard,
        log.shards,
        log.copies,
        log.first_offset,
        log.stored_end,
        log.acknowledged,
        list(log.epochs.entries),
        log.subscribed,
    )
