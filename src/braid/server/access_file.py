"""The access file: whom a broker knows, and what each of them may do.

    [limits]                                  # of everybody, where nothing else is said
    connections_max = 64

    [principals.till]
    publish = "shop = 7 AND kind = 'sale'"    # left out: may publish nothing
    subscribe = "shop = 7"                    # left out: may subscribe to nothing
    replay = ["etl/orders"]                   # logs of others, OWNER/NAME, that it may replay and no more
    narrow = true                             # narrow what is beyond the grant instead of refusing it
    tokens = ["sha256:..."]                   # `new_token` makes them
    expires = 2027-01-01T00:00:00Z            # from when on its tokens are not accepted; left out: never
    certificates = ["till.shop7.example"]     # the name in a client certificate

    [principals.till.limits]
    publications_per_second_max = 100

    [principals.neighbours]
    link = true                               # may connect as brokers
    operate = true                            # may ask for reports and operations
    certificates = ["broker-a.example", "broker-b.example"]

    [anonymous]                               # left out: everybody has to say who they are
    subscribe = "public = TRUE"

A grant of "TRUE" allows everything. A key that is not known here is an error, never ignored: a misspelt
limit would be no limit.
"""

from __future__ import annotations

import logging
import os
import secrets
import stat
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Annotated

import msgspec

from braid.broker.access import ANONYMOUS, AccessPolicy, Grant, Limits, Principal, hashed_token, is_token_hash
from braid.errors import ConfigurationError, FilterError
from braid.language import Filter
from braid.settings import Document, Section, read_fields

__all__ = ["load_access", "new_token"]

logger = logging.getLogger(__name__)

# 256 bits: nobody guesses it, which is why a quick hash of it may be stored.
TOKEN_BYTES = 32
# The prefix lets programs that search for leaked secrets recognise a token.
TOKEN_PREFIX = "braid_"

_CREDENTIALS = ("tokens", "certificates")
_EXPIRES = "expires"


def new_token() -> tuple[str, str]:
    """A new token for a client, and what to write into the access file: (secret, hash)."""
    secret = TOKEN_PREFIX + secrets.token_urlsafe(TOKEN_BYTES)
    return secret, hashed_token(secret)


def load_access(path: str | Path) -> AccessPolicy:
    """The policy in an access file, or a `ConfigurationError` that names file, line and key."""
    document = Document.read(Path(path), "access file")
    _warn_about_permissions(Path(path))
    return _policy(document)


def _warn_about_permissions(path: Path) -> None:
    """Whoever may write the file may let themselves in; whoever may read it learns who may do what."""
    mode = stat.S_IMODE(path.stat().st_mode)
    if os.name == "posix" and mode & 0o077:
        logger.warning(
            "the access file %s is open to others than its owner (mode %03o); restrict it: chmod 600 %s",
            path,
            mode,
            path,
        )


def _policy(document: Document) -> AccessPolicy:
    top = document.top()
    limits = _limits(top.table("limits"), Limits())
    principals: dict[str, Principal] = {}
    expiries: dict[str, int] = {}
    owners: dict[str, dict[str, str]] = {kind: {} for kind in _CREDENTIALS}
    named = top.table("principals")
    for name in named.values:
        if name == ANONYMOUS or not name.isprintable() or not name:
            named.fail(name, "is no name for a principal; unknown clients have a table [anonymous]")
        table = named.table(name)
        if not any(kind in table for kind in _CREDENTIALS):
            named.fail(name, "has neither tokens nor certificates, so it could never be shown")
        for kind in _CREDENTIALS:
            _add_owner(owners[kind], table, kind, name)
        expires_us = _moment_us(table, _EXPIRES)
        principals[name] = _principal(name, table, limits)
        if expires_us is not None:
            expiries.update(dict.fromkeys(table.values.get("tokens", ()), expires_us))
    anonymous = None
    if "anonymous" in top:
        anonymous = _principal(ANONYMOUS, top.table("anonymous"), limits)
    top.knows(["anonymous"])
    top.finish()
    if not principals and anonymous is None:
        raise ConfigurationError(
            f"{document.name}: neither [principals] nor [anonymous] says who may connect"
        )
    return AccessPolicy(principals, owners["tokens"], owners["certificates"], anonymous, expiries)


def _principal(name: str, table: Section, limits: Limits) -> Principal:
    grant = Grant(
        _filter(table, "publish"),
        _filter(table, "subscribe"),
        operate=table.boolean("operate", False),
        link=table.boolean("link", False),
        replay=frozenset(_logs(table)),
        narrow=table.boolean("narrow", False),
    )
    own_limits = _limits(table.table("limits"), limits)
    table.finish()
    return Principal(name, grant, own_limits)


def _limits(table: Section, otherwise: Limits) -> Limits:
    limits = replace(otherwise, **read_fields(table, Limits))
    table.finish()
    return limits


def _filter(table: Section, key: str) -> Filter | None:
    text = table.value(key, str, None, wanted='the text of a filter (everything is "TRUE")')
    if text is None:
        return None
    try:
        return Filter(text)
    except FilterError as error:
        table.fail(key, f"is not a filter: {error}")


def _logs(table: Section) -> list[str]:
    """Logs of others, by their owners and names."""
    wanted = 'a list of logs, each as "OWNER/NAME"'
    found: list[str] = table.value("replay", list[str], [], wanted=wanted)
    for text in found:
        owner, slash, name = text.partition("/")
        if not (owner and slash and name):
            table.fail("replay", f"has {text!r}, and wants {wanted}")
    return found


def _moment_us(table: Section, key: str) -> int | None:
    """A moment in microseconds since 1970; one without a time zone could mean several."""
    wanted = "a moment with its time zone, like 2027-01-01T00:00:00Z"
    value = table.value(key, Annotated[datetime, msgspec.Meta(tz=True)], None, wanted=wanted)
    return None if value is None else (value - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1)


def _add_owner(owners: dict[str, str], table: Section, kind: str, name: str) -> None:
    given = table.values.get(kind, [])
    if kind == "tokens" and not (isinstance(given, list) and all(map(_is_token_hash, given))):
        # It is not repeated: it may be the secret itself, and errors end up in logs.
        table.fail(
            kind,
            "must be a list, and holds something that is not the hash of a token: 'sha256:' and 64 "
            "hexadecimal digits",
        )
    for credential in table.texts(kind, []):
        other = owners.setdefault(credential, name)
        if other != name:
            table.fail(kind, f"holds one that belongs to {other!r} already")


def _is_token_hash(given: object) -> bool:
    return isinstance(given, str) and is_token_hash(given)
