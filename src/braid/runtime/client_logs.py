"""What does a program hear about a log, and about a replay of it?"""

from __future__ import annotations

from collections.abc import Sequence  # noqa: TC003 - msgspec reads the annotations
from typing import TYPE_CHECKING, TypeVar

import msgspec

from braid.client.stored import ReplayWish
from braid.embedded.arguments import checked_filter
from braid.errors import ConfigurationError, RemoteProtocolError

if TYPE_CHECKING:
    from braid.language import Filter

__all__ = ["DurableStatus", "LogPin", "ReplayRange", "durable_status", "replay_range", "replay_wish"]


Kind = TypeVar("Kind")


class LogPin(msgspec.Struct, frozen=True):
    """Rows that are kept because a consumer may come back for them."""

    consumer: str
    offset: int
    """The first of them."""
    expires_at_us: int
    """When it ends, in microseconds since 1970."""


class DurableStatus(msgspec.Struct, frozen=True):
    """Where the log of a durable subscription stands."""

    name: str
    key: str
    """The whole name, `OWNER/NAME`, under which others may be granted to replay it."""
    id: str
    """Unlike that of any other log, also of one that had this name before."""
    filter: str
    when_full: str
    first: int
    """The oldest row that is kept."""
    safe: int
    """The end of what is safely stored: rows below this can be replayed."""
    next: int
    """The offset that the next row gets."""
    acknowledged: int
    """Rows up to this one are done with; -1: none is."""
    bytes: int
    """The records that are kept."""
    read: bool
    """Whether a client reads it at the moment."""
    subscribed: bool = False
    """Whether a client ever subscribed to it. What that one has not seen, only it acknowledges."""
    epochs: tuple[tuple[str, int], ...] = ()
    """The starts of the broker that appended rows, and the first offset of each."""
    pins: tuple[LogPin, ...] = ()
    shard: int = 0
    shards: int = 1
    """Of so many logs with the same filter it is that one."""
    copies: int = 0
    """How many neighbours of the broker keep its rows, too."""
    keeper: str = ""
    """The neighbour that does so at the moment."""

    def epoch_at(self, offset: int) -> str:
        """The epoch of a row; empty where that is not known."""
        return next((epoch for epoch, first in reversed(self.epochs) if first <= offset), "")


class ReplayRange(msgspec.Struct, frozen=True):
    """What a replay that has ended was about."""

    id: str
    first: int
    last: int
    """The last offset that was asked for, or the last one that was safely stored."""
    next: int
    """Where the next replay goes on."""


def durable_status(text: str) -> DurableStatus:
    """The broker's answer about a log."""
    return _decoded(text, DurableStatus)


def replay_range(wish: ReplayWish, text: str) -> ReplayRange | None:
    """The broker's answer at the end of a replay; None before that."""
    if not text:
        return None
    found = _decoded(text, ReplayRange)
    # After a lost connection the broker speaks of the rest only.
    return ReplayRange(found.id, min(wish.first, found.first), found.last, found.next)


def _decoded(text: str, kind: type[Kind]) -> Kind:
    try:
        return msgspec.json.decode(text, type=kind)
    except msgspec.MsgspecError as error:
        raise RemoteProtocolError(f"the broker's answer about a log cannot be read: {error}") from None


def replay_wish(
    first: int,
    last: int | None,
    filter: Filter | str | None,
    columns: Sequence[str] | None,
    log: str | None,
    *,
    complete: bool,
    epoch: str = "",
    records: bool = False,
) -> ReplayWish:
    """What of a log is to be replayed, or a `ConfigurationError`."""
    if type(first) is not int or first < 0 or (last is not None and (type(last) is not int or last < first)):
        raise ConfigurationError(f"a replay runs from an offset of at least 0 upwards, not {first} to {last}")
    if columns is not None:
        if isinstance(columns, str) or not all(isinstance(name, str) for name in columns):
            raise ConfigurationError(f"columns is a list of attribute names, not {columns!r}")
        columns = tuple(columns)
    text = "" if filter is None else checked_filter(filter).text
    return ReplayWish(
        first, -1 if last is None else last, bool(complete), log or "", epoch, text, columns, records
    )
