"""Real time, real sockets: how machines and clients meet the world.

- `node`: drives any machine over real connections; `connection`, `clock`, `tls`.
- `connecting`: `braid.connect` and `braid.connect_sync`; `client`, `sync_client`: what they give.
- `store`: durable rows on disk. `directory`: which brokers there are.
- `http`, `metrics`, `logs`: what operators look at.
"""

from __future__ import annotations

from braid.runtime.client import Client
from braid.runtime.client_events import ConnectionEvent
from braid.runtime.client_logs import DurableStatus, LogPin, ReplayRange
from braid.runtime.client_receipts import Receipt
from braid.runtime.client_subscription import (
    Advertisement,
    DurableSubscription,
    RecordReplay,
    Replay,
    Subscription,
)
from braid.runtime.client_sync_subscription import (
    SyncDurableSubscription,
    SyncRecordReplay,
    SyncReplay,
    SyncSubscription,
)
from braid.runtime.connecting import connect, connect_sync
from braid.runtime.sync_client import SyncAdvertisement, SyncClient, SyncReceipt
from braid.runtime.tls import TlsSettings

__all__ = [
    "Advertisement",
    "Client",
    "ConnectionEvent",
    "DurableStatus",
    "DurableSubscription",
    "LogPin",
    "Receipt",
    "RecordReplay",
    "Replay",
    "ReplayRange",
    "Subscription",
    "SyncAdvertisement",
    "SyncClient",
    "SyncDurableSubscription",
    "SyncReceipt",
    "SyncRecordReplay",
    "SyncReplay",
    "SyncSubscription",
    "TlsSettings",
    "connect",
    "connect_sync",
]
