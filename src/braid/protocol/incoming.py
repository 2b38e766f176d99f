"""What has come from a peer, and how much more may?

The receiving side of a channel. Publications belong to a *credit class*: the `target` of their batch. To a
client that is one of its delivery classes; between brokers it is 1 for copies for a set of brokers that may
take any link, and 0 for everything else. The receiver grants credit for each class by itself, so that one
that is out of credit does not hold up the others.

Every class begins with the window that the greeting names, and credit is counted in bytes from the start of
the session.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from braid.errors import RemoteProtocolError
from braid.protocol.batch import PublicationBatch
from braid.protocol.messages import Acknowledgement, StoredPublications

if TYPE_CHECKING:
    from collections.abc import Hashable

    from braid.protocol.channel import ChannelSettings
    from braid.protocol.codec import Frame

__all__ = [
    "DELIVERY_CLASSES",
    "STREAMS_MAX",
    "STREAM_FIRST",
    "STREAM_WINDOW_BYTES",
    "Incoming",
    "ReceivingClass",
    "class_window",
]

# What brokers send to clients: those of each delivery class, and one that stands for none.
DELIVERY_CLASSES = 4

# A client's subscription that falls behind gets a class of its own, a *stream*. What is under way in one is
# kept small, since there may be many that nobody reads.
STREAM_FIRST = 256
STREAMS_MAX = 128
STREAM_WINDOW_BYTES = 256 * 1024

# One for all: every empty set that is made is another one.
_NO_REASONS: frozenset[Hashable] = frozenset()


def class_window(number: int, window_bytes: int) -> int:
    """The credit that a class begins with, and that is kept open for it."""
    return window_bytes if number < STREAM_FIRST else min(window_bytes, STREAM_WINDOW_BYTES)


class ReceivingClass:
    """What has come in one class, and how much more may."""

    __slots__ = ("due_bytes", "granted", "holds", "received_bytes", "told", "window_bytes")

    def __init__(self, window_bytes: int) -> None:
        self.window_bytes = window_bytes
        self.holds = _NO_REASONS
        """Why the peer gets no further credit for this class."""
        self.restart()

    def restart(self) -> None:
        """A new session."""
        self.received_bytes = 0
        self.granted = self.told = self.window_bytes
        self.due_bytes = self.window_bytes // 4
        """Once so much has come, the peer should hear of further credit at once."""


class Incoming:
    """How far what comes from a peer has come, and what it hears of that."""

    __slots__ = (
        "_careful_first",
        "_careful_last",
        "_classes",
        "_due_frame",
        "_holds",
        "_plain_receiving",
        "_prompt",
        "_receiving",
        "_told",
        "due",
        "received",
        "settings",
        "settled",
    )

    def __init__(self, settings: ChannelSettings, classes: int) -> None:
        self.settings = settings
        self.received = 0
        self.settled = 0
        """Raised by the owner, as what arrived needs no care any more."""
        self._classes = classes
        self._plain_receiving = ReceivingClass(settings.window_bytes)
        """Class 0, in which nearly everything comes."""
        self._receiving = {0: self._plain_receiving}
        self._holds = _NO_REASONS
        """Why the peer gets no further credit for any class."""
        self._told = (0, 0)
        self._prompt = False
        self._careful_first = self._careful_last = 0
        """The numbers between which all frames are whose sender waits until they are settled and has not been
        told so; 0 if there are none."""
        self._due_frame = settings.acknowledge_after_frames
        """Once this has come, it is acknowledged at once."""
        self.due = False
        """Whether what has come since the last acknowledgement may have to be acknowledged at once, as soon
        as the owner has settled it; `acknowledgement_due` knows for certain."""

    def _restart_receiving(self) -> None:
        """A new session: nothing has come."""
        self.received = self.settled = 0
        for receiving in self._receiving.values():
            receiving.restart()
        self._told = (0, 0)
        self._due_frame = self.settings.acknowledge_after_frames
        self._prompt = self.due = False
        self._careful_first = self._careful_last = 0

    def _tell_again(self) -> None:
        """Whatever was said on a lost connection may not have arrived."""
        self._told = (-1, -1)
        for receiving in self._receiving.values():
            receiving.told = -1
            receiving.due_bytes = 0

    def accept(self, frame: Frame) -> bool:
        """Whether a sequenced frame is new; False for one that came before.

        Raises:
            RemoteProtocolError: frames are missing before this one, or it exceeds the credit.
        """
        sequence, body = frame
        if type(body) is PublicationBatch:
            return self.accept_batch(sequence, body)
        if sequence != self.received + 1:
            return self._unexpected(sequence)
        if isinstance(body, StoredPublications):
            self._take_care(sequence)
        self.received = sequence
        if sequence >= self._due_frame:
            self.due = True
        return True

    def accept_batch(self, sequence: int, batch: PublicationBatch) -> bool:
        """Whether publications are new; the same as `accept`, for who knows what the frame holds."""
        if sequence != self.received + 1:
            return self._unexpected(sequence)
        receiving = self._plain_receiving
        if batch.target:
            receiving = self._receiving.get(batch.target) or self._new_receiving(batch.target)
        received_bytes = receiving.received_bytes + batch.size
        if received_bytes >= receiving.due_bytes:
            room = receiving.granted - receiving.received_bytes
            if batch.size > room and room < receiving.window_bytes:
                raise RemoteProtocolError(f"a batch of {batch.size} bytes where the credit leaves {room}")
            self.due = True
        receiving.received_bytes = received_bytes
        if batch.flags:
            if batch.receipt:
                self._prompt = self.due = True
            if batch.acknowledged:
                self._take_care(sequence)
        self.received = sequence
        if sequence >= self._due_frame:
            self.due = True
        return True

    def _unexpected(self, sequence: int) -> bool:
        """A frame that is not the next one has come before, or others are missing."""
        if sequence <= self.received:
            return False
        raise RemoteProtocolError(f"frame {sequence} arrived after frame {self.received}")

    def _new_receiving(self, number: int) -> ReceivingClass:
        if not 0 <= number < self._classes:
            raise RemoteProtocolError(
                f"a batch of class {number}, where the classes are those below {self._classes}"
            )
        receiving = ReceivingClass(class_window(number, self.settings.window_bytes))
        self._receiving[number] = receiving
        return receiving

    def _take_care(self, sequence: int) -> None:
        self.due = True
        self._careful_first = self._careful_first or sequence
        self._careful_last = sequence

    # Credit. Everybody who wants the peer to wait has a reason of its own, which nobody else ends.

    def hold_credit(self, reason: Hashable, number: int | None = None) -> None:
        """Grant the peer no further credit, until this reason and all others have gone.

        With a `number`, only what it sends of that class waits.
        """
        self._set_holds(number, self._holds_on(number) | {reason})

    def release_credit(self, reason: Hashable, number: int | None = None) -> bool:
        """A reason has gone; returns whether it was the last one, so that the peer may get credit again."""
        holds = self._holds_on(number)
        if reason not in holds:
            return False
        self._set_holds(number, holds - {reason})
        return len(holds) == 1

    def _holds_on(self, number: int | None) -> frozenset[Hashable]:
        if number is None:
            return self._holds
        return (self._receiving.get(number) or self._new_receiving(number)).holds

    def _set_holds(self, number: int | None, holds: frozenset[Hashable]) -> None:
        if number is None:
            self._holds = holds
        else:
            self._receiving[number].holds = holds

    @property
    def withheld(self) -> bool:
        """Whether the peer gets no further credit at the moment, for some class at least."""
        return bool(self._holds) or any(receiving.holds for receiving in self._receiving.values())

    @property
    def credit_holds(self) -> frozenset[Hashable]:
        """Why it gets none."""
        return frozenset(reason for reason, _ in self.holds())

    def holds(self) -> set[tuple[Hashable, int | None]]:
        """Why it gets none, each with the class concerned; None stands for all."""
        found: set[tuple[Hashable, int | None]] = {(reason, None) for reason in self._holds}
        for number, receiving in self._receiving.items():
            found.update((reason, number) for reason in receiving.holds)
        return found

    @property
    def credit_to_grant(self) -> int:
        """What the first message of a session grants."""
        return self._receiving[0].granted

    def acknowledgement_due(self) -> bool:
        """Whether the peer should hear at once how far we have come.

        That is so if it waits for it, if what it takes care of is settled, or if much has come.
        """
        if self._prompt or self.received >= self._due_frame:
            return True
        if 0 < self._careful_first <= self.settled:
            return True
        if self._holds:
            return False
        for receiving in self._receiving.values():
            if receiving.received_bytes >= receiving.due_bytes and not receiving.holds:
                return True
        return False

    @property
    def acknowledgement_waits(self) -> bool:
        """Whether the peer does not know how far we have come."""
        if self._told != (self.received, self.settled):
            return True
        withheld = self._holds
        for receiving in self._receiving.values():
            granted = receiving.granted
            if receiving.told != granted:
                return True
            # What may be granted beyond that.
            more = receiving.received_bytes + receiving.window_bytes > granted
            if more and not (withheld or receiving.holds):
                return True
        return False

    def acknowledgement(self) -> Acknowledgement | None:
        """What to tell the peer now, or None if it knows everything."""
        state = (self.received, self.settled)
        news = state != self._told
        withheld = held = bool(self._holds)
        credits: list[tuple[int, int]] = []
        for number, receiving in self._receiving.items():
            granted, window_bytes = receiving.granted, receiving.window_bytes
            if receiving.holds:
                held = True
            elif not withheld and receiving.received_bytes + window_bytes > granted:
                receiving.granted = granted = receiving.received_bytes + window_bytes
            # That is when a quarter of the window would be used up since.
            receiving.due_bytes = granted - window_bytes + window_bytes // 4
            if granted != receiving.told:
                receiving.told = granted
                news = True
                if number:
                    credits.append((number, granted))
        if not news:
            return None
        self._told = state
        self._due_frame = self.received + self.settings.acknowledge_after_frames
        self._prompt = self.due = False
        if 0 < self._careful_first <= self.settled:
            self._careful_first = self.settled + 1 if self.settled < self._careful_last else 0
        return Acknowledgement(*state, self._receiving[0].granted, credits, held)
