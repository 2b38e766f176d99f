"""What does a machine want done?

A driver performs these in the order in which they come.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeAlias

import msgspec

from braid.language.publication import Publication
from braid.protocol.codec import Frame

if TYPE_CHECKING:
    from collections.abc import Mapping

    from braid.protocol.log import StoreOperation

__all__ = [
    "Close",
    "Delivery",
    "Dial",
    "Drained",
    "Effect",
    "Granted",
    "Greeted",
    "Lock",
    "Neighbours",
    "Note",
    "Pause",
    "Persist",
    "Probe",
    "Progress",
    "ReadLog",
    "Reload",
    "Replaced",
    "Send",
    "SendTo",
    "SweepStore",
    "Unlock",
]


class Send(msgspec.Struct, gc=False):  # there is one for every message, and this is made most quickly
    """Write these frames to a connection, in one go."""

    connection: int
    frames: Sequence[Frame]


@dataclass(frozen=True, slots=True)
class Close:
    """End a connection after what was written to it."""

    connection: int
    reason: str


@dataclass(frozen=True, slots=True)
class Greeted:
    """It is known who is at the other end of a connection, and so how large its frames may be."""

    connection: int
    frame_bytes_max: int
    kind: str = ""
    """`client`, `broker` (a primary link) or `soft` (a soft link), as in a `Hello`."""
    name: str = ""
    """A client's name, or a broker's id."""


@dataclass(frozen=True, slots=True)
class Granted:
    """What filters of a client are held against from now on, so that a driver can do that with long ones
    before the machine sees them."""

    connection: int
    subscribe: str
    """The filter that covers what it may subscribe to; empty for everything or nothing."""
    advertise: str
    """The same for what it may advertise."""
    narrow: bool
    """Whether filters that go beyond are narrowed, and not refused."""


@dataclass(frozen=True, slots=True)
class Pause:
    """Read nothing from a connection for so long: its client exceeds its rate, or stands in line.

    The latest word counts: 0 means to read on now.
    """

    connection: int
    duration_us: int


@dataclass(frozen=True, slots=True)
class Dial:
    """Open a connection to another broker; `Opened` or `Closed` answers with the same address and purpose."""

    address: str
    soft: bool = False
    """Whether it is for a soft link."""
    frame_bytes_max: int = field(default=0, compare=False)
    """The largest frame that is read: the other side may send much right behind its welcome."""


@dataclass(frozen=True, slots=True)
class Persist:
    """Do this store work in one transaction, then say `Persisted`."""

    token: int
    operations: Sequence[StoreOperation]


@dataclass(frozen=True, slots=True)
class ReadLog:
    """Read rows `first` to `last` (included; None: the end) of a log, at most so many bytes (but one row)."""

    token: int
    name: str
    first: int
    last: int | None
    bytes_max: int
    packed: bool = False
    """Whether the rows are wanted as columns."""


@dataclass(frozen=True, slots=True)
class SweepStore:
    """Remove rows from the store that need not be kept any more, a bounded piece, then say `Swept`."""


@dataclass(frozen=True, slots=True)
class Note:
    """Something worth a line in a log or a trace."""

    level: str
    """`debug`, `info`, `warning` or `error`."""
    what: str
    fields: Mapping[str, Any] = field(default_factory=dict)
    audit: bool = False
    """Whether it belongs in the audit log, too: who was let in or refused, what an operator did."""


@dataclass(frozen=True, slots=True)
class Progress:
    """A change of the network has come to another phase at this machine: a row of the trace."""

    operation: str
    """What is being changed, such as `shift`."""
    id: str
    phase: str
    """A stage of its life; `paused` and `resumed` say since when and until when publications waited here."""
    detail: str = ""


@dataclass(frozen=True, slots=True)
class Reload:
    """Read access file and certificates again, then say `Reconfigured`."""

    token: int


@dataclass(frozen=True, slots=True)
class Neighbours:
    """A broker has other neighbours than before: these, whether or not they are connected."""

    names: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Probe:
    """Measure the round trip to a broker; `Probed` answers, once."""

    broker: str
    address: str


@dataclass(frozen=True, slots=True)
class Lock:
    """Take the locks of these brokers in the directory, all of them or none.

    `Locked` or `LockRefused` answers, once; after `Locked` there may be a `LockLost`. Locks are taken in the
    order of the brokers' names, so that overlapping wishes never wait for each other in a circle.
    """

    token: int
    """Chosen by the machine, for this wish alone."""
    brokers: tuple[str, ...]
    wait_us_max: int
    """How long others may keep us waiting."""


@dataclass(frozen=True, slots=True)
class Unlock:
    """Give the locks of a `Lock` back, or stop waiting for them. Nothing is said of that token afterwards."""

    token: int


@dataclass(frozen=True, slots=True)
class Drained:
    """Everything asked for by `Drain` is done; the driver may stop."""


@dataclass(frozen=True, slots=True)
class Replaced:
    """Another process has this machine's name: the driver stops it."""

    epoch: int
    """How often the name has gone to another process."""
    address: str
    """Where that one can be reached."""


class SendTo(msgspec.Struct, gc=False):
    """Send messages to the machine at an address, without a connection that anybody has to keep: a datagram.

    They arrive together as one `Heard`, or are lost together without a word. Nothing is promised about the
    order of two datagrams. What the messages are is between the machines; see `Vocabulary`.
    """

    address: str
    messages: Sequence[msgspec.Struct]


class Delivery(msgspec.Struct, frozen=True):
    """Give a publication to those who subscribed at this machine."""

    subscriptions: tuple[str, ...]
    """The keys of the subscriptions that it satisfies, in order."""
    publication: Publication


Effect: TypeAlias = (
    Send
    | SendTo
    | Delivery
    | Close
    | Granted
    | Greeted
    | Pause
    | Dial
    | Persist
    | ReadLog
    | SweepStore
    | Note
    | Progress
    | Reload
    | Neighbours
    | Probe
    | Lock
    | Unlock
    | Drained
    | Replaced
)
