"""How are entries, neighbours and lock holders written down?

As JSON, so that `sqlite3` and `zkCli.sh` show something people can read.
"""

from __future__ import annotations

import logging
import os
import socket
import uuid
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

import msgspec

from braid.errors import ConfigurationError, DirectoryError
from braid.runtime.directory.interface import BrokerEntry

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = [
    "LockHolder",
    "decode_entry",
    "decode_holder",
    "decode_neighbours",
    "encode",
    "new_holder",
    "readable_entries",
]

logger = logging.getLogger(__name__)

Stored = TypeVar("Stored")


@dataclass(frozen=True)
class LockHolder:
    """Who holds a lock: a name for people, and a token that no other hold has."""

    name: str
    token: str


def new_holder(broker_ids: Iterable[str]) -> LockHolder:
    """A holder for one hold of this process, named after the brokers it registered."""
    process = f"process {os.getpid()} on {socket.gethostname()}"
    names = ", ".join(sorted(broker_ids))
    return LockHolder(f"broker {names} ({process})" if names else process, uuid.uuid4().hex)


def encode(value: BrokerEntry | LockHolder | tuple[str, ...]) -> bytes:
    return msgspec.json.encode(value)


def decode_entry(data: bytes, where: str) -> BrokerEntry:
    return _decode(data, BrokerEntry, where)


def decode_holder(data: bytes, where: str) -> LockHolder:
    return _decode(data, LockHolder, where)


def decode_neighbours(data: bytes, where: str) -> tuple[str, ...]:
    return _decode(data, tuple[str, ...], where)


def readable_entries(rows: Iterable[tuple[bytes, str]]) -> dict[str, BrokerEntry]:
    """Entries by id, sorted. One that cannot be read is left out with a warning: the others still count."""
    entries = []
    for data, where in rows:
        try:
            entries.append(decode_entry(data, where))
        except DirectoryError as problem:
            logger.warning("%s; it is left out", problem)
    return {entry.broker_id: entry for entry in sorted(entries, key=lambda entry: entry.broker_id)}


def _decode(data: bytes, kind: type[Stored], where: str) -> Stored:
    try:
        return msgspec.json.decode(data, type=kind)
    except (msgspec.MsgspecError, ConfigurationError, UnicodeDecodeError) as problem:
        raise DirectoryError(
            f"{where} holds {bytes(data[:60])!r}, which no Braid of this version wrote ({problem}); "
            "remove it, or use another directory"
        ) from problem
