"""What waits for a peer, and how far has it come?

A channel is one side of a session between two parties: a link between brokers, or a client's connection.
It outlives connections. Every sequenced frame has a number; the peer acknowledges cumulatively what has
arrived (*received*) and what needs nobody's care any more (*settled*), and grants *credit* in bytes, class by
class (`incoming.py`). What was sent and is not acknowledged is sent again when a broken connection is
resumed; what has no credit waits.

Messages overtake waiting publications, so that a slow consumer never holds up routing; except those that
take back what the publications need on their way, which stay in line. Publications of one publisher never
overtake each other within a class; a class that has no credit is overtaken by the others.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING, TypeVar

from braid.errors import RemoteProtocolError
from braid.protocol.batch import PublicationBatch
from braid.protocol.codec import Body, Frame
from braid.protocol.fitting import fitted
from braid.protocol.incoming import DELIVERY_CLASSES, class_window
from braid.protocol.outgoing import Outgoing, SendingClass
from braid.protocol.waiting import Waiting

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from braid.protocol.messages import Acknowledgement

__all__ = ["Channel", "ChannelSettings"]

Care = TypeVar("Care")

# Until the peer has said how large frames may be.
_ANY_SIZE = 1 << 62
# Makes a frame in half the time that `Frame` itself takes.
_quickly = tuple.__new__


@dataclass(frozen=True, kw_only=True)
class ChannelSettings:
    """How much may be under way on one channel."""

    window_bytes: int = 4 * 1024 * 1024
    """Credit kept open for the peer, for each class of publications. Higher: more throughput over long
    distances, more memory here."""
    resend_bytes_max: int = 16 * 1024 * 1024
    """Sent and not acknowledged at most. Higher: longer outages without a pause, more memory here."""
    acknowledge_after_frames: int = 64
    """Frames that arrive before they are acknowledged at once. Lower: more small messages back."""
    acknowledge_delay_us: int = 20_000
    """How long an acknowledgement may wait for company. Higher: fewer of them, later receipts."""


class Channel(Waiting[Care]):
    """One side of a session. `Care` is the caller's type for those who wait for settlement.

    Args:
        settings: how much may be under way.
        classes: the peer may send publications of the classes below this; each may fill a window.
    """

    __slots__ = (
        "_cares",
        "_connected",
        "_frame_bytes_max",
        "_holding",
        "_peer_received",
        "_peer_settled",
        "_resend_bytes_max",
        "_sent",
        "_unacknowledged",
        "_unsettled",
        "_writable",
        "choosing",
        "divide_care",
        "left_out",
        "passing",
        "telling",
        "told_to_wait",
        "unacknowledged_bytes",
        "unacknowledged_messages",
        "unsettled_bytes",
    )

    def __init__(self, settings: ChannelSettings, classes: int = DELIVERY_CLASSES) -> None:
        super().__init__(settings, classes)
        self._connected = False
        self._writable = True
        # Sending.
        self._resend_bytes_max = settings.resend_bytes_max
        self._unacknowledged: deque[Body] = deque()
        """What was sent last, up to the frame with the number `_sent`."""
        self._unsettled: OrderedDict[int, Body] = OrderedDict()
        """What has arrived and somebody waits for, by its number, in order."""
        self._cares: dict[int, Care] = {}
        """By the number of a frame that was sent, who wants to hear that it is settled."""
        self._sent = 0
        self._peer_received = 0
        self._peer_settled = 0
        self.unacknowledged_bytes = 0
        """Publications that were sent and are not known to have arrived."""
        self.unacknowledged_messages = 0
        """Messages that were sent and are not known to have arrived."""
        self.unsettled_bytes = 0
        """Arrived, and kept until everybody downstream has them."""
        self._frame_bytes_max = _ANY_SIZE
        self.divide_care: Callable[[Care | None, int], Sequence[Care | None]] = _last_cares
        """Set by the owner: makes the care for a batch that for its parts, all of which must settle."""
        self.left_out: list[tuple[PublicationBatch, Care | None]] = []
        """Publications that the peer can never read, for the owner to report; and who waited for them, unless
        other parts of their batch were sent."""
        self.told_to_wait = False
        """Whether the peer says that it keeps credit back on purpose."""
        self.telling = False
        """Set by the owner while it means to acknowledge in a while."""
        self._holding = False
        self.passing = False
        """Set by the owner if, while holding, those that nobody cares for may be sent all the same."""
        self.choosing = False
        """Set by the owner if only those of them may that were chosen (`choose`)."""

    # Whether anything can be sent.

    @property
    def connected(self) -> bool:
        """Whether there is a connection to send over."""
        return self._connected

    @connected.setter
    def connected(self, connected: bool) -> None:
        self._connected = connected
        self._at_once_bytes = 0

    @property
    def writable(self) -> bool:
        """Set by the owner: whether the connection takes what is written."""
        return self._writable

    @writable.setter
    def writable(self, writable: bool) -> None:
        self._writable = writable
        self._at_once_bytes = 0

    @property
    def holding(self) -> bool:
        """Set by the owner while publications must not be sent yet."""
        return self._holding

    @holding.setter
    def holding(self, holding: bool) -> None:
        self._holding = holding
        self._at_once_bytes = 0

    @property
    def frame_bytes_max(self) -> int:
        """The largest frame that the peer reads, set by the owner. Larger batches are divided."""
        return self._frame_bytes_max

    @frame_bytes_max.setter
    def frame_bytes_max(self, bytes_max: int) -> None:
        self._frame_bytes_max = bytes_max
        self._at_once_bytes = 0

    # Sending.

    def take(self) -> list[Frame]:
        """What can be written now, in order; it counts as sent."""
        if not (self._connected and self.in_line):
            return []
        frames: list[Frame] = []
        if self._messages:
            frames += map(self._send, self._messages)
            self._messages.clear()
        if (self.waiting_bytes or self._in_line) and self._writable and (self.passing or not self._holding):
            self._take_in_line(frames)
        return frames

    def _take_in_line(self, frames: list[Frame]) -> None:
        """Take publications, and the messages between them, in the order in which they were offered.

        A class that has no credit is passed over; but no message overtakes what waits in it.
        """
        open_classes = [each for each in self._sending.values() if each.waiting]
        blocked_at = self._order + 1
        resend_bytes_max = self._resend_bytes_max
        in_line = self._in_line
        # What follows a publication that is held must not overtake it if the publisher is the same.
        held_publishers: set[str] = set()
        while open_classes:
            sending = open_classes[0] if len(open_classes) == 1 else min(open_classes, key=_first_order)
            waiting = sending.waiting
            outgoing = waiting[0]
            size = outgoing.size
            while in_line and in_line[0].order < min(outgoing.order, blocked_at):
                frames.append(self._send(in_line.popleft()))
            if size > self._frame_bytes_max:
                self._divide_first(sending)
            elif self._holding and self._is_held(outgoing, held_publishers):
                sending.held.append(waiting.popleft())
            # A frame larger than all the credit there can ever be goes alone.
            elif size > sending.room and sending.room < sending.window:
                blocked_at = min(blocked_at, outgoing.order)
                open_classes.remove(sending)
                continue
            elif self.unacknowledged_bytes + size > resend_bytes_max and self._unacknowledged:
                blocked_at = min(blocked_at, outgoing.order)
                break
            else:
                waiting.popleft()
                frames.append(self._send(outgoing, sending))
            if not waiting:
                open_classes.remove(sending)
        while in_line and in_line[0].order < blocked_at:
            frames.append(self._send(in_line.popleft()))
        if self._holding:
            for sending in self._sending.values():
                sending.waiting.extendleft(reversed(sending.held))
                sending.held.clear()

    def _divide_first(self, sending: SendingClass[Care]) -> None:
        """Put what the peer can read of the first batch in its place."""
        outgoing = sending.waiting.popleft()
        body = outgoing.body
        if not isinstance(body, PublicationBatch):
            raise TypeError(f"{body!r} cannot be divided")
        parts, left_out = fitted(body, self._frame_bytes_max)
        cares = self.divide_care(outgoing.care, len(parts))
        divided = [
            Outgoing(part, part.size, care, outgoing.order) for part, care in zip(parts, cares, strict=True)
        ]
        for each in divided:
            each.ready = outgoing.ready
        sending.waiting.extendleft(reversed(divided))
        grown = sum(part.size for part in parts) - outgoing.size
        sending.waiting_bytes += grown
        self.waiting_bytes += grown
        if left_out is not None:
            self.left_out.append((left_out, None if parts else outgoing.care))

    def _is_held(self, outgoing: Outgoing[Care], held_publishers: set[str]) -> bool:
        body = outgoing.body
        if not isinstance(body, PublicationBatch):
            return False
        if outgoing.care is not None:
            held_publishers.add(body.publisher)
        return body.publisher in held_publishers or (self.choosing and not outgoing.ready)

    def send(self, batch: PublicationBatch, care: Care | None) -> Frame | None:
        """Send publications past an empty line; None if something holds them up, so that they must be
        offered."""
        size = batch.size
        if size > self._at_once_bytes and size > self._find_at_once_bytes():
            return None
        if batch.target:
            found = self._sending.get(batch.target)
            if found is None:
                return None
            sending = found
        else:
            sending = self._plain_sending
        room = sending.room - size
        under_way = self.unacknowledged_bytes + size
        if room < 0 or under_way > self._resend_bytes_max:
            return None
        sending.room = room
        self.unacknowledged_bytes = under_way
        self._sent = sequence = self._sent + 1
        self._unacknowledged.append(batch)
        if care is not None:
            self._cares[sequence] = care
        frame: Frame = _quickly(Frame, (sequence, batch))
        return frame

    def _find_at_once_bytes(self) -> int:
        """How large something may be that is sent at once: nothing must be before it in any line."""
        ready = self._connected and self._writable and not self._holding
        self._at_once_bytes = self._frame_bytes_max if ready and not self.in_line else 0
        return self._at_once_bytes

    def _send(self, outgoing: Outgoing[Care], sending: SendingClass[Care] | None = None) -> Frame:
        self._sent = sequence = self._sent + 1
        if sending is None:
            self.unacknowledged_messages += 1
        else:
            size = outgoing.size
            sending.room -= size
            sending.waiting_bytes -= size
            self.waiting_bytes -= size
            self.unacknowledged_bytes += size
        if outgoing.care is not None:
            self._cares[sequence] = outgoing.care
        self._unacknowledged.append(outgoing.body)
        frame: Frame = _quickly(Frame, (sequence, outgoing.body))
        return frame

    def acknowledged(self, acknowledgement: Acknowledgement) -> list[Care]:
        """The peer says how far it has come; returns who waited for what is settled now.

        Raises:
            RemoteProtocolError: it claims what cannot be.
        """
        received, settled, credit = acknowledgement.received, acknowledgement.settled, acknowledgement.credit
        if not self._peer_received <= received <= self._sent or not self._peer_settled <= settled <= received:
            raise RemoteProtocolError(
                f"an acknowledgement of {received} received and {settled} settled, "
                f"after {self._peer_received} and {self._peer_settled} of {self._sent} sent"
            )
        known = self._sending
        first = known[0]
        if credit < first.credit:
            raise RemoteProtocolError(f"a credit of {credit} bytes after one of {first.credit}")
        if acknowledgement.credits:
            # A class in which nothing was sent has all the credit of its beginning, whatever is said of it.
            granted = [(known[number], each) for number, each in acknowledgement.credits if number in known]
            for sending, each in granted:
                if each < sending.credit:
                    raise RemoteProtocolError(f"a credit of {each} bytes after one of {sending.credit}")
            for sending, each in granted:
                sending.grant(each)
        first.room += credit - first.credit  # as `grant` does it, without the call
        first.credit = credit
        self._peer_received, self._peer_settled = received, settled
        self.told_to_wait = acknowledgement.held
        return self._release()

    def settled_apart(self, frames: Iterable[int]) -> list[Care]:
        """The peer says that single frames are settled; returns who waited for them.

        Frames that are unknown, or settled already, mean nothing.
        """
        freed: list[Care] = []
        for sequence in sorted(set(frames)):
            care = self._cares.pop(sequence, None)
            if care is not None:
                freed.append(care)
                body = self._unsettled.pop(sequence, None)
                if isinstance(body, PublicationBatch):
                    self._no_longer_unsettled(body)
        return freed

    def _release(self) -> list[Care]:
        """Let go of what needs no care any more."""
        cares = self._cares
        line = self._unacknowledged
        received = self._peer_received
        under_way = self._sent - received
        if 2 * under_way < len(line) and not (cares or self._unsettled or self.unacknowledged_messages):
            # All that is under way are publications, and most have arrived: the rest is less to look at.
            rest = [line.pop() for _ in range(under_way)]
            line.clear()
            line.extend(reversed(rest))
            for sending in self._sending.values():
                sending.arrived_bytes = sending.credit - sending.room
            self.unacknowledged_bytes = 0
            for body in rest:
                if isinstance(body, PublicationBatch):
                    self._sending[body.target].arrived_bytes -= body.size
                    self.unacknowledged_bytes += body.size
            return []
        arrived_bytes = 0
        for sequence in range(self._sent - len(line) + 1, received + 1):
            body = line.popleft()
            cared_for = cares and sequence in cares
            if cared_for:
                self._unsettled[sequence] = body
            if isinstance(body, PublicationBatch):
                size = body.size
                arrived_bytes += size
                sending = self._sending[body.target]
                sending.arrived_bytes += size
                if cared_for:
                    sending.unsettled_bytes += size
                    self.unsettled_bytes += size
            else:
                self.unacknowledged_messages -= 1
        self.unacknowledged_bytes -= arrived_bytes
        settled: list[Care] = []
        while self._unsettled and next(iter(self._unsettled)) <= self._peer_settled:
            sequence, body = self._unsettled.popitem(last=False)
            if isinstance(body, PublicationBatch):
                self._no_longer_unsettled(body)
            settled.append(cares.pop(sequence))
        return settled

    def _no_longer_unsettled(self, batch: PublicationBatch) -> None:
        self._sending[batch.target].unsettled_bytes -= batch.size
        self.unsettled_bytes -= batch.size

    @property
    def credit(self) -> int:
        """What the peer has granted for class 0 since the session began."""
        return self._sending[0].credit

    @property
    def sent(self) -> int:
        """The number of the last frame that was sent."""
        return self._sent

    @property
    def under_way(self) -> bool:
        """Whether something was sent that is not known to have arrived."""
        return bool(self._unacknowledged)

    @property
    def sent_bytes(self) -> int:
        """Publications that were sent since the session began."""
        return sum([sending.credit - sending.room for sending in self._sending.values()])

    @property
    def moved_bytes(self) -> int:
        """How much has moved since the session began, in all classes (`SendingClass.moved_bytes`)."""
        return sum([sending.moved_bytes for sending in self._sending.values()])

    @property
    def idle(self) -> bool:
        """Nothing waits, and everything that was sent has arrived and is settled."""
        return not (self.in_line or self._unacknowledged or self._unsettled)

    @property
    def cares(self) -> bool:
        """Whether it holds publications that somebody cares for."""
        return any(outgoing.care is not None for outgoing in self._in_order())

    @property
    def backlog_bytes(self) -> int:
        """Publications waiting or kept: what a bound on this channel's memory is about."""
        return self.waiting_bytes + self.unacknowledged_bytes + self.unsettled_bytes

    @property
    def peer_received(self) -> int:
        """The number of the last frame that is known to have arrived."""
        return self._peer_received

    # Taking everything back.

    def kept(self) -> list[tuple[PublicationBatch, Care | None]]:
        """All publications that the peer may not have, or that are not settled, in order. They stay."""
        return [
            (outgoing.body, outgoing.care)
            for outgoing in self._in_order()
            if isinstance(outgoing.body, PublicationBatch)
        ]

    def withdraw(self) -> list[tuple[PublicationBatch, Care | None]]:
        """Take back all publications that the peer may not have, with who waits for them, in order.

        Those that have arrived and are not settled are among them: the peer may lose them.
        """
        taken = self.kept()
        self.abandon()
        return taken

    def abandon(self) -> list[Care]:
        """Forget everything that waits or is kept; returns who waited for it."""
        cares = [outgoing.care for outgoing in self._in_order() if outgoing.care is not None]
        self._forget_sent()
        for sending in self._sending.values():
            sending.clear()
        self.waiting_bytes = 0
        return cares

    def _forget_sent(self) -> None:
        """Forget messages, and what was sent."""
        self._messages.clear()
        self._in_line.clear()
        self._unacknowledged.clear()
        self._unsettled.clear()
        self._cares.clear()
        self.unacknowledged_bytes = self.unsettled_bytes = self.unacknowledged_messages = 0

    def _in_order(self) -> Iterator[Outgoing[Care]]:
        for sequence, body in chain(self._unsettled.items(), self._sent_last()):
            size = body.size if isinstance(body, PublicationBatch) else 0
            yield Outgoing(body, size, self._cares.get(sequence))
        yield from self._waiting()

    def _sent_last(self) -> Iterator[Frame]:
        """What was sent and is not known to have arrived."""
        first = self._sent - len(self._unacknowledged) + 1
        return (Frame(sequence, body) for sequence, body in enumerate(self._unacknowledged, first))

    # Connections and sessions.

    def disconnect(self) -> None:
        """The connection has gone; everything waits."""
        self.connected = False

    def resume(self, peer_received: int) -> list[Frame]:
        """The session goes on over a new connection; returns what has to be sent again.

        Credit stays as it was until the peer's next acknowledgement.

        Raises:
            RemoteProtocolError: the peer claims to have what was never sent.
        """
        if not 0 <= peer_received <= self._sent:
            raise RemoteProtocolError(
                f"a session is resumed after frame {peer_received}, where {self._sent} were sent"
            )
        # It may have acknowledged more on a former connection since it said so.
        self._peer_received = max(peer_received, self._peer_received)
        self._release()
        self.connected = self.writable = True
        self._tell_again()
        return list(self._sent_last())

    def restart(self, credit: int) -> None:
        """A new session: the peer knows nothing. All publications it may not have wait again, in order.

        Messages are forgotten: whoever starts a session says again what must be known.
        """
        again = [outgoing for outgoing in self._in_order() if isinstance(outgoing.body, PublicationBatch)]
        self._forget_sent()
        self._clear_waiting()
        self._sent = self._peer_received = self._peer_settled = 0
        self.told_to_wait = False
        self._peer_window = credit
        for number, sending in self._sending.items():
            sending.restart(class_window(number, credit))
        for outgoing in again:
            self.offer(outgoing.body, outgoing.care)
        self._restart_receiving()
        self.connected = self.writable = True


def _last_cares(care: Care | None, count: int) -> list[Care | None]:
    """Whoever waits hears of the last part: enough where parts settle in order."""
    return [care if part == count else None for part in range(1, count + 1)]


def _first_order(sending: SendingClass[Care]) -> int:
    return sending.waiting[0].order
