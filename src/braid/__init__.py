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

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from braid.embedded import Bus, Subscription, open
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
    )
    from braid.language import Explanation, Filter, Publication, Range, filter_from_pattern, flatten, to_spark
    from braid.matching import FilterIndex
    from braid.runtime import Client, StoredPublication, SyncClient, TlsSettings, connect, connect_sync
    from braid.server import Broker, ServerSettings, SyncBroker, serve, serve_sync

__all__ = [
    "AccessDeniedError",
    "AuthenticationError",
    "BraidError",
    "Broker",
    "Bus",
    "BusClosedError",
    "Client",
    "ConfigurationError",
    "ConnectionLostError",
    "Explanation",
    "Filter",
    "FilterError",
    "FilterIndex",
    "FilterSyntaxError",
    "IndexKeyError",
    "NetworkError",
    "Publication",
    "PublicationError",
    "PublishDeadlockError",
    "PublishTimeoutError",
    "Range",
    "RequestRefusedError",
    "ServerSettings",
    "SlowConsumerError",
    "StoredPublication",
    "Subscription",
    "SyncBroker",
    "SyncClient",
    "TlsSettings",
    "connect",
    "connect_sync",
    "filter_from_pattern",
    "flatten",
    "open",
    "serve",
    "serve_sync",
    "to_spark",
]

__version__ = "0.1.0"

_ROOMS = {
    "AccessDeniedError": "errors",
    "AuthenticationError": "errors",
    "BraidError": "errors",
    "Broker": "server",
    "Bus": "embedded",
    "BusClosedError": "errors",
    "Client": "runtime",
    "ConfigurationError": "errors",
    "ConnectionLostError": "errors",
    "Explanation": "language",
    "Filter": "language",
    "FilterError": "errors",
    "FilterIndex": "matching",
    "FilterSyntaxError": "errors",
    "IndexKeyError": "errors",
    "NetworkError": "errors",
    "Publication": "language",
    "PublicationError": "errors",
    "PublishDeadlockError": "errors",
    "PublishTimeoutError": "errors",
    "Range": "language",
    "RequestRefusedError": "errors",
    "ServerSettings": "server",
    "SlowConsumerError": "errors",
    "StoredPublication": "runtime",
    "Subscription": "embedded",
    "SyncBroker": "server",
    "SyncClient": "runtime",
    "TlsSettings": "runtime",
    "connect": "runtime",
    "connect_sync": "runtime",
    "filter_from_pattern": "language",
    "flatten": "language",
    "open": "embedded",
    "serve": "server",
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
