"""How a program gets a client: `braid.connect` for asyncio, `braid.connect_sync` for threads."""

from __future__ import annotations

import secrets
from typing import TYPE_CHECKING

from braid.client.effects import ClientSettings
from braid.embedded.arguments import checked_handler, require_size
from braid.runtime.client import Client
from braid.runtime.client_arguments import (
    client_addresses,
    client_identity,
    microseconds,
    of_peers,
    warn_if_exposed,
)
from braid.runtime.client_connector import ClientConnector
from braid.runtime.sync_client import SyncClient

if TYPE_CHECKING:
    import ssl

    from braid.runtime.client_events import ConnectionHandler, ErrorHandler
    from braid.runtime.tls import TlsSettings

__all__ = ["connect", "connect_sync"]


def connect(
    url: str,
    *,
    name: str | None = None,
    token: str | None = None,
    tls: TlsSettings | ssl.SSLContext | None = None,
    publisher: str | None = None,
    epoch: str | None = None,
    first_sequence: int = 1,
    secret: str | None = None,
    timeout_s: float = 10.0,
    reconnect_for_s: float = 300.0,
    request_timeout_s: float = 30.0,
    outgoing_bytes_max: int = 16 * 1024 * 1024,
    on_error: ErrorHandler | None = None,
    on_connection: ConnectionHandler | None = None,
) -> ClientConnector:
    """Connect to a broker or a peer: `async with connect(...) as client`, or `client = await connect(...)`.

    Args:
        url: `braid://host:port`, `braids://host:port` (with TLS) or `host:port` of a broker;
            `braid+p2p://host:port`, `braids+p2p://host:port` of a peer. Several, separated by commas, are
            tried in turn.
        name: what the broker calls this client; unique among its clients.
        token: says who we are, where the broker wants to know.
        tls: whom to believe and which certificate to show; also makes `host:port` mean TLS.
        publisher: the name in the ids of what is published, beginning with `name`; made up if left out. Where
            clients have to say who they are, the broker's name for us and a slash come before it, so that
            no other client can use it.
        epoch: which run of that publisher this is; by default a new one. A job that is tried again after it
            broke off gives the same name, epoch and numbers: what was published before is recognised, and its
            receipts say `discarded`.
        first_sequence: the number of the first publication.
        secret: keeps the name of an anonymous client's publisher from others; made up if left out. Give the
            same one to go on with a former epoch. Who fixes the epoch and gives no secret shares the name
            with every anonymous client.
        timeout_s: how long the first connection is tried for.
        reconnect_for_s: how long a lost connection is tried for again; 0: not at all.
        request_timeout_s: how long the answer to `subscribe`, `advertise`, `ask` and the like may take.
        outgoing_bytes_max: what may wait to be sent, or to be received; `publish` waits beyond it.
        on_error: told of each exception that a callback raises, with the publication it was given; and, with
            None, of each callback subscription that was ended and of publications that the broker refused. A
            plain function; it runs where the callback runs. A subscription may have its own instead.
        on_connection: told what becomes of the connection. A plain function; it runs on the client's event
            loop and must not wait for anything.
    """
    require_size("outgoing_bytes_max", outgoing_bytes_max)
    require_size("first_sequence", first_sequence)
    identity = client_identity(name, publisher, epoch, secret)
    addresses = client_addresses(url, tls)
    peers = of_peers(url)
    if token is not None:
        warn_if_exposed("the token", addresses)
    settings = ClientSettings(
        addresses=tuple(addresses),
        name=identity.name,
        publisher=identity.publisher,
        incarnation=secrets.token_hex(8),
        token=token,
        epoch=identity.epoch,
        secret=identity.secret,
        first_sequence=first_sequence,
        connect_for_us=microseconds(timeout_s),
        reconnect_for_us=microseconds(reconnect_for_s),
        outgoing_bytes_max=outgoing_bytes_max,
    )
    checked_handler(on_error)
    checked_handler(on_connection, "on_connection")
    return ClientConnector(
        lambda: Client(settings, addresses, request_timeout_s, on_error, on_connection, peers=peers)
    )


def connect_sync(
    url: str,
    *,
    name: str | None = None,
    token: str | None = None,
    tls: TlsSettings | ssl.SSLContext | None = None,
    publisher: str | None = None,
    epoch: str | None = None,
    first_sequence: int = 1,
    secret: str | None = None,
    timeout_s: float = 10.0,
    reconnect_for_s: float = 300.0,
    request_timeout_s: float = 30.0,
    outgoing_bytes_max: int = 16 * 1024 * 1024,
    on_error: ErrorHandler | None = None,
    on_connection: ConnectionHandler | None = None,
) -> SyncClient:
    """Connect to a broker from ordinary threads; use it as a context manager, or `close` it.

    The arguments are those of `connect`. A callback, and its `on_error`, run in a thread of the subscription;
    `on_connection` runs in the client's own thread.
    """
    return SyncClient(
        connect(
            url,
            name=name,
            token=token,
            tls=tls,
            publisher=publisher,
            epoch=epoch,
            first_sequence=first_sequence,
            secret=secret,
            timeout_s=timeout_s,
            reconnect_for_s=reconnect_for_s,
            request_timeout_s=request_timeout_s,
            outgoing_bytes_max=outgoing_bytes_max,
            on_error=on_error,
            on_connection=on_connection,
        )
    )
