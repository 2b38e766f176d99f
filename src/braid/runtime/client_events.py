"""What a client tells its program unasked: what becomes of its connection, and errors that nobody awaits."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, TypeAlias

from braid.embedded.delivery import ErrorHandler, require_plain

__all__ = ["ConnectionEvent", "ConnectionHandler", "ErrorHandler", "tell"]

_log = logging.getLogger("braid.client")


@dataclass(frozen=True, slots=True)
class ConnectionEvent:
    """What has become of a client's connection.

    Attributes:
        kind: `connected`: a broker has welcomed the client, for the first time or after a loss.
            `moved`: likewise, but it is another broker than before.
            `refused`: a broker does not want the client, or wants it no more.
            `lost`: the connection is gone.
        broker: the broker's name; the last one's where there is none, empty where there never was one.
        reason: why it was refused or lost.
        final: whether the client has given up; otherwise it tries again by itself.
    """

    kind: Literal["connected", "moved", "refused", "lost"]
    broker: str
    reason: str = ""
    final: bool = False


ConnectionHandler: TypeAlias = Callable[[ConnectionEvent], object]


def tell(what: str, handler: Callable[..., object] | None, *arguments: object) -> None:
    """Call a handler, if there is one; its own errors are only logged."""
    if handler is None:
        return
    try:
        require_plain(f"an {what} handler", handler(*arguments))
    except Exception:
        _log.exception("the %s handler %r failed", what, handler)
