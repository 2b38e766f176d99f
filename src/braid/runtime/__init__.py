"""Real time, real sockets: how do machines and clients meet the world?

- `node`: drives any machine over real connections; `connection`, `clock`, `tls`.
- `client`, `sync_client`: `braid.connect` and `braid.connect_sync`.
- `store`: durable rows on disk. `directory`: which brokers there are.
- `http`, `metrics`, `logs`: what operators look at.
"""

from __future__ import annotations

from braid.protocol.client_inbox import StoredPublication
from braid.runtime.client import Client, connect
from braid.runtime.sync_client import SyncClient, connect_sync
from braid.runtime.tls import TlsSettings

__all__ = ["Client", "StoredPublication", "SyncClient", "TlsSettings", "connect", "connect_sync"]
