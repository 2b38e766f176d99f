"""Braid: a content-based publish/subscribe network.

Publish events made of attributes, subscribe with SQL predicates, and each publication reaches
exactly the subscribers whose predicate it satisfies.

    import braid

    with braid.open() as bus:
        quotes = bus.subscribe("symbol = 'ACME' AND price > 10")
        bus.publish({"symbol": "ACME", "price": 12.5})
        print(quotes.get()["price"])

Names are loaded when they are first used, so that `import braid` costs next to nothing.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from braid.embedded import Bus, Subscription, open
    from braid.errors import (
        BraidError,
        BusClosedError,
        ConfigurationError,
        FilterError,
        FilterSyntaxError,
        IndexKeyError,
        PublicationError,
        PublishDeadlockError,
        PublishTimeoutError,
        SlowConsumerError,
    )
    from braid.language import Explanation, Filter, Publication, Range, filter_from_pattern, flatten, to_spark
    from braid.matching import FilterIndex

__all__ = [
    "BraidError",
    "Bus",
    "BusClosedError",
    "ConfigurationError",
    "Explanation",
    "Filter",
    "FilterError",
    "FilterIndex",
    "FilterSyntaxError",
    "IndexKeyError",
    "Publication",
    "PublicationError",
    "PublishDeadlockError",
    "PublishTimeoutError",
    "Range",
    "SlowConsumerError",
    "Subscription",
    "filter_from_pattern",
    "flatten",
    "open",
    "to_spark",
]

__version__ = "0.1.0"

_ROOMS = {
    "BraidError": "errors",
    "Bus": "embedded",
    "BusClosedError": "errors",
    "ConfigurationError": "errors",
    "Explanation": "language",
    "Filter": "language",
    "FilterError": "errors",
    "FilterIndex": "matching",
    "FilterSyntaxError": "errors",
    "IndexKeyError": "errors",
    "Publication": "language",
    "PublicationError": "errors",
    "PublishDeadlockError": "errors",
    "PublishTimeoutError": "errors",
    "Range": "language",
    "SlowConsumerError": "errors",
    "Subscription": "embedded",
    "filter_from_pattern": "language",
    "flatten": "language",
    "open": "embedded",
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
