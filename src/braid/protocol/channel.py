"""What waits for a peer, and how far has it come?

A channel is one side of a session between two parties: a link between brokers, or a client's connection.
It outlives connections. Every sequenced frame has a number; the peer acknowledges cumulatively what has
arrived (*received*) and what needs nobody's care any more (*settled*), and grants *credit* in bytes. What was
sent and is not acknowledged is sent again when a broken connection is resumed; what has no credit waits.

Messages overtake waiting publications, so that a slow consumer never holds up routing; except those that
take back what the publications need on their way, which stay in line. Publications of one publisher never
overtake each other.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING, Generic, TypeVar

from braid.errors import RemoteProtocolError
from braid.protocol.batch import PublicationBatch
from braid.protocol.codec import Body, Frame
from braid.protocol.messages import Acknowledgement, Message, StoredPublications

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterable, Iterator, Set

__all__ = ["Channel", "ChannelSettings"]

Care = TypeVar("Care")

# Makes a frame in half the time that `Frame` itself takes.
_quickly = tuple.__new__


@dataclass(frozen=True, kw_only=True)
class ChannelSettings:
    """How much may be under way on one channel."""

    window_bytes: int = 4 * 1024 * 1024
    """Credit kept open for the peer. Higher: more throughput over long distances, more memory here."""
    resend_bytes_max: int = 16 * 1024 * 1024
    """Sent and not acknowledged at most. Higher: longer outages without a pause, more memory here."""
    acknowledge_after_frames: int = 64
    """Frames that arrive before they are acknowledged at once. Lower: more small messages back."""
    acknowledge_delay_us: int = 20_000
    """How long an acknowledgement may wait for company. Higher: fewer of them, later receipts."""


class _Outgoing(Generic[Care]):
    """Something that waits to be sent; `care` is who wants to hear that it is settled.

    Only publications have a size: credit and the bounds on memory are about them.
    """

    __slots__ = ("body", "care", "size")

    def __init__(self, body: Body, size: int, care: Care | None) -> None:
        self.body = body
        self.size = size
        self.care = care


class Channel(Generic[Care]):
    """One side of a session. `Care` is the caller's type for those who wait for settlement."""

    __slots__ = (
        "_acknowledged_bytes",
        "_batches",
        "_careful_first",
        "_careful_last",
        "_cares",
        "_credit",
        "_due_bytes",
        "_due_frame",
        "_granted",
        "_holds",
        "_messages",
        "_messages_in_line",
        "_peer_received",
        "_peer_settled",
        "_peer_window",
        "_prompt",
        "_sent",
        "_sent_bytes",
        "_told",
        "_unacknowledged",
        "_unsettled",
        "connected",
        "holding",
        "passing",
        "received",
        "received_bytes",
        "settings",
        "settled",
        "telling",
        "unacknowledged_messages",
        "unsettled_bytes",
        "waiting_bytes",
        "writable",
    )

    def __init__(self, settings: ChannelSettings) -> None:
        self.settings = settings
        self.connected = False
        self.writable = True
        # Sending.
        self._messages: deque[_Outgoing[Care]] = deque()
        self._batches: deque[_Outgoing[Care]] = deque()
        self._unacknowledged: deque[Body] = deque()
        """What was sent last, up to the frame with the number `_sent`."""
        self._unsettled: OrderedDict[int, Body] = OrderedDict()
        """What has arrived and somebody waits for, by its number, in order."""
        self._cares: dict[int, Care] = {}
        """By the number of a frame that was sent, who wants to hear that it is settled."""
        self._messages_in_line = 0
        self._sent = 0
        self._sent_bytes = 0
        self._acknowledged_bytes = 0
        self._credit = 0
        self._peer_window = 0
        self._peer_received = 0
        self._peer_settled = 0
        self.waiting_bytes = 0
        """Publications that have not been sent for lack of credit or connection."""
        self.unacknowledged_messages = 0
        """Messages that were sent and are not known to have arrived."""
        self.unsettled_bytes = 0
        """Arrived, and kept until everybody downstream has them."""
        # Receiving.
        self.received = 0
        self.received_bytes = 0
        self.settled = 0
        """Raised by the owner, as what arrived needs no care any more."""
        self._holds: set[Hashable] = set()
        """Why the peer gets no further credit."""
        self._granted = settings.window_bytes
        self._told = (0, 0, settings.window_bytes)
        self._prompt = False
        self._careful_first = self._careful_last = 0
        """The numbers between which all frames are whose sender waits until they are settled and has not been
        told so; 0 if there are none."""
        # How far things may go before they are acknowledged at once.
        self._due_frame = settings.acknowledge_after_frames
        self._due_bytes = settings.window_bytes // 4
        self.telling = False
        """Set by the owner while it means to acknowledge in a while."""
        self.holding = False
        """Set by the owner while publications must not be sent yet."""
        self.passing = False
        """Set by the owner if, while holding, those that nobody cares for may be sent all the same."""

    # Sending.

    @property
    def unacknowledged_bytes(self) -> int:
        """Publications that were sent and are not known to have arrived."""
        return self._sent_bytes - self._acknowledged_bytes

    def offer(self, body: Body, care: Care | None = None) -> None:
        """Put something in line."""
        if isinstance(body, PublicationBatch):
            size = body.size
            self._batches.append(_Outgoing(body, size, care))
            self.waiting_bytes += size
        else:
            self._messages.append(_Outgoing(body, 0, care))

    def offer_in_line(self, message: Message) -> None:
        """Put a message in line that must not overtake the publications before it."""
        if not self._batches:
            self.offer(message)
            return
        self._batches.append(_Outgoing(message, 0, None))
        self._messages_in_line += 1

    def retract(self, unwanted: Callable[[Body], bool]) -> None:
        """Take messages back that wait behind publications."""
        if self._messages_in_line:
            kept = [each for each in self._batches if each.size or not unwanted(each.body)]
            self._messages_in_line -= len(self._batches) - len(kept)
            self._batches = deque(kept)

    def take(self) -> list[Frame]:
        """What can be written now, in order; it counts as sent."""
        if not self.connected or not (self._messages or self._batches):
            return []
        frames: list[Frame] = []
        while self._messages:
            frames.append(self._send(self._messages.popleft()))
        resend_bytes_max = self.settings.resend_bytes_max
        held: list[_Outgoing[Care]] = []
        # What follows a publication that is held must not overtake it if the publisher is the same.
        held_publishers: set[str] = set()
        while self._batches and self.writable and (self.passing or not self.holding):
            outgoing = self._batches[0]
            body = outgoing.body
            if self.holding and isinstance(body, PublicationBatch):
                if outgoing.care is not None:
                    held_publishers.add(body.publisher)
                if body.publisher in held_publishers:
                    held.append(self._batches.popleft())
                    continue
            # A frame larger than all the credit there can ever be goes alone.
            alone = self._credit - self._sent_bytes >= self._peer_window
            if self._sent_bytes + outgoing.size > self._credit and not alone:
                break
            if self.unacknowledged_bytes + outgoing.size > resend_bytes_max and self._unacknowledged:
                break
            self._batches.popleft()
            self.waiting_bytes -= outgoing.size
            self._messages_in_line -= not outgoing.size
            frames.append(self._send(outgoing))
        self._batches.extendleft(reversed(held))
        return frames

    def send_at_once(self, batch: PublicationBatch) -> Frame | None:
        """Send publications that nobody cares for, if nothing holds them up; None: `offer` them instead.

        It saves a single publication the way through the line, which it would leave at once.
        """
        size = batch.size
        sent_bytes = self._sent_bytes + size
        if (
            # While these are 0, nothing is in line.
            self.waiting_bytes
            or self._messages_in_line
            or self._messages
            or self.holding
            or not (self.connected and self.writable)
            or sent_bytes > self._credit
            or sent_bytes - self._acknowledged_bytes > self.settings.resend_bytes_max
        ):
            return None
        self._sent_bytes = sent_bytes
        self._sent = sequence = self._sent + 1
        self._unacknowledged.append(batch)
        frame: Frame = _quickly(Frame, (sequence, batch))
        return frame

    def _send(self, outgoing: _Outgoing[Care]) -> Frame:
        self._sent += 1
        self._sent_bytes += outgoing.size
        self.unacknowledged_messages += not outgoing.size
        if outgoing.care is not None:
            self._cares[self._sent] = outgoing.care
        self._unacknowledged.append(outgoing.body)
        return Frame(self._sent, outgoing.body)

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
        if credit < self._credit:
            raise RemoteProtocolError(f"a credit of {credit} bytes after one of {self._credit}")
        self._peer_received, self._peer_settled, self._credit = received, settled, credit
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
                    self.unsettled_bytes -= body.size
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
            self._acknowledged_bytes = self._sent_bytes - sum(
                body.size for body in rest if isinstance(body, PublicationBatch)
            )
            return []
        arrived_bytes = 0
        for sequence in range(self._sent - len(line) + 1, received + 1):
            body = line.popleft()
            size = 0
            if isinstance(body, PublicationBatch):
                arrived_bytes += (size := body.size)
            else:
                self.unacknowledged_messages -= 1
            if cares and sequence in cares:
                self._unsettled[sequence] = body
                self.unsettled_bytes += size
        self._acknowledged_bytes += arrived_bytes
        settled: list[Care] = []
        while self._unsettled and next(iter(self._unsettled)) <= self._peer_settled:
            sequence, body = self._unsettled.popitem(last=False)
            if isinstance(body, PublicationBatch):
                self.unsettled_bytes -= body.size
            settled.append(cares.pop(sequence))
        return settled

    @property
    def sent(self) -> int:
        """The number of the last frame that was sent."""
        return self._sent

    @property
    def idle(self) -> bool:
        """Nothing waits, and everything that was sent has arrived and is settled."""
        return not (self._messages or self._batches or self._unacknowledged or self._unsettled)

    @property
    def cares(self) -> bool:
        """Whether it holds publications that somebody cares for."""
        return any(outgoing.care is not None for outgoing in self._in_order())

    @property
    def backlog_bytes(self) -> int:
        """Publications waiting or kept: what a bound on this channel's memory is about."""
        return self.waiting_bytes + self.unacknowledged_bytes + self.unsettled_bytes

    @property
    def waiting_messages(self) -> int:
        """Messages that have not been sent."""
        return len(self._messages) + self._messages_in_line

    @property
    def peer_received(self) -> int:
        """The number of the last frame that is known to have arrived."""
        return self._peer_received

    # Changes of what waits.

    def drop_oldest(self, bytes_max: int, target: int) -> int:
        """Drop waiting publications, oldest first, until so many bytes wait; returns how many rows went.

        Only those for one delivery class go, and those that somebody cares for stay.
        """
        dropped = 0
        kept: deque[_Outgoing[Care]] = deque()
        while self._batches and self.waiting_bytes > bytes_max:
            outgoing = self._batches.popleft()
            body = outgoing.body
            if outgoing.care is not None or not isinstance(body, PublicationBatch) or body.target != target:
                kept.append(outgoing)
                continue
            self.waiting_bytes -= outgoing.size
            dropped += len(body)
        kept.extend(self._batches)
        self._batches = kept
        return dropped

    def refilter(self, keep: Callable[[PublicationBatch], PublicationBatch | None]) -> list[Care]:
        """Replace every waiting batch by what `keep` leaves of it; returns who waited for what went."""
        freed: list[Care] = []
        kept: deque[_Outgoing[Care]] = deque()
        for outgoing in self._batches:
            if not isinstance(outgoing.body, PublicationBatch):
                kept.append(outgoing)
                continue
            body = keep(outgoing.body)
            if body is not None:
                kept.append(outgoing if body is outgoing.body else _Outgoing(body, body.size, outgoing.care))
            elif outgoing.care is not None:
                freed.append(outgoing.care)
        self._batches = kept
        self.waiting_bytes = sum(outgoing.size for outgoing in kept)
        return freed

    def withdraw(self) -> list[tuple[PublicationBatch, Care | None]]:
        """Take back all publications that the peer may not have, with who waits for them, in order.

        Those that have arrived and are not settled are among them: the peer may lose them.
        """
        taken = [
            (outgoing.body, outgoing.care)
            for outgoing in self._in_order()
            if isinstance(outgoing.body, PublicationBatch)
        ]
        self.abandon()
        return taken

    def abandon(self) -> list[Care]:
        """Forget everything that waits or is kept; returns who waited for it."""
        cares = [outgoing.care for outgoing in self._in_order() if outgoing.care is not None]
        self._messages.clear()
        self._batches.clear()
        self._unacknowledged.clear()
        self._unsettled.clear()
        self._cares.clear()
        self._acknowledged_bytes = self._sent_bytes
        self.waiting_bytes = self.unsettled_bytes = 0
        self.unacknowledged_messages = self._messages_in_line = 0
        return cares

    def _in_order(self) -> Iterator[_Outgoing[Care]]:
        for sequence, body in chain(self._unsettled.items(), self._sent_last()):
            size = body.size if isinstance(body, PublicationBatch) else 0
            yield _Outgoing(body, size, self._cares.get(sequence))
        yield from self._batches

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
        if not self._peer_received <= peer_received <= self._sent:
            raise RemoteProtocolError(
                f"a session is resumed after frame {peer_received}, "
                f"where {self._peer_received} of {self._sent} were acknowledged"
            )
        self._peer_received = peer_received
        self._release()
        self.connected, self.writable = True, True
        # Whatever was said on the lost connection may not have arrived.
        self._told = (-1, -1, -1)
        self._due_bytes = 0
        return list(self._sent_last())

    def restart(self, credit: int) -> None:
        """A new session: the peer knows nothing. All publications it may not have wait again, in order.

        Messages are forgotten: whoever starts a session says again what must be known.
        """
        again = [outgoing for outgoing in self._in_order() if isinstance(outgoing.body, PublicationBatch)]
        self._messages.clear()
        self._unacknowledged.clear()
        self._unsettled.clear()
        self._cares.clear()
        self._batches = deque(again)
        self.waiting_bytes = sum(outgoing.size for outgoing in again)
        self._acknowledged_bytes = self.unsettled_bytes = 0
        self.unacknowledged_messages = self._messages_in_line = 0
        self._sent = self._sent_bytes = self._peer_received = self._peer_settled = 0
        self._credit = self._peer_window = credit
        self.received = self.received_bytes = self.settled = 0
        self._granted = self.settings.window_bytes
        self._told = (0, 0, self._granted)
        self._due_frame = self.settings.acknowledge_after_frames
        self._due_bytes = self._granted // 4
        self._prompt = False
        self._careful_first = self._careful_last = 0
        self.connected, self.writable = True, True

    # Receiving.

    def accept(self, frame: Frame) -> bool:
        """Whether a sequenced frame is new; False for one that came before.

        Raises:
            RemoteProtocolError: frames are missing before this one, or it exceeds the credit.
        """
        sequence, body = frame
        if sequence != self.received + 1:
            if sequence <= self.received:
                return False
            raise RemoteProtocolError(f"frame {sequence} arrived after frame {self.received}")
        if isinstance(body, PublicationBatch):
            size = body.size
            room = self._granted - self.received_bytes
            if size > room and room < self.settings.window_bytes:
                raise RemoteProtocolError(f"a batch of {size} bytes where the credit leaves {room}")
            self.received_bytes += size
            if body.flags:
                self._prompt = self._prompt or body.receipt
                if body.acknowledged:
                    self._take_care(sequence)
        elif isinstance(body, StoredPublications):
            self._take_care(sequence)
        self.received = sequence
        return True

    def _take_care(self, sequence: int) -> None:
        self._careful_first = self._careful_first or sequence
        self._careful_last = sequence

    def accept_quietly(self, sequence: int, size: int) -> bool:
        """Accept publications that nobody cares for, which are settled by that; False: `accept` them instead.

        It does so only if the frame is the next one, everything before it is settled, and nothing has to be
        acknowledged at once. Then the credit cannot be exceeded either.
        """
        received = self.received
        received_bytes = self.received_bytes + size
        if (
            sequence != received + 1
            or self.settled != received
            or sequence >= self._due_frame
            or received_bytes >= self._due_bytes
        ):
            return False
        self.received = self.settled = sequence
        self.received_bytes = received_bytes
        return True

    # Credit. Everybody who wants the peer to wait has a reason of its own, which nobody else ends.

    def hold_credit(self, reason: Hashable) -> None:
        """Grant the peer no further credit, until this reason and all others have gone."""
        self._holds.add(reason)

    def release_credit(self, reason: Hashable) -> bool:
        """A reason has gone; returns whether it was the last one, so that the peer may get credit again."""
        if reason not in self._holds:
            return False
        self._holds.discard(reason)
        return not self._holds

    @property
    def withheld(self) -> bool:
        """Whether the peer gets no further credit at the moment."""
        return bool(self._holds)

    @property
    def credit_holds(self) -> Set[Hashable]:
        """Why it gets none."""
        return self._holds

    @property
    def credit_to_grant(self) -> int:
        """What the first message of a session grants."""
        return self._granted

    def acknowledgement_due(self) -> bool:
        """Whether the peer should hear at once how far we have come.

        That is so if it waits for it, if what it takes care of is settled, or if much has come.
        """
        if self._prompt or self.received >= self._due_frame:
            return True
        if 0 < self._careful_first <= self.settled:
            return True
        return not self.withheld and self.received_bytes >= self._due_bytes

    @property
    def acknowledgement_waits(self) -> bool:
        """Whether the peer does not know how far we have come."""
        granted = self._granted if self.withheld else self.received_bytes + self.settings.window_bytes
        return self._told != (self.received, self.settled, max(self._granted, granted))

    def acknowledgement(self) -> Acknowledgement | None:
        """What to tell the peer now, or None if it knows everything."""
        if not self.withheld:
            self._granted = max(self._granted, self.received_bytes + self.settings.window_bytes)
        state = (self.received, self.settled, self._granted)
        if state == self._told:
            return None
        self._told = state
        self._due_frame = self.received + self.settings.acknowledge_after_frames
        # That is when a quarter of the window would be used up since.
        self._due_bytes = self._granted - self.settings.window_bytes + self.settings.window_bytes // 4
        self._prompt = False
        if 0 < self._careful_first <= self.settled:
            self._careful_first = self.settled + 1 if self.settled < self._careful_last else 0
        return Acknowledgement(*state)
