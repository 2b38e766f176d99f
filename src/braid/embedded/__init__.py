"""How do parts of one program talk through filters, without a broker?

`open` gives a `Bus`; everything else here is what its methods take, return or raise.

- `bus`, `subscription`: what a user holds; `arguments` checks what they are given.
- `core`, `mailbox`: the decisions, without threads or time.
- `engine`, `delivery`, `waiting`: threads and tasks that carry them out; `farewell`: the end of the program.
"""

from __future__ import annotations

from braid.embedded.bus import AsyncBus, Bus, open
from braid.embedded.mailbox import WhenFull
from braid.embedded.statistics import BusReceipt, BusStatistics, SubscriptionStatistics
from braid.embedded.subscription import AsyncBusSubscription, BusSubscription
from braid.errors import PublishDeadlockError, PublishTimeoutError

__all__ = [
    "AsyncBus",
    "AsyncBusSubscription",
    "Bus",
    "BusReceipt",
    "BusStatistics",
    "BusSubscription",
    "PublishDeadlockError",
    "PublishTimeoutError",
    "SubscriptionStatistics",
    "WhenFull",
    "open",
]
