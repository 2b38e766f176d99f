"""What do brokers say to each other about copies of logs?

A log with `copies=1` is kept by a neighbour, too: the *keeper*. Its own broker, the *owner*, tells the keeper
what is in it, piece by piece, and gets it back from there when it has lost it. See `broker/log_copies.py`
and `broker/kept_copies.py`.
"""

from __future__ import annotations

from typing import TypeAlias

import msgspec

from braid.protocol.packed_rows import PackedRows

__all__ = [
    "CopiesTold",
    "CopyBegin",
    "CopyDrop",
    "CopyFetch",
    "CopyHead",
    "CopyKept",
    "CopyLeft",
    "CopyMark",
    "CopyMessage",
    "CopyNeedless",
    "CopyRows",
    "CopySafe",
]


class CopyHead(msgspec.Struct, array_like=True, frozen=True):
    """A log without its rows."""

    key: str
    """As the owner's store calls it."""
    id: str
    owner: str
    """The principal that it belongs to."""
    filter: str
    when_full: str
    secret: str
    shard: int
    shards: int
    copies: int
    first: int
    next: int
    acknowledged: int
    epochs: list[tuple[str, int]]
    subscribed: bool = False
    """Whether a client ever subscribed to it."""


class _Copy(msgspec.Struct, array_like=True, frozen=True):
    """The root of these; kinds are numbers, as for all other messages."""


class CopyKept(_Copy, tag=81, frozen=True):
    """Sequenced, when a session begins: I keep this copy of a log of yours."""

    head: CopyHead
    behind: int = 0
    """Rows that the log had when the copy began and that have never come."""


class CopiesTold(_Copy, tag=82, frozen=True):
    """Sequenced: these are all the copies of yours that I keep."""

    able: bool
    """Whether I can keep any: I have a data directory."""


class CopyBegin(_Copy, tag=83, frozen=True):
    """Sequenced: keep a copy of this log. `CopySafe` answers."""

    head: CopyHead


class CopyRows(_Copy, tag=84, frozen=True):
    """Sequenced: rows of a log, to its keeper, or back to its owner."""

    key: str
    id: str
    first: int
    epoch: str
    """That of all these rows."""
    rows: PackedRows
    memory: list[tuple[str, int, bytes]] = []
    """On the way back: of publishers of these rows the highest sequence that was ever in the log, and which
    of those below it were (`LogState.recent`)."""


class CopySafe(_Copy, tag=85, frozen=True):
    """Sequenced: the rows before this offset are on my disk."""

    key: str
    id: str
    next: int
    """-1: I keep no such copy, or none any more."""
    refused: str = ""
    """Why I keep none."""


class CopyMark(_Copy, tag=86, frozen=True):
    """Sequenced: so much of the log is acknowledged, and this is its first row now."""

    key: str
    id: str
    acknowledged: int
    first: int
    secret: str
    subscribed: bool = False


class CopyDrop(_Copy, tag=87, frozen=True):
    """Sequenced: keep that copy no longer. `CopySafe` answers."""

    key: str
    id: str


class CopyFetch(_Copy, tag=88, frozen=True):
    """Sequenced: send me rows from this offset on. `CopyRows` answers."""

    key: str
    id: str
    first: int


class CopyLeft(_Copy, tag=89, frozen=True):
    """Sequenced, on its way to an owner that is no neighbour of the keeper any more: are these needed?

    `CopyNeedless` names those that are not.
    """

    owner: str
    """The broker whose logs they are, and which neighbours pass this on to."""
    keeper: str
    copies: list[tuple[str, str, int, str]]
    """Key and id of each, the offset behind its last row, and the epoch of that row; empty without rows."""
    hops: int = 0


class CopyNeedless(_Copy, tag=90, frozen=True):
    """Sequenced, on its way back: all that is in these copies is elsewhere, or is not wanted any more."""

    owner: str
    keeper: str
    copies: list[tuple[str, str]]
    """Key and id of each."""
    hops: int = 0


CopyMessage: TypeAlias = (
    CopyKept
    | CopiesTold
    | CopyBegin
    | CopyRows
    | CopySafe
    | CopyMark
    | CopyDrop
    | CopyFetch
    | CopyLeft
    | CopyNeedless
)
