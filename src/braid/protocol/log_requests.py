"""What may the owner of a log ask for, without reading it?

See `broker/log_owners.py`.
"""

from __future__ import annotations

import msgspec

__all__ = ["AcknowledgeDurable", "CreateDurable", "LogStatus", "PinLog"]


class _Request(msgspec.Struct, array_like=True, frozen=True):
    """The root of these; kinds are numbers, as for all other messages."""


class CreateDurable(_Request, tag=27, frozen=True):
    """A request, sequenced: have the named log, without reading it; `Done` carries its status as JSON.

    If the log is there already, its filter has to be the same.
    """

    request: int
    name: str
    filter: str
    when_full: str = "block"
    partial: bool = False
    """As in `SubscribeDurable`, and so is what follows."""
    patience_us: int = 0
    secret: str = ""
    shard: int = 0
    """Of `shards` logs with the same filter, this one keeps what publishers with this remainder publish."""
    shards: int = 1
    copies: int = 0


class LogStatus(_Request, tag=28, frozen=True):
    """A request, sequenced: where does this log stand? `Done` carries the answer as JSON."""

    request: int
    name: str
    secret: str = ""


class AcknowledgeDurable(_Request, tag=29, frozen=True):
    """A request, sequenced, of a log's owner: everything up to this offset is done with, whoever reads it."""

    request: int
    name: str
    offset: int
    id: str = ""
    """As in `Replay`."""
    secret: str = ""


class PinLog(_Request, tag=41, frozen=True):
    """A request, sequenced, of a log's owner: keep rows from this offset on, for a consumer that may go back.

    Each consumer has one pin; the next one takes its place.
    """

    request: int
    name: str
    consumer: str
    offset: int
    """-1 takes the pin away."""
    lifetime_us: int
    """How long it holds, counted from now."""
    id: str = ""
    """As in `Replay`."""
    secret: str = ""
