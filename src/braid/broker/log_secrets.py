"""Who may touch the log of an anonymous client? The one that holds its secret.

A log that has none, such as one from before there were secrets, gets the first that is shown.
"""

from __future__ import annotations

import hmac
from typing import TYPE_CHECKING

from braid.broker.access import ANONYMOUS, hashed_token
from braid.errors import AccessDeniedError, RequestRefusedError
from braid.protocol.log import KeepSecret

if TYPE_CHECKING:
    from braid.broker.durable_log import DurableLog
    from braid.broker.parties import Client
    from braid.broker.store_work import StoreWork

__all__ = ["LogSecrets", "digest_of"]

# What is longer is not hashed: a stranger must not make the broker work.
SECRET_LENGTH_MAX = 512


class LogSecrets:
    """Keeps anonymous clients from each other's logs."""

    def __init__(self, work: StoreWork) -> None:
        self._work = work

    def require(self, client: Client, log: DurableLog, secret: str) -> None:
        """Refuse an anonymous client that does not hold a log's secret."""
        self.require_holder(client, log.name, log.secret, secret)
        if client.principal.name == ANONYMOUS and secret and not log.secret:
            log.secret = digest_of(secret)
            self._work.ask(KeepSecret(log.key, log.secret))

    def require_holder(self, client: Client, name: str, digest: str, secret: str) -> None:
        """The same for a log of which only the digest is known."""
        if client.principal.name != ANONYMOUS or not digest:
            return
        if not hmac.compare_digest(digest_of(secret), digest):
            raise AccessDeniedError(
                f"the durable subscription {name!r} belongs to another anonymous client: only its secret "
                "opens it"
            )


def digest_of(secret: str) -> str:
    """How a secret is stored."""
    if len(secret) > SECRET_LENGTH_MAX:
        raise RequestRefusedError(f"a secret has at most {SECRET_LENGTH_MAX} characters", "argument")
    return hashed_token(secret)
