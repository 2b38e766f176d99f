"""What can happen to a machine?

A driver reports these, one at a time. A connection is a number the driver chose; it never comes again.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeAlias

import msgspec

from braid.protocol.codec import Frame

if TYPE_CHECKING:
    from braid.protocol.log import LogRow, SweptLog
    from braid.protocol.packed_rows import PackedRows

__all__ = [
    "Closed",
    "Drain",
    "Heard",
    "Input",
    "LockLost",
    "LockRefused",
    "Locked",
    "LogRead",
    "Malformed",
    "Opened",
    "Persisted",
    "Probed",
    "Received",
    "Reconfigured",
    "Resources",
    "Swept",
    "Tick",
    "Writable",
]


@dataclass(frozen=True, slots=True)
class Opened:
    """A connection is there. `dialled` is the address it was asked for with `Dial`, if we opened it."""

    connection: int
    remote: str
    """The other end's address, for logs."""
    dialled: str | None = None
    certificate: str | None = None
    """The name in the peer's verified certificate."""
    soft: bool = False
    """As the `Dial` said."""


class Received(msgspec.Struct, gc=False):  # there is one for every message, and this is made most quickly
    """Everything that was decoded from one read; nothing, now and then, while a long frame comes in."""

    connection: int
    frames: Sequence[Frame]


class Heard(msgspec.Struct, gc=False):
    """A datagram has come: what one `SendTo` of the machine at that address carried."""

    sender: str
    """The address of the machine that sent it."""
    messages: Sequence[msgspec.Struct]


@dataclass(frozen=True, slots=True)
class Malformed:
    """The peer sent bytes that are no frames; `reason` says what was wrong."""

    connection: int
    reason: str


@dataclass(frozen=True, slots=True)
class Closed:
    """A connection has gone, or (if it has no number) could not be made to the address in `dialled`."""

    connection: int | None
    reason: str
    dialled: str | None = None
    soft: bool = False
    """As the `Dial` said."""


@dataclass(frozen=True, slots=True)
class Writable:
    """Whether the connection takes more at the moment."""

    connection: int
    writable: bool


@dataclass(frozen=True, slots=True)
class Persisted:
    """Store work is safely done, or failed."""

    token: int
    error: str | None = None
    temporary: bool = False
    """Whether the same work may succeed later, such as when there is room on the disk again."""


@dataclass(frozen=True, slots=True)
class LogRead:
    """Rows of a log that were asked for, with their offsets."""

    token: int
    rows: Sequence[tuple[int, LogRow]] = field(default=())
    error: str | None = None
    packed: tuple[int, PackedRows] | None = None
    """The rows as columns, instead, with the offset of the first; None also where there are no rows."""


@dataclass(frozen=True, slots=True)
class Swept:
    """Rows that no longer had to be kept have been removed from the store, as `SweepStore` asked."""

    logs: Sequence[SweptLog] = ()
    """The logs that lost rows."""
    finished: bool = True
    """Whether there is nothing more to remove at present."""
    error: str = ""
    """Why it could not be done; empty if it was."""


@dataclass(frozen=True, slots=True)
class Resources:
    """What there is of what may run out; None where nobody looked."""

    disk_free_bytes: int | None = None
    """What the store's disk has left for us."""
    memory_bytes: int | None = None
    """What the process takes."""


@dataclass(frozen=True, slots=True)
class Reconfigured:
    """Access file and certificates were read again; without being asked, or as the answer to `Reload`."""

    token: int = 0
    """Of the `Reload`; 0 if nobody asked."""
    access: Any = None
    """The policy from now on, as the machine understands it; None to keep the one in force."""
    certificates_changed: bool = False
    """Whether certificates that were accepted before may not be accepted any more."""
    problem: str = ""
    """What was wrong; then nothing has changed."""


@dataclass(frozen=True, slots=True)
class Locked:
    """All locks of a `Lock` are ours, until `Unlock` or `LockLost`."""

    token: int
    brokers: tuple[str, ...]
    """Whose locks they are, sorted."""
    epoch: int
    """Greater than that of every earlier hold of any of these locks. A process that stalled may act on a lock
    that it has lost: whoever is asked for something under an epoch refuses a smaller one than it has seen."""


@dataclass(frozen=True, slots=True)
class LockRefused:
    """The locks of a `Lock` could not be had; none of them is ours."""

    token: int
    reason: str
    temporary: bool = True
    """Whether it may succeed later; it never will where there is no directory."""


@dataclass(frozen=True, slots=True)
class LockLost:
    """The locks of a `Lock` are no longer ours for sure; there is nothing left to unlock."""

    token: int
    reason: str


@dataclass(frozen=True, slots=True)
class Probed:
    """The answer to a `Probe`."""

    broker: str
    round_trip_us: int | None
    """None: nobody answers at that address."""


@dataclass(frozen=True, slots=True)
class Tick:
    """Time has passed: the deadline that was asked for is here."""


@dataclass(frozen=True, slots=True)
class Drain:
    """Finish what is under way and take on nothing new."""


Input: TypeAlias = (
    Opened
    | Received
    | Heard
    | Malformed
    | Closed
    | Writable
    | Persisted
    | LogRead
    | Resources
    | Swept
    | Reconfigured
    | Locked
    | LockRefused
    | LockLost
    | Probed
    | Tick
    | Drain
)
