"""Can a client work with what it was given, and if not, what should the caller do?"""

from __future__ import annotations

import json
import logging
import secrets
import ssl
import time
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypedDict

from braid.client.outbox import ACKNOWLEDGED, ORDERED
from braid.embedded.arguments import checked_draft, checked_drafts, checked_timeout
from braid.errors import ConfigurationError, RemoteProtocolError, RequestRefusedError
from braid.protocol.batch import PUBLISHER_BYTES_MAX, encode_record
from braid.protocol.publisher_names import EPOCH_FIRST, EPOCH_LENGTH_MAX, PublisherNames
from braid.runtime.tls import Address, TlsSettings, client_context, is_loopback, parse_address

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from braid.embedded.core import Draft
    from braid.language import Publication

__all__ = [
    "Identity",
    "client_addresses",
    "client_identity",
    "manner_of",
    "microseconds",
    "of_peers",
    "publication_record",
    "publication_records",
    "refused_by_peers",
    "report_of",
    "waiting_for_links",
    "warn_if_exposed",
]

# Of the time a request may take, what the broker may wait for links that are down: its answer names them, and
# is to come before we give up.
PATIENCE_SHARE: Final = 0.9

_log = logging.getLogger("braid.client")

MICROSECONDS: Final = 1_000_000
_MANNERS: Final = {"fast": 0, "acknowledged": ACKNOWLEDGED}


class Identity(NamedTuple):
    """What a client calls itself, and what it publishes as."""

    name: str
    publisher: str
    epoch: str
    secret: str


def client_identity(
    name: str | None, publisher: str | None, epoch: str | None, secret: str | None
) -> Identity:
    """What the caller chose, and something made up for what was left out; or a `ConfigurationError`."""
    if name is None:
        name = publisher if publisher is not None else f"client-{secrets.token_hex(6)}"
    if secret is None:
        # Without a secret, whoever knows the epoch may go on with it; a job that is tried again does.
        secret = secrets.token_hex(16) if epoch is None else ""
    if epoch is None:
        epoch = secrets.token_hex(6) if publisher is not None else EPOCH_FIRST
    if publisher is None:
        publisher = f"{name}.{secrets.token_hex(6)}"
    if not name or (publisher != name and not publisher.startswith(f"{name}.")):
        raise ConfigurationError(
            f"the publisher {publisher!r} must be the client's name, {name!r}, or that, a dot and more"
        )
    if not 0 < len(epoch) <= EPOCH_LENGTH_MAX or "#" in epoch or not epoch.isprintable():
        raise ConfigurationError(
            f"an epoch has 1 to {EPOCH_LENGTH_MAX} characters that can be printed, and no '#': {epoch!r}"
        )
    # A principal's name may need more room than an anonymous client's mark; that shows in the welcome.
    bytes_max = PUBLISHER_BYTES_MAX - len(PublisherNames("", secret).name("", epoch).encode())
    if not 0 < len(publisher.encode()) <= bytes_max:
        raise ConfigurationError(f"a publisher's name has 1 to {bytes_max} bytes here: {publisher!r}")
    return Identity(name, publisher, epoch, secret)


def microseconds(seconds: float) -> int:
    """A time in the session's unit, or a `ConfigurationError`."""
    checked = checked_timeout(seconds)
    if checked is None:
        raise ConfigurationError("the time for a connection is a number of seconds, not None")
    return int(checked * MICROSECONDS)


def of_peers(url: str) -> bool:
    """Whether addresses are those of peers, or a `ConfigurationError` where only some are."""
    schemes = [part.strip().lower().partition("://")[0] for part in url.split(",")]
    peers = [scheme.endswith("+p2p") for scheme in schemes]
    if any(peers) and not all(peers):
        raise ConfigurationError(
            "addresses of brokers and of peers do not go together: their promises differ"
        )
    return peers[0]


def refused_by_peers(what: str, instead: str) -> RequestRefusedError:
    """What a client of peers hears when it asks for what only brokers offer."""
    return RequestRefusedError(f"peers do not offer {what}: {instead}, or connect to a broker", "peers")


def client_addresses(
    url: str, tls: TlsSettings | ssl.SSLContext | None
) -> dict[str, tuple[Address, ssl.SSLContext | None]]:
    """Where to connect to, by the text of each address, and with which TLS context, if any."""
    context = tls if isinstance(tls, ssl.SSLContext) else None
    found: dict[str, tuple[Address, ssl.SSLContext | None]] = {}
    for text in (part.strip() for part in url.split(",")):
        address = parse_address(text)
        if tls is not None and text.lower().startswith(("braid://", "braid+p2p://")):
            raise ConfigurationError(f"{text} means without TLS, but TLS settings are given; use braids://")
        if (address.tls or tls is not None) and context is None:
            context = client_context(tls if isinstance(tls, TlsSettings) else None)
        secure = address.tls or tls is not None
        address = Address(address.host, address.port, secure)
        found[str(address)] = (address, context if secure else None)
    return found


def warn_if_exposed(what: str, addresses: Mapping[str, tuple[Address, ssl.SSLContext | None]]) -> None:
    """Say so where something secret would travel for everybody to read."""
    exposed = [
        str(address) for address, _ in addresses.values() if not address.tls and not is_loopback(address.host)
    ]
    if exposed:
        _log.warning("%s travels unencrypted to %s; use braids://", what, ", ".join(exposed))


def report_of(topic: str, text: str) -> dict[str, Any]:
    """The broker's answer to a question.

    Raises:
        RemoteProtocolError: it is not JSON.
    """
    try:
        answer = json.loads(text) if text else {}
    except ValueError as error:
        raise RemoteProtocolError(f"the broker's answer about {topic!r} is not JSON: {error}") from None
    return answer if isinstance(answer, dict) else {"answer": answer}


def manner_of(delivery: str, ordered: bool, *, peers: bool = False) -> int:
    """How a publication travels, in the session's own terms."""
    manner = _MANNERS.get(delivery)
    if manner is None:
        raise ConfigurationError(f"delivery is 'fast' or 'acknowledged', not {delivery!r}")
    if peers and manner:
        raise refused_by_peers("acknowledged delivery", "publish with delivery='fast'")
    if peers and ordered:
        raise refused_by_peers("an order of deliveries", "publish with ordered=False")
    return manner | ORDERED if ordered else manner


def publication_record(
    attributes: Mapping[str, Any] | Publication, body: bytes = b"", content_type: str = ""
) -> bytes:
    """The bytes of a publication, or a `PublicationError` that says what is wrong with it."""
    return _record(checked_draft(attributes, body, content_type))


def publication_records(batch: Iterable[Mapping[str, Any] | Publication]) -> list[bytes]:
    """The bytes of all publications of a batch, or a `PublicationError` that says which one is wrong."""
    return [_record(draft) for draft in checked_drafts(batch)]


def _record(draft: Draft) -> bytes:
    return encode_record(draft.attributes, time.time_ns() // 1000, draft.body, draft.content_type)


class WaitingForLinks(TypedDict):
    """How the answer to a subscription waits for links that are down."""

    partial: bool
    patience_us: int


def waiting_for_links(partial: bool, request_timeout_s: float) -> WaitingForLinks:
    """Not at all, or for most of the time that a request may take."""
    patience_us = max(1, round(request_timeout_s * PATIENCE_SHARE * 1e6))
    return {"partial": bool(partial), "patience_us": patience_us}
