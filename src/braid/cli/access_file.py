"""Whom does a broker know, according to its access file?

    [limits]                                  # of everybody, where nothing else is said
    connections_max = 64

    [principals.till]
    publish = "shop = 7 AND kind = 'sale'"    # left out: may publish nothing
    subscribe = "shop = 7"                    # left out: may subscribe to nothing
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

import difflib
import logging
import os
import secrets
import stat
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, fields
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, BinaryIO

from braid.broker.access import ANONYMOUS, AccessPolicy, Grant, Limits, Principal, hashed_token, is_token_hash
from braid.errors import ConfigurationError, FilterError
from braid.language import Filter

__all__ = ["load_access", "new_token"]

logger = logging.getLogger(__name__)

# 256 bits: nobody guesses it, which is why a quick hash of it may be stored.
TOKEN_BYTES = 32
# The prefix lets programs that search for leaked secrets recognise a token.
TOKEN_PREFIX = "braid_"

_LIMITS = tuple(each.name for each in fields(Limits))
_FILTERS = ("publish", "subscribe")
_SWITCHES = ("operate", "link", "narrow")
_CREDENTIALS = ("tokens", "certificates")
_EXPIRES = "expires"


def new_token() -> tuple[str, str]:
    """A new token for a client, and what to write into the access file: (secret, hash)."""
    secret = TOKEN_PREFIX + secrets.token_urlsafe(TOKEN_BYTES)
    return secret, hashed_token(secret)


def load_access(path: str | Path) -> AccessPolicy:
    """The policy in an access file, or a `ConfigurationError` that names file, table and key."""
    try:
        with Path(path).open("rb") as file:
            _warn_about_permissions(path, file)
            document = tomllib.load(file)
    except OSError as error:
        raise ConfigurationError(
            f"the access file {path} cannot be read: {error.strerror or error}"
        ) from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigurationError(f"the access file {path} is not valid TOML: {error}") from None
    return _policy(_Table(str(path), "", document))


def _warn_about_permissions(path: str | Path, file: BinaryIO) -> None:
    """Whoever may write the file may let themselves in; whoever may read it learns who may do what."""
    mode = stat.S_IMODE(os.fstat(file.fileno()).st_mode)
    if os.name == "posix" and mode & 0o077:
        logger.warning(
            "the access file %s is open to others than its owner (mode %03o); restrict it: chmod 600 %s",
            path,
            mode,
            path,
        )


@dataclass(frozen=True, slots=True)
class _Table:
    """A table of the file that knows where it stands, so that every complaint can say so."""

    file: str
    name: str
    """Dotted, empty for the whole document."""
    content: Mapping[str, Any]

    def require_known(self, *known: str) -> None:
        for key in self.content:
            if key not in known:
                close = difflib.get_close_matches(key, known, n=1)
                hint = f"did you mean {close[0]!r}?" if close else f"known are {', '.join(known)}"
                raise self.wrong(key, f"is not known; {hint}")

    def table(self, key: str) -> _Table:
        """The table under a key; an empty one where it is left out."""
        content = self.content.get(key, {})
        if not isinstance(content, Mapping):
            raise self.wrong(key, f"must be a table, not {content!r}")
        return _Table(self.file, f"{self.name}.{key}" if self.name else key, content)

    def filter(self, key: str) -> Filter | None:
        text = self.content.get(key)
        if text is None:
            return None
        if not isinstance(text, str):
            raise self.wrong(key, f'must be the text of a filter, not {text!r}; everything is "TRUE"')
        try:
            return Filter(text)
        except FilterError as error:
            raise self.wrong(key, f"is not a filter: {error}") from None

    def switch(self, key: str) -> bool:
        value = self.content.get(key, False)
        if not isinstance(value, bool):
            raise self.wrong(key, f"must be true or false, not {value!r}")
        return value

    def texts(self, key: str) -> list[str]:
        values = self.content.get(key, [])
        if not isinstance(values, list) or not all(isinstance(each, str) and each for each in values):
            raise self.wrong(key, f"must be a list of non-empty strings, not {values!r}")
        return values

    def moment_us(self, key: str) -> int | None:
        """A moment in microseconds since 1970; one without a time zone could mean several."""
        value = self.content.get(key)
        if value is None:
            return None
        if not isinstance(value, datetime) or value.tzinfo is None:
            raise self.wrong(
                key, f"must be a moment with its time zone, like 2027-01-01T00:00:00Z, not {value}"
            )
        return (value - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1)

    def limits(self, otherwise: Limits) -> Limits:
        self.require_known(*_LIMITS)
        for key, value in self.content.items():
            if type(value) is not int or value < 1:
                raise self.wrong(key, f"must be a whole number of at least 1, not {value!r}")
        return Limits(**{**asdict(otherwise), **self.content})

    def wrong(self, key: str, problem: str) -> ConfigurationError:
        where = f"table [{self.name}]" if self.name else "top level"
        return ConfigurationError(f"access file {self.file}, {where}, key {key!r}: {problem}")


def _policy(document: _Table) -> AccessPolicy:
    document.require_known("principals", "anonymous", "limits")
    limits = document.table("limits").limits(Limits())
    principals: dict[str, Principal] = {}
    expiries: dict[str, int] = {}
    owners: dict[str, dict[str, str]] = {kind: {} for kind in _CREDENTIALS}
    named = document.table("principals")
    for name in named.content:
        if name == ANONYMOUS or not name.isprintable() or not name:
            raise named.wrong(name, "is no name for a principal; unknown clients have a table [anonymous]")
        table = named.table(name)
        principals[name] = _principal(name, table, limits, (*_CREDENTIALS, _EXPIRES))
        if not any(kind in table.content for kind in _CREDENTIALS):
            raise named.wrong(name, "has neither tokens nor certificates, so nobody could be it")
        for kind in _CREDENTIALS:
            _add_owner(owners[kind], table, kind, name)
        expires_us = table.moment_us(_EXPIRES)
        if expires_us is not None:
            expiries.update(dict.fromkeys(table.texts("tokens"), expires_us))
    anonymous = None
    if "anonymous" in document.content:
        anonymous = _principal(ANONYMOUS, document.table("anonymous"), limits, ())
    if not principals and anonymous is None:
        raise ConfigurationError(
            f"access file {document.file}: neither [principals] nor [anonymous] says who may connect"
        )
    return AccessPolicy(principals, owners["tokens"], owners["certificates"], anonymous, expiries)


def _principal(name: str, table: _Table, limits: Limits, credentials: Iterable[str]) -> Principal:
    table.require_known(*_FILTERS, *_SWITCHES, *credentials, "limits")
    grant = Grant(
        table.filter("publish"),
        table.filter("subscribe"),
        operate=table.switch("operate"),
        link=table.switch("link"),
        narrow=table.switch("narrow"),
    )
    return Principal(name, grant, table.table("limits").limits(limits))


def _add_owner(owners: dict[str, str], table: _Table, kind: str, name: str) -> None:
    for credential in table.texts(kind):
        if kind == "tokens" and not is_token_hash(credential):
            # It is not repeated: it may be the secret itself, and errors end up in logs.
            raise table.wrong(
                kind, "holds something that is not the hash of a token: 'sha256:' and 64 hexadecimal digits"
            )
        other = owners.setdefault(credential, name)
        if other != name:
            raise table.wrong(kind, f"holds one that belongs to {other!r} already")
