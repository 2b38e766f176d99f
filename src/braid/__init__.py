"""Braid: a content-based publish/subscribe network.

Publish events made of attributes, subscribe with SQL predicates, and each publication reaches
exactly the subscribers whose predicate it satisfies.

    import braid

    with braid.open() as bus:
        quotes = bus.subscribe("symbol = 'ACME' AND price > 10")
        bus.publish({"symbol": "ACME", "price": 12.5})
        print(quotes.get()["price"])

Across processes and hosts, the same with brokers in between:

    async with braid.connect("braid://127.0.0.1:7000") as client:
        quotes = await client.subscribe("symbol = 'ACME' AND price > 10")
        await client.publish({"symbol": "ACME", "price": 12.5})

And a broker can live in a program, too:

    async with braid.serve(braid.ServerSettings.of(broker_id="A")) as broker:
        print(broker.address)

Names are loaded when they are first used, so that `import braid` costs next to nothing.
"""

from __future__ import annotations

import os
from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from braid.client import (
        StoredPublication,
        StoredRecords,
    )
    from braid.embedded import (
        AsyncBus,
        AsyncBusSubscription,
        Bus,
        BusReceipt,
        BusStatistics,
        BusSubscription,
        SubscriptionStatistics,
        WhenFull,
        open,
    )
    from braid.errors import (
        AccessDeniedError,
        AuthenticationError,
        BraidError,
        BusClosedError,
        ConfigurationError,
        ConnectionLostError,
        FilterError,
        FilterSyntaxError,
        IndexKeyError,
        NetworkError,
        PublicationError,
        PublishDeadlockError,
        PublishTimeoutError,
        RequestRefusedError,
        SlowConsumerError,
        UnreachedError,
    )
    from braid.language import (
        Explanation,
        Filter,
        Publication,
        Range,
        filter_from_pattern,
        flatten,
        to_spark,
    )
    from braid.matching import (
        FilterIndex,
    )
    from braid.pipeline.archive import (
        follow,
        history,
    )
    from braid.runtime import (
        Advertisement,
        Client,
        ConnectionEvent,
        DurableStatus,
        DurableSubscription,
        LogPin,
        Receipt,
        RecordReplay,
        Replay,
        ReplayRange,
        Subscription,
        SyncAdvertisement,
        SyncClient,
        SyncDurableSubscription,
        SyncReceipt,
        SyncRecordReplay,
        SyncReplay,
        SyncSubscription,
        TlsSettings,
        connect,
        connect_sync,
    )
    from braid.server import (
        Broker,
        ServerSettings,
        SyncBroker,
        serve,
        serve_peer,
        serve_peer_sync,
        serve_sync,
    )

__all__ = [
    "AccessDeniedError",
    "Advertisement",
    "AsyncBus",
    "AsyncBusSubscription",
    "AuthenticationError",
    "BraidError",
    "Broker",
    "Bus",
    "BusClosedError",
    "BusReceipt",
    "BusStatistics",
    "BusSubscription",
    "Client",
    "ConfigurationError",
    "ConnectionEvent",
    "ConnectionLostError",
    "DurableStatus",
    "DurableSubscription",
    "Explanation",
    "Filter",
    "FilterError",
    "FilterIndex",
    "FilterSyntaxError",
    "IndexKeyError",
    "LogPin",
    "NetworkError",
    "Publication",
    "PublicationError",
    "PublishDeadlockError",
    "PublishTimeoutError",
    "Range",
    "Receipt",
    "RecordReplay",
    "Replay",
    "ReplayRange",
    "RequestRefusedError",
    "ServerSettings",
    "SlowConsumerError",
    "StoredPublication",
    "StoredRecords",
    "Subscription",
    "SubscriptionStatistics",
    "SyncAdvertisement",
    "SyncBroker",
    "SyncClient",
    "SyncDurableSubscription",
    "SyncReceipt",
    "SyncRecordReplay",
    "SyncReplay",
    "SyncSubscription",
    "TlsSettings",
    "UnreachedError",
    "WhenFull",
    "connect",
    "connect_sync",
    "filter_from_pattern",
    "flatten",
    "follow",
    "history",
    "open",
    "serve",
    "serve_peer",
    "serve_peer_sync",
    "serve_sync",
    "to_spark",
]

__version__ = "0.1.0"

_ROOMS = {
    "AccessDeniedError": "errors",
    "Advertisement": "runtime",
    "AsyncBus": "embedded",
    "AsyncBusSubscription": "embedded",
    "AuthenticationError": "errors",
    "BraidError": "errors",
    "Broker": "server",
    "Bus": "embedded",
    "BusClosedError": "errors",
    "BusReceipt": "embedded",
    "BusStatistics": "embedded",
    "BusSubscription": "embedded",
    "Client": "runtime",
    "ConfigurationError": "errors",
    "ConnectionEvent": "runtime",
    "ConnectionLostError": "errors",
    "DurableStatus": "runtime",
    "DurableSubscription": "runtime",
    "Explanation": "language",
    "Filter": "language",
    "FilterError": "errors",
    "FilterIndex": "matching",
    "FilterSyntaxError": "errors",
    "IndexKeyError": "errors",
    "LogPin": "runtime",
    "NetworkError": "errors",
    "Publication": "language",
    "PublicationError": "errors",
    "PublishDeadlockError": "errors",
    "PublishTimeoutError": "errors",
    "Range": "language",
    "Receipt": "runtime",
    "RecordReplay": "runtime",
    "Replay": "runtime",
    "ReplayRange": "runtime",
    "RequestRefusedError": "errors",
    "ServerSettings": "server",
    "SlowConsumerError": "errors",
    "StoredPublication": "client",
    "StoredRecords": "client",
    "Subscription": "runtime",
    "SubscriptionStatistics": "embedded",
    "SyncAdvertisement": "runtime",
    "SyncBroker": "server",
    "SyncClient": "runtime",
    "SyncDurableSubscription": "runtime",
    "SyncReceipt": "runtime",
    "SyncRecordReplay": "runtime",
    "SyncReplay": "runtime",
    "SyncSubscription": "runtime",
    "TlsSettings": "runtime",
    "UnreachedError": "errors",
    "WhenFull": "embedded",
    "connect": "runtime",
    "connect_sync": "runtime",
    "filter_from_pattern": "language",
    "follow": "pipeline.archive",
    "history": "pipeline.archive",
    "flatten": "language",
    "open": "embedded",
    "serve": "server",
    "serve_peer": "server",
    "serve_peer_sync": "server",
    "serve_sync": "server",
    "to_spark": "language",
}


def __getattr__(name: str) -> Any:
    room = _ROOMS.get(name)
    if room is None:
        raise AttributeError(f"module 'braid' has no attribute {name!r}")
    value = getattr(import_module(f"braid.{room}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])


if os.path.exists(os.path.join(os.path.dirname(__file__), "compiled.json")):
    from braid.compiled import require_current

    require_current()
