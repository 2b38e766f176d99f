"""A broker as a whole: assembled from settings, with access, store, directory, HTTP and trace.

- `broker`: `braid.serve`, on the event loop of a program; `sync_broker`: `braid.serve_sync`, in a thread.
- `settings`: everything that can be chosen, and the configuration file. `access_file`: who may do what.
- `assembly`: opens what the settings name. `doorkeeping`: access file and certificates, read again on demand.
- `registration`: the broker's entry in the directory.
- `peer`: `braid.serve_peer`, a peer of a network without brokers; `peering` and `peer_settings`: what makes a
  process a peer, or a gateway.

The command line calls this and nothing else.
"""

from __future__ import annotations

from braid.server.broker import Broker, serve
from braid.server.loops import loop_factory
from braid.server.peer import peer_settings, serve_peer, serve_peer_sync
from braid.server.settings import ServerSettings
from braid.server.sync_broker import SyncBroker, serve_sync

__all__ = [
    "Broker",
    "ServerSettings",
    "SyncBroker",
    "loop_factory",
    "peer_settings",
    "serve",
    "serve_peer",
    "serve_peer_sync",
    "serve_sync",
]
