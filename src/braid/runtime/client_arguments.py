"""Can a client work with what it was given, and if not, what should the caller do?"""

from __future__ import annotations

import ssl
import time
from typing import TYPE_CHECKING, Any, Final

from braid.embedded.arguments import checked_timeout
from braid.errors import ConfigurationError, PublicationError
from braid.language import Publication, checked_attributes
from braid.protocol.batch import encode_record
from braid.protocol.client_outbox import ACKNOWLEDGED, ORDERED
from braid.runtime.tls import Address, TlsSettings, client_context, parse_address

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = [
    "CLOSE_TIMEOUT_S",
    "QUEUE_SIZE",
    "client_addresses",
    "manner_of",
    "microseconds",
    "publication_record",
]

# How long closing a client waits for publications that are still on their way.
CLOSE_TIMEOUT_S: Final = 5.0
# Publications that wait for a subscriber unless it chooses another number.
QUEUE_SIZE: Final = 1000

MICROSECONDS: Final = 1_000_000
_MANNERS: Final = {"fast": 0, "acknowledged": ACKNOWLEDGED}


def microseconds(seconds: float) -> int:
    """A time in the session's unit, or a `ConfigurationError`."""
    checked = checked_timeout(seconds)
    if checked is None:
        raise ConfigurationError("the time for a connection is a number of seconds, not None")
    return int(checked * MICROSECONDS)


def client_addresses(
    url: str, tls: TlsSettings | ssl.SSLContext | None
) -> dict[str, tuple[Address, ssl.SSLContext | None]]:
    """Where to connect to, by the text of each address, and with which TLS context, if any."""
    context = tls if isinstance(tls, ssl.SSLContext) else None
    found: dict[str, tuple[Address, ssl.SSLContext | None]] = {}
    for text in (part.strip() for part in url.split(",")):
        address = parse_address(text)
        if tls is not None and text.lower().startswith("braid://"):
            raise ConfigurationError(f"{text} means without TLS, but TLS settings are given; use braids://")
        if (address.tls or tls is not None) and context is None:
            context = client_context(tls if isinstance(tls, TlsSettings) else None)
        secure = address.tls or tls is not None
        address = Address(address.host, address.port, secure)
        found[str(address)] = (address, context if secure else None)
    return found


def manner_of(delivery: str, ordered: bool) -> int:
    """How a publication travels, in the session's own terms."""
    manner = _MANNERS.get(delivery)
    if manner is None:
        raise ConfigurationError(f"delivery is 'fast' or 'acknowledged', not {delivery!r}")
    return manner | ORDERED if ordered else manner


def publication_record(attributes: Mapping[str, Any] | Publication, body: bytes, content_type: str) -> bytes:
    """The bytes of a publication, or a `PublicationError` that says what is wrong with it."""
    if isinstance(attributes, Publication):
        if body or content_type:
            raise PublicationError("a Publication brings its own body and content type; give them only once")
        body, content_type, attributes = attributes.body, attributes.content_type, attributes.attributes
    if type(body) is not bytes:
        if not isinstance(body, bytearray | memoryview):
            raise PublicationError(f"a body is bytes, not {type(body).__name__}; encode it first")
        body = bytes(body)
    if type(content_type) is not str:
        raise PublicationError(f"a content type is a string, not {type(content_type).__name__}")
    return encode_record(checked_attributes(attributes), time.time_ns() // 1000, body, content_type)
