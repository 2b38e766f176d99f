"""`braid.serve_peer`: a peer of a network without brokers, on the event loop of a program.

    async with braid.serve_peer(bootstrap=["10.0.0.1:7000"]) as peer:
        async with braid.connect(peer.address) as client:
            ...

It is the same process as a broker, with a broker inside that has no neighbours and serves the clients of this
peer: everything that `braid.serve` opens can be opened here, too.
"""

from __future__ import annotations

import os
import secrets
from typing import TYPE_CHECKING, Any

from braid.errors import ConfigurationError
from braid.server.broker import BrokerStart
from braid.server.settings import ServerSettings
from braid.server.sync_broker import SyncBroker

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

__all__ = ["peer_settings", "serve_peer", "serve_peer_sync"]

# What a peer alone has to do with.
_OF_BROKERS = ("neighbours", "strategy", "delta", "fanout", "data_dir", "directory")


def serve_peer(
    source: Mapping[str, Mapping[str, Any]] | str | os.PathLike[str] | None = None, **options: Any
) -> BrokerStart:
    """Run a peer on the running event loop: use it with `async with`, or await it and `stop` it yourself.

    The arguments are those of `peer_settings`.

    Raises:
        ConfigurationError: something in the settings cannot be used; the message says what to change.
    """
    return BrokerStart(peer_settings(source, **options))


def serve_peer_sync(
    source: Mapping[str, Mapping[str, Any]] | str | os.PathLike[str] | None = None, **options: Any
) -> SyncBroker:
    """Run a peer in a thread: use it with `with`, or `stop` it yourself. See `serve_peer`."""
    return SyncBroker(serve_peer(source, **options))


def peer_settings(
    source: Mapping[str, Mapping[str, Any]] | str | os.PathLike[str] | None = None,
    *,
    bootstrap: Sequence[str] = (),
    listen: str | None = None,
    peer_id: str | None = None,
    dht: str | None = None,
    algorithm: str | None = None,
    schema: Path | str | None = None,
    token: str | None = None,
    loss: float | None = None,
    **options: Any,
) -> ServerSettings:
    """The settings of a process that is a peer and nothing else.

    Args:
        source: the path of a configuration file, or what such a file holds; the table `[peers]` is the one
            that matters here.
        bootstrap: addresses of peers whose network to join; none to begin one.
        listen: host and port for clients and other peers; by default a free port of loopback.
        peer_id: its name in logs and reports; made up if left out.
        dht: `pastry` or `ring`.
        algorithm: `DMM-AR` or `DMM`.
        schema: a JSON file with what all peers know of attributes.
        token: what it shows to other peers.
        loss: the share of messages to other peers that is dropped on purpose.
        options: further ones of `ServerSettings.of`, such as `access`, `tls_certificate` or `trace`.

    Raises:
        ConfigurationError: something is not known, cannot be used, or is for brokers only.
    """
    for name in _OF_BROKERS:
        if options.get(name) is not None:
            raise ConfigurationError(
                f"{name} is for brokers; a peer alone has neither neighbours nor a store"
            )
    given = ServerSettings.of(
        source,
        broker_id=peer_id
        or (None if _says(source, "broker", "broker_id") else f"peer-{secrets.token_hex(4)}"),
        listen=listen or (None if _says(source, "listener", "listen") else "127.0.0.1:0"),
        **options,
    )
    chosen = {
        "bootstrap": list(bootstrap) or None,
        "dht": dht,
        "algorithm": algorithm,
        "schema": str(schema) if schema is not None else None,
        "token": token,
        "loss": loss,
    }
    return given.with_peers(
        {"alone": True, **{name: value for name, value in chosen.items() if value is not None}}
    )


def _says(
    source: Mapping[str, Mapping[str, Any]] | str | os.PathLike[str] | None, table: str, key: str
) -> bool:
    """Whether a configuration decides something; a file is taken to."""
    if isinstance(source, str | os.PathLike):
        return True
    return bool(source) and key in (source or {}).get(table, {})
