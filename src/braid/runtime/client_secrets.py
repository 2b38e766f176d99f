"""What does a client show so that its durable subscriptions stay its own?

A broker knows the owner of a durable subscription by its principal. Anonymous clients have none: theirs carry
a secret that the maker holds. Where a program gives none, it is made from a key in a file of the user, so
that all programs of one user on one machine can go on with each other's subscriptions, and nobody else can.
Each name has another secret, so a broker that learns one does not know the others, nor the key.
"""

from __future__ import annotations

import hmac
import logging
import os
import secrets
from pathlib import Path
from typing import Final

from braid.errors import ConfigurationError

__all__ = ["SECRET_FILE_VARIABLE", "SECRET_LENGTH_MAX", "DurableSecrets"]

SECRET_FILE_VARIABLE: Final = "BRAID_SECRET_FILE"
"""The environment variable that names another file for the user's key."""
SECRET_LENGTH_MAX: Final = 512
KEY_BYTES: Final = 32

_log = logging.getLogger("braid.client")


class DurableSecrets:
    """The secrets of one client's durable subscriptions."""

    def __init__(self) -> None:
        self._given: dict[str, str] = {}
        self._key: bytes | None = None

    def of(self, name: str, given: str | None = None) -> str:
        """The secret for a durable subscription; one that is given is remembered."""
        if given is not None:
            if type(given) is not str or not 0 < len(given) <= SECRET_LENGTH_MAX:
                raise ConfigurationError(f"a secret is text of 1 to {SECRET_LENGTH_MAX} characters")
            self._given[name] = given
        known = self._given.get(name)
        if known is not None:
            return known
        if self._key is None:
            self._key = _key_of_user()
        return hmac.new(self._key, name.encode("utf-8", "surrogatepass"), "sha256").hexdigest()


def _key_of_user() -> bytes:
    """The key in the user's file, which is made when it is first needed."""
    path = _key_path()
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        try:
            descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        except FileExistsError:
            pass
        else:
            with os.fdopen(descriptor, "w", encoding="ascii") as file:
                file.write(secrets.token_hex(KEY_BYTES) + "\n")
        key = bytes.fromhex(path.read_text(encoding="ascii").strip())
        if len(key) != KEY_BYTES:
            raise ValueError(f"{len(key)} bytes instead of {KEY_BYTES}")
    except (OSError, ValueError) as problem:
        _log.warning(
            "no key for anonymous durable subscriptions can be kept in %s (%s): they can be read again by "
            "this client only, unless subscribe gets secret=",
            path,
            problem,
        )
        return secrets.token_bytes(KEY_BYTES)
    return key


def _key_path() -> Path:
    chosen = os.environ.get(SECRET_FILE_VARIABLE)
    if chosen:
        return Path(chosen)
    state = os.environ.get("XDG_STATE_HOME") or "~/.local/state"
    return Path(state).expanduser() / "braid" / "durable-key"
