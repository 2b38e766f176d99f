"""What waits to be sent to a peer, class by class?

The lines of a channel: messages, which go first; publications, each class in a line of its own; and messages
that stay in line behind the publications that were offered before them.
"""

from __future__ import annotations

from collections import deque
from heapq import merge
from typing import TYPE_CHECKING, Generic, TypeVar

import numpy as np

from braid.protocol.batch import PublicationBatch
from braid.protocol.incoming import Incoming, class_window
from braid.protocol.outgoing import NOTHING, Outgoing, SendingClass

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from braid.matching.columns import IntArray
    from braid.protocol.channel import ChannelSettings
    from braid.protocol.codec import Body
    from braid.protocol.messages import Message

__all__ = ["Waiting"]

Care = TypeVar("Care")


class Waiting(Incoming, Generic[Care]):
    """A channel as far as its lines are concerned; what has come from the peer is below it."""

    __slots__ = (
        "_at_once_bytes",
        "_in_line",
        "_messages",
        "_order",
        "_peer_window",
        "_plain_sending",
        "_sending",
        "waiting_bytes",
    )

    def __init__(self, settings: ChannelSettings, classes: int) -> None:
        super().__init__(settings, classes)
        self._messages: list[Outgoing[Care]] = []
        self._in_line: deque[Outgoing[Care]] = NOTHING
        """Messages that wait until all publications offered before them have gone."""
        self._plain_sending: SendingClass[Care] = SendingClass(0)
        """Class 0, in which nearly everything between brokers goes."""
        self._sending: dict[int, SendingClass[Care]] = {0: self._plain_sending}
        self._order = 0
        self._at_once_bytes = 0
        """How large something may be to be sent at once, as was last found; 0 after whatever may end that."""
        self._peer_window = 0
        self.waiting_bytes = 0
        """Publications that have not been sent for lack of credit or connection."""

    def _class(self, number: int) -> SendingClass[Care]:
        found = self._sending.get(number)
        if found is None:
            found = self._sending[number] = SendingClass(class_window(number, self._peer_window))
        return found

    def offer(self, body: Body, care: Care | None = None) -> None:
        """Put something in line."""
        self._order += 1
        self._at_once_bytes = 0
        if isinstance(body, PublicationBatch):
            size = body.size
            sending = self._class(body.target) if body.target else self._plain_sending
            sending.wait(Outgoing(body, size, care, self._order))
            self.waiting_bytes += size
        else:
            self._messages.append(Outgoing(body, 0, care))

    def offer_in_line(self, message: Message) -> None:
        """Put a message in line that must not overtake the publications before it."""
        if not self.waiting_bytes and not self._in_line:
            self.offer(message)
            return
        self._order += 1
        self._at_once_bytes = 0
        if not self._in_line:
            self._in_line = deque()
        self._in_line.append(Outgoing(message, 0, None, self._order))

    def retract(self, unwanted: Callable[[Body], bool]) -> bool:
        """Take messages back that wait behind publications; returns whether there were any."""
        before = len(self._in_line)
        if before:
            self._in_line = deque(each for each in self._in_line if not unwanted(each.body))
        return len(self._in_line) < before

    # How much there is.

    @property
    def in_line(self) -> bool:
        """Whether anything waits to be sent."""
        return bool(self.waiting_bytes or self._messages or self._in_line)

    @property
    def waiting_messages(self) -> int:
        """Messages that have not been sent."""
        return len(self._messages) + len(self._in_line)

    def backlog_bytes_of(self, number: int) -> int:
        """The same of one class."""
        sending = self._sending.get(number)
        return sending.backlog_bytes if sending is not None else 0

    def waiting_bytes_of(self, number: int) -> int:
        """Publications of one class that have not been sent."""
        sending = self._sending.get(number)
        return sending.waiting_bytes if sending is not None else 0

    def moved_bytes_of(self, number: int) -> int:
        """How much has moved in one class since the session began (`SendingClass.moved_bytes`)."""
        sending = self._sending.get(number)
        return sending.moved_bytes if sending is not None else 0

    # Changes of what waits.

    def drop_oldest(self, bytes_max: int, target: int) -> int:
        """Drop waiting publications, oldest first, until so many bytes wait; returns how many rows went.

        Only those for one delivery class go, and those that somebody cares for stay.
        """
        sending = self._class(target)
        dropped = 0
        kept: deque[Outgoing[Care]] = deque()
        while sending.waiting and self.waiting_bytes > bytes_max:
            outgoing = sending.waiting.popleft()
            if outgoing.care is not None or not isinstance(outgoing.body, PublicationBatch):
                kept.append(outgoing)
                continue
            sending.waiting_bytes -= outgoing.size
            self.waiting_bytes -= outgoing.size
            dropped += len(outgoing.body)
        kept.extend(sending.waiting)
        sending.waiting = kept
        return dropped

    def refilter(self, keep: Callable[[PublicationBatch], PublicationBatch | None]) -> list[Care]:
        """Replace every waiting batch by what `keep` leaves of it; returns who waited for what went."""
        freed: list[Care] = []
        waiting = list(self._waiting())
        self._clear_waiting()
        for outgoing in waiting:
            body = keep(outgoing.body) if isinstance(outgoing.body, PublicationBatch) else None
            if body is not None:
                self._class(body.target).wait(Outgoing(body, body.size, outgoing.care, outgoing.order))
                self.waiting_bytes += body.size
            elif outgoing.care is not None:
                freed.append(outgoing.care)
        return freed

    def choose(self, wanted: Callable[[Sequence[PublicationBatch]], Sequence[IntArray]], after: int) -> int:
        """Choose, of the publications that nobody cares for, rows that may pass while others are held.

        Args:
            wanted: which rows of each batch.
            after: only what was offered later is looked at.

        Returns:
            what to pass as `after` to look at nothing for a second time.
        """
        for sending in self._sending.values():
            looked_at = {
                each: each.body
                for each in sending.waiting
                if each.order > after
                and each.care is None
                and not each.ready
                and isinstance(each.body, PublicationBatch)
            }
            if not looked_at:
                continue
            chosen = dict(zip(looked_at, wanted(list(looked_at.values())), strict=True))
            self._choose_rows(sending, {each: rows for each, rows in chosen.items() if len(rows)})
        return self._order

    def _choose_rows(self, sending: SendingClass[Care], chosen: Mapping[Outgoing[Care], IntArray]) -> None:
        """Choose these rows of what waits in a class; where there are others in a batch, it is divided."""
        if not chosen:
            return
        waiting: deque[Outgoing[Care]] = deque()
        for each in sending.waiting:
            rows, body = chosen.get(each), each.body
            if rows is not None and isinstance(body, PublicationBatch):
                if len(rows) < body.count:
                    rest = body.select(np.setdiff1d(np.arange(body.count), rows))
                    first = body.select(rows)
                    grown = first.size + rest.size - each.size
                    sending.waiting_bytes += grown
                    self.waiting_bytes += grown
                    each.body, each.size = first, first.size
                    waiting.extend((each, Outgoing(rest, rest.size, None, each.order)))
                else:
                    waiting.append(each)
                each.ready = True
            else:
                waiting.append(each)
        sending.waiting = waiting
        self._at_once_bytes = 0

    def copy_waiting(
        self,
        number: int,
        chosen: Callable[[PublicationBatch], PublicationBatch | None],
        shared: Callable[[Care], tuple[Care, Care]],
    ) -> None:
        """Put in line, beside what waits in a class, what is `chosen` of it for another one.

        Who waits for something of which there are two copies then waits for both: `shared` says how.
        """
        sending = self._class(number)
        for outgoing in sending.waiting:
            copy = chosen(outgoing.body) if isinstance(outgoing.body, PublicationBatch) else None
            if copy is None:
                continue
            care = outgoing.care
            if care is not None:
                outgoing.care, care = shared(care)
            self._class(copy.target).wait(Outgoing(copy, copy.size, care, outgoing.order))
            self.waiting_bytes += copy.size

    def drop_waiting(self, number: int) -> tuple[int, list[Care]]:
        """Drop what waits in a class; returns how many rows, and who waited for them."""
        sending = self._class(number)
        self.waiting_bytes -= sending.waiting_bytes
        return sending.drop_waiting()

    def _waiting(self) -> Iterator[Outgoing[Care]]:
        """All batches that wait, in the order in which they were offered."""
        return merge(*(sending.waiting for sending in self._sending.values()), key=lambda each: each.order)

    def _clear_waiting(self) -> None:
        for sending in self._sending.values():
            sending.waiting = NOTHING
            sending.waiting_bytes = 0
        self.waiting_bytes = 0

    def withdraw_waiting(self, number: int) -> list[tuple[PublicationBatch, Care | None]]:
        """Take back the publications of one class that were not sent, with who waits for them, in order."""
        sending = self._class(number)
        waiting, sending.waiting = sending.waiting, NOTHING
        self.waiting_bytes -= sending.waiting_bytes
        sending.waiting_bytes = 0
        return [(each.body, each.care) for each in waiting if isinstance(each.body, PublicationBatch)]
