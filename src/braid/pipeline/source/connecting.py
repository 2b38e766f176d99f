"""How does a task reach its broker, and with whose rights?

Files and environment variables are read where the client runs: on an executor that is the executor's machine.
"""

from __future__ import annotations

import os
import secrets
from pathlib import Path
from typing import TYPE_CHECKING, Any

from braid.pipeline.source.errors import SourceError
from braid.runtime import TlsSettings, connect_sync

if TYPE_CHECKING:
    from braid.pipeline.source.options import Credentials
    from braid.runtime import SyncClient

__all__ = ["connected", "opened_secret"]


def connected(url: str, credentials: Credentials, timeout_s: float, **identity: Any) -> SyncClient:
    """A client, whose name nobody else has, or what `identity` says.

    Raises:
        SourceError: a file or variable is missing.
        ConnectionLostError: no broker could be reached in time.
    """
    if "publisher" not in identity:
        identity["name"] = f"spark-{secrets.token_hex(8)}"
    return connect_sync(
        url,
        token=_found("token", credentials.token, credentials.token_file, credentials.token_env) or None,
        tls=_tls(credentials),
        timeout_s=timeout_s,
        reconnect_for_s=timeout_s,
        request_timeout_s=max(timeout_s, 30.0),
        **identity,
    )


def opened_secret(credentials: Credentials) -> str | None:
    """What opens a log of an anonymous owner; None for what the user's own key gives."""
    return _found("secret", credentials.secret, credentials.secret_file, credentials.secret_env) or None


def _tls(credentials: Credentials) -> TlsSettings | None:
    paths = (credentials.authority_file, credentials.certificate_file, credentials.key_file)
    if not any(paths):
        return None
    authority, certificate, key = (Path(path) if path else None for path in paths)
    return TlsSettings(authority=authority, certificate=certificate, key=key)


def _found(kind: str, literal: str, file: str, variable: str) -> str:
    if file:
        try:
            return Path(file).read_text(encoding="utf-8").strip()
        except OSError as problem:
            raise SourceError(
                f"the option '{kind}File' names {file}, which cannot be read on {_here()}: {problem.strerror}"
            ) from None
    if variable:
        value = os.environ.get(variable, "")
        if not value:
            raise SourceError(f"the option '{kind}Env' names {variable}, which is not set on {_here()}")
        return value
    return literal


def _here() -> str:
    return f"this machine ({os.uname().nodename}, process {os.getpid()})"
